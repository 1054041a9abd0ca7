"""Three answers for a time, and how many records are between them."""
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafkastore.legacy import (
    ComparisonSummary,
    UnsupportedTimestampError,
    compare,
    compare_as_arrow,
    compare_columns,
    fetch_offsets_before,
    summarize,
)
from models.log_directory import Log, Segment
from models.record_format import GZIP, Batch, Row, emptied, marker

import kafkastore
from kafkastore.lookup.rules import UnknownRulesError


def moments(records):
    """Return every timestamp of a partition, and both adjacent ones."""
    stamps = {stamp for _, stamp, *_ in records}
    return sorted({stamp + each for stamp in stamps for each in (-1, 0, 1)} | {0, -1, -2, 1 << 50})


@pytest.mark.golden_cases(
    names=["create-time-*", "compacted", "transactions", "delete-records", "old-formats"],
    versions=["2.4.0", "0.10.0.1"],
)
def test_comparison_counts_the_same_records_as_reading_them_all(golden_case):
    for name, partition in golden_case.answers["partitions"].items():
        log = kafkastore.open(golden_case.logs)[name]
        records = [(offset, stamp) for offset, stamp, *_ in partition["records"]]
        times = [moment for moment in moments(partition["records"]) if moment >= 0][::3]
        for each in compare(log, times, now=1 << 51):
            before = fetch_offsets_before(log, each.target_timestamp, 1, now=1 << 51)
            assert each.legacy == (before[0] if before else None)
            matching = [offset for offset, stamp in records if stamp >= each.target_timestamp]
            right = matching[0] if matching else log.log_end_offset
            assert (None if each.correct is None else each.correct.offset) == (
                matching[0] if matching else None
            )
            if each.legacy is None:
                assert (each.redelivered, each.missed) == (None, None)
                continue
            assert each.redelivered == sum(each.legacy <= offset < right for offset, _ in records)
            assert each.missed == sum(right <= offset < each.legacy for offset, _ in records)


#: Modification times in ms of the segments below; the last is older than the one before.
FIRST, SECOND, LAST = 20_000, 40_000, 30_000


def write_small_log(root):
    """Write a compacted log in three segments with few records.

    ======  ========================================  =========
    base    records (offset at timestamp)             mtime
    ======  ========================================  =========
    0       0 at 1000, 3 at 3000; a marker at 4       FIRST
    10      10 at 2000, 12 at 9000, 15 at 4000        SECOND
    20      an emptied batch 20 to 24; 25 at 9500;    LAST
            a marker at 26; 27 at 9600, 28 at 9700
    ======  ========================================  =========
    """
    segments = (
        Segment(0, (
            Batch((Row(0, 1000),)),
            Batch((Row(3, 3000),), is_transactional=True, producer_id=1, producer_epoch=0),
            marker(4, 3500),
        ), FIRST),
        Segment(10, (Batch((Row(10, 2000), Row(12, 9000), Row(15, 4000)), codec=GZIP),), SECOND),
        Segment(20, (
            emptied(20, 24, 9400),
            Batch((Row(25, 9500),), is_transactional=True, producer_id=1, producer_epoch=0),
            marker(26, 9550),
            Batch((Row(27, 9600), Row(28, 9700))),
        ), LAST),
    )
    log = Log(tuple(segment.recovered(0) for segment in segments), is_clean=True)
    return kafkastore.open(log.write(root))["t-0"]


@pytest.mark.parametrize(
    ("target", "legacy", "correct", "redelivered", "missed"),
    [
        (1000, None, 0, None, None),        # before every modification time
        (19_999, None, None, None, None),
        (20_000, 0, None, 8, 0),            # all records, since none is that late
        (29_999, 0, None, 8, 0),
        (30_000, 20, None, 3, 0),           # 25, 27, 28: markers and gaps are not records
        (40_000, 20, None, 3, 0),           # the last segment that matches, not the latest time
        (99_999, 20, None, 3, 0),
        (100_000, 29, None, 0, 0),          # from `now` on: the log end
    ],
)
def test_costs_of_a_small_log_equal_those_counted_by_hand(
    tmp_path, target, legacy, correct, redelivered, missed
):
    log = write_small_log(tmp_path / "logs")
    (found,) = compare(log, [target], now=100_000)
    offset = None if found.correct is None else found.correct.offset
    assert (found.target_timestamp, found.legacy, offset, found.redelivered, found.missed) == (
        target, legacy, correct, redelivered, missed,
    )


@pytest.mark.parametrize(
    ("target", "legacy", "broker", "correct", "redelivered", "missed"),
    [
        (500, None, 0, 0, None, None),
        (1500, 0, 3, 3, 1, 0),              # 0
        (3200, 0, 4, 12, 3, 0),             # 0, 3, 10; a broker takes the marker for a record
        (4000, 10, 12, 12, 1, 0),           # 10
        (9100, 10, 25, 25, 3, 0),           # 10, 12, 15
        (9800, 20, None, None, 3, 0),
    ],
)
def test_modification_times_among_the_timestamps_redeliver_records(
    tmp_path, target, legacy, broker, correct, redelivered, missed
):
    log = write_small_log(tmp_path / "logs")
    mtimes = {f"t-0/{base:020}.log": at for base, at in ((0, 1500), (10, 4000), (20, 9800))}
    (found,) = compare(log, [target], now=100_000, mtimes=mtimes)
    assert (found.legacy, found.redelivered, found.missed) == (legacy, redelivered, missed)
    assert [None if each is None else each.offset for each in (found.broker, found.correct)] == [
        broker, correct,
    ]


