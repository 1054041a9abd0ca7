"""Lookups by time: the documented cases one by one, then logs by chance against the slow models."""

import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from models.log_directory import Log, Segment
from models.offset_lookup import broker_answer, correct_answer, kip_33_answer
from models.record_format import Batch, Row, emptied, marker
from models.record_strategies import INDEX_STATES, bounded, logs
from models.segment_indexes import pack_offset_entries, pack_time_entries

import kafkastore
from kafkastore import CorruptBatchError, LogSegment
from kafkastore.log.offset_lookup import UnknownRulesError, kip_33_entries

VERSIONS = {"0.10.2": (0, 10, 2), "2.4": (2, 4), "3.9.1": (3, 9, 1)}


def boundaries(log):
    """Every time at which an answer may change, and its neighbours."""
    times = {record[1] for record in log.records(include_control=True)}
    times |= {batch.max_timestamp for batch in log.batches}
    times |= {segment.modified_ms for segment in log.segments} | {0, -1, -7, 2**63 - 1, -(2**63)}
    near = {time + by for time in times for by in (-1, 0, 1)}
    return sorted(time for time in near if -(2**63) <= time < 2**63)


def answers(log, targets, rules):
    """{target: answer} of the package for a model log written to disk."""
    with tempfile.TemporaryDirectory() as directory:
        (opened,) = kafkastore.open(log.write(Path(directory) / "logs"))
        found = {target: opened.offset_for_timestamp(target, rules) for target in targets}
    return {target: None if answer is None else tuple(answer) for target, answer in found.items()}


def assert_equal(log, rules, model):
    targets = boundaries(log)
    assert answers(log, targets, rules) == {target: model(log, target) for target in targets}


@pytest.fixture
def opened(tmp_path):
    """A function that writes a model log and opens it."""

    def write_and_open(log):
        (found,) = kafkastore.open(log.write(tmp_path / "logs"))
        return found

    return write_and_open


def one_by_one(first_offset, *times, **fields):
    """Batches of one record each, from an offset on, with these times."""
    return tuple(
        Batch((Row(first_offset + number, time),), **fields) for number, time in enumerate(times)
    )


def closed(base_offset, batches, **fields):
    return Segment(base_offset, batches, **fields).indexed()


NEXT = closed(10, one_by_one(10, *range(600, 610)))
UP_TO_1000 = one_by_one(0, 0, 1, 1000, *range(3, 10))
UNTIMED = one_by_one(0, *[-1] * 10, magic=0)
# What stands before a segment with the times 600 to 609, the time asked for, and the two answers.
NO_FALL_THROUGH = {
    "nothing in the way": (
        Log((closed(0, UP_TO_1000), NEXT)), 500, (1000, 2, 0), (1000, 2, 0)),
    "the log starts behind the record that gave the maximum": (
        Log((closed(0, UP_TO_1000), NEXT), checkpointed_start=5), 500, (600, 10, 0), None),
    "records without time, modified later": (
        Log((closed(0, UNTIMED, modified_ms=700), NEXT)), 605, (605, 15, 0), None),
    "records without time, modified before": (
        Log((closed(0, UNTIMED, modified_ms=604), NEXT)), 605, (605, 15, 0), (605, 15, 0)),
    "records without time, modified just then": (
        Log((closed(0, UNTIMED, modified_ms=605), NEXT)), 605, (605, 15, 0), None),
    "an emptied batch that keeps its maximum": (
        Log((closed(0, (*one_by_one(0, 1, 2), emptied(2, 9, 800))), NEXT)),
        500, (600, 10, 0), None),
    "an emptied segment, modified later": (
        Log((Segment(0, (), modified_ms=10**6), NEXT)), 500, (600, 10, 0), None),
    "a missing time index, modified later": (
        Log((Segment(0, UP_TO_1000, modified_ms=10**6, time_index=None), NEXT), is_clean=True),
        1001, None, None),
    "a missing time index, modified before": (
        Log((Segment(0, UP_TO_1000, modified_ms=5, time_index=None), NEXT), is_clean=True),
        500, (1000, 2, 0), (600, 10, 0)),
    "a missing time index above the recovery point": (
        Log((Segment(0, UP_TO_1000, modified_ms=5, time_index=None), NEXT), recovery_point=3),
        500, (1000, 2, 0), (1000, 2, 0)),
    "a missing time index below the recovery point": (
        Log((Segment(0, UP_TO_1000, modified_ms=5, time_index=None), NEXT), recovery_point=11),
        500, (1000, 2, 0), (600, 10, 0)),
    "a marker with the time": (
        Log((closed(0, (*one_by_one(0, 1), marker(1, 550))), NEXT)),
        500, (600, 10, 0), (550, 1, 0)),
    "padding, the broker was closed in order": (
        Log((replace(closed(0, UP_TO_1000), time_index=closed(0, UP_TO_1000).time_index
                     + bytes(120)), NEXT), is_clean=True), 500, (1000, 2, 0), (600, 10, 0)),
    "padding, the broker was killed": (
        Log((replace(closed(0, UP_TO_1000), time_index=closed(0, UP_TO_1000).time_index
                     + bytes(120)), NEXT)), 500, (1000, 2, 0), (1000, 2, 0)),
    "a last entry that is too high": (
        Log((replace(closed(0, one_by_one(0, 1, 2)), time_index=pack_time_entries([(700, 1)], 0)),
             NEXT)), 500, (600, 10, 0), None),
    "a last entry that is too low": (
        Log((replace(closed(0, UP_TO_1000), time_index=pack_time_entries([(1, 1)], 0)), NEXT)),
        500, (1000, 2, 0), (600, 10, 0)),
}


