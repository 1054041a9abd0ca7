"""Readers of committed records, compared with what brokers returned to such consumers."""

import os
import shutil
from dataclasses import replace

import numpy as np
import pytest
from models.log_directory import Log, Segment
from models.record_format import Batch, Row, marker
from models.record_strategies import in_a_row
from models.refused import refused
from models.seed import some

import kafkastore
from kafkastore import CorruptBatchError
from kafkastore.errors import ChecksumError

TRANSACTIONS = pytest.mark.golden_cases(names=["transactions"], answers="answers")


def partitions(golden_case):
    store = kafkastore.open(golden_case.logs)
    for name, answer in golden_case.answers["partitions"].items():
        if "committed_offsets" in answer:
            yield store[name], answer


def committed_offsets(log, **bounds):
    return [record.offset for record in log.records(isolation="read_committed", **bounds)]


@TRANSACTIONS
def test_committed_records_are_those_that_a_consumer_got(golden_case):
    checked = 0
    for log, answer in partitions(golden_case):
        checked += 1
        assert committed_offsets(log) == answer["committed_offsets"]
        table = log.to_arrow(["offset"], isolation="read_committed").read_all()
        assert table["offset"].to_pylist() == answer["committed_offsets"]
    assert checked


@TRANSACTIONS
def test_bounds_choose_among_committed_records(golden_case):
    random = np.random.default_rng(7)
    for log, answer in partitions(golden_case):
        offsets = answer["committed_offsets"]
        for _ in range(20):
            start, end = sorted(random.integers(0, log.log_end_offset + 2, 2).tolist())
            wanted = [offset for offset in offsets if start <= offset < end]
            assert committed_offsets(log, start_offset=start, end_offset=end) == wanted
            table = log.to_arrow(
                ["offset"], start_offset=start, end_offset=end, isolation="read_committed"
            ).read_all()
            assert table["offset"].to_pylist() == wanted


@TRANSACTIONS
@pytest.mark.parametrize(
    "lost", [[".txnindex", ".snapshot"], [".snapshot"], [".txnindex"]], ids=" and ".join
)
def test_a_log_copied_without_its_other_files_is_scanned(golden_case, tmp_path, lost):
    for log, answer in partitions(golden_case):
        copied = tmp_path / log.path.name
        shutil.copytree(log.path, copied)
        for path in copied.iterdir():
            if path.suffix in lost:
                path.unlink()
        alone = kafkastore.open(copied)[log.path.name]
        assert committed_offsets(alone) == answer["committed_offsets"]
        assert alone.last_stable_offset == log.last_stable_offset


def batches_of(log):
    """Segment, position and size of every batch."""
    for segment in log.segments:
        with segment.open_log() as file:
            for run in file.runs():
                for position, size in run.headers[["position", "size"]].tolist():
                    yield segment, position, size


@TRANSACTIONS
def test_decided_records_before_a_corrupt_batch_are_read_and_then_the_error_is_raised(
    golden_case, tmp_path
):
    """The same records are read from a copy that ends there."""
    for log, _ in partitions(golden_case):
        for segment, position, size in some(list(batches_of(log)), 12, log.path.name):
            damaged, cut = (tmp_path / name / log.path.name for name in ("damaged", "cut"))
            for place in (damaged, cut):
                shutil.copytree(log.path, place, ignore=shutil.ignore_patterns("*.[ts][xn]*"))
            with open(damaged / segment.log_path.name, "r+b") as file:
                file.seek(position + size - 1)
                last = file.read(1)[0]
                file.seek(-1, os.SEEK_CUR)
                file.write(bytes([last ^ 1]))
            for path in cut.glob("0*"):
                if int(path.stem) > segment.base_offset:
                    path.unlink()
            os.truncate(cut / segment.log_path.name, position)
            broken, complete = (kafkastore.open(each)[log.path.name] for each in (damaged, cut))
            wanted, got, rows = committed_offsets(complete), [], []
            with pytest.raises(CorruptBatchError):
                for record in broken.records(isolation="read_committed"):
                    got.append(record.offset)
            with pytest.raises(CorruptBatchError):
                for each in broken.to_arrow(["offset"], isolation="read_committed"):
                    rows += each["offset"].to_pylist()
            assert got == rows == wanted
            end = wanted[-1] + 1 if wanted else log.log_start_offset
            assert committed_offsets(broken, end_offset=end) == wanted
            shutil.rmtree(damaged)
            shutil.rmtree(cut)


