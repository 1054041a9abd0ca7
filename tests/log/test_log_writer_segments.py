"""When a written log is rolled, what its indexes hold, and how it is truncated."""

import pytest

from kafkastore.errors import (
    CorruptIndexError,
    OffsetOutOfRangeError,
    OffsetOverflowError,
)
from kafkastore.formats.records.compression import Codec

from .written_logs import (
    FIRST_TIMESTAMP,
    ONE,
    TransactionalProducer,
    append_one,
    append_one_at,
    batch_of,
    offsets,
    segments,
)

HOUR = 3_600_000


# Rolling


def test_a_log_rolls_by_size_before_the_segment_grows_too_large(open_writer):
    writer = open_writer(segment_bytes=10 * (ONE - 1))
    for _ in range(11):
        append_one(writer)
    assert writer.base_offsets == (0, 9)


def test_a_segment_filled_to_its_last_byte_is_rolled_by_the_next_set(open_writer):
    writer = open_writer(segment_bytes=10 * ONE)
    for _ in range(10):
        append_one(writer)
    assert writer.base_offsets == (0,)
    append_one(writer)
    assert writer.base_offsets == (0, 10)


def test_a_log_rolls_by_the_wall_clock_where_its_first_batch_has_no_timestamp(open_writer, clock):
    writer = open_writer(segment_ms=HOUR, message_timestamp_after_max_ms=1 << 60)
    clock.now += HOUR + 1
    append_one(writer)
    assert len(writer.base_offsets) == 1, "an empty segment is not rolled"
    append_one(writer)
    assert len(writer.base_offsets) == 2
    for count in (3, 4):
        clock.now += HOUR + 1
        append_one(writer)
        assert len(writer.base_offsets) == count
    stamp = clock.now + HOUR + 1
    append_one(writer, stamp)
    assert len(writer.base_offsets) == 4, "the first batch of the segment has no timestamp"
    clock.now += HOUR + 1
    append_one(writer, stamp)
    assert len(writer.base_offsets) == 5
    clock.now += HOUR + 1
    append_one(writer, stamp)
    assert len(writer.base_offsets) == 5, "now the records' timestamps count"
    append_one(writer, stamp + HOUR)
    assert len(writer.base_offsets) == 5, "waiting just as long is not longer"
    append_one(writer, stamp + HOUR + 1)
    assert len(writer.base_offsets) == 6
    clock.now += HOUR + 1
    writer.append(b"")
    assert len(writer.base_offsets) == 6, "nothing rolls nothing"


def test_jitter_makes_a_segment_roll_earlier_but_not_by_more_than_it(open_writer, clock):
    jitter = 20 * 60_000
    writer = open_writer(
        segment_ms=HOUR, segment_jitter_ms=jitter, message_timestamp_after_max_ms=1 << 60
    )
    append_one(writer, clock.now)
    append_one(writer, clock.now + HOUR - jitter)
    assert len(writer.base_offsets) == 1
    append_one(writer, clock.now + HOUR + 1)
    assert len(writer.base_offsets) == 2


