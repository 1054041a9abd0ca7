"""Lookups by time: the documented cases, then random logs against the slow models."""

import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from models.log_directory import Log, Segment
from models.offset_lookup import (
    broker_answer,
    committed_answer,
    correct_answer,
    kip_33_answer,
    untimed_answer,
)
from models.record_format import Batch, Row, emptied, marker
from models.record_strategies import INDEX_STATES, bounded, logs
from models.refused import refused
from models.segment_indexes import pack_offset_entries, pack_time_entries, time_entries_of

import kafkastore
from kafkastore import CorruptBatchError, LogSegment, TopicPartition
from kafkastore.lookup.kip_33 import kip_33_entries
from kafkastore.lookup.rules import UnknownRulesError

VERSIONS = {
    "0.10.2": (0, 10, 2), "0.11": (0, 11), "2.0": (2, 0), "2.1": (2, 1), "2.2": (2, 2),
    "2.4": (2, 4), "3.0": (3, 0), "3.8": (3, 8), "3.9.1": (3, 9, 1), "4.3": (4, 3),
}


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
# Segments before one with the times 600 to 609, the target timestamp, and the two answers.
NO_FALL_THROUGH = {
    "nothing in the way": (
        Log((closed(0, UP_TO_1000), NEXT)), 500, (1000, 2, 0), (1000, 2, 0)),
    "the log starts after the record that gave the maximum": (
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
    "padding, after a clean shutdown": (
        Log((replace(closed(0, UP_TO_1000), time_index=closed(0, UP_TO_1000).time_index
                     + bytes(120)), NEXT), is_clean=True), 500, (1000, 2, 0), (600, 10, 0)),
    "padding, the broker was killed": (
        Log((replace(closed(0, UP_TO_1000), time_index=closed(0, UP_TO_1000).time_index
                     + bytes(120)), NEXT)), 500, (1000, 2, 0), (1000, 2, 0)),
    "a last entry that is too high": (
        Log((replace(closed(0, one_by_one(0, 1, 2)), time_index=pack_time_entries([(700, 1)], 0)),
             NEXT), is_clean=True), 500, (600, 10, 0), None),
    "a last entry that is too high, above the recovery point": (
        Log((replace(closed(0, one_by_one(0, 1, 2)), time_index=pack_time_entries([(700, 1)], 0)),
             NEXT), recovery_point=9), 500, (600, 10, 0), (600, 10, 0)),
    "a last entry that is too low": (
        Log((replace(closed(0, UP_TO_1000), time_index=pack_time_entries([(1, 1)], 0)), NEXT),
            is_clean=True), 500, (1000, 2, 0), (600, 10, 0)),
    "a last entry that is too low, below the recovery point": (
        Log((replace(closed(0, UP_TO_1000), time_index=pack_time_entries([(1, 1)], 0)), NEXT),
            recovery_point=10), 500, (1000, 2, 0), (600, 10, 0)),
}


@pytest.mark.parametrize(
    ("log", "target", "right", "of_the_broker"), NO_FALL_THROUGH.values(), ids=NO_FALL_THROUGH
)
def test_a_broker_does_not_try_the_next_segment(opened, log, target, right, of_the_broker):
    found = opened(log)
    assert found.offset_for_timestamp(target) == right
    assert found.offset_for_timestamp(target, rules="2.4") == of_the_broker
    assert broker_answer(log, target, (2, 4)) == of_the_broker


# Targets in an active segment with the times 10, 30, 20 at offsets 0 to 2, with any index.
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


def test_an_offset_index_that_points_beyond_the_log_ends_a_broker_s_search(opened):
    segment = replace(closed(0, UP_TO_1000), offset_index=pack_offset_entries([(1, 10**6)], 0))
    found = opened(Log((segment,), is_clean=True))
    assert found.offset_for_timestamp(500) == (1000, 2, 0)
    assert found.offset_for_timestamp(500, rules="2.4") is None


KIP_33 = (closed(0, one_by_one(0, 10, 20)), closed(2, one_by_one(2, 30, 40)))


@pytest.mark.parametrize(
    ("target", "offset"), [(9, 0), (10, 0), (19, 1), (20, 2), (39, 3), (40, None), (41, None)]
)
def test_kip_33_continues_in_the_next_segment_at_a_segment_s_maximum(opened, target, offset):
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
    [
        "", "right", "9", "9.9", "4.10.0", "v2.4", "2.4-SNAPSHOT", "2.4.0.0.0", "KIP-33", " 2.4",
        "2.4\n", "\u0662.4",
    ],
)
def test_rules_that_are_not_known_are_an_error(opened, rules):
    with pytest.raises(UnknownRulesError):
        opened(Log((NEXT,))).offset_for_timestamp(5, rules=rules)


