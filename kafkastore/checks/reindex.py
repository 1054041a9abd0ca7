"""Plans that rebuild the indexes of segments from their logs.

The files are those of a recovering broker, byte for byte: ``.index``, ``.timeindex`` and
``.txnindex``. A ``.log`` is never changed. By default, a log that is corrupt in the middle is not
indexed: indexes up to the corrupt batch would hide the records after it.

Segments are read in parallel, each in one pass. Transactions span segments, so transaction indexes
are built afterwards.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kafkastore.arguments import thread_count
from kafkastore.changes.file_state import FileState, read_state
from kafkastore.changes.partition_changes import plan_partitions
from kafkastore.changes.plan import Content, FileChange, Inline, Plan, Rebuilt, Reliance
from kafkastore.checks.segment_check import KEPT_BY_AN_INDEX, is_recovered_without_index
from kafkastore.errors import (
    CorruptIndexError,
    CorruptionError,
    KafkaStoreError,
    NotAFileError,
    SegmentGoneError,
)
from kafkastore.formats.indexes import transaction_index
from kafkastore.formats.indexes.transaction_index import ABORTED_TXN
from kafkastore.formats.records.batch_header import TRANSACTIONAL_BIT, is_control
from kafkastore.formats.records.control_records import ControlRecord
from kafkastore.formats.state.file_names import (
    OFFSET_INDEX_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    segment_file_name,
)
from kafkastore.formats.state.producer_state import ProducerState
from kafkastore.log.parallel.parallel_map import ParallelMap
from kafkastore.runner import Progress, Runner, Steps, in_threads
from kafkastore.segment.log_file import SegmentBounds
from kafkastore.segment.log_segment import REPLACES_SEGMENTS, LogSegment
from kafkastore.segment.recovery import INDEX_INTERVAL_BYTES, RebuiltIndexes, rebuild_indexes
from kafkastore.segment.regular_file import stat_regular
from kafkastore.segment.small_file import has_bytes
from kafkastore.store.log_store import AnyPartition, Paths, open_store, root_of_plan
from kafkastore.store.partition_log import PartitionLog
from kafkastore.store.partition_path import PartitionPath, list_unique_paths, open_partition
from kafkastore.store.unread_partition import UnreadPartition, count_segments
from kafkastore.versions import NEWEST_VERSION, BrokerRules, rules_of
from kafkastore.writing.log_config import LogConfig

_NO_TXN = np.empty(0, ABORTED_TXN)


class UnindexedBytes(NamedTuple):
    """Bytes at the end of a log that no index can cover.

    Parameters
    ----------
    path : str
        The ``.log``, relative to the plan's root.
    valid_bytes, size : int
        Byte positions where they begin and end; a broker would truncate the log at the first.
    reason : str
        Why they can't be indexed.
    is_indexed : bool
        Whether the bytes before them are indexed; if False, the plan does not change the segment.
    """

    path: str
    valid_bytes: int
    size: int
    reason: str
    is_indexed: bool


@dataclass(frozen=True, slots=True, eq=False)
class ReindexPlan(Plan):
    """A plan of `plan_reindex`.

    Parameters
    ----------
    unindexed : tuple of UnindexedBytes
        The ends of logs that no index covers; not saved with the plan.
    unread : tuple of UnreadPartition
        The partitions with a file that can't be opened; not saved with the plan.
    """

    unindexed: tuple[UnindexedBytes, ...] = ()
    unread: tuple[UnreadPartition, ...] = ()


def plan_reindex(
    path: Paths,
    version: str = NEWEST_VERSION,
    *,
    index_interval_bytes: int = INDEX_INTERVAL_BYTES,
    up_to_damage: bool = False,
    partitions: Collection[AnyPartition] | None = None,
    threads: int | None = None,
    runner: Runner | None = None,
    progress: Progress | None = None,
) -> ReindexPlan:
    """Plan to rebuild the indexes that do not match their logs.

    Parameters
    ----------
    path : path-like, LogStore or list of these
        One log.dirs root, or one partition directory: a plan changes one.
    version : str
        The Kafka version whose recovery is followed, for example ``2.4``. Versions before 0.10.1
        have no time indexes: existing ones are not changed.
    index_interval_bytes : int
        The topics' ``index.interval.bytes``.
    up_to_damage : bool
        Whether to index a corrupt log up to the corrupt batch. By default neither its indexes nor
        the transaction indexes of later segments are changed. An incomplete last batch and
        preallocated space are not damage if nothing follows them.
    partitions : collection, optional
        Only these, each as ``("orders", 3)`` or ``"orders-3"``.
    threads : int, optional
        Number of partitions, or segments of one, read in parallel; by default the number of
        processors.
    runner : callable, optional
        Reads the partitions in other processes instead of threads, and shows their progress itself.
    progress : callable, optional
        Called with the number of segments read by threads and the total.

    Returns
    -------
    ReindexPlan
        For `kafkastore.apply`; it contains only files that differ. A replaced file keeps its
        modification time; a new file gets that of its log. `unread` has the partitions for which
        nothing is planned.

    Raises
    ------
    NotALogDirectoryError
        If `path` is neither a log.dirs root nor a partition directory.
    DuplicatePartitionError
        If a partition is in several directories.
    KeyError
        If one of `partitions` does not exist.
    UnknownVersionError
        If `version` is not a known version.
    InvalidConfigError
        If `index_interval_bytes` is not an int from 0 to 2^31 - 1.

    Notes
    -----
    A segment without timestamps gets an empty time index. An entry made from a
    modification time, as `kafkastore.migration` writes, is lost, as in a broker's recovery.

    Source: Kafka 2.4.0 ``LogSegment.recover``.
    """
    root = root_of_plan(path)
    rules_of(version)
    interval = LogConfig(index_interval_bytes=index_interval_bytes).index_interval_bytes
    threads = thread_count(threads)
    store = open_store(root)
    places = list_unique_paths(store, partitions, is_weighed=runner is not None)
    step = None
    if progress is not None and runner is None:
        step = Steps(progress, count_segments(store.logs_of(partitions)))
    # Few partitions are read by segment, by all threads; many at once, each by one thread.
    inner = threads if len(places) < threads and runner is None else 1
    work = partial(
        _reindex_place,
        version=version,
        index_interval_bytes=interval,
        up_to_damage=up_to_damage,
        threads=inner,
        step=step,
    )
    runner = in_threads(threads // inner) if runner is None else runner
    changes: list[FileChange] = []
    unindexed: list[UnindexedBytes] = []
    unread: list[UnreadPartition] = []
    for found in plan_partitions(work, places, runner):
        if isinstance(found, UnreadPartition):
            unread.append(found)
        else:
            changes += found.changes
            unindexed += found.unindexed
    job = f"reindex (version {version})"
    return ReindexPlan(str(root), job, tuple(changes), tuple(unindexed), tuple(unread))


def _reindex_place(
    place: PartitionPath,
    *,
    version: str,
    index_interval_bytes: int,
    up_to_damage: bool,
    threads: int,
    step: Callable[[], None] | None,
) -> ReindexedPartition:
    """Plan one partition in any process."""
    return reindex_partition(
        open_partition(place),
        version,
        index_interval_bytes,
        up_to_damage=up_to_damage,
        threads=threads,
        step=step,
    )


class ReindexedPartition(NamedTuple):
    """The part of a `ReindexPlan` for one partition."""

    changes: tuple[FileChange, ...]
    unindexed: tuple[UnindexedBytes, ...]


def reindex_partition(
    log: PartitionLog,
    version: str = NEWEST_VERSION,
    index_interval_bytes: int = INDEX_INTERVAL_BYTES,
    *,
    up_to_damage: bool = False,
    threads: int = 1,
    step: Callable[[], None] | None = None,
) -> ReindexedPartition:
    """Plan one partition; `threads` read its segments, `step` is called after each.

    A file that can't be opened raises `NotAFileError` or OSError. Paths are relative to the log
    directory, or to the partition directory if it is opened alone.
    """
    rules = rules_of(version)

    def read(segment: LogSegment) -> _SegmentRead:
        done = _read_segment(log, segment, index_interval_bytes, rules, up_to_damage=up_to_damage)
        if step is not None:
            step()
        return done

    with ParallelMap(read, log.segments, threads, "kafkastore-reindex") as reading:
        reads = [*reading]
    # Transaction indexes need all segments before.
    changes = tuple(_changes(reads, rules))
    found = tuple(each.unindexed for each in reads if each.unindexed is not None)
    return ReindexedPartition(changes, found)


@dataclass(slots=True)
class _SegmentRead:
    """The result of reading one segment and comparing it with its indexes."""

    path: Path
    relative_path: str
    changes: list[FileChange]
    reliance: Reliance
    status: os.stat_result
    transactions: _TransactionSteps | None
    unindexed: UnindexedBytes | None

    def not_changed(self, size: int, reason: str) -> _SegmentRead:
        """Record why this segment is not changed, and plan nothing for it."""
        self.changes, self.transactions = [], None
        self.unindexed = UnindexedBytes(f"{self.relative_path}.log", 0, size, reason, False)
        return self


class _TransactionSteps:
    """The batches of a segment that begin or end transactions, for a `ProducerState`.

    In each run that is read, only a producer's first batch between two markers is kept.
    """

    def __init__(self) -> None:
        self.headers: list[NDArray[Any]] = []
        self.controls: list[ControlRecord | None] = []

    def replay(
        self, headers: NDArray[np.void], controls: Sequence[ControlRecord | None] = ()
    ) -> NDArray[np.void]:
        """Keep the batches that matter for transactions."""
        self.controls += controls
        is_marker = is_control(headers)
        is_followed = is_marker | (headers["attributes"] & TRANSACTIONAL_BIT != 0)
        if is_followed.any():
            followed, is_marker = headers[is_followed], is_marker[is_followed]
            stretch = 2 * np.cumsum(is_marker) - is_marker  # a marker is a stretch of its own
            by_producer = np.stack([stretch, followed["producer_id"]])
            _, first = np.unique(by_producer, axis=1, return_index=True)
            self.headers.append(followed[np.sort(first)])
        return _NO_TXN

    def on_high_watermark(self, high_watermark: int) -> None:
        """Do nothing; replication does not matter here."""

    def aborted(self, state: ProducerState) -> NDArray[np.void]:
        """Advance the producers; return the transactions aborted in this segment."""
        if not self.headers:
            return _NO_TXN
        state.on_high_watermark(int(self.headers[-1]["last_offset"][-1]))
        return state.replay(np.concatenate(self.headers), self.controls)


def _read_segment(
    log: PartitionLog,
    segment: LogSegment,
    index_interval_bytes: int,
    rules: BrokerRules,
    *,
    up_to_damage: bool,
) -> _SegmentRead:
    """Read one segment, and compare its indexes with those built from its log."""
    directory = "" if log.log_dir is None else f"{log.path.name}/"
    name = segment_file_name(segment.base_offset, "")
    place = f"{directory}{name}"
    path = segment.log_path.with_name(name)
    try:
        status = stat_regular(segment.log_path)
    except FileNotFoundError as error:
        raise SegmentGoneError(segment.log_path) from error
    steps = _TransactionSteps()
    reliance = Reliance(f"{place}.log", status.st_size, status.st_mtime_ns)
    done = _SegmentRead(path, place, [], reliance, status, steps, None)
    if segment.temporary:
        return done.not_changed(status.st_size, REPLACES_SEGMENTS)
    try:
        rebuilt = rebuild_indexes(
            segment.log_path,
            segment.base_offset,
            index_interval_bytes=index_interval_bytes,
            rules=rules,
            producers=steps,
        )
        contradiction = None
        if rebuilt.reason is None and rebuilt.valid_bytes == status.st_size:
            contradiction = _contradiction(rebuilt, segment)
        now = os.stat(segment.log_path)
    except (NotAFileError, SegmentGoneError):
        raise
    except KafkaStoreError as error:
        return done.not_changed(status.st_size, str(error))
    if (now.st_size, now.st_mtime_ns) != (status.st_size, status.st_mtime_ns):
        return done.not_changed(now.st_size, "the log changes while it is read")
    if contradiction is not None:
        return done.not_changed(status.st_size, str(contradiction))
    is_damaged, what = _damage(rebuilt, segment, status.st_size)
    if what is not None:
        is_indexed = up_to_damage or not is_damaged
        done.unindexed = UnindexedBytes(
            f"{place}.log", rebuilt.valid_bytes, status.st_size, what, is_indexed
        )
        if not is_indexed:
            done.transactions = None
            return done
        if is_recovered_without_index(log, segment):
            return done.not_changed(status.st_size, f"{what}: {KEPT_BY_AN_INDEX}")
    content = Rebuilt(index_interval_bytes, not rules.offset_index_has_last_offset)
    try:
        done.changes += _change(done, OFFSET_INDEX_SUFFIX, rebuilt.offset_index, content)
        if rules.has_time_indexes:
            done.changes += _change(done, TIME_INDEX_SUFFIX, rebuilt.time_index, content)
    except NotAFileError:
        raise
    except KafkaStoreError as error:
        return done.not_changed(status.st_size, str(error))
    return done


def _contradiction(rebuilt: RebuiltIndexes, segment: LogSegment) -> CorruptionError | None:
    """Return why readers refuse offsets that a broker's recovery accepts, if they do."""
    _, largest = SegmentBounds(segment.base_offset, segment.next_base_offset).offsets
    if rebuilt.offsets_rise and rebuilt.next_offset <= largest + 1:
        return None
    return segment.summary.error  # another read of the log


