"""Kafka's own tests of segments and of loading a log, and their counterparts here for reading.

The names are those of Kafka 2.4.0 and of its development in 2024; what they mean for a reader is
what counts. What a broker deletes at its start is reported here and kept.
"""

import random

import pytest
from models.iteration import until_error
from models.kafka_test_cases import names_of_tests
from models.log_directory import Log, Segment
from models.record_format import Batch, Row, marker

import kafkastore
from kafkastore import CorruptBatchError, LogSegment
from kafkastore.log.log_view import BoundSource

HERE = "log/test_kafka_test_cases_of_loading.py"
LOADING = "log/test_loading.py"
LOG = "log/test_partition_log.py"
STORE = "log/test_log_store.py"
LIVE = "log/test_live_log.py"
GOLDEN = "log/test_golden_loading.py"
SEGMENT = "segment/test_log_segment.py"
NAMES = "formats/test_file_names.py"

READS = "test_an_offset_is_read_from_the_first_batch_that_ends_at_or_after_it"
REFUSED_NAME = "test_a_name_that_stops_a_brokers_start_is_refused"

#: Kafka's test -> its counterparts: file and name.
COVERED = {
    "LogSegmentTest.testReadOnEmptySegment": (
        SEGMENT, "test_an_empty_segment_has_nothing_to_read"),
    "LogSegmentTest.testReadBeforeFirstOffset": (SEGMENT, READS),
    "LogSegmentTest.testReadAfterLast": (SEGMENT, READS),
    "LogSegmentTest.testReadFromGap": (SEGMENT, READS),
    "LogSegmentTest.testReadWhenNoMaxPosition": (
        HERE, "test_a_bound_at_or_below_the_start_gives_nothing"),
    "LogSegmentTest.testFindOffsetByTimestamp": (SEGMENT, "test_a_time_is_found_in_its_segment"),
    "LogSegmentTest.testNextOffsetCalculation": (
        SEGMENT, "test_the_next_offset_is_after_the_last_batch"),
    "LogSegmentTest.shouldTruncateEvenIfOffsetPointsToAGapInTheLog": (
        HERE, "test_a_log_that_was_cut_in_a_gap_ends_before_it"),
    "LogLoaderTest.testBogusIndexSegmentsAreRemoved": (
        LOADING, "test_leftovers_are_skipped_and_reported_with_what_a_start_does"),
    "LogLoaderTest.testOpenDeletesObsoleteFiles": (
        LOADING, "test_leftovers_are_skipped_and_reported_with_what_a_start_does"),
    "LogLoaderTest.testCorruptLog": (
        HERE, "test_noise_after_log_and_indexes_leaves_the_records_before_it"),
    "LogLoaderTest.testOverCompactedLogRecovery": (
        HERE, "test_offsets_far_apart_are_read_from_two_segments"),
    "LogLoaderTest.testRecoveryAfterCrashDuringSplitPhase1": (
        LOADING,
        "test_a_crash_at_any_rename_of_a_replacement_neither_loses_nor_repeats_records"),
    "LogCleanerTest.testRecoveryAfterCrash": (
        LOADING,
        "test_a_crash_at_any_rename_of_a_replacement_neither_loses_nor_repeats_records"),
    "LogLoaderTest.testLogEndLessThanStartAfterReopen": (
        HERE, "test_a_log_that_ends_before_its_start_is_empty_and_reports_it"),
    "LogLoaderTest.testRecoverWithEmptyActiveSegment": (
        HERE, "test_an_empty_active_segment_without_indexes_ends_the_log_at_its_base"),
    "LogLoaderTest.testCleanShutdownFile": (STORE, "test_marks_of_a_broker_are_read"),
    "LogTest.testParseTopicPartitionName": (
        NAMES, "test_a_partition_directory_is_split_at_its_last_dash"),
    "LogTest.testParseTopicPartitionNameWithPeriodForDeletedTopic": (
        NAMES, "test_text_after_the_last_dot_of_a_marked_directory_is_removed"),
    "LogTest.testParseTopicPartitionNameForEmptyName": (NAMES, REFUSED_NAME),
    "LogTest.testParseTopicPartitionNameForMissingSeparator": (NAMES, REFUSED_NAME),
    "LogTest.testParseTopicPartitionNameForMissingTopic": (NAMES, REFUSED_NAME),
    "LogTest.testParseTopicPartitionNameForMissingPartition": (NAMES, REFUSED_NAME),
    "LogTest.testParseTopicPartitionNameForInvalidPartition": (NAMES, REFUSED_NAME),
    "LogTest.testParseTopicPartitionNameForExistingInvalidDir": (NAMES, REFUSED_NAME),
    "LogTest.testLogDeleteDirName": (NAMES, "test_the_topic_of_a_delete_directory_may_be_cut"),
    "LogTest.testOffsetFromFile": (NAMES, "test_a_segment_file_has_base_offset_type_and_state"),
    "LogTest.testReadOutOfRange": (HERE, "test_offsets_out_of_range_give_no_records"),
    "LogTest.testReadAtLogGap": (
        LOG, "test_gaps_between_segments_and_batches_are_skipped"),
    "LogTest.testReadWithMinMessage": (
        GOLDEN, "test_reads_from_any_offset_begin_with_the_first_remaining_record"),
    "LogTest.testLoadPartitionDirWithNoSegmentsShouldNotThrow": (
        LOG, "test_a_partition_without_segments_is_empty"),
    "LogTest.testFetchUpToLogEndOffset": (HERE, "test_reads_end_at_the_requested_bound"),
    "LogTest.testFetchUpToHighWatermark": (HERE, "test_reads_end_at_the_requested_bound"),
    "LogTest.testFetchUpToLastStableOffset": (
        HERE, "test_reads_end_at_the_requested_bound"),
    "LogTest.testLastStableOffsetWithMixedProducerData": (
        LOADING, "test_bounds_are_those_of_the_model"),
    "LogTest.testLastStableOffsetDoesNotExceedLogStartOffsetMidSegment": (
        HERE, "test_the_last_stable_offset_is_not_below_the_log_start"),
    "LogTest.testFirstUnstableOffsetNoTransactionalData": (
        LOADING, "test_bounds_are_those_of_the_model"),
    "LogTest.testFirstUnstableOffsetWithTransactionalData": (
        LOADING, "test_bounds_are_those_of_the_model"),
    "LogOffsetTest.testFetchOffsetsBeforeWithChangingSegments": (
        LIVE, "test_readers_next_to_a_broker_that_alters_everything_get_true_records"),
    "LogManagerTest.testLoadLogsSkipRemoteIndexCache": (
        STORE, "test_directories_that_are_not_partitions_are_skipped_and_reported"),
}

