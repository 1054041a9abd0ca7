"""The check of one segment's log: its findings, and that it continues after damage."""

import struct

import pytest
from models.checked_segments import checks_of, findings_of, lose
from models.log_directory import Log, Segment
from models.record_format import Batch, Row, crc32c
from models.record_strategies import in_a_row

from kafkastore.checks.findings import FindingKind

NOW = 1_500_000_000_000


def batch(number=0, *, value=b"v" * 300, **fields):
    return Batch((Row(0, NOW + number, b"k", value),), **fields)


BATCHES = in_a_row([batch(number) for number in range(60)])
SIZE = len(BATCHES[0].data)


def written(root, batches=BATCHES, *, is_clean=True, **changes):
    """Write a log directory of one segment with its indexes; return it and the log's path."""
    segment = Segment(0, tuple(batches), **changes).indexed(interval=1000)
    logs = Log((segment,), is_clean=is_clean).write(root)
    return logs, logs / "t-0" / f"{0:020}.log"


def change(path, position, data):
    content = bytearray(path.read_bytes())
    content[position : position + len(data)] = data
    path.write_bytes(content)


def test_a_valid_segment_gives_no_finding_and_reports_its_contents(tmp_path):
    logs, _ = written(tmp_path / "logs", in_a_row(
        [batch(5), batch(9), batch(9), batch(2, leader_epoch=3), batch(1, leader_epoch=7)]))
    ((check, findings),) = checks_of(logs)
    assert findings == []
    assert check.next_offset == 5
    assert (check.largest_timestamp, check.position_of_largest_timestamp) == (NOW + 9, SIZE)
    assert check.epochs == [(0, 0), (3, 3), (7, 4)]
    assert check.producers is None


# Changed byte of a batch -> the finding.
BROKEN = {
    9: FindingKind.CORRUPT_BATCH,
    11: FindingKind.CHECKSUM_MISMATCH,
    16: FindingKind.CORRUPT_BATCH,
    20: FindingKind.CHECKSUM_MISMATCH,
    100: FindingKind.CHECKSUM_MISMATCH,
}


@pytest.mark.parametrize("byte", BROKEN)
def test_the_check_continues_after_a_corrupt_batch_and_counts_the_bytes_a_broker_would_drop(
    tmp_path, byte
):
    logs, log = written(tmp_path / "logs")
    at = 20 * SIZE + byte
    change(log, at, bytes([log.read_bytes()[at] ^ 0x55]))
    ((check, (found,)),) = checks_of(logs)
    assert (found.kind, found.path, found.position) == (BROKEN[byte], log, 20 * SIZE)
    (damage,) = check.damages
    assert (damage.position, damage.end) == (20 * SIZE, 21 * SIZE)
    assert (damage.batches_after, damage.valid_bytes_after) == (39, 39 * SIZE)


def test_index_entries_after_a_corrupt_batch_are_checked(tmp_path):
    logs, log = written(tmp_path / "logs")
    change(log, 20 * SIZE + 100, b"\xff")
    for suffix in (".index", ".timeindex"):
        index = log.with_suffix(suffix)
        entries = index.read_bytes()
        index.write_bytes(entries[:-3] + bytes([entries[-3] ^ 1]) + entries[-2:])
    assert [found.path.suffix for found in findings_of(logs)] == [".log", ".index", ".timeindex"]


def test_index_entries_that_lead_to_corrupt_bytes_are_not_checked(tmp_path):
    logs, log = written(tmp_path / "logs")
    for first in range(3, 50, 7):
        change(log, first * SIZE + 8, b"\xff" * (4 * SIZE))
    assert {found.path for found in findings_of(logs)} == {log}


