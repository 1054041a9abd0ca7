"""A store: one or more log directories opened together, with their partitions."""
from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from kafkastore.arguments import check_collection, thread_count, timestamp_ms, whole_number
from kafkastore.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    DuplicatePartitionError,
    InRemoteSegmentError,
    NotALogDirectoryError,
)
from kafkastore.formats.indexes.entries import TimestampAndOffset
from kafkastore.formats.state.file_names import (
    KRAFT_SNAPSHOT_SUFFIX,
    LOG_SUFFIX,
    InvalidNameError,
    TopicPartition,
    parse_partition_directory,
    parse_segment_file,
)
from kafkastore.log.damage import OnCorrupt, SkippedBytes
from kafkastore.log.isolation import Isolation
from kafkastore.log.log_dir import MARKS, LogDir, SkippedKind
from kafkastore.paths import is_remote, open_path, to_path
from kafkastore.segment.index_trust import DEFAULT_INDEXES, Indexes
from kafkastore.shown_text import similar_names
from kafkastore.store.arrow_export import ArrowExport
from kafkastore.store.partition_log import PartitionLog
from kafkastore.store.topic_logs import TopicLogs, Topics

if TYPE_CHECKING:
    from kafkastore.log.records_as_arrow import ArrowArguments
    from kafkastore.store.log_table import LogTable

AnyPath = str | PathLike[str]
#: A partition as callers name it: ``("orders", 3)``, ``"orders-3"`` or a `TopicPartition`.
AnyPartition = str | tuple[str, int]

#: How many paths are shown.
_SHOWN_PATHS = 3
_OF_PARTITIONS = (LOG_SUFFIX, KRAFT_SNAPSHOT_SUFFIX)

FoundDirectory = tuple[Path, LogDir | None]


def as_topic_partition(partition: AnyPartition) -> TopicPartition:
    """Convert `partition` to a `TopicPartition`.

    Raise `TypeError` for an unknown type and `InvalidNameError` for text other than
    "topic-partition".
    """
    if isinstance(partition, str):
        return parse_partition_directory(partition).topic_partition
    if not isinstance(partition, tuple) or len(partition) != 2 or not isinstance(partition[0], str):
        raise ArgumentTypeError("partition", "such as ('orders', 3) or 'orders-3'", partition)
    topic, number = partition
    return TopicPartition(topic, whole_number("partition", number))


class Partitions(Mapping[TopicPartition, PartitionLog]):
    """Map a store's topic partitions to their logs, opened at the first access.

    A partition that lies in several directories has several entries in `places`.
    """

    def __init__(self, places: Iterable[tuple[TopicPartition, FoundDirectory]]) -> None:
        self._places: dict[TopicPartition, list[FoundDirectory]] = {}
        for topic_partition, place in sorted(places, key=lambda each: each[0]):
            self._places.setdefault(topic_partition, []).append(place)
        self._opened: dict[TopicPartition, PartitionLog] = {}

    @property
    def paths_alone(self) -> list[Path]:
        """The partition directories that were given without their log directory."""
        return [path for each in self._places.values() for path, log_dir in each if log_dir is None]

    @classmethod
    def of_logs(cls, logs: Sequence[PartitionLog]) -> Partitions:
        """Return the partitions of open logs."""
        found = cls((log.topic_partition, (log.path, log.log_dir)) for log in logs)
        if len(logs) == len(found):
            found._opened = {log.topic_partition: log for log in logs}
        return found

    def __getitem__(self, key: AnyPartition) -> PartitionLog:
        topic_partition = as_topic_partition(key)
        if topic_partition not in self._opened:
            places = self._places[topic_partition]
            if len(places) > 1:
                raise DuplicatePartitionError({topic_partition: [path for path, _ in places]})
            (log,) = self.copies(topic_partition)
            self._opened.setdefault(topic_partition, log)  # all threads get the same log
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
        """Return a partition's log in each directory that holds it, or raise `KeyError`.

        A log that is already open is returned; others are opened, and not kept.
        """
        topic_partition = as_topic_partition(key)
        if topic_partition in self._opened:
            return (self._opened[topic_partition],)
        return tuple(
            PartitionLog(path, topic_partition, log_dir)
            for path, log_dir in self._places[topic_partition]
        )

    @property
    def duplicates(self) -> Mapping[TopicPartition, tuple[Path, ...]]:
        """Partitions that lie in several directories, with those directories."""
        return {
            topic_partition: tuple(path for path, _ in places)
            for topic_partition, places in self._places.items()
            if len(places) > 1
        }


