"""Places of partitions: listed where a job starts, opened where its work is done."""
from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from kafkastore.errors import KafkaStoreError
from kafkastore.formats.file_names import TopicPartition
from kafkastore.log.log_dir import MARKS, LogDir
from kafkastore.paths import open_path, to_path
from kafkastore.store.log_store import AnyPartition, AnyPath, LogStore, Partitions, open_store
from kafkastore.store.partition_log import PartitionLog

if TYPE_CHECKING:
    import pyarrow as pa

#: The errors that a partition can fail with: our own, and those of the operating system.
FAILURES = (KafkaStoreError, OSError)
#: Inode, size, mtime and ctime of a file; None if it is missing.
_State = tuple[int, int, int, int] | None
#: One path or several, as every job accepts them.
Paths = AnyPath | Sequence[AnyPath]


class Place(NamedTuple):
    """The place of one partition.

    `root` is the log directory around it, whose checkpoints bound it, or None; `path` is the
    partition directory; `bytes` is the size of its ``.log`` files, by which work is divided.
    """

    store: str
    root: str | None
    path: str
    topic: str
    partition: int
    bytes: int


#: The places of one partition: more than one only if it is duplicate.
Copies = tuple[Place, ...]


def places_of(name: str, store: LogStore) -> list[Place]:
    """Return the places of a store's partitions; results call the store `name`."""
    return [place_of(store.partitions[each])._replace(store=name) for each in store.partitions]


def place_of(log: PartitionLog, *, is_weighed: bool = True) -> Place:
    """Return the place of a partition; its size is 0 unless `is_weighed`."""
    root = None if log.log_dir is None else str(log.log_dir.path)
    size = 0
    if is_weighed:
        with suppress(*FAILURES):  # the job reports it
            size = sum(segment.size for segment in log.segments)
    path = str(log.path)
    store = path if root is None else root
    return Place(store, root, path, log.topic, log.partition, size)


def copies_of(
    store: LogStore, topic_partition: TopicPartition, *, is_weighed: bool = True
) -> Copies:
    """Return the places of a partition, empty if the store does not have it."""
    if topic_partition not in store.partitions:
        return ()
    logs = store.partitions.copies(topic_partition)
    return tuple(place_of(log, is_weighed=is_weighed) for log in logs)


def chosen_copies(
    store: LogStore, partitions: Iterable[AnyPartition] | None = None, *, is_weighed: bool = True
) -> list[Copies]:
    """Return the places of all or some partitions; raise `KeyError` for a missing one."""
    return [
        copies_of(store, each, is_weighed=is_weighed) for each in store.chosen(partitions)
    ]


def store_of(copies: Collection[Place]) -> LogStore:
    """Open one partition as a store, with the checkpoints around it."""
    logs = [open_place(place) for place in copies]
    places = [(log.topic_partition, (log.path, log.log_dir)) for log in logs]
    return LogStore((), Partitions(places), Partitions([]))


def open_copies(copies: Collection[Place]) -> PartitionLog:
    """Open a partition; raise `DuplicatePartitionError` if it has several places."""
    store = store_of(copies)
    (topic_partition,) = store.partitions
    return store.partitions[topic_partition]


def open_place(place: Place) -> PartitionLog:
    """Open a partition, with the checkpoints around it."""
    log_dir = None
    if place.root is not None:
        root = open_path(to_path(place.root), with_all_below=False)
        log_dir = _log_dir(root, _state_of(root))
    return PartitionLog(to_path(place.path), TopicPartition(place.topic, place.partition), log_dir)


def weight(copies: Iterable[Place]) -> int:
    """Return the total size of the logs in bytes."""
    return sum(place.bytes for place in copies)


def columns_of(copies: Sequence[Place]) -> Mapping[str, Any]:
    """Return the columns that name a partition: those of its first place."""
    place = copies[0]
    return {
        "store": place.store,
        "topic": place.topic,
        "partition": place.partition,
        "path": place.path,
    }


def place_fields() -> list[tuple[str, pa.DataType]]:
    """Return the first columns of every table."""
    import pyarrow as pa

    return [
        ("store", pa.string()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("path", pa.string()),
    ]


def open_paths(paths: Paths | LogStore) -> LogStore:
    """Open one or several paths as a store; return a store unchanged."""
    if isinstance(paths, LogStore):
        return paths
    if not isinstance(paths, str | os.PathLike) and not (
        isinstance(paths, Sequence) and all(isinstance(each, str | os.PathLike) for each in paths)
    ):
        raise TypeError(f"path must be a path, a list of paths or a LogStore, got {paths!r}")
    return open_store(listed(paths))


def listed(paths: Paths) -> list[AnyPath]:
    """Return one or several paths as a list."""
    return [paths] if isinstance(paths, str | os.PathLike) else list(paths)


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
    """Parse checkpoints once for all partitions of a task, and again after they change."""
    return LogDir(root)
