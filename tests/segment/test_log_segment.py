"""One segment: answers are right with any index files."""

import os
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from models.log_directory import Segment
from models.record_format import GZIP, Batch, Row, emptied, marker
from models.record_strategies import bounded, segments
from models.segment_indexes import pack_offset_entries, pack_time_entries

from kafkastore import LogSegment
from kafkastore.errors import CorruptBatchError
from kafkastore.segment.log_segment import SegmentSummary

BASE = 40


def record_sets(*offsets, time=lambda offset: 10 * offset, **fields):
    """One batch for each tuple of offsets."""
    return tuple(
        Batch(tuple(Row(offset, time(offset), b"k", b"v") for offset in each), **fields)
        for each in offsets
    )


@pytest.fixture
def written(tmp_path):
    """A function that writes a model segment and opens it."""

    def write(segment, next_base_offset=None):
        segment.write(tmp_path)
        return LogSegment(tmp_path, segment.base_offset, next_base_offset)

    return write


def position_before(segment, target_offset):
    with segment.open_log() as log:
        return segment.position_before(target_offset, log)


def test_an_empty_segment_has_nothing_to_read(written):
    segment = written(Segment(BASE, ()))
    assert segment.translate_offset(BASE) is None
    assert segment.next_offset == BASE
    assert segment.largest_record_timestamp() is None
    assert segment.find_offset_by_timestamp(0, 0) is None
    assert segment.summary == SegmentSummary(0, 0, frozenset(), BASE, None, None)


# A requested offset, and the last offset of the batch it is found in (Kafka's LogSegmentTest).
READS = {
    "before the first offset": (41, 51),
    "the first offset": (50, 51),
    "a last offset": (51, 51),
    "in a gap": (55, 61),
    "the last offset": (61, 61),
    "past the last offset": (62, None),
}


@pytest.mark.parametrize(("target", "wanted"), READS.values(), ids=READS)
@pytest.mark.parametrize("interval", [0, 10_000])
def test_an_offset_is_read_from_the_first_batch_that_ends_at_or_after_it(
    written, target, wanted, interval
):
    batches = record_sets((50, 51), (60, 61))
    segment = written(Segment(BASE, batches).indexed(interval=interval))
    found = segment.translate_offset(target)
    assert (found and found.offset) == wanted


def test_the_next_offset_is_after_the_last_batch(written):
    segment = written(Segment(BASE, record_sets((50, 51, 52))).indexed())
    assert segment.next_offset == segment.summary.next_offset == 53


# The cases of Kafka's LogSegmentTest.testFindOffsetByTimestamp.
TIMES = {420: 42, 421: 43, 430: 43, 431: 44, 491: None, 401: 41, 399: 40}


@pytest.mark.parametrize(("target", "offset"), TIMES.items())
@pytest.mark.parametrize("state", ["indexed", "recovered", "without indexes"])
def test_a_time_is_found_in_its_segment(written, target, offset, state):
    segment = Segment(BASE, record_sets(*[(offset,) for offset in range(40, 50)]))
    segment = {
        "indexed": segment.indexed(interval=100),
        "recovered": segment.recovered(100),
        "without indexes": replace(segment, offset_index=None, time_index=None),
    }[state]
    opened = written(segment)
    assert opened.largest_record_timestamp() == 490
    found = opened.find_offset_by_timestamp(target, 0)
    assert (found and found.offset) == offset


def test_the_starting_offset_is_inclusive(written):
    opened = written(Segment(BASE, record_sets((40, 41), (42, 43))).indexed())
    assert opened.find_offset_by_timestamp(0, 41) == (410, 41, 0)
    assert opened.find_offset_by_timestamp(0, 42) == (420, 42, 0)
    assert opened.find_offset_by_timestamp(0, 44) is None


def test_the_epoch_is_none_where_the_batch_has_none(written):
    batches = record_sets((40,), leader_epoch=-1) + record_sets((41,), leader_epoch=9)
    opened = written(Segment(BASE, batches))
    assert opened.find_offset_by_timestamp(400, 0) == (400, 40, None)
    assert opened.find_offset_by_timestamp(410, 0) == (410, 41, 9)


def test_a_marker_is_never_found(written):
    batches = (*record_sets((40,)), marker(41, 9999), *record_sets((42,)))
    opened = written(Segment(BASE, batches).indexed())
    assert opened.largest_record_timestamp() == 9999
    assert opened.find_offset_by_timestamp(405, 0) == (420, 42, 0)
    assert opened.find_offset_by_timestamp(421, 0) is None


def test_the_summary_covers_every_batch(written):
    batches = (
        *record_sets((40,), magic=0),
        *record_sets((41,), magic=1),
        *record_sets((42, 43), magic=1, codec=GZIP),
        *record_sets((44, 45)),
        emptied(46, 49, 999),
    )
    segment = Segment(BASE, batches, tail=record_sets((50,))[0].data[:-1])
    summary = written(segment).summary
    assert summary == SegmentSummary(
        len(segment.log) - len(segment.tail), 5, frozenset({0, 1, 2}), 50, 999, None
    )


