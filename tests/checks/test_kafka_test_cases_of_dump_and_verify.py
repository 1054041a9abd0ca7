"""Kafka's tests of DumpLogSegments, and cases without a test in Kafka: where each is covered.

The names are those of Kafka 2.4.0 and of its development in 2024. Where Kafka's tool compares an
index with its log, `verify` does it here; where the two differ, the tool rejects valid indexes:
those of followers and of brokers before 2.0.
"""

import os
import struct
from dataclasses import replace

import pytest
from models.kafka_test_cases import names_of_tests
from models.log_directory import TOPIC_PARTITION, Log, Segment
from models.record_format import GZIP, LZ4, NONE, SNAPPY, Batch, Row, emptied, marker
from models.segment_indexes import offset_entries_of, time_entries_of

from kafkastore.checks.findings import FindingKind, Severity
from kafkastore.jobs.verify import verify

HERE = "checks/test_kafka_test_cases_of_dump_and_verify.py"
DUMP = "cli/test_dump.py"
PAYLOADS = "cli/test_dump_payloads.py"
PREDICT = "checks/test_predict.py"
LOOKUP = "lookup/test_offset_lookup.py"
LIST_OFFSET = "lookup/test_list_offset.py"
RETENTION = "use_cases/test_retention.py"
NAMES = "formats/test_file_names.py"
MESSAGES = "formats/test_message_set.py"
BATCHES = "formats/test_record_batch.py"
LOG_FILE = "segment/test_log_file.py"
INDEX_FILE = "segment/test_index_file.py"

#: Kafka's test -> the tests here that check the same: file and name.
COVERED = {
    "DumpLogSegmentsTest.testPrintDataLog": [
        (DUMP, "test_batches_are_those_of_kafkas_own_tool"),
        (DUMP, "test_records_of_every_format_are_shown"),
    ],
    "DumpLogSegmentsTest.testBatchAndRecordMetadataOutput": [
        (DUMP, "test_batches_are_those_of_kafkas_own_tool"),
        (PAYLOADS, "test_every_field_of_a_batch_and_of_its_records_is_shown"),
    ],
    "DumpLogSegmentsTest.testDumpIndexMismatches": [
        (HERE, "test_valid_indexes_of_every_writer_give_no_finding"),
        (HERE, "test_an_entry_that_does_not_match_the_log_is_reported"),
    ],
    "DumpLogSegmentsTest.testDumpTimeIndexErrors": [
        (HERE, "test_valid_indexes_of_every_writer_give_no_finding"),
        (HERE, "test_an_entry_that_does_not_match_the_log_is_reported"),
    ],
    "DumpLogSegmentsTest.testDumpEmptyIndex": [(DUMP, "test_an_empty_index_is_reported")],
    "DumpLogSegmentsTest.testPrintDataLogPartialBatches": [
        (PAYLOADS, "test_batches_that_end_within_max_bytes_are_shown")
    ],
    "DumpLogSegmentsTest.testOffsetsMessageParser": [
        (PAYLOADS, "test_commits_and_groups_are_reported_by_their_fields")
    ],
    "DumpLogSegmentsTest.testTransactionLogMessageParser": [
        (PAYLOADS, "test_transactional_ids_are_reported_by_their_fields")
    ],
    "DumpLogSegmentsTest.testDumpMetadataSnapshot": [
        (DUMP, "test_a_kraft_snapshot_is_decoded_as_batches")
    ],
}

#: Kafka's test -> why there is no such test here.
NOT_COVERED = {
    "DumpLogSegmentsTest.testDumpMetadataRecords": "metadata records are shown as bytes",
    "DumpLogSegmentsTest.testDumpRemoteLogMetadata": "tiered storage is not in a log directory",
    "DumpLogSegmentsTest.testShareGroupStateMessageParser": "share groups are shown as bytes",
}

