"""Kafka's own tests of writing, recovering and deleting segments, and their counterparts here.

The names are those of Kafka 2.4.0 and of its development in 2024; those of reading are in
`test_kafka_test_cases_of_loading`, of producers and epochs next to the formats.
"""

import random

import pytest
from models.kafka_test_cases import names_of_tests

import kafkastore
from kafkastore import LogSegment, Record, TimestampType
from kafkastore.formats.records.append_sets import keep_offsets
from kafkastore.formats.records.record_builder import build_batch
from kafkastore.fs import FileSystem
from kafkastore.segment.segment_writer import SegmentLimits, SegmentWriter

HERE = "log/test_kafka_test_cases_of_writing.py"
SEGMENT = "segment/test_segment_writer.py"
ROLLS = "log/test_log_writer_segments.py"
WRITER = "log/test_log_writer.py"
DIRECTORY = "log/test_log_dir_writer.py"
RECOVERY = "log/test_log_recovery.py"
RETENTION = "log/test_retention.py"

FROM_BATCHES = "test_recovery_finds_the_leader_epochs_in_the_batches"
EPOCHS_CUT = "test_the_leader_epochs_are_cut_at_both_ends"

#: Kafka's test -> its counterparts: file and name.
COVERED = {
    "LogSegmentTest.testTruncate": (
        SEGMENT, "test_the_last_message_is_cut_off_again_and_again"),
    "LogSegmentTest.testTruncateEmptySegment": (
        SEGMENT, "test_a_segment_that_was_closed_empty_is_not_full_when_it_is_opened"),
    "LogSegmentTest.testReloadLargestTimestampAndNextOffsetAfterTruncation": (
        HERE, "test_a_truncated_segment_has_its_largest_timestamp_and_next_offset"),
    "LogSegmentTest.testTruncateFull": (SEGMENT, "test_a_segment_that_is_emptied_is_as_new"),
    "LogSegmentTest.testRecoveryFixesCorruptIndex": (
        HERE, "test_recovery_repairs_an_index_of_random_bytes"),
    "LogSegmentTest.testRecoveryFixesCorruptTimeIndex": (
        HERE, "test_recovery_repairs_an_index_of_random_bytes"),
    "LogSegmentTest.testRecoveryWithCorruptMessage": (
        HERE, "test_noise_from_within_a_record_on_leaves_just_those_before_it"),
    "LogSegmentTest.testRecoverTransactionIndex": (
        RECOVERY, "test_aborted_transactions_are_found_again"),
    "LogSegmentTest.testRecoveryRebuildsEpochCache": (RECOVERY, FROM_BATCHES),
    "LogSegmentTest.testCreateWithInitFileSizeAppendMessage": (
        WRITER, "test_a_preallocated_log_has_its_full_size_until_it_is_rolled_or_closed"),
    "LogSegmentTest.testCreateWithInitFileSizeClearShutdown": (
        WRITER, "test_a_preallocated_log_has_its_full_size_until_it_is_rolled_or_closed"),
    "LogSegmentTest.shouldTruncateEvenIfOffsetPointsToAGapInTheLog": (
        SEGMENT, "test_a_truncation_in_a_gap_removes_everything_after_it"),
    "LogSegmentTest.testAppendFromFile": (
        ROLLS, "test_offsets_too_far_apart_for_one_segment_roll_it"),
    "LogLoaderTest.testCorruptLog": (RECOVERY, "test_garbage_after_the_last_batch_is_cut"),
    "LogLoaderTest.testBogusIndexSegmentsAreRemoved": (
        RECOVERY, "test_indexes_without_a_log_go"),
    "LogLoaderTest.testOpenDeletesObsoleteFiles": (
        RECOVERY, "test_files_that_were_being_deleted_are_deleted"),
    "LogLoaderTest.testLogEndLessThanStartAfterReopen": (
        RECOVERY, "test_a_log_that_ends_below_its_start_begins_again_there"),
    "LogLoaderTest.testReopenThenTruncate": (
        DIRECTORY,
        "test_a_truncation_below_the_recovery_point_is_saved_before_any_append"),
    "LogLoaderTest.testRecoverWithEmptyActiveSegment": (
        RECOVERY, "test_an_active_segment_without_indexes_gets_them"),
    "LogLoaderTest.testCleanShutdownFile": (
        RECOVERY, "test_a_clean_log_is_unchanged_for_any_recovery_point"),
    "LogLoaderTest.testLogRecoversForLeaderEpoch": (RECOVERY, FROM_BATCHES),
    "LogLoaderTest.testFullTransactionIndexRecovery": (
        RECOVERY, "test_aborted_transactions_are_found_again"),
    "LogLoaderTest.testRecoverOnlyLastSegment": (
        RECOVERY, "test_segments_are_recovered_from_the_one_with_the_recovery_point_on"),
    "LogLoaderTest.testRecoverLastSegmentWithNoSnapshots": (
        RECOVERY, "test_a_corrupt_snapshot_is_deleted_and_an_older_one_is_used"),
    "LogLoaderTest.testLoadingLogKeepsLargestStrayProducerStateSnapshot": (
        RECOVERY, "test_snapshots_outside_the_log_or_without_a_segment_are_deleted"),
    "LogLoaderTest.testProducerSnapshotsRecoveryAfterUncleanShutdownCurrentMessageFormat": (
        RECOVERY, "test_recovery_takes_snapshots_after_each_segment"),
    "LogLoaderTest.testLeaderEpochCacheClearedAfterStaticMessageFormatDowngrade": (
        WRITER, "test_old_messages_clear_the_epochs"),
    "LogLoaderTest.testLoadProducersAfterDeleteRecordsMidSegment": (
        WRITER, "test_records_are_deleted_up_to_the_high_watermark_and_segments_follow"),
    "LogTest.testTimeBasedLogRoll": (
        ROLLS, "test_a_log_rolls_by_the_wall_clock_where_its_first_batch_has_no_timestamp"),
    "LogTest.testTimeBasedLogRollJitter": (
        ROLLS, "test_jitter_makes_a_segment_roll_earlier_but_not_by_more_than_it"),
    "LogTest.testSizeBasedLogRoll": (
        ROLLS, "test_a_log_rolls_by_size_before_the_segment_grows_too_large"),
    "LogTest.testRollSegmentThatAlreadyExists": (
        ROLLS, "test_rolling_an_empty_segment_does_nothing"),
    "LogTest.testNonSequentialAppend": (
        WRITER, "test_a_follower_keeps_bytes_and_allows_gaps_but_no_decreasing_offsets"),
    "LogTest.testIndexResizingAtTruncation": (
        ROLLS, "test_a_truncated_log_has_indexes_of_full_size_again"),
    "LogTest.shouldDeleteTimeBasedSegmentsReadyToBeDeleted": (
        RETENTION, "test_expired_segments_are_deleted_and_a_new_one_is_rolled"),
    "LogTest.shouldNotDeleteTimeBasedSegmentsWhenNoneReadyToBeDeleted": (
        RETENTION, "test_segments_that_have_not_expired_stay"),
    "LogTest.shouldDeleteSizeBasedSegments": (
        RETENTION, "test_retention_by_size_deletes_full_segments"),
    "LogTest.shouldNotDeleteSizeBasedSegmentsWhenUnderRetentionSize": (
        RETENTION, "test_a_log_under_its_size_keeps_all_segments"),
    "LogTest.shouldNotDeleteSegmentsWhenPolicyDoesNotIncludeDelete": (
        RETENTION, "test_a_compacted_log_loses_nothing_by_time_or_size"),
    "LogTest.shouldDeleteSegmentsReadyToBeDeletedWhenCleanupPolicyIsCompactAndDelete": (
        RETENTION, "test_a_log_both_compacted_and_deleted_loses_segments"),
    "LogTest.shouldDeleteStartOffsetBreachedSegmentsWhenPolicyDoesNotIncludeDelete": (
        RETENTION, "test_a_compacted_log_deletes_segments_below_its_start_since_2_1"),
    "LogTest.testCannotDeleteSegmentsAtOrAboveHighWatermark": (
        RETENTION, "test_no_segment_at_or_above_the_high_watermark_is_deleted"),
    "LogTest.testSegmentDeletionWithHighWatermarkInitialization": (
        RETENTION, "test_no_segment_at_or_above_the_high_watermark_is_deleted"),
    "LogTest.testDeletableSegmentsFilter": (
        RETENTION, "test_one_segment_that_stays_keeps_all_after_it"),
    "LogTest.testDeletableSegmentsIteration": (
        RETENTION,
        "test_rules_agree_with_a_list_that_loses_its_first_segment_again_and_again"),
    "LogTest.testTransactionIndexUpdated": (
        WRITER,
        "test_the_transaction_index_has_aborted_transactions_with_their_last_stable_offsets"),
    "LogTest.testAbortedTransactionSpanningMultipleSegments": (
        WRITER, "test_a_transaction_over_several_segments_is_in_the_index_of_its_marker"),
    "LogTest.testDuplicateAppends": (
        WRITER, "test_an_idempotent_producer_s_duplicates_are_known_and_its_gaps_refused"),
    "LogTest.shouldTruncateLeaderEpochsWhenDeletingSegments": (RECOVERY, EPOCHS_CUT),
    "LogTest.shouldTruncateLeaderEpochCheckpointFileWhenTruncatingLog": (RECOVERY, EPOCHS_CUT),
    "LogTest.shouldUpdateOffsetForLeaderEpochsWhenDeletingSegments": (RECOVERY, EPOCHS_CUT),
    "LogTest.testLeaderEpochCacheClearedAfterDowngradeInAppendedMessages": (
        WRITER, "test_old_messages_clear_the_epochs"),
    "LogTest.testLogRecoversTopicId": (
        DIRECTORY, "test_a_partition_has_a_topic_id_if_the_caller_gives_one"),
    "LogManagerTest.testTwoLogManagersUsingSameDirFails": (
        DIRECTORY, "test_only_one_writer_at_a_time_in_this_process_or_another"),
    "ProducerStateManagerTest.testTakeSnapshot": (
        ROLLS, "test_each_roll_leaves_a_producer_snapshot_and_trimmed_indexes"),
    "ProducerStateManagerTest.testReloadSnapshots": (
        RECOVERY, "test_a_snapshot_is_believed_and_only_what_is_after_it_read"),
    "ProducerStateManagerTest.testRemoveAllStraySnapshots": (
        RECOVERY, "test_snapshots_outside_the_log_or_without_a_segment_are_deleted"),
    "ProducerStateManagerTest.testDeleteSnapshotsBefore": (
        DIRECTORY, "test_a_checkpoint_leaves_the_snapshots_that_a_broker_leaves"),
}


