"""Batches prepared for an append, by a leader and by a follower."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from models.record_format import with_right_crc

from kafkastore import KafkaStoreError, Record, RecordBatch, TimestampType
from kafkastore.errors import CorruptBatchError, InvalidRecordError
from kafkastore.formats.records.append_sets import assign_offsets, keep_offsets
from kafkastore.formats.records.compression import Codec
from kafkastore.formats.records.record_builder import build_batch

NOW = 1_600_000_000_000


def batch(offset, timestamps, **fields):
    records = [
        Record(offset + n, stamp, TimestampType.CREATE_TIME, b"k%d" % n, b"v" * n, (), None)
        for n, stamp in enumerate(timestamps)
    ]
    return build_batch(records, **fields)


timestamps = st.lists(st.integers(-1, 2**41), min_size=1, max_size=6)
batches = st.lists(st.tuples(timestamps, st.sampled_from(list(Codec))), min_size=1, max_size=5)


@given(batches, st.integers(0, 2**62), st.integers(0, 2**31 - 1), st.booleans(), st.booleans())
def test_a_leader_s_batches_are_the_same_records_at_the_next_offsets(
    given_batches, next_offset, epoch, has_append_time, has_record_offset
):
    data = b"".join(
        batch(7, stamps, codec=codec, leader_epoch=3) for stamps, codec in given_batches
    )
    written, sets = assign_offsets(
        data, next_offset, leader_epoch=epoch, now=NOW, log_append_time=has_append_time,
        has_record_offset=has_record_offset,
    )
    assert len(written) == len(data)
    assert len(sets) == sets.count == sets.batch_count == len(given_batches)
    offset = next_offset
    fields = zip(given_batches, sets.headers, sets.fields(), strict=True)
    for (stamps, codec), header, (size, first, last, largest, offset_of_max) in fields:
        position = int(header["position"])
        found = RecordBatch(bytes(written[position : position + size]), position)
        found.verify()
        assert (found.leader_epoch, found.codec) == (epoch, codec)
        records = found.records()
        expected = [NOW] * len(stamps) if has_append_time else stamps
        assert [record.timestamp for record in records] == expected
        assert [record.offset for record in records] == list(range(first, last + 1))
        assert [record.value for record in records] == [b"v" * n for n in range(len(stamps))]
        assert first == offset
        assert largest == found.max_timestamp == max(expected)
        exact = has_record_offset and not has_append_time and codec == Codec.NONE
        reached = expected.index(largest) if largest >= 0 else 0
        assert offset_of_max == (first + reached if exact else last)
        assert bytes(header) == bytes(found.header["position"]) + bytes(header)[8:]
        offset = last + 1


@given(st.lists(st.tuples(timestamps, st.integers(0, 5)), max_size=5), st.integers(0, 60))
def test_a_follower_s_complete_batches_are_one_set(parts, torn):
    data, offset, complete = b"", 0, []
    for stamps, gap in parts:
        built = batch(offset + gap, stamps, leader_epoch=len(complete))
        data += built
        complete.append((offset + gap, len(built), stamps))
        offset += gap + len(stamps)
    tail = batch(offset, [1])[:torn]
    sets, size = keep_offsets(data + tail, 0)
    assert size == len(data)
    assert sets.batch_count == len(parts)
    assert sets.epoch_starts(-1) == [(n, first) for n, (first, _, _) in enumerate(complete)]
    assert sets.epoch_starts(0) == sets.epoch_starts(-1)[1:]
    if not parts:
        assert sets.fields() == []
        return
    largest = max(max(stamps) for _, _, stamps in complete)
    reached = next(
        (first + len(stamps) - 1 for first, _, stamps in complete if max(stamps) == largest >= 0),
        -1,
    )
    assert sets.fields() == [(len(data), complete[0][0], offset - 1, largest, reached)]
    assert (sets.reported_first_offset(), sets.last_offset(0)) == (complete[0][0], offset - 1)


def test_a_set_that_is_not_there_is_an_index_error():
    sets, _ = keep_offsets(b"", 0)
    for index in (0, -1):
        with pytest.raises(IndexError):
            sets.last_offset(index)


def test_cut_flipped_and_random_bytes_are_taken_or_refused():
    rng = random.Random(8)
    kinds = [(magic, codec) for magic in (1, 2) for codec in (Codec.NONE, Codec.LZ4)]
    singles = [
        batch(3 * number, [NOW, NOW + 1], codec=codec, magic=magic)
        for number, (magic, codec) in enumerate(kinds)
    ]
    complete = b"".join(singles)
    inputs = [complete[:end] for end in range(len(complete))]
    inputs += [rng.randbytes(rng.randrange(200)) for _ in range(500)]
    for single in singles[2:]:
        for at in range(len(single)):
            flipped = bytearray(single)
            flipped[at] ^= 1 << rng.randrange(8)
            # After a right or a wrong checksum.
            inputs += [bytes(flipped), with_right_crc(bytes(flipped))]
    taken = refused = 0
    for data in inputs:
        for work in (
            lambda data: keep_offsets(data, 0),
            lambda data: assign_offsets(data, 5, leader_epoch=1, now=NOW),
        ):
            try:
                work(data)
                taken += 1
            except KafkaStoreError:
                refused += 1
    assert taken > 300
    assert refused > 300


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_records_with_false_offsets_or_counts_are_refused(codec):
    complete = bytearray(batch(0, [NOW, NOW, NOW], codec=codec))
    for at, value in ((57, 2), (23, 5)):
        lying = bytearray(complete)
        lying[at : at + 4] = value.to_bytes(4, "big")
        with pytest.raises(InvalidRecordError):
            assign_offsets(with_right_crc(bytes(lying)), 0, leader_epoch=0, now=NOW)
    short = bytearray(complete)
    short[57:61], short[23:27] = (2).to_bytes(4, "big"), (1).to_bytes(4, "big")
    with pytest.raises(CorruptBatchError):
        assign_offsets(with_right_crc(bytes(short)), 0, leader_epoch=0, now=NOW)
