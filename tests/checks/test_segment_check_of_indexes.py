"""The check of index entries: no findings for any writer, and every wrong entry is found."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from models.checked_segments import findings_of
from models.log_directory import Log, Segment
from models.record_format import GZIP, LZ4, Batch, Row, emptied
from models.record_strategies import bounded, in_a_row

import kafkastore
from kafkastore.checks import index_check
from kafkastore.checks.findings import FindingKind, Severity

NOW = 1_500_000_000_000


def batch(*timestamps, magic=2, **fields):
    rows = tuple(Row(at, time, b"k", b"v" * 50) for at, time in enumerate(timestamps))
    return Batch(rows, magic=magic, **fields)


TIMES = st.lists(st.integers(NOW, NOW + 20), min_size=1, max_size=4)


@st.composite
def logs(draw):
    """Draw batches of one segment as producers, compaction and old versions leave them."""
    found = []
    for _ in range(draw(st.integers(0, 40))):
        magic = draw(st.sampled_from([0, 1, 2, 2, 2]))
        codec = draw(st.sampled_from([0, 0, GZIP, LZ4]))
        times = draw(TIMES)
        append_time = draw(st.sampled_from([None, None, NOW + 30])) if magic else None
        if magic < 2 and codec == 0:
            times = times[:1]
        if magic == 2 and draw(st.integers(0, 5)) == 0:
            found.append(emptied(0, 4, times[0]))
        else:
            found.append(batch(*times, magic=magic, codec=codec, append_time=append_time))
    return tuple(in_a_row(found))


WRITERS = {
    "up to 1.1": {"stores_first_offset": True, "is_exact": True},
    "2.0 to 3.7": {"is_exact": True},
    "from 3.8 on": {},
}


@bounded(80)
@given(batches=logs(), style=st.sampled_from(sorted(WRITERS)), batches_a_set=st.integers(1, 6),
       interval=st.sampled_from([0, 100, 300, 4096]))
def test_indexes_of_leaders_and_followers_of_all_versions_give_no_finding(
    tmp_path_factory, batches, style, batches_a_set, interval
):
    segment = Segment(0, batches).indexed(
        interval=interval, batches_a_set=batches_a_set, **WRITERS[style]
    )
    followed = Segment(max((each.last_offset + 1 for each in batches), default=1), ())
    root = tmp_path_factory.mktemp("x")
    assert findings_of(Log((segment, followed), is_clean=True).write(root / "logs")) == []


@bounded(40)
@given(batches=logs(), interval=st.sampled_from([0, 300, 4096]), is_clean=st.booleans())
def test_indexes_that_recovery_rebuilds_give_no_finding(
    tmp_path_factory, batches, interval, is_clean
):
    root = tmp_path_factory.mktemp("x")
    logs = Log((Segment(0, batches).recovered(interval),), is_clean=is_clean).write(root / "logs")
    assert findings_of(logs) == []


BATCHES = tuple(in_a_row([batch(NOW + number) for number in range(30)]))


def written(root, *, batches=BATCHES, is_clean=True, is_active=True, tail=b"", **indexes):
    """Write a log directory whose first segment has these indexes; return it and the log."""
    segment = Segment(0, tuple(batches), tail=tail).indexed(interval=200)
    for name, data in indexes.items():
        object.__setattr__(segment, name, data)
    end = batches[-1].last_offset + 1
    segments = (segment,) if is_active else (segment, Segment(end, ()))
    point = None if is_active else end
    logs = Log(segments, is_clean=is_clean, recovery_point=point).write(root)
    return logs, logs / "t-0" / f"{0:020}.log"


def offset_entries(*entries):
    return b"".join(struct.pack(">ii", *entry) for entry in entries)


def time_entries(*entries):
    return b"".join(struct.pack(">qi", *entry) for entry in entries)


SIZE = len(BATCHES[0].data)
END = 30 * SIZE
TORN = BATCHES[0].with_offset(30).data[:-9]

# An offset index -> the byte of the wrong entry.
WRONG_OFFSETS = {
    "within a batch": (offset_entries((4, 4 * SIZE), (8, 8 * SIZE + 1)), 8),
    "of a record before": (offset_entries((4, 4 * SIZE), (7, 8 * SIZE)), 8),
    "going back": (offset_entries((8, 8 * SIZE), (9, 4 * SIZE)), 8),
    "jumping": (offset_entries((4, 25 * SIZE + 3), (8, 8 * SIZE)), 0),
    "before the segment": (offset_entries((-1, SIZE)), 0),
}


@pytest.mark.parametrize("case", WRONG_OFFSETS)
def test_a_wrong_offset_entry_gives_wrong_answers(tmp_path, case):
    data, position = WRONG_OFFSETS[case]
    logs, log = written(tmp_path / "logs", offset_index=data)
    (found,) = findings_of(logs)
    assert (found.path, found.position) == (log.with_suffix(".index"), position)
    # After a clean shutdown, a broker begins at the last entry's position.
    is_risk = case == "within a batch"
    assert found.kind is (
        FindingKind.LOADED_OFFSET_INDEX_MISMATCH if is_risk else FindingKind.OFFSET_INDEX_MISMATCH)
    assert found.remedy == f"kafkastore reindex {log.parent}"


BEYOND_END = {
    "offset": offset_entries((4, 4 * SIZE), (30, 8 * SIZE)),
    "position": offset_entries((4, 4 * SIZE), (29, END)),
}


@pytest.mark.parametrize("case", BEYOND_END)
def test_an_offset_entry_beyond_the_end_costs_records_where_a_broker_trusts_it(tmp_path, case):
    data = BEYOND_END[case]
    logs, _ = written(tmp_path / "clean", offset_index=data)
    (found,) = findings_of(logs)
    assert (found.kind, found.position) == (FindingKind.LOADED_OFFSET_INDEX_BEYOND_LOG_END, 8)
    logs, _ = written(tmp_path / "inactive", offset_index=data, is_active=False)
    (found,) = findings_of(logs)
    assert found.kind is FindingKind.OFFSET_INDEX_BEYOND_LOG_END
    logs, _ = written(
        tmp_path / "torn", offset_index=data, is_clean=False, tail=TORN)
    assert findings_of(logs) == []
    assert {each.kind for each in findings_of(logs, with_style=True)} == {
        FindingKind.INCOMPLETE_LAST_BATCH, FindingKind.OFFSET_INDEX_LEFT_BY_CRASH}


def test_of_several_wrong_entries_the_one_that_a_broker_begins_at_is_reported(tmp_path):
    data = offset_entries((4, 4 * SIZE + 1), (30, 31 * SIZE))
    logs, _ = written(tmp_path / "clean", offset_index=data)
    (found,) = findings_of(logs)
    assert (found.kind, found.position) == (FindingKind.LOADED_OFFSET_INDEX_BEYOND_LOG_END, 8)
    logs, _ = written(tmp_path / "inactive", offset_index=data, is_active=False)
    (found,) = findings_of(logs)
    assert (found.kind, found.position) == (FindingKind.OFFSET_INDEX_MISMATCH, 0)


# A time index -> the byte of the wrong entry.
WRONG_TIMES = {
    "a timestamp of no record": (time_entries((NOW + 3, 3), (NOW + 400, 8)), 12),
    "the offset of another record": (time_entries((NOW + 3, 3), (NOW + 8, 7)), 12),
    "an offset that goes back": (time_entries((NOW + 8, 8), (NOW + 9, 3)), 12),
    "equal timestamps": (time_entries((NOW + 8, 8), (NOW + 8, 8)), 12),
    "beyond the end": (time_entries((NOW + 3, 3), (NOW + 50, 30)), 12),
    "not the last one": (time_entries((NOW + 3, 3)), 12),
}


@pytest.mark.parametrize("case", WRONG_TIMES)
def test_a_time_entry_that_the_log_contradicts_gives_wrong_answers(tmp_path, case):
    data, position = WRONG_TIMES[case]
    logs, log = written(tmp_path / "logs", time_index=data, is_active=False)
    (found,) = findings_of(logs)
    assert (found.path, found.position) == (log.with_suffix(".timeindex"), position)
    assert found.kind is (
        FindingKind.TIME_INDEX_ENDS_EARLY if case == "not the last one"
        else FindingKind.TIME_INDEX_MISMATCH)
    assert found.remedy == f"kafkastore reindex {log.parent}"


def test_the_first_of_equal_maximum_timestamps_counts(tmp_path):
    batches = in_a_row([batch(NOW), batch(NOW + 5), batch(NOW + 5), batch(NOW)])
    for offset, expected in ((1, 0), (2, 1)):
        logs, _ = written(
            tmp_path / str(offset), batches=batches, is_active=False,
            time_index=time_entries((NOW + 5, offset)))
        assert len(findings_of(logs)) == expected


def test_zeros_are_a_data_loss_risk_for_an_inactive_segment_whatever_its_timestamps(tmp_path):
    untimed = in_a_row([batch(-1, magic=0) for _ in range(4)])
    for number, batches in enumerate((BATCHES, untimed)):
        logs, _ = written(
            tmp_path / str(number), batches=batches, time_index=bytes(120), is_active=False)
        (found,) = findings_of(logs)
        assert (found.path.suffix, found.position) == (".timeindex", 0)
        assert found.kind is FindingKind.ZERO_TIME_INDEX_ENTRIES


def test_the_entry_of_timestamp_0_at_the_base_offset_is_not_padding(tmp_path):
    batches = in_a_row([batch(0) for _ in range(4)])
    logs, _ = written(tmp_path / "one", batches=batches, time_index=bytes(12), is_active=False)
    assert findings_of(logs) == []
    logs, _ = written(tmp_path / "two", batches=batches, time_index=bytes(24), is_active=False)
    (found,) = findings_of(logs)
    assert (found.severity, found.position) == (Severity.DATA_LOSS_RISK, 12)
    rising = in_a_row([batch(0), batch(7)])
    logs, _ = written(
        tmp_path / "three", batches=rising, is_active=False, time_index=time_entries((0, 0), (7, 1))
    )
    assert findings_of(logs) == []


def test_padding_is_normal_where_a_broker_rebuilds_the_index(tmp_path):
    padding = {"offset_index": offset_entries((4, 4 * SIZE)) + bytes(80),
               "time_index": time_entries((NOW + 4, 4)) + bytes(120)}
    logs, _ = written(tmp_path / "killed", is_clean=False, **padding)
    assert findings_of(logs) == []
    logs, _ = written(tmp_path / "clean", **padding)
    assert {found.severity for found in findings_of(logs)} == {Severity.WRONG_ANSWERS}


UNTIMED = tuple(in_a_row([batch(-1, magic=0) for _ in range(6)]))


@pytest.mark.parametrize("offset", [0, 5, 6])
def test_one_entry_dates_a_segment_without_timestamps(tmp_path, offset):
    logs, _ = written(
        tmp_path / "logs", batches=UNTIMED, is_active=False, time_index=time_entries((NOW, offset)))
    assert findings_of(logs, with_style=True) == []
    assert findings_of(logs, with_style=True, reads_log=False) == []


@pytest.mark.parametrize(
    "data",
    [
        time_entries((NOW, 7)),
        time_entries((NOW, -1)),
        time_entries((-2, 3)),
        time_entries((2**42, 3)),
        time_entries((NOW, 3), (NOW + 1, 4)),
    ],
)
def test_other_entries_of_a_segment_without_timestamps_are_wrong(tmp_path, data):
    logs, log = written(
        tmp_path / "logs", batches=UNTIMED, is_active=False, time_index=data)
    (found,) = findings_of(logs)
    assert found.kind is FindingKind.TIME_INDEX_WITHOUT_TIMESTAMPS
    assert found.remedy == f"kafkastore reindex {log.parent}"


def test_a_segment_without_timestamps_needs_no_entry(tmp_path):
    logs, _ = written(tmp_path / "logs", batches=UNTIMED, is_active=False, time_index=b"")
    assert findings_of(logs) == []
    (found,) = findings_of(logs, with_style=True)
    assert found.kind is FindingKind.EMPTY_TIME_INDEX_WITHOUT_TIMESTAMPS
    logs, _ = written(tmp_path / "missing", batches=UNTIMED, is_active=False, time_index=None)
    (found,) = findings_of(logs, with_style=True)
    assert found.kind is FindingKind.MISSING_TIME_INDEX_WITHOUT_TIMESTAMPS


def test_a_missing_or_empty_time_index_is_a_fault_where_records_have_timestamps(tmp_path):
    for kind, data in (
        (FindingKind.MISSING_TIME_INDEX, None), (FindingKind.EMPTY_TIME_INDEX, b"")
    ):
        logs, _ = written(tmp_path / kind, is_active=False, time_index=data)
        (found,) = findings_of(logs)
        assert found.kind is kind


def test_incomplete_entries_are_reported_at_their_byte(tmp_path):
    segment = Segment(0, BATCHES).indexed(interval=200)
    logs, _ = written(tmp_path / "logs", offset_index=segment.offset_index + b"\0\0\0",
                      time_index=segment.time_index + b"\1")
    assert [(found.path.suffix, found.position) for found in findings_of(logs)] == [
        (".index", len(segment.offset_index)), (".timeindex", len(segment.time_index))]


# An index that is wrong even without its log.
WRONG_BY_ITSELF = {
    "offset disorder": {"offset_index": offset_entries((8, 900), (7, 950))},
    "position beyond the file": {"offset_index": offset_entries((8, END))},
    "offset of the next segment": {"offset_index": offset_entries((30, 100))},
    "time disorder": {"time_index": time_entries((NOW, 4), (NOW - 1, 5))},
    "offset beyond the segment": {"time_index": time_entries((NOW, 31))},
    "zeros": {"time_index": bytes(24)},
    "odd bytes": {"time_index": bytes(5)},
    "no offset index": {"offset_index": None},
}


@pytest.mark.parametrize("case", WRONG_BY_ITSELF)
def test_without_the_log_an_index_is_checked_by_itself(tmp_path, case):
    good, _ = written(tmp_path / "good", is_active=False)
    assert findings_of(good, with_style=True, reads_log=False) == []
    logs, _ = written(tmp_path / "logs", is_active=False, **WRONG_BY_ITSELF[case])
    assert len(findings_of(logs, reads_log=False)) == 1


def test_twelve_zero_bytes_that_the_log_contradicts_are_reported_once(tmp_path):
    starts_at_0 = in_a_row([batch(0), batch(NOW)])
    untimed = in_a_row([batch(-1, magic=0) for _ in range(4)])
    for number, (batches, severity) in enumerate((
        (BATCHES, Severity.DATA_LOSS_RISK),
        (untimed, Severity.DATA_LOSS_RISK),
        (starts_at_0, Severity.WRONG_ANSWERS),  # a valid entry, but not the last one
    )):
        logs, _ = written(
            tmp_path / str(number), batches=batches, time_index=bytes(12), is_active=False)
        (found,) = findings_of(logs)
        assert (found.path.suffix, found.severity) == (".timeindex", severity)


def test_a_time_entry_after_an_incomplete_batch_comes_from_a_crash(tmp_path):
    logs, _ = written(
        tmp_path / "logs", is_clean=False, tail=TORN,
        time_index=time_entries((NOW + 3, 3), (NOW + 50, 30)))
    assert {each.kind for each in findings_of(logs, with_style=True)} == {
        FindingKind.INCOMPLETE_LAST_BATCH, FindingKind.TIME_INDEX_LEFT_BY_CRASH}


def test_a_missing_time_index_of_a_log_that_is_not_read_is_style(tmp_path):
    logs, _ = written(tmp_path / "logs", is_active=False, time_index=None)
    (found,) = findings_of(logs, with_style=True, reads_log=False)
    assert found.kind is FindingKind.MISSING_TIME_INDEX_OF_UNREAD_LOG


def test_an_empty_offset_index_of_a_large_segment_is_slow(tmp_path, monkeypatch):
    monkeypatch.setattr(index_check, "LARGE_WITHOUT_ENTRIES", END - 1)
    logs, _ = written(tmp_path / "logs", is_active=False, offset_index=b"")
    (found,) = findings_of(logs)
    assert found.kind is FindingKind.EMPTY_OFFSET_INDEX


def test_an_index_that_is_too_large_for_its_log_is_corrupt(tmp_path):
    logs, _ = written(tmp_path / "logs", offset_index=b"\1" * (11 << 20))
    (found,) = findings_of(logs)
    assert found.kind is FindingKind.CORRUPT_INDEX


def test_future_modification_times_without_timestamps_are_reported(tmp_path):
    log = Log((Segment(0, UNTIMED, modified_ms=10**13), Segment(6, (), modified_ms=10**13)))
    kinds = {each.kind for each in kafkastore.verify(log.write(tmp_path / "logs"))}
    assert FindingKind.DOUBTFUL_MODIFICATION_TIMES in kinds
