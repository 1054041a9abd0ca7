"""Recompressed batches keep their contents."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkastore import CorruptBatchError, Record, TimestampType
from kafkastore.errors import InvalidRecordError
from kafkastore.formats.records.compression import Codec
from kafkastore.formats.records.recompression import recompress
from kafkastore.formats.records.record_batch import RecordBatch
from kafkastore.formats.records.record_builder import build_batch

FIELDS = (
    "magic", "base_offset", "last_offset", "count", "max_timestamp", "timestamp_type",
    "leader_epoch", "producer_id", "producer_epoch", "base_sequence", "is_transactional",
    "is_control",
)
OF_A_PRODUCER = {"producer_id": 7, "producer_epoch": 3, "base_sequence": 40}
records = st.lists(
    st.tuples(
        st.integers(-1, 2**50),
        st.none() | st.binary(max_size=9),
        st.none() | st.binary(max_size=90),
        st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=5)), max_size=2),
    ),
    min_size=1,
    max_size=9,
)


def batch_of(rows, **fields):
    return build_batch(
        [
            Record(45 + number, timestamp, TimestampType.CREATE_TIME, key, value, tuple(headers),
                   None)
            for number, (timestamp, key, value, headers) in enumerate(rows)
        ],
        **fields,
    )


@given(
    records,
    st.sampled_from(list(Codec)),
    st.sampled_from(list(Codec)),
    st.sampled_from([{}, OF_A_PRODUCER, {**OF_A_PRODUCER, "is_transactional": True}]),
    st.sampled_from([-1, 0, 12]),
)
def test_only_the_codec_changes(rows, old_codec, codec, fields, leader_epoch):
    data = batch_of(rows, codec=old_codec, leader_epoch=leader_epoch, **fields)
    old, new = RecordBatch(data), RecordBatch(recompress(data, codec))
    assert new.codec == codec
    assert new.records() == old.records()
    for field in FIELDS:
        assert getattr(new, field) == getattr(old, field), field
    new.verify()


def test_a_largest_timestamp_that_is_not_that_of_the_records_is_put_right():
    data = bytearray(batch_of([(5, b"k", b"v", ())], codec=Codec.LZ4))
    data[35:43] = (9).to_bytes(8, "big")
    assert RecordBatch(data).max_timestamp == 9
    assert RecordBatch(recompress(data, Codec.ZSTD)).max_timestamp == 5


def test_a_batch_that_no_builder_makes_is_refused():
    data = bytearray(batch_of([(5, b"k", b"v", ())]))
    data[22] |= 0x10  # transactional, without a producer
    with pytest.raises(InvalidRecordError):
        recompress(data, Codec.GZIP)


def test_a_batch_that_can_not_be_read_is_an_error():
    data = bytearray(batch_of([(5, b"k", b"v" * 100, ())], codec=Codec.GZIP))
    data[61:70] = bytes(9)
    with pytest.raises(CorruptBatchError):
        recompress(data, Codec.NONE)
