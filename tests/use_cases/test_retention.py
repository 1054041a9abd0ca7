"""Predicted retention, compared with the deletions of real brokers."""
from __future__ import annotations

import os
import random
import re
from pathlib import Path

import pytest
from models.log_directory import Log, Segment
from models.record_format import Batch, Row

import kafkastore
from kafkastore import CorruptionError
from kafkastore.jobs.retention import retention
from kafkastore.log.timestamp_warnings import (
    TimestampWarning,
    find_timestamp_warning,
    meant_timestamp,
)
from kafkastore.use_cases.retention import DatedBy, retention_of
from kafkastore.use_cases.sizing import sizing_of
from kafkastore.versions import UnknownVersionError, rules_of
from kafkastore.writing.log_config import LogConfig
from kafkastore.writing.retention import RetentionRule, SegmentFacts, find_deletable

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
HOUR = {"retention.ms": HOUR_MS}
# The log line of 3.9 and later about deleted segments.
DELETED = re.compile(
    r"Deleting segment LogSegment\(baseOffset=(\d+), size=(\d+), .*largestRecordTimestamp=(\d+)\)"
)


def bases(segments):
    return [each.base_offset for each in segments]


def newest_by_segment(log, records):
    """Return the largest timestamp of each segment's records that a consumer received."""
    return {
        segment.base_offset: max(
            timestamp
            for offset, timestamp, *_ in records
            if segment.base_offset <= offset < (segment.next_base_offset or 1 << 62)
        )
        for segment in log.segments
    }


# Real brokers.


@pytest.mark.golden_cases(names="roll-and-retention-by-time")
def test_segments_that_a_broker_kept_would_be_kept(golden_case):
    """The broker checked every second; some kept segments are older, after one that is kept."""
    answers = golden_case.answers
    log = kafkastore.open(golden_case.logs)["retention-0"]
    now = answers["asked_at_ms"]
    found = retention_of(log, config=HOUR, now=now, version=golden_case.version)
    assert found.going == ()
    assert found.outcome.log_start_offset == log.log_start_offset

    newest = newest_by_segment(log, answers["partitions"]["retention-0"]["records"])
    assert {each.base_offset: each.largest_timestamp for each in found.segments} == newest
    over = [base for base, timestamp in newest.items() if now - timestamp > HOUR_MS]
    assert bases(found.blocked) == over
    if over:
        assert found.blocker.base_offset == log.segments[0].base_offset

    later = retention_of(log, config=HOUR, now=now + HOUR_MS, version=golden_case.version)
    assert bases(later.going) == bases(log.segments)
    assert later.outcome.rolls
    assert later.outcome.log_start_offset == log.log_end_offset


def test_some_golden_segments_stay_after_younger_ones(golden):
    """The golden case has such segments; otherwise the test above would be weak."""
    for version, blocked in (("2.4.0", [74]), ("3.9.1", [72]), ("0.11.0.3", [74])):
        case = golden(version, "roll-and-retention-by-time", "answers")
        log = kafkastore.open(case.logs)["retention-0"]
        found = retention_of(log, config=HOUR, now=case.answers["asked_at_ms"], version=version)
        assert bases(found.blocked) == blocked


@pytest.mark.golden_cases(names="roll-and-retention-by-time", versions=["3.9.1", "4.*"])
def test_segments_that_a_broker_deleted_would_be_deleted(golden_case):
    """The broker's log has base offset, size and largest timestamp of each deleted segment."""
    lines = [DELETED.search(line) for line in golden_case.answers["broker_log"]]
    deleted = [tuple(map(int, line.groups())) for line in lines if line]
    assert len(deleted) == 5
    log = kafkastore.open(golden_case.logs)["retention-0"]
    now = golden_case.answers["asked_at_ms"]
    stayed = retention_of(log, config=HOUR, now=now, version=golden_case.version).segments
    starts = [base for base, _, _ in deleted] + bases(stayed)
    facts = [
        SegmentFacts(base, end, size, timestamp)
        for (base, size, timestamp), end in zip(deleted, starts[1:], strict=False)
    ]
    facts += [SegmentFacts(*each[1:5]) for each in stayed]
    outcome = find_deletable(
        facts, high_watermark=log.log_end_offset, log_start_offset=0, config=LogConfig.of(HOUR),
        now=now, rules=rules_of(golden_case.version),
    )
    found = [each.segment.base_offset for each in outcome.deletions]
    assert found == [base for base, *_ in deleted]
    assert {each.rule for each in outcome.deletions} == {RetentionRule.TIME}
    log_start = golden_case.answers["partitions"]["retention-0"]["log_start_offset"]
    assert outcome.log_start_offset == log_start


