"""A KRaft cluster of which only disks are left: made again from them, and by a script.

The steps are those of "Three disks, no cluster" in docs/restore.md, and ``--recreate`` of
docs/cluster.md, with the tools of Kafka.
"""
from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from cli.examples import blocks_in, commands_of, run_command
from cli.running import Run
from golden.make.brokers import WORK
from golden.make.java_client import JavaClients
from golden.make.kraft_cluster import KraftCluster, NodePlan
from models.disk_contents import everything_in, overwrite
from models.kafka_tools import write_tools_of_the_script
from models.seed import some

import kafkastore

pytestmark = pytest.mark.kafka

DOCUMENT = Path(__file__).parents[2] / "docs" / "restore.md"
_, _, THREE_DISKS = DOCUMENT.read_text(encoding="utf-8").partition("## Three disks, no cluster")
BOTH, BROKER, CONTROLLER = ("broker", "controller"), ("broker",), ("controller",)
#: The nodes of a cluster; the brokers are always 1, 2 and 3.
NODES: dict[str, list[NodePlan]] = {
    "controllers on the disks": [NodePlan(number, BOTH) for number in (1, 2, 3)],
    "controller lost": [NodePlan(4, CONTROLLER)]
    + [NodePlan(number, BROKER) for number in (1, 2, 3)],
}
#: Versions of the lost cluster, and of the one that the script makes.
VERSIONS = [("3.9.1", "3.9.1"), ("3.9.1", "4.3.1"), ("4.1.1", "4.1.1"), ("4.3.1", "4.3.1")]
SETTINGS: Mapping[str, str | int] = {
    "offsets.topic.replication.factor": 3, "offsets.topic.num.partitions": 2,
    "group.initial.rebalance.delay.ms": 0, "super.users": "User:ANONYMOUS",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
}
ACL = {
    "resource_type": "TOPIC", "resource_name": "orders", "pattern_type": "LITERAL",
    "principal": "User:u", "host": "*", "operation": "READ", "permission": "ALLOW",
}
ODD = 'z [1],"ö"=\\'
TOPICS: list[dict[str, Any]] = [
    {"name": "orders", "assignment": [[1, 2, 3], [2, 3, 1]],
     "configs": {"retention.ms": "-1", "min.insync.replicas": "2"}},
    {"name": "-dash", "assignment": [[2]], "configs": {"segment.ms": " 7200000 "}},
    {"name": "Unusual.na_me", "assignment": [[1, 2], [2, 3], [3, 1], [1, 2], [2, 3]],
     "configs": {
         "cleanup.policy": "compact, delete", "retention.ms": "-1",
         "leader.replication.throttled.replicas": "0:1,4:2",
         "follower.replication.throttled.replicas": "",
     }},
    {"name": "grown", "assignment": [[3]]},
    {"name": "there", "assignment": [[1], [2]]},
    {"name": "doomed", "assignment": [[1], [2]]},
]
#: 4.0 and later refuse these, which 3.9 accepts.
OF_OLD_BROKERS = {"segment.bytes": "1048575", "message.format.version": "2.8"}
RECORDS = [
    [[1_500_000_000_000 + each, "aw==", "dg=="]] for each in range(20)
]


def _change(cluster: KraftCluster) -> None:
    """Create topics, and set and remove what the metadata has."""
    admin = cluster.admin
    is_old = cluster.version.startswith("3.")
    topics = [dict(each) for each in TOPICS]
    if is_old:
        topics[3]["configs"] = OF_OLD_BROKERS
    admin("create_topics", topics=topics)
    admin("create_partitions", topic="grown", total=4)
    admin("delete_topic", topic="doomed")
    for values in ({"set": {"segment.ms": "9000000", "max.message.bytes": "123456"}},
                   {"delete": ["segment.ms"]}):
        admin("alter_configs", type="TOPIC", name="orders", **values)
    admin("alter_configs", type="BROKER", name="", set={
        "max.connections.per.ip.overrides": "127.0.0.1:1000,127.0.0.2:7",
        "log.roll.ms": "9000000",
    })
    admin("alter_configs", type="BROKER", name="1", set={"num.io.threads": "3"})
    rules = "RULE:[1:$1@$0](.*@X)s/@.*//,DEFAULT"
    admin("alter_configs", type="BROKER", name="2", set={
        "background.threads": "12", "sasl.kerberos.principal.to.local.rules": rules,
    })
    admin("alter_configs", type="BROKER", name="3", set={"num.io.threads": "3"})
    admin("alter_configs", type="CLIENT_METRICS", name=ODD, set={
        "match": "client_id=a.*,client_software_name=b", "interval.ms": "1000", "metrics": "",
    })
    admin("alter_configs", type="CLIENT_METRICS", name="m", set={"match": "client_id=a"})
    if not is_old:
        admin("alter_configs", type="GROUP", name=ODD, set={"consumer.session.timeout.ms": "46000"})
    quotas: list[tuple[dict[str, str | None], dict[str, float]]] = [
        ({"user": ODD, "client-id": None}, {"producer_byte_rate": 1e6, "request_percentage": 0.1}),
        ({"user": None}, {"consumer_byte_rate": 5e6}),
        ({"ip": "127.0.0.3"}, {"connection_creation_rate": 300.0}),
    ]
    for entity, values in quotas:
        admin("alter_quotas", entity=entity, values=values)
    user = {"user": "u", "mechanism": "SCRAM-SHA-256", "iterations": 4096}
    admin("create_acl", acl=ACL)
    # A controller that has just become active may refuse it.
    cluster.wait_until("a SCRAM user", lambda: admin("alter_scram", users=[user]) == {})
    cluster.wait_for_replicas()