#: Cases that occur in brokers but have no test in Kafka -> the tests here that check them.
UNTESTED_BY_KAFKA = {
    "the chosen segment has no answer, and the next one is not searched": [
        (LOOKUP, "test_a_broker_does_not_try_the_next_segment")
    ],
    "an inactive segment's time index has zeros up to its full size": [
        (HERE, "test_zeros_up_to_full_size_put_an_inactive_segment_at_risk"),
        (RETENTION, "test_zeros_that_a_broker_would_load_are_dated_1970_with_a_warning"),
    ],
    "padded indexes of a running broker give the same answers as trimmed ones": [
        (LOOKUP, "test_an_active_segment_answers_as_the_closed_one"),
        (HERE, "test_padded_indexes_of_a_running_or_killed_broker_give_no_finding"),
    ],
    "timestamp 0 at the base offset gives a first entry of zeros": [
        (LOOKUP, "test_a_legal_first_entry_of_zeros_is_read_from_the_log"),
        (INDEX_FILE, "test_a_time_index_of_zeros_has_an_entry_if_the_log_says_so"),
        (HERE, "test_what_brokers_rarely_write_gives_no_finding"),
    ],
    "timestamps of a batch more than 31 bits apart, or relative to a delete horizon": [
        (LOOKUP, "test_sparse_times_far_apart_are_found"),
        (BATCHES, "test_timestamps_count_from_a_delete_horizon"),
        (HERE, "test_what_brokers_rarely_write_gives_no_finding"),
    ],
    "indexes of followers, and of brokers before 2.0": [
        (HERE, "test_valid_indexes_of_every_writer_give_no_finding")
    ],
    "time indexes with the record's offset, and with the batch's last": [
        (HERE, "test_valid_indexes_of_every_writer_give_no_finding")
    ],
    "batches of other clients": [
        (MESSAGES, "test_a_wrapper_offset_of_0_leaves_inner_offsets_as_they_are"),
        (MESSAGES, "test_lz4_of_magic_0_is_read_with_the_wrong_and_with_the_right_checksum"),
        (MESSAGES, "test_both_framings_of_snappy_are_read"),
        (MESSAGES, "test_inner_messages_of_magic_0_have_no_timestamp_in_a_wrapper_of_magic_1"),
    ],
    "17 bytes at the end, lengths below 14, magic 3": [
        (LOG_FILE, "test_a_torn_tail_and_preallocated_space_are_the_end"),
        (LOG_FILE, "test_broken_bytes_are_reported_with_their_place"),
        (HERE, "test_bytes_after_the_batches_above_the_recovery_point_are_a_data_loss_risk"),
    ],
    "emptied batches, markers and aborted records in a lookup by time": [
        (LOG_FILE, "test_an_emptied_batch_is_stepped_over"),
        (LOG_FILE, "test_markers_are_found_unless_skipped"),
        (LOOKUP, "test_committed_answers_leave_out_aborted_and_undecided_records"),
        (LIST_OFFSET, "test_answers_lie_below_the_high_watermark"),
        (LIST_OFFSET, "test_a_reader_of_committed_records_ends_where_a_transaction_is_open"),
    ],
    "timestamps in another unit, and below 0": [
        (RETENTION, "test_a_unit_is_suggested_where_it_gives_a_plausible_time"),
        (RETENTION, "test_segments_of_negative_times_are_dated_by_their_files"),
        (HERE, "test_timestamps_in_another_unit_are_reported"),
    ],
    "other negative timestamps than the special ones": [
        (LIST_OFFSET, "test_other_negatives_are_times_up_to_3_8"),
        (LIST_OFFSET, "test_other_negatives_are_refused_from_3_9_on"),
    ],
    "directory names that are shortened, end in a dash or have a too large partition": [
        (NAMES, "test_the_topic_of_a_delete_directory_may_be_cut"),
        (NAMES, "test_a_partition_directory_is_split_at_its_last_dash"),
        (NAMES, "test_a_name_that_stops_a_brokers_start_is_refused"),
    ],
    "few bytes that decompress to very many": [
        ("formats/test_decompression.py", "test_a_bomb_is_refused_soon"),
        ("formats/test_decompression.py", "test_a_bomb_takes_no_memory"),
        ("formats/test_record_columns.py", "test_a_bomb_is_refused"),
    ],
    "a copy that lost its files' modification times": [
        ("migration/test_survey.py", "test_modification_times_of_a_copy_seem_lost"),
        (HERE, "test_modification_times_that_a_copy_lost_are_reported"),
    ],
    "the bytes that are lost at a start": [
        (PREDICT, "test_the_broker_loaded_and_left_the_predicted_files"),
        (PREDICT, "test_a_corrupt_batch_costs_the_rest_of_its_segment_and_all_later_segments"),
        (PREDICT, "test_nothing_is_altered"),
    ],
}


