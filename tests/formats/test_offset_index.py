"""The offset index format, by Kafka's own tests (OffsetIndexTest) and a slow model."""

import doctest
import random
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from models import format_document
from models.index_bytes import index_bytes, sorted_entries, targets_near
from models.index_model import OffsetIndexModel
from models.refused import refused as argument_refused

from kafkastore.errors import CorruptIndexError, OffsetOverflowError
from kafkastore.formats.indexes import entries as entry_types
from kafkastore.formats.indexes import index_format
from kafkastore.formats.indexes.index_format import offset_index

BASE_OFFSET = 45
BASE_OFFSETS = st.one_of(st.integers(0, 10**6), st.integers(0, 2**63 - 1))


def packed(*relative_entries):
    return b"".join(struct.pack(">ii", *entry) for entry in relative_entries)


# OffsetIndexTest


def test_lookup_finds_the_greatest_entry_at_or_before_each_of_many_random_offsets():
    chosen = random.Random(7)
    offsets = sorted(chosen.sample(range(BASE_OFFSET + 1, 10_000), 1500))
    index = offset_index.pack(
        [(offset, slot + 1) for slot, offset in enumerate(offsets)], BASE_OFFSET
    )
    for target in range(BASE_OFFSET - 1, 10_001):
        slot = np.searchsorted(offsets, target, side="right") - 1
        expected = (offsets[slot], slot + 1) if slot >= 0 else (BASE_OFFSET, 0)
        assert offset_index.lookup(index, BASE_OFFSET, target) == expected


@pytest.mark.parametrize("target", [BASE_OFFSET - 1, BASE_OFFSET, BASE_OFFSET + 1, 2**63 - 1])
def test_lookup_in_an_empty_index_answers_the_base_offset_at_the_start_of_the_log(target):
    assert offset_index.lookup(b"", BASE_OFFSET, target) == (BASE_OFFSET, 0)


def test_lookup_before_the_first_entry_answers_the_base_offset_at_the_start_of_the_log():
    assert offset_index.lookup(packed((5, 10)), BASE_OFFSET, BASE_OFFSET + 4) == (BASE_OFFSET, 0)


def test_entry_has_absolute_offsets():
    index = packed((1, 10), (2, 23), (3, 37))
    assert [offset_index.entry(index, BASE_OFFSET, slot) for slot in range(3)] == [
        (46, 10),
        (47, 23),
        (48, 37),
    ]


@pytest.mark.parametrize("slot", [-1, 1, 2**62])
def test_entry_outside_the_index_is_an_index_error(slot):
    with pytest.raises(IndexError):
        offset_index.entry(packed((1, 10)), BASE_OFFSET, slot)


@pytest.mark.parametrize(
    ("position", "fetch_size", "slot"),
    [
        (0, 5, 1),
        (0, 10, 1),
        (0, 22, 2),
        (0, 23, 2),
        (10, 24, 3),
        (37, 1, None),
        (0, 200, None),
        (10, 200, None),
        (2**31 - 1, 2**31 - 1, None),
    ],
)
def test_fetch_upper_bound_is_the_first_entry_at_or_after_the_end_of_the_fetch(
    position, fetch_size, slot
):
    index = packed((0, 0), (1, 10), (2, 23), (3, 37))
    expected = None if slot is None else offset_index.entry(index, BASE_OFFSET, slot)
    assert offset_index.fetch_upper_bound(index, BASE_OFFSET, position, fetch_size) == expected


@pytest.mark.parametrize("offset", [44, 45 + 2**31, 2**63 - 1, -(2**63)])
def test_an_offset_outside_31_bits_above_the_base_offset_is_not_packed(offset):
    for pack in (
        lambda: offset_index.pack([(offset, 1)], 45),
        lambda: offset_index.pack(np.array([(offset, 1)], entry_types.OFFSET_ENTRY), 45),
        lambda: index_format.relative_offset(offset, 45),
    ):
        with pytest.raises(OffsetOverflowError):
            pack()


