"""Kafka's own tests of indexes and record files, their counterparts here, and those missing.

The names are those of Kafka 2.4.0 and of its development in 2024; what they mean for reading is
what counts, not how they are written.
"""


import pytest
from models.kafka_test_cases import names_of_tests
from models.record_format import GZIP, NONE, Batch, Row

from kafkastore.errors import IndexFullError, OutOfOrderAppendError
from kafkastore.formats.indexes import index_growth, transaction_index
from kafkastore.formats.indexes.entries import TimestampOffset
from kafkastore.formats.indexes.index_format import offset_index, time_index
from kafkastore.segment.index_file import OffsetIndex, TimeIndex
from kafkastore.segment.log_file import LARGEST_READ, LogFile
from kafkastore.segment.recovery import rebuild_indexes
from kafkastore.segment.transaction_index_file import TransactionIndex

HERE = "formats/test_kafka_test_cases_of_formats.py"
TIME = "formats/test_time_index.py"
OFFSET = "formats/test_offset_index.py"
GROWTH = "formats/test_index_growth.py"
TRANSACTION = "formats/test_transaction_index.py"
TRANSACTION_FILE = "segment/test_transaction_index_file.py"
LOG_FILE = "segment/test_log_file.py"
RECOVERY = "segment/test_recovery.py"

