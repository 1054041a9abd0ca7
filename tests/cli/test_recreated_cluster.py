"""A cluster that ``--recreate`` makes again, with the records of the old one's disk.

The steps are those of "The same topics in another cluster" in docs/cluster.md and of step 8 in
docs/restore.md, with the tools of Kafka.
"""
from __future__ import annotations

import os
import shlex
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from cli.running import Run
from cli.test_lost_cluster import ask, configs_in
from golden.make.brokers import WORK
from golden.make.java_client import JavaClient, JavaClients
from golden.make.kraft_cluster import KraftCluster, NodePlan
from models.disk_contents import everything_in
from models.kafka_tools import run_tools, write_tools_of_the_script
from models.seed import some

import kafkastore
from kafkastore.checks.predict import Outcome

pytestmark = pytest.mark.kafka

VERSIONS = ["3.9.1", "4.1.1", "4.3.1"]
SETTINGS: Mapping[str, str | int] = {
    "offsets.topic.replication.factor": 1, "offsets.topic.num.partitions": 2,
    "transaction.state.log.replication.factor": 1, "transaction.state.log.min.isr": 1,
    "transaction.state.log.num.partitions": 2, "group.initial.rebalance.delay.ms": 0,
    "super.users": "User:ANONYMOUS",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
}
ONE = [[1]]
TOPICS: list[dict[str, Any]] = [
    {"name": "orders", "assignment": ONE * 3,
     "configs": {"retention.ms": "-1", "min.insync.replicas": "1"}},
    {"name": "-dash", "assignment": ONE, "configs": {
        "segment.ms": " 7200000 ", "retention.ms": "-1", "compression.type": "zstd"}},
    {"name": "Unusual.na_me", "assignment": ONE * 5, "configs": {
        "cleanup.policy": "compact, delete", "retention.ms": "-1",
        "leader.replication.throttled.replicas": "0:1,4:1",
        "follower.replication.throttled.replicas": "",
    }},
    {"name": "few", "assignment": ONE * 2, "configs": {}},
]
BROKER_CONFIGS: dict[str, dict[str, str]] = {
    "": {"max.connections.per.ip.overrides": "127.0.0.1:1000,127.0.0.2:7",
         "log.roll.ms": "9000000"},
    "1": {"background.threads": "12",
          "ssl.cipher.suites": "TLS_AES_128_GCM_SHA256, TLS_AES_256_GCM_SHA384",
          "sasl.kerberos.principal.to.local.rules": "RULE:[1:$1@$0](.*@X=Y)s/@.*//,DEFAULT"},
}
METRICS = 'm [1],"ö"=\\'
IDEMPOTENT = {"acks": "all", "enable.idempotence": "true"}
PAYMENTS = {
    "id": "payments", "topic": "orders", "props": IDEMPOTENT | {"transactional.id": "payments"}}
ENDS = {True: "killed", False: "stopped"}


def _records(count: int) -> list[list[list[Any]]]:
    """Batches of one record each."""
    now = int(time.time() * 1000)
    return [[[now + each, "aw==", "dg=="]] for each in range(count)]


def _fill(cluster: KraftCluster, client: JavaClient) -> None:
    """Create topics, set configurations, and produce records; a transaction stays open."""
    admin = cluster.admin
    admin("create_topics", topics=TOPICS)
    for name, values in BROKER_CONFIGS.items():
        admin("alter_configs", type="BROKER", name=name, set=values)
    admin("alter_configs", type="CLIENT_METRICS", name=METRICS, set={
        "match": "client_id=a.*,client_software_name=b", "interval.ms": "1000"})
    cluster.wait_for_replicas()
    client("connect", bootstrap=cluster.address())
    _produce(client, "old", ("orders", 0), 20)
    _produce(client, "old", ("-dash", 0), 20)
    _produce(client, "old", ("Unusual.na_me", 4), 20)
    _produce(client, "old", ("few", 0), 1)
    client("txn", action="init", **PAYMENTS)
    for action in ("commit", "abort", "commit"):
        client("txn", action="begin", **PAYMENTS)
        client("produce", batches=_records(5), partition=1, **PAYMENTS)
        client("txn", action=action, **PAYMENTS)
    client("txn", action="begin", **PAYMENTS)
    client("produce", batches=_records(2), partition=2, **PAYMENTS)


def _produce(client: JavaClient, producer: str, partition: tuple[str, int], count: int) -> None:
    topic, number = partition
    client("produce", id=producer, topic=topic, partition=number, batches=_records(count),
           props=IDEMPOTENT)


def _read(client: JavaClient, topic: str, partition: int, isolation: str) -> Any:
    """The records that a consumer gets, without their leader epochs."""
    rows = client("consume", topic=topic, partition=partition, isolation=isolation)["rows"]
    return [row[:-1] for row in rows]