@pytest.mark.parametrize("case", [*COVERED, *UNTESTED_BY_KAFKA])
def test_every_test_that_covers_a_case_exists(case):
    for path, function in {**COVERED, **UNTESTED_BY_KAFKA}[case]:
        assert function in names_of_tests(path), (path, function)
    assert case not in NOT_COVERED


FIRST = 1_600_000_000_000  # 2020-09-13
INTERVAL = 200
WIDTH = 5


def batches(first_offset, count, *, codec=NONE, magic=2, append_time=None):
    """Return batches of five records; timestamps rise, but not from record to record."""
    made = []
    for offset in range(first_offset, first_offset + count * WIDTH, WIDTH):
        rows = tuple(
            Row(offset + number, FIRST + 1000 * offset + shift, b"k", b"v" * 20)
            for number, shift in enumerate((0, 900, 2500, 100, 300))
        )
        stamp = None if append_time is None else append_time + offset
        if magic < 2 and codec == NONE:
            made += [Batch((row,), magic=magic, append_time=stamp) for row in rows]
        else:
            made.append(Batch(rows, codec=codec, magic=magic, append_time=stamp))
    return tuple(made)


#: Writer of the indexes -> how the tests make such indexes.
WRITERS = {
    "a leader up to 3.7": {"interval": INTERVAL, "is_exact": True},
    "a leader since 3.8": {"interval": INTERVAL},
    "a follower": {"interval": INTERVAL, "batches_a_set": 4},
    "a leader up to 1.1": {"interval": INTERVAL, "stores_first_offset": True, "is_exact": True},
    "a follower up to 1.1": {
        "interval": INTERVAL, "stores_first_offset": True, "batches_a_set": 4,
    },
    "a recovery": None,
}
#: Content of the segment -> how the tests write it.
CONTENTS = {
    "record batches": {},
    "compressed record batches": {"codec": GZIP},
    "record batches of append times": {"append_time": FIRST},
    "messages": {"magic": 1},
    "messages of append times": {"magic": 1, "append_time": FIRST},
    "wrappers": {"magic": 1, "codec": GZIP},
}


def indexed(segment, writer):
    style = WRITERS[writer]
    return segment.recovered(INTERVAL) if style is None else segment.indexed(**style)


@pytest.fixture
def findings(tmp_path):
    """Return a function that writes a model log and returns its findings above `style`."""

    def write_and_verify(log, *, at_least=Severity.SLOW):
        root = log.write(tmp_path / "logs")
        for segment in log.segments:
            for suffix in (".log", ".index", ".timeindex"):
                path = root / TOPIC_PARTITION / f"{segment.base_offset:020}{suffix}"
                if path.exists():
                    os.utime(path, ns=(segment.modified_ms * 1_000_000,) * 2)
        return [each for each in verify(root) if each.severity.is_at_least(at_least)]

    return write_and_verify


def two_segments(writer, *, first_offset=0, count=20, **contents):
    """Return a log after a clean shutdown: an inactive and an active segment."""
    middle = first_offset + count * WIDTH
    first = indexed(Segment(first_offset, batches(first_offset, count, **contents)), writer)
    last = indexed(Segment(middle, batches(middle, count, **contents)), writer)
    segments = tuple(
        replace(each, modified_ms=max(batch.max_timestamp for batch in each.batches) + 50)
        for each in (first, last)
    )
    return Log(segments, is_clean=True, recovery_point=middle + count * WIDTH)


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("contents", CONTENTS.values(), ids=CONTENTS)
def test_valid_indexes_of_every_writer_give_no_finding(findings, writer, contents):
    log = two_segments(writer, **contents)
    assert log.segments[0].offset_index
    assert log.segments[0].time_index
    assert findings(log) == []


