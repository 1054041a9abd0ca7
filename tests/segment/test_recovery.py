"""Indexes rebuilt from logs, compared with those that real brokers rebuilt."""

import random
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from models import record_reader
from models.log_directory import Segment
from models.open_files import open_files
from models.record_format import Batch, Row, emptied, marker, with_right_crc
from models.record_strategies import NEAR_TIMESTAMPS, batches, bounded, in_a_row
from models.segment_indexes import offset_entries_of

import kafkastore
from kafkastore import LogSegment, OffsetOverflowError, OutOfOrderAppendError
from kafkastore.formats.indexes import transaction_index
from kafkastore.formats.records import record_batch
from kafkastore.formats.state.leader_epochs import LeaderEpochs
from kafkastore.formats.state.producer_state import ProducerState
from kafkastore.segment.recovery import rebuild_indexes

FROM_2_0 = ["2.*", "3.*", "4.*"]
UP_TO_1_1 = ["0.*"]
KILLED = ["crash*", "preallocate-killed"]


def version_of(case):
    return tuple(int(part) for part in case.version.split("."))


def recovered_segments(case):
    """(segment of the directory as the broker left it, the same after the broker's recovery)."""
    before, after = kafkastore.open(case.root / "logs"), kafkastore.open(case.logs)
    for log in before:
        if log.topic.startswith("__"):
            continue
        for segment in log.segments:
            ends = segment.next_base_offset
            was_recovered = not log.is_clean and (ends is None or ends > (log.recovery_point or 0))
            if not (was_recovered or segment.offset_index is None):
                continue
            path = after[log.topic_partition].path
            if (path / segment.log_path.name).exists():
                yield segment, LogSegment(path, segment.base_offset, segment.next_base_offset)


def rebuilt(case, segment):
    topic = segment.directory.name.rpartition("-")[0]
    interval = int(case.answers["topic_config"][topic]["index.interval.bytes"])
    return segment.rebuilt_indexes(interval)


@pytest.mark.golden_cases(names=KILLED, answers="answers-recovered")
def test_the_log_ends_where_the_recovering_broker_ended_it(golden_case):
    segments = list(recovered_segments(golden_case))
    assert segments
    for damaged, recovered in segments:
        indexes = rebuilt(golden_case, damaged)
        assert indexes.valid_bytes == recovered.size
        assert indexes == rebuilt(golden_case, recovered)._replace(reason=indexes.reason)
        if recovered.is_active:
            partition = golden_case.answers["partitions"][damaged.directory.name]
            assert indexes.next_offset == partition["log_end_offset"]


@pytest.mark.golden_cases(
    names=[*KILLED, "broken-index-missing-*"], versions=FROM_2_0, answers="answers-recovered"
)
def test_both_indexes_are_those_of_the_recovering_broker(golden_case):
    for damaged, recovered in recovered_segments(golden_case):
        indexes = rebuilt(golden_case, damaged)
        assert indexes.offset_index == recovered.offset_index_path.read_bytes()
        assert indexes.time_index == recovered.time_index_path.read_bytes()


@pytest.mark.golden_cases(
    names=KILLED, versions=["0.10.2.2", "0.11.*"], answers="answers-recovered"
)
def test_time_indexes_are_those_of_the_recovering_broker_from_the_first_on(golden_case):
    for damaged, recovered in recovered_segments(golden_case):
        assert rebuilt(golden_case, damaged).time_index == recovered.time_index_path.read_bytes()


@pytest.mark.golden_cases(names=KILLED, versions=UP_TO_1_1, answers="answers-recovered")
def test_offset_indexes_up_to_1_1_have_the_first_offset_of_each_batch_instead(golden_case):
    for damaged, recovered in recovered_segments(golden_case):
        entries = offset_entries_of(
            rebuilt(golden_case, damaged).offset_index, damaged.base_offset
        )
        with recovered.open_log() as log:
            first_offsets = [(log.first_offset_at(position), position) for _, position in entries]
        old = offset_entries_of(recovered.offset_index_path.read_bytes(), damaged.base_offset)
        assert old == first_offsets


@pytest.fixture
def rebuild(tmp_path):
    """A function that rebuilds the indexes of any bytes."""

    def write_and_rebuild(log, base_offset=0, **options):
        path = tmp_path / "0.log"
        path.write_bytes(log)
        return rebuild_indexes(path, base_offset, **options)

    return write_and_rebuild


HUNDRED = in_a_row([Batch((Row(0, 0, b"k", b"v" * 40),))] * 100)
HUNDRED = [Batch((row._replace(timestamp=10 * row.offset),)) for b in HUNDRED for row in b.rows]
SIZE = len(HUNDRED[0].data)
LOG = b"".join(batch.data for batch in HUNDRED)


