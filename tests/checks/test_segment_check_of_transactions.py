"""The check of the transaction index against the markers in the log."""

import os

import pytest
from models.checked_segments import checks_of, findings_of, lose
from models.log_directory import Log, Segment
from models.record_format import Batch, Row, marker
from models.record_strategies import in_a_row

from kafkastore.checks import transaction_check
from kafkastore.checks.findings import FindingKind, Severity
from kafkastore.errors import CorruptionError
from kafkastore.formats.indexes import transaction_index

NOW = 1_500_000_000_000


def data(producer_id=1, *, is_transactional=True, count=2):
    rows = tuple(Row(at, NOW, b"k", b"v" * 40) for at in range(count))
    return Batch(rows, producer_id=producer_id, producer_epoch=0, base_sequence=0,
                 is_transactional=is_transactional)


def abort(producer_id=1):
    return marker(0, NOW, is_commit=False, producer_id=producer_id)


def commit(producer_id=1):
    return marker(0, NOW, producer_id=producer_id)


def written(root, *segments, entries=()):
    """Write a clean log directory of these batches and transaction index entries."""
    found, offset = [], 0
    for batches in segments:
        placed = in_a_row(batches, offset)
        found.append(Segment(offset, tuple(placed)).indexed())
        offset = placed[-1].last_offset + 1
    logs = Log(tuple(found), is_clean=True).write(root)
    indexes = []
    for segment, of_segment in zip(found, entries, strict=False):
        path = logs / "t-0" / f"{segment.base_offset:020}.txnindex"
        if of_segment:
            path.write_bytes(transaction_index.pack(of_segment))
        indexes.append(path)
    return logs, indexes


# Producer 1 aborts offsets 0 to 4, 2 commits 2 to 5, and 1 aborts 6 to 10 while 3 is open from 8.
BATCHES = [data(1), data(2), abort(1), commit(2), data(1), data(3), abort(1)]
ENTRIES = [(1, 0, 4, 2), (1, 6, 10, 8)]


def test_valid_entries_give_no_finding(tmp_path):
    logs, _ = written(tmp_path / "logs", BATCHES, entries=[ENTRIES])
    ((check, findings),) = checks_of(logs)
    assert findings == []
    assert check.producers.open_transactions == {3: 8}