@pytest.mark.golden_cases(names="delete-records")
def test_segments_below_an_advanced_log_start_are_deleted(golden_case):
    store = kafkastore.open(golden_case.logs)
    for found in retention(store, config={"retention.ms": -1}, version=golden_case.version):
        answers = golden_case.answers["partitions"][str(found.topic_partition)]
        start = answers["log_start_offset"]
        assert found.log_start_offset == found.outcome.log_start_offset == start
        below = [each for each in found.segments if each.end_offset <= start]
        assert list(found.going) == [each for each in below if each is not found.segments[-1]]
        assert {each.deleted_by for each in found.going} <= {RetentionRule.START}
    assert found.topic_partition.partition == 2  # all three were checked


@pytest.mark.golden_cases(names="roll-and-retention-by-time", versions=["0.11.*", "[2-4].*"])
def test_brokers_rolled_by_the_time_since_the_first_batch_not_since_the_largest(golden_case):
    """KIP-33 states both; segment.ms was 10 s, and timestamps were out of order."""
    log = kafkastore.open(golden_case.logs)["roll-0"]
    batches = [(batch.base_offset, batch.max_timestamp) for batch in log.batches()]
    rolled = {}
    for measured_from in ("first", "largest"):
        since, rolled[measured_from] = None, []
        for base, timestamp in batches:
            if since is None or timestamp - since > 10_000:
                rolled[measured_from].append(base)
                since = timestamp
            if measured_from == "largest":
                since = max(since, timestamp)
    assert bases(log.segments) == rolled["first"] != rolled["largest"]


@pytest.mark.golden_cases(names="roll-and-retention-by-time", versions=["0.11.*", "[2-4].*"])
def test_a_record_later_than_segment_ms_rolls(golden_case):
    log = kafkastore.open(golden_case.logs)["roll-0"]
    found = retention_of(log, config={"segment.ms": 10_000}, version=golden_case.version)
    first = next(log.batches(log.segments[-1].base_offset))
    assert found.rolls_after == first.max_timestamp + 10_000


def test_zeros_that_a_broker_would_load_are_dated_1970_with_a_warning(golden):
    case = golden("2.4.0", "broken-index-active-zero-padded", "answers-recovered")
    log = kafkastore.open(case.root / "logs")["broken-0"]
    assert log.is_clean
    *_, active = retention_of(log, config={}, version="2.4.0").segments
    assert active.dated_by is DatedBy.ZEROS
    assert active.largest_timestamp == 0
    assert active.record_timestamp == log.segments[-1].summary.largest_record_timestamp > 0
    assert active.deleted_by is RetentionRule.TIME


def test_twelve_zero_bytes_are_an_entry_or_lost_bytes_depending_on_the_log(tmp_path):
    true = Segment(0, (Batch((Row(0, 0),)),), time_index=bytes(12))
    lost = Segment(1, (Batch((Row(1, 1_500_000_000_000),)),), time_index=bytes(12))
    log = kafkastore.open(Log((true, lost), is_clean=True).write(tmp_path / "logs"))["t-0"]
    first, second = retention_of(log, config={}, now=1_500_000_000_001).segments
    assert (first.dated_by, first.largest_timestamp) == (DatedBy.RECORDS, 0)
    assert (second.dated_by, second.record_timestamp) == (DatedBy.ZEROS, 1_500_000_000_000)


@pytest.mark.golden_cases(names="crash", versions=["2.4.0", "3.9.1", "4.*"], answers="answers")
def test_zeros_that_a_broker_recovers_give_no_warning(golden_case):
    found = list(retention(kafkastore.open(golden_case.logs), version=golden_case.version))
    active = [each.segments[-1] for each in found if each.segments[-1].size]
    assert active
    for each in active:
        assert each.dated_by is DatedBy.RECORDS
        assert each.largest_timestamp > 0


def test_segments_without_time_index_are_dated_by_their_files(golden):
    case = golden("0.10.0.1", "upgrade", "answers")
    log = kafkastore.open(case.logs)["up-1"]
    for version in ("0.10.0.1", "4.1"):
        for each in retention_of(log, version=version).segments:
            assert each.dated_by is DatedBy.MODIFICATION_TIME
            mtime = case.answers["mtimes_ms"][f"up-1/{each.path.name}"]
            assert each.largest_timestamp == mtime


