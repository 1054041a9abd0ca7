"""OffsetRequest v0, compared with answers of brokers, Kafka's own tests and a slow model."""
import os
import random
import shutil
import time
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafkastore.legacy import (
    OffsetTimes,
    PartitionOffsets,
    UnsupportedTimestampError,
    fetch_offsets_before,
    first_offsets_before,
    get_offsets_before,
    offsets_before,
    segment_times,
)
from models.legacy_offsets import LegacyLog, fetch_offsets
from models.live_partition import LivePartition
from models.log_directory import Log, Segment
from models.record_format import Batch, Row
from models.refused import refused
from models.seed import examples

import kafkastore
from kafkastore.formats.state.file_names import TopicPartition
from kafkastore.lookup.rules import UnknownRulesError

NOW = 10_000

#: One version on each side of each change, and those with golden data.
VERSIONS = [
    "0.8.2", "0.9.0.1", "0.10.0", "0.10.0.1", "0.10.2.2", "0.11", "0.11.0.3", "1.0", "2.0.1",
    "2.1", "2.4", "2.4.0", "3.8", "3.9", "3.9.1",
]


def number_of(version):
    return tuple(int(part) for part in version.split("."))


# --- answers of brokers ----------------------------------------------------------------------


def rows_of(golden_case):
    """Yield each row of a case: partition, mtimes at the request, and offsets or "error"."""
    answers = golden_case.answers
    for name, partition in answers["partitions"].items():
        rows = partition.get("list_offsets_v0")
        has_rows = not (
            answers["kafka"] >= "4"
            or (golden_case.name, golden_case.answers_name) == ("wide", "answers-recovered")
            or "log_end_offset" not in partition  # no requests were sent
        )
        assert (rows is not None) == has_rows, (name, "rows of OffsetRequest v0")
        for row in rows or ():
            assert "exception" not in row
            assert row["error"] in (0, 35)
            right = row["offsets"] if row["error"] == 0 else "error"
            is_torn = (golden_case.name, golden_case.answers_name) == ("crash-torn", "answers")
            if is_torn and row["error"] == 0:
                # The last batch was removed after the broker had answered.
                cut_off, end = partition["log_end_offset"], log_end_of(golden_case, name)
                right = [end if each == cut_off else each for each in right]
            yield name, partition["mtimes_when_asked_ms"], row, right


def log_end_of(golden_case, name):
    return kafkastore.open(golden_case.logs)[name].log_end_offset


def test_every_answer_of_every_broker_to_offset_request_v0_is_reproduced(golden_case):
    version = golden_case.answers["kafka"]
    now = golden_case.answers["asked_at_ms"] - 1
    logs = {}
    store = kafkastore.open(golden_case.logs)
    for name, mtimes, row, right in rows_of(golden_case):
        log = logs.setdefault(name, store[name])
        arguments = (log, row["timestamp"], row["max_num_offsets"], now, version, mtimes)
        if right == "error":
            with pytest.raises(UnsupportedTimestampError):
                fetch_offsets_before(*arguments)
        else:
            assert fetch_offsets_before(*arguments) == right, (name, row)


@pytest.mark.golden_cases(
    names=["create-time-out-of-order", "delete-records", "crash", "compacted-empty-segment"]
)
def test_each_partition_of_one_request_is_answered(golden_case):
    answers = golden_case.answers
    store = kafkastore.open(golden_case.logs)
    together, mtimes = {}, {}
    for name, of_partition, row, right in rows_of(golden_case):
        key = row["timestamp"], row["max_num_offsets"]
        together.setdefault(key, {})[name] = right
        mtimes |= {f"{name}/{file}": mtime for file, mtime in of_partition.items()}
    if answers["kafka"] >= "4":
        assert not together
        with pytest.raises(UnknownRulesError):
            get_offsets_before(store, {}, rules=answers["kafka"])
        return
    for key, right in list(together.items())[::5]:
        found = get_offsets_before(
            store, dict.fromkeys(right, key), answers["asked_at_ms"] - 1, answers["kafka"], mtimes
        )
        assert [str(each) for each in found] == list(right)
        for name, offsets in right.items():
            response = found[kafkastore.open(golden_case.logs)[name].topic_partition]
            if offsets == "error":
                assert response == PartitionOffsets(35, ())
            else:
                assert response == PartitionOffsets(0, tuple(offsets))


# --- the model ------------------------------------------------------------------------------