@pytest.mark.parametrize("size", [12, 24, 36, 47])
def test_a_full_index_rolls_the_segment(open_writer, size):
    writer = open_writer(segment_index_bytes=size, index_interval_bytes=0)
    for number in range(30):
        append_one(writer, FIRST_TIMESTAMP + number)
    per_segment = max(1, size // 12)
    assert writer.base_offsets == tuple(range(0, 30, per_segment))
    assert offsets(writer) == list(range(30))


def test_offsets_too_far_apart_for_one_segment_roll_it(open_writer):
    writer = open_writer()
    for offset in (0, 2**31 - 1, 2**31, 2**33):
        append_one_at(writer, offset)
    assert writer.base_offsets == (0, 2**31, 2**33)
    assert offsets(writer) == [0, 2**31 - 1, 2**31, 2**33]


def test_a_set_too_wide_for_any_segment_is_refused_and_nothing_else_happens(open_writer):
    writer = open_writer()
    wide = batch_of(5, [FIRST_TIMESTAMP]) + batch_of(2**31 + 5, [FIRST_TIMESTAMP])
    with pytest.raises(OffsetOverflowError):
        writer.append(wide, as_follower=True)
    append_one_at(writer, 5)
    assert offsets(writer) == [5]


def test_messages_before_magic_2_roll_to_an_offset_low_enough_for_them(open_writer):
    writer = open_writer()
    for offset in (3, 2**31 + 10):
        writer.append(batch_of(offset, [FIRST_TIMESTAMP], magic=1), as_follower=True)
    assert writer.base_offsets == (0, 11)
    assert offsets(writer) == [3, 2**31 + 10]


def test_rolling_an_empty_segment_does_nothing(open_writer):
    writer = open_writer()
    assert writer.roll() == 0
    append_one(writer)
    assert writer.roll() == 1
    assert writer.roll() == 1
    assert writer.base_offsets == (0, 1)


def test_each_roll_leaves_a_producer_snapshot_and_trimmed_indexes(open_writer):
    writer = open_writer(index_interval_bytes=0)
    for number in range(4):
        append_one(writer, FIRST_TIMESTAMP + number)
    writer.roll()
    assert (writer.path / "00000000000000000004.snapshot").stat().st_size == 10
    assert (writer.path / "00000000000000000000.index").stat().st_size == 3 * 8
    assert (writer.path / "00000000000000000000.timeindex").stat().st_size == 3 * 12
    assert (writer.path / "00000000000000000004.index").stat().st_size == 10485760
    assert (writer.path / "00000000000000000004.timeindex").stat().st_size == 10485756


# Indexes


def test_a_follower_s_sets_get_an_entry_each_but_the_first(open_writer):
    writer = open_writer(index_interval_bytes=1)
    for number in range(100):
        stamp = FIRST_TIMESTAMP + number
        writer.append(batch_of(100 + number, [stamp]), as_follower=True)
    (segment,) = segments(writer)
    assert segment.time_index.used_entry_count == 99
    assert segment.time_index.last_entry == (FIRST_TIMESTAMP + 99, 199)


@pytest.mark.parametrize(
    ("version", "indexed"),
    [("3.9.0", [(79, 40)]), ("3.9.1", [(number, number) for number in range(1, 80)])],
)
def test_a_follower_s_batches_are_one_set_up_to_3_9_0(open_writer, version, indexed):
    writer = open_writer(version, index_interval_bytes=1)
    for first in (0, 40):
        batches = b"".join(batch_of(first + n, [FIRST_TIMESTAMP + n]) for n in range(40))
        writer.append(batches, as_follower=True)
    (segment,) = segments(writer)
    expected = [(offset, number * ONE) for offset, number in indexed]
    assert segment.offset_index.entries().tolist() == expected


def test_a_leader_s_batches_are_separate_sets(open_writer):
    writer = open_writer(index_interval_bytes=1)
    writer.append(b"".join(batch_of(0, [FIRST_TIMESTAMP]) for _ in range(5)))
    (segment,) = segments(writer)
    assert [offset for offset, _ in segment.offset_index.entries()] == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("version", "codec", "offset"),
    [("2.4", Codec.NONE, 4), ("3.7", Codec.NONE, 4), ("3.8", Codec.NONE, 5), ("2.4", Codec.LZ4, 5)],
)
def test_the_time_index_has_the_offset_that_the_version_gives_it(
    open_writer, version, codec, offset
):
    writer = open_writer(version, index_interval_bytes=1)
    append_one(writer, FIRST_TIMESTAMP)
    append_one(writer, FIRST_TIMESTAMP)
    early, late = FIRST_TIMESTAMP, FIRST_TIMESTAMP + 9
    writer.append(batch_of(0, [early, early, late, early], codec=codec))
    (segment,) = segments(writer)
    assert tuple(segment.time_index.last_entry) == (late, offset)


@pytest.mark.parametrize(("codec", "offset"), [(Codec.NONE, 3), (Codec.GZIP, 4)])
def test_before_3_8_the_offset_is_the_batch_s_last_where_it_is_compressed_again(
    open_writer, codec, offset
):
    writer = open_writer("2.4", index_interval_bytes=1, compression_type="uncompressed")
    early, late = FIRST_TIMESTAMP, FIRST_TIMESTAMP + 9
    append_one(writer, early)
    writer.append(batch_of(0, [early, early, late, early], codec=codec))
    (segment,) = segments(writer)
    assert tuple(segment.time_index.last_entry) == (late, offset)


# Truncating


