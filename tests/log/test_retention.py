"""The segments that a broker deletes: Kafka's test cases, and all small logs."""
from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from models.retention_model import ModelLog, ModelSegment
from models.seed import examples

from kafkastore.versions import parse_version, rules_of
from kafkastore.writing.log_config import LogConfig
from kafkastore.writing.retention import SegmentFacts, StopReason, find_deletable

NOW = 1_000_000_000
SECOND = 1000


def three_segments(timestamp=10, size=100):
    """15 records, 5 a segment, as in Kafka's LogTest."""
    return [SegmentFacts(base, base + 5, size, timestamp) for base in (0, 5, 10)]


def judge(segments, *, version="2.4", high_watermark=None, start=None, now=NOW, **options):
    """The deletions as (base offset, rule), and the full outcome."""
    outcome = find_deletable(
        segments,
        high_watermark=segments[-1].end_offset if high_watermark is None else high_watermark,
        log_start_offset=segments[0].base_offset if start is None else start,
        config=LogConfig.of({name.replace("_", "."): value for name, value in options.items()}),
        now=now,
        rules=rules_of(version),
    )
    deleted = [(each.segment.base_offset, each.rule.value) for each in outcome.deletions]
    return deleted, outcome


# LogTest, UnifiedLogTest: the names of its cases.


def test_expired_segments_are_deleted_and_a_new_one_is_rolled():
    deleted, outcome = judge(three_segments(), retention_ms=10 * SECOND)
    assert deleted == [(0, "time"), (5, "time"), (10, "time")]
    assert outcome.rolls
    assert outcome.log_start_offset == 15


def test_segments_that_have_not_expired_stay():
    deleted, outcome = judge(three_segments(NOW), retention_ms=10_000_000)
    assert deleted == []
    assert not outcome.rolls
    assert [(stop.segment.base_offset, stop.reason) for stop in outcome.stops][:1] == [
        (0, StopReason.NOT_REACHED)
    ]


def test_retention_by_size_deletes_full_segments():
    deleted, outcome = judge(three_segments(NOW), retention_bytes=200)
    assert deleted == [(0, "size")]
    assert outcome.log_start_offset == 5
    assert judge(three_segments(NOW), retention_bytes=201)[0] == []
    assert judge(three_segments(NOW), retention_bytes=100)[0] == [(0, "size"), (5, "size")]


def test_a_log_under_its_size_keeps_all_segments():
    assert judge(three_segments(NOW), retention_bytes=15 * 100)[0] == []


def test_a_size_of_0_deletes_all():
    deleted, outcome = judge(three_segments(NOW), retention_bytes=0)
    assert deleted == [(0, "size"), (5, "size"), (10, "size")]
    assert outcome.rolls


def test_a_compacted_log_loses_nothing_by_time_or_size():
    options = {"retention_ms": 0, "retention_bytes": 0, "cleanup_policy": "compact"}
    assert judge(three_segments(), **options)[0] == []


def test_a_log_both_compacted_and_deleted_loses_segments():
    deleted, _ = judge(three_segments(), retention_ms=10, cleanup_policy="compact,delete")
    assert [base for base, _ in deleted] == [0, 5, 10]


@pytest.mark.parametrize(
    ("version", "deleted"),
    [("0.11", []), ("2.0.1", []), ("2.1", [(0, "start")]), ("4.1", [(0, "start")])],
)
def test_a_compacted_log_deletes_segments_below_its_start_since_2_1(version, deleted):
    options = {"cleanup_policy": "compact", "start": 7, "version": version}
    assert judge(three_segments(), **options)[0] == deleted


@pytest.mark.parametrize(
    ("start", "deleted"), [(4, []), (5, [0]), (9, [0]), (10, [0, 5]), (15, [0, 5])]
)
def test_segments_below_the_log_start_are_deleted_but_never_the_last(start, deleted):
    by_start, _ = judge(three_segments(NOW), start=start)
    assert by_start == [(base, "start") for base in deleted]


@pytest.mark.parametrize("high_watermark", range(16))
def test_no_segment_at_or_above_the_high_watermark_is_deleted(high_watermark):
    deleted, outcome = judge(three_segments(), retention_ms=0, high_watermark=high_watermark)
    expected = [base for base in (0, 5, 10) if base + 5 <= high_watermark]
    assert [base for base, _ in deleted] == expected
    if high_watermark < 15:
        stop = outcome.stops[0]
        assert (stop.segment.base_offset, stop.reason) == (
            len(expected) * 5, StopReason.HIGH_WATERMARK,
        )


def test_before_0_11_0_1_the_high_watermark_held_nothing_back():
    for version, count in (("0.11.0.0", 3), ("0.11.0.1", 0)):
        deleted, _ = judge(three_segments(), retention_ms=0, high_watermark=0, version=version)
        assert len(deleted) == count


