"""Unreadable sectors: one clear error with its byte, and all other data is readable.

`test_reading_of_bad_disks.py` runs these where compiled code meets such sectors too.
"""

import errno
import tempfile
from contextlib import nullcontext
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from models.bad_disk import BadDisk
from models.iteration import until_error
from models.log_directory import Log, Segment
from models.record_format import Batch, Row
from models.record_strategies import bounded

import kafkastore
from kafkastore import (
    CorruptBatchError,
    CorruptCheckpointError,
    CorruptIndexError,
    CorruptionError,
    KafkaStoreError,
    UnknownLogStartWarning,
)


def segment(first, count):
    batches = tuple(
        Batch((Row(offset, 10 * offset, b"k", bytes([offset]) * 200),))
        for offset in range(first, first + count)
    )
    return Segment(first, batches).indexed(interval=600)


LOG = Log((segment(0, 40), segment(40, 40), segment(80, 40)), recovery_point=0)
SIZE = len(LOG.batches[0].data)


@pytest.fixture
def disk(monkeypatch):
    return BadDisk(monkeypatch)


@pytest.fixture
def logs(tmp_path):
    return LOG.write(tmp_path / "logs")


def path_of(logs, base_offset, suffix=".log"):
    return logs / "t-0" / f"{base_offset:020}{suffix}"


READERS = {
    "records": lambda log, *bounds: (record.offset for record in log.records(*bounds)),
    "batches": lambda log, *bounds: (batch.base_offset for batch in log.batches(*bounds)),
    "arrow": lambda log, start=None, end=None: (
        offset
        for batch in log.to_arrow(["offset"], start_offset=start, end_offset=end)
        for offset in batch["offset"].to_pylist()
    ),
}
with_every_reader = pytest.mark.parametrize("read", READERS.values(), ids=READERS)


@with_every_reader
def test_records_before_a_bad_sector_are_read_and_the_error_has_its_byte(logs, disk, read):
    path = path_of(logs, 40)
    disk.damage(path, 10 * SIZE + 5, 12 * SIZE)
    found, error = until_error(read(kafkastore.open(logs)["t-0"]))
    assert found == list(range(50))
    assert isinstance(error, CorruptBatchError)
    assert (error.path, error.position) == (path, 10 * SIZE + 5)
    assert error.__cause__.errno == errno.EIO


@with_every_reader
def test_records_after_a_bad_sector_can_be_read(logs, disk, read):
    disk.damage(path_of(logs, 40), 10 * SIZE + 5, 12 * SIZE)
    log = kafkastore.open(logs)["t-0"]
    assert list(read(log, 80)) == list(range(80, 120))
    # In the same segment from the next entry of its offset index on.
    assert list(read(log, 60)) == list(range(60, 120))
    assert list(read(log, 20, 45)) == list(range(20, 45))
    assert log.log_end_offset == 120


