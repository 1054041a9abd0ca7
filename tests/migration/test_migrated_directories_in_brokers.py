"""Real brokers start on directories that were migrated in every way."""

import re
import shutil

import pytest
from kafkastore.migration import plan, survey
from models.seed import some

import kafkastore
from kafkastore.changes.apply import apply

from .directories import data, migrate, remove

pytestmark = pytest.mark.kafka

OLD = ["0.8.2.2", "0.9.0.1", "0.10.0.1"]
WAYS = [
    ("auto", "next"),
    ("rebuild", "next"),
    ("kip-33", "next"),
    ("kip-33", "first"),
    ("empty", "next"),
]
INTERVAL = 200
# Log lines of a broker about segments that it does not load unchanged.
REBUILDS = re.compile(
    r"orrupt|ecovering|ebuilding|Could not find|(WARN|ERROR) .*(\[Log|index|segment|\.log\.)"
)
PARTITIONS = ("up-0", "up-1", "up-compressed-0")


@pytest.fixture
def old_partitions(golden, tmp_path):
    """Copy the old partitions once for each way to migrate them, each under its own topic."""
    root = tmp_path / "old" / "logs"
    root.mkdir(parents=True)
    (root / ".kafka_cleanshutdown").touch()
    for old in OLD:
        logs = golden(old, "upgrade", "answers").logs
        for mode, entry_offset in WAYS:
            for number, name in enumerate(PARTITIONS):
                shutil.copytree(logs / name, root / f"from.{old}.{mode}.{entry_offset}-{number}")
    return root


def migrate_in_each_way(root):
    """Migrate the partitions of a log directory; each way leaves an undo area next to it."""
    for mode, entry_offset in WAYS:
        chosen = [path.name for path in root.glob(f"from.*.{mode}.{entry_offset}-*")]
        found = survey(root, index_interval_bytes=INTERVAL, partitions=chosen)
        apply(plan(found, mode, entry_offset=entry_offset))
    areas = list(root.parent.glob(f"{root.name}.kafkastore-undo-*"))
    assert len(areas) == len(WAYS)


@pytest.fixture
def migrated(old_partitions, writable_copy):
    """Return a clean root with the old partitions, each migrated in each way."""
    root = writable_copy(old_partitions)
    migrate_in_each_way(root)
    return root


def answer(log, timestamp, rules):
    found = log.offset_for_timestamp(timestamp, rules)
    return (-1, -1) if found is None else (found.timestamp, found.offset)


def original(golden, name):
    """Return the broker's answers for a partition before its migration."""
    old = next(each for each in OLD if name.startswith(f"from.{each}."))
    way = int(name.rpartition("-")[2])
    return golden(old, "upgrade", "answers").answers["partitions"][PARTITIONS[way]]


def records_of(partition):
    return [
        (offset, stamp, key, value) for offset, stamp, _, key, value, *_ in partition["records"]
    ]


def answers_v0(partition):
    return {
        (row["timestamp"], row["max_num_offsets"]): (row["error"], row["offsets"])
        for row in partition["list_offsets_v0"]
    }


def load(old_partitions, load_into_broker, version, **options):
    """Return a broker's answers for a migrated root with undo areas next to it."""
    return load_into_broker(
        sorted(old_partitions.glob("from.0.*")), version, prepare=migrate_in_each_way, **options
    )


def test_the_broker_that_wrote_a_directory_loads_it_migrated_and_answers_as_before(
    golden, old_partitions, migrated, load_into_broker
):
    # 0.10.0.1 has no time index; it could have written only v0 messages of the other two.
    said = load(old_partitions, load_into_broker, "0.10.0.1")
    for name, partition in said.answers["partitions"].items():
        before = original(golden, name)
        assert records_of(partition) == records_of(before), name
        answers, answers_before = answers_v0(partition), answers_v0(before)
        common = answers.keys() & answers_before.keys()
        assert len(common) > 20
        assert {each: answers[each] for each in common} == {
            each: answers_before[each] for each in common
        }, name
        assert data(said.logs / name, "*.timeindex") == data(migrated / name, "*.timeindex")
    assert not [line for line in said.answers["broker_log"] if REBUILDS.search(line)]


@pytest.mark.parametrize("version", some(["0.10.2.2", "0.11.0.3", "2.4.0", "3.9.1"], 2, __name__))
def test_newer_brokers_load_migrated_directories_and_answer_as_the_rules_predict(
    golden, old_partitions, migrated, load_into_broker, version
):
    said = load(old_partitions, load_into_broker, version)
    store = kafkastore.open(migrated)
    compared = 0
    assert len(said.answers["partitions"]) == len(OLD) * len(WAYS) * len(PARTITIONS)
    for name, partition in said.answers["partitions"].items():
        assert records_of(partition) == records_of(original(golden, name)), name
        for row in partition["list_offsets"]:
            if row["timestamp"] < 0 or row["isolation"]:
                continue
            assert row["error"] == 0
            compared += 1
            answered = row["result_timestamp"], row["offset"]
            assert answered == answer(store[name], row["timestamp"], version), (name, row)
        # Loading, answering and stopping does not alter the migrated files.
        assert data(said.logs / name, "*.timeindex") == data(migrated / name, "*.timeindex"), name
    assert compared > 1000
    logged = said.answers["broker_log"]
    assert len(logged) > len(said.answers["partitions"])
    assert not [line for line in logged if REBUILDS.search(line)]


@pytest.mark.parametrize("version", some(["2.4.0", "3.9.1"], 1, "recovering brokers"))
def test_mode_rebuild_writes_the_same_files_as_a_recovery_of_the_same_broker(
    golden, writable_copy, load_into_broker, tmp_path, version
):
    made = {}
    for old in OLD:
        case = golden(old, "upgrade", "answers")
        for number, name in enumerate(PARTITIONS):
            partition = writable_copy(case.logs / name)
            made[f"from.{old}-{number}"] = partition
            shutil.copytree(partition, tmp_path / "damaged" / f"from.{old}-{number}")
            remove(partition, "*.index")
            migrate(partition, "rebuild", index_interval_bytes=INTERVAL)
    said = load_into_broker(sorted((tmp_path / "damaged").iterdir()), version, recover=True)
    assert any("ecover" in line for line in said.answers["broker_log"])
    for name, partition in made.items():
        for pattern in ("*.timeindex", "*.index"):
            assert data(partition, pattern) == data(said.logs / name, pattern), name
    assert any(data(each, "*.timeindex").values() for each in made.values())