def _everything(client: JavaClient, isolation: str) -> dict[Any, Any]:
    return {
        (topic["name"], partition): _read(client, topic["name"], partition, isolation)
        for topic in TOPICS for partition in range(len(topic["assignment"]))
    }


def _run_tool(version: str, command: str) -> None:
    (printed,) = run_tools(version, [command])
    assert printed.code == 0, printed.text


def _recreate(script: str, folder: Path, cluster: KraftCluster) -> None:
    """Run the script, in which nothing fails."""
    write_tools_of_the_script(folder, cluster.version, cluster.address())
    environment = {
        "PATH": os.environ["PATH"], "KAFKA_BIN": str(folder), "BOOTSTRAP": cluster.address()}
    done = subprocess.run(
        ["sh"], input=script.encode(), env=environment, check=False, timeout=400,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )
    assert done.returncode == 0, done.stdout.decode(errors="replace")
    cluster.wait_for_replicas()


@pytest.mark.parametrize("is_killed", some([True, False], 1, f"{__name__} end"), ids=ENDS.get)
@pytest.mark.parametrize("version", some(VERSIONS, 1, __name__))
def test_the_disk_of_a_lost_cluster_goes_into_the_cluster_that_the_script_makes(
    require_broker: Callable[[str], None], run: Run, tmp_path: Path, version: str, is_killed: bool
) -> None:
    require_broker(version)
    plans = [NodePlan(1)]
    with JavaClients(WORK) as clients, KraftCluster(
        version, tmp_path / "old", plans, SETTINGS
    ) as old:
        old.format()
        old.start()
        client = clients.of(version)
        _fill(old, client)
        first = old.admin("group_read", group="returning", topic="orders", count=15)["rows"]
        records, before = _everything(client, "read_uncommitted"), ask(old)
        committed = _everything(client, "read_committed")
        offsets = old.admin("group_offsets", group="returning")
        old.nodes[1].stop(kill=is_killed)
    disk = old.nodes[1].logs
    untouched = everything_in(disk)

    script = run("cluster", disk, "--recreate").out
    (document,) = run("cluster", disk, "--recreate", "--json").lines
    with JavaClients(WORK) as clients, KraftCluster(
        version, tmp_path / "new", plans, SETTINGS
    ) as new:
        new.format()
        new.start()
        _recreate(script, tmp_path / "bin", new)
        made = ask(new)
        assert configs_in(made) == configs_in(before)
        counts = {name: len(each["partitions"]) for name, each in made["topics"].items()}
        assert counts == {each["topic"]: each["partitions"] for each in document["topics"]}
        assert counts == {name: len(each["partitions"]) for name, each in before["topics"].items()}
        new.nodes[1].stop()

        logs = new.nodes[1].logs
        restored = run("restore", disk, logs, "--yes")
        assert restored.code == 0, restored.err
        filled = [key for key, rows in records.items() if rows]
        predicted = kafkastore.predict_start(logs, version, partitions=filled)
        assert {each.outcome for each in predicted} == {Outcome.IS_LOADED}
        (unfinished,) = run("transactions", logs, "--json").lines
        positions = tmp_path / "positions.csv"
        positions.write_text(run("lag", disk, "--csv").out)

        new.start()
        new.wait_for_replicas()
        assert not list(logs.glob("*-stray"))
        at = f"--bootstrap-server {new.address()}"
        _run_tool(
            version,
            f"kafka-consumer-groups.sh {at} --group returning --reset-offsets "
            f"--from-file {shlex.quote(str(positions))} --execute",
        )
        assert new.admin("group_offsets", group="returning") == offsets
        client = clients.of(version)
        client("connect", bootstrap=new.address())
        assert _everything(client, "read_uncommitted") == records
        assert _everything(client, "read_committed") == committed
        again = new.admin("group_read", group="returning", topic="orders", count=22)["rows"]
        assert sorted(first + again) == sorted(
            [partition, row[0]]
            for (topic, partition), rows in records.items() for row in rows if topic == "orders"
        )

        # A new producer has the id of an old one, and writes as many records.
        _produce(client, "new", ("few", 0), 1)
        _run_tool(
            version,
            f"kafka-transactions.sh {at} abort --topic orders --partition "
            f"{unfinished['partition']} --start-offset {unfinished['first_offset']}",
        )
        _produce(client, "new", ("orders", 2), 2)
        for topic, partition, offsets in (("few", 0, [0, 1]), ("orders", 2, [3, 4])):
            rows = _read(client, topic, partition, "read_committed")
            assert [row[0] for row in rows] == offsets
        new.admin.close()
        new.nodes[1].stop()
    assert everything_in(disk) == untouched
