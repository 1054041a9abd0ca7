"""Predicted answers of a migration are those of the migrated directory."""

import os
import pickle

import pytest
from kafkastore.migration import answers, partition_answers, plan, survey
from kafkastore.migration.answers import as_planned
from models.log_directory import Log, Segment
from models.record_format import Batch, Row
from models.record_strategies import in_a_row
from models.refused import refused

import kafkastore
from kafkastore.changes.apply import apply
from kafkastore.errors import ArgumentTypeError
from kafkastore.lookup.rules import UnknownRulesError
from kafkastore.store.sample_times import sample_times

from .directories import contents, data

OLD = ["0.8.2.2", "0.9.0.1", "0.10.0.1"]
MODES = ["auto", "rebuild", "kip-33", "empty"]


def found(root, mode="auto", **options):
    surveyed = survey(root)
    planned = plan(surveyed, mode)
    return planned, answers(surveyed, planned, **options)


def offset(log, timestamp, rules):
    answer = log.offset_for_timestamp(timestamp, rules)
    return None if answer is None else answer.offset


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.golden_cases(
    versions=OLD, names=["upgrade", "create-time-out-of-order"], answers="answers"
)
def test_predicted_answers_are_those_of_the_migrated_directory(
    golden_case, writable_copy, mode, is_clean
):
    root = writable_copy(golden_case.logs)
    if not is_clean:
        (root / ".kafka_cleanshutdown").unlink(missing_ok=True)
    planned, predicted = found(root, mode, samples=25)
    before = kafkastore.open(golden_case.logs if is_clean else writable_copy(root))
    apply(planned)
    after = kafkastore.open(root)
    for partition in predicted.partitions:
        assert partition.problem is None
        key = partition.topic_partition
        for each in partition.answers:
            assert each.correct == offset(before[key], each.target_timestamp, "correct")
            assert each.before == offset(before[key], each.target_timestamp, each.rules)
            assert each.after == offset(after[key], each.target_timestamp, each.rules)


@pytest.mark.parametrize("mode", ["auto", "rebuild"])
@pytest.mark.golden_cases(versions="0.10.0.1", names="upgrade", answers="answers-upgraded-*")
def test_answers_are_correct_after_a_rebuild_and_were_not_before(golden_case, writable_copy, mode):
    _, predicted = found(writable_copy(golden_case.logs), mode)
    assert [each.rules for each in predicted.summaries] == ["2.4", "4.3"]
    for each in predicted.summaries:
        assert each.correct_before < each.times == each.correct_after


def test_records_without_timestamps_are_not_looked_up(golden, writable_copy):
    _, predicted = found(writable_copy(golden("0.8.2.2", "upgrade", "answers").logs))
    assert predicted.summaries == ()
    assert (len(predicted.partitions), predicted.changed_partitions) == (4, 4)
    assert {each.problem for each in predicted.partitions} == {None}


def test_predicting_answers_alters_nothing(golden, writable_copy):
    root = writable_copy(golden("0.10.0.1", "upgrade", "answers").logs)
    before = contents(root.parent)
    found(root)
    assert contents(root.parent) == before


def test_a_planned_directory_has_the_planned_files(golden, writable_copy):
    root = writable_copy(golden("0.10.0.1", "upgrade", "answers-upgraded-2.4.0").logs)
    planned = plan(survey(root))
    log = kafkastore.open(root)["up-0"]
    changes = [each for each in planned.changes if each.path.startswith("up-0/")]
    with as_planned(log, changes) as laid_out:
        files = data(laid_out.path, "*")
        mtimes = [each.last_modified_ns for each in laid_out.segments]
    assert not laid_out.path.exists()
    apply(planned)
    assert files == data(log.path, "*")
    assert mtimes == [each.last_modified_ns for each in log.segments]