@pytest.mark.parametrize("name", COVERED)
def test_counterparts_of_kafka_s_tests_exist(name):
    path, function = COVERED[name]
    assert function in names_of_tests(path)


def batch(offset, timestamp, value=b"hello"):
    return build_batch(
        [Record(offset, timestamp, TimestampType.CREATE_TIME, b"k", value, (), None)]
    )


@pytest.fixture
def segment(tmp_path):
    """A segment of base offset 40 that gets an entry with every other batch."""
    interval = 2 * len(batch(40, 400)) - 1
    limits = SegmentLimits(
        segment_bytes=1 << 30, roll_ms=300_000, segment_index_bytes=1000,
        index_interval_bytes=interval,
    )
    writer = SegmentWriter.create(tmp_path, 40, limits, now=0, fs=FileSystem())
    yield writer
    writer.close_files()


def append(writer, offset, timestamp):
    data = batch(offset, timestamp)
    sets, _ = keep_offsets(data, 0)
    assert writer.append(memoryview(data), sets, now=timestamp) == 1


def test_a_truncated_segment_has_its_largest_timestamp_and_next_offset(segment, tmp_path):
    for number in range(30):
        append(segment, 40 + number, 10 * (40 + number))
    segment.flush()
    assert segment.largest_timestamp == 690
    assert LogSegment(tmp_path, 40).time_index.used_entry_count == 30 // 2 - 1
    segment.truncate_to(41, now=0)
    cut = LogSegment(tmp_path, 40)
    assert cut.time_index.used_entry_count == 0
    assert (segment.largest_timestamp, cut.next_offset) == (400, 41)
    assert cut.largest_record_timestamp() == 400


