"""Log directories opened together: every partition of a broker's disks."""
from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from os import PathLike
from pathlib import Path
from typing import Any

from kafkastore.arguments import whole_number
from kafkastore.errors import DuplicatePartitionError, NotALogDirectoryError
from kafkastore.formats.entries import TimestampAndOffset
from kafkastore.formats.file_names import (
    LOG_SUFFIX,
    InvalidNameError,
    TopicPartition,
    parse_partition_directory,
    parse_segment_file,
)
from kafkastore.log.isolation import Isolation
from kafkastore.log.log_dir import MARKS, LogDir
from kafkastore.log.partition_log import PartitionLog
from kafkastore.paths import open_path
from kafkastore.segment.checked_times import DEFAULT_INDEXES, Indexes

AnyPath = str | PathLike[str]
#: A partition as callers name it: ``("orders", 3)``, ``"orders-3"`` or a `TopicPartition`.
AnyPartition = str | tuple[str, int]

Place = tuple[Path, LogDir | None]


def as_topic_partition(partition: AnyPartition) -> TopicPartition:
    """Return a partition that was named in one of the ways of `AnyPartition`.

    Raises
    ------
    TypeError
        If it is something else.
    InvalidNameError
        If it is a text that is not topic-partition.
    """
    if isinstance(partition, str):
        return parse_partition_directory(partition).topic_partition
    if not isinstance(partition, tuple) or len(partition) != 2 or not isinstance(partition[0], str):
        raise TypeError(
            f"a partition is named like ('orders', 3) or 'orders-3', not {partition!r}"
        )
    topic, number = partition
    return TopicPartition(topic, whole_number("the partition's number", number))


class Partitions(Mapping[TopicPartition, PartitionLog]):
    """The partitions of a store by topic and partition; each opened when asked for.

    Parameters
    ----------
    places : iterable of (TopicPartition, (path, LogDir or None))
        Each partition directory, with the log directory around it.
    """

    def __init__(self, places: Iterable[tuple[TopicPartition, Place]]) -> None:
        self._places: dict[TopicPartition, list[Place]] = {}
        for topic_partition, place in sorted(places, key=lambda each: each[0]):
            self._places.setdefault(topic_partition, []).append(place)
        self._opened: dict[TopicPartition, PartitionLog] = {}

    def __getitem__(self, key: AnyPartition) -> PartitionLog:
        topic_partition = as_topic_partition(key)
        if topic_partition not in self._opened:
            places = self._places[topic_partition]
            if len(places) > 1:
                raise DuplicatePartitionError({topic_partition: [path for path, _ in places]})
            (log,) = self.copies(topic_partition)
            self._opened.setdefault(topic_partition, log)  # the same one to all threads
        return self._opened[topic_partition]

    def __contains__(self, key: object) -> bool:
        try:
            return as_topic_partition(key) in self._places  # type: ignore[arg-type]
        except (TypeError, ValueError):
            return False

    def __iter__(self) -> Iterator[TopicPartition]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)

    def copies(self, key: AnyPartition) -> tuple[PartitionLog, ...]:
        """Open a partition in each of its places; where it is in one only, that is the partition.

        Raises
        ------
        KeyError
            If it is nowhere.
        """
        topic_partition = as_topic_partition(key)
        return tuple(
            PartitionLog(path, topic_partition, log_dir)
            for path, log_dir in self._places[topic_partition]
        )

    @property
    def duplicates(self) -> Mapping[TopicPartition, tuple[Path, ...]]:
        """The directories of partitions that are in several places; `copies` opens them."""
        return {
            topic_partition: tuple(path for path, _ in places)
            for topic_partition, places in self._places.items()
            if len(places) > 1
        }