@pytest.mark.parametrize(
    ("log", "target", "right", "of_the_broker"), NO_FALL_THROUGH.values(), ids=NO_FALL_THROUGH
)
def test_a_broker_does_not_try_the_next_segment(opened, log, target, right, of_the_broker):
    found = opened(log)
    assert found.offset_for_timestamp(target) == right
    assert found.offset_for_timestamp(target, rules="2.4") == of_the_broker
    assert broker_answer(log, target, (2, 4)) == of_the_broker


# Times asked of an active segment with the times 10, 30, 20 at offsets 0 to 2, whatever its index.
ACTIVE = one_by_one(0, 10, 30, 20)
ACTIVE_STATES = {
    "closed": closed(0, ACTIVE),
    "without its last entry": Segment(0, ACTIVE).indexed(interval=10**6, is_closed=False),
    "padded": replace(closed(0, ACTIVE), time_index=bytes(1020), offset_index=bytes(1024)),
    "without indexes": replace(closed(0, ACTIVE), time_index=None, offset_index=None),
}


@pytest.mark.parametrize("segment", ACTIVE_STATES.values(), ids=ACTIVE_STATES)
@pytest.mark.parametrize("rules", ["correct", "2.4"])
def test_an_active_segment_answers_as_the_closed_one(opened, segment, rules):
    found = opened(Log((segment,)))
    answers = [found.offset_for_timestamp(target, rules) for target in (0, 10, 11, 30, 31)]
    assert answers == [(10, 0, 0), (10, 0, 0), (30, 1, 0), (30, 1, 0), None]


def test_answers_carry_the_leader_epoch(opened):
    """As in Kafka's testFetchOffsetByTimestampIncludesLeaderEpoch."""
    found = opened(Log((closed(0, (*one_by_one(0, 50), *one_by_one(1, 51, leader_epoch=1))),)))
    for rules in ("correct", "2.4", "kip-33"):
        assert found.offset_for_timestamp(50, rules) == (50, 0, 0)
    assert found.offset_for_timestamp(51) == (51, 1, 1)
    old = one_by_one(0, 50, leader_epoch=-1)
    with tempfile.TemporaryDirectory() as directory:
        (other,) = kafkastore.open(Log((closed(0, old),)).write(Path(directory) / "logs"))
        assert other.offset_for_timestamp(50) == (50, 0, None)


@pytest.mark.parametrize("rules", ["correct", "kip-33", "2.4", "3.9.1"])
def test_an_empty_log_has_no_answer(opened, rules):
    found = opened(Log((Segment(7, (), modified_ms=5),)))
    for target in (-7, -1, 0, 5, 6, 2**62):
        assert found.offset_for_timestamp(target, rules) is None


def test_negative_times_are_times_to_a_broker_and_the_start_to_right_rules(opened):
    found = opened(Log((closed(0, one_by_one(0, -5, -1, 0, 7)),)))
    assert found.offset_for_timestamp(-7) == (0, 2, 0)
    assert found.offset_for_timestamp(-7, rules="2.4") == (-5, 0, 0)
    assert found.offset_for_timestamp(-1, rules="2.4") == (-1, 1, 0)


def test_record_numbers_before_the_log_start_are_not_answers(opened):
    found = opened(Log((closed(0, one_by_one(0, 1, 2, 3, 4)),), checkpointed_start=2))
    assert found.offset_for_timestamp(0) == (3, 2, 0)
    assert found.offset_for_timestamp(0, rules="2.4") == (3, 2, 0)