#: Kafka's test -> its counterparts: file and name.
COVERED = {
    "TimeIndexTest.testLookUp": [
        (TIME, "test_lookup_finds_the_last_entry_at_or_before_the_timestamp")
    ],
    "TimeIndexTest.testEntry": [(TIME, "test_entry_has_absolute_offsets")],
    "TimeIndexTest.testEntryOverflow": [(TIME, "test_entry_outside_the_index_is_an_index_error")],
    "TimeIndexTest.testTruncate": [(TIME, "test_truncate_to_keeps_the_entries_before_the_offset")],
    "TimeIndexTest.testAppend": [(HERE, "test_a_full_time_index_keeps_one_slot_for_rolling")],
    "TimeIndexTest.testSanityCheck": [
        (TIME, "test_check_reports_the_problem_of_the_last_entry"),
        (TIME, "test_odd_bytes_are_found_by_check_and_ignored_otherwise"),
        (TIME, "test_check_passes_sound_indexes"),
    ],
    "TimeIndexTest.testIsFull": [(GROWTH, "test_a_time_index_is_full_with_one_slot_left")],
    "TimeIndexTest.testLastEntry": [
        (TIME, "test_last_entry_of_an_empty_index_has_no_timestamp_at_the_base_offset")
    ],
    "TimeIndexTest.testResize": [(HERE, "test_a_resized_index_file_has_the_same_entries")],
    "TimeIndexTest.testEntrySize": [(HERE, "test_entries_have_the_sizes_of_kafka")],
    "TimeIndexTest.testParseEntry": [(TIME, "test_packed_entries_are_parsed_again")],
    "OffsetIndexTest.randomLookupTest": [
        (OFFSET, "test_lookup_finds_the_greatest_entry_at_or_before_each_of_many_random_offsets")
    ],
    "OffsetIndexTest.lookupExtremeCases": [
        (OFFSET, "test_lookup_in_an_empty_index_answers_the_base_offset_at_the_start_of_the_log"),
        (HERE, "test_the_first_and_the_last_entry_of_a_full_offset_index_are_found"),
    ],
    "OffsetIndexTest.testEntry": [(OFFSET, "test_entry_has_absolute_offsets")],
    "OffsetIndexTest.testEntryOverflow": [
        (OFFSET, "test_entry_outside_the_index_is_an_index_error")
    ],
    "OffsetIndexTest.appendTooMany": [(GROWTH, "test_an_offset_index_without_a_free_slot_refuses")],
    "OffsetIndexTest.appendOutOfOrder": [
        (GROWTH, "test_an_offset_that_is_not_greater_is_refused")
    ],
    "OffsetIndexTest.testFetchUpperBoundOffset": [
        (OFFSET, "test_fetch_upper_bound_is_the_first_entry_at_or_after_the_end_of_the_fetch"),
        (OFFSET, "test_fetch_upper_bound_of_an_empty_index_is_none"),
    ],
    "OffsetIndexTest.testReopen": [(HERE, "test_a_reopened_offset_index_has_the_same_entries")],
    "OffsetIndexTest.truncate": [(HERE, "test_an_offset_index_is_cut_and_grows_again")],
    "OffsetIndexTest.testSanityLastOffsetEqualToBaseOffset": [
        (OFFSET, "test_last_offset_equal_to_the_base_offset_is_sound")
    ],
    "TransactionIndexTest.testPositionSetCorrectlyWhenOpened": [
        (HERE, "test_entries_appended_to_a_reopened_transaction_index_follow_the_others")
    ],
    "TransactionIndexTest.testSanityCheck": [
        (TRANSACTION, "test_a_last_offset_below_the_base_offset_is_found_by_check")
    ],
    "TransactionIndexTest.testLastOffsetMustIncrease": [
        (TRANSACTION, "test_an_entry_is_not_appended_if_its_last_offset_does_not_rise")
    ],
    "TransactionIndexTest.testLastOffsetCannotDecrease": [
        (TRANSACTION, "test_an_entry_is_not_appended_if_its_last_offset_does_not_rise")
    ],
    "TransactionIndexTest.testCollectAbortedTransactions": [
        (TRANSACTION, "test_collected_are_the_aborted_transactions_that_overlap_a_range")
    ],
    "TransactionIndexTest.testTruncate": [
        (TRANSACTION, "test_truncate_to_keeps_the_transactions_that_ended_before_the_offset")
    ],
    "TransactionIndexTest.testAbortedTxnSerde": [
        (TRANSACTION, "test_an_entry_has_its_bytes_where_kafka_has_them"),
        (TRANSACTION, "test_packed_entries_are_parsed_again"),
    ],
    "TransactionIndexTest.testRenameIndex": [
        (HERE, "test_a_renamed_transaction_index_is_read_under_its_new_name")
    ],
    "TransactionIndexTest.testDeleteIfExists": [
        (TRANSACTION_FILE, "test_an_empty_or_missing_file_has_no_aborted_transactions")
    ],
    "FileRecordsTest.testSearchForTimestamp": [
        (LOG_FILE, "test_a_time_is_searched_in_every_magic_and_codec"),
        (HERE, "test_a_time_is_found_with_its_leader_epoch"),
    ],
    "FileRecordsTest.testSearch": [(HERE, "test_an_offset_is_found_from_any_position_before_it")],
    "FileRecordsTest.testIterationOverPartialAndTruncation": [
        (LOG_FILE, "test_a_torn_tail_and_preallocated_space_are_the_end")
    ],
    "FileRecordsTest.testIterationDoesntChangePosition": [
        (HERE, "test_two_readers_of_a_log_do_not_disturb_each_other")
    ],
    "FileRecordsTest.testRead": [(HERE, "test_a_log_is_read_from_its_second_batch_on")],
    "FileRecordsTest.testFileSize": [
        (LOG_FILE, "test_batches_appended_after_opening_are_not_seen")
    ],
    "FileRecordsTest.testOpenOversizeFile": [
        (HERE, "test_a_log_larger_than_a_broker_opens_is_read")
    ],
    "FileRecordsTest.testPreallocateTrue": [(HERE, "test_a_preallocated_log_has_no_batches")],
    "FileRecordsTest.testPreallocateFalse": [(LOG_FILE, "test_an_empty_log_has_no_batches")],
    "FileRecordsTest.testPreallocateClearShutdown": [
        (RECOVERY, "test_a_torn_or_preallocated_tail_is_cut_without_a_reason")
    ],
    "LogValidatorTest.checkNonCompressed": [
        (HERE, "test_the_largest_create_time_is_that_of_its_record_and_of_its_batch")
    ],
    "LogValidatorTest.checkCompressed": [
        (HERE, "test_the_largest_create_time_is_that_of_its_record_and_of_its_batch")
    ],
    "LogValidatorTest.checkLogAppendTimeNonCompressed": [
        (HERE, "test_with_log_append_time_every_record_has_that_time")
    ],
    "LogValidatorTest.checkLogAppendTimeWithRecompression": [
        (HERE, "test_with_log_append_time_every_record_has_that_time")
    ],
    "LogValidatorTest.checkLogAppendTimeWithoutRecompression": [
        (HERE, "test_with_log_append_time_every_record_has_that_time")
    ],
    "LogValidatorTest.checkCreateTimeUpConversionFromV0": [
        (HERE, "test_a_converted_batch_without_timestamps_is_found_by_no_time")
    ],
    "LogValidatorTest.testAbsoluteOffsetAssignmentNonCompressed": [
        (HERE, "test_offsets_count_from_the_base_offset_in_every_format")
    ],
    "LogValidatorTest.testAbsoluteOffsetAssignmentCompressed": [
        (HERE, "test_offsets_count_from_the_base_offset_in_every_format")
    ],
    "LogValidatorTest.testRelativeOffsetAssignmentNonCompressedV1": [
        (HERE, "test_offsets_count_from_the_base_offset_in_every_format")
    ],
    "LogValidatorTest.testRelativeOffsetAssignmentNonCompressedV2": [
        (HERE, "test_offsets_count_from_the_base_offset_in_every_format")
    ],
    "LogValidatorTest.testRelativeOffsetAssignmentCompressedV1": [
        (HERE, "test_offsets_count_from_the_base_offset_in_every_format")
    ],
    "LogValidatorTest.testRelativeOffsetAssignmentCompressedV2": [
        (HERE, "test_offsets_count_from_the_base_offset_in_every_format")
    ],
}

