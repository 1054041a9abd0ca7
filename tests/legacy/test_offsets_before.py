import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafkastore.legacy import UnsupportedTimestampError, fetch_offsets_before, offsets_before
from kafkastore.legacy.segment_times import segment_times

import kafkastore
from kafkastore.log.offset_lookup import UnknownRulesError

NOW = 10_000


@pytest.mark.golden_cases(versions=["0.*", "2.*", "3.*"])
def test_every_answer_of_every_broker_to_offset_request_v0_is_reproduced(golden_case):
    answers = golden_case.answers
    store = kafkastore.open(golden_case.logs)
    asked = 0
    for name, partition in answers["partitions"].items():
        log = store[name]
        for question in partition.get("list_offsets_v0", []):
            if "exception" in question:
                continue
            asked += 1
            arguments = (
                log,
                question["timestamp"],
                question["max_num_offsets"],
                answers["asked_at_ms"] - 1,
                answers["kafka"],
                partition["mtimes_when_asked_ms"],
            )
            if question["error"] == 35:
                with pytest.raises(UnsupportedTimestampError):
                    fetch_offsets_before(*arguments)
                continue
            assert question["error"] == 0
            expected = question["offsets"]
            if (golden_case.name, golden_case.answers_name) == ("crash-torn", "answers"):
                # The last batch was cut off after the broker had been asked.
                end = partition["log_end_offset"]
                expected = [log.log_end_offset if each == end else each for each in expected]
            assert fetch_offsets_before(*arguments) == expected, (name, question)
    assert asked or golden_case.name in ("kraft-metadata", "wide") or not answers["partitions"]


def model(segments, target, count, end, now, start, high_watermark):
    """The rule as one would write it down."""
    elements = [(max(base, start), mtime) for base, mtime in segments]
    elements += [] if end is None else [(end, now)]
    if target == -1:
        wanted = elements
    elif target == -2:
        wanted = elements[:1]
    else:
        fitting = [index for index, (_, mtime) in enumerate(elements) if mtime <= target]
        wanted = elements[: max(fitting, default=-1) + 1]
    offsets = sorted((offset for offset, _ in wanted[::-1][:count]), reverse=True)
    above = [offset for offset in offsets if offset > high_watermark]
    return ([high_watermark] if above else []) + [o for o in offsets if o <= high_watermark]


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(-5, 40)), min_size=1, max_size=8),
    st.integers(-4, 45),
    st.integers(0, 10),
    st.none() | st.integers(0, 60),
    st.integers(0, 50),
    st.integers(0, 60),
)
def test_the_rule_equals_its_description(segments, target, count, end, start, high_watermark):
    segments = sorted(segments, key=lambda each: each[0])
    found = offsets_before(
        segments,
        target,
        count,
        log_end_offset=end,
        now=42,
        log_start_offset=start,
        high_watermark=high_watermark,
    )
    assert found == model(segments, target, count, end, 42, start, high_watermark)
    assert found == sorted(found, reverse=True)


# Twenty appends of one record, two to a segment; the last segment is full.
TWENTY = [(base, 1000 + base) for base in range(0, 20, 2)]


@pytest.mark.parametrize(
    ("target", "start", "expected"),
    [
        (-1, 0, [20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0]),
        (NOW + 30_000, 0, [20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0]),
        (-2, 0, [0]),
        (1009, 0, [8, 6, 4, 2, 0]),
        (1008, 0, [8, 6, 4, 2, 0]),
        (999, 0, []),
        (-7, 0, []),
    ],
)
def test_the_cases_of_kafka_s_own_tests(target, start, expected):
    assert (
        offsets_before(TWENTY, target, 15, log_end_offset=20, now=NOW, log_start_offset=start)
        == expected
    )


def test_segments_below_the_log_start_answer_the_log_start():
    # Kafka deletes the first segment, 0 to 1, with the records.
    assert offsets_before(TWENTY[1:], -1, 15, log_end_offset=20, now=NOW, log_start_offset=3) == [
        20,
        18,
        16,
        14,
        12,
        10,
        8,
        6,
        4,
        3,
    ]
    assert offsets_before(TWENTY[:3], -1, 15, log_end_offset=6, now=NOW, log_start_offset=6) == [
        6,
        6,
        6,
        6,
    ]


def test_offsets_above_the_high_watermark_become_one():
    assert offsets_before(TWENTY, -1, 15, log_end_offset=20, now=NOW, high_watermark=15) == [
        15,
        14,
        12,
        10,
        8,
        6,
        4,
        2,
        0,
    ]
    assert offsets_before(TWENTY, -1, 2, log_end_offset=20, now=NOW, high_watermark=15) == [15]


def test_an_empty_log_answers_its_only_segment():
    assert offsets_before([(0, 500)], -1, 5, log_end_offset=None, now=NOW) == [0]
    assert offsets_before([(0, 500)], 499, 5, log_end_offset=None, now=NOW) == []


@pytest.mark.parametrize("rules", ["correct", "kip-33", "0.7", "4.0", "4.1.1", "2", "", "2.4-rc1"])
def test_rules_that_are_no_version_with_offset_request_v0_are_refused(golden, rules):
    log = kafkastore.open(golden("2.4.0", "create-time-monotonic", "answers").logs)["mono-0"]
    with pytest.raises(UnknownRulesError):
        fetch_offsets_before(log, -1, 1, rules=rules)


def test_the_log_start_counts_from_0_11_on(golden):
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


def test_times_come_from_the_files_or_from_a_mapping(golden):
    case = golden("2.4.0", "create-time-monotonic", "answers")
    log = kafkastore.open(case.logs)["mono-0"]
    of_files = segment_times(log)
    assert {f"{base:020d}.log": mtime for base, mtime in of_files} == (
        case.answers["partitions"]["mono-0"]["mtimes_when_asked_ms"]
    )
    assert segment_times(log, {"00000000000000000000.log": 7})[0] == (0, 7)
    assert segment_times(log, {"mono-0/00000000000000000000.log": 8})[0] == (0, 8)
    assert segment_times(log, {"mono-1/00000000000000000000.log": 8}) == of_files


def test_now_is_the_clock_when_it_is_not_given(golden):
    log = kafkastore.open(golden("2.4.0", "create-time-monotonic", "answers").logs)["mono-0"]
    assert fetch_offsets_before(log, 1 << 62, 1) == [log.log_end_offset]


def test_a_negative_number_of_offsets_is_refused():
    with pytest.raises(ValueError, match="-1 offsets"):
        offsets_before(TWENTY, -1, -1, log_end_offset=20, now=NOW)


def test_answers_are_plain_integers(golden):
    log = kafkastore.open(golden("2.4.0", "create-time-monotonic", "answers").logs)["mono-0"]
    for offset in fetch_offsets_before(log, -1, 100):
        assert type(offset) is int
        assert not isinstance(offset, np.integer)