@st.composite
def legacy_logs(draw):
    bases = sorted(draw(st.lists(st.integers(0, 50), min_size=1, max_size=8)))
    segments = [(base, draw(st.integers(-5, 40)), 100) for base in bases]
    end = bases[-1] + draw(st.integers(0, 9))
    if end == bases[-1]:
        segments[-1] = (*segments[-1][:2], 0)
    start = draw(st.integers(0, end))
    return LegacyLog(tuple(segments), end, start, draw(st.integers(start, end)))


def times_of(log, version):
    """Return the same times in the form that the functions take."""
    return OffsetTimes(
        tuple(segment[:2] for segment in log.segments),
        log.log_end_offset if log.segments[-1][2] else None,
        log.log_start_offset if number_of(version) >= (0, 11) else 0,
        log.high_watermark,
        number_of(version) >= (3, 9),
    )


@settings(max_examples=examples(200))
@given(legacy_logs(), st.integers(-4, 45), st.integers(0, 10), st.sampled_from(VERSIONS))
def test_answers_equal_those_of_a_model_of_kafka_s_classes(log, timestamp, count, version):
    expected = fetch_offsets(number_of(version), log, timestamp, count, 42)
    times = times_of(log, version)
    if expected == "error":
        with pytest.raises(UnsupportedTimestampError):
            offsets_before(times, timestamp, count, 42)
        return
    found = offsets_before(times, timestamp, count, 42)
    assert found == expected
    assert found == sorted(found, reverse=True)
    if timestamp >= 0:
        (first,) = first_offsets_before(times, [timestamp], 42).tolist()
        assert first == next(iter(offsets_before(times, timestamp, 1, 42)), -1)


@settings(max_examples=examples(100))
@given(legacy_logs(), st.lists(st.integers(0, 45), max_size=20), st.sampled_from(VERSIONS))
def test_many_times_in_one_call_have_the_same_answers_as_single_ones(log, timestamps, version):
    times = times_of(log, version)
    found = first_offsets_before(times, timestamps, 42)
    assert found.dtype == np.int64
    assert found.tolist() == [
        next(iter(offsets_before(times, each, 1, 42)), -1) for each in timestamps
    ]


def test_negative_times_are_refused_among_many_times():
    times = OffsetTimes(((0, 5),), 1)
    with pytest.raises(UnsupportedTimestampError):
        first_offsets_before(times, [3, -1], 42)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("timestamp", [-1, -2, -7, 0, 1 << 50])
def test_a_partition_without_a_log_has_the_answer_of_that_version(golden, version, timestamp):
    store = kafkastore.open(golden("2.4.0", "create-time-monotonic", "answers").logs)
    missing = TopicPartition("nowhere", 3)
    found = get_offsets_before(store, {missing: (timestamp, 5)}, NOW, version)
    expected = fetch_offsets(number_of(version), None, timestamp, 5, NOW)
    if expected == "error":
        assert found[missing].offsets == ()
        refused = number_of(version) >= (3, 9) and timestamp == -7
        assert found[missing].error_code == (35 if refused else 3)
    else:
        assert found[missing] == PartitionOffsets(0, tuple(expected))


# --- cases of Kafka's LogOffsetTest ----------------------------------------------------------


TWENTY_MTIMES = [1000 + base for base in range(0, 20, 2)]


def twenty_appends(root, *, from_segment=0, start=None):
    """Write twenty batches of one record; a segment has two; the last segment is full."""
    segments = [
        Segment(
            base,
            tuple(
                Batch((Row(offset, 5000 + offset, None, b"42"),)) for offset in (base, base + 1)
            ),
            mtime,
        ).recovered()
        for base, mtime in zip(range(0, 20, 2), TWENTY_MTIMES, strict=True)
    ]
    for segment in segments:
        assert len(segment.log) <= 140 < len(segment.log) * 3 // 2
    log = Log(tuple(segments[from_segment:]), is_clean=True, checkpointed_start=start)
    return kafkastore.open(log.write(root))["t-0"]


ALL = [20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0]


@pytest.mark.parametrize("rules", VERSIONS)
@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (-1, ALL),
        (NOW + 30_000, ALL),
        (-2, [0]),
        (1009, [8, 6, 4, 2, 0]),
        (1008, [8, 6, 4, 2, 0]),
        (999, []),
    ],
)
def test_offsets_before_latest_now_earliest_and_times_between(tmp_path, rules, target, expected):
    log = twenty_appends(tmp_path / "logs")
    assert fetch_offsets_before(log, target, 15, NOW, rules) == expected
    assert fetch_offsets_before(log, target, 3, NOW, rules) == expected[:3]
    assert fetch_offsets_before(log, target, 0, NOW, rules) == []


