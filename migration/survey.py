"""Survey a log directory from before the time index, without changing it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from pathlib import Path

from kafkastore.migration.segment_survey import SegmentSurvey, survey_segment
from kafkastore.migration.warnings import SurveyWarning, warnings_of

from kafkastore.arguments import thread_count
from kafkastore.changes.directory_lock import lock_files
from kafkastore.changes.partition_changes import check_answered_for
from kafkastore.clock import clock
from kafkastore.errors import ArgumentTypeError, SegmentGoneError
from kafkastore.formats.state.file_names import LOG_SUFFIX, segment_file_name
from kafkastore.fs import lock_holder
from kafkastore.runner import Progress, Runner, in_threads, read_partitions
from kafkastore.segment.recovery import INDEX_INTERVAL_BYTES
from kafkastore.store.log_store import AnyPartition, Paths, open_store, root_of_plan
from kafkastore.store.partition_log import PartitionLog
from kafkastore.store.partition_path import PartitionPath, list_unique_paths, open_partition
from kafkastore.store.unread_partition import UnreadPartition
from kafkastore.writing.log_config import LogConfig


@dataclass(frozen=True, slots=True)
class PartitionSurvey:
    """One partition before the migration.

    Parameters
    ----------
    directory : str
        Relative to the survey's root; empty if the root is the partition directory.
    topic : str
        The topic's name.
    partition : int
        The partition's number.
    segments : tuple of SegmentSurvey
        By base offset.
    """

    directory: str
    topic: str
    partition: int
    segments: tuple[SegmentSurvey, ...]

    def path(self, segment: SegmentSurvey, suffix: str = LOG_SUFFIX) -> str:
        """Return the path of a segment's file, relative to the survey's root.

        Parameters
        ----------
        segment : SegmentSurvey
            One of this partition's.
        suffix : str
            Of the file, such as ``.log``.
        """
        name = segment_file_name(segment.base_offset, suffix)
        return f"{self.directory}/{name}" if self.directory else name


@dataclass(frozen=True, slots=True)
class Survey:
    """A log directory before the migration.

    Parameters
    ----------
    root : str
        Absolute path of a log.dirs root or a partition directory.
    is_clean : bool or None
        Whether the broker was shut down cleanly; None for a partition directory opened alone.
    broker : int or None
        The process that has the directory open; 0 or less if it can't be identified; None if there
        is none.
    index_interval_bytes : int
        As used for the digests of indexes.
    surveyed_at_ms : int
        Time of the survey, ms since 1970.
    partitions : tuple of PartitionSurvey
        By topic and partition.
    skipped : tuple of str
        Directories that are not partitions, with the reason.
    unread : tuple of UnreadPartition
        Partitions with a file that can't be opened; nothing is planned for them.
    """

    root: str
    is_clean: bool | None
    broker: int | None
    index_interval_bytes: int
    surveyed_at_ms: int
    partitions: tuple[PartitionSurvey, ...]
    skipped: tuple[str, ...] = ()
    unread: tuple[UnreadPartition, ...] = ()

    @property
    def segments_by_path(self) -> list[tuple[str, SegmentSurvey]]:
        """All segments, with the paths of their logs relative to the root."""
        return [
            (partition.path(segment), segment)
            for partition in self.partitions
            for segment in partition.segments
        ]

    @property
    def mtimes(self) -> dict[str, int]:
        """Times of the last append: relative path of the ``.log`` to ms since 1970."""
        return {path: segment.mtime_ms for path, segment in self.segments_by_path}

    @property
    def warnings(self) -> tuple[SurveyWarning, ...]:
        """Warnings to read before migrating."""
        return warnings_of(self)


def survey(
    path: Paths,
    mtimes: Mapping[str, int] | None = None,
    *,
    index_interval_bytes: int = INDEX_INTERVAL_BYTES,
    read_logs: bool = True,
    partitions: Collection[AnyPartition] | None = None,
    threads: int | None = None,
    runner: Runner | None = None,
    progress: Progress | None = None,
) -> Survey:
    """Survey a log directory: missing time indexes, and the data to create them from.

    Parameters
    ----------
    path : path-like, LogStore or list of these
        One log.dirs root, or one partition directory: a plan changes one.
    mtimes : mapping of str to int, optional
        For directories that lost their modification times: the times of the last append, ms since
        1970, by the path of the ``.log`` relative to the log directory, such as
        ``orders-3/00000000000000000042.log``. `Survey.mtimes` of an earlier survey and
        `kafkastore.legacy.read_mtimes` return such a mapping. In a partition directory opened alone
        the name is sufficient. Missing segments use the time of their file.
    index_interval_bytes : int
        The topics' ``index.interval.bytes``, for rebuilt indexes.
    read_logs : bool
        Whether to read logs; those with a usable time index are only checked for damage. The modes
        ``kip-33`` and ``empty`` do not need it; without it, a survey only lists directories.
    partitions : collection, optional
        Only these, each as ``("orders", 3)`` or ``"orders-3"``.
    threads : int, optional
        Number of partitions read in parallel; by default the number of processors.
    runner : callable, optional
        Reads the partitions in other processes instead of threads; see `kafkastore.spark`.
    progress : callable, optional
        Called with the number of finished partitions and the total.

    Returns
    -------
    Survey
        The input of `plan`.

    Raises
    ------
    NotALogDirectoryError
        If `path` is neither a log.dirs root nor a partition directory.
    DuplicatePartitionError
        If a partition is in several directories.
    KeyError
        If one of `partitions` does not exist.
    InvalidConfigError
        If `index_interval_bytes` is not an int from 0 to 2^31 - 1.
    """
    root = root_of_plan(path)
    index_interval_bytes = LogConfig(index_interval_bytes=index_interval_bytes).index_interval_bytes
    threads = thread_count(threads)
    if not isinstance(mtimes, Mapping | None):
        raise ArgumentTypeError("mtimes", "a mapping of paths to ms since 1970", mtimes)
    store = open_store(root)
    places = list_unique_paths(store, partitions, is_weighed=runner is not None)
    given: dict[str, dict[str, int]] = {}
    for name, mtime_ms in ({} if mtimes is None else mtimes).items():
        given.setdefault(name.rpartition("/")[0], {})[name] = mtime_ms
    asked = [
        (place, given.get(str(place.topic_partition), {}) | given.get("", {})) for place in places
    ]
    work = partial(_survey_place, index_interval_bytes=index_interval_bytes, read_logs=read_logs)
    surveyed: list[PartitionSurvey] = []
    unread: list[UnreadPartition] = []
    runner = in_threads(threads) if runner is None else runner
    for done, ((place, _), found) in enumerate(
        read_partitions(work, asked, runner, itemgetter(0)), 1
    ):
        if isinstance(found, UnreadPartition):
            unread.append(found)
        else:
            check_answered_for(place, [found.directory])
            surveyed.append(found)
        if progress is not None:
            progress(done, len(places))
    return Survey(
        str(root),
        store.log_dirs[0].is_clean if store.log_dirs else None,
        _broker(root),
        index_interval_bytes,
        clock(),
        tuple(surveyed),
        tuple(f"{name.path}: {name.reason}" for each in store.log_dirs for name in each.skipped),
        tuple(unread),
    )


def _survey_place(
    asked: tuple[PartitionPath, Mapping[str, int]], *, index_interval_bytes: int, read_logs: bool
) -> PartitionSurvey:
    """Survey one partition in any process."""
    place, mtimes = asked
    return survey_partition(
        open_partition(place),
        mtimes,
        directory=place.directory,
        index_interval_bytes=index_interval_bytes,
        read_logs=read_logs,
    )


def survey_partition(
    log: PartitionLog,
    mtimes: Mapping[str, int] | None = None,
    *,
    directory: str = "",
    index_interval_bytes: int = INDEX_INTERVAL_BYTES,
    read_logs: bool = True,
) -> PartitionSurvey:
    """Survey one partition.

    Parameters
    ----------
    log : PartitionLog
        The partition.
    mtimes : mapping of str to int, optional
        As for `survey`.
    directory : str
        The partition directory's name, relative to the survey's root; empty if it is the root.
    index_interval_bytes : int
        The topic's ``index.interval.bytes``.
    read_logs : bool
        Whether to read logs.

    Returns
    -------
    PartitionSurvey
        The segments, by base offset.
    """
    given = {} if mtimes is None else mtimes
    named = {} if directory else given  # a name alone is ambiguous among several partitions
    segments = []
    for segment in log.segments:
        name = segment_file_name(segment.base_offset, LOG_SUFFIX)
        # A running broker's retention may delete it.
        with suppress(FileNotFoundError, SegmentGoneError):
            segments.append(
                survey_segment(
                    segment,
                    mtime_ms=given.get(f"{log.topic_partition}/{name}", named.get(name)),
                    is_recovered_by_broker=log.is_recovered_at_start(segment),
                    index_interval_bytes=index_interval_bytes,
                    read_log=read_logs,
                )
            )
    return PartitionSurvey(directory, log.topic, log.partition, tuple(segments))


def _broker(root: Path) -> int | None:
    """Return the process that has a directory open; 0 if it can't be identified."""
    for path in lock_files(root):
        try:
            holder = lock_holder(path)
        except OSError:
            return 0
        if holder is not None:
            return holder
    return None