#: Kafka's test -> why it has no counterpart here.
SKIPPED = {
    "LogTest.testParseTopicPartitionNameForNull": "a name is always a str",
    "LogTest.testReadWithTooSmallMaxLength": "a read has no limit of bytes",
}


@pytest.mark.parametrize("name", COVERED)
def test_counterparts_of_kafka_s_tests_exist(name):
    path, function = COVERED[name]
    assert function in names_of_tests(path)
    assert name not in SKIPPED


def batches(*offsets):
    return tuple(Batch((Row(offset, 10 * offset, b"k", b"v%d" % offset),)) for offset in offsets)


@pytest.fixture
def opened(tmp_path):
    """A function that writes a model log and opens it."""

    def write_and_open(log):
        (found,) = kafkastore.open(log.write(tmp_path / "logs"))
        return found

    return write_and_open


def offsets(records):
    return [record.offset for record in records]


@pytest.mark.parametrize("end", [50, 49, 0, -1])
def test_a_bound_at_or_below_the_start_gives_nothing(opened, end):
    log = opened(Log((Segment(40, batches(50, 51, 52)).indexed(),)))
    assert offsets(log.records(50, end)) == []
    assert list(log.batches(50, end)) == []
    assert offsets(log.records(50, 52)) == [50, 51]


def test_a_log_that_was_cut_in_a_gap_ends_before_it(tmp_path):
    """Kafka: offset 40, a gap, 43; cut at 41."""
    Segment(40, batches(40, 43)).indexed().write(tmp_path)
    first = LogSegment(tmp_path, 40)
    position = first.translate_offset(41).position
    with open(first.log_path, "r+b") as file:
        file.truncate(position)
    cut = LogSegment(tmp_path, 40)
    assert cut.next_offset == 41
    assert cut.translate_offset(41) is None


def test_noise_after_log_and_indexes_leaves_the_records_before_it(opened):
    """Kafka: random bytes after the active segment's log and index, many times."""
    source, sound = random.Random(5), Segment(0, batches(*range(40))).indexed(interval=100)
    log = opened(Log((sound,)))
    files = {path: path.read_bytes() for path in log.path.iterdir()}
    for _ in range(50):
        for path, data in files.items():
            path.write_bytes(data + source.randbytes(source.randrange(100)))
        log.refresh()
        found, error = until_error(log.records())
        assert [record.value for record in found] == [b"v%d" % each for each in range(40)]
        assert error is None or isinstance(error, CorruptBatchError | kafkastore.CorruptionError)
        assert error is None or error.position >= len(sound.log)
        assert offsets(log.records(25, 30)) == list(range(25, 30))


