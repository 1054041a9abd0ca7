"""One record batch of magic 2 as Python values; `test_message_set` has the older formats."""

import copy
import pickle
import random
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from models import record_reader
from models.golden_batches import smallest_batches
from models.record_format import (
    LZ4,
    Batch,
    Row,
    emptied,
    marker,
    record,
    varint,
    with_right_crc,
)
from models.record_strategies import batches, bounded

from kafkastore import (
    CorruptBatchError,
    KafkaStoreError,
    RecordBatch,
    TimestampType,
    UnsupportedFormatError,
)
from kafkastore.formats.records.compression import Codec
from kafkastore.formats.records.record_batch import first_record_from

COMPLETE = Batch((Row(7, 2000, b"key", b"value", (("name", b"x"), ("", None))), Row(9, 1999)))


def outcome(read):
    """The records of a reader; None if it raises an error of the package."""
    try:
        return [tuple(record) for record in read()]
    except (KafkaStoreError, record_reader.Broken):
        return None


def batch_of(records, *, count, attributes=0):
    """A batch at offset 0 and timestamp 0 around any records bytes."""
    empty = Batch((), first_offset=0, last_offset_kept=0, stated_max_timestamp=0,
                  stated_count=count, delete_horizon=0).data
    data = bytearray(empty + records)
    data[8:12] = struct.pack(">i", len(data) - 12)
    data[21:23] = struct.pack(">h", attributes)
    return with_right_crc(bytes(data))


@bounded(500)
@given(batches())
def test_records_and_header_are_those_written(written):
    batch = RecordBatch(written.data, position=123)
    assert [tuple(record) for record in batch.records()] == written.records
    assert batch.is_valid()
    assert (batch.position, batch.size, batch.magic) == (123, len(written.data), written.magic)
    assert (batch.base_offset, batch.last_offset) == (written.base_offset, written.last_offset)
    assert batch.max_timestamp == written.max_timestamp
    assert batch.codec == written.codec
    assert batch.count == (None if written.is_wrapper else len(written.rows))
    if written.magic == 2:
        assert batch.is_control == written.is_control
        assert batch.is_transactional == written.is_transactional
        assert batch.producer_id == written.producer_id
        assert batch.producer_epoch == written.producer_epoch
        assert batch.base_sequence == written.base_sequence
        assert batch.leader_epoch == (written.leader_epoch if written.leader_epoch >= 0 else None)
        assert batch.delete_horizon_ms == written.delete_horizon


@bounded(200)
@given(batches(has_headers=False), st.integers(-2, 45), st.integers(0, 12))
def test_the_first_record_from_a_time_and_an_offset_is_found(written, target, start):
    wanted = next(
        ((row[1], row[0]) for row in written.records if row[1] >= target and row[0] >= start), None
    )
    assert first_record_from(written.data, 0, target, start) == wanted


def test_values_have_the_types_of_the_documentation():
    batch = RecordBatch(Batch((Row(0, 5),), codec=LZ4, append_time=9).data)
    assert isinstance(batch.codec, Codec)
    assert isinstance(batch.timestamp_type, TimestampType)
    assert batch.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert "last_offset=0, magic=2, codec=LZ4" in repr(batch)


def test_log_append_time_is_the_time_of_every_record():
    batch = Batch((Row(0, 5), Row(1, 10**12), Row(2, -1)), append_time=77)
    assert [record.timestamp for record in RecordBatch(batch.data).records()] == [77, 77, 77]


def test_timestamps_count_from_a_delete_horizon():
    written = Batch((Row(0, 5), Row(1, 3)), delete_horizon=1_700_000_000_000)
    batch = RecordBatch(written.data)
    assert [record.timestamp for record in batch.records()] == [5, 3]
    assert (batch.delete_horizon_ms, batch.base_timestamp) == (1_700_000_000_000,) * 2
    assert RecordBatch(COMPLETE.data).delete_horizon_ms is None


def test_timestamps_wrap_as_java_s_longs_do():
    written = Batch((Row(0, 2**63 - 1), Row(1, -(2**63)), Row(2, 0)))
    assert [record.timestamp for record in RecordBatch(written.data).records()] == [
        2**63 - 1, -(2**63), 0,
    ]


