"""What is read of a file is bounded by what it can hold: sparse files of any size cost nothing."""

import os
import tracemalloc

import pytest
from models.log_directory import Log, Segment
from models.record_format import Batch, Row

import kafkastore
from kafkastore.checks.findings import Severity
from kafkastore.checks.predict import Outcome
from kafkastore.errors import CorruptCheckpointError, CorruptIndexError
from kafkastore.jobs.predict import predict_start
from kafkastore.jobs.verify import verify
from kafkastore.segment.index_file import OffsetIndex, TimeIndex
from kafkastore.segment.segment_summary import largest_used_size
from kafkastore.segment.small_file import has_bytes, most_bytes, read_whole

MIB = 1 << 20
GIB = 1 << 30
NOW = 1_600_000_000_000


@pytest.fixture
def memory():
    """Most bytes that were held since the start of the test."""
    tracemalloc.start()
    yield lambda: tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()


def write_log(root, *, is_clean):
    segments = tuple(
        Segment(
            base,
            tuple(Batch((Row(at, NOW + at, b"k", b"v" * 200),)) for at in range(base, base + 9)),
        ).indexed(interval=300)
        for base in (0, 9)
    )
    return Log(segments, is_clean=is_clean).write(root)


@pytest.mark.parametrize("name", [
    "meta.properties", "recovery-point-offset-checkpoint", "replication-offset-checkpoint",
    "leader-epoch-checkpoint", "partition.metadata", f"{7:020}.snapshot", f"{7:020}.txnindex",
    f"{7:020}.snapshot.deleted",
])  # fmt: skip
def test_a_small_file_larger_than_any_right_one_is_refused_and_named(tmp_path, memory, name):
    path = tmp_path / name
    path.touch()
    os.truncate(path, 3 * GIB)
    with pytest.raises(CorruptCheckpointError) as caught:
        read_whole(path, CorruptCheckpointError)
    assert (caught.value.path, caught.value.position) == (path, most_bytes(path))
    assert memory() < MIB


def test_a_transaction_index_is_bounded_by_its_log(tmp_path):
    path, log = tmp_path / f"{0:020}.txnindex", tmp_path / f"{0:020}.log"
    path.touch()
    log.touch()
    assert most_bytes(path) == 10 * MIB
    os.truncate(log, GIB)
    assert most_bytes(path) == GIB // 78 * 34


def test_files_of_other_sizes_differ_without_being_read(tmp_path, memory):
    path = tmp_path / f"{0:020}.index"
    path.write_bytes(b"12345678")
    assert has_bytes(path, b"12345678", CorruptIndexError)
    assert not has_bytes(path, b"12345679", CorruptIndexError)
    os.truncate(path, 2 * GIB)
    assert not has_bytes(path, b"12345678", CorruptIndexError)
    assert not has_bytes(tmp_path / "none", b"", CorruptIndexError)
    assert memory() < MIB


@pytest.mark.parametrize(("kind", "suffix"), [(OffsetIndex, ".index"), (TimeIndex, ".timeindex")])
def test_an_index_with_more_entries_than_its_log_has_batches_is_refused(
    tmp_path, memory, kind, suffix
):
    directory = write_log(tmp_path / "logs", is_clean=True) / "t-0"
    path = directory / f"{9:020}{suffix}"
    size = 2_400_000_000 - 2_400_000_000 % 24
    with open(path, "r+b") as file:
        file.seek(size - 1)
        file.write(b"\1")
    with kind.open(path) as index, pytest.raises(CorruptIndexError) as caught:
        index.entries()
    log_size = (directory / f"{9:020}.log").stat().st_size
    assert caught.value.path == path
    assert caught.value.position == largest_used_size(log_size, index.size // index.entry_count)
    log = kafkastore.open(tmp_path / "logs")["t-0"]
    assert log.offset_for_timestamp(NOW + 15).offset == 15
    found = [each for each in verify(tmp_path / "logs") if each.path == path]
    assert [(each.severity, each.position) for each in found] == [
        (Severity.WRONG_ANSWERS, caught.value.position)
    ]
    assert memory() < 50 * MIB


def test_a_large_log_may_have_a_large_index(tmp_path):
    path = tmp_path / f"{0:020}.index"
    (tmp_path / f"{0:020}.log").touch()
    os.truncate(tmp_path / f"{0:020}.log", GIB)
    with open(path, "wb") as file:
        file.seek(20 * MIB - 1)
        file.write(b"\1")
    with OffsetIndex.open(path) as index:
        assert len(index.entry_bytes()) == 20 * MIB
    os.truncate(tmp_path / f"{0:020}.log", 26 * MIB)
    with OffsetIndex.open(path) as index, pytest.raises(CorruptIndexError):
        index.entry_bytes()


def test_the_padding_of_a_sparse_index_is_not_held_in_memory(tmp_path, memory):
    logs = write_log(tmp_path / "logs", is_clean=False)
    for base in (0, 9):
        os.truncate(logs / "t-0" / f"{base:020}.index", 2 * GIB)
    assert all(each.severity == Severity.STYLE for each in verify(logs))
    log = kafkastore.open(logs)["t-0"]
    for rules in ("correct", "4.1"):
        assert log.offset_for_timestamp(NOW + 15, rules=rules).offset == 15
    assert [each.outcome for each in predict_start(logs)] == [Outcome.IS_CHANGED]
    assert memory() < 50 * MIB