#: Kafka's test -> why it has no counterpart here.
SKIPPED = {
    "OffsetIndexTest.forceUnmapTest": "indexes are read, not mapped",
    "TransactionIndexTest.testUpdateParentDir": "an index is opened by its path and never moved",
    "TransactionIndexTest.testFlush": "an index object writes nothing",
    "FileRecordsTest.testConversion": "a log file is read as it is; converting is a job",
    "FileRecordsTest.testFormatConversionWithPartialMessage": "as testConversion",
    "LogValidatorTest.testRecordWithPastTimestampIsRejected": "a broker's rule for producers",
    "LogValidatorTest.testRecordWithFutureTimestampIsRejected": "a broker's rule for producers",
    "LogValidatorTest.testInvalidCreateTimeNonCompressedV1": "a broker's rule for producers",
    "LogValidatorTest.testInvalidCreateTimeNonCompressedV2": "a broker's rule for producers",
    "LogValidatorTest.testInvalidCreateTimeCompressedV1": "a broker's rule for producers",
    "LogValidatorTest.testInvalidCreateTimeCompressedV2": "a broker's rule for producers",
}


@pytest.mark.parametrize("name", COVERED)
def test_counterparts_of_kafka_s_tests_exist(name):
    for path, function in COVERED[name]:
        assert function in names_of_tests(path), path


def test_no_test_of_kafka_is_both_covered_and_skipped():
    assert not COVERED.keys() & SKIPPED.keys()
    assert all(SKIPPED.values())


BASE_OFFSET = 45
FOUR = [(0, 0, 10, 11), (1, 5, 15, 13), (2, 18, 35, 25), (3, 32, 50, 40)]


def test_a_full_time_index_keeps_one_slot_for_rolling():
    """TimeIndexTest.testAppend."""
    slots = 30
    entries = [(10 * i, BASE_OFFSET + 10 * i) for i in range(1, slots)]

    def may_append(timestamp, offset, *, skip_full_check=False):
        return index_growth.may_append_timestamp(
            TimestampOffset(timestamp, offset),
            base_offset=BASE_OFFSET,
            last_entry=TimestampOffset(*entries[-1]),
            entry_count=len(entries),
            max_entries=slots,
            skip_full_check=skip_full_check,
        )

    with pytest.raises(IndexFullError):
        may_append(10_000, 1000)
    with pytest.raises(OutOfOrderAppendError):
        may_append(10_000, BASE_OFFSET + 9, skip_full_check=True)
    assert may_append(10_000, 1000, skip_full_check=True)


