"""Writing a partition's log: the cases of Kafka's own tests and more."""

import numpy as np
import pytest
from models.iteration import until_error
from models.refused import refused

import kafkastore
from kafkastore import OutOfOrderAppendError, TimestampType
from kafkastore.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    ChecksumError,
    CorruptBatchError,
    InvalidLeaderEpochError,
    InvalidRecordError,
    InvalidTimestampError,
    OffsetOutOfRangeError,
    OffsetOverflowError,
    OutOfOrderSequenceError,
    RecordTooLargeError,
    WriterFailedError,
)
from kafkastore.formats.records.compression import Codec

from .written_logs import (
    FIRST_TIMESTAMP,
    ONE,
    TransactionalProducer,
    append_one,
    append_one_at,
    batch_of,
    new_record,
    new_records,
    offsets,
    read,
    segments,
)

HOUR = 3_600_000


# Appends of a leader


@pytest.mark.parametrize(
    ("value", "kind"),
    [("2", ArgumentTypeError), (None, ArgumentTypeError), (-1, ArgumentValueError)],
)
def test_a_transaction_version_is_a_small_int(open_writer, value, kind):
    writer = open_writer()
    with refused("transaction_version", kind):
        writer.append(batch_of(0, [1]), transaction_version=value)
    assert writer.log_end_offset == 0


def test_a_leader_gives_offsets_and_its_epoch(open_writer):
    writer = open_writer()
    assert writer.append(batch_of(77, [1, 2]), leader_epoch=3) == (0, 1, -1, False)
    assert writer.append(batch_of(5, [3]), leader_epoch=5) == (2, 2, -1, False)
    (log,) = read(writer)
    assert [(r.offset, r.timestamp, r.leader_epoch) for r in log.records()] == [
        (0, 1, 3), (1, 2, 3), (2, 3, 5),
    ]
    assert [batch.is_valid() for batch in log.batches()] == [True, True]
    assert log.leader_epochs == ((3, 0), (5, 2))
    with pytest.raises(InvalidLeaderEpochError):
        append_one(writer, leader_epoch=4)
    append_one(writer)
    assert writer.leader_epochs == ((3, 0), (5, 2))


