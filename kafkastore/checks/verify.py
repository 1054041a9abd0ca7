"""Every file of a store checked against the others.

`store_check` says what is asked of what lies beside the partitions, `partition_check` and
`segment_check` what of each partition and segment. Partitions are checked side by side, a few ahead
of the one whose findings are told, so that memory does not grow with the store.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from kafkastore.arguments import whole_number
from kafkastore.checks.findings import Finding, Severity
from kafkastore.checks.partition_check import CheckedPartition, check_partition
from kafkastore.checks.store_check import check_log_dirs
from kafkastore.errors import KafkaStoreError
from kafkastore.formats.file_names import PARTITION_METADATA, TopicPartition
from kafkastore.log.log_store import (
    AnyPartition,
    AnyPath,
    LogStore,
    open_store,
)
from kafkastore.log.partition_log import PartitionLog
from kafkastore.log.side_by_side import SideBySide, Stop

_Checked = tuple[TopicPartition, CheckedPartition]
Failed = Callable[[TopicPartition | None, OSError | KafkaStoreError], None]


def verify(
    path: AnyPath | list[AnyPath],
    *,
    partitions: Collection[AnyPartition] | None = None,
    sample: float = 1.0,
    threads: int | None = None,
    failed: Failed | None = None,
    progress: Callable[[CheckedPartition], None] | None = None,
) -> Iterator[Finding]:
    """Check every file of a store against the others; nothing is changed.

    Parameters
    ----------
    path : path-like or list of path-like
        Log directories or partition directories.
    partitions : collection, optional
        Only these, each as ``("orders", 3)`` or ``"orders-3"``, and nothing beside them.
    sample : float
        Of how many segments the logs are read, above 0 and up to 1: names, small files and the
        structure of indexes are checked of all. Chosen by their names, so that each run reads the
        same ones, and always the last one of a partition.
    threads : int, optional
        How many partitions are checked at once; by default as many as there are processors.
    failed : callable, optional
        Called with the partition, None for a file beside them, and the error where a file can't be
        opened, as without permission; everything else is checked. By default the error is raised,
        behind the findings of its partition.
    progress : callable, optional
        Called after each partition directory with what came of it.

    Returns
    -------
    iterator of Finding
        First of what is not of one partition, then in the order of partitions and segments. Its
        `close` ends the threads before all is checked, and waits for them.

    Raises
    ------
    NotALogDirectoryError
        If a path is neither.
    KeyError
        If one of `partitions` is not there.
    OSError
        If a file can't be opened.
    """
    check_sample(sample)
    threads = os.cpu_count() or 1 if threads is None else whole_number("threads", threads, 1)
    store = open_store(path)
    chosen = None if partitions is None else set(store.chosen(partitions))
    checked = _side_by_side(store, chosen, sample, threads)
    beside = findings_beside(store, failed) if chosen is None else ()
    return _Findings(chain(beside, findings_of(checked, failed, progress)), checked)


class _Findings(Iterator[Finding]):
    """Findings, and the threads that look for them; see `SideBySide` for how these end."""

    def __init__(
        self, findings: Iterator[Finding], checked: SideBySide[Any, _Checked]
    ) -> None:
        self._findings, self._checked = findings, checked

    def __next__(self) -> Finding:
        try:
            return next(self._findings)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Look for no more, and wait for the threads; safe to repeat."""
        self._findings = iter(())
        self._checked.close()


def check_sample(sample: float) -> None:
    """Refuse a sample that is no share.

    Parameters
    ----------
    sample : float
        As for `verify`.
    """
    if not 0 < sample <= 1:
        raise ValueError(f"sample must be above 0 and at most 1, got {sample}")


def findings_beside(store: LogStore, failed: Failed | None) -> Iterator[Finding]:
    """Check what is not of one partition.

    Parameters
    ----------
    store : LogStore
    failed : callable, optional
        As for `verify`.

    Yields
    ------
    Finding
    """
    unopened: list[OSError] = []
    yield from check_log_dirs(store.log_dirs, unopened.append)
    for error in unopened:
        if failed is None:
            raise error
        failed(None, error)