def test_brokers_before_the_time_index_use_modification_times(golden):
    case = golden("2.4.0", "create-time-monotonic", "answers")
    log = next(iter(kafkastore.open(case.logs)))
    old = retention_of(log, version="0.10.0.1").segments
    new = retention_of(log, version="0.10.1.0").segments
    assert [each.largest_timestamp for each in old] == [s.last_modified_ms for s in log.segments]
    assert {each.dated_by for each in new} == {DatedBy.RECORDS}


# Constructed states.


@pytest.fixture
def log_dir(golden, writable_copy) -> Path:
    """Return about twelve segments of 2017 and one of 2100, after a clean shutdown."""
    return writable_copy(golden("2.4.0", "create-time-out-of-order", "answers").logs)


def test_a_future_timestamp_blocks_all_later_segments_and_is_reported(log_dir):
    found = retention_of(kafkastore.open(log_dir)["ooo-0"], config={}, now=1_600_000_000_000)
    (future,) = [each for each in found.segments if each.doubt is TimestampWarning.FUTURE]
    assert found.blocker is future
    assert future.deleted_by is None
    later = [each for each in found.segments if each.base_offset > future.base_offset]
    assert list(found.blocked) == later != []
    assert future.expires_at == future.largest_timestamp + 7 * DAY_MS + 1


def test_segments_of_negative_times_are_dated_by_their_files(tmp_path):
    """A time index has no entries below 0, so that a broker finds no timestamp in the records."""
    rows = [Row(offset, time) for offset, time in enumerate((-1_600_000_000_000, -7, -1))]
    batches = tuple(Batch((row,)) for row in rows)
    modified_ms = 1_500_000_000_000
    negative = Segment(0, batches, modified_ms=modified_ms).indexed()
    rows = [Row(3, -5), Row(4, 1_400_000_000_000), Row(5, -5)]
    mixed = tuple(Batch((row,)) for row in rows)
    positive = Segment(3, mixed, modified_ms=modified_ms).indexed()
    assert negative.time_index == b""
    log = kafkastore.open(Log((negative, positive), is_clean=True).write(tmp_path / "logs"))["t-0"]
    first, second = retention_of(log, config=HOUR, now=modified_ms + 1).segments
    assert (first.dated_by, first.largest_timestamp) == (DatedBy.MODIFICATION_TIME, modified_ms)
    assert (second.dated_by, second.largest_timestamp) == (DatedBy.RECORDS, 1_400_000_000_000)


def test_the_time_of_expiry_is_exact_to_the_ms(log_dir):
    log = kafkastore.open(log_dir)["ooo-3"]
    first = retention_of(log, now=0).segments[0]
    assert retention_of(log, now=first.expires_at - 1).going == ()
    assert bases(retention_of(log, now=first.expires_at).going)[0] == first.base_offset


def test_zeros_below_the_recovery_point_are_loaded_and_those_above_rebuilt(log_dir):
    (log_dir / ".kafka_cleanshutdown").unlink(missing_ok=True)
    first, second, *_ = kafkastore.open(log_dir)["ooo-3"].segments
    for segment in (first, second):
        segment.time_index_path.write_bytes(bytes(1020))
    point = second.base_offset
    (log_dir / "recovery-point-offset-checkpoint").write_text(f"0\n1\nooo 3 {point}\n")
    log = kafkastore.open(log_dir)["ooo-3"]
    fates = retention_of(log).segments
    assert [each.dated_by for each in fates[:2]] == [DatedBy.ZEROS, DatedBy.RECORDS]
    newest = [each.summary.largest_record_timestamp for each in log.segments[:2]]
    assert [fates[0].record_timestamp, fates[1].largest_timestamp] == newest


def test_with_a_missing_offset_index_a_broker_rebuilds_both_indexes(log_dir):
    segment = kafkastore.open(log_dir)["ooo-3"].segments[0]
    right = retention_of(kafkastore.open(log_dir)["ooo-3"]).segments[0]
    segment.time_index_path.write_bytes(bytes(1020))
    segment.offset_index_path.unlink()
    assert retention_of(kafkastore.open(log_dir)["ooo-3"]).segments[0] == right


