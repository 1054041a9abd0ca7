"""Kafka's tests of producers and leader epochs, their counterparts here, and those missing.

The names are those of Kafka 2.4.0 and of its development in 2024.
"""


import pytest
from models.kafka_test_cases import names_of_tests

EPOCHS = "formats/test_leader_epochs.py"
PRODUCERS = "formats/test_producer_state.py"
TRANSACTIONS = "formats/test_producer_transactions.py"
SNAPSHOT = "formats/test_producer_snapshot.py"

ASSIGN = (EPOCHS, "test_an_assigned_epoch_removes_what_it_contradicts")
END = (EPOCHS, "test_an_epoch_ends_where_the_next_begins")
CUT_END = (EPOCHS, "test_cutting_the_end_drops_the_epochs_that_begin_there")
CUT_START = (EPOCHS, "test_truncating_the_start_moves_the_epoch_of_the_new_start")
NO_EPOCHS = (EPOCHS, "test_truncating_no_epochs_has_no_effect")
CHECKPOINT = (EPOCHS, "test_epochs_are_the_same_after_writing_and_reading_the_checkpoint")

NEXT = (PRODUCERS, "test_a_producer_continues_with_the_next_sequence_or_a_new_epoch_from_0")
WRAPS = (PRODUCERS, "test_sequences_continue_with_0_after_the_last_one")
REPLICAS = (PRODUCERS, "test_replicas_accept_gaps_and_unknown_producers")
NEWER_MARKER = (TRANSACTIONS, "test_a_marker_of_a_newer_epoch_forgets_the_batches")
UNSTABLE = (
    TRANSACTIONS, "test_an_offset_is_unstable_until_it_is_decided_and_the_marker_replicated"
)
EXPIRED = (PRODUCERS, "test_a_producer_that_expired_may_continue")
SNAPSHOT_OPEN = (PRODUCERS, "test_a_snapshot_holds_the_last_batch_and_the_open_transaction")
FENCED = (TRANSACTIONS, "test_a_marker_of_an_older_coordinator_is_refused_also_after_a_reload")