@pytest.mark.parametrize("rules", ["0.8.2.2", "0.9.0.1", "0.10.0.1", "0.10.0"])
def test_versions_without_time_indexes_are_an_error_that_names_the_alternative(opened, rules):
    with refused("rules", UnknownRulesError):
        opened(Log((NEXT,))).offset_for_timestamp(5, rules=rules)


@pytest.mark.parametrize(
    "rules", ["0.10.1", "0.10.1.0", "1.0", "2.4", "2.4.0", "3.9.1", "4.2.1", "4.3.1", "2", "4"]
)
def test_every_version_with_time_indexes_is_known(opened, rules):
    found = opened(Log((NEXT,))).offset_for_timestamp(605, rules=rules)
    assert found == (605, 15, 0 if rules[0] in "234" else None)    # epochs are returned since 2.2


# Bytes after the segment's batches, and what a search that reaches them must do.
@pytest.mark.parametrize(
    ("tail", "is_error"), [(b"\xff" * 60, True), (bytes(60), False), (NEXT.log[:-1], False)]
)
def test_corrupt_bytes_during_a_search_are_an_error_with_their_position(opened, tail, is_error):
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


def with_entries_of_another_log(segment, chance):
    """The same log with random sorted entries in its time index, or in a compacted log's."""
    kept = tuple(batch for batch in segment.batches if chance.random() < 0.6)
    found = set()
    for each in (segment, replace(segment, batches=kept)):
        entries = time_entries_of(each.indexed(interval=0).time_index, segment.base_offset)
        found |= {entry for entry in entries if chance.random() < 0.6}
    rising = []
    for entry in sorted(found):
        if not rising or entry[1] > rising[-1][1]:
            rising.append(entry)
    return replace(segment, time_index=pack_time_entries(rising, segment.base_offset))