def _offset_index(data, slot, change):
    """Change one entry of an offset index: a function of (relative offset, position)."""
    entries = [*struct.iter_unpack(">ii", data)]
    entries[slot] = change(*entries[slot])
    return b"".join(struct.pack(">ii", *each) for each in entries)


def _time_index(data, slot, change):
    """Change one entry of a time index: a function of (timestamp, relative offset)."""
    entries = [*struct.iter_unpack(">qi", data)]
    entries[slot] = change(*entries[slot])
    return b"".join(struct.pack(">qi", *each) for each in entries)


#: Damage -> the index, and how its third entry is changed.
MISMATCHES = {
    "a position within a batch": (
        "offset_index", lambda offset, position: (offset, position + 1)),
    "a position of another batch": (
        "offset_index", lambda offset, position: (offset - 60, position)),
    "an offset below the one before": ("offset_index", lambda offset, position: (1, position)),
    "a position beyond the log": ("offset_index", lambda offset, position: (offset, 2**30)),
    "a negative position": ("offset_index", lambda offset, position: (offset, -1)),
    "a negative relative offset": ("offset_index", lambda offset, position: (-offset, position)),
    "another timestamp": ("time_index", lambda timestamp, offset: (timestamp + 1, offset)),
    "a timestamp below the one before": (
        "time_index", lambda timestamp, offset: (FIRST - 1, offset)),
    "an offset of another batch": ("time_index", lambda timestamp, offset: (timestamp, offset + 5)),
    "an offset that is not in the log": (
        "time_index", lambda timestamp, offset: (timestamp, offset + 10_000)),
    "a negative offset of a time": ("time_index", lambda timestamp, offset: (timestamp, -7)),
}


@pytest.mark.parametrize("writer", ["a leader up to 3.7", "a follower", "a recovery"])
@pytest.mark.parametrize(("index", "change"), MISMATCHES.values(), ids=MISMATCHES)
def test_an_entry_that_does_not_match_the_log_is_reported(findings, writer, index, change):
    log = two_segments(writer)
    first, last = log.segments
    alter, size = (_offset_index, 8) if index == "offset_index" else (_time_index, 12)
    damaged = replace(first, **{index: alter(getattr(first, index), 2, change)})
    found = findings(replace(log, segments=(damaged, last)), at_least=Severity.WRONG_ANSWERS)
    suffix = ".index" if index == "offset_index" else ".timeindex"
    assert {each.path.name for each in found} == {f"{0:020}{suffix}"}
    # Of two entries that are out of order the later one is reported.
    assert {each.position for each in found} & {2 * size, 3 * size}, found
    assert all(each.remedy for each in found)


