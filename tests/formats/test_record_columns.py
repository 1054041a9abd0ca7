"""Arrow's buffers as `RecordColumns` fills them, read back byte by byte."""

import struct
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from models.column_rows import (
    ALL_COLUMNS,
    LOGS,
    binaries,
    is_present,
    micros,
    rows_of,
    table,
)
from models.golden_batches import smallest_batches
from models.record_format import (
    GZIP,
    NONE,
    ZSTD,
    Batch,
    Row,
    message,
    with_right_crc,
)
from models.record_strategies import TIMESTAMPS, bounded, in_a_row
from models.refused import refused
from models.seed import some

from kafkastore import CorruptBatchError, KafkaStoreError, RecordBatch, UnsupportedFormatError
from kafkastore.errors import ChecksumError, DecompressedSizeError
from kafkastore.formats.records import batch_header
from kafkastore.formats.records.record_columns import (
    HEADERS_COLUMN,
    RecordColumns,
)


def scanned(data, *, verify_crc=False):
    headers = np.zeros(1000, batch_header.BATCH_HEADER)
    count, *_ = batch_header.scan(data, 0, headers, verify_crc=verify_crc)
    return headers[:count]


def decoded(written, columns=ALL_COLUMNS, **limits):
    data = b"".join(batch.data for batch in written)
    record_columns = RecordColumns(columns, **limits)
    headers = scanned(data, verify_crc=True)
    assert record_columns.append(data, headers) == len(headers)
    return table(record_columns)


@bounded(300)
@given(LOGS, st.booleans())
def test_columns_hold_the_written_records(written, include_control):
    assert decoded(written, include_control=include_control) == rows_of(
        written, include_control=include_control
    )


@bounded(200)
@given(LOGS, st.sets(st.sampled_from(ALL_COLUMNS)))
def test_columns_that_were_not_requested_are_missing(written, names):
    selected = names - {"topic", "partition"}
    wanted = [{name: row[name] for name in selected} for row in rows_of(written)]
    assert decoded(written, names) == wanted


@bounded(200)
@given(LOGS, st.integers(-1, 40), st.integers(-1, 40))
def test_offset_bounds_are_inclusive_and_exclusive(written, start, end):
    wanted = [row for row in rows_of(written) if start <= row["offset"] < end]
    assert decoded(written, start_offset=start, end_offset=end) == wanted


@bounded(300)
@given(LOGS, TIMESTAMPS, TIMESTAMPS, st.integers(-1, 1))
def test_timestamp_bounds_are_inclusive_and_exclusive(written, start, end, by):
    start = max(-(2**63), min(start + by, 2**63 - 1))
    wanted = [
        row
        for batch in written
        for row, record in zip(rows_of([batch], include_control=True), batch.records, strict=True)
        if start <= record[1] < end and not batch.is_control
        # A record without a timestamp has -1, whatever its wrapper says.
        if start < 0 or batch.max_timestamp >= start
    ]
    assert decoded(written, start_timestamp=start, end_timestamp=end) == wanted


@pytest.mark.parametrize("timestamp", [2**63 - 1, -(2**63), 0, -1])
def test_without_bounds_no_timestamp_is_left_out(timestamp):
    (row,) = decoded([Batch((Row(0, timestamp),))])
    assert row["timestamp"] == micros(timestamp)


@pytest.mark.parametrize(
    ("timestamp", "wanted"),
    [
        (9_223_372_036_854_775, 9_223_372_036_854_775_000),
        (9_223_372_036_854_776, None),
        (-9_223_372_036_854_775, -9_223_372_036_854_775_000),
        (-9_223_372_036_854_776, None),
    ],
)
def test_a_timestamp_whose_microseconds_do_not_fit_is_null(timestamp, wanted):
    (row,) = decoded([Batch((Row(0, timestamp),))])
    assert row["timestamp"] == wanted


@bounded(100)
@given(LOGS, st.integers(1, 7))
def test_full_columns_are_taken_and_filled_again(written, max_rows):
    data, found, first = b"".join(batch.data for batch in written), [], 0
    headers = scanned(data)
    columns = RecordColumns(ALL_COLUMNS, max_rows=max_rows)
    while first < len(headers):
        before, first = first, columns.append(data, headers, first)
        taken = table(columns)
        counts = headers["count"][before:first]
        # Any number of batches without rows may come before one that is larger than the limit.
        rows_before = len(rows_of(written[:first - 1])) - len(found)
        assert len(taken) <= max_rows or rows_before == 0 or counts.min() < 0
        found += taken
    assert found == rows_of(written)


def test_batches_may_be_left_out():
    written = in_a_row([Batch((Row(0, 1), Row(1, 1)))] * 3)
    data = b"".join(batch.data for batch in written)
    columns = RecordColumns(["offset"])
    assert columns.append(data, scanned(data)[1:], position=0) == 2
    assert [row["offset"] for row in table(columns)] == [2, 3, 4, 5]