def test_a_time_is_found_on_either_side_of_a_bad_sector(logs, disk):
    disk.damage(path_of(logs, 40), 20 * SIZE, 22 * SIZE)
    log = kafkastore.open(logs)["t-0"]
    for target in (0, 395, 1005, 1190):
        found = log.offset_for_timestamp(target, indexes="trust")
        assert found.offset == -(-target // 10)
        skipped = []
        found = log.offset_for_timestamp(target, on_corrupt="skip", skipped=skipped)
        assert found.offset == -(-target // 10)
        assert bool(skipped) == (target > 600)
        if target > 600:  # a record in the bad sector may be as late
            with pytest.raises(kafkastore.CorruptBatchError):
                log.offset_for_timestamp(target)
        else:
            assert log.offset_for_timestamp(target).offset == -(-target // 10)
    with pytest.raises(CorruptBatchError) as caught:
        log.offset_for_timestamp(605)
    assert caught.value.path == path_of(logs, 40)


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("start", [0, 20])
def test_an_index_that_can_t_be_read_changes_no_answer(logs, disk, suffix, start):
    for base_offset in (0, 40, 80):
        disk.damage(path_of(logs, base_offset, suffix), start)
    log = kafkastore.open(logs)["t-0"]
    for target in range(0, 1191, 35):
        assert log.offset_for_timestamp(target).offset == -(-target // 10)
    for read in READERS.values():
        assert list(read(log, 33, 91)) == list(range(33, 91))
    assert log.log_end_offset == 120
    for each in log.segments:
        target = each.base_offset + 7
        assert each.translate_offset(target) == (target, 7 * SIZE, SIZE)
        with pytest.raises(CorruptIndexError) as caught:
            each.offset_index if suffix == ".index" else each.time_index  # noqa: B018
        assert caught.value.path == path_of(logs, each.base_offset, suffix)
        assert caught.value.position is not None


@pytest.mark.parametrize(
    "name", ["recovery-point-offset-checkpoint", "log-start-offset-checkpoint"]
)
def test_a_checkpoint_that_can_t_be_read_counts_as_damaged(logs, disk, name):
    (logs / name).write_bytes(b"0\n1\nt 0 5\n")
    disk.damage(logs / name)
    log = kafkastore.open(logs)["t-0"]
    is_start = name == "log-start-offset-checkpoint"
    with pytest.warns(UnknownLogStartWarning) if is_start else nullcontext():
        assert (log.log_start_offset, log.recovery_point) == (0, 0)
    (damaged,) = log.log_dir.corrupt_checkpoints
    assert (damaged.error.path, damaged.error.position) == (logs / name, 0)


def test_leader_epochs_that_can_t_be_read_are_one_error(logs, disk):
    path = logs / "t-0" / "leader-epoch-checkpoint"
    path.write_bytes(b"0\n1\n5 0\n")
    disk.damage(path)
    with pytest.raises(CorruptCheckpointError) as caught:
        kafkastore.open(logs)["t-0"].leader_epochs  # noqa: B018
    assert caught.value.path == path


def test_a_transaction_index_that_can_t_be_read_changes_no_answer(logs, disk):
    path_of(logs, 0, ".txnindex").write_bytes(bytes(34))
    disk.damage(path_of(logs, 0, ".txnindex"))
    log = kafkastore.open(logs)["t-0"]
    assert len(list(log.records(isolation="read_committed"))) == 120


def test_a_producer_snapshot_that_can_t_be_read_costs_only_time(logs, disk):
    path_of(logs, 80, ".snapshot").write_bytes(bytes(10))
    disk.damage(path_of(logs, 80, ".snapshot"))
    assert kafkastore.open(logs)["t-0"].last_stable_offset == 120


def test_verify_finds_the_bad_sector_and_continues_after_it(logs, disk):
    disk.damage(path_of(logs, 0), 10 * SIZE, 12 * SIZE)
    damaged = bytearray(path_of(logs, 80).read_bytes())
    damaged[5 * SIZE + 100] ^= 1
    path_of(logs, 80).write_bytes(damaged)
    found = [(each.path, each.position) for each in kafkastore.verify(logs)]
    assert (path_of(logs, 0), 10 * SIZE) in found
    assert (path_of(logs, 80), 5 * SIZE) in found


def everything(log):
    """Each question is independent: one that fails does not hide another."""
    yield lambda: log.log_end_offset
    yield log.explain_bounds
    yield lambda: [record.offset for record in log.records()]
    yield lambda: log.to_arrow(["offset"], start_offset=30, end_offset=90).read_all()
    for target in (0, 405, 795, 1195):
        yield lambda target=target: log.offset_for_timestamp(target)
        yield lambda target=target: log.offset_for_timestamp(target, rules="2.4")
    for each in log.segments:
        yield lambda each=each: each.summary
        yield lambda each=each: each.translate_offset(each.base_offset + 20)
        yield lambda each=each: each.rebuilt_indexes()
        yield lambda each=each: each.transaction_index.entries()


@bounded(60)
@given(
    st.lists(
        st.tuples(
            st.sampled_from([0, 40, 80]), st.sampled_from([".log", ".index", ".timeindex"]),
            st.integers(0, 40 * SIZE), st.sampled_from([1, 512, 4096]),
        ),
        min_size=1, max_size=3,
    )
)
def test_every_question_has_a_value_or_one_error_with_a_position(damages):
    with tempfile.TemporaryDirectory() as directory, pytest.MonkeyPatch.context() as patched:
        logs = LOG.write(Path(directory) / "logs")
        disk, damaged = BadDisk(patched), set()
        for base_offset, suffix, anywhere, size in damages:
            path = path_of(logs, base_offset, suffix)
            start = anywhere % max(path.stat().st_size, 1)
            disk.damage(path, start, start + size)
            damaged.add(path)
        for query in everything(kafkastore.open(logs)["t-0"]):
            try:
                query()
            except KafkaStoreError as error:
                assert isinstance(error, CorruptionError)
                assert error.path in damaged
                assert error.position is not None