def findings_of(
    checked: Iterable[tuple[TopicPartition, CheckedPartition]],
    failed: Failed | None,
    progress: Callable[[CheckedPartition], None] | None,
) -> Iterator[Finding]:
    """Tell what was found in partitions that were checked, and what only several of them tell.

    Parameters
    ----------
    checked : iterable of (TopicPartition, CheckedPartition)
        In the order of `logs_to_check`.
    failed, progress : callable, optional
        As for `verify`.

    Yields
    ------
    Finding
    """
    topic_ids: dict[str, tuple[str, Path]] = {}
    for topic_partition, each in checked:
        yield from each.findings
        yield from differing_topic_id(topic_partition.topic, each.path, each.topic_id, topic_ids)
        for error in each.failures:
            if failed is None:
                raise error
            failed(topic_partition, error)
        if progress is not None:
            progress(each)


def verify_log(log: PartitionLog) -> Iterator[Finding]:
    """Check one partition.

    Parameters
    ----------
    log : PartitionLog
        The partition.

    Yields
    ------
    Finding

    Raises
    ------
    KafkaStoreError
        If its directory can't be listed.
    OSError
        If a file can't be opened; behind all findings.
    """
    checked = check_partition(log)
    yield from checked.findings
    if checked.failures:
        raise checked.failures[0]


def _side_by_side(
    store: LogStore, chosen: Collection[TopicPartition] | None, sample: float, threads: int
) -> SideBySide[tuple[PartitionLog, Finding | None], _Checked]:
    """Check partitions on several threads; yield what came of each in their order."""
    stop = Stop()

    def check(
        found: tuple[PartitionLog, Finding | None]
    ) -> _Checked:
        log, twin = found
        checked = check_partition(log, sample=sample, is_stopped=stop)
        if twin is not None:
            checked.findings.insert(0, twin)
        return log.topic_partition, checked

    threads = 1 if len(store.partitions if chosen is None else chosen) == 1 else threads
    logs = logs_to_check(store, chosen)
    return SideBySide(check, logs, threads, "kafkastore-verify", stop=stop)


def logs_to_check(
    store: LogStore, chosen: Collection[TopicPartition] | None
) -> Iterator[tuple[PartitionLog, Finding | None]]:
    """Open the partitions, each in every directory that it lies in, then those being moved.

    Parameters
    ----------
    store : LogStore
    chosen : collection of TopicPartition or None
        Only these; None: all.

    Yields
    ------
    log, finding : PartitionLog, Finding or None
        The finding where it lies in other directories too.
    """
    for logs in (store.partitions, store.future_partitions):
        for topic_partition in logs:
            if chosen is not None and topic_partition not in chosen:
                continue
            copies = logs.copies(topic_partition)
            for log in copies:
                others = ", ".join(str(other.path) for other in copies if other is not log)
                yield log, _twin(log, others) if others else None


def _twin(log: PartitionLog, others: str) -> Finding:
    return Finding(
        Severity.WRONG_ANSWERS,
        log.path,
        None,
        f"partition {log.topic_partition} is once more in {others}",
        "a broker does not start with a partition in two of its log directories",
        "keep the one with the larger log end offset (kafkastore ls), move the other away",
    )


def differing_topic_id(
    topic: str, path: Path, topic_id: str | None, known: dict[str, tuple[str, Path]]
) -> Iterator[Finding]:
    """Tell of a partition whose topic has another id in a partition before it.

    Parameters
    ----------
    topic : str
    path : Path
        The partition directory.
    topic_id : str or None
        Its ``partition.metadata`` says so; None where it says nothing.
    known : dict
        The first id of each topic, and where it is; added to.

    Yields
    ------
    Finding
    """
    if topic_id is None:
        return
    first_id, first = known.setdefault(topic, (topic_id, path))
    if topic_id != first_id:
        yield Finding(
            Severity.WRONG_ANSWERS,
            path / PARTITION_METADATA,
            None,
            f"topic {topic} has id {topic_id} here, and {first_id} in {first}",
            "a topic was deleted and made again: a broker sets aside the partition of the old one, "
            "or refuses it",
            "move the partition of the old topic away (kafka-topics.sh --describe shows the id)",
        )