def test_offsets_after_records_were_deleted_begin_at_the_log_start(tmp_path):
    # Kafka deletes the first segment, 0 to 1, with the records up to 3.
    log = twenty_appends(tmp_path / "logs", from_segment=1, start=3)
    expected = [20, 18, 16, 14, 12, 10, 8, 6, 4, 3]
    assert fetch_offsets_before(log, -1, 15, NOW, "2.4") == expected
    assert fetch_offsets_before(log, 1 << 40, 15, NOW, "0.11") == expected
    assert fetch_offsets_before(log, -2, 15, NOW, "2.4") == [3]
    assert fetch_offsets_before(log, -1, 15, NOW, "0.10.2") == [*expected[:-1], 2]


def test_segments_below_the_log_start_give_the_log_start(tmp_path):
    log = twenty_appends(tmp_path / "logs", start=6)
    assert fetch_offsets_before(log, 1007, 15, NOW, "2.4") == [6, 6, 6, 6]
    assert fetch_offsets_before(log, 1007, 2, NOW, "2.4") == [6, 6]


def test_offsets_above_the_high_watermark_become_the_high_watermark(tmp_path):
    log = twenty_appends(tmp_path / "logs")
    below = [14, 12, 10, 8, 6, 4, 2, 0]
    assert fetch_offsets_before(log, -1, 15, NOW, high_watermark=15) == [15, *below]
    assert fetch_offsets_before(log, -1, 2, NOW, high_watermark=15) == [15]
    assert fetch_offsets_before(log, -1, 15, NOW, high_watermark=14) == [14, *below]
    assert fetch_offsets_before(log, -1, 15, NOW, high_watermark=20) == ALL


@pytest.mark.parametrize("rules", VERSIONS)
def test_an_empty_log_has_the_base_offset_of_its_only_segment(tmp_path, rules):
    log = kafkastore.open(Log((Segment(0, (), 500),)).write(tmp_path / "logs"))["t-0"]
    for target, expected in ((-2, [0]), (-1, [0]), (500, [0]), (499, [])):
        assert fetch_offsets_before(log, target, 1, NOW, rules) == expected


def test_a_partition_without_segments_is_a_new_empty_partition(tmp_path):
    root = Log((Segment(0, (), 500),)).write(tmp_path / "logs")
    (root / "t-1").mkdir()
    log = kafkastore.open(root)["t-1"]
    assert fetch_offsets_before(log, -1, 5, NOW) == [0]
    assert fetch_offsets_before(log, NOW, 5, NOW) == [0]
    assert fetch_offsets_before(log, NOW - 1, 5, NOW) == []


def test_segments_that_change_meanwhile_cause_no_error(tmp_path):
    directory = tmp_path / "logs" / "t-0"
    directory.mkdir(parents=True)
    (tmp_path / "logs" / "meta.properties").write_text("version=0\n")
    partition = LivePartition(directory, random.Random(6))
    log = kafkastore.open(tmp_path / "logs")["t-0"]
    writer = partition.altering(400)
    writer.start()
    answers = Counter()
    while writer.is_alive():
        log.refresh()
        for target in (-1, -2, time.time_ns() // 1_000_000):
            found = fetch_offsets_before(log, target, 100)
            # All segments may have been modified since their times were read.
            assert found or target > 0
            assert found == sorted(found, reverse=True)
            answers[len(found)] += 1
        found = get_offsets_before(kafkastore.open(tmp_path / "logs"), {"t-0": (-1, 100)})
        assert found[TopicPartition("t", 0)].error_code == 0
    writer.join()
    log.refresh()
    bases = [base for base, _ in partition.segments]
    expected = sorted({*bases, partition.next_offset}, reverse=True)
    assert fetch_offsets_before(log, -1, 100) == expected
    assert len(answers) > 1


# --- other cases -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "rules", ["correct", "kip-33", "0.7", "4.0", "4.1.1", "4", "", "2.4-rc1", "2.4."]
)
def test_versions_without_offset_request_v0_are_refused(golden, rules):
    store = kafkastore.open(golden("2.4.0", "create-time-monotonic", "answers").logs)
    with pytest.raises(UnknownRulesError):
        fetch_offsets_before(store["mono-0"], -1, 1, rules=rules)
    with pytest.raises(UnknownRulesError):
        get_offsets_before(store, {}, rules=rules)