def write(root, count, first=1_600_000_000_000):
    """Write partitions of three segments each, without time indexes."""
    batches = [Batch((Row(0, first + 1000 * number),)) for number in range(9)]
    log = in_a_row(batches)
    for number in range(count):
        segments = tuple(Segment(base, tuple(log[base : base + 3])).indexed() for base in (0, 3, 6))
        Log(segments, is_clean=True).write(root / str(number))
        (partition,) = kafkastore.open(root / str(number))
        partition.path.rename(root / f"t-{number}")
    for path in root.glob("*/*.timeindex"):
        path.unlink()
    (root / ".kafka_cleanshutdown").touch()
    return root


def test_of_many_partitions_a_sample_is_asked(tmp_path):
    root = write(tmp_path / "logs", 45)
    seen = []
    _, predicted = found(root, samples=3, progress=lambda *counts: seen.append(counts))
    assert (predicted.changed_partitions, len(predicted.partitions)) == (45, 15)
    assert seen == [(done, 15) for done in range(1, 16)]
    assert [each.times for each in predicted.summaries] == [45, 45]
    _, predicted = found(root, samples=1, most_partitions=45, rules=["2.4"])
    assert [tuple(each)[:2] for each in predicted.summaries] == [("2.4", 45)]


def test_times_are_within_the_range_of_the_records(tmp_path):
    (log,) = kafkastore.open(write(tmp_path / "logs", 1))
    first = 1_600_000_000_000
    assert sample_times(log, 1) == [first]
    assert sample_times(log, 6) == [first + 1000 * each for each in (0, 2, 3, 5, 6, 8)]
    assert len(sample_times(log, 100)) == 100
    assert (min(sample_times(log, 7)), max(sample_times(log, 7))) == (first, first + 8000)


def test_a_record_from_the_far_future_does_not_shift_the_times(tmp_path):
    stamps = [100, 200, 300, 400, 1 << 62]
    batches = in_a_row([Batch((Row(0, stamp),)) for stamp in stamps])
    segments = tuple(Segment(number, (batch,)) for number, batch in enumerate(batches))
    (log,) = kafkastore.open(Log(segments).write(tmp_path / "logs"))
    assert sample_times(log, 5) == stamps


def test_an_unreadable_partition_is_reported_and_the_others_are_asked(golden, writable_copy):
    root = writable_copy(golden("0.10.0.1", "upgrade", "answers").logs)
    surveyed = survey(root)
    for path in root.glob("up-1/*.log"):
        mtime_ns = path.stat().st_mtime_ns
        path.write_bytes(b"\xff" * path.stat().st_size)
        os.utime(path, ns=(1, mtime_ns))
    predicted = answers(surveyed, plan(surveyed))
    problems = {str(each.topic_partition): each.problem for each in predicted.partitions}
    assert problems.pop("up-1")
    assert set(problems.values()) == {None}


def test_a_worker_can_ask_one_partition(golden, writable_copy):
    root = writable_copy(golden("0.10.0.1", "upgrade", "answers").logs)
    planned, predicted = found(root)
    changes = pickle.loads(pickle.dumps([c for c in planned.changes if c.path[:5] == "up-0/"]))
    one = partition_answers(kafkastore.open(root)["up-0"], changes)
    assert one == predicted.partitions[0]
    assert pickle.loads(pickle.dumps(predicted)) == predicted


def test_without_changes_no_partition_is_asked(golden):
    _, predicted = found(golden("2.4.0", "create-time-monotonic", "answers").logs)
    assert predicted == kafkastore.migration.MigrationAnswers((), 0)


def test_wrong_arguments_are_refused(golden, writable_copy):
    root = writable_copy(golden("0.10.0.1", "upgrade", "answers").logs)
    surveyed = survey(root)
    planned = plan(surveyed)
    with refused("rules", UnknownRulesError):
        answers(surveyed, planned, rules=["0.9"])
    for options in ({"samples": -1}, {"most_partitions": 0}, {"threads": 0}):
        with refused(next(iter(options))):
            answers(surveyed, planned, **options)
    assert not any(each.answers for each in answers(surveyed, planned, 0).partitions)
    with refused("survey", ArgumentTypeError):
        answers(root, planned)
    with refused("log", ArgumentTypeError):
        partition_answers(root, ())
