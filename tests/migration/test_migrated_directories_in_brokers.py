"""Real brokers are started on directories that were migrated in every way."""

import shutil

import pytest

import kafkastore

from .directories import data, migrate

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600)]

OLD = ["0.8.2.2", "0.9.0.1", "0.10.0.1"]
WAYS = [
    ("auto", "next"),
    ("rebuild", "next"),
    ("kip-33", "next"),
    ("kip-33", "first"),
    ("empty", "next"),
]
PARTITIONS = ("up-0", "up-1", "up-compressed-0")


@pytest.fixture
def migrated(golden, tmp_path):
    """A clean root with the old partitions, each migrated in each way, as a topic of its own."""
    root = tmp_path / "migrated" / "logs"
    root.mkdir(parents=True)
    (root / ".kafka_cleanshutdown").touch()
    for old in OLD:
        logs = golden(old, "upgrade", "answers").logs
        for mode, entry_offset in WAYS:
            for number, name in enumerate(PARTITIONS):
                partition = root / f"from.{old}.{mode}.{entry_offset}-{number}"
                shutil.copytree(logs / name, partition)
                migrate(partition, mode, entry_offset, index_interval_bytes=200)
    return root


def answer(log, timestamp, rules):
    found = log.offset_for_timestamp(timestamp, rules)
    return (-1, -1) if found is None else (found.timestamp, found.offset)


def original(golden, name):
    """The records of a partition before its migration."""
    old = next(each for each in OLD if name.startswith(f"from.{each}."))
    way = int(name.rpartition("-")[2])
    partition = golden(old, "upgrade", "answers").answers["partitions"][PARTITIONS[way]]
    return [
        (offset, stamp, key, value) for offset, stamp, _, key, value, *_ in partition["records"]
    ]


def test_the_broker_that_wrote_a_directory_loads_it_migrated(golden, migrated, load_into_broker):
    # 0.10.0.1 knows no time index; of the other two only v0 messages could be its own.
    said = load_into_broker(sorted(migrated.glob("from.0.*")), "0.10.0.1")
    for name, partition in said.answers["partitions"].items():
        records = [(o, stamp, k, v) for o, stamp, _, k, v, *_ in partition["records"]]
        assert records == original(golden, name), name
        assert data(said.logs / name, "*.timeindex") == data(migrated / name, "*.timeindex")


@pytest.mark.parametrize("version", ["0.10.2.2", "0.11.0.3", "2.4.0", "3.9.1"])
def test_newer_brokers_load_migrated_directories_and_answer_as_our_rules_say(
    golden, migrated, load_into_broker, version
):
    said = load_into_broker(sorted(migrated.glob("from.0.*")), version)
    store = kafkastore.open(migrated)
    asked = 0
    assert len(said.answers["partitions"]) == len(OLD) * len(WAYS) * len(PARTITIONS)
    for name, partition in said.answers["partitions"].items():
        records = [(o, stamp, k, v) for o, stamp, _, k, v, *_ in partition["records"]]
        assert records == original(golden, name), name
        for row in partition["list_offsets"]:
            if row["timestamp"] < 0 or row["isolation"]:
                continue
            assert row["error"] == 0
            asked += 1
            told = row["result_timestamp"], row["offset"]
            assert told == answer(store[name], row["timestamp"], version), (name, row)
        # Loading, answering and stopping alters none of what the migration made.
        assert data(said.logs / name, "*.timeindex") == data(migrated / name, "*.timeindex"), name
    assert asked > 1000
    assert not [line for line in said.answers["broker_log"] if "orrupt" in line]