def copied(log, tmp_path, *suffixes):
    """A copy of a partition with only some files."""
    target = tmp_path / log.path.name
    target.mkdir()
    for path in log.path.iterdir():
        if path.suffix in suffixes:
            shutil.copy2(path, target)
    return target


@TRANSACTIONS
@pytest.mark.golden_cases(versions=["0.11.0.3", "2.4.0", "4.3.1"])
def test_a_corrupt_transaction_index_changes_no_answer(golden_case, tmp_path):
    """The index has no checksum, but the log itself shows the aborted transactions."""
    damaged = 0
    for log, answer in partitions(golden_case):
        directory = copied(log, tmp_path, ".log", ".txnindex", ".snapshot")
        for path in sorted(directory.glob("*.txnindex")):
            data = path.read_bytes()
            flipped = [(at, 1 << bit) for at in range(len(data)) for bit in range(8)]
            for at, bit in [*some(flipped, 8, path.name), (len(data), 0)]:
                wrong = bytearray(data)
                wrong[at:at + 1] = [wrong[at] ^ bit] if at < len(data) else b"torn"
                path.write_bytes(wrong)
                alone = kafkastore.open(directory)[log.path.name]
                for start in {0, int(path.stem), *some(answer["committed_offsets"], 2, (at, bit))}:
                    wanted = [offset for offset in answer["committed_offsets"] if offset >= start]
                    assert committed_offsets(alone, start_offset=start) == wanted
                    table = alone.to_arrow(
                        ["offset"], start_offset=start, isolation="read_committed"
                    ).read_all()
                    assert table["offset"].to_pylist() == wanted
                    damaged += 1
            path.write_bytes(data)
    assert damaged


@TRANSACTIONS
def test_transaction_indexes_decide_where_a_marker_is_skipped(golden_case, tmp_path):
    """A later producer snapshot shows that its transaction had ended, but not how."""
    decided = 0
    for log, answer in partitions(golden_case):
        last = log.segments[-1].base_offset
        known = max((each for each in log.files.producer_snapshots if each <= last), default=0)
        for control_batch in [each for each in log.batches(0, known) if each.is_control]:
            directory = copied(log, tmp_path, ".log", ".txnindex", ".snapshot")
            logs = sorted(directory.glob("*.log"))
            path = [each for each in logs if int(each.stem) <= control_batch.base_offset][-1]
            data = bytearray(path.read_bytes())
            data[control_batch.position + control_batch.size - 1] ^= 1
            path.write_bytes(data)
            skipped = []
            alone = kafkastore.open(directory)[log.path.name]
            got = committed_offsets(alone, on_corrupt="skip", skipped=skipped)
            assert got == answer["committed_offsets"]
            assert [each.position for each in skipped] == [control_batch.position]
            decided += 1
            shutil.rmtree(directory)
    assert decided


def test_a_batch_of_a_wrong_checksum_decides_nothing(golden, tmp_path):
    """Then neither the producer of a header nor the type of a marker is trusted."""
    log = kafkastore.open(golden("4.1.1", "transactions", "answers").logs)["txn-0"]
    for number, batch in enumerate(log.batches()):
        if not (batch.is_transactional or batch.is_control):
            continue
        folder = tmp_path / str(number)
        folder.mkdir()
        directory = copied(log, folder, ".log")
        (path,) = directory.glob("*.log") if len(log.segments) == 1 else [
            directory / segment.log_path.name for segment in log.segments
            if segment.base_offset <= batch.base_offset < (segment.next_base_offset or 2**62)
        ]
        data = bytearray(path.read_bytes())
        data[batch.position + (batch.size - 8 if batch.is_control else 46)] ^= 1
        path.write_bytes(data)
        damaged = kafkastore.open(directory)["txn-0"]
        with pytest.raises(ChecksumError):
            list(damaged.records(isolation="read_committed"))
        with pytest.raises(ChecksumError):
            damaged.to_arrow(isolation="read_committed").read_all()


