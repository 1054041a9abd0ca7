"""Guesses about modification times: what is reported, and what is not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkastore.log.modification_times import (
    TOLERANCE_MS,
    SegmentTimes,
    in_the_future,
    of_a_copy,
    older_than_records,
    span,
)

DAY = 86_400_000


def segments(*times):
    return [SegmentTimes(f"{number}.log", *each) for number, each in enumerate(times)]


def rising(count, step=DAY, lag=1000):
    """Mtimes of normal appends: each segment modified shortly after its newest record."""
    return segments(*((each * step + lag, each * step) for each in range(1, count + 1)))


@given(st.integers(0, 20), st.integers(TOLERANCE_MS, 30 * DAY), st.integers(0, 10 * TOLERANCE_MS))
def test_mtimes_of_normal_appends_are_trusted(count, step, lag):
    times = rising(count, step, lag)
    assert older_than_records(times) == in_the_future(times, 1 << 60) == []
    assert of_a_copy(times) is None


@pytest.mark.parametrize("count", range(2, 6))
def test_equal_mtimes_and_records_of_days_suggest_a_copy(count):
    times = [each._replace(mtime_ms=90 * DAY) for each in rising(count)]
    assert of_a_copy(times) is not None


def test_equal_mtimes_long_after_all_records_suggest_a_copy():
    times = [each._replace(mtime_ms=90 * DAY) for each in rising(4, step=10)]
    assert of_a_copy(times) is not None


def test_without_timestamps_only_equal_mtimes_suggest_a_copy():
    moment = segments(*[(DAY + each, None) for each in range(3)])
    assert of_a_copy(moment) is not None
    assert of_a_copy(moment, all_known=False) is None
    assert of_a_copy(moment[:2]) is None
    assert of_a_copy(segments((1, None), (DAY, None), (2 * DAY, None))) is None


def test_one_segment_alone_reports_nothing():
    assert of_a_copy(segments((90 * DAY, 5))) is None
    assert of_a_copy([]) is None


@pytest.mark.parametrize(
    ("ahead", "is_reported"), [(0, False), (TOLERANCE_MS, False), (TOLERANCE_MS + 1, True)]
)
def test_clocks_may_differ_by_a_minute(ahead, is_reported):
    (times,) = segments((DAY, DAY + ahead))
    assert older_than_records([times]) == ([times] if is_reported else [])
    assert in_the_future([times], DAY - ahead) == ([times] if is_reported else [])
    assert older_than_records([times._replace(newest_ms=None)]) == []


def test_spans_are_reported_in_the_unit_that_fits():
    texts = [span(each) for each in (0, 119_999, 120_000, 7_199_999, 7_200_000, 47 * 3_600_000)]
    assert texts == ["0 seconds", "119 seconds", "2 minutes", "119 minutes", "2 hours", "47 hours"]