@pytest.mark.parametrize("codec", list(Codec))
def test_log_append_time_is_stamped_by_the_leader(open_writer, clock, codec):
    writer = open_writer(message_timestamp_type="LogAppendTime", index_interval_bytes=1)
    for _ in range(3):
        clock.now += 5
        info = writer.append(batch_of(0, [-1, 9, 1 << 60], codec=codec))
        assert info.log_append_time == clock.now
    writer.flush()
    (log,) = read(writer)
    batches = list(log.batches())
    assert all(batch.is_valid() for batch in batches)
    assert {batch.timestamp_type for batch in batches} == {TimestampType.LOG_APPEND_TIME}
    stamps = [FIRST_TIMESTAMP + 5 * (1 + number // 3) for number in range(9)]
    assert [record.timestamp for record in log.records()] == stamps
    assert log.segments[0].time_index.entries().tolist() == [
        (FIRST_TIMESTAMP + 10, 5), (FIRST_TIMESTAMP + 15, 8),
    ]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_timestamps_too_far_from_the_clock_are_refused(open_writer, clock, codec):
    writer = open_writer(message_timestamp_before_max_ms=100, message_timestamp_after_max_ms=10)
    now = clock.now
    writer.append(batch_of(0, [now - 100, now, now + 10, -1], codec=codec))
    for stamp in (now - 101, now + 11, 0, 1 << 62, -2):
        with pytest.raises(InvalidTimestampError):
            writer.append(batch_of(0, [now, stamp], codec=codec))
    assert offsets(writer) == [0, 1, 2, 3]


def test_only_a_leader_sets_log_append_time(open_writer):
    writer = open_writer()
    with pytest.raises(InvalidTimestampError):
        writer.append(batch_of(0, [1], log_append_time=5))


def test_a_wrong_largest_timestamp_is_put_right(open_writer):
    writer = open_writer()
    batch = bytearray(batch_of(0, [FIRST_TIMESTAMP, FIRST_TIMESTAMP + 3]))
    batch[35:43] = (FIRST_TIMESTAMP + 99).to_bytes(8, "big")
    with_crc = bytearray(batch)
    with_crc[17:21] = kafkastore_crc(batch[21:]).to_bytes(4, "big")
    writer.append(with_crc)
    (log,) = read(writer)
    (written,) = log.batches()
    assert written.max_timestamp == FIRST_TIMESTAMP + 3
    assert written.is_valid()


def kafkastore_crc(data):
    from kafkastore.formats.primitives.crc import crc32c

    return crc32c(bytes(data))


def test_batches_larger_than_allowed_are_refused(open_writer):
    writer = open_writer(max_message_bytes=200, segment_bytes=190)
    with pytest.raises(RecordTooLargeError, match=r"max\.message\.bytes"):
        writer.append(batch_of(0, [1, 2, 3]))
    with pytest.raises(RecordTooLargeError, match=r"segment\.bytes"):
        writer.append(batch_of(0, [1]) + batch_of(1, [1]), as_follower=True)
    append_one(writer)


def test_a_compacted_topic_requires_keys(open_writer):
    writer = open_writer(cleanup_policy="compact")
    writer.append_records([new_record(1)])
    with pytest.raises(InvalidRecordError):
        writer.append_records([new_record(1), new_record(1, key=None)])
    assert offsets(writer) == [0]


@pytest.mark.parametrize(
    ("batch", "error", "position"),
    [
        (batch_of(0, [1], magic=1), InvalidRecordError, None),
        (batch_of(0, [1, 2])[:-3], CorruptBatchError, ONE),
        (batch_of(0, [1]) + b"\0" * 30, CorruptBatchError, 2 * ONE),
        (b"x", CorruptBatchError, ONE),
        (batch_of(0, [1])[:-1] + b"\x01", ChecksumError, ONE),
    ],
    ids=["magic 1", "torn", "zeros", "a byte", "crc"],
)
def test_invalid_batches_for_a_leader_are_refused_and_the_log_continues(
    open_writer, batch, error, position
):
    writer = open_writer()
    append_one(writer)
    with pytest.raises(error) as caught:
        writer.append(batch_of(0, [5]) + batch)
    assert getattr(caught.value, "position", None) == position
    append_one(writer)
    assert offsets(writer) == [0, 1]


def test_records_must_have_their_numbers_as_offset_deltas(open_writer):
    writer = open_writer()
    gap = kafkastore.formats.records.record_builder.build_batch(
        [
            kafkastore.Record(n, 1, TimestampType.CREATE_TIME, b"k", b"v", (), None)
            for n in (0, 2)
        ]
    )
    with pytest.raises(InvalidRecordError):
        writer.append(gap)


def test_a_topic_s_compression_is_that_of_built_batches_and_others_get_it(open_writer):
    writer = open_writer(compression_type="lz4")
    writer.append_records(new_records(20))
    append_one(writer)
    (log,) = read(writer)
    assert {batch.codec for batch in log.batches()} == {Codec.LZ4}
    assert log.log_end_offset == 21


@pytest.mark.parametrize("wrong", [2.5, 5.0, float("nan"), "7", None, True])
def test_offsets_that_are_not_ints_are_not_written(open_writer, wrong):
    writer = open_writer()
    writer.append_records(new_records(20), batch_bytes=200)
    for alter in (writer.truncate_to, writer.delete_records):
        with pytest.raises(OffsetOutOfRangeError):
            alter(wrong)
    assert (writer.log_start_offset, writer.log_end_offset) == (0, 20)
    assert writer.append_records(new_records(1)).first_offset == 20


def test_offsets_and_epochs_may_be_numbers_of_numpy(open_writer):
    writer = open_writer()
    for number in range(6):
        append_one(writer, leader_epoch=np.int32(number // 2))
    assert writer.truncate_to(np.int64(5)) is True
    assert writer.delete_records(np.uint64(2)) == 2
    assert type(writer.log_end_offset) is type(writer.log_start_offset) is int
    assert [entry.epoch for entry in writer.leader_epochs] == [1, 2]


@pytest.mark.parametrize("wrong", [2.5, float("nan"), "1", True, -1, 2**31, 2**63])
def test_leader_epochs_that_no_batch_can_hold_are_refused(open_writer, wrong):
    writer = open_writer()
    with pytest.raises(InvalidLeaderEpochError):
        append_one(writer, leader_epoch=wrong)
    assert append_one(writer).first_offset == 0


def test_a_leader_does_not_go_beyond_the_last_offset(open_writer):
    writer = open_writer()
    writer.append(batch_of(2**63 - 4, [FIRST_TIMESTAMP]), as_follower=True)
    with pytest.raises(OffsetOverflowError):
        writer.append(batch_of(0, [FIRST_TIMESTAMP] * 3))
    assert writer.append(batch_of(0, [FIRST_TIMESTAMP] * 2)).last_offset == 2**63 - 2
    with pytest.raises(OffsetOverflowError):
        append_one(writer)
    assert not writer.has_failed
    assert offsets(writer) == [2**63 - 4, 2**63 - 3, 2**63 - 2]


@pytest.mark.parametrize(
    "wrong",
    [
        None,
        new_record(1.5),
        new_record(None),
        new_record(2**63),
        new_record(0, key="text"),
        new_record(0, value=5),
        new_record(0, headers=5),
        new_record(0, headers=((None, b""),)),
        new_record(0, headers=(("name",),)),
    ],
)
def test_a_record_that_can_t_be_written_is_named_and_nothing_of_its_batch_is(open_writer, wrong):
    writer = open_writer()
    with pytest.raises(InvalidRecordError):
        writer.append_records([new_record(0), wrong])
    assert writer.append_records([new_record(0)]).first_offset == 0


def test_a_topic_with_a_message_limit_of_0_accepts_no_messages(open_writer):
    with pytest.raises(RecordTooLargeError):
        open_writer(max_message_bytes=0).append_records([new_record(0)])


@pytest.mark.parametrize("compression", ["producer", "uncompressed", "gzip", "zstd"])
def test_batches_of_several_codecs_in_one_call_get_that_of_the_topic(open_writer, compression):
    writer = open_writer(compression_type=compression)
    batches = b"".join(batch_of(7, [40 + codec, 50], codec=codec) for codec in Codec)
    assert writer.append(batches, leader_epoch=3)[:2] == (0, 2 * len(Codec) - 1)
    (log,) = read(writer)
    codec = {"uncompressed": Codec.NONE, "gzip": Codec.GZIP, "zstd": Codec.ZSTD}.get(compression)
    expected = list(Codec) if codec is None else [codec] * len(Codec)
    assert [batch.codec for batch in log.batches()] == expected
    assert [record.offset for record in log.records()] == list(range(2 * len(Codec)))
    stamps = [stamp for codec in Codec for stamp in (40 + codec, 50)]
    assert [record.timestamp for record in log.records()] == stamps
    assert {batch.leader_epoch for batch in log.batches()} == {3}
    assert not list(kafkastore.verify(writer.path))


def test_recompressed_batches_keep_their_producer(open_writer):
    writer = open_writer(compression_type="lz4")
    fields = {"producer_id": 7, "producer_epoch": 0, "is_transactional": True}
    batches = b"".join(
        batch_of(0, [1, 2], codec=Codec.GZIP, base_sequence=sequence, **fields)
        for sequence in (0, 2)
    )
    assert writer.append(batches) == (0, 3, -1, False)
    assert writer.append(batches) == (0, 3, -1, True)
    with pytest.raises(OutOfOrderSequenceError):
        writer.append(batch_of(0, [1], base_sequence=9, **fields))
    (log,) = read(writer)
    found = [(batch.producer_id, batch.base_sequence, batch.codec) for batch in log.batches()]
    assert found == [(7, 0, Codec.LZ4), (7, 2, Codec.LZ4)]
    assert all(batch.is_transactional for batch in log.batches())


def test_a_recompressed_batch_may_be_too_large(open_writer):
    writer = open_writer(compression_type="uncompressed", max_message_bytes=300)
    writer.append(batch_of(0, [1] * 2, codec=Codec.GZIP))
    with pytest.raises(RecordTooLargeError, match=r"max\.message\.bytes"):
        writer.append(batch_of(0, [1] * 9, codec=Codec.GZIP))
    assert writer.log_end_offset == 2
    assert not writer.has_failed


# Appends of a follower


def test_a_follower_keeps_bytes_and_allows_gaps_but_no_decreasing_offsets(open_writer):
    writer = open_writer()
    batches = batch_of(7, [1, 2], leader_epoch=2) + batch_of(20, [3], leader_epoch=4)
    assert writer.append(batches, as_follower=True) == (7, 20, -1, False)
    assert (writer.path / "00000000000000000000.log").read_bytes() == batches
    assert writer.leader_epochs == ((2, 7), (4, 20))
    for offset in (0, 20):
        with pytest.raises(OutOfOrderAppendError):
            append_one_at(writer, offset)
    with pytest.raises(OutOfOrderAppendError):
        writer.append(batch_of(30, [1]) + batch_of(30, [1]), as_follower=True)
    append_one_at(writer, 21, epoch=4)
    assert offsets(writer) == [7, 8, 20, 21]


def test_a_follower_leaves_out_a_batch_that_is_cut(open_writer):
    writer = open_writer()
    complete = batch_of(0, [1])
    for torn in (complete[:-1], complete[:20], complete[:5], b""):
        writer.append(batch_of(writer.log_end_offset, [1]) + torn, as_follower=True)
    assert writer.append(complete[:30], as_follower=True) == (-1, -1, -1, False)
    assert offsets(writer) == [0, 1, 2, 3]


def test_old_messages_clear_the_epochs(open_writer):
    writer = open_writer()
    append_one(writer, leader_epoch=3)
    writer.append(batch_of(1, [5], magic=1), as_follower=True)
    assert writer.leader_epochs == ()


# Producers


def test_an_idempotent_producer_s_duplicates_are_known_and_its_gaps_refused(open_writer):
    writer = open_writer()

    def send(sequence, count=1):
        stamps = [FIRST_TIMESTAMP] * count
        batch = batch_of(0, stamps, producer_id=1, producer_epoch=0, base_sequence=sequence)
        return writer.append(batch)

    for sequence in range(6):
        send(sequence)
    several = send(6, 3)
    assert send(6, 3) == several._replace(is_duplicate=True)
    with pytest.raises(OutOfOrderSequenceError):
        send(7, 2)
    assert send(3)[:2] == (3, 3)
    with pytest.raises(OutOfOrderSequenceError):
        send(1)
    with pytest.raises(OutOfOrderSequenceError):
        send(12)
    assert not writer.has_failed
    assert send(9)[:2] == (9, 9)
    assert offsets(writer) == list(range(10))


def test_batches_of_a_producer_in_one_call_are_as_if_they_came_alone(open_writer):
    writer = open_writer()

    def batch(sequence):
        return batch_of(0, [1], producer_id=1, producer_epoch=0, base_sequence=sequence)

    assert writer.append(batch(0) + batch(1)) == (0, 1, -1, False)
    info = writer.append(batch(1) + batch(2))
    assert (info.last_offset, info.is_duplicate) == (2, False)
    with pytest.raises(OutOfOrderSequenceError):
        writer.append(batch(3) + batch(7))
    assert offsets(writer) == [0, 1, 2, 3]


def test_the_transaction_index_has_aborted_transactions_with_their_last_stable_offsets(
    open_writer,
):
    writer = open_writer()
    one, two, three, four = (TransactionalProducer(writer, number) for number in (1, 2, 3, 4))

    def plain(count):
        writer.append(batch_of(0, [1] * count))

    def send(producer, count):
        producer.send(*[1] * count)

    send(one, 5)
    plain(3)
    send(two, 2)
    send(one, 4)
    send(three, 3)
    plain(2)
    send(one, 10)
    one.end(1, is_commit=False)
    send(two, 6)
    send(four, 3)
    plain(10)
    send(three, 9)
    three.end(1, is_commit=True)
    send(four, 8)
    send(two, 7)
    two.end(1, is_commit=False)
    plain(10)
    send(four, 4)
    assert writer.last_stable_offset == 36
    four.end(1, is_commit=True)
    (segment,) = segments(writer)
    assert segment.transaction_index.entries().tolist() == [(1, 0, 29, 8), (2, 8, 74, 36)]
    assert writer.last_stable_offset == writer.log_end_offset == 90


def test_a_transaction_over_several_segments_is_in_the_index_of_its_marker(open_writer):
    writer = open_writer(segment_bytes=3 * ONE)
    producer = TransactionalProducer(writer, 137)
    producer.send(1, 1)
    assert writer.last_stable_offset == 0
    writer.roll()
    producer.send(1, 1)
    writer.roll()
    producer.end(1, is_commit=False)
    assert [len(each.transaction_index.entries()) for each in segments(writer)] == [0, 0, 1]
    assert writer.last_stable_offset == 5
    (log,) = read(writer)
    assert not list(log.records(isolation="read_committed"))


# Start of the log, retention


def test_records_are_deleted_up_to_the_high_watermark_and_segments_follow(open_writer):
    writer = open_writer(segment_bytes=3 * ONE, retention_ms=-1)
    for epoch in range(10):
        append_one(writer, leader_epoch=epoch)
    assert writer.delete_records(5) == 5
    assert writer.delete_records(2) == 5
    with pytest.raises(OffsetOutOfRangeError):
        writer.delete_records(11)
    assert writer.base_offsets == (0, 3, 6, 9)
    assert writer.leader_epochs[0] == (5, 5)
    writer.delete_old_segments()
    assert writer.base_offsets == (3, 6, 9)
    names = sorted(path.name for path in writer.path.glob("0*"))
    assert not [name for name in names if name.startswith(f"{0:020d}")]
    assert offsets(writer)[0] == 3


def test_old_segments_are_deleted_and_an_empty_one_remains(open_writer, clock):
    writer = open_writer(segment_bytes=5 * ONE, retention_ms=10_000)
    for _ in range(15):
        append_one(writer, 10)
    found = writer.delete_old_segments()
    assert [each.segment.base_offset for each in found.deletions] == [0, 5, 10]
    assert writer.base_offsets == (15,)
    assert writer.log_start_offset == 15
    assert append_one(writer).first_offset == 15


# Files


def test_a_preallocated_log_has_its_full_size_until_it_is_rolled_or_closed(open_writer, tmp_path):
    writer = open_writer(preallocate=True, segment_bytes=100_000)
    append_one(writer)
    log = writer.path / "00000000000000000000.log"
    assert log.stat().st_size == 100_000
    assert offsets(writer) == [0]
    writer.truncate_to(0)
    append_one(writer)
    writer.roll()
    assert log.stat().st_size == ONE
    append_one(writer)
    writer.close()
    assert (writer.path / "00000000000000000001.log").stat().st_size == ONE


def test_a_closed_writer_accepts_nothing(open_writer):
    writer = open_writer()
    append_one(writer)
    writer.close()
    writer.close()
    for work in (lambda: append_one(writer), writer.flush, writer.roll):
        with pytest.raises(WriterFailedError, match="closed"):
            work()


def test_records_are_built_into_batches_of_the_requested_size(open_writer):
    writer = open_writer()
    records = new_records(300)
    info = writer.append_records(iter(records), batch_bytes=1000, codec=Codec.SNAPPY)
    assert info[:2] == (0, 299)
    assert writer.append_records([]) == (-1, -1, -1, False)
    (log,) = read(writer)
    found = [(r.timestamp, r.key, r.value, r.headers) for r in log.records()]
    assert found == [(r.timestamp, r.key, r.value, tuple(r.headers)) for r in records]
    assert len(list(log.batches())) > 20


def test_a_reader_sees_appended_records_while_the_writer_continues(open_writer):
    writer = open_writer(segment_bytes=5 * ONE, index_interval_bytes=1)
    for number in range(23):
        append_one(writer, FIRST_TIMESTAMP + number)
        (log,) = read(writer)
        records, error = until_error(log.records())
        assert error is None
        assert [record.offset for record in records] == list(range(number + 1))
        assert log.offset_for_timestamp(FIRST_TIMESTAMP + number).offset == number