def test_the_summary_reports_where_bytes_are_broken(written):
    segment = Segment(BASE, record_sets((40,)), tail=b"\xff" * 100)
    summary = written(segment).summary
    assert summary.valid_bytes == len(segment.log) - 100
    assert summary.next_offset == 41
    assert summary.error.position == summary.valid_bytes


@pytest.mark.parametrize("timestamp", [-1, -5])
def test_a_segment_without_timestamps_has_no_largest_one(written, timestamp):
    opened = written(Segment(BASE, record_sets((40,), time=lambda _: timestamp)).indexed())
    assert opened.largest_record_timestamp() is None


def test_timestamp_0_is_a_largest_timestamp(written):
    opened = written(Segment(BASE, record_sets((40,), time=lambda _: 0)).indexed())
    assert opened.largest_record_timestamp() == 0


def test_files_are_described_without_being_read(written):
    segment = Segment(BASE, record_sets((40,)), modified_ms=1_234_567_890_123)
    opened = written(replace(segment, time_index=None), next_base_offset=50)
    assert opened.size == len(segment.log)
    assert opened.last_modified_ms == 1_234_567_890_123
    assert opened.last_modified_ns == 1_234_567_890_123_000_000
    assert opened.log_path.name == "00000000000000000040.log"
    assert (opened.is_active, opened.next_base_offset) == (False, 50)
    assert opened.time_index is None
    assert opened.offset_index.entry_count == 0
    assert written(segment).is_active


def test_modification_times_are_cut_to_milliseconds_as_a_broker_does(written):
    opened = written(Segment(BASE, ()))
    os.utime(opened.log_path, ns=(0, 1_999_999))
    assert opened.last_modified_ms == 1


LOG_OF_FIVE = Segment(BASE, record_sets((40,), (41, 42), (43,), (44, 45), (46,)))
PLACES = [position for position, _ in LOG_OF_FIVE.placed]
# Offset index entries, and where a search for offset 44 may begin by them: at the one before that
# of offset 44, if both are there.
LAST = (44, PLACES[3])
ENTRIES = {
    "last offset of a batch": ([(42, PLACES[1]), LAST], PLACES[1]),
    "first offset of a batch": ([(43, PLACES[2]), LAST], PLACES[2]),
    "a follower's entry": ([(43, PLACES[1]), LAST], PLACES[1]),
    "only one": ([LAST], 0),
    "a position before that is no batch": ([(43, PLACES[2] + 1), LAST], 0),
    "a later batch before that": ([(43, PLACES[4]), LAST], 0),
    "a negative position before that": ([(43, -5), LAST], 0),
    "a position that is no batch": ([(43, PLACES[2] + 1)], 0),
    "a position past the end": ([(43, 10**6)], 0),
    "the end": ([(43, len(LOG_OF_FIVE.log))], 0),
    "a negative position": ([(43, -5)], 0),
    "a later batch than its offset": ([(43, PLACES[4])], 0),
    "an offset past the target": ([(45, PLACES[3])], 0),
    "a negative offset": ([(30, PLACES[1])], 0),
    "nothing": ([], 0),
    "entries out of order": ([(46, PLACES[4]), (43, PLACES[2])], 0),
}


@pytest.mark.parametrize(("entries", "position"), ENTRIES.values(), ids=ENTRIES)
def test_an_offset_index_entry_is_used_only_where_it_fits_the_log(written, entries, position):
    opened = written(replace(LOG_OF_FIVE, offset_index=pack_offset_entries(entries, BASE)))
    assert position_before(opened, 44) == position
    assert opened.translate_offset(44).offset == 45
    assert opened.next_offset == 47


WRAPPERS = Segment(BASE, record_sets((40, 41), (42, 44), (45, 46), magic=1, codec=GZIP))


def test_an_entry_for_a_wrapper_is_checked_by_its_first_offset(written):
    places = [position for position, _ in WRAPPERS.placed]
    for place, begins in ((places[1], places[1]), (places[2], 0)):
        opened = written(
            replace(
                WRAPPERS, offset_index=pack_offset_entries([(44, place), (46, places[2])], BASE)
            )
        )
        assert position_before(opened, 46) == begins
        assert opened.translate_offset(44).offset == 44