def test_each_corrupt_place_reports_how_much_is_valid_after_it(tmp_path):
    logs, log = written(tmp_path / "logs")
    for number in (10, 30, 59):
        change(log, number * SIZE + 100, b"\xff")
    ((check, found),) = checks_of(logs)
    assert [each.position // SIZE for each in found] == [10, 30, 59]
    assert [(each.batches_after, each.valid_bytes_after) for each in check.damages] == [
        (47, 47 * SIZE), (28, 28 * SIZE), (0, 0)
    ]


def test_of_many_corrupt_places_the_first_sixteen_are_reported(tmp_path):
    logs, log = written(tmp_path / "logs")
    for number in range(0, 60, 2):
        change(log, number * SIZE + 100, b"\xff")
    ((check, found),) = checks_of(logs)
    assert (len(found), len(check.damages)) == (16, 30)


@pytest.mark.parametrize(
    ("start", "end"), [(0, 4096), (4096, 8192), (8192, 20480), (58 * SIZE, 60 * SIZE)]
)
def test_the_check_continues_after_unreadable_sectors(
    tmp_path, monkeypatch, start, end
):
    logs, log = written(tmp_path / "logs")
    lose(monkeypatch, log, start, end)
    ((check, (found,)),) = checks_of(logs)
    assert found.kind is FindingKind.UNREADABLE_LOG
    before = -(-end // SIZE)
    assert found.position in range(start - SIZE, end)
    assert [each.batches_after for each in check.damages] == [60 - before]


def test_a_torn_batch_is_normal_only_for_a_killed_broker(tmp_path):
    tail = batch().with_offset(60).data[:-1]
    for is_clean, kind in (
        (False, FindingKind.INCOMPLETE_LAST_BATCH), (True, FindingKind.BYTES_AFTER_CLEAN_SHUTDOWN)
    ):
        logs, _ = written(tmp_path / str(is_clean), BATCHES, is_clean=is_clean, tail=tail)
        (found,) = findings_of(logs, with_style=True)
        assert (found.kind, found.position) == (kind, 60 * SIZE)


def test_zeros_after_the_log_are_not_damage_where_a_start_truncates_them(tmp_path):
    logs, _ = written(tmp_path / "logs", is_clean=False, tail=bytes(9000))
    assert findings_of(logs, with_style=True) == []


def test_zeros_are_a_data_loss_risk_where_a_broker_appends_after_them_or_drops_segments(
    tmp_path
):
    logs, _ = written(tmp_path / "clean", is_clean=True, tail=bytes(9000))
    (found,) = findings_of(logs)
    assert (found.kind, found.position) == (
        FindingKind.BYTES_AFTER_CLEAN_SHUTDOWN, 60 * SIZE)
    first = Segment(0, tuple(BATCHES[:30]), tail=bytes(9000)).indexed(interval=1000)
    second = Segment(30, tuple(BATCHES[30:])).indexed(interval=1000)
    (found,) = findings_of(Log((first, second), is_clean=False).write(tmp_path / "inactive"))
    assert (found.kind, found.position) == (FindingKind.INCOMPLETE_BATCH, 30 * SIZE)


def test_a_batch_beyond_its_segment_is_not_a_fault_of_the_next_segment(tmp_path):
    first, second = BATCHES[:30], BATCHES[30:]
    first[-1] = first[-1].with_offset(33)
    segments = [Segment(0, tuple(first)), Segment(30, tuple(second))]
    logs = Log(tuple(each.indexed(interval=1000) for each in segments)).write(tmp_path)
    found = [each for each in findings_of(logs) if each.path.suffix == ".log"]
    assert [(each.kind, each.position) for each in found] == [
        (FindingKind.BATCH_OUTSIDE_SEGMENT, 29 * SIZE)
    ]
    assert {each.path.name for each in found} == {f"{0:020}.log"}


@pytest.mark.parametrize("magic", [0, 1, 2])
def test_a_last_batch_that_seems_torn_only_because_of_its_length_is_reported(tmp_path, magic):
    logs, log = written(tmp_path / "logs", in_a_row(
        [batch(magic=magic) for _ in range(3)]), is_clean=False)
    last = 2 * (log.stat().st_size // 3)
    change(log, last + 9, b"\x7f")
    found = [each for each in findings_of(logs) if each.path == log]
    assert [each.position for each in found] == [last]
    assert found[0].kind is FindingKind.CORRUPT_BATCH


def test_a_batch_that_extends_past_the_end_is_reported_with_the_valid_bytes_after_it(tmp_path):
    logs, log = written(tmp_path / "logs", is_clean=False)
    change(log, 20 * SIZE + 8, b"\x7f")
    ((check, (found,)),) = checks_of(logs)
    assert found.position == 20 * SIZE
    assert [each.batches_after for each in check.damages] == [39]


def with_field(data, position, code, value):
    """Return a record batch with one field changed and a valid checksum."""
    changed = bytearray(data)
    struct.pack_into(code, changed, position, value)
    struct.pack_into(">I", changed, 17, crc32c(bytes(changed[21:])))
    return bytes(changed)


# Changed field of the second of three batches -> the finding.
FAULTS = {
    "count": (57, ">i", 2, FindingKind.WRONG_RECORD_COUNT),
    "negative count": (57, ">i", -1, FindingKind.WRONG_RECORD_COUNT),
    "codec": (21, ">h", 6, FindingKind.UNKNOWN_COMPRESSION_TYPE),
    "attributes": (21, ">h", 0x100, FindingKind.UNKNOWN_ATTRIBUTES),
    "last offset delta": (23, ">i", 5, FindingKind.OUT_OF_ORDER_OFFSETS),
    "negative delta": (23, ">i", -1, FindingKind.OUT_OF_ORDER_OFFSETS),
    "seconds": (35, ">q", NOW // 1000, FindingKind.TIMESTAMP_IN_SECONDS),
    "microseconds": (35, ">q", NOW * 1000, FindingKind.TIMESTAMP_IN_MICROSECONDS),
    "nanoseconds": (35, ">q", NOW * 10**6, FindingKind.TIMESTAMP_IN_NANOSECONDS),
    "negative": (35, ">q", -2, FindingKind.NEGATIVE_TIMESTAMP),
    "epoch": (12, ">i", -2, FindingKind.NEGATIVE_LEADER_EPOCH),
    "offset": (0, ">q", 2**31, FindingKind.BATCH_OUTSIDE_SEGMENT),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_batch_that_contradicts_itself_is_reported(tmp_path, fault):
    at, code, value, kind = FAULTS[fault]
    logs, log = written(tmp_path / "logs", BATCHES[:3])
    data = log.read_bytes()
    changed = with_field(data[SIZE : 2 * SIZE], at, code, value)
    log.write_bytes(data[:SIZE] + changed + data[2 * SIZE :])
    found = [each for each in findings_of(logs, with_style=True) if each.path == log]
    assert kind in {each.kind for each in found}
    assert all(each.position in (SIZE, 2 * SIZE) for each in found)


def test_leader_epochs_that_fall_are_reported_within_a_segment_and_from_one_to_the_next(tmp_path):
    batches = in_a_row([batch(leader_epoch=epoch) for epoch in (4, 5, 4, -1, 5)])
    logs, _ = written(tmp_path / "one", batches)
    (found,) = findings_of(logs)
    assert (found.position, found.kind) == (2 * SIZE, FindingKind.DECREASING_LEADER_EPOCH)
    logs = Log((
        Segment(0, tuple(batches[:2])).indexed(), Segment(2, tuple(batches[2:3])).indexed(),
    ), is_clean=True).write(tmp_path / "two")
    (found,) = findings_of(logs)
    assert (found.position, found.kind) == (0, FindingKind.DECREASING_LEADER_EPOCH)


def test_a_fault_of_many_batches_is_one_finding_at_the_first(tmp_path):
    batches = in_a_row([batch(), *[batch(stated_max_timestamp=NOW // 1000)] * 7])
    logs, log = written(tmp_path / "logs", batches, is_clean=False)
    (found,) = findings_of(logs)
    assert (found.path, found.position) == (log, SIZE)


def test_without_the_log_there_is_no_finding_about_it(tmp_path):
    logs, log = written(tmp_path / "logs")
    change(log, 20 * SIZE + 100, b"\xff")
    assert findings_of(logs, reads_log=False) == []
    ((check, _),) = checks_of(logs, reads_log=False)
    assert check.next_offset == 0