@pytest.mark.parametrize("codec", Codec)
def test_an_emptied_batch_has_no_records_and_keeps_its_header(codec):
    batch = RecordBatch(emptied(10, 15, 999, codec=codec).data)
    assert batch.records() == []
    assert (batch.base_offset, batch.last_offset, batch.max_timestamp) == (10, 15, 999)
    assert batch.count == 0


def test_compacted_batches_keep_first_and_last_offset():
    written = Batch((Row(4, 1), Row(6, 1)), first_offset=2, last_offset_kept=9)
    batch = RecordBatch(written.data)
    assert (batch.base_offset, batch.last_offset) == (2, 9)
    assert [record.offset for record in batch.records()] == [4, 6]


@pytest.mark.parametrize("is_commit", [True, False])
def test_a_marker_is_a_control_batch_with_one_record(is_commit):
    batch = RecordBatch(marker(3, 50, is_commit=is_commit, producer_id=8).data)
    (record,) = batch.records()
    assert (batch.is_control, batch.is_transactional, batch.producer_id) == (True, True, 8)
    assert record.key == b"\0\0\0" + bytes([is_commit])


def test_a_header_name_that_is_not_utf_8_is_kept():
    batch = RecordBatch(Batch((Row(0, 1, None, None, (("a\udcff", b"x"),)),)).data)
    assert batch.records()[0].headers[0][0].encode("utf-8", "surrogateescape") == b"a\xff"


# Records bytes that break the format, and their count; a right batch is needed for contrast.
RIGHT = record(Row(0, 0, b"k", b"v", (("h", b"x"),)), 0, 0)
FALSE_FIELDS = {
    "a negative count": (RIGHT, -1),
    "the smallest count": (RIGHT, -(2**31)),
    "one record too few": (RIGHT * 2, 1),
    "records where none are counted": (RIGHT, 0),
    "one record too many": (RIGHT, 2),
    "two billion records": (RIGHT, 2**31 - 1),
    "bytes after the last record": (RIGHT + b"\0", 1),
    "a record of length 0": (b"\0", 1),
    "a record of negative length": (varint(-5) + RIGHT[1:], 1),
    "a record longer than the batch": (varint(len(RIGHT)) + RIGHT[1:], 1),
    "a record of two billion bytes": (varint(2**31 - 1) + RIGHT[1:], 1),
    "a record one byte too long": (varint(len(RIGHT)) + RIGHT[1:] + b"\0", 1),
    "a record one byte too short": (varint(len(RIGHT) - 2) + RIGHT[1:-1], 1),
    "a key past the end": (varint(8) + b"\0\0\0" + varint(2**31 - 1) + b"kv\0", 1),
    "a value past the end": (varint(6) + b"\0\0\0\x01" + varint(3) + b"v", 1),
    "more headers than bytes": (varint(6) + b"\0\0\0\x01\x01" + varint(9), 1),
    "two billion headers": (varint(10) + b"\0\0\0\x01\x01" + varint(2**31 - 1), 1),
    "a negative count of headers": (varint(6) + b"\0\0\0\x01\x01" + varint(-1), 1),
    "a header name of null": (
        varint(8) + b"\0\0\0\x01\x01" + varint(1) + varint(-1) + varint(0), 1),
    "a header value past the end": (
        varint(8) + b"\0\0\0\x01\x01" + varint(1) + varint(0) + varint(9), 1),
    "no record": (b"", 1),
}


@pytest.mark.parametrize(("records", "count"), FALSE_FIELDS.values(), ids=FALSE_FIELDS)
def test_false_lengths_and_counts_are_errors_with_a_position(records, count):
    with pytest.raises(CorruptBatchError) as caught:
        RecordBatch(batch_of(records, count=count), position=4242).records()
    assert caught.value.position == 4242
    assert "\n" not in str(caught.value)


def test_the_right_records_of_that_table_are_read():
    assert len(RecordBatch(batch_of(RIGHT * 3, count=3)).records()) == 3


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_an_unknown_codec_is_not_supported(codec):
    with pytest.raises(UnsupportedFormatError) as caught:
        RecordBatch(batch_of(RIGHT, count=1, attributes=codec), position=9).records()
    assert caught.value.position == 9
    batch = RecordBatch(batch_of(RIGHT, count=1, attributes=codec), position=9)
    assert f"codec={codec}" in repr(batch)
    with pytest.raises(UnsupportedFormatError) as caught:
        batch.codec  # noqa: B018
    assert caught.value.position == 9