@TRANSACTIONS
def test_the_last_stable_offset_is_after_the_last_committed_record(golden_case):
    for log, answer in partitions(golden_case):
        assert max(answer["committed_offsets"], default=-1) < log.last_stable_offset
        assert log.last_stable_offset <= log.log_end_offset


def test_an_isolation_that_there_is_not_is_refused(golden):
    store = kafkastore.open(golden("2.4.0", "transactions", "answers").logs)
    log = next(iter(store.partitions.values()))
    with refused("isolation"):
        log.to_arrow(isolation="serial")
    with refused("isolation"):
        next(log.records(isolation="serial"))


def transaction(producer_id, *timestamps):
    rows = tuple(Row(slot, time, b"k", b"v") for slot, time in enumerate(timestamps))
    return Batch(rows, is_transactional=True, producer_id=producer_id, producer_epoch=0)


def unreadable_marker(producer_id):
    whole = marker(0, 5, producer_id=producer_id)
    return replace(whole, rows=(whole.rows[0]._replace(key=b"\0"),))


@pytest.fixture
def unreadable(tmp_path):
    """A log with two markers that can't be read, of producers without transactions."""
    batches = in_a_row(
        [
            Batch((Row(0, 1),)), unreadable_marker(9), transaction(1, 2, 3),
            marker(0, 4, producer_id=1, is_commit=False), unreadable_marker(8),
            transaction(2, 5, 6), marker(0, 7, producer_id=2), Batch((Row(0, 8),)),
        ]
    )
    return kafkastore.open(Log((Segment(0, tuple(batches)),)).write(tmp_path / "logs"))["t-0"]


@pytest.mark.parametrize(("choice", "wanted"), [("skip", [0, 6, 7, 9]), ("stop", [0])])
def test_transactions_after_a_marker_that_can_t_be_read_are_decided(unreadable, choice, wanted):
    skipped, by_arrow = [], []
    assert committed_offsets(unreadable, on_corrupt=choice, skipped=skipped) == wanted
    options = {"isolation": "read_committed", "on_corrupt": choice, "skipped": by_arrow}
    table = unreadable.to_arrow(["offset"], **options).read_all()
    assert table["offset"].to_pylist() == wanted
    assert [each.start_offset for each in skipped] == [1, 5][: len(wanted)]
    assert [each.position for each in by_arrow] == [each.position for each in skipped]


def test_a_marker_that_can_t_be_read_is_an_error_of_committed_reads(unreadable):
    with pytest.raises(CorruptBatchError) as caught:
        committed_offsets(unreadable)
    assert caught.value.path == unreadable.segments[0].log_path
    assert [record.offset for record in unreadable.records()] == [0, 2, 3, 6, 7, 9]


def test_a_range_is_not_decided_without_a_marker_that_is_skipped(tmp_path):
    batches = in_a_row(
        [Batch((Row(0, 1),)), transaction(1, 2, 3), unreadable_marker(1), Batch((Row(0, 8),))]
    )
    root = Log((Segment(0, tuple(batches)),)).write(tmp_path / "logs")
    log = kafkastore.open(root)["t-0"]
    options = {"isolation": "read_committed", "on_corrupt": "skip", "skipped": []}
    assert log.to_arrow(["offset"], **options).read_all().num_rows == 1
    with pytest.raises(CorruptBatchError):
        log.to_arrow(["offset"], is_decided=True, **options).read_all()


@TRANSACTIONS
def test_a_corrupt_snapshot_changes_no_answer(golden_case, writable_copy):
    root = writable_copy(golden_case.logs)
    changed = 0
    for path in root.rglob("*.snapshot"):
        path.write_bytes(b"no snapshot")
        changed += 1
    store = kafkastore.open(root)
    for log, answer in partitions(golden_case):
        assert committed_offsets(store[log.topic_partition]) == answer["committed_offsets"]
    assert changed
