"""Messages of old formats as record batches: the same records at the same offsets."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from models.record_format import GZIP, NONE, Batch, Row
from models.record_strategies import batches, bounded, in_a_row

from kafkastore import CorruptBatchError, CorruptionError, RecordBatch, TimestampType
from kafkastore.formats.records.compression import Codec
from kafkastore.segment.conversion import BATCH_BYTES, Conversion, converted
from kafkastore.segment.log_file import LogFile

OLD = in_a_row([Batch((Row(0, 100 + slot, b"k", b"v" * 40),), magic=1) for slot in range(6)])


def what(record):
    return record.offset, record.timestamp, record.key, record.value, record.headers


@pytest.fixture(scope="module")
def convert(tmp_path_factory):
    """A function of a log's bytes: the records before, the batches after."""
    path = tmp_path_factory.mktemp("conversion") / "00000000000000000000.log"

    def convert(data, **fields):
        path.write_bytes(data)
        with LogFile(path) as log:
            before = [record for batch in log.batches() for record in batch.records()]
            new = b"".join(converted(log, Conversion(**fields)))
        path.write_bytes(new)
        with LogFile(path) as log:
            after = list(log.batches())
        assert sum(batch.header["size"].sum() for batch in after) == len(new)
        for batch in after:
            batch.verify()
            assert batch.magic == 2
        return before, after

    return convert


def records_of(found):
    return [record for batch in found for record in batch.records()]


@bounded(300)
@given(st.lists(batches(), max_size=8), st.sampled_from([None, *Codec]))
def test_every_record_is_kept_with_all_its_fields(convert, written, codec):
    data = b"".join(batch.data for batch in in_a_row(written))
    try:
        before, after = convert(data, codec=codec)
    except CorruptionError:
        # A wrapper of a wrapper's messages that no reader takes either.
        with pytest.raises(CorruptionError):
            convert(data)
        return
    found = records_of(after)
    assert [what(record) for record in found] == [what(record) for record in before]
    for old, new in zip(before, found, strict=True):
        has_time = old.timestamp_type is not TimestampType.NO_TIMESTAMP_TYPE and old.timestamp >= 0
        assert new.timestamp_type == old.timestamp_type or not has_time


def test_record_batches_keep_their_bytes_and_pass_on_their_epoch(convert):
    new = [Batch((Row(0, 5),), leader_epoch=epoch, codec=GZIP) for epoch in (3, 3, 7)]
    written = in_a_row([OLD[0], *new, OLD[1]])
    _, after = convert(b"".join(batch.data for batch in written), leader_epoch=1)
    assert [batch.header["crc"] for batch in after[1:4]] == [
        RecordBatch(each.data).header["crc"] for each in written[1:4]
    ]
    assert [batch.leader_epoch for batch in after] == [1, 3, 3, 7, 7]


def test_messages_share_a_batch_and_wrappers_keep_theirs(convert):
    wrapper = Batch(tuple(Row(slot, 9) for slot in range(3)), magic=1, codec=GZIP)
    written = in_a_row([*OLD, wrapper, wrapper, OLD[0]])
    _, after = convert(b"".join(batch.data for batch in written))
    assert [batch.count for batch in after] == [6, 3, 3, 1]
    assert [batch.codec for batch in after] == [NONE, GZIP, GZIP, NONE]


def test_batches_of_messages_have_the_size_of_a_producer_s(convert):
    many = in_a_row([Batch((Row(0, slot, b"k", b"v" * 1000),), magic=0) for slot in range(100)])
    before, after = convert(b"".join(batch.data for batch in many))
    assert len(before) == 100
    sizes = [int(batch.header["size"][0]) for batch in after]
    assert max(sizes) <= BATCH_BYTES
    assert len(sizes) == 7


def test_a_chosen_codec_is_that_of_all_that_is_rewritten(convert):
    wrapper = Batch(tuple(Row(slot, 9) for slot in range(3)), magic=1, codec=GZIP)
    kept = Batch((Row(0, 5),), codec=GZIP)
    written = in_a_row([*OLD, wrapper, kept])
    _, after = convert(b"".join(batch.data for batch in written), codec=Codec.ZSTD)
    assert [batch.codec for batch in after] == [Codec.ZSTD, Codec.ZSTD, GZIP]


def test_messages_without_a_time_get_none_or_the_one_that_is_given(convert):
    untimed = [Batch((Row(0, -1, b"k", b"v"),), magic=0)]
    data = b"".join(batch.data for batch in in_a_row([*untimed, OLD[0]]))
    _, after = convert(data)
    assert [record.timestamp for record in records_of(after)] == [-1, 100]
    _, after = convert(data, untimed_ms=777)
    first, second = records_of(after)
    assert (first.timestamp, first.timestamp_type) == (777, TimestampType.LOG_APPEND_TIME)
    assert (second.timestamp, second.timestamp_type) == (100, TimestampType.CREATE_TIME)


def test_times_beyond_microseconds_are_kept_too(convert):
    times = (-(2**63), 2**63 - 1, 5, -7, 2**62)
    written = in_a_row([Batch((Row(0, time, b"k", b"v"),), magic=1) for time in times])
    _, after = convert(b"".join(batch.data for batch in written))
    assert tuple(record.timestamp for record in records_of(after)) == times


def test_append_times_are_kept_separate(convert):
    written = in_a_row([Batch((Row(0, 5),), magic=1, append_time=time) for time in (8, 8, 9)])
    _, after = convert(b"".join(batch.data for batch in written))
    assert [(batch.count, batch.records()[0].timestamp) for batch in after] == [(2, 8), (1, 9)]


def test_a_wrong_checksum_is_reported_with_its_place(convert):
    data = bytearray(b"".join(batch.data for batch in OLD))
    data[2 * len(OLD[0].data) + 40] ^= 1
    with pytest.raises(CorruptBatchError) as caught:
        convert(bytes(data))
    assert caught.value.position == 2 * len(OLD[0].data)
    assert caught.value.path is not None


def test_a_torn_end_is_left_out(convert):
    data = b"".join(batch.data for batch in OLD)
    _, after = convert(data[:-3])
    assert len(records_of(after)) == 5