@pytest.mark.parametrize("base_offset", [0, 45, 2**63 - 2**31])
def test_offsets_up_to_31_bits_above_the_base_offset_are_packed(base_offset):
    for relative in (0, 1, 2**31 - 1):
        assert index_format.relative_offset(base_offset + relative, base_offset) == relative


def test_fetch_upper_bound_of_an_empty_index_is_none():
    assert offset_index.fetch_upper_bound(b"", BASE_OFFSET, 0, 5) is None


@pytest.mark.parametrize(
    ("offset", "kept"), [(100, 4), (9, 4), (8, 3), (7, 3), (6, 2), (3, 1), (2, 0), (1, 0), (-5, 0)]
)
def test_truncate_to_keeps_the_entries_before_the_offset(offset, kept):
    index = packed((2, 20), (4, 40), (6, 60), (8, 80))
    assert offset_index.truncate_to(index, 0, offset) == kept


def test_last_offset_equal_to_the_base_offset_is_sound():
    offset_index.check(packed((0, 0)), BASE_OFFSET)


# Beyond Kafka's own tests


def test_check_names_the_entry_whose_offset_is_below_the_base_offset():
    with pytest.raises(CorruptIndexError) as refused:
        offset_index.check(packed((1, 10), (-1, 20)), BASE_OFFSET)
    assert refused.value.position == 8


@pytest.mark.parametrize("odd_bytes", range(1, 8))
def test_odd_bytes_are_found_by_check_and_ignored_otherwise(odd_bytes):
    index = packed((5, 10)) + b"\x01" * odd_bytes
    with pytest.raises(CorruptIndexError) as refused:
        offset_index.check(index, BASE_OFFSET)
    assert refused.value.position == 8
    assert offset_index.entry_count(index) == offset_index.used_entry_count(index) == 1
    assert offset_index.lookup(index, BASE_OFFSET, 2**40) == (50, 10)
    assert offset_index.lookup_many(index, BASE_OFFSET, [2**40]).tolist() == [(50, 10)]
    assert offset_index.parse(index, BASE_OFFSET).tolist() == [(50, 10)]


def test_an_empty_index_is_sound_and_in_order():
    offset_index.check(b"", BASE_OFFSET)
    assert offset_index.first_disorder(b"", BASE_OFFSET) == -1
    assert offset_index.last_entry(b"", BASE_OFFSET) == (BASE_OFFSET, 0)
    assert offset_index.parse(b"", BASE_OFFSET).dtype == entry_types.OFFSET_ENTRY


@pytest.mark.parametrize(
    ("entries", "slot"),
    [
        ([(0, 1)], -1),
        ([(0, 0)], 0),
        ([(-1, 5)], 0),
        ([(1, 10), (2, 20), (2, 30)], 2),
        ([(1, 10), (2, 20), (3, 20)], 2),
        ([(1, 10), (0, 0), (3, 20)], 1),
        ([(1, 10), (2, -5)], 1),
        ([(1, 10), (2, 20), (0, 0)], 2),
    ],
    ids=[
        "sound",
        "all zeros",
        "negative",
        "offset repeats",
        "position repeats",
        "zeros between",
        "negative position",
        "padding",
    ],
)
def test_first_disorder_is_the_first_slot_that_does_not_rise(entries, slot):
    assert offset_index.first_disorder(packed(*entries), BASE_OFFSET) == slot


@pytest.mark.parametrize("count", [0, 1, 2, 1024, 3000])
@pytest.mark.parametrize("padding", [0, 1, 7, 8, 9, 4096])
def test_used_entries_end_where_the_padding_begins(count, padding):
    index = sorted_entries(">ii", count, seed=count) + bytes(padding)
    assert offset_index.used_entry_count(index) == count
    assert offset_index.entry_count(index) == len(index) // 8


