"""Predict how a migration changes the answers of brokers to lookups by time.

From the plan, the directory of a partition is built as it will be, with the new files next to links
to unchanged ones, and then searched. A sample of partitions and times is used.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from kafkastore.migration.survey import PartitionSurvey, Survey

from kafkastore.arguments import check_kind, thread_count, whole_number
from kafkastore.changes.new_bytes import chunks_of
from kafkastore.changes.plan import FileChange, Plan
from kafkastore.errors import CorruptionError, KafkaStoreError, NotAFileError, SegmentGoneError
from kafkastore.formats.state.file_names import TopicPartition
from kafkastore.log.parallel.parallel_map import ParallelMap
from kafkastore.lookup.rules import broker_rules
from kafkastore.paths import describe_error, to_path
from kafkastore.runner import Progress
from kafkastore.store.log_store import open_store
from kafkastore.store.partition_log import PartitionLog
from kafkastore.store.sample_times import MOST_SAMPLES, SAMPLES, sample_times
from kafkastore.versions import NEWEST_VERSION

#: The default brokers: the version that most rules here follow, and the newest one.
BROKERS = ("2.4", NEWEST_VERSION)
MOST_PARTITIONS = 20


class SampleAnswer(NamedTuple):
    """The answers of a broker for one time.

    Parameters
    ----------
    target_timestamp : int
        The time, ms since 1970.
    rules : str
        The broker's version.
    correct : int or None
        The correct offset; None: no record matches.
    before, after : int or None
        The offset that the broker finds before and after the migration.
    """

    target_timestamp: int
    rules: str
    correct: int | None
    before: int | None
    after: int | None


class PartitionMigrationAnswers(NamedTuple):
    """The answers of one partition.

    Parameters
    ----------
    topic_partition : TopicPartition
        The partition.
    answers : tuple of SampleAnswer
        By time, then by broker in the requested order; empty if no record has a timestamp.
    problem : str or None
        Why there are none, if the partition can't be read.
    """

    topic_partition: TopicPartition
    answers: tuple[SampleAnswer, ...]
    problem: str | None = None


class AnswersSummary(NamedTuple):
    """The number of sample times that a broker answers correctly.

    Parameters
    ----------
    rules : str
        The broker's version.
    times : int
        Number of sample times in all partitions.
    correct_before, correct_after : int
        How many answers are the correct offset, before and after the migration.
    """

    rules: str
    times: int
    correct_before: int
    correct_after: int


@dataclass(frozen=True, slots=True)
class MigrationAnswers:
    """The answers of the sampled partitions.

    Parameters
    ----------
    partitions : tuple of PartitionMigrationAnswers
        In the plan's order.
    changed_partitions : int
        Number of partitions that the plan changes, from which the sample was taken.
    """

    partitions: tuple[PartitionMigrationAnswers, ...]
    changed_partitions: int

    @property
    def summaries(self) -> tuple[AnswersSummary, ...]:
        """The counts by broker, in the requested order; empty without sample times."""
        counts: dict[str, list[int]] = {}
        for partition in self.partitions:
            for each in partition.answers:
                count = counts.setdefault(each.rules, [0, 0, 0])
                count[0] += 1
                count[1] += each.before == each.correct
                count[2] += each.after == each.correct
        return tuple(AnswersSummary(rules, *count) for rules, count in counts.items())


def answers(
    survey: Survey,
    plan: Plan,
    samples: int = SAMPLES,
    *,
    rules: Sequence[str] = BROKERS,
    most_partitions: int = MOST_PARTITIONS,
    threads: int | None = None,
    progress: Progress | None = None,
) -> MigrationAnswers:
    """Look up sample times in partitions before and after a planned migration.

    Parameters
    ----------
    survey : Survey
        The survey that the plan was made from; its directory must be unchanged.
    plan : Plan
        A plan of `plan`; it is not applied.
    samples : int
        Number of times for each partition; 0: none.
    rules : sequence of str
        Versions of brokers.
    most_partitions : int
        Maximum number of partitions; if more change, an evenly spaced sample is used.
    threads : int, optional
        Number of partitions in parallel; by default the number of processors.
    progress : callable, optional
        Called with the number of finished partitions and the total.

    Returns
    -------
    MigrationAnswers
        Of the sampled partitions.

    Raises
    ------
    UnknownRulesError
        If a version is unknown or has no time indexes.
    """
    check_kind("survey", survey, Survey)
    check_kind("plan", plan, Plan)
    samples = whole_number("samples", samples, 0, MOST_SAMPLES)
    most = whole_number("most_partitions", most_partitions, 1)
    threads = thread_count(threads)
    changes: dict[str, list[FileChange]] = {}
    for change in plan.changes:
        changes.setdefault(change.path.rpartition("/")[0], []).append(change)
    changed = [each for each in survey.partitions if each.directory in changes]
    step = max(1, -(-len(changed) // most))
    chosen = changed[::step]
    if not chosen:
        return MigrationAnswers((), 0)
    store = open_store(to_path(survey.root))

    def ask(partition: PartitionSurvey) -> PartitionMigrationAnswers:
        (log,) = store.logs_of([(partition.topic, partition.partition)])
        return partition_answers(log, changes[partition.directory], samples, rules=rules)

    found = []
    with ParallelMap(ask, chosen, threads, "kafkastore-answers") as asked:
        for done in asked:
            found.append(done)
            if progress is not None:
                progress(len(found), len(chosen))
    return MigrationAnswers(tuple(found), len(changed))


def partition_answers(
    log: PartitionLog,
    changes: Iterable[FileChange],
    samples: int = SAMPLES,
    *,
    rules: Sequence[str] = BROKERS,
) -> PartitionMigrationAnswers:
    """Look up sample times in one partition, for `answers` and Spark tasks.

    Parameters
    ----------
    log : PartitionLog
        The partition.
    changes : iterable of FileChange
        The plan's changes to this partition.
    samples : int
        Number of times; fewer if its records have fewer timestamps.
    rules : sequence of str
        Versions of brokers.

    Returns
    -------
    PartitionMigrationAnswers
        By time and broker.

    Raises
    ------
    UnknownRulesError
        If a version is unknown or has no time indexes.
    """
    check_kind("log", log, PartitionLog)
    for each in rules:
        broker_rules(each)  # raises here, not as a problem of the partition
    try:
        with as_planned(log, changes) as planned:
            times = sample_times(planned, samples)
            correct = _offsets(planned, times, "correct")
            asked = [
                (each, _offsets(log, times, each), _offsets(planned, times, each))
                for each in rules
            ]
    except (OSError, KafkaStoreError) as error:
        return PartitionMigrationAnswers(log.topic_partition, (), describe_error(error))
    rows = (
        SampleAnswer(timestamp, version, correct[number], before[number], after[number])
        for number, timestamp in enumerate(times)
        for version, before, after in asked
    )
    return PartitionMigrationAnswers(log.topic_partition, tuple(rows))


@contextmanager
def as_planned(log: PartitionLog, changes: Iterable[FileChange]) -> Iterator[PartitionLog]:
    """Build the planned directory of a partition, for the duration of the context.

    It contains links to unchanged files next to the new files, and must only be read. An error of
    the block names the file in the partition's own directory.
    """
    old = to_path(os.path.abspath(log.path))
    changed = {each.path.rpartition("/")[2]: each for each in changes}
    with TemporaryDirectory(prefix="kafkastore-") as place:
        new = Path(place, old.name)
        new.mkdir()
        for name in os.listdir(old):
            if name not in changed:
                (new / name).symlink_to(old / name)
        for name, change in changed.items():
            if change.content is None or change.after is None:
                continue
            with open(new / name, "wb") as file:
                file.writelines(chunks_of(change.content, old / name))
            os.utime(new / name, ns=(change.after.mtime_ns, change.after.mtime_ns))
        try:
            yield PartitionLog(new, log.topic_partition, log.log_dir)
        except (OSError, KafkaStoreError) as error:
            raise _moved(error, new, old) from error


def _moved(
    error: OSError | KafkaStoreError, new: Path, old: Path
) -> OSError | KafkaStoreError:
    """Return an error about a file in `new` as one about the same file in `old`."""
    named = error.filename if isinstance(error, OSError) else getattr(error, "path", None)
    if named is None or Path(named).parent != new:
        return error
    path = old / Path(named).name
    match error:
        case CorruptionError():
            return error.located(path)
        case NotAFileError():
            return NotAFileError(path, error.kind)
        case SegmentGoneError():
            return SegmentGoneError(path)
        case OSError():
            return OSError(error.errno, error.strerror, str(path))
    return error


def _offsets(log: PartitionLog, times: Sequence[int], rules: str) -> list[int | None]:
    """Look up times; None if no offset is found."""
    found: list[int] = log.offsets_for_timestamps(times, rules)["offset"].tolist()
    return [None if offset < 0 else offset for offset in found]