def _damage(
    rebuilt: RebuiltIndexes, segment: LogSegment, size: int
) -> tuple[bool, str | None]:
    """Return whether a log is corrupt, and why its end is not indexed."""
    if rebuilt.reason is not None:
        return True, rebuilt.reason
    if rebuilt.valid_bytes == size:
        return False, None
    if segment.summary.error is not None:
        return True, str(segment.summary.error)
    return False, "the last batch is incomplete, or the space is preallocated"


def _changes(reads: Sequence[_SegmentRead], rules: BrokerRules) -> Iterator[FileChange]:
    """Yield the changes of one partition, transaction indexes included."""
    state = ProducerState(rules=rules)
    is_known = True
    for each in reads:
        is_known = is_known and each.transactions is not None
        if is_known and each.transactions is not None:
            data = transaction_index.pack(each.transactions.aborted(state))
            try:
                each.changes += _change(each, TRANSACTION_INDEX_SUFFIX, data, Inline(data))
            except NotAFileError:
                raise
            except KafkaStoreError as error:
                each.not_changed(each.status.st_size, str(error))
        yield from each.changes


def _change(
    read: _SegmentRead, suffix: str, data: bytes, content: Content
) -> Iterator[FileChange]:
    """Yield a change for one file if it does not match its log."""
    path = read.path.with_name(read.path.name + suffix)
    if has_bytes(path, data, CorruptIndexError):  # the usual case; skips computing a digest
        return
    before = read_state(path)
    if before is None and suffix == TRANSACTION_INDEX_SUFFIX and not data:
        return
    after = FileState.of_bytes(data, read.status)
    if before is not None:
        after = FileState(
            after.size, after.sha256, before.mtime_ns, before.mode, before.user, before.group
        )
    why = "it is missing" if before is None else "it does not match the log"
    yield FileChange(f"{read.relative_path}{suffix}", before, after, content, why, (read.reliance,))
