"""Lag from the directory of a stopped broker equals the output of Kafka's tool."""
from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from golden.make.brokers import WORK, class_path
from golden.make.case_context import CaseContext, Surroundings
from golden.make.java import ClassArchive, java_command
from golden.make.java_client import JavaClients
from models.seed import some

import kafkastore

pytestmark = pytest.mark.kafka

# The tools of this version work with all brokers here; newer tools are in a separate jar.
TOOLS = "2.4.0"
ROW = re.compile(r"^(billing|audit|done|ahead) +(\S+) +(\d+) +(\d+) +(\d+) +(-?\d+) ", re.MULTILINE)


@pytest.mark.parametrize("version", some(["2.4.0", "3.9.1", "4.3.1"], 2, __name__))
def test_lag_is_that_of_kafkas_tool(require_broker, tmp_path: Path, version: str) -> None:
    require_broker(version)
    require_broker(TOOLS)
    with JavaClients(WORK) as clients:
        context = CaseContext(version, "lag", tmp_path / "out", Surroundings("lag", WORK, clients))
        try:
            context.start({"offsets.topic.num.partitions": 3})
            expected = _let_groups_read(context)
            context.stop()
            logs = tmp_path / "logs"
            shutil.copytree(context.cluster.logs, logs)
        finally:
            context.abandon()
            context.remove_run_directory()
    found = {
        (each.group, *each.topic_partition): each for each in kafkastore.lag(kafkastore.open(logs))
    }
    assert len(expected) == 6
    assert {
        key: (each.committed.offset, each.log_end_offset, each.offsets)
        for key, each in found.items()
    } == expected
    # In partition 1 each transaction has a marker after its 5 records; the second was aborted.
    assert [found["audit", "orders", 1].records, found["done", "orders", 1].records] == [10, 0]
    committed = kafkastore.lag(kafkastore.open(logs), ["audit"], isolation="read_committed")
    assert {each.topic_partition.partition: each.records for each in committed} == {0: 35, 1: 5}
    oldest = found["audit", "orders", 0]
    assert oldest.unread.first_timestamp == context.first_timestamp + 5
    assert oldest.lag_ms == 39 - 5


def _tool(context: CaseContext, main_class: str, *arguments: str) -> str:
    """Run one of Kafka's tools against the broker."""
    archive = ClassArchive(f"{TOOLS}-{main_class}", WORK)
    command = java_command(
        class_path(TOOLS, WORK),
        main_class,
        *("--bootstrap-server", context.cluster.address, *arguments),
        logs_as="client",
        options=archive.options,
    )
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=800, check=False
    )
    archive.keep()
    return done.stdout.decode(errors="replace")


def _let_groups_read(context: CaseContext) -> dict:
    """Let groups read and commit; return the tool's output for them."""
    first = context.first_timestamp
    context.create_topic("orders", 2)
    context.produce("orders", context.batches([first + number for number in range(40)]), 0)
    for action in ("commit", "abort"):
        properties = {"transactional.id": "tx", "enable.idempotence": "true", "acks": "all"}
        if action == "commit":
            context.client("txn", id="tx", action="init", props=properties)
        context.client("txn", id="tx", action="begin", props=properties)
        batches = context.batches([first + number for number in range(5)])
        context.produce("orders", batches, 1, producer="tx")
        context.client("txn", id="tx", action=action, props=properties)
    printed = _tool(
        context,
        *("kafka.tools.ConsoleConsumer", "--topic", "orders", "--group", "billing"),
        *("--from-beginning", "--max-messages", "17", "--timeout-ms", "60000"),
    )
    assert "Processed a total of 17 messages" in printed
    for group, partition, offset in (
        ("audit", 0, 5), ("audit", 1, 0), ("done", 1, 11), ("ahead", 0, 40)
    ):
        context.client(
            "commit_offsets", group=group, topic="orders", partition=partition, offset=offset
        )
    printed = _tool(context, "kafka.admin.ConsumerGroupCommand", "--describe", "--all-groups")
    return {
        (group, topic, int(partition)): (int(current), int(end), int(lag))
        for group, topic, partition, current, end, lag in ROW.findall(printed)
    }