@pytest.mark.parametrize(
    ("module", "opening"), [(offset_index, OffsetIndex), (time_index, TimeIndex)]
)
@pytest.mark.parametrize("factor", [1, 0.5, 2])
def test_a_resized_index_file_has_the_same_entries(tmp_path, module, opening, factor):
    """TimeIndexTest.testResize: the same size, half of it, twice as much."""
    entries = [(10 * i, BASE_OFFSET + 10 * i) for i in range(1, 11)]
    if module is offset_index:
        entries = [(offset, position) for position, offset in entries]
    path = tmp_path / "0.index"
    size = index_growth.preallocated_size(300 * module.ENTRY_SIZE, module.ENTRY_SIZE)
    path.write_bytes(module.pack(entries, BASE_OFFSET).ljust(size, b"\0"))
    with path.open("r+b") as file:
        file.truncate(index_growth.preallocated_size(int(size * factor), module.ENTRY_SIZE))
    with opening.open(path, BASE_OFFSET) as index:
        assert index.entry_count == 300 * factor
        assert index.used_entry_count == 10
        assert index.entries().tolist() == entries


def test_entries_have_the_sizes_of_kafka():
    """TimeIndexTest.testEntrySize, and the other two."""
    sizes = [module.ENTRY_SIZE for module in (offset_index, time_index, transaction_index)]
    assert sizes == [8, 12, 34]


def test_the_first_and_the_last_entry_of_a_full_offset_index_are_found():
    """OffsetIndexTest.lookupExtremeCases."""
    index = offset_index.pack([(BASE_OFFSET + i + 1, i) for i in range(30)], BASE_OFFSET)
    assert offset_index.lookup(index, BASE_OFFSET, BASE_OFFSET) == (BASE_OFFSET, 0)
    assert offset_index.lookup(index, BASE_OFFSET, BASE_OFFSET + 30) == (BASE_OFFSET + 30, 29)


def test_a_reopened_offset_index_has_the_same_entries(tmp_path):
    """OffsetIndexTest.testReopen."""
    path = tmp_path / f"{BASE_OFFSET:020}.index"
    path.write_bytes(offset_index.pack([(51, 0), (52, 1)], BASE_OFFSET))
    for _ in range(2):
        with OffsetIndex.open(path) as index:
            assert (index.lookup(51), index.lookup(52)) == ((51, 0), (52, 1))
            assert (index.last_entry.offset, index.entry_count) == (52, 2)


def test_an_offset_index_is_cut_and_grows_again():
    """OffsetIndexTest.truncate: past the end, at it, between entries, everything."""
    index = offset_index.pack([(i, i) for i in range(1, 10)], 0)

    def cut(index, offset):
        return index[: offset_index.truncate_to(index, 0, offset) * offset_index.ENTRY_SIZE]

    def append(index, offset):
        last_offset = offset_index.last_entry(index, 0).offset
        count = offset_index.entry_count(index)
        index_growth.check_offset_append(
            offset, base_offset=0, last_offset=last_offset, entry_count=count, max_entries=10
        )
        return index + offset_index.pack([(offset, offset)], 0)

    for offset, last in ((12, 9), (10, 9), (9, 8), (5, 4)):
        index = cut(index, offset)
        assert offset_index.lookup(index, 0, 10) == (last, last)
        assert offset_index.last_entry(index, 0).offset == last
        index = append(index, last + 1)
    index = cut(index, 0)
    assert index == b""
    assert offset_index.entry_count(append(index, 0)) == 1


def test_entries_appended_to_a_reopened_transaction_index_follow_the_others(tmp_path):
    """TransactionIndexTest.testPositionSetCorrectlyWhenOpened."""
    path = tmp_path / f"{0:020}.txnindex"
    path.write_bytes(transaction_index.pack(FOUR))
    with path.open("ab") as file:
        file.write(transaction_index.pack([(3, 50, 60, 55)]))
    assert TransactionIndex.open(path).entries().tolist() == [*FOUR, (3, 50, 60, 55)]