@pytest.mark.parametrize("interval", [1, 1000])
def test_sparse_times_far_apart_are_found(opened, interval):
    """Deltas above 31 bits within one batch."""
    rows = (Row(0, 1), Row(1, 2**40), Row(2, 2**33))
    found = opened(Log((Segment(0, (Batch(rows),)).indexed(interval=interval),)))
    assert found.offset_for_timestamp(2) == (2**40, 1, 0)
    assert found.offset_for_timestamp(2**40 + 1) is None


def test_a_legal_first_entry_of_zeros_is_read_from_the_log(opened):
    found = opened(Log((closed(0, one_by_one(0, 0)), closed(1, one_by_one(1, 5)))))
    assert found.offset_for_timestamp(0) == (0, 0, 0)
    assert found.offset_for_timestamp(1) == (5, 1, 0)


def test_an_offset_index_that_points_behind_the_log_ends_a_broker_s_search(opened):
    segment = replace(closed(0, UP_TO_1000), offset_index=pack_offset_entries([(1, 10**6)], 0))
    found = opened(Log((segment,)))
    assert found.offset_for_timestamp(500) == (1000, 2, 0)
    assert found.offset_for_timestamp(500, rules="2.4") is None


KIP_33 = (closed(0, one_by_one(0, 10, 20)), closed(2, one_by_one(2, 30, 40)))


@pytest.mark.parametrize(
    ("target", "offset"), [(9, 0), (10, 0), (19, 1), (20, 2), (39, 3), (40, None), (41, None)]
)
def test_kip_33_goes_on_to_the_next_segment_at_a_segment_s_maximum(opened, target, offset):
    found = opened(Log(KIP_33)).offset_for_timestamp(target, rules="kip-33")
    assert (found and found.offset) == offset


def test_kip_33_dates_inactive_segments_without_index_by_modification(opened):
    found = opened(Log((Segment(0, UNTIMED, modified_ms=620, time_index=None), NEXT)))
    assert found.offset_for_timestamp(605, rules="kip-33") == (605, 15, 0)
    inactive, active = found.segments
    assert kip_33_entries(inactive) == [(620, 10)]
    active.time_index_path.unlink()
    assert kip_33_entries(LogSegment(found.path, active.base_offset)) == []


@pytest.mark.parametrize(
    "rules",
    ["", "right", "2", "v2.4", "2.4-SNAPSHOT", "2.4.0.0.0", "KIP-33", " 2.4", "2.4\n", "\u0662.4"],
)
def test_rules_that_are_not_known_are_an_error(opened, rules):
    with pytest.raises(UnknownRulesError):
        opened(Log((NEXT,))).offset_for_timestamp(5, rules=rules)


@pytest.mark.parametrize("rules", ["0.8.2.2", "0.9.0.1", "0.10.0.1", "0.10.0"])
def test_versions_without_time_indexes_are_an_error_that_names_the_other_way(opened, rules):
    with pytest.raises(UnknownRulesError, match="legacy"):
        opened(Log((NEXT,))).offset_for_timestamp(5, rules=rules)


@pytest.mark.parametrize("rules", ["0.10.1", "0.10.1.0", "1.0", "2.4", "2.4.0", "3.9.1", "4.10.0"])
def test_every_version_with_time_indexes_is_known(opened, rules):
    assert opened(Log((NEXT,))).offset_for_timestamp(605, rules=rules) == (605, 15, 0)


# Bytes behind the segment's batches: what a search that runs into them must do.
@pytest.mark.parametrize(
    ("tail", "is_error"), [(b"\xff" * 60, True), (bytes(60), False), (NEXT.log[:-1], False)]
)
def test_broken_bytes_on_the_way_are_an_error_with_their_place(opened, tail, is_error):
    batches = (*one_by_one(0, 1, 2), emptied(2, 9, 800))
    found = opened(Log((Segment(0, batches, tail=tail),)))
    assert found.offset_for_timestamp(2) == (2, 1, 0)
    if is_error:
        with pytest.raises(CorruptBatchError) as caught:
            found.offset_for_timestamp(700)
        assert caught.value.path == found.segments[0].log_path
        assert caught.value.position == len(found.segments[0].log_path.read_bytes()) - len(tail)
    else:
        assert found.offset_for_timestamp(700) is None


@bounded(250)
@given(logs())
def test_the_right_answer_is_that_of_brute_force(log):
    assert_equal(log, "correct", correct_answer)


@pytest.mark.parametrize("rules", VERSIONS)
@bounded(80)
@given(logs())
def test_a_broker_s_answer_is_that_of_its_model(rules, log):
    version = VERSIONS[rules]
    assert_equal(log, rules, lambda log, target: broker_answer(log, target, version))


@bounded(80)
@given(logs(states=[state for state in INDEX_STATES if state != "made anew"]))
def test_kip_33_s_answer_is_that_of_its_model(log):
    assert_equal(log, "kip-33", kip_33_answer)
