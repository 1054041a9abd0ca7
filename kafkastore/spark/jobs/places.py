"""Where partitions lie: found and weighed on the driver, opened where the work is done."""
from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kafkastore.errors import KafkaStoreError
from kafkastore.formats.file_names import TopicPartition
from kafkastore.log.log_dir import MARKS, LogDir
from kafkastore.paths import open_path, to_path
from kafkastore.spark.spread import Place
from kafkastore.store.log_store import AnyPartition, AnyPath, LogStore, Partitions
from kafkastore.store.partition_log import PartitionLog

if TYPE_CHECKING:
    import pyarrow as pa

#: What a partition can fail with: what we say on purpose, and what the operating system says.
FAILURES = (KafkaStoreError, OSError)
#: One path or several, as the functions of `kafkastore.spark.jobs` take them.
Paths = AnyPath | Sequence[AnyPath]

#: A partition in each directory where it is: one, if all is as it should be.
Copies = tuple[Place, ...]


def places_of(name: str, store: LogStore) -> list[Place]:
    """List the partitions of a store, with their sizes; nothing else is read.

    Parameters
    ----------
    name : str
        What the store is called from here on.
    store : LogStore

    Returns
    -------
    list of Place
        By topic and partition.
    """
    return [place_of(store.partitions[each])._replace(store=name) for each in store.partitions]


def place_of(log: PartitionLog, *, is_weighed: bool = True) -> Place:
    """Tell where a partition lies, for a task that opens it.

    Parameters
    ----------
    log : PartitionLog
    is_weighed : bool
        Whether its directory is listed for the size of its logs, as for another process; else the
        size is 0.

    Returns
    -------
    Place
        Its store is called after the log directory, or after the partition directory where that
        lies in none. Of a remote store it has URLs, which `open_place` lists in another process.
    """
    root = None if log.log_dir is None else str(log.log_dir.path)
    size = 0
    if is_weighed:
        with suppress(*FAILURES):  # the jobs say why
            size = sum(segment.size for segment in log.segments)
    path = str(log.path)
    store = path if root is None else root
    return Place(store, root, path, log.topic, log.partition, size)


def copies_of(
    store: LogStore, topic_partition: TopicPartition, *, is_weighed: bool = True
) -> Copies:
    """Tell where a partition lies, in each directory that it lies in.

    Parameters
    ----------
    store : LogStore
    topic_partition : TopicPartition
    is_weighed : bool
        As for `place_of`.

    Returns
    -------
    tuple of Place
        Nothing where it is nowhere.
    """
    if topic_partition not in store.partitions:
        return ()
    logs = store.partitions.copies(topic_partition)
    return tuple(place_of(log, is_weighed=is_weighed) for log in logs)


def chosen_copies(
    store: LogStore, partitions: Iterable[AnyPartition] | None = None, *, is_weighed: bool = True
) -> list[Copies]:
    """Tell where some partitions of a store lie.

    Parameters
    ----------
    store : LogStore
    partitions : iterable, optional
        Each as ``("orders", 3)`` or ``"orders-3"``. Default: all.
    is_weighed : bool
        As for `place_of`.

    Returns
    -------
    list of tuple of Place
        By topic and partition.

    Raises
    ------
    KeyError
        If one is not there.
    """
    chosen = list(store.partitions) if partitions is None else store.chosen(partitions)
    return [copies_of(store, each, is_weighed=is_weighed) for each in chosen]


def store_of(copies: Collection[Place]) -> LogStore:
    """Open one partition as a store, with the checkpoints around it.

    Parameters
    ----------
    copies : collection of Place

    Returns
    -------
    LogStore
        Without log directories of its own; a partition in several places is refused there as in any
        other store.
    """
    logs = [open_place(place) for place in copies]
    places = [(log.topic_partition, (log.path, log.log_dir)) for log in logs]
    return LogStore((), Partitions(places), Partitions([]))


def open_copies(copies: Collection[Place]) -> PartitionLog:
    """Open a partition that is somewhere.

    Parameters
    ----------
    copies : collection of Place

    Returns
    -------
    PartitionLog

    Raises
    ------
    DuplicatePartitionError
        If it is in several places.
    """
    store = store_of(copies)
    (topic_partition,) = store.partitions
    return store.partitions[topic_partition]


def open_place(place: Place) -> PartitionLog:
    """Open a partition, with the checkpoints around it.

    Parameters
    ----------
    place : Place

    Returns
    -------
    PartitionLog
    """
    log_dir = None
    if place.root is not None:
        root = open_path(to_path(place.root), with_all_below=False)
        log_dir = _log_dir(root, _state_of(root))
    return PartitionLog(to_path(place.path), TopicPartition(place.topic, place.partition), log_dir)


def weight(copies: Iterable[Place]) -> int:
    """Return how many bytes of log there are, a measure of how long a job takes.

    Parameters
    ----------
    copies : iterable of Place
    """
    return sum(place.bytes for place in copies)


def columns_of(copies: Sequence[Place]) -> Mapping[str, Any]:
    """Return the columns that say where a partition lies; the first place of several.

    Parameters
    ----------
    copies : sequence of Place
        Not empty.
    """
    place = copies[0]
    return {
        "store": place.store,
        "topic": place.topic,
        "partition": place.partition,
        "path": place.path,
    }


def place_fields() -> list[tuple[str, pa.DataType]]:
    """Return the columns that every table begins with.

    Returns
    -------
    list of (str, pyarrow.DataType)
    """
    import pyarrow as pa

    return [
        ("store", pa.string()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("path", pa.string()),
    ]


def listed(paths: Paths) -> list[AnyPath]:
    """Return paths as a list, one too.

    Parameters
    ----------
    paths : path-like or sequence of path-like
    """
    return [paths] if isinstance(paths, str | os.PathLike) else list(paths)


def _state_of(root: Path) -> tuple[tuple[int, int] | None, ...]:
    """Return size and mtime of each file that a `LogDir` reads."""
    return tuple(_states(root))


def _states(root: Path) -> Iterator[tuple[int, int] | None]:
    for mark in MARKS:
        try:
            status = os.stat(root / mark)
        except OSError:
            yield None
        else:
            yield status.st_size, status.st_mtime_ns


@lru_cache(maxsize=16)
def _log_dir(root: Path, _state: tuple[tuple[int, int] | None, ...]) -> LogDir:
    """Parse checkpoints once for all partitions of a task, and again when they have changed."""
    return LogDir(root)