def test_a_renamed_transaction_index_is_read_under_its_new_name(tmp_path):
    """TransactionIndexTest.testRenameIndex."""
    path = tmp_path / f"{0:020}.txnindex"
    path.write_bytes(transaction_index.pack([(0, 0, 10, 2)]))
    renamed = path.rename(tmp_path / f"{0:020}.txnindex.swap")
    with renamed.open("ab") as file:
        file.write(transaction_index.pack([(1, 5, 15, 16)]))
    found = TransactionIndex.open(renamed, 0).collect_aborted_txns(0, 100)
    assert found.aborted_txns["first_offset"].tolist() == [0, 5]
    assert TransactionIndex.open(path).entry_count == 0


@pytest.fixture
def open_log(tmp_path):
    """A function that writes batches, or bytes, and opens them as a log."""
    opened = []

    def write_and_open(*batches):
        path = tmp_path / f"{len(opened):020}.log"
        path.write_bytes(b"".join(getattr(batch, "data", batch) for batch in batches))
        opened.append(LogFile(path))
        return opened[-1]

    yield write_and_open
    for log in opened:
        log.close()


@pytest.mark.parametrize("magic", [0, 1, 2])
def test_a_time_is_found_with_its_leader_epoch(open_log, magic):
    """FileRecordsTest.testSearchForTimestamp: never in format 0, an epoch only in format 2."""
    log = open_log(
        Batch((Row(5, 10, b"5"),), magic=magic, leader_epoch=0),
        Batch((Row(6, 11, b"6"),), magic=magic, leader_epoch=1),
    )
    epochs = (0, 1) if magic == 2 else (-1, -1)
    first, second = (10, 5, epochs[0]), (11, 6, epochs[1])
    for target, wanted in ((9, first), (10, first), (11, second), (12, None)):
        assert log.search_for_timestamp(target) == (wanted if magic else None)


VALUES = (b"abcd", b"efgh", b"ijkl")


def test_an_offset_is_found_from_any_position_before_it(open_log):
    """FileRecordsTest.testSearch."""
    batches = [Batch((Row(i, -1, None, value),)) for i, value in enumerate(VALUES)]
    batches.append(Batch((Row(50, -1, None, b"test"),)))
    log = open_log(*batches)
    second, fourth = len(batches[0].data), sum(len(batch.data) for batch in batches[:3])
    size, last = len(batches[0].data), len(batches[3].data)
    assert log.search_for_offset(0, 0) == (0, 0, size)
    assert log.search_for_offset(1, 0) == (1, second, size)
    assert log.search_for_offset(1, second) == (1, second, size)
    assert log.search_for_offset(3, fourth) == (50, fourth, last)
    assert log.search_for_offset(50, fourth) == (50, fourth, last)