@bounded(80)
@given(logs(states=("closed",)), st.randoms(use_true_random=False))
def test_the_right_answer_needs_no_entry_of_any_time_index(log, chance):
    log = replace(log, segments=tuple(
        with_entries_of_another_log(segment, chance) for segment in log.segments
    ))  # fmt: skip
    targets = boundaries(log)
    wanted = [correct_answer(log, target) for target in targets]
    with tempfile.TemporaryDirectory() as directory:
        (opened,) = kafkastore.open(log.write(Path(directory) / "logs"))
        for indexes in ("check", "ignore"):
            found = [opened.offset_for_timestamp(each, indexes=indexes) for each in targets]
            assert found == wanted, indexes
            many = opened.offsets_for_timestamps(targets, indexes=indexes)["offset"].tolist()
            assert many == [-1 if each is None else each[1] for each in wanted]
        for target in [each for each in targets if each >= 0][:: len(targets) // 5 + 1]:
            rows = opened.to_arrow(["offset"], start_timestamp=target).read_all()
            assert rows["offset"].to_pylist() == [
                record[0] for record in log.records() if record[1] >= target
            ]
            explained = opened.explain_timestamp(target)
            assert explained.answer == explained.correct == correct_answer(log, target)


LACKING = replace(
    closed(0, one_by_one(0, 10, 500, 20, 30)), time_index=pack_time_entries([(10, 0), (30, 3)], 0)
)


@pytest.mark.parametrize("query", [
    lambda log, **how: log.offset_for_timestamp(400, **how),
    lambda log, **how: log.list_offset(400, **how),
    lambda log, **how: log.explain_timestamp(400, **how).answer,
    lambda log, **how: log.offset_for_timestamp(400, isolation="read_committed", **how),
    lambda log, **how: log.offset_for_timestamp(400, untimed="segment", **how),
])  # fmt: skip
def test_an_index_that_lacks_an_entry_is_found_out_unless_it_is_trusted(opened, query):
    log = opened(Log((LACKING, NEXT)))
    assert query(log) == query(log, indexes="check") == query(log, indexes="ignore") == (500, 1, 0)
    assert query(log, indexes="trust") == (600, 10, 0)


@pytest.mark.parametrize(("indexes", "offsets"), [
    ("check", [1, *range(10, 20)]), ("ignore", [1, *range(10, 20)]), ("trust", [*range(10, 20)]),
])  # fmt: skip
def test_a_reader_from_a_time_skips_segments_as_far_as_indexes_are_trusted(
    opened, indexes, offsets
):
    log = opened(Log((LACKING, NEXT)))
    rows = log.to_arrow(["offset"], start_timestamp=400, indexes=indexes).read_all()
    assert rows["offset"].to_pylist() == offsets


def test_a_broker_that_recovers_a_segment_has_the_entry_that_its_index_lacks(opened):
    log = opened(Log((LACKING, NEXT)))
    assert log.offset_for_timestamp(400, "4.1") == (500, 1, 0)


@pytest.mark.parametrize("query", [
    lambda log: log.offset_for_timestamp(0, indexes="believe"),
    lambda log: log.offsets_for_timestamps([0], indexes="believe"),
    lambda log: log.list_offset(0, indexes="believe"),
    lambda log: log.to_arrow(indexes="believe"),
    lambda log: log.segments[0].largest_record_timestamp("believe"),
])  # fmt: skip
def test_an_unknown_use_of_indexes_is_an_error(opened, query):
    with refused("indexes"):
        query(opened(Log((NEXT,))))


@bounded(120)
@given(logs())
def test_the_right_answer_is_that_of_brute_force(log):
    assert_equal(log, "correct", correct_answer)


@pytest.mark.parametrize("rules", VERSIONS)
@bounded(20)
@given(logs())
def test_a_broker_s_answer_is_that_of_its_model(rules, log):
    version = VERSIONS[rules]
    assert_equal(log, rules, lambda log, target: broker_answer(log, target, version))


@st.composite
def odd_logs(draw):
    """Logs with times of the far future, and time indexes that are zeros or not in order."""
    log = draw(logs())
    return replace(log, segments=tuple(draw(odd_segments(log, each)) for each in log.segments))


@st.composite
def odd_segments(draw, log, segment):
    """The segment of a log with further records, or another time index."""
    last = segment.batches[-1].last_offset if segment.batches else 2**40
    times = draw(st.lists(st.sampled_from([2**62, 2**63 - 1, 0, 7]), max_size=2))
    later = [each.base_offset for each in log.segments if each.base_offset > last]
    limit = min(later, default=2**39)
    if last + len(times) < limit:
        segment = replace(segment, batches=(*segment.batches, *one_by_one(last + 1, *times)))
    state = draw(st.sampled_from(["kept", "indexed", "zeros", "shuffled", "moved"]))
    if state == "kept":
        return segment
    segment = segment.indexed(interval=draw(st.sampled_from([0, 100])))
    entries = [segment.time_index[at : at + 12] for at in range(0, len(segment.time_index), 12)]
    if state == "zeros":
        return replace(segment, time_index=bytes(1020), offset_index=bytes(1024))
    if state == "shuffled":
        entries = draw(st.permutations(entries))
    elif state == "moved" and entries:
        entries[draw(st.integers(0, len(entries) - 1))] = pack_time_entries([(20, 0)], 0)
    return replace(segment, time_index=b"".join(entries))


@pytest.mark.parametrize("rules", ["correct", "2.0", "2.4", "4.3"])
@bounded(50)
@given(odd_logs())
def test_odd_times_and_odd_indexes_have_the_answers_of_their_models(rules, log):
    def model(log, target):
        if rules == "correct":
            return correct_answer(log, target)
        return broker_answer(log, target, VERSIONS[rules])

    assert_equal(log, rules, model)


@bounded(40)
@given(logs())
def test_a_lone_directory_answers_as_the_broker_that_was_running(log):
    log = replace(log, checkpointed_start=None)
    with tempfile.TemporaryDirectory() as directory:
        (alone,) = kafkastore.open(log.write(Path(directory) / "logs") / "t-0")
        for target in boundaries(log):
            found = alone.offset_for_timestamp(target, "2.4")
            assert found == broker_answer(log, target, (2, 4), is_alone=True)


@bounded(40)
@given(logs(states=[state for state in INDEX_STATES if state != "rebuilt"]))
def test_kip_33_s_answer_is_that_of_its_model(log):
    assert_equal(log, "kip-33", kip_33_answer)


@bounded(40)
@given(logs())
def test_segments_without_timestamps_count_as_a_whole_on_request(log):
    targets = boundaries(log)
    with tempfile.TemporaryDirectory() as directory:
        (found,) = kafkastore.open(log.write(Path(directory) / "logs"))
        for target in targets:
            answer = found.offset_for_timestamp(target, untimed="segment")
            assert answer == untimed_answer(log, target), target
        many = found.offsets_for_timestamps(targets, untimed="segment")
        assert many.tolist() == [
            flat(found.offset_for_timestamp(target, untimed="segment")) for target in targets
        ]


def flat(found):
    if found is None:
        return (-1, -1, -1)
    return (*found[:2], -1 if found[2] is None else found[2])


@pytest.mark.parametrize("rules", ["correct", "kip-33", "0.10.2", "2.4", "4.3"])
@bounded(30)
@given(log=logs(), chance=st.randoms(use_true_random=False))
def test_many_times_at_once_have_the_answers_of_each(rules, log, chance):
    targets = boundaries(log)
    chance.shuffle(targets)
    with tempfile.TemporaryDirectory() as directory:
        (found,) = kafkastore.open(log.write(Path(directory) / "logs"))
        many = found.offsets_for_timestamps(targets, rules)
        assert many.dtype.names == ("timestamp", "offset", "leader_epoch")
        each = [flat(found.offset_for_timestamp(target, rules)) for target in targets]
        assert many.tolist() == each
        assert found.offsets_for_timestamps([], rules).tolist() == []


@st.composite
def transactional_logs(draw):
    """A log of two producers' transactions, committed, aborted and open ones, and plain batches."""
    batches = []
    for offset in range(draw(st.integers(1, 14))):
        producer, time = draw(st.integers(1, 2)), draw(st.integers(0, 9))
        kind = draw(st.sampled_from(["plain", "record", "record", "commit", "abort"]))
        if kind in ("commit", "abort"):
            batches.append(marker(offset, time, is_commit=kind == "commit", producer_id=producer))
        else:
            fields = {"producer_id": producer, "producer_epoch": 0, "is_transactional": True}
            row = Row(offset, time)
            batches.append(Batch((row,), **(fields if kind == "record" else {})))
    cut = draw(st.integers(0, len(batches)))
    parts = [part for part in (batches[:cut], batches[cut:]) if part]
    found = tuple(closed(part[0].base_offset, tuple(part)) for part in parts)
    return Log(found, checkpointed_start=draw(st.integers(0, len(batches))))


@bounded(120)
@given(transactional_logs())
def test_committed_answers_leave_out_aborted_and_undecided_records(log):
    targets = range(11)
    with tempfile.TemporaryDirectory() as directory:
        (found,) = kafkastore.open(log.write(Path(directory) / "logs"))
        wanted = [committed_answer(log, target) for target in targets]
        each = [
            found.offset_for_timestamp(target, isolation="read_committed") for target in targets
        ]
        assert each == wanted
        many = found.offsets_for_timestamps(targets, isolation="read_committed")
        assert many.tolist() == [flat(answer) for answer in each]
        kept = {record.offset for record in found.records(isolation="read_committed")}
        assert {answer.offset for answer in each if answer} <= kept


@pytest.mark.parametrize("option", [{"isolation": "committed"}, {"untimed": "record"}])
def test_options_that_are_none_are_an_error(opened, option):
    found = opened(Log((NEXT,)))
    with refused(next(iter(option))):
        found.offset_for_timestamp(5, **option)
    with refused("isolation"):
        found.offset_for_timestamp(5, "0.10.2", isolation="read_committed")


def test_a_refreshed_log_answers_again(opened):
    found = opened(Log((NEXT,)))
    assert found.offset_for_timestamp(700) is None
    assert found.offset_for_timestamp(700, "2.4") is None
    with (found.path / f"{10:020}.log").open("ab") as file:
        file.write(b"".join(batch.data for batch in one_by_one(20, 700)))
    found.refresh()
    assert found.offset_for_timestamp(700) == (700, 20, 0)
    assert found.offset_for_timestamp(700, "2.4") == (700, 20, 0)


def test_a_store_answers_for_every_requested_partition(tmp_path):
    """As KafkaConsumer.offsetsForTimes; also its testGetOffsetsForTimes."""
    store = kafkastore.open(Log((NEXT,)).write(tmp_path / "logs"))
    key = TopicPartition("t", 0)
    assert store.offsets_for_times({("t", 0): 605}) == {key: (605, 15, 0)}
    assert store.offsets_for_times({"t-0": 700}, rules="2.4") == {key: None}
    assert store.offsets_for_times({key: 0}, isolation="read_committed") == {key: (600, 10, 0)}
    assert store.offsets_for_times({}) == {}
    with refused("the time for t-0"):
        store.offsets_for_times({"t-0": -1})
    with pytest.raises(KeyError):
        store.offsets_for_times({"t-1": 5})