class LogStore:
    """One or several log directories, or one partition directory.

    Parameters
    ----------
    log_dirs : sequence of LogDir
        The log directories; empty when a lone partition directory was opened.
    partitions : Partitions
        All their partitions.
    future_partitions : Partitions
        Copies that were being moved from one log directory to another (``-future``), by the
        partition whose twin they are.

    Notes
    -----
    Directories are listed at opening: of partitions that are made or deleted later, a store that is
    opened anew knows. Threads may share it: see ``docs/threads.md``.
    """

    def __init__(
        self, log_dirs: tuple[LogDir, ...], partitions: Partitions, future_partitions: Partitions
    ) -> None:
        self.log_dirs = log_dirs
        self.partitions = partitions
        self.future_partitions = future_partitions

    def __getitem__(self, key: AnyPartition) -> PartitionLog:
        """Return a partition's log by ``(topic, partition)`` or by ``"topic-partition"``.

        Raises
        ------
        KeyError
            If it is not here.
        DuplicatePartitionError
            If it lies in several directories.
        """
        topic_partition = as_topic_partition(key)
        try:
            return self.partitions[topic_partition]
        except KeyError:
            raise KeyError(f"no partition {topic_partition} here") from None

    def __contains__(self, key: object) -> bool:
        """Tell whether a partition is here: what `store[key]` would find; nothing is opened."""
        if isinstance(key, PartitionLog):
            return any(key is log for log in self)
        return key in self.partitions

    def __iter__(self) -> Iterator[PartitionLog]:
        """Yield the partitions' logs, by topic and partition.

        Raises
        ------
        DuplicatePartitionError
            Behind all others, if partitions lie in several directories: those are not yielded.

        Notes
        -----
        Source: Kafka 2.4.0 ``LogManager.loadLog``: "Duplicate log directories found".
        """
        duplicates = self.partitions.duplicates
        for topic_partition in self.partitions:
            if topic_partition not in duplicates:
                yield self.partitions[topic_partition]
        if duplicates:
            raise DuplicatePartitionError(duplicates)

    def chosen(self, partitions: Iterable[AnyPartition]) -> list[TopicPartition]:
        """Look for some partitions by name; nothing is opened.

        Parameters
        ----------
        partitions : iterable
            Each as ``("orders", 3)`` or ``"orders-3"``; one that is named twice counts once.

        Returns
        -------
        list of TopicPartition
            By topic and partition.

        Raises
        ------
        KeyError
            If one is not here.
        """
        if isinstance(partitions, str):
            raise TypeError(f"partitions is a collection of partitions, not one: [{partitions!r}]")
        wanted = sorted({as_topic_partition(each) for each in partitions})
        for topic_partition in wanted:
            if topic_partition not in self.partitions:
                raise KeyError(f"no partition {topic_partition} here")
        return wanted

    def logs_of(self, partitions: Iterable[AnyPartition] | None) -> Iterator[PartitionLog]:
        """Open some partitions one after the other, by topic and partition; keep none of them.

        Parameters
        ----------
        partitions : iterable or None
            Each as ``("orders", 3)`` or ``"orders-3"``; one that is named twice counts once. None:
            all.

        Returns
        -------
        iterator of PartitionLog
            Each opened anew when its turn comes. What it reads goes with it.

        Raises
        ------
        DuplicatePartitionError
            Before the first, if one of them lies in several directories.
        KeyError
            Before the first, if one is not here.
        """
        chosen = list(self.partitions) if partitions is None else self.chosen(partitions)
        duplicates = self.partitions.duplicates
        if found := {each: duplicates[each] for each in chosen if each in duplicates}:
            raise DuplicatePartitionError(found)
        return (log for each in chosen for log in self.partitions.copies(each))

    def offsets_for_times(
        self,
        timestamps_to_search: Mapping[AnyPartition, int],
        *,
        rules: str = "correct",
        isolation: Isolation = "read_uncommitted",
        indexes: Indexes = DEFAULT_INDEXES,
    ) -> dict[TopicPartition, TimestampAndOffset | None]:
        """Find the offsets for times in several partitions, as ``KafkaConsumer.offsetsForTimes``.

        Parameters
        ----------
        timestamps_to_search : mapping of partition to int
            Times, ms since 1970, by ``(topic, partition)`` or ``"topic-partition"``.
        rules, isolation, indexes : str
            As for `PartitionLog.offset_for_timestamp`.

        Returns
        -------
        dict of TopicPartition to TimestampAndOffset or None
            Every partition asked for, in the order asked; None where no record matches.

        Raises
        ------
        TypeError
            If it is no mapping, or names something that is no partition or no time.
        ValueError
            If a time is negative: special timestamps are for `PartitionLog.list_offset`.
        KeyError
            If a partition is not here.

        Notes
        -----
        Source: Kafka 2.4.0 ``KafkaConsumer.offsetsForTimes``.
        """
        if not isinstance(timestamps_to_search, Mapping):
            raise TypeError(
                f"timestamps_to_search is a mapping of partitions to times, such as "
                f"{{('orders', 3): 1500000000000}}, not {timestamps_to_search!r}"
            )
        asked = {
            as_topic_partition(partition): whole_number(f"the time for {partition}", timestamp, 0)
            for partition, timestamp in timestamps_to_search.items()
        }
        logs = {partition: self[partition] for partition in asked}
        return {
            partition: log.offset_for_timestamp(
                asked[partition], rules, isolation=isolation, indexes=indexes
            )
            for partition, log in logs.items()
        }