def test_an_all_zero_slot_between_entries_is_not_padding():
    assert offset_index.used_entry_count(packed((1, 10), (0, 0), (3, 30), (0, 0))) == 3


def test_lookup_without_warm_section_sees_other_slots_of_a_padded_index():
    """The brokers before 2.1.0: in zeros after 2,000 entries the two searches differ."""
    index = packed(*((relative, 5 * relative) for relative in range(1, 2001))) + bytes(8 * 6000)
    model = OffsetIndexModel(index, 0, warm_section=False)
    targets = range(0, 2100, 50)
    old = [offset_index.lookup(index, 0, target, warm_section=False) for target in targets]
    assert old == [model.lookup(target) for target in targets]
    new = [offset_index.lookup(index, 0, target) for target in targets]
    assert new == [OffsetIndexModel(index, 0).lookup(target) for target in targets]


@pytest.mark.parametrize(
    "view",
    [
        bytes,
        bytearray,
        memoryview,
        lambda data: np.frombuffer(data, np.uint8),
        lambda data: np.frombuffer(data, entry_types.OFFSET_ENTRY_ON_DISK),
    ],
    ids=["bytes", "bytearray", "memoryview", "array of bytes", "array of entries"],
)
def test_any_contiguous_buffer_is_read(view):
    index = view(packed((1, 10), (2, 20)))
    assert offset_index.lookup(index, 0, 2) == (2, 20)
    assert offset_index.lookup_many(index, 0, [1, 2]).tolist() == [(1, 10), (2, 20)]
    assert offset_index.parse(index, 0).tolist() == [(1, 10), (2, 20)]
    assert offset_index.used_entry_count(index) == offset_index.entry_count(index) == 2
    assert offset_index.truncate_to(index, 0, 2) == 1
    assert offset_index.first_disorder(index, 0) == -1
    offset_index.check(index, 0)


def test_a_buffer_is_released_when_it_was_read():
    index = bytearray(packed((1, 10)))
    offset_index.lookup(index, 0, 1)
    offset_index.lookup_many(index, 0, [1])
    offset_index.parse(index, 0)
    with pytest.raises(IndexError):
        offset_index.entry(index, 0, 9)
    index += packed((2, 20))  # BufferError if someone still holds it
    assert offset_index.entry_count(index) == 2


@pytest.mark.parametrize(
    "targets",
    [[1.5], np.array([1], np.uint64), ["1"], [2**63], [None]],
    ids=["float", "uint64", "text", "beyond int64", "none"],
)
def test_targets_that_are_not_int64_are_refused(targets):
    with pytest.raises((TypeError, ValueError, OverflowError)):
        offset_index.lookup_many(packed((1, 10)), 0, targets)


def test_targets_may_be_of_any_integer_type_and_stride():
    index = packed((1, 10), (4, 40))
    for targets in ([5, 0], (5, 0), range(5, -1, -5), np.array([5, 9, 0], np.int32)[::2]):
        assert offset_index.lookup_many(index, 0, targets).tolist() == [(4, 40), (0, 0)]
    unaligned = np.frombuffer(b"." + np.array([5, 0], np.int64).tobytes(), np.int64, offset=1)
    for targets in (unaligned, np.array([5, 0], ">i8")):
        assert offset_index.lookup_many(index, 0, targets).tolist() == [(4, 40), (0, 0)]
    assert offset_index.lookup_many(index, 0, []).tolist() == []
    with argument_refused("targets"):
        offset_index.lookup_many(index, 0, [[1]])


def test_packing_needs_one_dimension_and_nothing_else():
    assert offset_index.pack([], 0) == b""
    with argument_refused("entries"):
        offset_index.pack(np.zeros((2, 2), entry_types.OFFSET_ENTRY), 0)


# Against the slow model


