"""The time index format, by Kafka's own tests (TimeIndexTest) and a slow model."""

import doctest
import struct

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from models import format_document
from models.index_bytes import index_bytes, sorted_entries, targets_near
from models.index_model import TimeIndexModel

from kafkastore.errors import CorruptIndexError, OffsetOverflowError
from kafkastore.formats.indexes import entries as entry_types
from kafkastore.formats.indexes import index_format
from kafkastore.formats.indexes.index_format import time_index

BASE_OFFSET = 45
BASE_OFFSETS = st.one_of(st.integers(0, 10**6), st.integers(0, 2**63 - 1))


def packed(*relative_entries):
    return b"".join(struct.pack(">qi", *entry) for entry in relative_entries)


def kafkas(count):
    """The entries of Kafka's own tests."""
    return time_index.pack(
        [(10 * i, BASE_OFFSET + 10 * i) for i in range(1, count + 1)], BASE_OFFSET
    )


# TimeIndexTest


@pytest.mark.parametrize(
    ("entries", "timestamp", "found"),
    [
        (0, 100, (-1, 45)),
        (29, 9, (-1, 45)),
        (29, 25, (20, 65)),
        (29, 30, (30, 75)),
        (29, 10, (10, 55)),
        (29, 2**62, (290, 335)),
    ],
)
def test_lookup_finds_the_last_entry_at_or_before_the_timestamp(entries, timestamp, found):
    assert time_index.lookup(kafkas(entries), BASE_OFFSET, timestamp) == found
    assert time_index.lookup_many(kafkas(entries), BASE_OFFSET, [timestamp]).tolist() == [found]


def test_entry_has_absolute_offsets():
    assert [time_index.entry(kafkas(4), BASE_OFFSET, slot) for slot in range(4)] == [
        (10, 55),
        (20, 65),
        (30, 75),
        (40, 85),
    ]


@pytest.mark.parametrize(("count", "slot"), [(0, 0), (1, 1), (1, -1)])
def test_entry_outside_the_index_is_an_index_error(count, slot):
    with pytest.raises(IndexError):
        time_index.entry(kafkas(count), BASE_OFFSET, slot)


@pytest.mark.parametrize(
    ("offset", "kept"), [(45, 0), (55, 0), (56, 1), (65, 1), (85, 3), (86, 4), (900, 4)]
)
def test_truncate_to_keeps_the_entries_before_the_offset(offset, kept):
    assert time_index.truncate_to(kafkas(4), BASE_OFFSET, offset) == kept


@pytest.mark.parametrize(
    "entries",
    [[(10, 10), (20, -1)], [(10, 10), (9, 20)]],
    ids=["offset below the base offset", "timestamp less than the first"],
)
def test_check_reports_the_problem_of_the_last_entry(entries):
    with pytest.raises(CorruptIndexError) as refused:
        time_index.check(packed(*entries), BASE_OFFSET)
    assert refused.value.position == 12


@pytest.mark.parametrize("odd_bytes", range(1, 12))
def test_odd_bytes_are_found_by_check_and_ignored_otherwise(odd_bytes):
    index = packed((7, 10)) + b"\x01" * odd_bytes
    with pytest.raises(CorruptIndexError) as refused:
        time_index.check(index, BASE_OFFSET)
    assert refused.value.position == 12
    assert time_index.entry_count(index) == time_index.used_entry_count(index) == 1
    assert time_index.lookup(index, BASE_OFFSET, 2**40) == (7, 55)
    assert time_index.lookup_many(index, BASE_OFFSET, [2**40]).tolist() == [(7, 55)]
    assert time_index.parse(index, BASE_OFFSET).tolist() == [(7, 55)]


@pytest.mark.parametrize("count", [0, 1, 4])
def test_check_passes_sound_indexes(count):
    time_index.check(kafkas(count), BASE_OFFSET)


def test_last_entry_of_an_empty_index_has_no_timestamp_at_the_base_offset():
    assert time_index.last_entry(b"", BASE_OFFSET) == (-1, BASE_OFFSET)
    assert time_index.last_entry(packed((1, 1)), BASE_OFFSET) == (1, BASE_OFFSET + 1)


# Beyond Kafka's own tests


@pytest.mark.parametrize(
    ("entries", "slot"),
    [
        ([(0, 0)], -1),
        ([(0, 0), (5, 0), (6, 3)], -1),
        ([(-1, 0)], 0),
        ([(5, -1)], 0),
        ([(5, 1), (5, 2)], 1),
        ([(5, 1), (4, 2)], 1),
        ([(5, 3), (6, 2)], 1),
        ([(5, 1), (0, 0), (6, 2)], 1),
        ([(5, 1), (0, 0)], 1),
    ],
    ids=[
        "all zeros in slot 0",
        "offset repeats",
        "no timestamp",
        "negative offset",
        "timestamp repeats",
        "timestamp falls",
        "offset falls",
        "zeros between",
        "padding",
    ],
)
def test_first_disorder_is_the_first_slot_that_breaks_the_order(entries, slot):
    assert time_index.first_disorder(packed(*entries), BASE_OFFSET) == slot


