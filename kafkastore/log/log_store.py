"""Log directories opened together: every partition of a broker's disks."""
from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from os import PathLike
from pathlib import Path

from kafkastore.errors import KafkaStoreError, NotALogDirectoryError
from kafkastore.formats.file_names import (
    InvalidNameError,
    TopicPartition,
    parse_partition_directory,
    parse_segment_file,
)
from kafkastore.log.log_dir import MARKS, LogDir
from kafkastore.log.partition_log import PartitionLog

AnyPath = str | PathLike[str]


class Partitions(Mapping[TopicPartition, PartitionLog]):
    """The partitions of a store by topic and partition; each opened when asked for."""

    def __init__(self, places: dict[TopicPartition, list[tuple[Path, LogDir | None]]]) -> None:
        self._places = dict(sorted(places.items()))
        self._opened: dict[TopicPartition, PartitionLog] = {}

    def __getitem__(self, key: TopicPartition) -> PartitionLog:
        topic_partition = TopicPartition(*key)
        if topic_partition not in self._opened:
            places = self._places[topic_partition]
            if len(places) > 1:
                where = " and ".join(str(path) for path, _ in places)
                raise KafkaStoreError(
                    f"partition {topic_partition} is in two log directories, {where}; a broker "
                    f"does not start so: open one of the two directories by itself"
                )
            path, log_dir = places[0]
            self._opened[topic_partition] = PartitionLog(path, topic_partition, log_dir)
        return self._opened[topic_partition]

    def __iter__(self) -> Iterator[TopicPartition]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


class LogStore:
    """One or several log directories, or one partition directory.

    Parameters
    ----------
    log_dirs : sequence of LogDir
        The log directories; empty when a lone partition directory was opened.
    partitions : Partitions
        All their partitions.
    """

    def __init__(self, log_dirs: tuple[LogDir, ...], partitions: Partitions) -> None:
        self.log_dirs = log_dirs
        self.partitions = partitions

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
    places: dict[TopicPartition, list[tuple[Path, LogDir | None]]] = {}
    log_dirs = []
    for each in paths:
        if is_partition_directory(each):
            topic_partition = _topic_partition(each)
            places.setdefault(topic_partition, []).append((each, None))
            continue
        log_dir = _open_log_dir(each)
        log_dirs.append(log_dir)
        for topic_partition, place in log_dir.partition_paths.items():
            places.setdefault(topic_partition, []).append((place, log_dir))
    return LogStore(tuple(log_dirs), Partitions(places))


def is_partition_directory(path: Path) -> bool:
    """Tell whether a directory holds segments itself."""
    try:
        with os.scandir(path) as entries:
            return any(
                (file := parse_segment_file(entry.name)) is not None
                and file.type_suffix == ".log"
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
    holds_segments = any(is_partition_directory(place) for place in partitions.values())
    if holds_segments or any((path / mark).exists() for mark in MARKS):
        return log_dir
    inner = [name.path for name in log_dir.skipped if any((name.path / m).exists() for m in MARKS)]
    hint = f"; did you mean {inner[0]}?" if inner else ""
    raise NotALogDirectoryError(
        f"{path} is not a Kafka log directory: it has no partition directories (topic-0, ...) "
        f"and none of a broker's own files{hint}"
    )