@settings(deadline=None, max_examples=150)
@given(index_bytes(">ii"), BASE_OFFSETS, st.integers(0, 2**32 - 1), st.booleans())
def test_searches_agree_with_the_model_on_any_bytes(data, base_offset, seed, warm_section):
    model = OffsetIndexModel(data, base_offset, warm_section)
    targets = targets_near(np.array([slot[0] for slot in model.slots], np.int64), seed)
    expected = [model.lookup(int(target)) for target in targets]
    options = {"warm_section": warm_section}
    assert [
        offset_index.lookup(data, base_offset, target, **options) for target in targets.tolist()
    ] == expected
    assert offset_index.lookup_many(data, base_offset, targets, **options).tolist() == expected
    assert [
        offset_index.truncate_to(data, base_offset, target, **options)
        for target in targets.tolist()
    ] == [model.truncate_to(int(target)) for target in targets]
    for target in targets.tolist():
        position, size = abs(target) % 2**31, seed % 2**31
        assert offset_index.fetch_upper_bound(
            data, base_offset, position, size, **options
        ) == model.fetch_upper_bound(position, size)


@settings(deadline=None, max_examples=150)
@given(index_bytes(">ii"), st.integers(0, 2**62))
def test_counts_and_checks_agree_with_the_model_on_any_bytes(data, base_offset):
    model = OffsetIndexModel(data, base_offset)
    assert offset_index.parse(data, base_offset).tolist() == model.slots
    assert offset_index.entry_count(data) == len(model.slots)
    assert offset_index.used_entry_count(data, base_offset) == model.used_slots
    assert offset_index.first_disorder(data, base_offset) == model.first_disorder()
    assert offset_index.last_entry(data, base_offset) == model.last_entry
    if model.is_sane():
        offset_index.check(data, base_offset)
    else:
        with pytest.raises(CorruptIndexError):
            offset_index.check(data, base_offset)


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 2**31 - 1), st.integers(-(2**31), 2**31 - 1))),
    st.integers(0, 2**62),
)
def test_packed_entries_are_parsed_again(relative_entries, base_offset):
    entries = [(base_offset + relative, position) for relative, position in relative_entries]
    index = offset_index.pack(entries, base_offset)
    assert index == packed(*relative_entries)
    assert index == b"".join(offset_index.pack([entry], base_offset) for entry in entries)
    assert offset_index.pack(offset_index.parse(index, base_offset), base_offset) == index


def test_many_lookups_in_a_large_index_are_those_of_single_ones():
    """262,144 entries: the index of a segment of 1 GiB."""
    index = sorted_entries(">ii", 262_144, seed=3)
    offsets = offset_index.parse(index, 1000)["offset"]
    targets = np.random.default_rng(4).integers(offsets[0] - 100, offsets[-1] + 100, 20_000)
    found = offset_index.lookup_many(index, 1000, targets)
    slots = np.searchsorted(offsets, targets, side="right") - 1
    assert (found["offset"] == np.where(slots < 0, 1000, offsets[slots])).all()
    few = targets[:2000]  # too few to prove the order first
    assert (offset_index.lookup_many(index, 1000, few) == found[:2000]).all()
    assert [offset_index.lookup(index, 1000, target) for target in few.tolist()] == found[
        :2000
    ].tolist()


# Documents


def test_the_document_and_the_dtype_have_the_constants_of_the_code():
    fields, end = format_document.offset_table("offset_index")
    assert [name for _, _, name in fields] == ["relative_offset", "position"]
    assert end == offset_index.ENTRY_SIZE
    dtype = offset_index.dtype_on_disk
    assert fields == [(at, kind.itemsize, name) for name, (kind, at) in dtype.fields.items()]
    assert dtype.itemsize == end


def test_the_examples_of_the_document_and_the_module_are_true():
    for failed, run in (
        format_document.run_examples("offset_index"),
        doctest.testmod(index_format),
    ):
        assert run > 5
        assert failed == 0
