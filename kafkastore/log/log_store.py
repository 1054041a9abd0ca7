"""Log directories opened together: every partition of a broker's disks."""
from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from os import PathLike
from pathlib import Path

from kafkastore.errors import KafkaStoreError, NotALogDirectoryError
from kafkastore.formats.file_names import (
    LOG_SUFFIX,
    InvalidNameError,
    TopicPartition,
    parse_partition_directory,
    parse_segment_file,
)
from kafkastore.log.log_dir import MARKS, LogDir
from kafkastore.log.partition_log import PartitionLog

AnyPath = str | PathLike[str]


Place = tuple[Path, LogDir | None]


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

    def __getitem__(self, key: TopicPartition) -> PartitionLog:
        topic_partition = TopicPartition(*key)
        if topic_partition not in self._opened:
            places = self._places[topic_partition]
            if len(places) > 1:
                where = " and ".join(str(path) for path, _ in places)
                count = "two" if len(places) == 2 else len(places)
                raise KafkaStoreError(
                    f"partition {topic_partition} is in {count} places, {where}; a broker does not "
                    f"start so: open one of the {count} by itself"
                )
            path, log_dir = places[0]
            self._opened[topic_partition] = PartitionLog(path, topic_partition, log_dir)
        return self._opened[topic_partition]

    def __iter__(self) -> Iterator[TopicPartition]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)

    @property
    def duplicates(self) -> Mapping[TopicPartition, tuple[Path, ...]]:
        """The directories of partitions that are in several places; these can't be opened here."""
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
    opened anew knows.
    """

    def __init__(
        self, log_dirs: tuple[LogDir, ...], partitions: Partitions, future_partitions: Partitions
    ) -> None:
        self.log_dirs = log_dirs
        self.partitions = partitions
        self.future_partitions = future_partitions

    def __getitem__(self, key: str | tuple[str, int]) -> PartitionLog:
        """Return a partition's log by ``(topic, partition)`` or by ``"topic-partition"``."""
        if isinstance(key, str):
            topic_partition = parse_partition_directory(key).topic_partition
        else:
            topic_partition = TopicPartition(*key)
        try:
            return self.partitions[topic_partition]
        except KeyError:
            raise KeyError(f"no partition {topic_partition} here") from None

    def __iter__(self) -> Iterator[PartitionLog]:
        return iter(self.partitions.values())


def open_store(path: AnyPath | list[AnyPath] | tuple[AnyPath, ...]) -> LogStore:
    """Open log directories for reading.

    Parameters
    ----------
    path : path-like or list of path-like
        One or several ``log.dirs`` roots, or partition directories (``orders-3``).

    Returns
    -------
    LogStore
        Nothing but directory names has been read; nothing is ever written.

    Raises
    ------
    NotALogDirectoryError
        If a path is neither.

    Examples
    --------
    >>> open_store("/nowhere")
    Traceback (most recent call last):
    ...
    kafkastore.errors.NotALogDirectoryError: /nowhere does not exist
    """
    paths = [Path(each) for each in (path if isinstance(path, list | tuple) else [path])]
    places: list[tuple[TopicPartition, Place]] = []
    futures: list[tuple[TopicPartition, Place]] = []
    log_dirs = []
    for each in paths:
        if is_partition_directory(each):
            places.append((_topic_partition(each), (each, None)))
            continue
        log_dir = _open_log_dir(each)
        log_dirs.append(log_dir)
        places += _places(log_dir, log_dir.partition_paths)
        futures += _places(log_dir, log_dir.future_paths)
    return LogStore(tuple(log_dirs), Partitions(places), Partitions(futures))


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
            raise NotALogDirectoryError(f"{path} is a file, not a Kafka log directory")
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