@bounded(200)
@given(LOGS)
def test_views_refer_to_the_values_of_copies(written):
    data = b"".join(batch.data for batch in written)
    columns = RecordColumns(ALL_COLUMNS, binary_view=True)
    headers = scanned(data)
    assert columns.append(data, headers) == len(headers)
    rows, taken = columns.take()
    for name in ("key", "value"):
        nulls, validity, views, buffers = taken[name]
        found = [
            view_of(bytes(views)[16 * row :][:16], buffers) if is_present(validity, row) else None
            for row in range(rows)
        ]
        assert found == [row[name] for row in rows_of(written)]
        assert nulls == found.count(None)


def view_of(view, buffers):
    """The value of an Arrow view."""
    size, prefix, buffer, at = struct.unpack("<i4sii", view)
    if size <= 12:
        assert not any(view[4 + size :])
        return view[4 : 4 + size]
    value = bytes(buffers[buffer])[at : at + size]
    assert value.startswith(prefix)
    return value


def test_large_values_fill_columns_before_rows_do():
    written = in_a_row([Batch((Row(0, 1, None, b"x" * 1000),))] * 10)
    data = b"".join(batch.data for batch in written)
    columns = RecordColumns(ALL_COLUMNS, max_bytes=2500)
    headers = scanned(data)
    assert columns.append(data, headers) == 3
    assert columns.append(data, headers, 3) == 3
    columns.take()
    assert columns.append(data, headers, 3) == 6


def test_taken_buffers_stay_valid_when_columns_are_filled_again():
    data = Batch((Row(0, 1, b"key", b"value"),)).data
    columns = RecordColumns(["value"])
    columns.append(data, scanned(data))
    _, first = columns.take()
    other = Batch((Row(0, 1, b"other", b"other"),)).data
    for _ in range(50):
        columns.append(other, scanned(other))
    assert binaries(first["value"], 1) == [b"value"]


RIGHT = Batch((Row(0, 1, b"k", b"v"), Row(1, 2)))
BROKEN = {
    "a false record count": Batch((Row(2, 5),), stated_count=2),
    "a record count of two billion": Batch((Row(2, 5),), stated_count=2**31 - 1),
    "a negative record count": Batch((Row(2, 5),), stated_count=-1),
    "bytes after the records": Batch((Row(2, 5), Row(3, 5)), stated_count=1),
    "a compressed batch with a false count": Batch((Row(2, 5),), codec=ZSTD, stated_count=3),
}


@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN)
def test_a_broken_batch_is_reported_and_those_before_it_are_kept(broken):
    data = RIGHT.data + broken.data
    columns = RecordColumns(ALL_COLUMNS, max_rows=2**40)
    with pytest.raises(CorruptBatchError) as caught:
        columns.append(data, scanned(data))
    assert caught.value.position == len(RIGHT.data)
    assert table(columns) == rows_of([RIGHT])


def test_a_wrong_checksum_is_reported_and_batches_before_it_are_kept():
    data = RIGHT.data + RIGHT.with_offset(2).data[:-1] + b"\x09"
    columns = RecordColumns(ALL_COLUMNS)
    with pytest.raises(ChecksumError):
        columns.append(data, scanned(data, verify_crc=True))
    assert table(columns) == rows_of([RIGHT])


def test_a_batch_outside_the_requested_offsets_is_not_decoded():
    data = RIGHT.data + BROKEN["a false record count"].data
    columns = RecordColumns(ALL_COLUMNS, end_offset=2)
    assert columns.append(data, scanned(data)) == 2
    assert table(columns) == rows_of([RIGHT])


@pytest.mark.parametrize("first", [-1, -(10**9)])
def test_a_header_before_the_first_is_refused(first):
    with refused("first"):
        RecordColumns(ALL_COLUMNS).append(RIGHT.data, scanned(RIGHT.data), first)


@pytest.mark.parametrize("magic", [0, 1, 2])
@pytest.mark.parametrize("size", [-(2**31), -5, 0, 17, 25])
def test_a_header_of_a_size_that_no_batch_has_is_refused(magic, size):
    data = Batch((Row(0, 1, None, b"x" * 100),), magic=magic, codec=GZIP).data
    headers = scanned(data)
    headers["size"] = size
    with pytest.raises(CorruptBatchError):
        RecordColumns(ALL_COLUMNS).append(data, headers)


def test_headers_that_are_further_apart_than_64_bits_hold_are_refused():
    headers = scanned(RIGHT.data * 2)
    headers["position"] = [2**63 - 1, -(2**62)]
    with pytest.raises(CorruptBatchError):
        RecordColumns(ALL_COLUMNS).append(RIGHT.data * 2, headers)


def test_records_outside_the_offsets_of_their_batch_are_kept_by_their_own_offsets():
    data = with_right_crc(RIGHT.data[:64] + b"\x21" + RIGHT.data[65:])  # delta -17 for 0
    columns = RecordColumns(["offset"], start_offset=0, end_offset=2)
    columns.append(data, scanned(data))
    assert [row["offset"] for row in table(columns)] == [1]


