"""The way of docs/restore.md without a broker's disk: MirrorMaker 2 reads from a server."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from cli.examples import Command, blocks_in, run_command
from confluent_kafka.admin import AdminClient
from golden.make.brokers import WORK, mirror_maker_jars
from golden.make.case_context import CaseContext, Surroundings
from golden.make.java import ClassArchive, LoggedProcess, java_command
from golden.make.java_client import JavaClients
from models.confluent_reader import read_by_confluent
from models.kafka_tools import MAIN_CLASSES, run_tools
from models.served_records import COMMITTED, UNCOMMITTED, expected, topics_of
from test_restore import OTHER_WAYS

import kafkastore
from kafkastore.samples.unpacking import unpack_archive
from kafkastore.server import serve

pytestmark = pytest.mark.soak

VERSION = "4.3.1"
MAIN_CLASS = "org.apache.kafka.connect.mirror.MirrorMaker"
GROUPS = Path(__file__).parent / "golden" / "groups" / f"{VERSION}.tar.xz"
CASES = [("0.10.2.2", "codecs"), ("3.9.1", "headers-and-nulls"), ("4.3.1", "transactions")]
SECONDS = 120
CREATE = re.compile(r"kafka-topics\.sh --bootstrap-server \$NEW --create --topic (\S+) ")


def without_offsets(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Return the records of each partition in their order."""
    return [(row[0], *row[2:]) for row in sorted(rows, key=lambda each: each[:2])]


def wait_until(is_so: Callable[[], bool], mirror: LoggedProcess) -> None:
    """Wait, as long as MirrorMaker runs."""
    deadline = time.monotonic() + SECONDS
    while not is_so():
        assert mirror.process.poll() is None, mirror.log()[-3000:]
        assert time.monotonic() < deadline, mirror.log()[-3000:]
        time.sleep(0.5)


def test_the_page_s_topics_are_kept() -> None:
    (created,) = (block for block in blocks_in(OTHER_WAYS) if CREATE.match(block.text))
    assert "--config retention.ms=-1" in created.text


def test_a_mirror_of_a_server_has_every_record_and_the_groups_positions(
    golden: Callable[..., Any], require_broker: Callable[[str], None], tmp_path: Path
) -> None:
    require_broker(VERSION)
    (properties,) = (
        block.text for block in blocks_in(OTHER_WAYS) if block.language == "properties"
    )
    unpack_archive(GROUPS, tmp_path)
    of_groups = tmp_path / "groups" / "logs"
    (tmp_path / "restored").mkdir()
    (tmp_path / "restored" / "kafka-logs").symlink_to(of_groups)
    cases = [golden(*each, "answers") for each in CASES]
    wanted = {
        topic: [(*row[:3], *row[4:]) for row in expected(partitions, COMMITTED)]
        for case in cases for topic, partitions in topics_of(case).items()
    }
    lag = {
        (each.group, *each.topic_partition): each.records
        for each in kafkastore.lag(of_groups, isolation=COMMITTED)
        if each.topic_partition.topic == "orders"
    }
    with ExitStack() as stack:
        clients = stack.enter_context(JavaClients(WORK))
        context = CaseContext(
            VERSION, "mirror", tmp_path / "new", Surroundings("mirror", WORK, clients)
        )
        stack.callback(context.remove_run_directory)
        stack.callback(context.abandon)
        context.start()
        address = context.cluster.address
        served = stack.enter_context(serve([of_groups, *(case.logs for case in cases)]))
        wanted["orders"] = read_by_confluent(
            served.bootstrap_servers, "orders", range(3), COMMITTED
        )
        file = tmp_path / "mirror.properties"
        file.write_text(re.sub(
            r"(?m)^old\.bootstrap.*", f"old.bootstrap.servers = {served.bootstrap_servers}",
            re.sub(r"\bNEW$", address, properties, flags=re.MULTILINE),
        ))
        assert properties.count(" NEW\n") == 1
        archive = ClassArchive(f"{VERSION}-{MAIN_CLASS}", WORK)
        mirror = LoggedProcess(
            java_command(
                f"{mirror_maker_jars(VERSION)}/*", MAIN_CLASS, str(file), logs_as="client",
                options=archive.options,
            ),
            tmp_path / "mirror.log",
        )
        stack.callback(mirror.abandon)
        admin = AdminClient({"bootstrap.servers": address, "log_level": 0})

        def has_topics() -> bool:
            return wanted.keys() <= admin.list_topics(timeout=60).topics.keys()

        def read(topic: str) -> list[tuple[Any, ...]]:
            partitions = admin.list_topics(timeout=60).topics[topic].partitions
            return read_by_confluent(address, topic, list(partitions), UNCOMMITTED)

        wait_until(has_topics, mirror)
        for topic, rows in wanted.items():
            wait_until(lambda topic=topic, rows=rows: len(read(topic)) >= len(rows), mirror)
            found = read(topic)
            assert without_offsets(found) == without_offsets(
                [(*row[:2], max(row[2], 0) or -1, *row[3:]) for row in rows]
            ), topic
            for number in {row[0] for row in found}:
                offsets = [row[1] for row in found if row[0] == number]
                assert offsets == [*range(len(offsets))]
        mirror.end()
        archive.keep()
        set_positions(tmp_path, address)
        (described,) = run_tools(VERSION, [
            f"kafka-consumer-groups.sh --bootstrap-server {address} --describe --all-groups",
        ])
        mirrored = set(admin.list_topics(timeout=60).topics)
        context.stop()
    rows = re.findall(r"(?m)^(\S+) +orders +(\d+) +(\d+) +\d+ +(\d+)", described.text)
    found = {(group, "orders", int(number)): int(lag) for group, number, _, lag in rows}
    assert len(found) > 8
    assert found == lag
    assert "__transaction_state" not in mirrored


def set_positions(folder: Path, address: str) -> None:
    """Follow the page's last commands."""
    (block,) = (block for block in blocks_in(OTHER_WAYS) if "lag_records" in block.text)
    for line in block.text.replace("$NEW", address).splitlines():
        command, _, output = line.partition(" > ") if " > " in line else (line, "", "")
        program, *_ = command.split()
        if program in MAIN_CLASSES:
            words = subprocess.check_output(["sh", "-c", f"echo {command}"], cwd=folder, text=True)
            words = words.replace(" positions.csv", f" {folder / 'positions.csv'}")
            (printed,) = run_tools(VERSION, [words])
            assert printed.code == 0, printed.text
            if output:
                (folder / output).write_text(printed.text)
        else:
            run_command(Command(line, ""), folder)