def test_modification_times_before_the_timestamps_miss_records(tmp_path):
    log = write_small_log(tmp_path / "logs")
    mtimes = {"00000000000000000020.log": 100, "00000000000000000010.log": 50}
    rows = compare(log, [50, 100, 1500, 9000, 9600], now=100_000, mtimes=mtimes)
    assert [(row.legacy, row.redelivered, row.missed) for row in rows] == [
        (10, 0, 2),     # 0, 3
        (20, 0, 5),     # 0, 3, 10, 12, 15
        (20, 0, 4),     # 3, 10, 12, 15
        (20, 0, 2),     # 12, 15
        (20, 1, 0),     # 25
    ]


@given(
    st.lists(st.integers(0, 12_000), max_size=12),
    st.lists(st.integers(0, 12_000), min_size=3, max_size=3),
)
def test_costs_at_any_times_equal_those_counted_by_hand(tmp_path_factory, times, mtimes):
    log = write_small_log(tmp_path_factory.mktemp("logs") / "logs")
    records = [
        (0, 1000), (3, 3000), (10, 2000), (12, 9000), (15, 4000), (25, 9500), (27, 9600),
        (28, 9700),
    ]
    named = dict(zip((0, 10, 20), mtimes, strict=True))
    rows = compare(
        log, times, now=13_000, mtimes={f"{base:020}.log": at for base, at in named.items()}
    )
    assert [row.target_timestamp for row in rows] == times
    for row in rows:
        right = next((offset for offset, at in records if at >= row.target_timestamp), 29)
        fitting = [base for base, at in named.items() if at <= row.target_timestamp]
        assert row.legacy == (fitting[-1] if fitting else None)
        if fitting:
            assert row.redelivered == sum(fitting[-1] <= offset < right for offset, _ in records)
            assert row.missed == sum(right <= offset < fitting[-1] for offset, _ in records)


def test_rows_are_in_the_order_of_the_times_and_have_the_broker_s_answer(golden):
    log = kafkastore.open(golden("2.4.0", "create-time-monotonic", "answers").logs)["mono-0"]
    times = [record.timestamp for record in log.records()][::-7]
    rows = compare(log, times)
    assert [row.target_timestamp for row in rows] == times
    assert [row.broker for row in rows] == [log.offset_for_timestamp(T, "2.4") for T in times]
    assert [row.correct for row in rows] == [log.offset_for_timestamp(T) for T in times]


def test_times_may_be_any_iterable(tmp_path):
    log = write_small_log(tmp_path / "logs")
    rows = compare(log, [1000, 9000], now=1)
    assert compare(log, iter([1000, 9000]), now=1) == rows
    assert compare(log, np.array([1000, 9000]), now=1) == rows
    assert compare(log, range(1000, 9001, 8000), now=1) == rows


def test_without_times_there_are_no_rows(golden):
    log = kafkastore.open(golden("2.4.0", "create-time-monotonic", "answers").logs)["mono-0"]
    assert compare(log, []) == []
    assert summarize(compare_columns(log, [])) == ComparisonSummary()
    assert compare_as_arrow(log, []).num_rows == 0
    assert compare_as_arrow([], [1]).num_rows == 0


def test_times_before_1970_and_unknown_rules_are_refused(tmp_path):
    log = write_small_log(tmp_path / "logs")
    with pytest.raises(UnsupportedTimestampError):
        compare(log, [5, -1])
    for rules in ({"rules": "0.10.0"}, {"legacy_rules": "4.0"}, {"rules": "x"}):
        with pytest.raises(UnknownRulesError):
            compare(log, [5], **rules)


def test_an_empty_log_has_no_costs(tmp_path):
    log = kafkastore.open(Log((Segment(0, (), 500),)).write(tmp_path / "logs"))["t-0"]
    rows = compare(log, [499, 500], now=1000)
    assert [(row.legacy, row.correct, row.redelivered, row.missed) for row in rows] == [
        (None, None, None, None), (0, None, 0, 0),
    ]


def test_a_summary_counts_its_rows_and_summaries_can_be_added(tmp_path):
    log = write_small_log(tmp_path / "logs")
    mtimes = {"00000000000000000020.log": 9600, "00000000000000000010.log": 50}
    times = [49, 50, 1500, 9000, 9600]
    found = summarize(compare_columns(log, times, now=100_000, mtimes=mtimes))
    rows = compare(log, times, now=100_000, mtimes=mtimes)
    assert [(row.redelivered, row.missed) for row in rows] == [
        (None, None), (0, 2), (0, 1), (1, 0), (1, 0),
    ]
    assert found == ComparisonSummary(
        times=5, unanswered_times=1, too_low=2, too_high=2, redelivered=2, missed=3,
        most_redelivered=1, most_missed=2, broker_differs=0,
    )
    parts = [
        summarize(compare_columns(log, part, now=100_000, mtimes=mtimes))
        for part in (times[:2], times[2:])
    ]
    assert parts[0].combined(parts[1]) == found == ComparisonSummary().combined(found)


def test_a_table_has_the_rows_of_all_partitions(golden):
    store = kafkastore.open(golden("2.4.0", "create-time-out-of-order", "answers").logs)
    times = range(1_500_000_000_000, 1_500_000_100_000, 9_000)
    table = compare_as_arrow(store, iter(times), now=1 << 45)
    expected = [
        {
            "topic": log.topic,
            "partition": log.partition,
            "target_timestamp": row.target_timestamp,
            "legacy": row.legacy,
            "broker": None if row.broker is None else row.broker.offset,
            "correct": None if row.correct is None else row.correct.offset,
            "redelivered": row.redelivered,
            "missed": row.missed,
            "remote_segment": None,
        }
        for log in store
        for row in compare(log, times, now=1 << 45)
    ]
    assert table.to_pylist() == expected
    assert len(expected) == 4 * len(times)
    table.validate(full=True)