class LogStore(ArrowExport):
    """One or several log directories, or one partition directory.

    Parameters
    ----------
    log_dirs : sequence of LogDir
        The log directories; empty if a partition directory was opened by itself.
    partitions : Partitions
        All their partitions.
    future_partitions : Partitions
        Future replicas (``-future`` directories), which a broker was moving between log
        directories, by their partition.

    Notes
    -----
    Directories are listed once, when the store is opened. To see partitions that are created or
    deleted later, open the store again. Threads may share a store: see ``docs/threads.md``.
    """

    def __init__(
        self, log_dirs: tuple[LogDir, ...], partitions: Partitions, future_partitions: Partitions
    ) -> None:
        self.log_dirs = log_dirs
        self.partitions = partitions
        self.future_partitions = future_partitions

    def __repr__(self) -> str:
        """Return the paths, and how much was listed when the store was opened."""
        paths = [repr(str(each)) for each in self.paths]
        more = [f"and {len(paths) - _SHOWN_PATHS} more"] * (len(paths) > _SHOWN_PATHS)
        shown = ", ".join([*paths[:_SHOWN_PATHS], *more])
        return f"LogStore({shown}, topics={len(self.topics)}, partitions={len(self.partitions)})"

    def _repr_html_(self) -> str:
        """Return what notebooks show: topics or partitions, and the first records of one."""
        from kafkastore.store.notebook_view import show_partitions

        shown = ", ".join(map(str, self.paths[:_SHOWN_PATHS]))
        return show_partitions(shown, [*self.partitions], lambda each: next(self.logs_of([each])))

    @property
    def paths(self) -> list[Path]:
        """The paths it was opened from: log directories, then partition directories."""
        return [each.path for each in self.log_dirs] + self.partitions.paths_alone

    def __getitem__(self, key: AnyPartition) -> PartitionLog:
        """Return a partition's log by ``(topic, partition)`` or by ``"topic-partition"``.

        Raises
        ------
        KeyError
            If the store does not contain the partition.
        DuplicatePartitionError
            If the partition lies in several directories.
        InvalidNameError
            If the text is not ``"topic-partition"``.
        """
        try:
            topic_partition = as_topic_partition(key)
        except InvalidNameError:
            if key in self.topics:
                raise InvalidNameError(
                    f"{key!r} is a topic, not topic-partition; store.topic({key!r}) has its "
                    f"partitions"
                ) from None
            raise
        try:
            return self.partitions[topic_partition]
        except KeyError:
            raise no_partition(self, topic_partition) from None

    def __contains__(self, key: object) -> bool:
        """Return whether `store[key]` would find a partition; nothing is opened."""
        if isinstance(key, PartitionLog):
            return any(key is log for log in self)
        return key in self.partitions

    def __iter__(self) -> Iterator[PartitionLog]:
        """Yield the partitions' logs, by topic and partition.

        Raises
        ------
        DuplicatePartitionError
            After all other partitions, if partitions lie in several directories: those are not
            yielded.

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

    def chosen(self, partitions: Iterable[AnyPartition] | None) -> list[TopicPartition]:
        """Return the named partitions, sorted and without duplicates; nothing is opened.

        Parameters
        ----------
        partitions : iterable or None
            Each as ``("orders", 3)`` or ``"orders-3"``; duplicates count once. None: all.

        Returns
        -------
        list of TopicPartition
            By topic and partition.

        Raises
        ------
        KeyError
            If the store does not contain a partition.
        TypeError
            If `partitions` is a str.
        """
        if partitions is None:
            return list(self.partitions)
        check_collection("partitions", partitions)
        wanted = sorted({as_topic_partition(each) for each in partitions})
        for topic_partition in wanted:
            if topic_partition not in self.partitions:
                raise no_partition(self, topic_partition)
        return wanted

    def logs_of(self, partitions: Iterable[AnyPartition] | None) -> Iterator[PartitionLog]:
        """Open the named partitions one after the other, by topic and partition.

        Parameters
        ----------
        partitions : iterable or None
            Each as ``("orders", 3)`` or ``"orders-3"``; duplicates count once. None: all.

        Returns
        -------
        iterator of PartitionLog
            Each log is opened when its turn comes. The store keeps none of them, so memory is freed
            with the log.

        Raises
        ------
        DuplicatePartitionError
            Before the first log, if a partition lies in several directories.
        KeyError
            Before the first log, if the store does not contain a partition.
        """
        chosen = self.chosen(partitions)
        duplicates = self.partitions.duplicates
        if found := {each: duplicates[each] for each in chosen if each in duplicates}:
            raise DuplicatePartitionError(found)
        return (log for each in chosen for log in self.partitions.copies(each))

    @property
    def topics(self) -> Topics:
        """The topics by name, sorted: a mapping of str to `TopicLogs`."""
        return Topics(self)

    def topic(self, name: str) -> TopicLogs:
        """Return the partitions of a topic; nothing is opened.

        Parameters
        ----------
        name : str
            The topic's name.

        Returns
        -------
        TopicLogs

        Raises
        ------
        UnknownTopicError
            If the store has no partition of it; `nearest` has similar names.
        ArgumentTypeError
            If `name` is not a str.
        """
        if not isinstance(name, str):
            raise ArgumentTypeError("name", "a topic's name such as 'orders'", name)
        return self.topics[name]

    def to_arrow(
        self,
        topics: str | Iterable[str] | None = None,
        columns: Sequence[str] | None = None,
        *,
        partitions: Iterable[AnyPartition] | None = None,
        dictionary: bool = False,
        **options: Unpack[ArrowArguments],
    ) -> LogTable:
        """Return records of several topics as an Arrow table, read when it is used.

        Parameters
        ----------
        topics : str or iterable of str, optional
            One topic or several, by names or patterns such as ``"ord*"``. Default: all.
        columns : sequence of str, optional
            As for `PartitionLog.to_arrow`.
        partitions : iterable, optional
            Each as ``("orders", 3)`` or ``"orders-3"``, instead of `topics`.
        dictionary : bool
            Whether `topic` is dictionary-encoded. All batches have the same dictionary: the topics
            that are read, sorted.
        **options
            As for `PartitionLog.to_arrow`. Offsets and times bound each partition, `limit` is the
            maximum number of rows in all.

        Returns
        -------
        LogTable
            By topic, partition and offset. Logs are opened when their turn comes, each time again.

        Raises
        ------
        UnknownTopicError
            If the store has no partition of a topic, or no topic that matches a pattern.
        KeyError
            If the store does not contain a partition.
        DuplicatePartitionError
            If a partition lies in several directories.
        ArgumentTypeError, ArgumentValueError
            If an argument has a wrong type or value.
        """
        from kafkastore.store.log_table import table_of_partitions  # imports pyarrow

        chosen = self.chosen_of(topics, partitions)
        return table_of_partitions(
            self.logs_of, chosen, columns, dictionary=dictionary, **options
        )

    def chosen_of(
        self, topics: str | Iterable[str] | None, partitions: Iterable[AnyPartition] | None
    ) -> list[TopicPartition]:
        """Return the partitions of topics, or those named; see `to_arrow`."""
        if topics is None:
            return self.chosen(partitions)
        if partitions is not None:
            each = f"{topics if isinstance(topics, str) else 'orders'}-0"
            raise ArgumentValueError(
                "partitions", f"named without topics, as in partitions=[{each!r}]", partitions
            )
        named = [topics] if isinstance(topics, str) else topics
        check_collection("topics", named)
        topics_here = self.topics
        found = (topic for name in named for topic in topics_here.matching(name))
        return self.chosen([each for topic in found for each in topic.topic_partitions])

    def offsets_for_times(
        self,
        timestamps_to_search: Mapping[AnyPartition, int | datetime],
        *,
        rules: str = "correct",
        isolation: Isolation = "read_uncommitted",
        indexes: Indexes = DEFAULT_INDEXES,
        on_corrupt: OnCorrupt = "raise",
        skipped: list[SkippedBytes] | None = None,
        threads: int | None = None,
    ) -> dict[TopicPartition, TimestampAndOffset | InRemoteSegmentError | None]:
        """Find offsets by time in partitions, as ``KafkaConsumer.offsetsForTimes``.

        Parameters
        ----------
        timestamps_to_search : mapping of partition to int or datetime
            Times, ms since 1970 or with a time zone, by ``(topic, partition)`` or
            ``"topic-partition"``.
        rules, isolation, indexes, on_corrupt, skipped
            As for `PartitionLog.offset_for_timestamp`. With ``"raise"``, corrupt bytes of one
            partition are an error for all; ``"skip"`` and ``"stop"`` answer for each.
        threads : int, optional
            As for `PartitionLog.offsets_for_timestamps`: they read segments of all partitions.

        Returns
        -------
        dict of TopicPartition to TimestampAndOffset, InRemoteSegmentError or None
            Every requested partition, in the order of the request; None if no record matches; the
            remote segment if the answer is in remote storage.

        Raises
        ------
        TypeError
            If the argument is not a mapping, a key is not a partition, or a time is neither an
            int nor a datetime.
        ValueError
            If a time is negative, or a datetime has no time zone; for special timestamps use
            `PartitionLog.list_offset`.
        KeyError
            If the store does not contain a partition.

        Notes
        -----
        Source: Kafka 2.4.0 ``KafkaConsumer.offsetsForTimes``.
        """
        if not isinstance(timestamps_to_search, Mapping):
            raise ArgumentTypeError(
                "timestamps_to_search",
                "a mapping such as {('orders', 3): 1500000000000}",
                timestamps_to_search,
            )
        asked = {
            as_topic_partition(partition): timestamp_ms(f"the time for {partition}", timestamp, 0)
            for partition, timestamp in timestamps_to_search.items()
        }
        logs = {partition: self[partition] for partition in asked}
        from kafkastore.lookup.checking_ahead import check_ahead
        from kafkastore.lookup.rules import LookupChoice

        choice = LookupChoice(rules, isolation, None, indexes)
        check_ahead(
            ((log, asked[each]) for each, log in logs.items() if choice not in log.facts),
            choice,
            thread_count(threads),
        )
        found: dict[TopicPartition, TimestampAndOffset | InRemoteSegmentError | None] = {}
        for partition, log in logs.items():
            try:
                found[partition] = log.offset_for_timestamp(
                    asked[partition],
                    rules,
                    isolation=isolation,
                    indexes=indexes,
                    on_corrupt=on_corrupt,
                    skipped=skipped,
                )
            except InRemoteSegmentError as error:
                found[partition] = error
        return found


def no_partition(store: LogStore, topic_partition: TopicPartition) -> KeyError:
    """Return the error for a partition that a store does not contain."""
    topic, number = topic_partition
    if number < 0:  # Python's last item, to those who take partitions for a list
        return KeyError(f"no partition {number} of topic {topic!r}: they are numbered from 0")
    return KeyError(f"no partition {topic_partition} in {' and '.join(map(str, store.paths))}")


#: The inputs of every job: a path, a URL, an open store, or several of these.
Paths = AnyPath | LogStore | Sequence[AnyPath | LogStore]


def listed(paths: Paths) -> list[AnyPath]:
    """Return the paths of one or several paths or stores."""
    several = [paths] if isinstance(paths, str | os.PathLike | LogStore) else paths
    if not isinstance(several, Sequence) or not all(
        isinstance(each, str | os.PathLike | LogStore) for each in several
    ):
        raise ArgumentTypeError("path", "a path, a LogStore or a list of these", paths)
    found: list[AnyPath] = []
    for each in several:
        found += each.paths if isinstance(each, LogStore) else [each]
    return found


def root_of_plan(path: Paths) -> Path:
    """Return the absolute path of the one directory that a plan changes."""
    given = listed(path)
    if len(given) != 1:
        raise ArgumentValueError(
            "path", "one log directory or partition directory for each plan", list(map(str, given))
        )
    return to_path(os.path.abspath(open_path(given[0])))


def open_paths(paths: Paths) -> LogStore:
    """Open one or several paths as a store; return a store unchanged."""
    return paths if isinstance(paths, LogStore) else open_store(paths)


def open_store(
    path: Paths,
    *,
    storage_options: Mapping[str, Any] | None = None,
) -> LogStore:
    """Open log directories for reading.

    Parameters
    ----------
    path : path-like, LogStore or list of these
        One or several ``log.dirs`` roots, or partition directories (``orders-3``). Duplicates count
        once, and so does a partition directory inside a given root. A URL, such as
        ``s3://bucket/kafka-logs``, is listed now. The paths of a store are opened again.
    storage_options : mapping, optional
        Options for the library that reads URLs, such as ``{"endpoint_url": ...}``; default: the
        library's own configuration (``AWS_*`` variables and the like).

    Returns
    -------
    LogStore
        Only directory names have been read. A store never writes.

    Raises
    ------
    NotALogDirectoryError
        If a path is not such a directory, or no path is given.
    RemoteStoreError
        If a URL can't be listed.

    Examples
    --------
    >>> open_store("/nowhere")
    Traceback (most recent call last):
    ...
    kafkastore.errors.NotALogDirectoryError: /nowhere does not exist
    """
    paths = [open_path(each, storage_options) for each in listed(path)]
    if not paths:
        raise NotALogDirectoryError("no path is given")
    places: list[tuple[TopicPartition, FoundDirectory]] = []
    futures: list[tuple[TopicPartition, FoundDirectory]] = []
    log_dirs = []
    for each in _without_repetitions(paths) if len(paths) > 1 else paths:
        if is_partition_directory(each):
            places.append((_topic_partition(each), (each, None)))
            continue
        log_dir = _open_log_dir(each)
        log_dirs.append(log_dir)
        places += _places(log_dir, log_dir.partition_paths)
        places += _other_names(log_dir)
        futures += _places(log_dir, log_dir.future_paths)
    if len(log_dirs) > 1:
        for log_dir in log_dirs:
            log_dir.siblings = tuple(each for each in log_dirs if each is not log_dir)
    return LogStore(tuple(log_dirs), Partitions(places), Partitions(futures))


def _without_repetitions(paths: Iterable[Path]) -> list[Path]:
    """Drop duplicate paths, and partition directories inside a given root."""
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
) -> list[tuple[TopicPartition, FoundDirectory]]:
    return [(topic_partition, (path, log_dir)) for topic_partition, path in paths.items()]


def _other_names(log_dir: LogDir) -> Iterator[tuple[TopicPartition, FoundDirectory]]:
    """Yield directories such as ``orders-03`` that hold a log of a listed partition."""
    for skipped in log_dir.skipped:
        if skipped.kind is SkippedKind.DUPLICATE and is_partition_directory(skipped.path):
            name = parse_partition_directory(skipped.path.name)
            if not name.suffix:
                yield name.topic_partition, (skipped.path, log_dir)


def is_partition_directory(path: Path) -> bool:
    """Return whether a directory contains segment files, or KRaft snapshots."""
    try:
        with os.scandir(path) as entries:
            return any(
                any(suffix in entry.name for suffix in _OF_PARTITIONS)
                and (file := parse_segment_file(entry.name)) is not None
                and file.type_suffix in _OF_PARTITIONS
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


def _hint_at_path(path: Path) -> str:
    """Return the existing path that a missing one resembles; empty if none does."""
    if is_remote(path):
        return ""
    with suppress(OSError):
        missing = next(each for each in (*reversed(path.parents), path) if not each.exists())
        names = sorted(each.name for each in missing.parent.iterdir() if each.is_dir())
        partitions = [name for name in names if name.rpartition("-")[0] == missing.name]
        close = partitions or similar_names(missing.name, names)
        if close and (meant := missing.parent / close[0] / path.relative_to(missing)).is_dir():
            return f"; did you mean {meant}?"
    return ""


def _open_log_dir(path: Path) -> LogDir:
    """Return the log directory at `path`, or raise `NotALogDirectoryError`."""
    log_dir = LogDir(path)
    try:
        if not path.exists():
            raise NotALogDirectoryError(f"{path} does not exist{_hint_at_path(path)}")
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
    if partitions:
        empty = ", ".join(place.name for place in [*partitions.values()][:3])
        why = f"its partition directories have no segments ({empty})"
    elif not any(path.iterdir()):
        with suppress(InvalidNameError):
            parse_partition_directory(path.name)
            raise NotALogDirectoryError(f"{path} is empty: a partition directory has .log files")
        why = "it is empty"
    else:
        why = "it has no partition directories (topic-0, ...)"
    raise NotALogDirectoryError(
        f"{path} is not a Kafka log directory: {why}, and it has none of a broker's own "
        f"files{hint}"
    )
