"""The active segment's files: the cases of Kafka's LogSegmentTest."""

import pytest

from kafkastore import LogSegment, Record, TimestampType
from kafkastore.formats.records.append_sets import keep_offsets
from kafkastore.formats.records.record_builder import build_batch
from kafkastore.fs import FileSystem
from kafkastore.segment.segment_writer import SegmentLimits, SegmentWriter

LIMITS = SegmentLimits(
    segment_bytes=1 << 30, roll_ms=300_000, segment_index_bytes=1000, index_interval_bytes=10
)


@pytest.fixture
def create(tmp_path):
    """A function of limits: a new segment with base offset 40."""
    made = []

    def create_one(**limits):
        options = LIMITS._replace(**limits)
        made.append(SegmentWriter.create(tmp_path, 40, options, now=0, fs=FileSystem()))
        return made[-1]

    yield create_one
    for writer in made:
        writer.close_files()


def batch(*offsets, timestamp=-1):
    records = [
        Record(offset, timestamp, TimestampType.CREATE_TIME, b"k", b"hello", (), None)
        for offset in offsets
    ]
    return build_batch(records)


def append(writer, *offsets, timestamp=-1, now=0):
    """Whether the segment took the set."""
    data = batch(*offsets, timestamp=timestamp)
    sets, _ = keep_offsets(data, 0)
    return writer.append(memoryview(data), sets, now=now) == 1


def offsets_in(writer):
    with LogSegment(writer.directory, writer.base_offset).open_log() as log:
        return [record.offset for found in log.batches() for record in found.records()]


def sizes(writer):
    return {path.suffix: path.stat().st_size for path in writer.directory.iterdir()}


def test_a_new_segment_has_indexes_of_full_size(create):
    writer = create()
    assert sizes(writer) == {".log": 0, ".index": 1000, ".timeindex": 996}
    assert (writer.size, writer.largest_timestamp) == (0, -1)


def test_the_last_message_is_cut_off_again_and_again(create):
    writer = create()
    for offset in range(40, 70):
        append(writer, offset)
        append(writer, offset + 1)
        writer.truncate_to(offset + 1, now=0)
        assert offsets_in(writer) == list(range(40, offset + 1))


def test_a_segment_that_is_emptied_is_as_new(create):
    writer = create()
    append(writer, 40, 41)
    assert not append(writer, 42, now=300_001)
    writer.truncate_to(0, now=500)
    assert sizes(writer) == {".log": 0, ".index": 1000, ".timeindex": 996}
    assert append(writer, 40, 41, now=900_000)
    assert append(writer, 42, now=300_500)
    assert not append(writer, 43, now=300_501)
    assert not append(writer, 40 + 2**31)


def test_a_segment_that_was_closed_empty_is_not_full_when_it_is_opened(create, tmp_path):
    writer = create()
    writer.trim()
    writer.close_files()
    assert sizes(writer) == {".log": 0, ".index": 0, ".timeindex": 0}
    again = SegmentWriter.open(tmp_path, 40, LIMITS, now=0, fs=FileSystem())
    again.truncate_to(57, now=500)
    assert append(again, 57, now=10_000_000), "an empty segment waits for nothing"
    assert not append(again, 2**31 + 200)
    again.close_files()


def test_a_truncation_in_a_gap_removes_everything_after_it(create):
    writer = create()
    append(writer, 40)
    append(writer, 43)
    writer.truncate_to(41, now=0)
    assert offsets_in(writer) == [40]


def test_a_trimmed_segment_ends_with_its_largest_timestamp(create):
    writer = create(index_interval_bytes=1 << 30)
    for offset, timestamp in ((40, 7), (41, 9), (42, 8)):
        append(writer, offset, timestamp=timestamp)
    writer.trim()
    segment = LogSegment(writer.directory, 40)
    assert segment.time_index.entries().tolist() == [(9, 41)]
    assert segment.offset_index.entry_count == 0


def test_a_reopened_segment_continues_its_indexes(create, tmp_path):
    writer = create()
    for number in range(5):
        append(writer, 40 + number, timestamp=10 * number)
    writer.trim()
    writer.flush()
    writer.close_files()
    again = SegmentWriter.open(tmp_path, 40, LIMITS, now=0, fs=FileSystem())
    assert again.largest_timestamp == 40
    for number in range(5, 8):
        append(again, 40 + number, timestamp=10 * number)
    again.trim()
    again.close_files()
    segment = LogSegment(tmp_path, 40)
    # The first batch after the opening has no entry: the byte count restarts.
    assert [offset for offset, _ in segment.offset_index.entries()] == [41, 42, 43, 44, 46, 47]
    assert [timestamp for timestamp, _ in segment.time_index.entries()] == [10, 20, 30, 40, 60, 70]


def test_existing_files_are_not_overwritten(create):
    create()
    with pytest.raises(FileExistsError):
        create()


def test_closing_twice_closes_once(create):
    writer = create()
    writer.close_files()
    writer.close_files()