def ask(cluster: KraftCluster) -> dict[str, Any]:
    """Return what an administrator reads."""
    brokers = [each.plan.node_id for each in cluster.running_brokers]
    groups = [] if cluster.version.startswith("3.") else [ODD]
    return cluster.admin("ask", brokers=brokers, groups=groups)


def _lasting(asked: dict[str, Any]) -> dict[str, Any]:
    """Leave out leaders and epochs."""
    topics = {
        name: (topic["topic_id"], {
            number: each["replicas"] for number, each in topic["partitions"].items()
        })
        for name, topic in asked["topics"].items()
    }
    kept = ("configs", "scram_credentials", "client_quotas", "acls")
    finalized = asked["features"]["finalized"]
    return {"topics": topics, "features": finalized, **{each: asked[each] for each in kept}}


def configs_in(asked: dict[str, Any]) -> dict[tuple[str, str], dict[str, str]]:
    """The configurations by resource, without those of brokers' defaults."""
    found = {}
    for resource in asked["configs"]:
        is_default = (resource["type"], resource["name"]) == ("BROKER", "")
        values = {
            name: entry["value"] for name, entry in resource["entries"].items()
            if is_default or "DEFAULT" not in entry["source"]
        }
        if values:
            found[resource["type"], resource["name"]] = values
    return found


def _recreate(script: str, version: str, folder: Path) -> tuple[int, dict[str, Any]]:
    """Run the script for brokers 1 and 2; return its exit code, and what they answer."""
    plans = [NodePlan(1, BOTH), NodePlan(2, BROKER)]
    settings = SETTINGS | {"offsets.topic.replication.factor": 1}
    with KraftCluster(version, folder, plans, settings) as made:
        made.format()
        made.start()
        made.wait_for_brokers(1, 2)
        topic = {"name": "there", "partitions": 7, "replicas": 1}
        made.admin("create_topics", topics=[topic])
        write_tools_of_the_script(folder / "bin", version, made.address())
        environment = {
            "PATH": os.environ["PATH"], "KAFKA_BIN": str(folder / "bin"),
            "BOOTSTRAP": made.address(), "BROKERS": "2",
        }
        done = subprocess.run(
            ["sh"], input=script.encode(), env=environment, check=False, timeout=400,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )
        print(done.stdout.decode(errors="replace"))
        made.wait_for_replicas()
        return done.returncode, ask(made)


def _assert_same(made: dict[str, Any], before: dict[str, Any], *, is_newer: bool) -> None:
    """A cluster has the topics, the configurations and the quotas of another."""
    assert len(made["topics"].pop("there")["partitions"]) == 7
    topics = dict(before["topics"])
    del topics["there"]
    for name, topic in topics.items():
        for number, partition in topic["partitions"].items():
            replicas = made["topics"][name]["partitions"][number]["replicas"]
            assert len(replicas) == min(len(partition["replicas"]), 2)
        assert made["topics"][name]["partitions"].keys() == topic["partitions"].keys()
    assert made["topics"].keys() == topics.keys()
    expected = {resource: dict(values) for resource, values in configs_in(before).items()}
    del expected["BROKER", "3"]
    if is_newer:
        for name in OF_OLD_BROKERS:
            del expected["TOPIC", "grown"][name]
        # Set with the feature eligible.leader.replicas.version, which 3.9 does not have.
        expected["BROKER", ""]["min.insync.replicas"] = "1"
    assert configs_in(made) == {resource: values for resource, values in expected.items() if values}
    assert made["client_quotas"] == before["client_quotas"]


