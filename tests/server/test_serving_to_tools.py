"""Kafka's command line tools show of served directories what they showed of the broker."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
from models import kafka_tools
from models.seed import some
from models.served_records import COMMITTED, expected, topics_of
from use_cases.group_answers import Answers

from kafkastore.samples.unpacking import unpack_archive
from kafkastore.server import serve
from kafkastore.server.refusing_requests import REASON

pytestmark = pytest.mark.kafka

GROUPS = Path(__file__).parents[1] / "golden" / "groups" / "4.3.1.tar.xz"
TOPIC = "txn"
LIST = {
    "topics": "kafka-topics.sh --describe",
    "ends": "kafka-get-offsets.sh",
    "starts": "kafka-get-offsets.sh --time earliest",
    "groups": "kafka-consumer-groups.sh --describe --all-groups",
    "states": "kafka-consumer-groups.sh --describe --all-groups --state",
    "members": "kafka-consumer-groups.sh --describe --all-groups --members --verbose",
    "listed": "kafka-consumer-groups.sh --list --state",
    "configs": "kafka-configs.sh --describe --entity-type topics --entity-name __consumer_offsets",
    "log dirs": "kafka-log-dirs.sh --describe",
    "transactions": "kafka-transactions.sh list",
    "transaction": "kafka-transactions.sh describe --transactional-id tx-c",
    "producers": f"kafka-transactions.sh describe-producers --topic {TOPIC} --partition 0",
    "hanging": f"kafka-transactions.sh find-hanging --topic {TOPIC} --partition 0 "
               "--max-transaction-timeout 0",
    "quorum": "kafka-metadata-quorum.sh describe --status",
    "cluster": "kafka-cluster.sh cluster-id",
    "consumed": f"kafka-console-consumer.sh --topic {TOPIC} --partition 0 --offset earliest "
                "--isolation-level read_committed --property print.offset=true "
                "--property print.value=false --timeout-ms 2000",
    "verifiable": f"kafka-verifiable-consumer.sh --topic {TOPIC} --group-id verifying "
                  "--reset-policy earliest --max-messages {count}",
    "altered": "kafka-configs.sh --alter --entity-type topics --entity-name "
               f"{TOPIC} --add-config retention.ms=1",
}


@pytest.fixture(scope="module", params=some(kafka_tools.VERSIONS, 1, __name__))
def seen(request, golden, tmp_path_factory):
    """What the tools of a version printed, and the answers of the brokers."""
    case = golden("4.3.1", "transactions", "answers")
    root = tmp_path_factory.mktemp("groups")
    unpack_archive(GROUPS, root)
    of_groups = root / "groups"
    partitions = topics_of(case)[TOPIC]
    count = sum(len(row["records"]) for row in partitions.values())
    with serve([of_groups / "logs", case.logs]) as served:
        commands = {
            name: f"{program} --bootstrap-server {served.bootstrap_servers} {rest}"
            if program != "kafka-cluster.sh"
            else f"{program} {rest} --bootstrap-server {served.bootstrap_servers}"
            for name, line in LIST.items()
            for program, _, rest in [line.format(count=count).partition(" ")]
        }
        printed = kafka_tools.run_tools(request.param, list(commands.values()))
        cluster_id = served.catalog.cluster_id
    return SimpleNamespace(
        printed=dict(zip(commands, printed, strict=True)),
        partitions=partitions, count=count, cluster_id=cluster_id,
        said=json.loads((of_groups / "groups.json").read_text()),
        groups=Answers(of_groups), directories=[of_groups / "logs", case.logs],
    )


@pytest.fixture(autouse=True)
def _all_versions(require_broker):
    for version in kafka_tools.VERSIONS:
        require_broker(version)


def rows(seen, name, columns):
    """The rows of a table, as tuples of some of its columns."""
    found = [line.split() for line in seen.printed[name].text.splitlines()]
    return {tuple(each[at] for at in columns) for each in found if len(each) > max(columns)}


def test_all_tools_end_well_but_those_that_would_alter_something(seen):
    failed = {name for name, each in seen.printed.items() if each.code}
    assert failed == {"quorum", "altered"}
    assert REASON in seen.printed["altered"].text


def test_topics_have_their_ids_and_partitions(seen):
    found = dict(re.findall(
        r"Topic: (\S+)\s+TopicId: (\S+)\s+PartitionCount", seen.printed["topics"].text
    ))
    known = {name: each for name, each in seen.said["topic_ids"].items() if name in found}
    assert len(known) > 5
    assert found | known == found
    assert found.keys() == known.keys() | {TOPIC}
    assert seen.printed["cluster"].text.split()[-1] == seen.cluster_id


@pytest.mark.parametrize(("command", "bound"), [("starts", "start"), ("ends", "end")])
def test_bounds_are_those_of_the_broker(seen, command, bound):
    found = {}
    for line in seen.printed[command].text.splitlines():
        topic, partition, offset = line.rsplit(":", 2)
        found[f"{topic}-{partition}"] = int(offset)
    wanted = {name: each[bound] for name, each in seen.said["log_ends"].items()}
    wanted |= {
        f"{TOPIC}-{number}": row[f"log_{bound}_offset" if bound == "end" else "log_start_offset"]
        for number, row in seen.partitions.items()
    }
    assert {name: each for name, each in found.items() if name in wanted} == wanted


def test_groups_have_the_lag_that_the_same_tool_showed_of_the_broker(seen):
    printed = Answers.__new__(Answers)
    printed._said = {"tools": {"consumer-offsets": seen.printed["groups"].text}}
    wanted = seen.groups.printed_lag()
    assert len(wanted) > 8
    found = printed.printed_lag()
    assert {key: found.get(key) for key in wanted} == wanted


def test_groups_without_members_are_empty(seen):
    names = {group for group, _, _ in seen.groups.printed_lag()}
    listed = rows(seen, "listed", (0, 1))
    assert names <= {name for name, state in listed if state == "Empty"}
    assert names <= {name for (name,) in rows(seen, "states", (0,))}
    assert seen.printed["members"].text


def test_configurations_are_those_of_the_cluster_s_metadata(seen):
    assert re.search(r"cleanup\.policy=compact\b", seen.printed["configs"].text)


def test_log_directories_have_the_sizes_of_the_files(seen):
    line = seen.printed["log dirs"].text.splitlines()[-1]
    ((broker),) = json.loads(line)["brokers"]
    sizes = {
        (each["logDir"], row["partition"]): row["size"]
        for each in broker["logDirs"] for row in each["partitions"]
    }
    assert {Path(path) for path, _ in sizes} == set(seen.directories)
    for (path, partition), size in sizes.items():
        files = Path(path, partition).glob("*.log")
        assert size == sum(each.stat().st_size for each in files)


def test_transactions_are_shown_as_they_were(seen):
    assert {each for each, *_ in rows(seen, "transactions", (0, 3))} >= {"tx-a", "tx-b", "tx-c"}
    assert ("tx-c", "Ongoing") in rows(seen, "transaction", (1, 4))
    stable = str(seen.partitions[0]["last_stable_offset"])
    assert stable in {start for (start,) in rows(seen, "producers", (5,))}
    # Its coordinator knows the one that is open.
    assert rows(seen, "hanging", (5,)) == {("StartOffset",)}


def test_consumers_print_every_record(seen):
    text = seen.printed["consumed"].text
    offsets = [int(each) for each in re.findall(r"^Offset:(\d+)", text, re.MULTILINE)]
    wanted = [row[1] for row in expected({0: seen.partitions[0]}, COMMITTED)]
    assert offsets == wanted
    events = [
        json.loads(line) for line in seen.printed["verifiable"].text.splitlines()
        if line.startswith("{")
    ]
    consumed = [each["count"] for each in events if each["name"] == "records_consumed"]
    assert sum(consumed) == seen.count
    assert events[-1]["name"] == "shutdown_complete"