#: Kafka's test -> its counterparts: file and name.
COVERED = {
    "LeaderEpochFileCacheTest.shouldAddEpochAndMessageOffsetToCache": [ASSIGN, END],
    "LeaderEpochFileCacheTest.shouldReturnLogEndOffsetIfLatestEpochRequested": [END],
    "LeaderEpochFileCacheTest.shouldReturnUndefinedOffsetIfUndefinedEpochRequested": [END],
    "LeaderEpochFileCacheTest."
    "shouldNotOverwriteLogEndOffsetForALeaderEpochOnceItHasBeenAssigned": [ASSIGN],
    "LeaderEpochFileCacheTest.shouldEnforceMonotonicallyIncreasingStartOffsets": [ASSIGN],
    "LeaderEpochFileCacheTest.shouldNotOverwriteOffsetForALeaderEpochOnceItHasBeenAssigned": [
        ASSIGN
    ],
    "LeaderEpochFileCacheTest.shouldReturnUnsupportedIfNoEpochRecorded": [END],
    "LeaderEpochFileCacheTest.shouldReturnUnsupportedIfNoEpochRecordedAndUndefinedEpochRequested": [
        END
    ],
    "LeaderEpochFileCacheTest.shouldReturnFirstEpochIfRequestedEpochLessThanFirstEpoch": [END],
    "LeaderEpochFileCacheTest.shouldTruncateIfMatchingEpochButEarlierStartingOffset": [ASSIGN, END],
    "LeaderEpochFileCacheTest."
    "shouldGetFirstOffsetOfSubsequentEpochWhenOffsetRequestedForPreviousEpoch": [END],
    "LeaderEpochFileCacheTest."
    "shouldReturnNextAvailableEpochIfThereIsNoExactEpochForTheOneRequested": [END],
    "LeaderEpochFileCacheTest.shouldNotUpdateEpochAndStartOffsetIfItDidNotChange": [ASSIGN],
    "LeaderEpochFileCacheTest."
    "shouldReturnInvalidOffsetIfEpochIsRequestedWhichIsNotCurrentlyTracked": [END],
    "LeaderEpochFileCacheTest.shouldSupportEpochsThatDoNotStartFromZero": [ASSIGN, END],
    "LeaderEpochFileCacheTest.shouldPersistEpochsBetweenInstances": [CHECKPOINT],
    "LeaderEpochFileCacheTest.shouldEnforceMonotonicallyIncreasingEpochs": [ASSIGN, END],
    "LeaderEpochFileCacheTest.shouldEnforceOffsetsIncreaseMonotonically": [ASSIGN],
    "LeaderEpochFileCacheTest.shouldIncreaseAndTrackEpochsAsLeadersChangeManyTimes": [ASSIGN, END],
    "LeaderEpochFileCacheTest.shouldIncreaseAndTrackEpochsAsFollowerReceivesManyMessages": [
        ASSIGN, END
    ],
    "LeaderEpochFileCacheTest.shouldDropEntriesOnEpochBoundaryWhenRemovingLatestEntries": [CUT_END],
    "LeaderEpochFileCacheTest.shouldPreserveResetOffsetOnClearEarliestIfOneExists": [CUT_START],
    "LeaderEpochFileCacheTest.shouldUpdateSavedOffsetWhenOffsetToClearToIsBetweenEpochs": [
        CUT_START
    ],
    "LeaderEpochFileCacheTest.shouldNotClearAnythingIfOffsetToEarly": [CUT_START],
    "LeaderEpochFileCacheTest.shouldNotClearAnythingIfOffsetToFirstOffset": [CUT_START],
    "LeaderEpochFileCacheTest.shouldRetainLatestEpochOnClearAllEarliest": [CUT_START],
    "LeaderEpochFileCacheTest.shouldUpdateOffsetBetweenEpochBoundariesOnClearEarliest": [CUT_START],
    "LeaderEpochFileCacheTest.shouldUpdateOffsetBetweenEpochBoundariesOnClearEarliest2": [
        CUT_START
    ],
    "LeaderEpochFileCacheTest.shouldRetainLatestEpochOnClearAllEarliestAndUpdateItsOffset": [
        CUT_START
    ],
    "LeaderEpochFileCacheTest.shouldDropEntriesBetweenEpochBoundaryWhenRemovingNewest": [CUT_END],
    "LeaderEpochFileCacheTest.shouldClearAllEntries": [
        (EPOCHS, "test_all_epochs_can_be_forgotten")
    ],
    "LeaderEpochFileCacheTest.shouldNotResetEpochHistoryHeadIfUndefinedPassed": [CUT_START],
    "LeaderEpochFileCacheTest.shouldNotResetEpochHistoryTailIfUndefinedPassed": [CUT_END],
    "LeaderEpochFileCacheTest.shouldFetchLatestEpochOfEmptyCache": [NO_EPOCHS],
    "LeaderEpochFileCacheTest.shouldFetchEndOffsetOfEmptyCache": [END],
    "LeaderEpochFileCacheTest.shouldClearEarliestOnEmptyCache": [NO_EPOCHS],
    "LeaderEpochFileCacheTest.shouldClearLatestOnEmptyCache": [NO_EPOCHS],
    "LeaderEpochFileCacheTest.shouldFetchEpochForGivenOffset": [
        (EPOCHS, "test_an_offset_is_of_the_last_epoch_that_begins_up_to_it")
    ],
    "LeaderEpochFileCacheTest.shouldWriteCheckpointOnTruncation": [CHECKPOINT],
    "ProducerStateManagerTest.testBasicIdMapping": [NEXT],
    "ProducerStateManagerTest.testAppendTxnMarkerWithNoProducerState": [
        (TRANSACTIONS, "test_a_marker_alone_fences_older_epochs"),
        (TRANSACTIONS, "test_before_kip_360_a_producer_with_only_a_marker_is_unknown"),
    ],
    "ProducerStateManagerTest.testProducerSequenceWrapAround": [WRAPS],
    "ProducerStateManagerTest.testProducerSequenceWithWrapAroundBatchRecord": [
        (PRODUCERS, "test_a_batch_may_wrap_around_the_last_sequence")
    ],
    "ProducerStateManagerTest.testProducerSequenceInvalidWrapAround": [WRAPS],
    "ProducerStateManagerTest.testNoValidationOnFirstEntryWhenLoadingLog": [REPLICAS],
    "ProducerStateManagerTest.testControlRecordBumpsProducerEpoch": [NEWER_MARKER],
    "ProducerStateManagerTest.testTxnFirstOffsetMetadataCached": [UNSTABLE],
    "ProducerStateManagerTest.testPrepareUpdateDoesNotMutate": [
        (PRODUCERS, "test_preparing_does_not_change_the_state")
    ],
    "ProducerStateManagerTest.updateProducerTransactionState": [
        (TRANSACTIONS, "test_a_marker_of_the_same_epoch_leaves_the_batches")
    ],
    "ProducerStateManagerTest.testOutOfSequenceAfterControlRecordEpochBump": [NEWER_MARKER],
    "ProducerStateManagerTest.testNonTransactionalAppendWithOngoingTransaction": [
        (TRANSACTIONS, "test_an_open_transaction_accepts_only_transactional_batches")
    ],
    "ProducerStateManagerTest.testRecoverFromSnapshotUnfinishedTransaction": [SNAPSHOT_OPEN],
    "ProducerStateManagerTest.testRecoverFromSnapshotFinishedTransaction": [
        (PRODUCERS, "test_a_snapshot_of_a_finished_transaction_has_none_open")
    ],
    "ProducerStateManagerTest.testRecoverFromSnapshotEmptyTransaction": [
        (PRODUCERS, "test_since_2_4_1_a_marker_keeps_its_producer_from_expiring")
    ],
    "ProducerStateManagerTest.testProducerStateAfterFencingAbortMarker": [
        NEWER_MARKER,
        (PRODUCERS, "test_since_2_4_1_a_marker_keeps_its_producer_from_expiring"),
    ],
    "ProducerStateManagerTest.testRemoveExpiredPidsOnReload": [EXPIRED],
    "ProducerStateManagerTest.testAcceptAppendWithoutProducerStateOnReplica": [REPLICAS],
    "ProducerStateManagerTest.testAcceptAppendWithSequenceGapsOnReplica": [REPLICAS, NEXT],
    "ProducerStateManagerTest.testLoadFromSnapshotRetainsNonExpiredProducers": [SNAPSHOT_OPEN],
    "ProducerStateManagerTest.testPidExpirationTimeout": [EXPIRED],
    "ProducerStateManagerTest.testFirstUnstableOffset": [UNSTABLE],
    "ProducerStateManagerTest.testProducersWithOngoingTransactionsDontExpire": [
        (PRODUCERS, "test_producers_in_a_transaction_do_not_expire")
    ],
    "ProducerStateManagerTest.testSequenceNotValidatedForGroupMetadataTopic": [
        (PRODUCERS, "test_consumer_offsets_are_written_without_sequences")
    ],
    "ProducerStateManagerTest.testOldEpochForControlRecord": [
        (TRANSACTIONS, "test_a_marker_of_an_older_epoch_is_refused")
    ],
    "ProducerStateManagerTest.testCoordinatorFencing": [FENCED],
    "ProducerStateManagerTest.testCoordinatorFencedAfterReload": [FENCED],
    "ProducerStateManagerTest.testLoadFromEmptySnapshotFile": [
        (SNAPSHOT, "test_every_cut_is_refused_where_it_is")
    ],
    "ProducerStateManagerTest.testLoadFromTruncatedSnapshotFile": [
        (SNAPSHOT, "test_every_cut_is_refused_where_it_is")
    ],
    "ProducerStateManagerTest.testLoadFromCorruptSnapshotFile": [
        (SNAPSHOT, "test_every_flipped_bit_is_refused")
    ],
    "ProducerStateManagerTest.testAppendEmptyControlBatch": [
        (TRANSACTIONS, "test_a_control_batch_that_lost_its_record_begins_nothing")
    ],
    "ProducerStateManagerTest.testLastStableOffsetCompletedTxn": [
        (TRANSACTIONS, "test_the_last_stable_offset_of_a_transaction_is_where_another_is_open")
    ],
    "ProducerStateManagerTest.testSkipEmptyTransactions": [
        (TRANSACTIONS, "test_since_2_8_transactions_without_batches_do_not_count")
    ],
    "ProducerStateManagerTest.testReadWriteSnapshot": [
        (PRODUCERS, "test_any_entries_can_be_loaded_and_written_again")
    ],
}

