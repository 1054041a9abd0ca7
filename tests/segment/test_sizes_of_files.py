"""Reads of a file are bounded by its possible contents: large sparse files cost nothing."""

import os
import shutil
import tracemalloc

import pytest
from models.log_directory import Log, Segment
from models.record_format import Batch, Row

import kafkastore
from kafkastore.changes.apply import apply
from kafkastore.changes.file_state import read_state
from kafkastore.checks.findings import FindingKind, Severity
from kafkastore.checks.predict import Outcome
from kafkastore.checks.reindex import plan_reindex
from kafkastore.checks.repair import plan_repair
from kafkastore.errors import (
    ChangeRefusedError,
    CorruptBatchError,
    CorruptCheckpointError,
    CorruptIndexError,
    RefusalReason,
)
from kafkastore.jobs.predict import predict_start
from kafkastore.jobs.verify import verify
from kafkastore.segment.index_file import OffsetIndex, TimeIndex
from kafkastore.segment.segment_summary import largest_used_size
from kafkastore.segment.small_file import has_bytes, most_bytes, read_whole

MIB = 1 << 20
GIB = 1 << 30
TIB = 1 << 40
NOW = 1_600_000_000_000


@pytest.fixture
def memory():
    """Most bytes that were held since the start of the test."""
    tracemalloc.start()
    yield lambda: tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()


@pytest.fixture
def few_reads(monkeypatch):
    """Fail the test as soon as more bytes are read than are stored."""
    read = 0

    def counted(call):
        def counting(*arguments):
            nonlocal read
            done = call(*arguments)
            read += done if isinstance(done, int) else len(done)
            assert read < 100 * MIB
            return done

        return counting

    monkeypatch.setattr(os, "pread", counted(os.pread))
    monkeypatch.setattr(os, "preadv", counted(os.preadv))


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


def test_the_bounds_of_indexes_do_not_grow_with_the_holes_of_their_log(tmp_path):
    path, log = tmp_path / f"{0:020}.txnindex", tmp_path / f"{0:020}.log"
    path.touch()
    log.touch()
    os.truncate(log, TIB)
    assert most_bytes(path) < GIB
    assert largest_used_size(TIB, 12) < GIB


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


@pytest.mark.parametrize("is_clean", [True, False])
def test_the_hole_at_the_end_of_the_last_log_is_not_read(tmp_path, few_reads, is_clean):
    logs = write_log(tmp_path / "logs", is_clean=is_clean)
    path = logs / "t-0" / f"{9:020}.log"
    valid_bytes = path.stat().st_size
    os.truncate(path, TIB)
    found = [each for each in verify(logs) if each.severity.is_at_least(Severity.SLOW)]
    places = [(each.kind, each.path, each.position) for each in found]
    kind = FindingKind.BYTES_AFTER_CLEAN_SHUTDOWN
    assert places == ([(kind, path, valid_bytes)] if is_clean else [])
    log = kafkastore.open(logs)["t-0"]
    assert log.log_end_offset == 18
    assert len(list(log.records())) == 18


def test_a_hole_in_a_log_is_not_read_and_the_batches_after_it_are_found(tmp_path, few_reads):
    logs = write_log(tmp_path / "logs", is_clean=True)
    path = logs / "t-0" / f"{0:020}.log"
    data = path.read_bytes()
    with path.open("r+b") as file:
        # The first byte of the offset is the last byte of a block; the rest of the block is a hole.
        at = GIB - 1
        file.truncate(len(data) // 9 * 8)
        file.seek(at + 1)
        file.write(data[len(data) // 9 * 8 + 1 :])
        file.truncate(TIB)
    found = [each for each in verify(logs) if each.path == path]
    end = at + len(data) // 9
    assert [(each.kind, each.position) for each in found] == [
        (FindingKind.CORRUPT_BATCH, len(data) // 9 * 8), (FindingKind.INCOMPLETE_BATCH, end)
    ]
    log = kafkastore.open(logs)["t-0"]
    skipped = []
    offsets = [each.offset for each in log.records(on_corrupt="skip", skipped=skipped)]
    assert offsets == [*range(18)]
    assert [(each.position, each.end_position) for each in skipped] == [
        (len(data) // 9 * 8, at), (end, TIB)
    ]
    with pytest.raises(CorruptBatchError) as caught:
        list(log.records())
    assert (caught.value.path, caught.value.position) == (path, len(data) // 9 * 8)


@pytest.mark.parametrize("name", [
    f"{0:020}.index", f"{9:020}.timeindex", f"{9:020}.txnindex", f"{9:020}.snapshot",
    "leader-epoch-checkpoint", f"{0:020}.log",
])  # fmt: skip
def test_a_plan_refuses_a_sparse_file_larger_than_any_valid_one(tmp_path, few_reads, name):
    logs = write_log(tmp_path / "logs", is_clean=True)
    path = logs / "t-0" / name
    path.touch()
    os.truncate(path, TIB)
    shutil.copytree(write_log(tmp_path / "other", is_clean=True) / "t-0", logs / "t-1")
    (logs / "t-1" / f"{0:020}.index").write_bytes(b"\0\0\0\1\0\0\0\7")
    plans = [plan_repair(logs), plan_repair(logs, on_corrupt="skip")]
    if name.endswith("index"):
        plans.append(plan_reindex(logs))
        assert [logs / each.path for each in plans[-1].unindexed] == [path.with_suffix(".log")]
    else:
        assert {each.path for plan in plans for each in plan.not_repaired} & {path, path.parent}
    for plan in plans:
        assert {each.path for each in plan.changes} >= {f"t-1/{0:020}.index"}
        assert path not in {logs / each.path for each in plan.changes}


def test_the_refusal_of_a_sparse_file_names_it(tmp_path, few_reads):
    path = tmp_path / f"{0:020}.snapshot"
    path.touch()
    os.truncate(path, TIB)
    with pytest.raises(ChangeRefusedError) as caught:
        read_state(path)
    assert (caught.value.reason, caught.value.path) == (RefusalReason.TOO_LARGE, path)


def test_a_plan_keeps_a_file_with_holes_that_has_a_valid_size(tmp_path):
    logs = write_log(tmp_path / "logs", is_clean=True)
    path = logs / "t-0" / f"{0:020}.index"
    before = path.read_bytes()
    os.truncate(path, 20 * MIB)
    plan = plan_repair(logs, index_interval_bytes=300)
    assert [each.path for each in plan.changes] == [f"t-0/{0:020}.index"]
    apply(plan)
    assert path.read_bytes() == before
