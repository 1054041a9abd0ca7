"""Messages of magic 0 and 1, and the wrappers around compressed ones."""

import struct
from dataclasses import replace

import pytest
from models import record_reader
from models.record_format import (
    FRAME,
    GZIP,
    LOG_APPEND_TIME,
    LZ4,
    SNAPPY,
    ZSTD,
    Batch,
    Row,
    compress,
    message,
    with_right_crc,
)

from kafkastore import CorruptBatchError, RecordBatch, TimestampType, UnsupportedFormatError
from kafkastore.errors import DecompressionError
from kafkastore.formats.records.record_batch import first_record_from

ROWS = (Row(40, 100, b"a", b"x"), Row(41, 300, None, b""), Row(44, 200, b"", None))
OLD_CODECS = pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4], ids=["gzip", "snappy", "lz4"])
OLD_MAGICS = pytest.mark.parametrize("magic", [0, 1])


def seen(data):
    return [(record.offset, record.timestamp) for record in RecordBatch(data).records()]


def wrapper(inner, *, magic=1, codec=GZIP, offset=44, timestamp=300, attributes=0, key=None):
    """A wrapper around any bytes."""
    value = compress(codec, inner, magic=magic)
    return message(magic, offset, timestamp, key, value, codec | attributes)


@OLD_MAGICS
@pytest.mark.parametrize("row", ROWS)
def test_a_message_alone_is_one_record(magic, row):
    batch = RecordBatch(Batch((row,), magic=magic).data)
    (record,) = batch.records()
    timestamp = row.timestamp if magic else -1
    assert tuple(record) == (row.offset, timestamp, magic - 1, row.key, row.value, (), None)
    assert (batch.base_offset, batch.last_offset, batch.count) == (row.offset, row.offset, 1)
    assert batch.max_timestamp == timestamp


@OLD_CODECS
@OLD_MAGICS
def test_a_wrapper_has_the_offset_of_its_last_message(magic, codec):
    batch = RecordBatch(Batch(ROWS, magic=magic, codec=codec).data)
    assert (batch.base_offset, batch.last_offset, batch.count) == (40, 44, None)
    assert [record.offset for record in batch.records()] == [40, 41, 44]


@OLD_CODECS
def test_messages_of_magic_0_have_no_timestamps(codec):
    batch = RecordBatch(Batch(ROWS, magic=0, codec=codec).data)
    assert {record.timestamp for record in batch.records()} == {-1}
    assert {record.timestamp_type for record in batch.records()} == {
        TimestampType.NO_TIMESTAMP_TYPE
    }


@OLD_CODECS
def test_log_append_time_of_a_wrapper_is_that_of_all_its_messages(codec):
    written = Batch(ROWS, magic=1, codec=codec, append_time=999)
    assert seen(written.data) == [(40, 999), (41, 999), (44, 999)]


@pytest.mark.parametrize("base", [40, 38, 0], ids=["from 0 on", "compacted", "absolute"])
def test_inner_offsets_of_magic_1_count_from_the_wrapper_s(base):
    written = Batch(ROWS, magic=1, codec=GZIP, inner_base=base)
    assert [offset for offset, _ in seen(written.data)] == [40, 41, 44]


def test_a_wrapper_offset_of_0_leaves_inner_offsets_as_they_are():
    """Old librdkafka did not fill it in."""
    rows = (Row(0, 5), Row(1, 6), Row(2, 7))
    written = Batch(rows, magic=1, codec=GZIP, wrapper_offset=0)
    assert seen(written.data) == [(0, 5), (1, 6), (2, 7)]


def test_a_wrapper_offset_below_the_last_inner_one_is_an_error():
    inner = b"".join(message(1, offset, 5, None, None) for offset in (0, 1, 2))
    assert seen(wrapper(inner, offset=2)) == [(0, 5), (1, 5), (2, 5)]
    with pytest.raises(CorruptBatchError):
        RecordBatch(wrapper(inner, offset=1)).records()


def test_inner_messages_of_magic_0_have_no_timestamp_in_a_wrapper_of_magic_1():
    written = Batch(ROWS, magic=1, codec=GZIP, inner_magic=0)
    assert seen(written.data) == [(40, -1), (41, -1), (44, -1)]
    written = replace(written, append_time=7)
    assert seen(written.data) == [(40, -1), (41, -1), (44, -1)]


@pytest.mark.parametrize("is_raw", [True, False], ids=["raw", "xerial"])
@OLD_MAGICS
def test_both_framings_of_snappy_are_read(magic, is_raw):
    rows = tuple(Row(offset, 1, b"k", b"value" * 9_000) for offset in range(3))
    written = Batch(rows, magic=magic, codec=SNAPPY, is_raw_snappy=is_raw)
    records = RecordBatch(written.data).records()
    assert [record.value for record in records] == [b"value" * 9_000] * 3


def test_lz4_of_magic_0_is_read_with_the_wrong_and_with_the_right_checksum():
    inner = message(0, 44, -1, b"k", b"v")
    old = message(0, 44, -1, None, compress(LZ4, inner, magic=0), LZ4)
    new = message(0, 44, -1, None, compress(LZ4, inner, magic=1), LZ4)
    assert old != new
    assert seen(old) == seen(new) == [(44, -1)]


def test_lz4_of_magic_1_must_have_the_right_checksum():
    data = message(1, 44, 5, None, compress(LZ4, message(1, 0, 5, b"k", b"v"), magic=0), LZ4)
    with pytest.raises(DecompressionError):
        RecordBatch(data).records()


@OLD_MAGICS
def test_zstd_is_not_supported_before_magic_2(magic):
    data = message(magic, 44, 5, None, compress(ZSTD, message(magic, 0, 5, b"k", b"v")), ZSTD)
    with pytest.raises(UnsupportedFormatError) as caught:
        RecordBatch(data, position=7).records()
    assert caught.value.position == 7