def open_store(
    path: AnyPath | list[AnyPath] | tuple[AnyPath, ...],
    *,
    storage_options: Mapping[str, Any] | None = None,
) -> LogStore:
    """Open log directories for reading.

    Parameters
    ----------
    path : path-like or list of path-like
        One or several ``log.dirs`` roots, or partition directories (``orders-3``); what is given
        twice counts once, also a partition directory of a root that is given. A URL, such as
        ``s3://bucket/kafka-logs``, is listed now.
    storage_options : mapping, optional
        For the library that reads what URLs lead to, such as ``{"endpoint_url": ...}``; by default
        it finds out by itself (``AWS_*`` variables and the like).

    Returns
    -------
    LogStore
        Nothing but directory names has been read; nothing is ever written.

    Raises
    ------
    NotALogDirectoryError
        If a path is neither, or none is given.
    RemoteStoreError
        If a URL can't be listed.

    Examples
    --------
    >>> open_store("/nowhere")
    Traceback (most recent call last):
    ...
    kafkastore.errors.NotALogDirectoryError: /nowhere does not exist
    """
    given = path if isinstance(path, list | tuple) else [path]
    paths = [open_path(each, storage_options) for each in given]
    if not paths:
        raise NotALogDirectoryError("no path is given")
    places: list[tuple[TopicPartition, Place]] = []
    futures: list[tuple[TopicPartition, Place]] = []
    log_dirs = []
    for each in _without_repetitions(paths) if len(paths) > 1 else paths:
        if is_partition_directory(each):
            places.append((_topic_partition(each), (each, None)))
            continue
        log_dir = _open_log_dir(each)
        log_dirs.append(log_dir)
        places += _places(log_dir, log_dir.partition_paths)
        futures += _places(log_dir, log_dir.future_paths)
    return LogStore(tuple(log_dirs), Partitions(places), Partitions(futures))


def _without_repetitions(paths: Iterable[Path]) -> list[Path]:
    """Drop paths that name the same directory, and partition directories inside a given root."""
    by_place: dict[str, Path] = {}
    for path in paths:
        by_place.setdefault(os.path.realpath(path), path)
    return [
        path
        for place, path in by_place.items()
        if os.path.dirname(place) not in by_place or not is_partition_directory(path)
    ]


def _places(
    log_dir: LogDir, paths: Mapping[TopicPartition, Path]
) -> list[tuple[TopicPartition, Place]]:
    return [(topic_partition, (path, log_dir)) for topic_partition, path in paths.items()]


def is_partition_directory(path: Path) -> bool:
    """Tell whether a directory holds segments itself."""
    try:
        with os.scandir(path) as entries:
            return any(
                LOG_SUFFIX in entry.name
                and (file := parse_segment_file(entry.name)) is not None
                and file.type_suffix == LOG_SUFFIX
                for entry in entries
            )
    except OSError:
        return False


def _topic_partition(path: Path) -> TopicPartition:
    try:
        return parse_partition_directory(path.resolve().name).topic_partition
    except InvalidNameError as error:
        raise NotALogDirectoryError(
            f"{path} holds segments, but its name is not topic-partition ({error}); "
            f"rename a copy, for example to mytopic-0"
        ) from error


def _open_log_dir(path: Path) -> LogDir:
    """Open a directory that must be a log directory."""
    log_dir = LogDir(path)
    try:
        if not path.exists():
            raise NotALogDirectoryError(f"{path} does not exist")
        if not path.is_dir():
            raise NotALogDirectoryError(
                f"{path} is a file, not a Kafka log directory; kafkastore dump shows single files"
            )
        partitions = log_dir.partition_paths
    except PermissionError as error:
        raise NotALogDirectoryError(f"{path} can't be listed: no permission to read it") from error
    has_marks = any((path / mark).exists() for mark in MARKS)
    if has_marks or any(is_partition_directory(place) for place in partitions.values()):
        return log_dir
    inner = [name.path for name in log_dir.skipped if any((name.path / m).exists() for m in MARKS)]
    hint = f"; did you mean {inner[0]}?" if inner else ""
    raise NotALogDirectoryError(
        f"{path} is not a Kafka log directory: it has no partition directories (topic-0, ...) "
        f"and none of a broker's own files{hint}"
    )
