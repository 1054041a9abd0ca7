"""Missing topic ids that `plan_repair` writes from the cluster's metadata."""

from pathlib import Path

import pytest
from models import metadata_directory as made
from models.log_directory import Log, Segment
from models.metadata_directory import DIRECTORY, TOPIC_ID
from models.record_format import Batch, Row
from models.record_strategies import in_a_row

import kafkastore
from kafkastore.checks.repair import plan_repair
from kafkastore.checks.state_repair import EmptyDirectoryError, NotServedError
from kafkastore.metadata.strays import StrayReason

BATCHES = in_a_row([Batch((Row(0, 100 + slot, b"k", b"v" * 40),)) for slot in range(20)])
WRITTEN = f"version: 0\ntopic_id: {TOPIC_ID}".encode()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a directory of broker 1 with the metadata, and partitions without topic ids."""
    root = Log((Segment(0, tuple(BATCHES)).indexed(),), is_clean=True).write(tmp_path / "logs")
    partition = root / "t-0"
    for name in ("t-1", "t-7", "gone-0"):
        made_of = root / name
        made_of.mkdir()
        for path in partition.iterdir():
            (made_of / path.name).write_bytes(path.read_bytes())
    (root / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=Cc\n")
    made.write_log(root / "__cluster_metadata-0", [
        made.topic(), made.partition(0), made.partition(1, replicas=(2, 3)),
        made.config("index.interval.bytes", "1"),
    ])
    return root


def reasons(plan: kafkastore.Plan) -> dict[str, StrayReason]:
    found = {}
    for each in plan.not_repaired:
        assert isinstance(each.error, NotServedError)
        assert not each.is_partition
        found[each.path.parent.name] = each.error.reason
    return found


def test_a_missing_id_is_written_as_a_broker_writes_it_and_undone(root: Path) -> None:
    plan = plan_repair(root, partitions=["t-0"])
    assert [each.path for each in plan.changes] == ["t-0/partition.metadata"]
    journal = kafkastore.apply(plan)
    path = root / "t-0" / "partition.metadata"
    assert path.read_bytes() == WRITTEN
    log = root / "t-0" / f"{0:020}.log"
    assert path.stat().st_mode == log.stat().st_mode
    assert not plan_repair(root, partitions=["t-0"]).changes
    kafkastore.undo(journal.area)
    assert not path.exists()


def test_no_id_is_written_that_would_not_make_the_broker_serve_the_log(root: Path) -> None:
    assert reasons(plan_repair(root)) == {
        "t-1": StrayReason.NOT_A_REPLICA,
        "t-7": StrayReason.UNKNOWN_TOPIC,
        "gone-0": StrayReason.UNKNOWN_TOPIC,
    }


def test_another_id_is_reported_and_left(root: Path) -> None:
    other = f"version: 0\ntopic_id: {DIRECTORY}".encode()
    (root / "t-0" / "partition.metadata").write_bytes(other)
    plan = plan_repair(root, partitions=["t-0"])
    assert not plan.changes
    assert reasons(plan) == {"t-0": StrayReason.UNKNOWN_TOPIC}
    kafkastore.apply(plan)
    assert (root / "t-0" / "partition.metadata").read_bytes() == other


def test_the_id_of_the_cluster_is_no_change(root: Path) -> None:
    (root / "t-0" / "partition.metadata").write_bytes(WRITTEN + b"\n")
    plan = plan_repair(root, partitions=["t-0"])
    assert not plan.changes
    assert not plan.not_repaired


def test_one_that_cannot_be_read_is_replaced_and_kept_for_undo(root: Path) -> None:
    path = root / "t-0" / "partition.metadata"
    path.write_bytes(b"version: 0\n")
    journal = kafkastore.apply(plan_repair(root, partitions=["t-0"]))
    assert path.read_bytes() == WRITTEN
    kafkastore.undo(journal.area)
    assert path.read_bytes() == b"version: 0\n"


def test_an_empty_directory_is_left_to_the_broker(root: Path) -> None:
    for path in (root / "t-0").iterdir():
        path.unlink()
    plan = plan_repair(root, partitions=["t-0"])
    assert not plan.changes
    assert [type(each.error) for each in plan.not_repaired] == [EmptyDirectoryError]


def test_a_partition_directory_by_itself_needs_metadata_from_elsewhere(root: Path) -> None:
    (root / "t-0").rename(root.parent / "t-0")
    alone = root.parent / "t-0"
    assert not plan_repair(alone).changes
    kafkastore.apply(plan_repair(alone, metadata=root))
    assert (alone / "partition.metadata").read_bytes() == WRITTEN


@pytest.mark.parametrize("given", [None, 4096])
def test_indexes_are_rebuilt_with_the_interval_of_the_metadata(root: Path, given) -> None:
    index = root / "t-0" / f"{0:020}.index"
    index.unlink()
    kafkastore.apply(plan_repair(root, partitions=["t-0"], index_interval_bytes=given))
    assert index.stat().st_size == (8 * (len(BATCHES) - 1) if given is None else 0)


def test_the_metadata_log_itself_has_no_topic_id_of_a_topic(root: Path) -> None:
    plan = plan_repair(root, partitions=["__cluster_metadata-0"])
    assert all(not each.path.endswith("partition.metadata") for each in plan.changes)
    assert not plan.not_repaired


def test_without_metadata_no_topic_id_is_written(root: Path, tmp_path: Path) -> None:
    (root / "__cluster_metadata-0").rename(tmp_path / "__cluster_metadata-0")
    plan = plan_repair(root)
    assert not plan.changes
    assert not plan.not_repaired
