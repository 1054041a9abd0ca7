"""Appends to the indexes, and when they are full: by Kafka's own tests and a model."""

import doctest

import pytest
from hypothesis import given
from hypothesis import strategies as st
from models.index_model import OffsetIndexAppends, TimeIndexAppends
from models.refused import refused

from kafkastore.errors import IndexFullError, OffsetOverflowError, OutOfOrderAppendError
from kafkastore.formats.indexes import index_growth
from kafkastore.formats.indexes.entries import TimestampOffset
from kafkastore.formats.indexes.index_format import offset_index, time_index
from kafkastore.formats.indexes.index_growth import (
    check_offset_append,
    is_offset_index_full,
    is_time_index_full,
    max_entries,
    may_append_timestamp,
    preallocated_size,
)

BASE_OFFSET = 45
MAX_ENTRIES = 30
VERDICTS = {
    IndexFullError: "full",
    OutOfOrderAppendError: "out of order",
    OffsetOverflowError: "overflow",
    None: "appended",
    True: "appended",
    False: "nothing",
}


def may_append(timestamp, offset, entries, **options):
    """The request to append these (timestamp, offset) entries to a time index."""
    return may_append_timestamp(
        TimestampOffset(timestamp, offset),
        base_offset=BASE_OFFSET,
        last_entry=TimestampOffset(*(entries[-1] if entries else (-1, BASE_OFFSET))),
        entry_count=len(entries),
        max_entries=MAX_ENTRIES,
        **options,
    )


def verdict(append):
    """Name what an append comes to, as the model does."""
    try:
        answer = append()
    except (IndexFullError, OutOfOrderAppendError, OffsetOverflowError) as refused:
        answer = type(refused)
    return VERDICTS[answer]


@pytest.mark.parametrize(
    ("size", "entry_size", "entries", "preallocated"),
    [
        (10485760, offset_index.ENTRY_SIZE, 1310720, 10485760),
        (10485760, time_index.ENTRY_SIZE, 873813, 10485756),
        (67, 8, 8, 64),
        (35, 12, 2, 24),
        (8, 8, 1, 8),
    ],
)
def test_a_new_file_has_complete_entries_only(size, entry_size, entries, preallocated):
    assert max_entries(size, entry_size) == entries
    assert preallocated_size(size, entry_size) == preallocated


@pytest.mark.parametrize(("size", "entry_size"), [(-1, 8), (0, 8), (7, 8), (11, 12)])
def test_a_file_without_room_for_one_entry_is_refused(size, entry_size):
    with refused("max_index_size"):
        preallocated_size(size, entry_size)


def test_an_offset_index_is_full_when_every_slot_is_used():
    assert [is_offset_index_full(count, 3) for count in range(5)] == [0, 0, 0, 1, 1]


def test_a_time_index_is_full_with_one_slot_left():
    assert [is_time_index_full(count, 3) for count in range(5)] == [0, 0, 1, 1, 1]


def test_an_offset_index_without_a_free_slot_refuses():
    with pytest.raises(IndexFullError):
        check_offset_append(50, base_offset=45, last_offset=49, entry_count=3, max_entries=3)


@pytest.mark.parametrize("offset", [50, 51])
def test_an_offset_that_is_not_greater_is_refused(offset):
    with pytest.raises(OutOfOrderAppendError):
        check_offset_append(offset, base_offset=45, last_offset=51, entry_count=1, max_entries=3)


def test_an_offset_beyond_31_bits_is_refused_by_both():
    offset = BASE_OFFSET + 2**31
    with pytest.raises(OffsetOverflowError):
        check_offset_append(
            offset, base_offset=BASE_OFFSET, last_offset=0, entry_count=0, max_entries=9
        )
    with pytest.raises(OffsetOverflowError):
        may_append(1, offset, [])


def test_a_time_index_refuses_one_slot_before_its_end():
    entries = [(10 * i, BASE_OFFSET + i) for i in range(MAX_ENTRIES - 1)]
    assert may_append(10_000, 10_000, entries[:-1])
    with pytest.raises(IndexFullError):
        may_append(10_000, 10_000, entries)


def test_the_kept_slot_is_used_when_the_full_check_is_skipped():
    entries = [(10 * i, BASE_OFFSET + i) for i in range(MAX_ENTRIES - 1)]
    assert may_append(10_000, 10_000, entries, skip_full_check=True)


def test_without_any_slot_left_even_rolling_is_refused():
    entries = [(10 * i, BASE_OFFSET + i) for i in range(MAX_ENTRIES)]
    with pytest.raises(IndexFullError):
        may_append(10_000, 10_000, entries, skip_full_check=True)
    assert not may_append(290, 10_000, entries, skip_full_check=True)  # nothing to write


@pytest.mark.parametrize(
    ("timestamp", "offset"), [(1000, 99), (99, 100)], ids=["offset", "timestamp"]
)
def test_an_entry_with_a_lower_key_is_refused(timestamp, offset):
    with pytest.raises(OutOfOrderAppendError):
        may_append(timestamp, offset, [(100, 100)], skip_full_check=True)


@pytest.mark.parametrize(
    ("timestamp", "entries", "appended"),
    [
        (100, [(100, 100)], False),
        (101, [(100, 100)], True),
        (-1, [], False),
        (-2, [], False),
        (0, [], True),
    ],
)
def test_only_a_later_timestamp_is_appended(timestamp, entries, appended):
    assert may_append(timestamp, 100, entries) is appended


@given(
    st.integers(1, 6),
    st.lists(st.one_of(st.integers(0, 30), st.integers(2**31 - 2, 2**31 + 2))),
)
def test_offset_appends_follow_the_model(slots, relative_offsets):
    model = OffsetIndexAppends(100, slots)
    for relative in relative_offsets:
        found = verdict(
            lambda offset=100 + relative: check_offset_append(
                offset,
                base_offset=100,
                last_offset=model.entries[-1][0] if model.entries else 100,
                entry_count=len(model.entries),
                max_entries=slots,
            )
        )
        assert found == model.append(100 + relative, 1)


@given(
    st.integers(1, 6),
    st.lists(
        st.tuples(
            st.integers(-2, 20),
            st.one_of(st.integers(0, 30), st.integers(2**31 - 2, 2**31 + 2)),
            st.booleans(),
        )
    ),
)
def test_time_appends_follow_the_model(slots, appends):
    model = TimeIndexAppends(100, slots)
    for timestamp, relative, skip_full_check in appends:
        entry = TimestampOffset(timestamp, 100 + relative)
        found = verdict(
            lambda entry=entry, skip=skip_full_check: may_append_timestamp(
                entry,
                base_offset=100,
                last_entry=TimestampOffset(*model.last_entry),
                entry_count=len(model.entries),
                max_entries=slots,
                skip_full_check=skip,
            )
        )
        assert found == model.maybe_append(*entry, skip_full_check)


def test_the_examples_of_the_module_are_true():
    failed, run = doctest.testmod(index_growth)
    assert run > 0
    assert failed == 0