# Changed entries -> slot of the wrong one, and the finding.
WRONG = {
    "another producer": ([(7, 0, 4, 2), ENTRIES[1]], 0, FindingKind.MISSING_ABORT_MARKER),
    "no marker there": ([(1, 0, 3, 2), ENTRIES[1]], 0, FindingKind.MISSING_ABORT_MARKER),
    "a commit": ([ENTRIES[0], (2, 2, 5, 6), ENTRIES[1]], 1, FindingKind.MISSING_ABORT_MARKER),
    "begins late": ([(1, 1, 4, 2), ENTRIES[1]], 0, FindingKind.ABORTED_TRANSACTION_BEGINS_LATE),
    "begins early": ([ENTRIES[0], (1, 5, 10, 8)], 1, FindingKind.ABORTED_TRANSACTION_BEGINS_EARLY),
    "another open": ([(1, 0, 4, 5), ENTRIES[1]], 0, FindingKind.WRONG_LAST_STABLE_OFFSET),
    "the last open": ([ENTRIES[0], (1, 6, 10, 11)], 1, FindingKind.WRONG_LAST_STABLE_OFFSET),
    "far ahead": ([ENTRIES[0], (1, 6, 10, 2**40)], 1, FindingKind.WRONG_LAST_STABLE_OFFSET),
    "exchanged": (ENTRIES[::-1], 0, FindingKind.WRONG_LAST_STABLE_OFFSET),
    "in disorder": ([(1, 6, 10, 0), ENTRIES[0]], 1, FindingKind.OUT_OF_ORDER_TRANSACTION_INDEX),
    "zeros": ([*ENTRIES, (0, 0, 0, 0)], 2, FindingKind.OUT_OF_ORDER_TRANSACTION_INDEX),
    "twice": ([*ENTRIES, ENTRIES[1]], 2, FindingKind.OUT_OF_ORDER_TRANSACTION_INDEX),
    "negative": ([(1, -1, 4, 2), ENTRIES[1]], 0, FindingKind.OUT_OF_ORDER_TRANSACTION_INDEX),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_entry_gives_wrong_answers(tmp_path, case):
    entries, slot, kind = WRONG[case]
    logs, (index,) = written(tmp_path / "logs", BATCHES, entries=[entries])
    found = findings_of(logs)[0]
    assert (found.path, found.position) == (index, slot * transaction_index.ENTRY_SIZE)
    assert found.kind is kind
    assert found.remedy == f"kafkastore reindex {index.parent}"


def test_a_last_stable_offset_that_is_too_low_only_costs_time(tmp_path):
    logs, _ = written(tmp_path / "logs", BATCHES, entries=[[(1, 0, 4, 0), (1, 6, 10, 3)]])
    assert findings_of(logs) == []


def test_aborted_transactions_without_an_entry_are_reported(tmp_path):
    for name, entries in (("some", ENTRIES[:1]), ("none", [])):
        logs, (index,) = written(tmp_path / name, BATCHES, entries=[entries])
        (found,) = findings_of(logs)
        assert (found.path, found.kind) == (index, FindingKind.MISSING_ABORTED_TRANSACTIONS)


def test_a_transaction_may_begin_segments_before_its_marker(tmp_path):
    segments = [[data(1)], [data(2)], [abort(1), commit(2)]]
    logs, _ = written(tmp_path / "right", *segments, entries=[(), (), [(1, 0, 4, 2)]])
    assert findings_of(logs) == []
    logs, (*_, index) = written(tmp_path / "false", *segments, entries=[(), (), [(1, 1, 4, 2)]])
    (found,) = findings_of(logs)
    assert (found.path, found.kind) == (index, FindingKind.ABORTED_TRANSACTION_BEGINS_LATE)


def test_a_transaction_that_began_before_the_log_start_is_not_checked_in_deleted_records(tmp_path):
    segments = [[data(1)], [data(2)], [data(1), abort(1), commit(2)]]
    logs, (first, *_) = written(
        tmp_path / "logs", *segments, entries=[(), (), [(1, 0, 6, 2)]])
    for suffix in (".log", ".index", ".timeindex"):
        os.remove(first.with_suffix(suffix))
    assert findings_of(logs) == []


def test_a_marker_of_a_transaction_without_records_may_have_an_entry_or_none(tmp_path):
    for name, entries in (("up to 2.7", [(1, 2, 2, 3)]), ("from 2.8 on", [])):
        logs, _ = written(
            tmp_path / name, [data(5, is_transactional=False), abort(1)], entries=[entries])
        assert findings_of(logs) == []


def test_batches_that_compaction_removed_are_not_reported_missing(tmp_path):
    # Of producer 1's transaction, offsets 0 to 4, the batch at 3 is left.
    batches = [data(1, count=1).with_offset(3), abort(1).with_offset(4)]
    segment = Segment(0, tuple(batches)).indexed()
    logs = Log((segment,), is_clean=True).write(tmp_path / "logs")
    index = logs / "t-0" / f"{0:020}.txnindex"
    for first in (3, 2, 0):
        index.write_bytes(transaction_index.pack([(1, first, 4, 5)]))
        assert findings_of(logs) == []
    index.write_bytes(transaction_index.pack([(1, 4, 4, 5)]))
    assert len(findings_of(logs)) == 1


def test_a_log_without_producers_has_no_entry(tmp_path):
    plain = Batch((Row(0, NOW, b"k", b"v"),))
    logs, (index,) = written(tmp_path / "logs", [plain], entries=[[(1, 0, 0, 1)]])
    ((check, (found,)),) = checks_of(logs)
    assert (found.path, found.severity) == (index, Severity.WRONG_ANSWERS)
    assert check.producers is None


def test_versions_and_odd_bytes_are_reported_at_their_byte(tmp_path):
    logs, (index,) = written(tmp_path / "logs", BATCHES, entries=[ENTRIES])
    valid = index.read_bytes()
    index.write_bytes(valid + b"\0" * 5)
    (found,) = findings_of(logs)
    assert (found.position, found.kind) == (68, FindingKind.INCOMPLETE_TRANSACTION_INDEX_ENTRY)
    index.write_bytes(valid[:34] + b"\0\1" + valid[36:])
    (found,) = findings_of(logs)
    assert (found.position, found.kind) == (34, FindingKind.CORRUPT_TRANSACTION_INDEX)


def test_after_damage_only_readable_batches_are_checked(tmp_path, monkeypatch):
    segments = [[data(1), data(2), abort(1), commit(2), data(1), abort(1)]]
    entries = [[(1, 0, 4, 2), (1, 6, 8, 9)]]
    logs, (index,) = written(tmp_path / "logs", *segments, entries=entries)
    log = index.with_suffix(".log")
    clean = log.read_bytes()
    at = 0
    while at < len(clean):   # each batch is lost in turn
        size = 12 + int.from_bytes(clean[at + 8 : at + 12], "big")
        log.write_bytes(clean[: at + 30] + b"\xff" + clean[at + 31 :])
        assert [found.path.suffix for found in findings_of(logs)] == [".log"]
        at += size
    log.write_bytes(clean)
    lose(monkeypatch, index, 0, 10)
    (found,) = findings_of(logs)
    assert (found.path, found.position) == (index, 0)
    assert found.kind is FindingKind.CORRUPT_TRANSACTION_INDEX


def test_a_check_does_not_alter_the_state_of_the_previous_one(tmp_path):
    logs, _ = written(tmp_path / "logs", [data(1)], [abort(1)], entries=[(), [(1, 0, 2, 3)]])
    (first, _), (second, _) = checks_of(logs)
    assert first.producers.open_transactions == {1: 0}
    assert second.producers.open_transactions == {}
    again = type(second)(second.log, second.segment, 2, before=first)
    assert list(again.findings()) == []


@pytest.mark.golden_cases(names="transactions", answers="answers", versions=["0.11.0.3", "4.3.1"])
def test_each_flipped_bit_of_a_real_index_is_found_or_only_lowers_a_stable_offset(
    golden_case, writable_copy
):
    logs = writable_copy(golden_case.logs)
    paths = [path for path in sorted(logs.glob("txn-*/*.txnindex")) if path.stat().st_size]
    assert paths
    for path in paths[:2]:
        clean = path.read_bytes()
        stable = transaction_index.parse(clean)["last_stable_offset"]
        for bit in range(0, 8 * len(clean), 3):
            flipped = bytearray(clean)
            flipped[bit // 8] ^= 1 << bit % 8
            path.write_bytes(flipped)
            if path in {found.path for found in findings_of(logs, path.parent.name)}:
                continue
            parsed = transaction_index.parse(bytes(flipped))
            assert (parsed["last_stable_offset"] != stable).sum() == 1, bit
        path.write_bytes(clean)


def test_a_corrupt_marker_is_a_data_loss_risk(tmp_path, monkeypatch):
    def refuse(batch):
        raise CorruptionError("the control record is corrupt", position=batch.position)

    logs, _ = written(tmp_path / "logs", BATCHES, entries=[ENTRIES])
    monkeypatch.setattr(transaction_check, "first_control_record", refuse)
    kinds = {each.kind for each in findings_of(logs)}
    assert FindingKind.CORRUPT_TRANSACTION_MARKER in kinds
