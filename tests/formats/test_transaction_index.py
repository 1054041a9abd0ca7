"""The transaction index format, by Kafka's own tests (TransactionIndexTest) and a slow model."""

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from models.refused import refused as argument_refused
from models.transaction_model import collect, logs

from kafkastore.errors import CorruptIndexError, KafkaStoreError, OutOfOrderAppendError
from kafkastore.formats.indexes import transaction_index
from kafkastore.formats.indexes.transaction_index import ABORTED_TXN

FOUR = [(0, 0, 10, 11), (1, 5, 15, 13), (2, 18, 35, 25), (3, 32, 50, 40)]
INT64 = st.integers(-(2**63), 2**63 - 1)
ENTRIES = st.lists(st.tuples(INT64, INT64, INT64, INT64), max_size=12)


def packed(*entries, version=0):
    return b"".join(struct.pack(">hqqqq", version, *entry) for entry in entries)


def array(entries):
    return np.array(entries, ABORTED_TXN)


# TransactionIndexTest


@pytest.mark.parametrize(
    ("fetch_offset", "upper_bound_offset", "slots", "is_complete"),
    [
        (0, 100, slice(0, 4), False),
        (0, 32, slice(0, 3), True),
        (0, 35, slice(0, 4), True),
        (10, 35, slice(0, 4), True),
        (11, 35, slice(1, 4), True),
        (20, 41, slice(2, 4), False),
    ],
)
def test_collected_are_the_aborted_transactions_that_overlap_a_range(
    fetch_offset, upper_bound_offset, slots, is_complete
):
    found = transaction_index.collect_aborted_txns(array(FOUR), fetch_offset, upper_bound_offset)
    assert found.aborted_txns.tolist() == FOUR[slots]
    assert found.is_complete is is_complete


@pytest.mark.parametrize(
    ("offset", "kept"), [(51, 4), (50, 3), (36, 3), (35, 2), (16, 2), (10, 0), (0, 0)]
)
def test_truncate_to_keeps_the_transactions_that_ended_before_the_offset(offset, kept):
    assert transaction_index.truncate_to(array(FOUR), offset) == kept


def test_a_last_offset_below_the_base_offset_is_found_by_check():
    index = packed((0, 0, 5, 10), (1, 2, 3, 4), (2, 4, 6, 7))
    transaction_index.check(index, 3)
    with pytest.raises(CorruptIndexError) as refused:
        transaction_index.check(index, 4)
    assert refused.value.position == 34


@pytest.mark.parametrize("last_offset", [9, 10])
def test_an_entry_is_not_appended_if_its_last_offset_does_not_rise(last_offset):
    with pytest.raises(OutOfOrderAppendError):
        transaction_index.check_append(last_offset, 10)
    transaction_index.check_append(last_offset, None)
    transaction_index.check_append(last_offset, last_offset - 1)


def test_an_entry_has_its_bytes_where_kafka_has_them():
    index = packed((983493, 137, 299, 200))
    assert len(index) == transaction_index.ENTRY_SIZE
    assert transaction_index.parse(index).tolist() == [(983493, 137, 299, 200)]


# Beyond Kafka's own tests


@given(ENTRIES)
def test_packed_entries_are_parsed_again(entries):
    index = transaction_index.pack(entries)
    assert index == packed(*entries)
    assert transaction_index.entry_count(index) == len(entries)
    parsed = transaction_index.parse(index)
    assert parsed.dtype == ABORTED_TXN
    assert parsed.tolist() == entries
    assert transaction_index.pack(parsed) == index


@given(ENTRIES, INT64, INT64)
def test_searches_agree_with_the_model_on_any_entries(entries, fetch_offset, upper_bound_offset):
    for bound in (upper_bound_offset, *(entry[3] for entry in entries[:3])):
        found = transaction_index.collect_aborted_txns(array(entries), fetch_offset, bound)
        assert (found.aborted_txns.tolist(), found.is_complete) == collect(
            entries, fetch_offset, bound
        )
    ended = [entry[2] >= fetch_offset for entry in entries]
    kept = ended.index(True) if True in ended else len(entries)
    assert transaction_index.truncate_to(array(entries), fetch_offset) == kept


@given(logs(), st.integers(0, 200), st.integers(0, 200))
def test_no_transaction_of_a_range_is_missed_by_ending_early(log, start, length):
    """In the index of a true log every overlapping transaction is before the complete answer."""
    entries = log.index()
    begin = int(log.headers["base_offset"][0]) if len(log.headers) else 0
    start, end = begin + start, begin + start + length
    found = transaction_index.collect_aborted_txns(array(entries), start, end)
    overlapping = [entry for entry in entries if entry[2] >= start and entry[1] < end]
    assert found.aborted_txns.tolist() == overlapping
    assert transaction_index.first_disorder(array(entries)) == -1