FILES = "snapshot files are taken, found and removed where a log is loaded and written"
VERIFICATION = "no file contains what a leader requests from the coordinator"
LATE = "a metric of a running broker"
TIERED = "only tiered storage needs it"

#: Kafka's test -> why it has no counterpart here.
SKIPPED = {
    "LeaderEpochFileCacheTest.testPreviousEpoch": TIERED,
    "LeaderEpochFileCacheTest.testFindPreviousEpoch": TIERED,
    "LeaderEpochFileCacheTest.testFindPreviousEntry": TIERED,
    "LeaderEpochFileCacheTest.testFindNextEpoch": TIERED,
    "LeaderEpochFileCacheTest.testGetEpochEntry": TIERED,
    "ProducerStateManagerTest.testHasLateTransaction": LATE,
    "ProducerStateManagerTest.testHasLateTransactionInitializedAfterReload": LATE,
    "ProducerStateManagerTest.testHasLateTransactionUpdatedAfterPartialTruncation": LATE,
    "ProducerStateManagerTest.testHasLateTransactionUpdatedAfterFullTruncation": LATE,
    "ProducerStateManagerTest.testTruncateAndReloadRemovesOutOfRangeSnapshots": FILES,
    "ProducerStateManagerTest.testTakeSnapshot": FILES,
    "ProducerStateManagerTest.testFetchSnapshotEmptySnapShot": FILES,
    "ProducerStateManagerTest.testDeleteSnapshotsBefore": FILES,
    "ProducerStateManagerTest.testTruncateFullyAndStartAt": FILES,
    "ProducerStateManagerTest.testReloadSnapshots": FILES,
    "ProducerStateManagerTest.testFirstUnstableOffsetAfterTruncation": FILES,
    "ProducerStateManagerTest.testSkipSnapshotIfOffsetUnchanged": FILES,
    "ProducerStateManagerTest.testStartOffset": FILES,
    "ProducerStateManagerTest.testRemoveStraySnapshotsKeepCleanShutdownSnapshot": FILES,
    "ProducerStateManagerTest.testRemoveAllStraySnapshots": FILES,
    "ProducerStateManagerTest.testRemoveAndMarkSnapshotForDeletion": FILES,
    "ProducerStateManagerTest.testRemoveAndMarkSnapshotForDeletionAlreadyDeleted": FILES,
    "ProducerStateManagerTest.testEntryForVerification": VERIFICATION,
    "ProducerStateManagerTest.testSequenceAndEpochInVerificationEntry": VERIFICATION,
    "ProducerStateManagerTest.testThrowOutOfOrderSequenceWithVerificationSequenceCheck": (
        VERIFICATION
    ),
    "ProducerStateManagerTest.testVerificationStateEntryExpiration": VERIFICATION,
}


@pytest.mark.parametrize("name", COVERED)
def test_counterparts_of_kafka_s_tests_exist(name):
    for path, function in COVERED[name]:
        assert function in names_of_tests(path), path


def test_no_test_of_kafka_is_both_covered_and_skipped():
    assert not COVERED.keys() & SKIPPED.keys()