def test_a_sound_log_is_valid_to_its_end(rebuild):
    indexes = rebuild(LOG)
    assert (indexes.valid_bytes, indexes.next_offset, indexes.reason) == (len(LOG), 100, None)
    assert (indexes.largest_timestamp, indexes.offset_of_max_timestamp) == (990, 99)
    assert len(indexes.offset_index) // 8 == len(offset_entries_of(indexes.offset_index, 0))


@pytest.mark.parametrize(("interval", "entries"), [(1, 99), (2 * SIZE - 1, 49), (10**6, 0)])
def test_one_batch_a_set_gives_as_many_entries_as_a_leader_would(rebuild, interval, entries):
    """As in Kafka's testBuildTimeIndexWhenNotAssigningOffsets: 99 of 100 with interval 1."""
    indexes = rebuild(LOG, index_interval_bytes=interval)
    assert len(indexes.offset_index) // 8 == entries
    wanted = Segment(0, tuple(HUNDRED)).indexed(interval=interval)
    assert indexes.time_index == wanted.time_index
    if interval == 1:
        assert indexes.offset_index == wanted.offset_index


def test_everything_from_a_broken_batch_on_is_cut(rebuild):
    """As in Kafka's LogSegmentTest.testRecoveryWithCorruptMessage, at every batch."""
    source = random.Random(4)
    for number in range(0, 100, 9):
        at = number * SIZE
        garbage = bytearray(LOG[at:])
        for byte in range(source.randrange(17, SIZE), len(garbage)):
            garbage[byte] = source.randrange(256)
        indexes = rebuild(LOG[:at] + bytes(garbage))
        assert (indexes.valid_bytes, indexes.next_offset) == (at, number)
        assert indexes.reason is not None


@pytest.mark.parametrize("byte", [12, 16, 17, 21, 57, SIZE - 1])
def test_a_corrupt_byte_stops_recovery_unless_no_checksum_covers_it(rebuild, byte):
    """Leader epoch and magic: a broker takes any magic above 2 for 2."""
    damaged = bytearray(LOG)
    damaged[50 * SIZE + byte] ^= 1
    indexes = rebuild(bytes(damaged))
    assert indexes.valid_bytes == (len(LOG) if byte in (12, 16) else 50 * SIZE)


@pytest.mark.parametrize("tail", [b"\0", LOG[: SIZE - 1], bytes(10_000)])
def test_a_torn_or_preallocated_tail_is_cut_without_a_reason(rebuild, tail):
    indexes = rebuild(LOG + tail)
    assert (indexes.valid_bytes, indexes.reason) == (len(LOG), None)


def test_records_are_never_parsed(rebuild):
    """A broker's recovery verifies only checksums: nonsense with a right one is kept."""
    nonsense = bytearray(Batch((Row(100, 5, b"k", b"v" * 30),)).data)
    nonsense[61:] = b"\xff" * (len(nonsense) - 61)
    indexes = rebuild(LOG + with_right_crc(bytes(nonsense)))
    assert indexes.next_offset == 101


def test_an_emptied_batch_counts_with_the_timestamp_it_kept(rebuild):
    indexes = rebuild(Batch((Row(0, 5),)).data + emptied(1, 9, 500).data)
    assert (indexes.largest_timestamp, indexes.offset_of_max_timestamp) == (500, 9)
    assert indexes.next_offset == 10


def test_an_offset_that_does_not_fit_the_segment_is_an_error(rebuild):
    with pytest.raises(OffsetOverflowError):
        rebuild(Batch((Row(2**31, 5),)).data)
    with pytest.raises(OffsetOverflowError):
        rebuild(LOG, base_offset=1)


def test_an_empty_log_has_empty_indexes(rebuild):
    indexes = rebuild(b"", base_offset=70)
    assert indexes[:4] == (b"", b"", 0, 70)
    assert (indexes.largest_timestamp, indexes.offset_of_max_timestamp) == (-1, 70)


@bounded(150)
@given(
    st.lists(batches(timestamps=NEAR_TIMESTAMPS), max_size=10),
    st.sampled_from([0, 100, 4096]),
    st.randoms(use_true_random=False),
)
def test_random_logs_are_rebuilt_as_by_the_model(tmp_path_factory, written, interval, source):
    segment = Segment(0, tuple(in_a_row(written)))
    log = bytearray(segment.log)
    if log and source.randrange(2):
        log[source.randrange(len(log))] ^= 1 << source.randrange(8)
    sound = _sound(bytes(log))
    path = tmp_path_factory.mktemp("log") / "0.log"
    path.write_bytes(log)
    try:
        indexes = rebuild_indexes(path, 0, index_interval_bytes=interval)
    except OffsetOverflowError:
        assert any(not 0 <= batch.last_offset < 2**31 for _, batch in sound)
        return
    except OutOfOrderAppendError:
        offsets = [batch.last_offset for _, batch in sound]
        assert offsets != sorted(set(offsets))
        return
    assert indexes.valid_bytes == sum(batch.size for _, batch in sound)
    if len(sound) == len(segment.batches) and bytes(log) == segment.log:
        wanted = segment.recovered(interval)
        assert indexes.offset_index == wanted.offset_index
        assert indexes.time_index == wanted.time_index


