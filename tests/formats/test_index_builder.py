import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from models.record_strategies import NEAR_TIMESTAMPS, bounded
from models.segment_indexes import offset_entries_of, recovered_entries, time_entries_of

from kafkastore import OffsetOverflowError, OutOfOrderAppendError
from kafkastore.formats.indexes.index_builder import IndexBuilder
from kafkastore.formats.records.batch_header import BATCH_HEADER


def headers_of(batches):
    """Headers of (position, last offset, max timestamp)."""
    headers = np.zeros(len(batches), BATCH_HEADER)
    for name, column in zip(
        ("position", "last_offset", "max_timestamp"), zip(*batches, strict=True), strict=False
    ):
        headers[name] = column
    headers["crc_valid"] = -1
    return headers


def built(batches, *, base_offset=0, interval=100, pieces=1):
    builder = IndexBuilder(base_offset, interval)
    headers = headers_of(batches)
    for part in np.array_split(headers, pieces):
        builder.append(np.ascontiguousarray(part))
    offset_index, time_index = builder.finish()
    return offset_entries_of(offset_index, base_offset), time_entries_of(time_index, base_offset)


def test_no_batch_gives_no_entry():
    assert built([]) == ([], [])


def test_the_first_batch_gets_no_entry_but_the_last_time_is_kept():
    assert built([(0, 5, 70)]) == ([], [(70, 5)])


# Positions of batches, and of those that get an entry with an interval of 100 bytes.
INTERVALS = {
    "just the interval": ([0, 100], []),
    "one byte more": ([0, 101], [101]),
    "counted from the last entry": ([0, 101, 201, 202, 303], [101, 202, 303]),
    "a batch of many intervals": ([0, 1000, 1050, 1101], [1000, 1101]),
}


@pytest.mark.parametrize(("positions", "indexed"), INTERVALS.values(), ids=INTERVALS)
def test_an_entry_needs_strictly_more_than_the_interval(positions, indexed):
    batches = [(position, number, number) for number, position in enumerate(positions)]
    offset_entries, _ = built(batches)
    assert [position for _, position in offset_entries] == indexed


def test_a_time_entry_is_added_only_where_the_largest_timestamp_rose():
    batches = [(0, 0, 50), (101, 1, 40), (202, 2, 50), (303, 3, 60), (404, 4, 10), (505, 5, 20)]
    assert built(batches) == (
        [(1, 101), (2, 202), (3, 303), (4, 404), (5, 505)], [(50, 0), (60, 3)],
    )


def test_the_last_time_entry_is_added_between_intervals():
    assert built([(0, 0, 50), (101, 1, 60), (120, 2, 70), (140, 3, 65)])[1] == [(60, 1), (70, 2)]


@pytest.mark.parametrize("timestamp", [-1, -2, -(2**63)])
def test_batches_without_timestamps_give_no_time_entries(timestamp):
    builder = IndexBuilder(7, 100)
    builder.append(headers_of([(0, 8, timestamp), (500, 9, timestamp)]))
    assert builder.finish()[1] == b""
    assert (builder.largest_timestamp, builder.offset_of_max_timestamp) == (-1, 7)


def test_timestamp_0_is_a_time():
    assert built([(0, 7, 0)], base_offset=7)[1] == [(0, 7)]


@pytest.mark.parametrize("last_offset", [6, -(2**63), 7 + 2**31, 2**63 - 1])
def test_an_offset_beyond_31_bits_is_an_error(last_offset):
    with pytest.raises(OffsetOverflowError):
        built([(0, last_offset, 1)], base_offset=7)


def test_decreasing_offsets_are_an_error_where_both_would_be_indexed():
    assert built([(0, 1, 1), (101, 9, 2), (110, 3, 1), (120, 10, 3)])[0] == [(9, 101)]
    with pytest.raises(OutOfOrderAppendError):
        built([(0, 1, 1), (101, 9, 2), (202, 3, 3)])
    with pytest.raises(OutOfOrderAppendError):
        built([(0, 1, 1), (101, 9, 2), (110, 3, 3)])


@pytest.mark.parametrize("last_offset", [7, 7 + 2**31 - 1])
def test_the_smallest_and_the_largest_offset_are_stored(last_offset):
    assert built([(0, 7, 0), (101, last_offset, 1)], base_offset=7)[0] == [(last_offset, 101)]


@bounded(300)
@given(
    st.lists(st.tuples(st.integers(26, 150), st.integers(1, 9), NEAR_TIMESTAMPS), max_size=20),
    st.sampled_from([0, 50, 100, 4096]),
    st.integers(1, 5),
)
def test_random_batches_are_indexed_as_the_model_does_it(steps, interval, pieces):
    batches, position, offset = [], 0, 99
    for size, offsets, timestamp in steps:
        offset += offsets
        batches.append((position, offset, timestamp))
        position += size
    assert built(batches, base_offset=100, interval=interval, pieces=pieces) == recovered_entries(
        batches, interval
    )


def test_a_wrong_checksum_ends_the_log_before_it():
    headers = headers_of([(0, 5, 50), (101, 6, 60), (202, 7, 70)])
    headers["size"] = 101
    headers["crc_valid"] = [1, 0, 1]
    builder = IndexBuilder(0, 100)
    assert builder.append(headers) == 1
    assert (builder.valid_bytes, builder.next_offset, builder.is_after_marker) == (101, 6, False)
    assert time_entries_of(builder.finish()[1], 0) == [(50, 5)]


def test_first_offsets_are_stored_on_request():
    headers = headers_of([(0, 5, 50), (101, 9, 60)])
    headers["base_offset"] = [3, 6]
    builder = IndexBuilder(0, 100, has_first_offsets=True)
    builder.append(headers)
    offset_index, time_index = builder.finish()
    assert offset_entries_of(offset_index, 0) == [(6, 101)]
    assert time_entries_of(time_index, 0) == [(60, 9)]


def test_markers_of_producers_can_be_stopped_after():
    headers = headers_of([(at, at, at) for at in range(6)])
    headers["magic"] = [2, 2, 1, 2, 2, 1]
    headers["producer_id"] = [-1, 7, -1, -1, 7, -1]
    headers["attributes"] = [0x20, 0x20, 0x20, 0x20, 0x30, 0x20]
    builder = IndexBuilder(0, 100, stops_after_markers=True)
    stops = []
    while sum(stops) < len(headers):
        stops.append(builder.append(headers[sum(stops) :]))
        assert builder.is_after_marker == (sum(stops) < 6)
        assert builder.has_producers == (sum(stops) < 6)
    assert stops == [2, 3, 1]
    assert IndexBuilder(0, 100).append(headers) == 6


def test_state_of_record_batches_ignores_older_formats():
    headers = headers_of([(0, 5, 50), (101, 6, 60), (202, 7, 70)])
    headers["magic"], headers["leader_epoch"] = [2, 2, 1], [3, 2, 9]
    builder = IndexBuilder(0, 100)
    assert (builder.record_batches_end, builder.largest_epoch) == (-1, -1)
    builder.append(headers)
    assert (builder.record_batches_end, builder.largest_epoch, builder.next_offset) == (7, 3, 8)
    builder.append(headers[2:])
    assert builder.record_batches_end == 7