def test_a_single_partition_directory_counts_as_that_of_a_killed_broker(log_dir):
    log = kafkastore.open(log_dir / "ooo-3")["ooo-3"]
    active = log.segments[-1]
    with active.time_index_path.open("ab") as index:
        index.write(bytes(120))
    log.segments[0].time_index_path.write_bytes(bytes(120))
    dated = [each.dated_by for each in retention_of(kafkastore.open(log_dir / "ooo-3")["ooo-3"])[4]]
    assert dated == [DatedBy.ZEROS] + [DatedBy.RECORDS] * (len(dated) - 1)


def test_a_segment_that_a_broker_deletes_meanwhile_is_left_out(log_dir):
    log = kafkastore.open(log_dir)["ooo-3"]
    first, *others = log.segments
    for path in log_dir.glob(f"ooo-3/{first.base_offset:020}.*"):
        path.rename(path.with_name(f"{path.name}.deleted"))
    assert bases(retention_of(log).segments) == bases(others)


def test_an_empty_last_segment_is_not_reported_whatever_its_date(tmp_path):
    directory = tmp_path / "t-0"
    directory.mkdir()
    (directory / "00000000000000000007.log").touch()
    os.utime(directory / "00000000000000000007.log", (4e9, 4e9))
    (fate,) = retention_of(kafkastore.open(directory)["t-0"], now=1_600_000_000_000).segments
    assert (fate.doubt, fate.deleted_by, fate.blocked_by) == (None, None, None)


def test_internal_topics_are_compacted_unless_configured_otherwise(golden):
    case = golden("2.4.0", "transactions", "answers")
    store = kafkastore.open(case.logs)
    options = {"retention.ms": 0}
    by_topic = {each.topic_partition.topic: each for each in retention(store, config=options)}
    assert by_topic["__transaction_state"].going == ()
    config = options | {"cleanup.policy": "delete"}
    assert retention_of(store["__transaction_state-0"], config=config).going


def test_a_wrong_option_is_refused(log_dir):
    store = kafkastore.open(log_dir)
    with pytest.raises(kafkastore.InvalidConfigError):
        list(retention(store, config={"retention.ms": "a week"}))
    with pytest.raises(UnknownVersionError):
        list(retention(store, version="new"))


def test_nothing_is_altered(log_dir):
    def state():
        return {
            path: (path.stat().st_mtime_ns, path.stat().st_size, path.read_bytes())
            for path in log_dir.rglob("*") if path.is_file()
        }

    before = state()
    assert any(each.going for each in retention(kafkastore.open(log_dir)))
    assert state() == before


@pytest.mark.parametrize("seed", range(20))
def test_corrupt_files_are_evaluated_or_an_error_names_the_byte(log_dir, seed):
    chance = random.Random(seed)
    for path in sorted((log_dir / "ooo-3").iterdir()):
        data = bytearray(path.read_bytes())
        damage = chance.randrange(8)
        if damage == 0:
            path.unlink()
            continue
        if damage == 1:
            data = chance.randbytes(chance.randrange(200))
        elif damage == 2:
            del data[chance.randrange(len(data) + 1) :]
        elif damage == 3 and data:
            data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        elif damage == 4:
            data += bytes(chance.randrange(100))
        path.write_bytes(data)
    log = kafkastore.open(log_dir)["ooo-3"]
    for ask in (retention_of, sizing_of):
        try:
            found = ask(log).segments
        except CorruptionError as error:
            assert error.path in [segment.log_path for segment in log.segments]
            assert error.position is not None
        else:
            assert (found if ask is sizing_of else len(found)) == len(log.segments)


MOMENT = 1_500_000_000_000  # 2017-07-14


@pytest.mark.parametrize(
    ("timestamp", "doubt"),
    [
        (MOMENT, None),
        (MOMENT + 1, TimestampWarning.FUTURE),
        (MOMENT // 1000, TimestampWarning.SECONDS),
        (MOMENT * 1000, TimestampWarning.MICROSECONDS),
        (MOMENT * 1_000_000, TimestampWarning.NANOSECONDS),
        (0, None),
        (400_000_000, None),  # January 1970, or in seconds 1982: both are implausible
        ((1 << 63) - 1, TimestampWarning.FUTURE),
    ],
)
def test_a_unit_is_suggested_where_it_gives_a_plausible_time(timestamp, doubt):
    assert find_timestamp_warning(timestamp, MOMENT) is doubt
    about_unit = doubt not in (None, TimestampWarning.FUTURE)
    assert meant_timestamp(timestamp, doubt) == (MOMENT if about_unit else None)
