"""Every file of a store checked against the others.

`store_check` says what is asked of what lies beside the partitions, `partition_check` and
`segment_check` what of each partition and segment. Partitions are checked side by side, a few ahead
of the one whose findings are told, so that memory does not grow with the store.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from threading import Event

from kafkastore.checks.findings import Finding, Severity
from kafkastore.checks.partition_check import CheckedPartition, check_partition
from kafkastore.checks.store_check import check_log_dirs
from kafkastore.errors import KafkaStoreError
from kafkastore.formats.arguments import whole_number
from kafkastore.formats.file_names import PARTITION_METADATA, TopicPartition
from kafkastore.log.log_store import (
    AnyPartition,
    AnyPath,
    LogStore,
    open_store,
)
from kafkastore.log.partition_log import PartitionLog
from kafkastore.log.side_by_side import side_by_side


def verify(
    path: AnyPath | list[AnyPath],
    *,
    partitions: Collection[AnyPartition] | None = None,
    sample: float = 1.0,
    threads: int | None = None,
    failed: Callable[[TopicPartition | None, OSError | KafkaStoreError], None] | None = None,
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

    Yields
    ------
    Finding
        First of what is not of one partition, then in the order of partitions and segments.

    Raises
    ------
    NotALogDirectoryError
        If a path is neither.
    KeyError
        If one of `partitions` is not there.
    OSError
        If a file can't be opened.
    """
    if not 0 < sample <= 1:
        raise ValueError(f"sample is a share above 0 and up to 1, not {sample}")
    threads = os.cpu_count() or 1 if threads is None else whole_number("threads", threads, 1)
    store = open_store(path)
    chosen = None
    if partitions is None:
        beside: list[OSError] = []
        yield from check_log_dirs(store.log_dirs, beside.append)
        for unopened in beside:
            if failed is None:
                raise unopened
            failed(None, unopened)
    else:
        chosen = set(store.chosen(partitions))
    topic_ids: dict[str, tuple[str, Path]] = {}
    for log, checked in _side_by_side(store, chosen, sample, threads):
        yield from checked.findings
        yield from _topic_id(log, checked, topic_ids)
        for error in checked.failures:
            if failed is None:
                raise error
            failed(log.topic_partition, error)
        if progress is not None:
            progress(checked)


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
    store: LogStore, chosen: set[TopicPartition] | None, sample: float, threads: int
) -> Iterator[tuple[PartitionLog, CheckedPartition]]:
    """Check partitions on several threads; yield what came of each in their order."""
    stopped = Event()

    def check(found: tuple[PartitionLog, Finding | None]) -> tuple[PartitionLog, CheckedPartition]:
        log, twin = found
        checked = check_partition(log, sample=sample, is_stopped=stopped.is_set)
        if twin is not None:
            checked.findings.insert(0, twin)
        return log, checked

    threads = 1 if len(store.partitions if chosen is None else chosen) == 1 else threads
    logs = _logs(store, chosen)
    return side_by_side(check, logs, threads, "kafkastore-verify", give_up=stopped.set)


def _logs(
    store: LogStore, chosen: set[TopicPartition] | None
) -> Iterator[tuple[PartitionLog, Finding | None]]:
    """Open the partitions, each in every directory that it lies in, then those being moved."""
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


def _topic_id(
    log: PartitionLog, checked: CheckedPartition, known: dict[str, tuple[str, Path]]
) -> Iterator[Finding]:
    """Tell of a partition whose topic has another id in another partition."""
    if checked.topic_id is None:
        return
    first_id, first = known.setdefault(log.topic, (checked.topic_id, log.path))
    if checked.topic_id != first_id:
        yield Finding(
            Severity.WRONG_ANSWERS,
            log.path / PARTITION_METADATA,
            None,
            f"topic {log.topic} has id {checked.topic_id} here, and {first_id} in {first}",
            "a topic was deleted and made again: a broker sets aside the partition of the old one, "
            "or refuses it",
            "move the partition of the old topic away (kafka-topics.sh --describe shows the id)",
        )