def test_the_log_start_is_used_since_0_11(golden):
    case = golden("2.4.0", "delete-records", "answers")
    log = next(
        log
        for log in kafkastore.open(case.logs)
        if log.segments[0].base_offset < log.log_start_offset
    )
    before = fetch_offsets_before(log, -1, 100, rules="0.10.2")
    assert min(before) == log.segments[0].base_offset
    for rules in ("0.11", "1.0", "2.4", "3.8"):
        assert min(fetch_offsets_before(log, -1, 100, rules=rules)) == log.log_start_offset


def test_modification_times_come_from_the_files_or_from_a_mapping(golden):
    case = golden("2.4.0", "create-time-monotonic", "answers")
    log = kafkastore.open(case.logs)["mono-0"]
    of_files = segment_times(log)
    assert {f"{base:020d}.log": mtime for base, mtime in of_files} == (
        case.answers["partitions"]["mono-0"]["mtimes_when_asked_ms"]
    )
    assert segment_times(log, {"00000000000000000000.log": 7})[0] == (0, 7)
    assert segment_times(log, {"mono-0/00000000000000000000.log": 8})[0] == (0, 8)
    assert segment_times(log, {"mono-1/00000000000000000000.log": 8}) == of_files


def test_on_java_8_modification_times_are_whole_seconds(tmp_path):
    segments = (
        Segment(0, (Batch((Row(0, 1),)),), 1_500_000_000_999).recovered(),
        Segment(1, (Batch((Row(1, 1),)),), 1_500_000_001_001).recovered(),
    )
    log = kafkastore.open(Log(segments, is_clean=True).write(tmp_path / "logs"))["t-0"]
    now = 1_600_000_000_000
    assert segment_times(log, whole_seconds=True) == (
        (0, 1_500_000_000_000), (1, 1_500_000_001_000),
    )
    for target, precise, rounded in (
        (1_500_000_000_000, [], [0]),
        (1_500_000_000_999, [0], [0]),
        (1_500_000_001_000, [0], [1]),
    ):
        assert fetch_offsets_before(log, target, 1, now) == precise
        assert fetch_offsets_before(log, target, 1, now, whole_seconds=True) == rounded
        found = get_offsets_before(log_store(log), {"t-0": (target, 1)}, now, whole_seconds=True)
        assert found[log.topic_partition].offsets == tuple(rounded)
    given = {"00000000000000000000.log": -1}
    assert segment_times(log, given, whole_seconds=True)[0] == (0, -1000)


def log_store(log):
    return kafkastore.open(log.path.parent)


def test_a_copy_without_its_modification_times_can_use_a_mapping(golden, tmp_path):
    case = golden("0.8.2.2", "upgrade", "answers")
    shutil.copytree(case.logs, tmp_path / "copy", copy_function=shutil.copyfile)
    there, copied = kafkastore.open(case.logs), kafkastore.open(tmp_path / "copy")
    mtimes = kafkastore.legacy.mtimes_of(there)
    differing = 0
    for log in there:
        for _, mtime in segment_times(log):
            right = fetch_offsets_before(log, mtime, 9, mtime)
            copy = copied[str(log.topic_partition)]
            assert fetch_offsets_before(copy, mtime, 9, mtime, mtimes=mtimes) == right
            differing += fetch_offsets_before(copy, mtime, 9, mtime) != right
    assert differing


def test_now_is_the_current_time_by_default(golden):
    log = kafkastore.open(golden("2.4.0", "create-time-monotonic", "answers").logs)["mono-0"]
    assert fetch_offsets_before(log, 1 << 62, 1) == [log.log_end_offset]


def test_a_negative_number_of_offsets_is_refused(golden):
    store = kafkastore.open(golden("2.4.0", "create-time-monotonic", "answers").logs)
    for partition in ("mono-0", "nowhere-0"):
        with refused(f"asked[{partition!r}][1]"):
            get_offsets_before(store, {partition: (-1, -1)}, NOW, "2.0")


def test_answers_are_python_integers(golden):
    log = kafkastore.open(golden("2.4.0", "create-time-monotonic", "answers").logs)["mono-0"]
    for offset in fetch_offsets_before(log, -1, 100):
        assert type(offset) is int
        assert not isinstance(offset, np.integer)


def test_if_a_segment_vanishes_the_segments_are_listed_again(tmp_path):
    log = twenty_appends(tmp_path / "logs")
    assert len(log.segments) == 10
    os.unlink(log.path / "00000000000000000000.log")
    assert fetch_offsets_before(log, -1, 15, NOW) == ALL[:-1]