# Time index entries for a log whose batches have the maxima 400, 420, 430, 450, 460.
TIME_ENTRIES = {
    "right": ([(420, 42), (460, 46)], True),
    "without its last": ([(420, 42)], True),
    "an exact offset": ([(450, 45)], True),
    "an offset within a batch": ([(450, 44)], True),
    "too low": ([(420, 42), (459, 46)], False),
    "too high": ([(420, 42), (461, 46)], False),
    "an offset past the log": ([(460, 47)], False),
    "timestamps that fall": ([(460, 46), (420, 42)], False),
    "offsets that fall": ([(420, 46), (460, 42)], False),
    "a first entry that is too low": ([(399, 40), (460, 46)], False),
    "nothing": ([], False),
    "zeros": ([(0, 40)], False),
}


@pytest.mark.parametrize(("entries", "is_believed"), TIME_ENTRIES.values(), ids=TIME_ENTRIES)
def test_a_time_index_is_believed_only_where_it_fits_the_log(written, entries, is_believed):
    opened = written(replace(LOG_OF_FIVE, time_index=pack_time_entries(entries, BASE)))
    assert (opened.largest_timestamp_by_index is not None) == is_believed
    assert opened.largest_record_timestamp() == 460
    for target in range(395, 465):
        found = opened.find_offset_by_timestamp(target, 0)
        wanted = max(40, -(-target // 10))
        assert (found and found.offset) == (wanted if wanted <= 46 else None), target


def test_an_index_that_a_broker_began_again_is_not_believed(written):
    """A broker that lacks the time index of its active segment begins an empty one."""
    batches = record_sets((40,), (41,), (42,), (43,), time=lambda offset: 900 - 10 * offset)
    segment = Segment(BASE, batches)
    opened = written(segment.indexed(from_batch=2))
    assert opened.largest_timestamp_by_index is None
    assert opened.largest_record_timestamp() == 500
    assert opened.find_offset_by_timestamp(495, 0) == (500, 40, 0)


def test_garbage_after_the_batches_hides_nothing(written):
    opened = written(replace(LOG_OF_FIVE, tail=b"\xff" * 200).indexed())
    assert opened.next_offset == 47
    assert isinstance(opened.end_error, CorruptBatchError)
    for indexes in ("trust", "check"):
        with pytest.raises(CorruptBatchError):
            opened.largest_record_timestamp(indexes)
    assert opened.may_reach(10**15)
    assert opened.find_offset_by_timestamp(460, 0) == (460, 46, 0)


@bounded(120)
@given(segments(first_offset=BASE, magics=(0, 1, 2)))
def test_random_segments_are_summed_up_rightly_with_any_indexes(segment):
    with tempfile.TemporaryDirectory() as directory:
        segment.write(Path(directory))
        opened = LogSegment(Path(directory), BASE)
        largest = max([-1, *(batch.max_timestamp for batch in segment.batches)])
        assert opened.largest_record_timestamp() == (largest if largest >= 0 else None)
        ends = [batch.last_offset + 1 for batch in segment.batches]
        assert opened.next_offset == opened.summary.next_offset == max([BASE, *ends])
        assert opened.summary.batch_count == len(segment.batches)
        for target in range(BASE - 1, opened.next_offset + 2):
            wanted = next(
                ((batch.last_offset, position) for position, batch in segment.placed
                 if batch.last_offset >= target), None
            )
            found = opened.translate_offset(target)
            assert (found and found[:2]) == wanted
            assert position_before(opened, target) in {0, *(at for at, _ in segment.placed)}


@bounded(120)
@given(
    segments(first_offset=BASE, magics=(0, 1, 2), states=("closed", "recovered")),
    st.randoms(use_true_random=False),
)
def test_corrupt_indexes_never_lead_astray(segment, source):
    places = [position for position, _ in segment.placed] or [0]
    offsets = [batch.last_offset - BASE for batch in segment.batches] or [0]
    damaged = replace(
        segment,
        offset_index=damage(segment.offset_index, 8, places, source),
        time_index=damage(segment.time_index, 12, offsets, source),
    )
    records = [
        (record[1], record[0], record[6])
        for batch in segment.batches
        if not batch.is_control
        for record in batch.records
    ]
    with tempfile.TemporaryDirectory() as directory:
        damaged.write(Path(directory))
        opened = LogSegment(Path(directory), BASE)
        for target in range(42):
            wanted = next((record for record in records if record[0] >= target), None)
            assert opened.find_offset_by_timestamp(target, 0) == wanted, target


def damage(data, entry_size, plausible, source):
    """Up to three slots removed, zeroed, or changed: any byte, or a plausible last number."""
    data = bytearray(data)
    for _ in range(source.randrange(1, 4)):
        if not data:
            break
        slot = source.randrange(len(data)) // entry_size * entry_size
        entry = data[slot : slot + entry_size]
        entry[source.randrange(entry_size)] = source.randrange(256)
        likely = data[slot : slot + entry_size - 4] + source.choice(plausible).to_bytes(4, "big")
        data[slot : slot + entry_size] = source.choice([b"", bytes(entry_size), entry, likely])
    return bytes(data)