@pytest.mark.parametrize("magic", [3, 100, -1, -128])
def test_an_unknown_magic_is_not_supported(magic):
    data = COMPLETE.data[:16] + struct.pack(">b", magic) + COMPLETE.data[17:]
    with pytest.raises(UnsupportedFormatError):
        RecordBatch(data)


def test_a_batch_cut_at_any_byte_or_with_bytes_after_is_refused():
    for size in range(len(COMPLETE.data)):
        with pytest.raises(CorruptBatchError):
            RecordBatch(COMPLETE.data[:size])
    with pytest.raises(CorruptBatchError):
        RecordBatch(COMPLETE.data + b"\0")


def test_a_wrong_checksum_is_reported_with_both_numbers_and_the_place():
    damaged = COMPLETE.data[:-1] + b"\x55"
    batch = RecordBatch(damaged, position=77)
    assert not batch.is_valid()
    with pytest.raises(CorruptBatchError) as caught:
        batch.verify()
    stored = int.from_bytes(damaged[17:21], "big")
    computed = int.from_bytes(with_right_crc(damaged)[17:21], "big")
    assert f"{stored:#010x}" in str(caught.value)
    assert f"{computed:#010x}" in str(caught.value)
    assert caught.value.position == 77


def test_golden_batches_with_a_flipped_bit_are_read_as_the_model_reads_them(golden):
    for kind, batch in smallest_batches(golden).items():
        for bit in range(12 * 8, min(len(batch), 300) * 8):
            damaged = bytearray(batch)
            damaged[bit // 8] ^= 1 << bit % 8
            damaged = bytes(damaged)
            if not 0 <= damaged[16] <= 2:
                continue
            if damaged[16] != batch[16] and record_reader.split(damaged)[1] == "broken":
                continue
            got = outcome(lambda damaged=damaged: RecordBatch(damaged).records())
            wanted = outcome(lambda damaged=damaged: record_reader.read_records(damaged))
            assert got == wanted, (kind, bit)


def test_golden_batches_cut_after_the_header_are_read_as_the_model_reads_them(golden):
    for kind, batch in smallest_batches(golden).items():
        header = 61 if batch[16] == 2 else 26 if batch[16] == 0 else 34
        for size in range(header, min(len(batch), 400)):
            cut = batch[:8] + struct.pack(">i", size - 12) + batch[12:size]
            got = outcome(lambda cut=cut: RecordBatch(cut).records())
            wanted = outcome(lambda cut=cut: record_reader.read_records(cut))
            assert got == wanted, (kind, size)


@bounded(400)
@given(batches(), st.randoms(use_true_random=False))
def test_random_damage_is_read_as_the_model_reads_it(written, source):
    damaged = bytearray(written.data)
    for _ in range(source.randrange(1, 4)):
        damaged[source.randrange(17, len(damaged))] = source.randrange(256)
    damaged = bytes(damaged)
    got = outcome(lambda: RecordBatch(damaged).records())
    assert got == outcome(lambda: record_reader.read_records(damaged))


def test_random_bytes_are_a_batch_or_an_error():
    source = random.Random(5)
    for _ in range(5000):
        data = bytearray(source.randbytes(source.randrange(120)))
        if len(data) > 17:
            data[8:12] = struct.pack(">i", len(data) - 12)
            data[16] = source.randrange(3)
        outcome(lambda data=bytes(data): RecordBatch(data).records())
        outcome(lambda data=bytes(data): [first_record_from(data, 0, 5, 5) or ()])


def test_records_and_batches_can_be_pickled_and_copied():
    batch = RecordBatch(Batch((Row(7, 5, b"k", b"v", (("name", None),)),)).data, 123)
    (record,) = batch.records()
    assert pickle.loads(pickle.dumps(record)) == record
    for made in (pickle.loads(pickle.dumps(batch)), copy.copy(batch)):
        assert made.records() == [record]
        assert made.position == 123


def test_a_batch_is_built_completely_or_not_at_all():
    class Named(RecordBatch):
        """A class whose own constructor forgets the one of its base."""

        def __init__(self, *_):
            self.name = "x"

    with pytest.raises(TypeError):
        RecordBatch.__new__(RecordBatch)
    with pytest.raises(CorruptBatchError):
        Named(b"")
    data = Batch((Row(0, 5),)).data
    assert Named(data).is_valid()
