"""Paths of partitions: listed where work starts, opened in any process."""
from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from kafkastore.errors import KafkaStoreError
from kafkastore.formats.state.file_names import TopicPartition
from kafkastore.log.log_dir import MARKS, LogDir
from kafkastore.paths import open_path, to_path
from kafkastore.store.log_store import (
    AnyPartition,
    LogStore,
    Partitions,
)
from kafkastore.store.partition_log import PartitionLog

#: The errors that a partition can fail with: our own, and those of the operating system.
FAILURES = (KafkaStoreError, OSError)
#: Inode, size, mtime and ctime of a file; None if it is missing.
_State = tuple[int, int, int, int] | None


class _PathFields(NamedTuple):
    store: str
    root: str | None
    path: str
    topic: str
    partition: int
    bytes: int


class PartitionPath(_PathFields):
    """The path of one partition, which any process can open.

    `root` is the log directory around it, or None; `bytes` the size of its ``.log`` files.
    `listed_by`, the open store in the process that listed it, is not pickled.
    """

    listed_by: LogStore | None = None

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), tuple(self)

    @property
    def directory(self) -> str:
        """The partition's directory in its log directory; empty if it is in none."""
        return "" if self.root is None else os.path.basename(self.path)

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition."""
        return TopicPartition(self.topic, self.partition)


#: The paths of one partition: more than one only if it is duplicate.
Copies = tuple[PartitionPath, ...]


def list_partition_paths(name: str, store: LogStore) -> list[PartitionPath]:
    """Return the paths of a store's partitions; results call the store `name`."""
    return [
        to_partition_path(store.partitions[each], store, name=name) for each in store.partitions
    ]


def to_partition_path(
    log: PartitionLog, store: LogStore, *, name: str | None = None, is_weighed: bool = True
) -> PartitionPath:
    """Return the path of a partition of a store; its size is 0 unless `is_weighed`.

    Results call the store `name`; by default, its directory.
    """
    root = None if log.log_dir is None else str(log.log_dir.path)
    size = 0
    if is_weighed:
        with suppress(*FAILURES):  # the job reports it
            size = sum(segment.size for segment in log.segments)
    path = str(log.path)
    found = PartitionPath(name or root or path, root, path, log.topic, log.partition, size)
    found.listed_by = store
    return found


def list_unique_paths(
    store: LogStore,
    partitions: Collection[AnyPartition] | None = None,
    *,
    is_weighed: bool = True,
) -> list[PartitionPath]:
    """Return the path of each partition, by topic and number.

    Raises `DuplicatePartitionError`, and `KeyError` if one of `partitions` is missing.
    """
    return [
        to_partition_path(log, store, is_weighed=is_weighed) for log in store.logs_of(partitions)
    ]


def find_copies(
    store: LogStore, topic_partition: TopicPartition, *, is_weighed: bool = True
) -> Copies:
    """Return the paths of a partition, empty if the store does not have it."""
    if topic_partition not in store.partitions:
        return ()
    return tuple(
        to_partition_path(log, store, is_weighed=is_weighed)
        for log in store.partitions.copies(topic_partition)
    )


def list_copies(
    store: LogStore, partitions: Iterable[AnyPartition] | None = None, *, is_weighed: bool = True
) -> list[Copies]:
    """Return the paths of all or some partitions; raise `KeyError` for a missing one."""
    return [
        find_copies(store, each, is_weighed=is_weighed) for each in store.chosen(partitions)
    ]


def open_as_store(copies: Collection[PartitionPath]) -> LogStore:
    """Open one partition as a store, with the checkpoints around it."""
    logs = [open_partition(each) for each in copies]
    return LogStore((), Partitions.of_logs(logs), Partitions([]))


def open_copies(copies: Collection[PartitionPath]) -> PartitionLog:
    """Open a partition; raise `DuplicatePartitionError` if it has several paths."""
    store = open_as_store(copies)
    (topic_partition,) = store.partitions
    return store.partitions[topic_partition]


def open_partition(path: PartitionPath) -> PartitionLog:
    """Open a partition, in the store that listed it if that is here."""
    topic_partition = path.topic_partition
    if (store := path.listed_by) is not None:
        for logs in (store.partitions, store.future_partitions):
            if topic_partition in logs:
                for log in logs.copies(topic_partition):
                    if str(log.path) == path.path:
                        return log
    log_dir = None
    if path.root is not None:
        root = open_path(to_path(path.root), with_all_below=False)
        log_dir = _log_dir(root, _state_of(root))
    return PartitionLog(to_path(path.path), topic_partition, log_dir)


def weight(copies: Iterable[PartitionPath]) -> int:
    """Return the total size of the logs in bytes."""
    return sum(path.bytes for path in copies)


def store_around(path: Path, store: LogStore) -> str | None:
    """Return the log directory that contains a file."""
    for log_dir in store.log_dirs:
        if log_dir.path in path.parents:
            return str(log_dir.path)
    return None


def _state_of(root: Path) -> tuple[_State, ...]:
    """Return what changes with each file that a `LogDir` reads."""
    return tuple(_states(root))


def _states(root: Path) -> Iterator[_State]:
    for mark in MARKS:
        try:
            status = os.stat(root / mark)
        except OSError:
            yield None
        else:
            yield status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


@lru_cache(maxsize=16)
def _log_dir(root: Path, _state: tuple[_State, ...]) -> LogDir:
    """Parse checkpoints once for all partitions of a task, until they change."""
    return LogDir(root)