@pytest.mark.parametrize("odd_bytes", range(1, 34))
def test_a_torn_last_entry_is_found_by_check_and_left_out_otherwise(odd_bytes):
    index = packed(*FOUR) + packed((9, 60, 70, 71))[:odd_bytes]
    assert transaction_index.parse(index).tolist() == FOUR
    assert transaction_index.entry_count(index) == 4
    with pytest.raises(CorruptIndexError) as refused:
        transaction_index.check(index, 0)
    assert refused.value.position == 136


@pytest.mark.parametrize("version", [1, 255, 256, -1])
def test_another_version_is_refused_with_its_position(version):
    index = packed(*FOUR[:2]) + packed(FOUR[2], version=version) + packed(FOUR[3])
    for read in (transaction_index.parse, lambda data: transaction_index.check(data, 0)):
        with pytest.raises(CorruptIndexError) as refused:
            read(index)
        assert refused.value.position == 68
    assert transaction_index.parse(index[:68]).tolist() == FOUR[:2]


def test_an_empty_index_has_nothing_and_is_sound():
    transaction_index.check(b"", 5)
    entries = transaction_index.parse(b"")
    assert entries.dtype == ABORTED_TXN
    assert entries.tolist() == []
    assert transaction_index.pack([]) == b""
    assert transaction_index.truncate_to(entries, 0) == 0
    assert transaction_index.first_disorder(entries) == -1
    found = transaction_index.collect_aborted_txns(entries, 0, 10)
    assert found.aborted_txns.tolist() == []
    assert found.is_complete is False


@pytest.mark.parametrize(
    ("entries", "slot"),
    [
        (FOUR, -1),
        ([(0, 7, 7, 8)], -1),
        ([(0, 0, 10, 11), (1, 5, 10, 13)], 1),
        ([(0, 0, 10, 11), (1, 5, 15, 13), (1, 6, 14, 13)], 2),
        ([(0, 11, 10, 11)], 0),
        ([(0, 0, 10, 11), (-1, 5, 15, 13)], 1),
        ([(0, -1, 10, 11)], 0),
        ([(0, 0, 10, -1)], 0),
    ],
    ids=[
        "sound",
        "only a marker",
        "last offset repeats",
        "last offset falls",
        "ends before it begins",
        "no producer",
        "negative offset",
        "no last stable offset",
    ],
)
def test_first_disorder_is_the_first_entry_that_cannot_be_true(entries, slot):
    assert transaction_index.first_disorder(array(entries)) == slot


@pytest.mark.parametrize(
    "view",
    [bytes, bytearray, memoryview, lambda data: np.frombuffer(data, np.int16)],
    ids=["bytes", "bytearray", "memoryview", "array"],
)
def test_any_contiguous_buffer_is_read(view):
    index = view(packed(*FOUR))
    assert transaction_index.parse(index).tolist() == FOUR
    assert transaction_index.entry_count(index) == 4
    transaction_index.check(index, 0)
    assert transaction_index.parse(view(b"")).tolist() == []


def test_packing_needs_one_dimension():
    with argument_refused("entries"):
        transaction_index.pack(np.zeros((2, 2), ABORTED_TXN))


# Damage


def assert_value_or_error(index):
    """Read all that can be read; errors have a position within the bytes."""
    for read in (transaction_index.parse, lambda data: transaction_index.check(data, 10)):
        try:
            read(index)
        except KafkaStoreError as error:
            assert 0 <= error.position <= len(index)
            assert error.position % 34 == 0


def test_cut_and_flipped_indexes_are_values_or_errors_with_a_position():
    index = packed(*FOUR)
    for end in range(len(index)):
        assert_value_or_error(index[:end])
    changed = 0
    for bit in range(8 * len(index)):
        flipped = bytearray(index)
        flipped[bit // 8] ^= 1 << bit % 8
        assert_value_or_error(flipped)
        try:
            changed += transaction_index.parse(flipped).tolist() != FOUR
        except CorruptIndexError as error:
            assert error.position == bit // 8 // 34 * 34
            changed += 1
    assert changed == 8 * len(index)


@given(st.binary(max_size=200))
def test_random_bytes_are_a_value_or_an_error_with_a_position(index):
    assert_value_or_error(index)
    assert_value_or_error(b"\0\0" + index)


# Real brokers


@pytest.mark.golden_cases(names="transactions", answers="answers")
def test_entries_are_those_that_kafkas_own_tool_prints(golden_case):
    compared = 0
    for path in sorted(golden_case.logs.rglob("*.txnindex")):
        dump = golden_case.answers["partitions"][path.parent.name]["dump"]
        index = path.read_bytes()
        entries = transaction_index.parse(index)
        assert entries.tolist() == [
            (entry["producer_id"], entry["firstOffset"], entry["last_offset"],
             entry["lastStableOffset"])
            for entry in dump[path.name]
        ]
        assert transaction_index.pack(entries) == index
        transaction_index.check(index, int(path.stem))
        assert transaction_index.first_disorder(entries) == -1
        compared += len(entries)
    assert compared >= 8