@pytest.mark.parametrize("count", [0, 1, 2, 682, 3000])
@pytest.mark.parametrize("padding", [0, 1, 11, 12, 13, 6000])
def test_used_entries_end_where_the_padding_begins(count, padding):
    index = kafkas(count) + bytes(padding)
    is_one_slot = len(index) // 12 == 1  # trimmed to it: no padding
    assert time_index.used_entry_count(index) == (1 if is_one_slot else count)
    assert time_index.entry_count(index) == len(index) // 12


@pytest.mark.parametrize("offset", [44, 45 + 2**31])
def test_an_offset_outside_31_bits_above_the_base_offset_is_not_packed(offset):
    for pack in (
        lambda: time_index.pack([(9, offset)], 45),
        lambda: time_index.pack(np.array([(9, offset)], entry_types.TIME_ENTRY), 45),
    ):
        with pytest.raises(OffsetOverflowError):
            pack()


@pytest.mark.parametrize(
    ("slots", "may_be_zero", "count"),
    [
        (0, False, 0), (0, True, 0), (0, None, 0),
        (1, False, 0), (1, True, 1), (1, None, 1),
        (500, False, 0), (500, True, 1), (500, None, 0),
    ],
)
def test_zeros_are_an_entry_by_the_log_s_timestamp_or_for_one_slot(slots, may_be_zero, count):
    assert (
        time_index.used_entry_count(bytes(12 * slots), 0, first_timestamp_may_be_zero=may_be_zero)
        == count
    )


@pytest.mark.parametrize("may_be_zero", [False, True, None])
def test_an_all_zero_entry_before_others_counts(may_be_zero):
    index = packed((0, 0), (7, 3)) + bytes(120)
    assert time_index.used_entry_count(index, 0, first_timestamp_may_be_zero=may_be_zero) == 2


def test_truncation_at_an_offset_that_repeats_keeps_what_a_broker_keeps():
    index = packed((1, 1), (2, 5), (3, 5), (4, 5), (5, 9))
    model = TimeIndexModel(index, 0)
    assert [time_index.truncate_to(index, 0, offset) for offset in range(11)] == [
        model.truncate_to(offset) for offset in range(11)
    ]
    assert time_index.truncate_to(index, 0, 5) == 2  # slot 1 has offset 5 and stays


def test_padding_changes_a_brokers_answers():
    """The effect of a clean-shutdown marker on a padded index."""
    index = kafkas(4) + bytes(12 * 100)
    assert time_index.last_entry(index, BASE_OFFSET) == (0, BASE_OFFSET)
    assert time_index.lookup(index, BASE_OFFSET, 40) == (0, BASE_OFFSET)
    assert time_index.lookup(index[:48], BASE_OFFSET, 40) == (40, 85)


def test_lookup_without_warm_section_sees_other_slots_of_a_padded_index():
    """The brokers before 2.1.0."""
    index = kafkas(2000) + bytes(12 * 6000)
    targets = range(0, 21_000, 500)
    for warm_section in (False, True):
        model = TimeIndexModel(index, BASE_OFFSET, warm_section)
        assert [
            time_index.lookup(index, BASE_OFFSET, target, warm_section=warm_section)
            for target in targets
        ] == [model.lookup(target) for target in targets]


@pytest.mark.parametrize(
    "view",
    [
        bytes,
        bytearray,
        memoryview,
        lambda data: np.frombuffer(data, np.uint8),
        lambda data: np.frombuffer(data, entry_types.TIME_ENTRY_ON_DISK),
    ],
    ids=["bytes", "bytearray", "memoryview", "array of bytes", "array of entries"],
)
def test_any_contiguous_buffer_is_read(view):
    index = view(packed((1, 10), (2, 20)))
    assert time_index.lookup(index, 0, 2) == (2, 20)
    assert time_index.lookup_many(index, 0, [1, 2]).tolist() == [(1, 10), (2, 20)]
    assert time_index.parse(index, 0).tolist() == [(1, 10), (2, 20)]
    assert time_index.used_entry_count(index) == time_index.entry_count(index) == 2
    assert time_index.truncate_to(index, 0, 20) == 1
    assert time_index.first_disorder(index, 0) == -1
    time_index.check(index, 0)