@pytest.mark.parametrize("slots", [1, 12, 10_485_756 // 12])
def test_zeros_up_to_full_size_put_an_inactive_segment_at_risk(findings, slots):
    """Timestamp 0 then counts as the largest, so that the segment's retention ended in 1970."""
    log = two_segments("a leader since 3.8")
    first, last = log.segments
    zeros = replace(first, time_index=bytes(12 * slots))
    found = findings(replace(log, segments=(zeros, last)))
    assert {each.path.suffix for each in found} == {".timeindex"}
    worst = [each for each in found if each.kind is FindingKind.ZERO_TIME_INDEX_ENTRIES]
    assert [each.position for each in worst] == [0]
    assert "reindex" in worst[0].remedy


def rows_at(*times):
    return tuple(Batch((Row(offset, time, b"k", b"v" * 90),)) for offset, time in enumerate(times))


#: What brokers rarely write -> batches of a segment from offset 0 on.
RARE_CONTENTS = {
    "timestamp 0 at the base offset": rows_at(0, 0, 0, FIRST, FIRST + 1, FIRST + 2),
    "only timestamp 0": rows_at(0, 0, 0, 0),
    "times below 0": rows_at(-5, -1, FIRST, FIRST + 1),
    "times far apart in a batch": (
        Batch((Row(0, FIRST), Row(1, FIRST - 2**35), Row(2, FIRST - 7)), codec=GZIP),
        Batch((Row(3, 2**31 + 5), Row(4, FIRST + 9))),
    ),
    "times relative to a delete horizon": (
        Batch((Row(0, FIRST), Row(3, FIRST - 2**40)), delete_horizon=FIRST + 10**9),
        Batch((Row(5, FIRST + 1),), delete_horizon=FIRST + 10**9),
    ),
    "emptied batches that keep their times": (
        *rows_at(FIRST, FIRST + 1),
        emptied(2, 7, FIRST + 800, producer_id=4, producer_epoch=0, base_sequence=0),
        Batch((Row(12, FIRST + 5),)),
    ),
    "a wrapper whose offset is 0": (
        Batch((Row(0, FIRST), ), magic=1, codec=GZIP, wrapper_offset=0),
        Batch((Row(1, FIRST + 1), Row(2, FIRST + 2)), magic=1, codec=GZIP),
    ),
    "messages of magic 0 in a wrapper of magic 1": (
        Batch((Row(0, -1), Row(1, -1)), magic=1, codec=GZIP, inner_magic=0,
              stated_max_timestamp=FIRST),
        Batch((Row(2, FIRST + 2),), magic=1),
    ),
    "lz4 of magic 0, with the wrong checksum of its header": (
        Batch((Row(0, -1, b"k", b"v"), Row(1, -1)), magic=0, codec=LZ4),
        Batch((Row(2, FIRST),), magic=1),
    ),
    "both framings of snappy": (
        Batch((Row(0, FIRST), Row(1, FIRST + 1)), magic=1, codec=SNAPPY),
        Batch((Row(2, FIRST + 2), Row(3, FIRST)), magic=1, codec=SNAPPY, is_raw_snappy=True),
        Batch((Row(4, FIRST + 3),), codec=SNAPPY, is_raw_snappy=True),
    ),
    "all three formats": (
        Batch((Row(0, -1),), magic=0),
        Batch((Row(1, FIRST),), magic=1),
        Batch((Row(2, FIRST + 1),)),
    ),
    "one batch far above the base offset": (Batch((Row(10**9, FIRST),)),),
    "no batch": (),
}


@pytest.mark.parametrize("interval", [0, 100, 4096])
@pytest.mark.parametrize("contents", RARE_CONTENTS.values(), ids=RARE_CONTENTS)
def test_what_brokers_rarely_write_gives_no_finding(findings, contents, interval):
    end = 2 * 10**9
    newest = max((batch.max_timestamp for batch in contents), default=FIRST)
    log = Log(
        (
            Segment(0, contents, modified_ms=max(newest, FIRST) + 50).indexed(interval=interval),
            Segment(end, (), modified_ms=FIRST + 10**6),
        ),
        is_clean=True,
        recovery_point=end,
    )
    assert findings(log) == []


def test_markers_in_a_log_to_be_recovered_give_no_finding(findings):
    data = Batch(
        (Row(0, FIRST),), producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True
    )
    contents = (data, marker(1, FIRST + 5), Batch((Row(2, FIRST + 3),)))
    segment = Segment(0, contents, modified_ms=FIRST + 50).indexed()
    assert findings(Log((segment,))) == []


VALID = batches(0, 4)
NEXT = Batch((Row(20, FIRST + 10**5),)).data
#: Bytes after the batches -> whether they cost records if another segment follows.
TAILS = {
    "17 bytes": NEXT[:17],
    "all but one byte": NEXT[:-1],
    "length 13": NEXT[:8] + struct.pack(">i", 13) + NEXT[12:],
    "length -1": NEXT[:8] + struct.pack(">i", -1) + NEXT[12:],
    "magic 3": NEXT[:16] + b"\x03" + NEXT[17:],
    "noise": b"\xa5" * 100,
}


@pytest.mark.parametrize("tail", TAILS.values(), ids=TAILS)
def test_bytes_after_the_batches_above_the_recovery_point_are_a_data_loss_risk(findings, tail):
    """Above the recovery point a broker truncates the log there, and deletes later segments."""
    first = Segment(0, VALID, modified_ms=FIRST + 10**6, tail=tail).indexed(interval=INTERVAL)
    last = Segment(40, batches(40, 2), modified_ms=FIRST + 10**6).indexed(interval=INTERVAL)
    found = findings(Log((first, last), recovery_point=0), at_least=Severity.DATA_LOSS_RISK)
    in_log = [each for each in found if each.path.suffix == ".log"]
    assert [each.position for each in in_log] == [len(b"".join(each.data for each in VALID))]


@pytest.mark.parametrize("tail", [NEXT[:17], NEXT[:-1], bytes(4096)])
def test_a_torn_batch_or_preallocated_space_of_a_killed_broker_is_not_a_fault(findings, tail):
    segment = Segment(0, VALID, modified_ms=FIRST + 10**6, tail=tail).indexed(interval=INTERVAL)
    assert findings(Log((segment,), recovery_point=0)) == []


@pytest.mark.parametrize("recovery_point", [None, 0, 20 * WIDTH])
def test_padded_indexes_of_a_running_or_killed_broker_give_no_finding(findings, recovery_point):
    """Both have their full size until the segment is rolled or the broker is shut down."""
    first, last = two_segments("a leader up to 3.7").segments
    padded = replace(
        last,
        offset_index=last.offset_index.ljust(10_485_760, b"\0"),
        time_index=last.time_index[:-12].ljust(10_485_756, b"\0"),
    )
    assert findings(Log((first, padded), recovery_point=recovery_point)) == []


UNITS = {
    FindingKind.TIMESTAMP_IN_SECONDS: (1, 1000),
    FindingKind.TIMESTAMP_IN_MICROSECONDS: (1000, 1),
    FindingKind.TIMESTAMP_IN_NANOSECONDS: (1_000_000, 1),
}


@pytest.mark.parametrize("unit", UNITS)
def test_timestamps_in_another_unit_are_reported(findings, unit):
    factor, divisor = UNITS[unit]
    contents = rows_at(*((FIRST + 1000 * number) * factor // divisor for number in range(6)))
    log = Log(
        (Segment(0, contents, modified_ms=FIRST + 10**6).indexed(interval=INTERVAL),
         Segment(6, (), modified_ms=FIRST + 10**6)),
        is_clean=True, recovery_point=6,
    )
    found = [each for each in findings(log, at_least=Severity.STYLE) if each.kind is unit]
    assert found
    assert found[0].path.name == f"{0:020}.log"
    assert found[0].position is not None


@pytest.mark.parametrize("are_kept", [True, False])
def test_modification_times_that_a_copy_lost_are_reported(findings, are_kept):
    """All files are of the same minute, years younger than their records; one has no others."""
    untimed = tuple(Batch((Row(offset, -1, b"k", b"v"),), magic=0) for offset in range(5))
    oldest = Segment(0, untimed, modified_ms=FIRST)
    timed = two_segments("a leader since 3.8", first_offset=5).segments
    segments = (oldest, *timed)
    if not are_kept:
        copied = FIRST + 5 * 365 * 86_400_000
        segments = tuple(replace(each, modified_ms=copied) for each in segments)
    log = Log(segments, is_clean=True, recovery_point=205)
    found = findings(log, at_least=Severity.STYLE)
    kinds = {each.kind for each in found}
    assert (FindingKind.LOST_MODIFICATION_TIMES in kinds) is not are_kept, found


def test_the_indexes_of_these_tests_differ_as_their_writers_do():
    """Else the tests above would be about one kind of index only."""
    made = {writer: indexed(Segment(0, batches(0, 20)), writer) for writer in WRITERS}
    last_entries = {
        writer: (
            offset_entries_of(segment.offset_index, 0)[-1],
            time_entries_of(segment.time_index, 0)[-1],
            len(segment.offset_index),
        )
        for writer, segment in made.items()
    }
    # A recovery makes what a leader since 3.8 made of batches one by one.
    assert last_entries["a recovery"] == last_entries["a leader since 3.8"]
    assert len(set(last_entries.values())) == len(WRITERS) - 1