def test_a_truncation_removes_entries_and_finds_the_largest_timestamp_again(open_writer):
    writer = open_writer(index_interval_bytes=2 * ONE - 1)
    for offset in range(40, 70):
        writer.append(batch_of(offset, [offset * 10]), as_follower=True)
    (segment,) = segments(writer)
    assert segment.time_index.used_entry_count == 30 // 2 - 1
    assert writer.truncate_to(41)
    (segment,) = segments(writer)
    assert segment.time_index.used_entry_count == 0
    assert segment.largest_record_timestamp() == 400
    assert segment.next_offset == writer.log_end_offset == 41
    writer.roll()
    assert tuple(segments(writer)[0].time_index.last_entry) == (400, 40)


def test_a_truncated_log_has_indexes_of_full_size_again(open_writer):
    writer = open_writer(segment_bytes=10 * ONE, index_interval_bytes=ONE - 1)
    for number in range(20):
        append_one(writer, FIRST_TIMESTAMP + number)
    assert writer.base_offsets == (0, 10)
    assert segments(writer)[0].offset_index_path.stat().st_size == 9 * 8
    writer.truncate_to(0)
    assert writer.base_offsets == (0,)
    (segment,) = segments(writer)
    assert segment.offset_index_path.stat().st_size == 10485760
    assert not segment.offset_index_path.read_bytes().strip(b"\0")
    for number in range(10):
        append_one(writer, FIRST_TIMESTAMP + number)
    assert writer.base_offsets == (0,)


def test_truncating_where_the_log_ends_or_after_changes_nothing(open_writer):
    writer = open_writer()
    for _ in range(10):
        append_one(writer)
    for offset in (10, 11, 2**40):
        assert not writer.truncate_to(offset)
    assert writer.log_end_offset == 10
    with pytest.raises(OffsetOutOfRangeError):
        writer.truncate_to(-1)
    append_one(writer)
    assert offsets(writer) == list(range(11))


def test_a_truncation_inside_a_batch_removes_all_of_it_and_the_next_has_the_offset(open_writer):
    writer = open_writer()
    writer.append(batch_of(0, [1, 2, 3]))
    writer.append(batch_of(0, [4, 5, 6]))
    writer.truncate_to(4)
    assert writer.log_end_offset == 4
    append_one(writer)
    assert offsets(writer) == [0, 1, 2, 4]


def test_a_truncation_in_a_gap_removes_everything_after_it(open_writer):
    writer = open_writer()
    append_one_at(writer, 40)
    append_one_at(writer, 43)
    writer.truncate_to(41)
    assert offsets(writer) == [40]


def test_a_truncation_below_the_first_segment_begins_the_log_there(open_writer):
    writer = open_writer(segment_bytes=3 * ONE)
    for _ in range(9):
        append_one(writer)
    writer.delete_records(7)
    writer.delete_old_segments()
    assert writer.base_offsets == (6,)
    writer.truncate_to(2)
    assert writer.base_offsets == (2,)
    assert (writer.log_start_offset, writer.log_end_offset) == (2, 2)
    append_one(writer)
    assert offsets(writer) == [2]


def test_a_truncation_restores_aborted_transactions_epochs_and_producers(open_writer):
    writer = open_writer(segment_bytes=5 * ONE)
    producer = TransactionalProducer(writer, 7)
    producer.send(FIRST_TIMESTAMP)
    producer.end(FIRST_TIMESTAMP, is_commit=False)
    end, epochs = writer.log_end_offset, writer.leader_epochs
    producer.send(FIRST_TIMESTAMP)
    for _ in range(6):
        append_one(writer, leader_epoch=4)
    producer.end(FIRST_TIMESTAMP, is_commit=False)
    assert writer.last_stable_offset == writer.log_end_offset
    writer.truncate_to(end)
    assert writer.leader_epochs == epochs
    (segment,) = segments(writer)
    assert segment.transaction_index.entries().tolist() == [(7, 0, 1, 2)]
    again = TransactionalProducer(writer, 7)
    again._sequence = 1
    again.send(FIRST_TIMESTAMP)
    assert writer.last_stable_offset == end


def test_retention_that_can_t_be_computed_does_not_end_the_writer(open_writer, monkeypatch):
    writer = open_writer(segment_bytes=3 * ONE)
    append_one(writer)

    def refuse(local):
        raise CorruptIndexError("the index is too large")

    monkeypatch.setattr(type(writer._log.local), "segment_facts", refuse)
    with pytest.raises(CorruptIndexError):
        writer.delete_old_segments()
    assert not writer.has_failed
    append_one(writer)
    assert offsets(writer) == [0, 1]