FAR = 2**31


def test_offsets_far_apart_are_read_from_two_segments(opened):
    """Kafka: offsets 0, 2^31 + 1, + 2, + 3 make two segments."""
    log = opened(
        Log((
            Segment(0, batches(0)).indexed(),
            Segment(FAR + 1, batches(FAR + 1, FAR + 2, FAR + 3)).indexed(),
        ))
    )
    wanted = [0, FAR + 1, FAR + 2, FAR + 3]
    assert offsets(log.records()) == wanted
    assert offsets(log.records(1)) == wanted[1:]
    assert log.log_end_offset == FAR + 4
    for segment in log.segments:
        assert segment.offset_index.last_entry.offset >= segment.base_offset


def test_offsets_that_no_index_can_hold_are_read_from_one_segment(opened):
    """A segment that brokers before 1.1.1 (KAFKA-6264) wrote, and newer ones split."""
    log = opened(Log((Segment(0, batches(0, FAR + 1, FAR + 2), offset_index=None),)))
    assert offsets(log.records(5)) == [FAR + 1, FAR + 2]
    assert log.segments[0].translate_offset(FAR + 2).offset == FAR + 2
    assert log.log_end_offset == FAR + 3


def test_a_log_that_ends_before_its_start_is_empty_and_reports_it(opened):
    log = opened(Log((Segment(0, batches(0, 1, 2)),), checkpointed_start=50))
    bounds = log.explain_bounds()
    assert [bound.offset for bound in bounds] == [50, 50, 50, 50]
    assert bounds.log_end_offset.source is BoundSource.LOG_START
    assert offsets(log.records()) == []


def test_an_empty_active_segment_without_indexes_ends_the_log_at_its_base(opened):
    empty = Segment(7, (), offset_index=None, time_index=None)
    log = opened(Log((Segment(0, batches(0, 1)).indexed(), empty)))
    assert log.log_end_offset == 7
    assert log.segments[-1].offset_index is None
    assert offsets(log.records()) == [0, 1]
    assert [note.path.name[:20] for note in log.missing_indexes] == [f"{7:020}"] * 2


def test_offsets_out_of_range_give_no_records(opened):
    """Kafka refuses them with OffsetOutOfRange; here a start below the log is the log's."""
    log = opened(Log((Segment(1024, batches(1024, 1025)),)))
    assert offsets(log.records(1026)) == offsets(log.records(2**62)) == []
    assert offsets(log.records(0)) == [1024, 1025]
    assert offsets(log.records(0, 1024)) == []


def transactional(offset, producer):
    return Batch((Row(offset, 5, b"k", b"v"),), producer_id=producer, producer_epoch=0,
                 is_transactional=True)


OPEN_AT_4 = (
    *batches(0), transactional(1, 7), marker(2, 5, producer_id=7), *batches(3), transactional(4, 8),
    *batches(5),
)


def test_reads_end_at_the_requested_bound(opened):
    log = opened(Log((Segment(0, OPEN_AT_4),)))
    assert offsets(log.records(0, log.log_end_offset)) == [0, 1, 3, 4, 5]
    watermark = log.explain_bounds(4).high_watermark.offset
    assert offsets(log.records(0, watermark)) == [0, 1, 3]
    assert log.last_stable_offset == 4
    assert log.explain_bounds().last_stable_offset.source is BoundSource.OPEN_TRANSACTION
    assert offsets(log.records(isolation="read_committed")) == [0, 1, 3]


@pytest.mark.parametrize(
    ("high_watermark", "stable"), [(6, 4), (5, 4), (4, 4), (3, 3), (2, 1), (1, 1), (0, 0)]
)
def test_a_transaction_whose_marker_is_not_replicated_is_undecided(opened, high_watermark, stable):
    log = opened(Log((Segment(0, OPEN_AT_4),)))
    assert log.explain_bounds(high_watermark).last_stable_offset.offset == stable


def test_the_last_stable_offset_is_not_below_the_log_start(opened):
    log = opened(Log((Segment(0, OPEN_AT_4),), checkpointed_start=5))
    assert log.last_stable_offset == 5
    assert log.explain_bounds().last_stable_offset.source is BoundSource.LOG_START