def test_two_readers_of_a_log_do_not_disturb_each_other(open_log):
    """FileRecordsTest.testIterationDoesntChangePosition."""
    values = [value * (LARGEST_READ // 8) for value in VALUES]  # two batches a read
    log = open_log(*(Batch((Row(i, -1, None, value),)) for i, value in enumerate(values)))
    pairs = zip(log.batches(), log.batches(), strict=True)
    found = [[record.value for batch in pair for record in batch.records()] for pair in pairs]
    assert found == [[value, value] for value in values]


def test_a_log_is_read_from_its_second_batch_on(open_log):
    """FileRecordsTest.testRead."""
    log = open_log(*(Batch((Row(i, -1, None, value),)) for i, value in enumerate(VALUES)))
    first, *others = [(batch.position, batch.last_offset) for batch in log.batches()]
    second = others[0][0]
    assert first == (0, 0)
    assert [(each.position, each.last_offset) for each in log.batches(second)] == others


def test_a_log_larger_than_a_broker_opens_is_read(open_log):
    """FileRecordsTest.testOpenOversizeFile: brokers refuse it; positions here have 64 bits."""
    log = open_log(Batch((Row(7, 5),)))
    with log.path.open("r+b") as file:
        file.truncate(2**31 + 4)
    with LogFile(log.path) as larger:
        assert larger.size == 2**31 + 4
        assert larger.search_for_offset(7) == (7, 0, log.size)


def test_a_preallocated_log_has_no_batches(open_log):
    """FileRecordsTest.testPreallocateTrue."""
    log = open_log(bytes(1024 * 1024))
    assert log.size == 1024 * 1024
    assert list(log.batches()) == []


NOW = 1_700_000_000_000
FORMATS = [(0, NONE), (0, GZIP), (1, NONE), (1, GZIP), (2, NONE), (2, GZIP)]


def three_records(magic, codec, timestamps, base_offset=0, **fields):
    """Three records: one batch, or three messages where the format has no batches."""
    values = (b"hello", b"there", b"beautiful")
    rows = [
        Row(base_offset + i, timestamp if magic else -1, None, value)
        for i, (timestamp, value) in enumerate(zip(timestamps, values, strict=True))
    ]
    sets = [rows] if magic == 2 or codec else [[row] for row in rows]
    return [Batch(tuple(each), magic=magic, codec=codec, **fields) for each in sets]


@pytest.mark.parametrize(("magic", "codec"), FORMATS[2:])
def test_the_largest_create_time_is_that_of_its_record_and_of_its_batch(open_log, magic, codec):
    """LogValidatorTest.checkNonCompressed and checkCompressed: an index has the last offset."""
    timestamps = (NOW - 1, NOW + 1, NOW)
    log = open_log(*three_records(magic, codec, timestamps))
    found = [record.timestamp for batch in log.batches() for record in batch.records()]
    assert tuple(found) == timestamps
    if magic == 2:
        (batch,) = log.batches()
        assert (batch.base_timestamp, batch.max_timestamp) == (NOW - 1, NOW + 1)
    rebuilt = rebuild_indexes(log.path, 0)
    assert rebuilt.largest_timestamp == NOW + 1
    assert rebuilt.offset_of_max_timestamp == (1 if (magic, codec) == (1, NONE) else 2)
    assert log.search_for_timestamp(NOW + 1)[:2] == (NOW + 1, 1)


@pytest.mark.parametrize(("magic", "codec"), FORMATS[2:])
def test_with_log_append_time_every_record_has_that_time(open_log, magic, codec):
    """LogValidatorTest.checkLogAppendTime*: the producer's timestamp remains as the base."""
    batches = three_records(magic, codec, (1234, 1234, 1234), append_time=NOW)
    log = open_log(*batches)
    for batch in log.batches():
        batch.verify()
        assert (batch.timestamp_type, batch.max_timestamp) == (1, NOW)
        assert {record.timestamp for record in batch.records()} == {NOW}
        if magic == 2:
            assert batch.base_timestamp == 1234
    rebuilt = rebuild_indexes(log.path, 0)
    assert rebuilt.largest_timestamp == NOW
    assert rebuilt.offset_of_max_timestamp == (0 if (magic, codec) == (1, NONE) else 2)
    assert log.search_for_timestamp(NOW)[:2] == (NOW, 0)
    assert log.search_for_timestamp(NOW + 1) is None


@pytest.mark.parametrize(("magic", "codec"), FORMATS)
def test_a_converted_batch_without_timestamps_is_found_by_no_time(open_log, magic, codec):
    """LogValidatorTest.checkCreateTimeUpConversionFromV0: -1 throughout."""
    log = open_log(*three_records(magic, codec, (-1, -1, -1)))
    for batch in log.batches():
        assert (batch.base_timestamp, batch.max_timestamp) == (-1, -1)
        assert {record.timestamp for record in batch.records()} == {-1}
        assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (-1, -1, -1)
    assert rebuild_indexes(log.path, 0).largest_timestamp == -1
    assert log.search_for_timestamp(0) is None


@pytest.mark.parametrize(("magic", "codec"), FORMATS)
@pytest.mark.parametrize("base_offset", [0, 1234567])
def test_offsets_count_from_the_base_offset_in_every_format(open_log, magic, codec, base_offset):
    """LogValidatorTest.test*OffsetAssignment*."""
    log = open_log(*three_records(magic, codec, (NOW, NOW, NOW), base_offset))
    found = [record.offset for batch in log.batches() for record in batch.records()]
    assert found == [base_offset, base_offset + 1, base_offset + 2]
