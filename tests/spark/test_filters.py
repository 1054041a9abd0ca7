"""Filters let a read skip data, but never a matching record."""
from datetime import UTC, datetime, timedelta
from operator import eq, ge, gt, le, lt

import pytest
from hypothesis import given
from hypothesis import strategies as st
from models.record_strategies import bounded
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from kafkastore.formats.state.file_names import TopicPartition
from kafkastore.spark.source.filters import Limits

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
COMPARISONS = {
    EqualTo: eq,
    EqualNullSafe: eq,
    GreaterThan: gt,
    GreaterThanOrEqual: ge,
    LessThan: lt,
    LessThanOrEqual: le,
}


def limits(*filters):
    made = Limits()
    made.add(filters)
    return made


def is_inside(number, start, end):
    return (start is None or start <= number) and (end is None or number < end)


@st.composite
def filters(draw, column, values):
    """(filter, function of a value that says whether it passes)."""
    kind = draw(st.sampled_from([*COMPARISONS, In, Not]))
    if kind is Not:
        inner, passes = draw(filters(column, values))
        return Not(inner), lambda value: not passes(value)
    if kind is In:
        wanted = draw(st.lists(values, min_size=1, max_size=3))
        return In((column,), wanted), lambda value: value in wanted
    wanted = draw(values)
    return kind((column,), wanted), lambda value: COMPARISONS[kind](value, wanted)


@bounded(200)
@given(st.lists(filters("offset", st.integers(-3, 12)), max_size=3), st.integers(0, 10))
def test_an_offset_that_passes_is_inside(chosen, offset):
    made = limits(*(each for each, _ in chosen))
    if all(passes(offset) for _, passes in chosen):
        assert is_inside(offset, made.start_offset, made.end_offset)


TIMES = st.integers(-3000, 8000).map(lambda us: EPOCH + timedelta(microseconds=us))


@bounded(200)
@given(st.lists(filters("timestamp", TIMES), max_size=3), st.integers(-1, 6))
def test_a_timestamp_that_passes_is_inside(chosen, timestamp):
    made = limits(*(each for each, _ in chosen))
    if all(passes(EPOCH + timedelta(milliseconds=timestamp)) for _, passes in chosen):
        assert is_inside(timestamp, made.start_timestamp, made.end_timestamp)


@bounded(200)
@given(
    st.lists(filters("topic", st.sampled_from("abc")), max_size=3),
    st.lists(filters("partition", st.integers(0, 3)), max_size=3),
    st.sampled_from("abc"),
    st.integers(0, 3),
)
def test_a_partition_is_left_out_exactly_where_it_does_not_pass(topics, partitions, topic, number):
    made = limits(*(each for each, _ in topics + partitions))
    passes = all(p(topic) for _, p in topics) and all(p(number) for _, p in partitions)
    assert made.include(TopicPartition(topic, number)) is passes


@pytest.mark.parametrize(
    ("chosen", "start", "end"),
    [
        (GreaterThanOrEqual(("timestamp",), EPOCH + timedelta(microseconds=1500)), 2, None),
        (GreaterThan(("timestamp",), EPOCH + timedelta(microseconds=2000)), 3, None),
        (GreaterThan(("timestamp",), EPOCH + timedelta(microseconds=1999)), 2, None),
        (LessThan(("timestamp",), EPOCH + timedelta(microseconds=2000)), None, 2),
        (LessThan(("timestamp",), EPOCH + timedelta(microseconds=2001)), None, 3),
        (LessThanOrEqual(("timestamp",), EPOCH + timedelta(microseconds=2000)), None, 3),
        (EqualTo(("timestamp",), EPOCH + timedelta(microseconds=2000)), 2, 3),
        (GreaterThan(("timestamp",), datetime(2020, 1, 1)), None, None),
        (IsNull(("timestamp",)), None, None),
        (Not(EqualTo(("timestamp",), EPOCH)), None, None),
    ],
)
def test_a_time_becomes_whole_milliseconds(chosen, start, end):
    made = limits(chosen)
    assert (made.start_timestamp, made.end_timestamp) == (start, end)


@pytest.mark.parametrize(
    "chosen",
    [
        EqualTo(("topic", "inner"), "x"),
        EqualTo(("topic",), None),
        EqualTo(("topic",), b"x"),
        Not(EqualTo(("topic",), None)),
        In(("topic",), ["x", None]),
        Not(In(("topic",), ["t", None])),
        IsNotNull(("topic",)),
        EqualTo(("value",), b"x"),
        GreaterThan(("partition",), 0.5),
        EqualTo(("partition",), True),
    ],
)
def test_a_filter_that_is_not_understood_leaves_nothing_out(chosen):
    made = limits(chosen)
    assert made.include(TopicPartition("t", 0))
    assert made == Limits() or made.start_offset is made.end_offset is None


def test_parts_of_topic_names_choose_partitions():
    orders = TopicPartition("orders", 0)
    for kind, right, wrong in (
        (StringStartsWith, "or", "ders"),
        (StringEndsWith, "ders", "or"),
        (StringContains, "rde", "x"),
    ):
        assert limits(kind(("topic",), right)).include(orders)
        assert not limits(kind(("topic",), wrong)).include(orders)
        assert not limits(Not(kind(("topic",), right))).include(orders)