def _sound(log):
    """The batches before the first that is broken; a magic above 2 counts as 2."""
    found, at, known = [], 0, bytearray(log)
    while at <= len(log) - 17:
        known[at + 16] = 2 if 2 < log[at + 16] < 128 else log[at + 16]
        at += 12 + max(int.from_bytes(log[at + 8 : at + 12], "big", signed=True), 0)
    for position, data in record_reader.split(bytes(known))[0]:
        if with_right_crc(data) != data:
            break
        found.append((position, record_batch.RecordBatch(data)))
    return found


def test_every_flipped_bit_of_a_frame_is_survived(rebuild):
    """The checksum does not cover the length: with any value, the log just ends there."""
    three = LOG[: 3 * SIZE]
    for bit in range(8 * 8, 17 * 8):
        damaged = bytearray(three)
        damaged[SIZE + bit // 8] ^= 1 << bit % 8
        indexes = rebuild(bytes(damaged))
        assert indexes.valid_bytes in (SIZE, len(three)), bit
        of_leader_epoch = 12 * 8 <= bit < 16 * 8
        of_higher_magic = bit - 16 * 8 in (0, 2, 3, 4, 5, 6)
        assert (indexes.valid_bytes == len(three)) == (of_leader_epoch or of_higher_magic)
        if of_higher_magic:
            assert indexes == rebuild(three)


def test_a_length_that_swallows_the_rest_ends_the_log_there(rebuild):
    damaged = bytearray(LOG)
    damaged[SIZE + 8 : SIZE + 12] = struct.pack(">i", 2**31 - 13)
    indexes = rebuild(bytes(damaged))
    assert (indexes.valid_bytes, indexes.reason) == (SIZE, None)


def test_recovery_keeps_batches_up_to_an_unreadable_marker(rebuild):
    """A broker reads it when it has taken the batch, and stops there."""
    key_too_short = Row(100, 5, b"\0", b"v")
    broken = Batch((key_too_short,), is_control=True, is_transactional=True, producer_id=1)
    next_batch = Batch((Row(101, 5, b"k", b"v"),))
    log = LOG + broken.data + next_batch.data
    indexes = rebuild(log, producers=ProducerState(), index_interval_bytes=1)
    assert (indexes.valid_bytes, indexes.next_offset) == (len(LOG + broken.data), 101)
    assert indexes.reason is not None
    assert len(indexes.offset_index) // 8 == 100
    assert rebuild(log).reason is None  # the producers are not requested


def test_producers_epochs_and_transactions_are_followed_in_the_same_pass(rebuild):
    first = {"producer_epoch": 0, "base_sequence": 0}
    written = [
        Batch((Row(0, 5),), producer_id=3, leader_epoch=1, **first),
        Batch((Row(1, 5),), producer_id=4, is_transactional=True, **first),
        Batch((Row(2, 5, b"k", b"v"),), leader_epoch=6),
        marker(3, 9, is_commit=False, producer_id=4),
        Batch((Row(4, 5),), magic=1),
    ]
    producers, epochs = ProducerState(), LeaderEpochs()
    log = b"".join(batch.data for batch in written)
    indexes = rebuild(log, producers=producers, epochs=epochs)
    assert transaction_index.parse(indexes.transaction_index).tolist() == [(4, 1, 3, 4)]
    assert producers.entries()["producer_id"].tolist() == [3, 4]
    assert [tuple(entry) for entry in epochs.entries] == [(1, 0), (6, 2)]
    assert (indexes.producers_end_offset, indexes.next_offset) == (4, 5)


def test_nothing_of_the_log_is_written_or_kept_open(rebuild, tmp_path):
    rebuild(LOG + b"torn", producers=ProducerState())
    assert open_files(tmp_path) == []
    assert (tmp_path / "0.log").read_bytes() == LOG + b"torn"


@pytest.mark.parametrize("count", [1, 3, 100])
def test_batches_of_higher_magic_are_framed_and_indexed_like_others(rebuild, count):
    damaged = bytearray(LOG)
    for number in random.Random(count).sample(range(100), count):
        damaged[number * SIZE + 16] = 3 + number % 100
    indexes = rebuild(bytes(damaged), index_interval_bytes=300)
    assert indexes == rebuild(LOG, index_interval_bytes=300)
    assert rebuild(bytes(damaged) + LOG[:50]).valid_bytes == len(LOG)