GOOD = message(1, 0, 5, b"key", b"value")
# Contents of a wrapper with magic 1 and offset 44.
BROKEN_SETS = {
    "nothing": b"",
    "a wrapper again": message(1, 0, 5, None, compress(GZIP, GOOD), GZIP),
    "a record batch": Batch((Row(0, 5),)).data,
    "magic 2": GOOD[:16] + b"\x02" + GOOD[17:],
    "magic 255": GOOD[:16] + b"\xff" + GOOD[17:],
    "a length of 0": GOOD[:8] + bytes(4) + GOOD[12:],
    "a negative length": GOOD[:8] + b"\xff" * 4 + GOOD[12:],
    "a length of two billion": GOOD[:8] + b"\x7f" + b"\xff" * 3 + GOOD[12:],
    "a length too short for its magic": FRAME.pack(0, 21) + GOOD[12:33],
    "a key past the end": GOOD[:26] + struct.pack(">i", 100) + GOOD[30:],
    "a key of two billion bytes": GOOD[:26] + struct.pack(">i", 2**31 - 1) + GOOD[30:],
    "a value past the end": GOOD[:33] + struct.pack(">i", 6) + GOOD[37:],
    "only zeros": bytes(100),
}


@pytest.mark.parametrize("inner", BROKEN_SETS.values(), ids=BROKEN_SETS)
@OLD_CODECS
def test_a_broken_set_is_an_error_with_the_position_of_its_wrapper(inner, codec):
    data = wrapper(inner, codec=codec)
    with pytest.raises(CorruptBatchError) as caught:
        RecordBatch(data, position=1234).records()
    assert caught.value.position == 1234
    with pytest.raises(CorruptBatchError):
        first_record_from(data, 1234, 0, 2**62)


@pytest.mark.parametrize("size", [1, 11, 12, 20, len(GOOD) - 1])
@OLD_CODECS
def test_a_torn_last_message_of_a_set_is_left_out(size, codec):
    assert seen(wrapper(GOOD + GOOD[:size], codec=codec)) == [(44, 5)]


@pytest.mark.parametrize("size", [-1, -2, -(2**31)])
def test_any_negative_size_is_null(size):
    null = struct.pack(">i", size)
    without_key = GOOD[:26] + null + GOOD[33:]
    without_value = GOOD[:33] + null
    for inner, wanted in ((without_key, (None, b"value")), (without_value, (b"key", None))):
        framed = FRAME.pack(0, len(inner) - 12) + inner[12:]
        (record,) = RecordBatch(wrapper(framed)).records()
        assert (record.key, record.value) == wanted


@OLD_MAGICS
def test_a_wrapper_without_value_is_an_error(magic):
    with pytest.raises(CorruptBatchError) as refused:
        RecordBatch(message(magic, 44, 5, None, None, GZIP), position=3).records()
    assert refused.value.position == 3


def test_a_wrapper_s_key_is_skipped():
    assert seen(wrapper(GOOD, key=b"a key that no producer writes")) == [(44, 5)]


@pytest.mark.parametrize("size", [-2, -(2**31)])
def test_a_wrapper_s_null_key_has_any_negative_size(size):
    data = wrapper(GOOD)
    data = data[:26] + struct.pack(">i", size) + data[30:]
    assert seen(data) == [(44, 5)]


@pytest.mark.parametrize("size", [2**31 - 1, 500])
def test_a_wrapper_s_key_with_a_false_size_is_an_error(size):
    data = wrapper(GOOD)
    with pytest.raises(CorruptBatchError):
        RecordBatch(data[:26] + struct.pack(">i", size) + data[30:]).records()


@OLD_MAGICS
def test_every_cut_of_a_set_leaves_the_complete_messages(magic):
    messages = [message(magic, offset, 5, b"k" * offset, b"v") for offset in range(3)]
    complete = b"".join(messages)
    ends = [len(b"".join(messages[: count + 1])) for count in range(3)]
    for size in range(1, len(complete)):
        data = wrapper(complete[:size], magic=magic)
        count = sum(end <= size for end in ends)
        if count:
            assert len(RecordBatch(data).records()) == count
        else:
            with pytest.raises(CorruptBatchError):
                RecordBatch(data).records()


@OLD_MAGICS
def test_every_flipped_bit_in_an_uncompressed_set_is_read_as_the_model_reads_it(magic):
    complete = b"".join(message(magic, offset, 5, b"k", b"v") for offset in range(2))
    for bit in range(len(complete) * 8):
        damaged = bytearray(complete)
        damaged[bit // 8] ^= 1 << bit % 8
        data = wrapper(bytes(damaged), magic=magic)
        try:
            wanted = record_reader.read_records(data)
        except record_reader.Broken:
            wanted = None
        try:
            got = [tuple(record) for record in RecordBatch(data).records()]
        except CorruptBatchError:
            got = None
        assert got == wanted, bit


def test_the_checksum_is_that_of_the_wrapper_only():
    inner = GOOD[:12] + b"\0\0\0\0" + GOOD[16:]
    assert RecordBatch(wrapper(inner)).is_valid()
    data = wrapper(GOOD)
    assert not RecordBatch(data[:-1] + b"\x01").is_valid()
    assert RecordBatch(with_right_crc(data[:-1] + b"\x01")).is_valid()


def test_flags_of_record_batches_mean_nothing_in_messages():
    batch = RecordBatch(message(1, 4, 5, b"k", b"v", attributes=0x70 | LOG_APPEND_TIME))
    assert not batch.is_control
    assert not batch.is_transactional
    assert batch.delete_horizon_ms is None
    assert batch.timestamp_type is TimestampType.LOG_APPEND_TIME