def test_the_last_segment_stays_if_it_is_empty():
    segments = [*three_segments(), SegmentFacts(15, 15, 0, 10)]
    deleted, outcome = judge(segments, retention_ms=10)
    assert [base for base, _ in deleted] == [0, 5, 10]
    assert not outcome.rolls
    assert outcome.stops[0].reason == StopReason.EMPTY


def test_an_emptied_segment_before_the_last_is_deleted_like_any_other():
    segments = [SegmentFacts(0, 5, 0, 10), SegmentFacts(5, 9, 100, NOW)]
    assert judge(segments, retention_ms=10)[0] == [(0, "time")]


# Cases without a test in Kafka.


def test_one_segment_that_stays_keeps_all_after_it():
    segments = [
        SegmentFacts(0, 5, 100, 10),
        SegmentFacts(5, 10, 100, 2 * NOW),  # a record of the future
        SegmentFacts(10, 15, 100, 10),
    ]
    deleted, outcome = judge(segments, retention_ms=10)
    assert deleted == [(0, "time")]
    assert outcome.stops[0].segment.base_offset == 5


@pytest.mark.parametrize(("age", "goes"), [(999, False), (1000, False), (1001, True)])
def test_a_segment_of_exactly_the_age_stays(age, goes):
    segments = three_segments(NOW - age)
    assert bool(judge(segments, retention_ms=1000)[0]) == goes


def test_a_time_without_limit_keeps_all():
    assert judge(three_segments(0), retention_ms=-1)[0] == []


def test_since_3_0_the_log_start_is_judged_before_size_and_time():
    options = {"start": 5, "retention_ms": 10, "retention_bytes": 100}
    before, _ = judge(three_segments(), version="2.8", **options)
    since, _ = judge(three_segments(), version="3.0", **options)
    assert before == [(0, "time"), (5, "time"), (10, "time")]
    assert since == [(0, "start"), (5, "size"), (10, "time")]


def test_before_3_0_size_may_delete_one_more_segment_below_the_log_start():
    """KAFKA-12177: deleted by size, though deleting by start alone would meet the limit."""
    options = {"start": 5, "retention_ms": -1, "retention_bytes": 200}
    assert judge(three_segments(), version="2.8", **options)[0] == [(0, "size")]
    assert judge(three_segments(), version="3.0", **options)[0] == [(0, "start")]


def test_the_order_within_a_version_is_that_of_the_table():
    assert rules_of("0.10.2").retention_order == ("time", "size")
    assert rules_of("2.4").retention_order == ("time", "size", "start")
    assert rules_of("3.9").retention_order == ("start", "size", "time")
    assert [rules_of(v).retention_by_record_time for v in ("0.10.0.1", "0.10.1")] == [False, True]


@st.composite
def logs(draw):
    """Small logs at which every rule may stop anywhere."""
    spans = draw(st.lists(st.integers(1, 3), min_size=1, max_size=6))
    base = draw(st.integers(0, 3))
    segments = []
    for span in spans:
        size = draw(st.integers(0, 4))
        segments.append(SegmentFacts(base, base + span, size, draw(st.integers(0, 20))))
        base += span
    if draw(st.booleans()):
        segments.append(SegmentFacts(base, base, 0, draw(st.integers(0, 20))))
    return segments


@given(
    segments=logs(),
    version=st.sampled_from(
        ["0.8.2.2", "0.10.0.1", "0.10.1", "0.11.0.0", "0.11.0.1", "2.0", "2.1", "2.8", "3.0", "4.1"]
    ),
    now=st.integers(0, 30),
    retention_ms=st.integers(-1, 20),
    retention_bytes=st.integers(-1, 16),
    high_watermark=st.integers(0, 20),
    start=st.integers(0, 20),
    policy=st.sampled_from(["delete", "compact", "compact,delete", ""]),
)
@example(
    segments=[SegmentFacts(0, 1, 1, 0)], version="2.4", now=9, retention_ms=0, retention_bytes=0,
    high_watermark=1, start=1, policy="delete",
)
@settings(max_examples=examples(200))
def test_rules_agree_with_a_list_that_loses_its_first_segment_again_and_again(
    segments, version, now, retention_ms, retention_bytes, high_watermark, start, policy
):
    end = segments[-1].end_offset
    start = min(max(start, segments[0].base_offset), end)
    model = ModelLog(
        [ModelSegment(each.base_offset, each.size, each.largest_timestamp) for each in segments],
        end, high_watermark, start,
    )
    model.run(parse_version(version), now, policy, retention_ms, retention_bytes)
    deleted, outcome = judge(
        segments, version=version, now=now, high_watermark=high_watermark, start=start,
        retention_ms=retention_ms, retention_bytes=retention_bytes, cleanup_policy=policy,
    )
    assert deleted == model.deleted
    assert outcome.rolls == model.rolled
    assert outcome.log_start_offset == model.log_start_offset
    if outcome.stops and not outcome.rolls:
        assert outcome.stops[-1].segment.base_offset == model.segments[0].base_offset