NUMBERS = range(100)


@pytest.fixture
def written(tmp_path):
    """A cleanly closed log of 100 batches of one record, timestamp ten times the offset."""
    options = {"index.interval.bytes": 0}
    with kafkastore.LogDirWriter(tmp_path / "logs", version="2.4") as log_dir:
        writer = log_dir.writer("t", 0, options)
        for number in NUMBERS:
            record = Record(0, 10 * number, TimestampType.CREATE_TIME, b"k", b"v%d" % number, (), 0)
            writer.append_records([record])
    (tmp_path / "logs" / ".kafka_cleanshutdown").unlink()
    (tmp_path / "logs" / "recovery-point-offset-checkpoint").unlink()
    return tmp_path / "logs"


def recovered(root):
    """The log after the recovery that opening a writer performs."""
    with kafkastore.LogDirWriter(root, version="2.4") as log_dir:
        log_dir.writer("t", 0, {"index.interval.bytes": 0}, recover=True)
    return kafkastore.open(root)["t-0"]


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("seed", range(3))
def test_recovery_repairs_an_index_of_random_bytes(written, suffix, seed):
    path = written / "t-0" / f"{0:020}{suffix}"
    complete = path.read_bytes()
    noise = random.Random(seed).randbytes(len(complete) - 5)
    path.write_bytes(complete[:5] + noise)
    log = recovered(written)
    (found,) = log.segments
    for number in NUMBERS:
        assert found.translate_offset(number).offset == number
        assert log.offset_for_timestamp(10 * number, rules="2.4").offset == number
        after = log.offset_for_timestamp(10 * number + 1, rules="2.4")
        assert (after.offset if after else 100) == number + 1
    assert path.read_bytes() == complete


@pytest.mark.parametrize("seed", range(5))
def test_noise_from_within_a_record_on_leaves_just_those_before_it(written, seed):
    rnd = random.Random(seed)
    damaged = rnd.randrange(100)
    path = written / "t-0" / f"{0:020}.log"
    data = path.read_bytes()
    found = kafkastore.open(written)["t-0"].segments[0].translate_offset(damaged)
    position = found.position + rnd.randrange(found.size)
    path.write_bytes(data[:position] + rnd.randbytes(len(data) - position))
    log = recovered(written)
    assert [record.offset for record in log.records()] == list(range(damaged))
    assert log.log_end_offset == damaged