def _assert_document(document: dict[str, Any], before: dict[str, Any]) -> None:
    """The document for programs has what the cluster answered."""
    assert {each["topic"]: each["topic_id"] for each in document["topics"]} == {
        name: topic["topic_id"] for name, topic in before["topics"].items()
    }
    for topic in document["topics"]:
        partitions = before["topics"][topic["topic"]]["partitions"]
        assert topic["replicas"] == {
            number: each["replicas"] for number, each in partitions.items()
        }
        assert topic["partitions"] == len(partitions)
        values = {name: value.replace(" ", "") for name, value in topic["configs"].items()}
        # A broker parses them.
        assert values == configs_in(before).get(("TOPIC", topic["topic"]), {})
    kinds = {"brokers": "BROKER", "client-metrics": "CLIENT_METRICS", "groups": "GROUP"}
    assert {
        (kinds[each["entity_type"]], each["entity_name"] or ""): each["configs"]
        for each in document["configs"]
    } == {key: values for key, values in configs_in(before).items() if key[0] != "TOPIC"}
    order = str
    assert sorted(document["client_quotas"], key=order) == sorted(
        before["client_quotas"], key=order)
    levels = {name: level for name, (_, level) in before["features"]["finalized"].items()}
    assert document["features"] == levels


@pytest.mark.parametrize("nodes", some([*NODES], 1, f"{__name__} nodes"))
@pytest.mark.parametrize(("version", "newer"), some(VERSIONS, 1, __name__))
def test_what_the_disks_of_a_cluster_show_makes_a_cluster_again(
    require_broker: Callable[[str], None], run: Run, tmp_path: Path, version: str, newer: str,
    nodes: str,
) -> None:
    require_broker(version)
    require_broker(newer)
    (tmp_path / "disks").mkdir()
    with JavaClients(WORK) as clients, KraftCluster(
        version, tmp_path / "old", NODES[nodes], SETTINGS
    ) as old:
        old.format()
        old.start()
        old.wait_for_brokers(1, 2, 3)
        _change(old)
        client = clients.of(version)
        client("connect", bootstrap=old.address())
        produced = [("orders", 0), ("orders", 1), ("-dash", 0), ("Unusual.na_me", 4), ("grown", 3)]
        for topic, partition in produced:
            client(
                "produce", id="some", topic=topic, partition=partition, batches=RECORDS,
                props={"acks": "all", "enable.idempotence": "true"},
            )
        first = old.admin("group_read", group="returning", topic="orders", count=15)["rows"]
        old.wait_for_replicas()
        offsets = old.admin("group_offsets", group="returning")
        before = ask(old)
        old.kill(*old.nodes)
    for number in (1, 2, 3):
        shutil.move(old.nodes[number].logs, tmp_path / "disks" / str(number))
    overwrite(tmp_path / "disks/1/orders-0" / f"{0:020}.log", (200, b"\xff\x00"))
    disks = everything_in(tmp_path / "disks")

    paths = [tmp_path / "disks" / str(number) for number in (1, 2, 3)]
    (document,) = run("cluster", *paths, "--recreate", "--json").lines
    _assert_document(document, before)
    script = run("cluster", *paths, "--recreate").out
    code, made = _recreate(script, newer, tmp_path / "made")
    _assert_same(made, before, is_newer=version < "4" <= newer)
    assert code == 1  # broker 3 is missing, and one topic was there

    for block in blocks_in(THREE_DISKS):
        for command in commands_of(block):
            run_command(command, tmp_path)
    assert everything_in(tmp_path / "disks") == disks
    with JavaClients(WORK) as clients, KraftCluster(
        version, tmp_path / "new", NODES[nodes], SETTINGS
    ) as new:
        new.mount({number: tmp_path / "copies" / str(number) for number in (1, 2, 3)})
        if 4 in new.nodes:
            new.nodes[4].format()
            shutil.copytree(tmp_path / "metadata", new.nodes[4].logs / "__cluster_metadata-0")
        new.start()
        new.wait_for_brokers(1, 2, 3)
        new.wait_for_replicas()
        assert _lasting(ask(new)) == _lasting(before)
        assert new.admin("group_offsets", group="returning") == offsets
        again = new.admin("group_read", group="returning", topic="orders", count=25)["rows"]
        client = clients.of(version)
        client("connect", bootstrap=new.address())
        for topic, partition in produced:
            rows = client(
                "consume", topic=topic, partition=partition, isolation="read_committed"
            )["rows"]
            assert [row[0] for row in rows] == [*range(20)]
        new.admin.close()
        for node in new.nodes.values():
            node.stop()
    assert sorted(first + again) == [[number, each] for number in (0, 1) for each in range(20)]
    for number in (1, 2, 3):
        copy = tmp_path / "copies" / str(number)
        assert not list(copy.glob("*-stray"))
        for partition in (0, 1):
            records = kafkastore.open(copy)["orders", partition].records()
            assert [each.offset for each in records] == [*range(20)]
