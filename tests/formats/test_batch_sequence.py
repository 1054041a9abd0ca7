"""Headers one after the other, and index entries, against a slow obvious model."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from models.record_strategies import bounded

from kafkastore.formats.indexes.entries import OFFSET_ENTRY, TIME_ENTRY
from kafkastore.formats.records.batch_header import BATCH_HEADER
from kafkastore.formats.records.batch_sequence import FAULTS, BatchSequence

NOW = 1_500_000_000_000
SIZE = 100


def headers_of(batches):
    """Complete record batches of 100 bytes, given as (first offset, last offset, max timestamp)."""
    headers = np.zeros(len(batches), BATCH_HEADER)
    for number, (first, last, timestamp) in enumerate(batches):
        header = headers[number]
        header["position"], header["size"] = number * SIZE, SIZE
        header["base_offset"], header["last_offset"] = first, last
        header["max_timestamp"], header["magic"], header["crc_valid"] = timestamp, 2, 1
        header["count"] = header["attributes"] = 1
        header["producer_id"] = header["leader_epoch"] = -1
    return headers


def sequence(offset_entries=(), time_entries=(), *, base_offset=0, end_offset=None, next_offset=0):
    return BatchSequence(
        base_offset, end_offset, next_offset,
        np.array(list(offset_entries), OFFSET_ENTRY), np.array(list(time_entries), TIME_ENTRY),
    )


@st.composite
def batches(draw):
    found, offset = [], 0
    for _ in range(draw(st.integers(1, 12))):
        first = offset + draw(st.sampled_from([0, 0, 0, 2]))
        last = first + draw(st.integers(0, 3))
        found.append((first, last, NOW + draw(st.integers(0, 8))))
        offset = last + 1
    return found


def keeps_offset_promise(entry, placed):
    """A batch begins there; all before it are smaller."""
    offset, position = entry
    return any(
        at == position and all(last < offset for other, (_, last, _) in placed if other < at)
        and offset >= batch[0]
        for at, batch in placed
    )


def keeps_time_promise(entry, placed):
    """The batch that holds the offset is the first to reach the timestamp, and goes no further."""
    timestamp, offset = entry
    return any(
        first <= offset <= last and reached == timestamp
        and all(other < timestamp for before, (_, _, other) in placed if before < at)
        for at, (first, last, reached) in placed
    )


@bounded(200)
@given(batches=batches(), pieces=st.integers(1, 4), data=st.data())
def test_the_first_entry_that_breaks_its_promise_is_found(batches, pieces, data):
    placed = [(number * SIZE, batch) for number, batch in enumerate(batches)]
    end = batches[-1][1] + 3
    offset_entries = sorted(data.draw(st.sets(st.tuples(
        st.integers(0, end), st.sampled_from(range(50, len(batches) * SIZE + 100, 50))),
        max_size=4)), key=lambda entry: entry[1])
    time_entries = sorted(data.draw(st.sets(st.tuples(
        st.integers(NOW, NOW + 9), st.integers(0, end)), max_size=4)), key=lambda entry: entry[1])
    log = sequence(offset_entries, time_entries)
    for part in np.array_split(headers_of(batches), pieces):
        assert log.append(np.ascontiguousarray(part)) == len(part)
    for found, entries, keeps in (
        (log.false_offset_entry, offset_entries, keeps_offset_promise),
        (log.false_time_entry, time_entries, keeps_time_promise),
    ):
        false = [slot for slot, entry in enumerate(entries) if not keeps(entry, placed)]
        assert found == (false[0] if false else -1)
    assert (log.next_offset, log.end_position) == (batches[-1][1] + 1, len(batches) * SIZE)
    times = [timestamp for _, _, timestamp in batches]
    assert log.largest_timestamp == max(times)
    assert log.position_of_largest_timestamp == SIZE * times.index(max(times))
    assert log.batch_count == len(batches)
    assert log.faults == []


def faults(batches, **fields):
    log = sequence(**fields)
    log.append(headers_of(batches))
    return {fault.kind: (fault.position, fault.value, fault.batch_count) for fault in log.faults}


# Batches -> the kind of fault, its position, value and count.
ORDER = {
    "again": ([(0, 1, NOW), (0, 1, NOW), (1, 3, NOW)], "out-of-order", (SIZE, 1, 2)),
    "backwards": ([(3, 2, NOW)], "out-of-order", (0, -1, 1)),
    "above the segment": ([(0, 1, NOW), (2, 10, NOW)], "outside-segment", (SIZE, 2, 1)),
    "seconds": ([(0, 0, NOW // 1000)], "seconds", (0, NOW // 1000, 1)),
    "microseconds": ([(0, 0, NOW * 1000)], "microseconds", (0, NOW * 1000, 1)),
    "nanoseconds": ([(0, 0, NOW * 10**6)], "nanoseconds", (0, NOW * 10**6, 1)),
    "negative": ([(0, 0, -1), (1, 1, -2)], "negative-time", (SIZE, -2, 1)),
}


@pytest.mark.parametrize("case", ORDER)
def test_each_fault_is_counted_and_its_first_place_kept(case):
    batches, kind, expected = ORDER[case]
    assert faults(batches, end_offset=10)[kind] == expected
    assert kind in FAULTS


def test_offsets_that_no_relative_offset_can_express_are_outside_the_segment():
    assert faults([(5, 2**31 + 4, NOW)], base_offset=5, next_offset=5) == {}
    found = faults([(5, 2**31 + 5, NOW)], base_offset=5, next_offset=5)
    assert list(found) == ["outside-segment"]


@pytest.mark.parametrize("time", [-1, 0, 1, 631_151_999, 4_102_444_800, NOW, 4_102_444_800_000,
                                  253_402_300_800_000, 2**63 - 1])
def test_other_times_are_not_a_fault(time):
    assert faults([(0, 0, time)]) == {}


def test_a_wrong_checksum_ends_what_is_taken():
    headers = headers_of([(0, 0, NOW), (1, 1, NOW), (2, 2, NOW)])
    headers["crc_valid"][1] = 0
    log = sequence()
    assert log.append(headers) == 1
    assert (log.next_offset, log.end_position) == (1, SIZE)
    log.skip_to(2 * SIZE)
    assert (log.ends_in_damage, log.end_position) == (True, 2 * SIZE)
    assert log.append(headers[2:].copy()) == 1
    assert (log.ends_in_damage, log.next_offset, log.has_gaps) == (False, 3, True)


def test_entries_of_skipped_bytes_are_not_checked_but_others_are():
    offsets = [(1, 150), (2, 2 * SIZE)]
    times = [(NOW + 1, 1), (NOW + 2, 2)]
    log = sequence(offsets, times)
    headers = headers_of([(0, 0, NOW), (1, 1, NOW + 1), (2, 2, NOW + 2)])
    log.append(headers[:1].copy())
    log.skip_to(2 * SIZE)
    log.append(headers[2:].copy())
    assert (log.false_offset_entry, log.false_time_entry) == (-1, -1)
    log = sequence([(1, 50)], [(NOW + 9, 0), (NOW + 10, 5)])
    log.append(headers[:1].copy())
    log.skip_to(3 * SIZE, is_end=True)
    assert (log.false_offset_entry, log.false_time_entry) == (0, 0)


def test_leader_epochs_are_reported_where_they_first_rise_and_where_they_fall():
    headers = headers_of([(number, number, NOW) for number in range(6)])
    headers["leader_epoch"] = [-1, 0, 0, 3, 1, -2]
    log = sequence()
    log.append(headers[:2].copy())
    log.append(headers[2:].copy())
    assert log.epochs == [(0, 1), (3, 3)]
    assert [(fault.kind, fault.value) for fault in log.faults] == [
        ("epoch-went-back", 1), ("negative-epoch", -2)]


def test_producers_are_reported_of_the_last_headers_alone():
    headers = headers_of([(0, 0, NOW), (1, 1, NOW)])
    headers["producer_id"][0] = 7
    log = sequence()
    log.append(headers[:1].copy())
    assert log.has_producers
    log.append(headers[1:].copy())
    assert not log.has_producers


def test_only_the_first_batch_reports_that_the_log_begins_at_time_zero():
    for first, is_zero in (((0, 2, 0), True), ((1, 2, 0), False), ((0, 2, 5), False)):
        log = sequence()
        log.append(headers_of([first, (3, 3, 0)]))
        assert log.begins_at_time_zero == is_zero
    assert not sequence().begins_at_time_zero


def test_headers_of_another_kind_are_refused():
    with pytest.raises(TypeError):
        sequence().append(np.zeros(3, OFFSET_ENTRY))