@pytest.mark.parametrize(
    ("codec", "binary_view"), some(list(product([NONE, ZSTD], [False, True])), 2, "no room")
)
def test_records_that_were_not_requested_take_no_memory(codec, binary_view):
    batch = Batch((Row(0, 10**6, None, bytes(2**20)),), codec=codec)
    columns = RecordColumns(
        ["value"], end_timestamp=10**6, max_bytes=2**62, binary_view=binary_view
    )
    wanted = Batch((Row(0, 5, None, b"value"),))
    for _ in range(2**11 + 1):  # in all more than one column can hold
        columns.append(batch.data, scanned(batch.data))
    columns.append(wanted.data, scanned(wanted.data))
    rows, taken = columns.take()
    assert rows == 1
    if binary_view:
        assert len(taken["value"][3]) == 1


def test_a_column_that_there_is_not_is_refused():
    with refused("columns"):
        RecordColumns(["value", "values"])


def test_columns_are_for_one_thread_at_a_time():
    data = Batch((Row(0, 1, b"k", b"v" * 1000),) ).data * 2000
    headers = np.zeros(2000, batch_header.BATCH_HEADER)
    batch_header.scan(data, 0, headers)
    columns = RecordColumns(ALL_COLUMNS, max_rows=2**40, max_bytes=2**40)

    def append(_):
        try:
            return columns.append(data, headers)
        except RuntimeError:
            return None

    with ThreadPoolExecutor(4) as pool:
        outcomes = Counter(pool.map(append, range(40)))
    assert set(outcomes) <= {2000, None}  # None: another thread uses them
    assert columns.rows == 2000 * outcomes[2000]


def test_an_unknown_codec_is_not_supported():
    data = bytearray(RIGHT.data)
    data[22] |= 7
    with pytest.raises(UnsupportedFormatError):
        RecordColumns(ALL_COLUMNS).append(bytes(data), scanned(bytes(data)))


def test_a_bomb_is_refused():
    rows = tuple(Row(offset, 1, None, bytes(10_000)) for offset in range(100))
    data = Batch(rows, codec=GZIP).data
    with pytest.raises(DecompressedSizeError):
        RecordColumns(ALL_COLUMNS, max_decompressed_bytes=10_000).append(data, scanned(data))


@pytest.mark.parametrize("name", ["value", HEADERS_COLUMN])
def test_golden_batches_with_a_flipped_bit_give_the_records_of_the_batch(golden, name):
    """Columns may leave headers unread, and then see no damage there; both use one cursor."""
    for kind, batch in smallest_batches(golden).items():
        first = 17 if batch[16] < 2 else 43
        for bit in range(first * 8, min(len(batch), 200) * 8, 3):
            damaged = bytearray(batch)
            damaged[bit // 8] ^= 1 << bit % 8
            damaged = with_right_crc(bytes(damaged))
            columns = RecordColumns(
                [name, "offset"], start_offset=-(2**63), include_control=True
            )
            try:
                wanted = [record.offset for record in RecordBatch(damaged).records()]
            except KafkaStoreError:
                wanted = None
            try:
                columns.append(damaged, scanned(damaged))
                got = [row["offset"] for row in table(columns)]
            except KafkaStoreError:
                got = None
            if name == HEADERS_COLUMN or wanted is not None:
                assert got == wanted, (kind, bit)


def test_flags_of_record_batches_mean_nothing_in_messages():
    data = message(1, 0, 5, b"k", b"v", attributes=0x30)
    columns = RecordColumns(ALL_COLUMNS)
    columns.append(data, scanned(data))
    (row,) = table(columns)
    assert (row["is_control"], row["is_transactional"]) == (False, False)


def test_bits_of_nulls_are_right_across_bytes():
    for count in range(1, 40):
        rows = tuple(Row(offset, 1, b"k" if offset % 3 else None, None) for offset in range(count))
        keys = [row["key"] for row in decoded([Batch(rows)])]
        assert keys == [row.key for row in rows]


def test_headers_of_other_bytes_are_refused():
    data = RIGHT.data + RIGHT.with_offset(2).data
    headers = scanned(data)
    with pytest.raises(CorruptBatchError):
        RecordColumns(ALL_COLUMNS).append(data[:-1], headers)
    headers["position"][1] = -(2**62)
    with pytest.raises(CorruptBatchError):
        RecordColumns(ALL_COLUMNS).append(data, headers)


def test_many_small_headers_are_kept_apart():
    headers = tuple((f"name {i}", None if i % 3 == 0 else struct.pack(">i", i)) for i in range(200))
    rows = (Row(0, 1, headers=headers), Row(1, 1), Row(2, 1, headers=headers[:1]))
    found = [row[HEADERS_COLUMN] for row in decoded([Batch(rows)])]
    assert found == [[(name.encode(), value) for name, value in headers], None, [(b"name 0", None)]]
