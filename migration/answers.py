"""What brokers answer for times before a migration and after it, known before anything is done.

A plan tells the files to come: a partition is laid out as it will be, the new files beside links to
those that stay, and asked.  Some partitions and some times stand for all.
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

from kafkastore.arguments import check_kind, whole_number
from kafkastore.changes.new_bytes import chunks_of
from kafkastore.changes.plan import FileChange, Plan
from kafkastore.changes.runner import Progress
from kafkastore.errors import CorruptionError, KafkaStoreError
from kafkastore.formats.file_names import TopicPartition
from kafkastore.log.log_store import open_store
from kafkastore.log.lookup.rules import broker_rules
from kafkastore.log.partition_log import PartitionLog
from kafkastore.log.sample_times import sample_times
from kafkastore.log.side_by_side import SideBySide
from kafkastore.paths import to_path

#: The brokers that are asked: the version that most rules here are of, and the newest one.
BROKERS = ("2.4", "4.1")
SAMPLES = 10
MOST_PARTITIONS = 20


class SampleAnswer(NamedTuple):
    """What a broker answers for one time.

    Parameters
    ----------
    timestamp : int
        The time, ms since 1970.
    rules : str
        The broker's version.
    correct : int or None
        The right offset; None: no record matches.
    before, after : int or None
        The offset that the broker finds on the directory as it is, and as it will be.
    """

    timestamp: int
    rules: str
    correct: int | None
    before: int | None
    after: int | None


class PartitionAnswers(NamedTuple):
    """The answers of one partition.

    Parameters
    ----------
    topic_partition : TopicPartition
        The partition.
    answers : tuple of SampleAnswer
        By time, for each the brokers in the order asked; none where no record has a timestamp.
    problem : str or None
        Why there are none, where the partition can't be read.
    """

    topic_partition: TopicPartition
    answers: tuple[SampleAnswer, ...]
    problem: str | None = None


class AnswersSummary(NamedTuple):
    """How many sample times a broker answers rightly.

    Parameters
    ----------
    rules : str
        The broker's version.
    times : int
        How many were asked, in all partitions together.
    right_before, right_after : int
        For how many the answer is the right offset.
    """

    rules: str
    times: int
    right_before: int
    right_after: int


@dataclass(frozen=True, slots=True)
class Answers:
    """The answers of the partitions that were sampled.

    Parameters
    ----------
    partitions : tuple of PartitionAnswers
        In the plan's order.
    changed_partitions : int
        How many partitions the plan changes: those that the sampled ones stand for.
    """

    partitions: tuple[PartitionAnswers, ...]
    changed_partitions: int

    @property
    def summaries(self) -> tuple[AnswersSummary, ...]:
        """The counts by broker, in the order asked; none without sample times."""
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
) -> Answers:
    """Ask partitions for times, as they are and as a plan will leave them.

    Parameters
    ----------
    survey : Survey
        What the plan was made of; its directory must be as it was.
    plan : Plan
        As of `plan`; nothing of it is applied.
    samples : int
        How many times each partition is asked for.
    rules : sequence of str
        Versions of brokers.
    most_partitions : int
        How many partitions are asked; of more that change, evenly chosen ones.
    threads : int, optional
        How many at once; by default as many as there are processors.
    progress : callable, optional
        Called with the number of partitions that are done, and of all.

    Returns
    -------
    Answers
        What was found.

    Raises
    ------
    UnknownRulesError
        If there is no such broker with time indexes.
    """
    check_kind("survey", survey, Survey)
    check_kind("plan", plan, Plan)
    samples = whole_number("samples", samples, 1)
    most = whole_number("most_partitions", most_partitions, 1)
    threads = os.cpu_count() or 1 if threads is None else whole_number("threads", threads, 1)
    changes: dict[str, list[FileChange]] = {}
    for change in plan.changes:
        changes.setdefault(change.path.rpartition("/")[0], []).append(change)
    changed = [each for each in survey.partitions if each.directory in changes]
    step = max(1, -(-len(changed) // most))
    chosen = changed[::step]
    if not chosen:
        return Answers((), 0)
    store = open_store(to_path(survey.root))

    def ask(partition: PartitionSurvey) -> PartitionAnswers:
        (log,) = store.logs_of([(partition.topic, partition.partition)])
        return partition_answers(log, changes[partition.directory], samples, rules=rules)

    found = []
    with SideBySide(ask, chosen, threads, "kafkastore-answers") as asked:
        for done in asked:
            found.append(done)
            if progress is not None:
                progress(len(found), len(chosen))
    return Answers(tuple(found), len(changed))


def partition_answers(
    log: PartitionLog,
    changes: Iterable[FileChange],
    samples: int = SAMPLES,
    *,
    rules: Sequence[str] = BROKERS,
) -> PartitionAnswers:
    """Ask one partition; what `answers` does for each, and a worker of a cluster for one.

    Parameters
    ----------
    log : PartitionLog
        The partition.
    changes : iterable of FileChange
        Those of a plan that are in it.
    samples : int
        How many times it is asked for; fewer where its records have not so many.
    rules : sequence of str
        Versions of brokers.

    Returns
    -------
    PartitionAnswers
        What was found.

    Raises
    ------
    UnknownRulesError
        If there is no such broker with time indexes.
    """
    check_kind("log", log, PartitionLog)
    for each in rules:
        broker_rules(each)  # raises before it is taken for the partition's fault
    try:
        with as_planned(log, changes) as planned:
            times = sample_times(planned, samples)
            correct = _offsets(planned, times, "correct")
            asked = [
                (each, _offsets(log, times, each), _offsets(planned, times, each))
                for each in rules
            ]
    except CorruptionError as error:
        if error.path is not None:  # perhaps of the links to what is planned
            path = log.path / Path(error.path).name
            error = type(error)(error.reason, path=path, position=error.position)
        return PartitionAnswers(log.topic_partition, (), str(error))
    except (OSError, KafkaStoreError) as error:
        return PartitionAnswers(log.topic_partition, (), str(error))
    rows = (
        SampleAnswer(timestamp, version, correct[number], before[number], after[number])
        for number, timestamp in enumerate(times)
        for version, before, after in asked
    )
    return PartitionAnswers(log.topic_partition, tuple(rows))


@contextmanager
def as_planned(log: PartitionLog, changes: Iterable[FileChange]) -> Iterator[PartitionLog]:
    """Lay a partition out as a plan will leave it, for as long as the context lasts.

    Parameters
    ----------
    log : PartitionLog
        The partition.
    changes : iterable of FileChange
        Those of a plan that are in it.

    Yields
    ------
    PartitionLog
        A directory of links to the files that stay, with the new ones beside them; to be read only.
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
        yield PartitionLog(new, log.topic_partition, log.log_dir)


def _offsets(log: PartitionLog, times: Sequence[int], rules: str) -> list[int | None]:
    """Ask for times; None where nothing is found."""
    found: list[int] = log.offsets_for_timestamps(times, rules)["offset"].tolist()
    return [None if offset < 0 else offset for offset in found]
