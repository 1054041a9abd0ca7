"""Varints have no Python function of their own: they are read as the fields of one record."""

import struct

import pytest
from models.record_format import Batch, Row, varint, with_right_crc

from kafkastore import CorruptBatchError, RecordBatch

EDGES = sorted({
    sign * ((1 << bits) + by) for bits in range(0, 63, 7) for by in (-1, 0, 1) for sign in (1, -1)
} | {2**31 - 1, -(2**31), 2**31, -(2**31) - 1, 2**63 - 1, -(2**63)})
FITS_32 = [value for value in EDGES if -(2**31) <= value < 2**31]
EXCEEDS_32 = [value for value in EDGES if value not in FITS_32]


def batch_with(record_body):
    """A batch at offset 0 and timestamp 0 with one record of these bytes."""
    empty = Batch((), first_offset=0, last_offset_kept=0, stated_max_timestamp=0, stated_count=1,
                  delete_horizon=0).data
    data = empty + varint(len(record_body)) + record_body
    return RecordBatch(with_right_crc(data[:8] + struct.pack(">i", len(data) - 12) + data[12:]))


def body(timestamp_delta=b"\0", offset_delta=b"\0", key=b"\x01", value=b"\x01", headers=b"\0"):
    return b"\0" + timestamp_delta + offset_delta + key + value + headers


@pytest.mark.parametrize("value", EDGES)
def test_a_varlong_takes_every_64_bit_value(value):
    (record,) = batch_with(body(timestamp_delta=varint(value))).records()
    assert record.timestamp == value


@pytest.mark.parametrize("value", FITS_32)
def test_a_varint_takes_every_32_bit_value(value):
    (record,) = batch_with(body(offset_delta=varint(value))).records()
    assert record.offset == value


@pytest.mark.parametrize("field", ["offset_delta", "key", "value", "headers"])
@pytest.mark.parametrize("value", EXCEEDS_32)
def test_a_varint_of_more_than_32_bits_is_an_error(field, value):
    with pytest.raises(CorruptBatchError):
        batch_with(body(**{field: varint(value)})).records()


@pytest.mark.parametrize("padded", [b"\x80\0", b"\x80\x80\0", b"\x80" * 9 + b"\0"])
def test_needless_bytes_of_a_varint_are_read(padded):
    (record,) = batch_with(body(timestamp_delta=padded, offset_delta=padded)).records()
    assert (record.timestamp, record.offset) == (0, 0)


@pytest.mark.parametrize("field", ["timestamp_delta", "offset_delta", "key", "value", "headers"])
@pytest.mark.parametrize("size", [1, 9, 10, 11, 40])
def test_a_varint_without_end_is_an_error(field, size):
    with pytest.raises(CorruptBatchError):
        batch_with(body(**{field: b"\xff" * size})).records()


@pytest.mark.parametrize("value", EDGES)
def test_a_record_cut_within_a_varint_is_an_error(value):
    complete = body(varint(value), key=varint(3) + b"key", value=varint(200) + b"v" * 200)
    for size in range(len(complete)):
        with pytest.raises(CorruptBatchError):
            batch_with(complete[:size]).records()


def test_bytes_after_the_cut_are_never_read():
    """The length of the record says 3; the varint would continue in the next record."""
    first = b"\0\xff\xff"
    second = b"\x01" + body()
    data = Batch((), first_offset=0, last_offset_kept=1, stated_max_timestamp=0, stated_count=2,
                 delete_horizon=0).data + varint(len(first)) + first + second
    batch = RecordBatch(with_right_crc(data[:8] + struct.pack(">i", len(data) - 12) + data[12:]))
    with pytest.raises(CorruptBatchError):
        batch.records()


def test_deltas_wider_than_31_bits_are_read():
    rows = (Row(0, 1_500_000_000_000, b"k"), Row(1, 1_500_000_000_000 + 2**31 + 5, b"k"))
    assert [record.timestamp for record in RecordBatch(Batch(rows).data).records()] == [
        1_500_000_000_000, 1_502_147_483_653,
    ]