def test_a_buffer_is_released_when_it_was_read():
    index = bytearray(packed((1, 10)))
    time_index.lookup(index, 0, 1)
    time_index.lookup_many(index, 0, [1])
    time_index.parse(index, 0)
    with pytest.raises(IndexError):
        time_index.entry(index, 0, 9)
    index += packed((2, 20))  # BufferError if someone still holds it
    assert time_index.entry_count(index) == 2


@pytest.mark.parametrize(
    "targets",
    [[1.5], np.array([1], np.uint64), ["1"], [2**63]],
    ids=["float", "uint64", "text", "beyond int64"],
)
def test_targets_that_are_not_int64_are_refused(targets):
    with pytest.raises((TypeError, ValueError, OverflowError)):
        time_index.lookup_many(packed((1, 10)), 0, targets)


# Against the slow model


@settings(deadline=None, max_examples=150)
@given(index_bytes(">qi"), BASE_OFFSETS, st.integers(0, 2**32 - 1), st.booleans())
def test_searches_agree_with_the_model_on_any_bytes(data, base_offset, seed, warm_section):
    model = TimeIndexModel(data, base_offset, warm_section)
    targets = targets_near(np.array([slot[0] for slot in model.slots], np.int64), seed)
    expected = [model.lookup(int(target)) for target in targets]
    options = {"warm_section": warm_section}
    assert [
        time_index.lookup(data, base_offset, target, **options) for target in targets.tolist()
    ] == expected
    assert time_index.lookup_many(data, base_offset, targets, **options).tolist() == expected
    offsets = targets_near(np.array([slot[1] for slot in model.slots], np.int64), seed).tolist()
    assert [time_index.truncate_to(data, base_offset, offset, **options) for offset in offsets] == [
        model.truncate_to(offset) for offset in offsets
    ]


@settings(deadline=None, max_examples=150)
@given(index_bytes(">qi"), st.integers(0, 2**62))
@example(bytes(17), 0)
def test_counts_and_checks_agree_with_the_model_on_any_bytes(data, base_offset):
    model = TimeIndexModel(data, base_offset)
    assert time_index.parse(data, base_offset).tolist() == model.slots
    assert time_index.entry_count(data) == len(model.slots)
    assert time_index.used_entry_count(data, base_offset) == model.used_slots
    assert time_index.first_disorder(data, base_offset) == model.first_disorder()
    assert time_index.last_entry(data, base_offset) == model.last_entry
    if model.is_sane():
        time_index.check(data, base_offset)
    else:
        with pytest.raises(CorruptIndexError):
            time_index.check(data, base_offset)


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(-(2**63), 2**63 - 1), st.integers(0, 2**31 - 1))),
    st.integers(0, 2**62),
)
def test_packed_entries_are_parsed_again(relative_entries, base_offset):
    entries = [(timestamp, base_offset + relative) for timestamp, relative in relative_entries]
    index = time_index.pack(entries, base_offset)
    assert index == packed(*relative_entries)
    assert index == b"".join(time_index.pack([entry], base_offset) for entry in entries)
    assert time_index.pack(time_index.parse(index, base_offset), base_offset) == index


def test_many_lookups_in_a_large_index_are_those_of_single_ones():
    """262,144 entries: the index of a segment of 1 GiB."""
    index = sorted_entries(">qi", 262_144, seed=3)
    entries = time_index.parse(index, 1000)
    timestamps = entries["timestamp"]
    targets = np.random.default_rng(4).integers(timestamps[0] - 100, timestamps[-1] + 100, 20_000)
    found = time_index.lookup_many(index, 1000, targets)
    slots = np.searchsorted(timestamps, targets, side="right") - 1
    assert (found["timestamp"] == np.where(slots < 0, -1, timestamps[slots])).all()
    assert (found["offset"] == np.where(slots < 0, 1000, entries["offset"][slots])).all()
    few = targets[:2000]  # too few to prove the order first
    assert (time_index.lookup_many(index, 1000, few) == found[:2000]).all()
    assert [time_index.lookup(index, 1000, target) for target in few.tolist()] == found[
        :2000
    ].tolist()


# Documents


def test_the_document_and_the_dtype_have_the_constants_of_the_code():
    fields, end = format_document.offset_table("time_index")
    assert [name for _, _, name in fields] == ["timestamp", "relative_offset"]
    assert end == time_index.ENTRY_SIZE
    dtype = time_index.dtype_on_disk
    assert fields == [(at, kind.itemsize, name) for name, (kind, at) in dtype.fields.items()]
    assert dtype.itemsize == end


def test_the_examples_of_the_document_and_the_module_are_true():
    document = format_document.run_examples("time_index")
    for failed, run in (document, doctest.testmod(index_format)):
        assert run > 5
        assert failed == 0
