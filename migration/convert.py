"""Plans that convert messages of formats 0 and 1 to record batches.

A broker of 4.x would otherwise convert them at each read. The logs are converted with their indexes
and the leader epochs. Offsets, keys, values, timestamps and modification times of files do not
change. `segment.conversion` describes how the bytes are built.

Segments that contain only record batches are not changed, and neither is a segment whose log is
corrupt or ends with an incomplete batch, unless it is the last.

Record batches can also get another leader epoch. A new topic begins with epoch 0. If a consumer
group has committed offsets with larger epochs, its consumers wait for a leader with an epoch as
large (KIP-320).
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Literal, NamedTuple

import numpy as np

from kafkastore.arguments import INT32_MAX, check_choice, thread_count, whole_number
from kafkastore.changes.file_state import FileState, read_state
from kafkastore.changes.new_bytes import conversion_of, converted_in_threads
from kafkastore.changes.partition_changes import plan_partitions
from kafkastore.changes.plan import Content, Converted, FileChange, Inline, Plan, Rebuilt
from kafkastore.errors import (
    ChangeRefusedError,
    CorruptBatchError,
    CorruptionError,
    KafkaStoreError,
    NotAFileError,
    SegmentGoneError,
)
from kafkastore.formats.indexes.index_builder import IndexBuilder
from kafkastore.formats.records import batch_header
from kafkastore.formats.records.batch_header import BATCH_HEADER
from kafkastore.formats.records.compression import Codec
from kafkastore.formats.state.checkpoints import pack_leader_epoch_checkpoint
from kafkastore.formats.state.file_names import (
    LEADER_EPOCH_CHECKPOINT,
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    TIME_INDEX_SUFFIX,
    segment_file_name,
)
from kafkastore.formats.state.leader_epochs import LeaderEpochs
from kafkastore.runner import Progress, Runner, Steps, in_threads, threads_within
from kafkastore.segment.log_segment import REPLACES_SEGMENTS, LogSegment
from kafkastore.segment.recovery import INDEX_INTERVAL_BYTES
from kafkastore.segment.small_file import has_bytes
from kafkastore.store.log_store import AnyPartition, Paths, open_store, root_of_plan
from kafkastore.store.partition_log import PartitionLog
from kafkastore.store.partition_path import PartitionPath, list_unique_paths, open_partition
from kafkastore.store.unread_partition import UnreadPartition, count_segments

#: The timestamp of messages of format 0, which have none.
Untimed = Literal["none", "mtime"]
UNTIMED: tuple[Untimed, ...] = ("none", "mtime")


class UnconvertedSegment(NamedTuple):
    """A segment with messages of old formats that is not converted.

    Parameters
    ----------
    path : str
        The ``.log``, relative to the plan's root.
    reason : str
        Why it is not converted.
    """

    path: str
    reason: str


@dataclass(frozen=True, slots=True, eq=False)
class ConvertPlan(Plan):
    """A plan of `plan_convert`.

    Parameters
    ----------
    unconverted : tuple of UnconvertedSegment
        The segments that are not converted; not saved with the plan.
    unread : tuple of UnreadPartition
        The partitions with a file that can't be opened; not saved with the plan.
    """

    unconverted: tuple[UnconvertedSegment, ...] = ()
    unread: tuple[UnreadPartition, ...] = ()


def plan_convert(
    path: Paths,
    codec: str | Codec | None = None,
    *,
    untimed: Untimed = "none",
    leader_epoch: int | None = None,
    index_interval_bytes: int = INDEX_INTERVAL_BYTES,
    partitions: Collection[AnyPartition] | None = None,
    threads: int | None = None,
    runner: Runner | None = None,
    progress: Progress | None = None,
) -> ConvertPlan:
    """Plan to convert all messages of old formats to record batches.

    Parameters
    ----------
    path : path-like, LogStore or list of these
        One log.dirs root, or one partition directory: a plan changes one.
    codec : str or Codec, optional
        Compression of the records: ``none``, ``gzip``, ``snappy``, ``lz4``, ``zstd``. Default:
        unchanged.
    untimed : str
        The timestamp of messages of format 0: ``none``, or ``mtime`` for the modification time of
        their segment, as LogAppendTime.
    leader_epoch : int, optional
        The leader epoch of every batch, including existing record batches; 0 for a new topic.
        Default: record batches keep theirs.
    index_interval_bytes : int
        The topics' ``index.interval.bytes``.
    partitions : collection, optional
        Only these, each as ``("orders", 3)`` or ``"orders-3"``.
    threads : int, optional
        Number of partitions read in parallel; fewer partitions share the threads to convert
        messages. By default the number of processors.
    runner : callable, optional
        Reads the partitions in other processes instead of threads, and shows their progress itself.
    progress : callable, optional
        Called with the number of segments read by threads and the total, one thread at a time.

    Returns
    -------
    ConvertPlan
        For `kafkastore.apply`. Each log is followed by its indexes: do not start a broker on the
        directory before the plan is completely applied.

    Raises
    ------
    NotALogDirectoryError
        If `path` is neither a log.dirs root nor a partition directory.
    DuplicatePartitionError
        If a partition is in several directories.
    KeyError
        If one of `partitions` does not exist.
    ValueError
        If `codec`, `untimed` or `leader_epoch` is not valid.
    """
    if leader_epoch is not None:
        leader_epoch = whole_number("leader_epoch", leader_epoch, 0, INT32_MAX)
    check_choice("untimed", untimed, UNTIMED)
    name = codec.name.lower() if isinstance(codec, Codec) else codec
    if name is not None:
        check_choice("codec", name.lower(), [each.name.lower() for each in Codec])
    threads = thread_count(threads)
    root = root_of_plan(path)
    store = open_store(root)
    places = list_unique_paths(store, partitions, is_weighed=runner is not None)
    step = None
    if progress is not None and runner is None:
        step = Steps(progress, count_segments(store.logs_of(partitions)))
    work = partial(
        convert_partition,
        codec=name,
        untimed=untimed,
        leader_epoch=leader_epoch,
        index_interval_bytes=index_interval_bytes,
        step=step,
        threads=threads_within(threads, len(places)) if runner is None else 1,
    )
    runner = in_threads(threads) if runner is None else runner
    changes: list[FileChange] = []
    unconverted: list[UnconvertedSegment] = []
    unread: list[UnreadPartition] = []
    for found in plan_partitions(work, places, runner):
        if isinstance(found, UnreadPartition):
            unread.append(found)
            continue
        changes += found.changes
        unconverted += found.unconverted
    job = "convert" if name is None else f"convert ({name})"
    return ConvertPlan(str(root), job, tuple(changes), tuple(unconverted), tuple(unread))


class ConvertedPartition(NamedTuple):
    """The part of a `ConvertPlan` for one partition.

    `old` has the names of the converted logs that have messages of old formats.
    """

    changes: list[FileChange]
    unconverted: list[UnconvertedSegment]
    old: frozenset[str]


def convert_partition(
    place: PartitionPath,
    *,
    codec: str | None,
    untimed: Untimed,
    leader_epoch: int | None,
    index_interval_bytes: int,
    step: Callable[[], None] | None,
    threads: int,
) -> ConvertedPartition:
    """Plan one partition in any process; `step` is called after each segment."""
    return convert_log(
        open_partition(place),
        codec,
        untimed,
        leader_epoch,
        index_interval_bytes,
        step,
        threads=threads,
    )


def convert_log(
    log: PartitionLog,
    codec: str | None,
    untimed: Untimed,
    leader_epoch: int | None,
    index_interval_bytes: int,
    step: Callable[[], None] | None,
    *,
    threads: int,
) -> ConvertedPartition:
    """Plan an open partition; `step` is called after each segment."""
    done = _Partition(log, codec, untimed, leader_epoch, index_interval_bytes, threads)
    for segment in done.log.segments:
        done.convert(segment)
        if step is not None:
            step()
    if leader_epoch is not None and done.unconverted:
        done.leave_all()
    done.add_epochs()
    return ConvertedPartition(done.changes, done.unconverted, frozenset(done.old))


@dataclass(slots=True)
class _Partition:
    """The conversion of one partition, segment by segment."""

    log: PartitionLog
    codec: str | None
    untimed: Untimed
    leader_epoch: int | None
    index_interval_bytes: int
    threads: int
    changes: list[FileChange] = field(default_factory=list)
    unconverted: list[UnconvertedSegment] = field(default_factory=list)
    old: list[str] = field(default_factory=list)
    epochs: LeaderEpochs = field(default_factory=LeaderEpochs)

    def convert(self, segment: LogSegment) -> None:
        """Plan a segment's log and indexes if its messages or epochs change.

        A file that can't be opened raises: the partition is then not changed.
        """
        known = self.epochs.entries
        try:
            summary = segment.summary
            if summary.magics <= {2} and not self._has_other_epochs(segment):
                self._keep_epochs(segment)
                return
            if segment.temporary:
                path = self._path(segment, LOG_SUFFIX)
                self.unconverted.append(UnconvertedSegment(path, REPLACES_SEGMENTS))
                return
            if summary.error is not None:
                raise summary.error.again()
            if summary.valid_bytes < segment.size and not segment.is_active:
                raise CorruptBatchError(
                    "its last batch is incomplete, and another segment follows",
                    position=summary.valid_bytes,
                )
            self.changes += list(self._changes(segment))  # all of them, or none
            if not summary.magics <= {2}:
                self.old.append(segment.log_path.name)
        except (NotAFileError, SegmentGoneError):
            raise
        except (KafkaStoreError, ValueError) as error:
            self.epochs = LeaderEpochs(known)
            self.unconverted.append(UnconvertedSegment(self._path(segment, LOG_SUFFIX), str(error)))

    def leave_all(self) -> None:
        """Convert nothing: replicas truncate wrongly if only some epochs are new."""
        left = {each.path for each in self.unconverted}
        why = "another segment can't be converted, and all must get the same leader epoch"
        for segment in self.log.segments:
            if (path := self._path(segment, LOG_SUFFIX)) not in left:
                self.unconverted.append(UnconvertedSegment(path, why))
        self.changes.clear()

    def add_epochs(self) -> None:
        """Plan the leader epoch checkpoint, after the logs."""
        if not self.changes:
            return
        path = self.log.path / LEADER_EPOCH_CHECKPOINT
        before = read_state(path)
        epochs = LeaderEpochs()
        known = self.log.leader_epochs if self.leader_epoch is None else ()
        for epoch, start_offset in sorted({*known, *self.epochs.entries}):
            epochs.assign(epoch, start_offset)
        data = pack_leader_epoch_checkpoint(epochs.entries)
        if before is not None and has_bytes(path, data, CorruptionError):
            return
        like = os.stat(self.log.segments[0].log_path if before is None else path)
        why = "the converted offsets have a leader epoch now"
        change = self._change(LEADER_EPOCH_CHECKPOINT, before, data, like, Inline(data), why)
        self.changes.append(change)

    def _has_other_epochs(self, segment: LogSegment) -> bool:
        """Return whether record batches must get another leader epoch."""
        if self.leader_epoch is None:
            return False
        with segment.open_log() as log:
            epochs = (run.headers["leader_epoch"] for run in log.runs())
            return any((each != self.leader_epoch).any() for each in epochs)

    def _keep_epochs(self, segment: LogSegment) -> None:
        """Record the leader epochs of an unchanged segment."""
        with segment.open_log() as log:
            for run in log.runs():
                self.epochs.assign_many(run.headers)

    def _changes(self, segment: LogSegment) -> Iterator[FileChange]:
        log_name = segment.log_path.name
        before = read_state(segment.log_path)
        if before is None:
            raise ChangeRefusedError(f"{segment.log_path} is gone")
        content = Converted(
            self.codec,
            segment.last_modified_ms if self.untimed == "mtime" else None,
            (self.epochs.latest_epoch or 0) if self.leader_epoch is None else self.leader_epoch,
            self.leader_epoch is not None,
        )
        builder = IndexBuilder(segment.base_offset, self.index_interval_bytes)
        digest, size = hashlib.sha256(), 0
        with segment.open_log() as log:
            for data in converted_in_threads(log, conversion_of(content), self.threads):
                digest.update(data)
                _index(builder, self.epochs, data, size)
                size += len(data)
        if size >= 1 << 31:
            raise ChangeRefusedError(f"it would have {size} bytes, and a segment has at most 2^31")
        status = os.stat(segment.log_path)
        after = FileState.of_digest(size, digest.hexdigest(), status)
        old = "/".join(str(each) for each in sorted(segment.summary.magics - {2}))
        why = f"it has messages of format {old}" if old else "it has other leader epochs"
        yield FileChange(self._place(log_name), before, after, content, why)
        if not old and size == segment.size:
            return  # all batches keep their positions
        for suffix, data in zip(
            (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX), builder.finish(), strict=True
        ):
            name = segment_file_name(segment.base_offset, suffix)
            path = self.log.path / name
            old_index = read_state(path)
            if old_index is not None and has_bytes(path, data, CorruptionError):
                continue
            like = status if old_index is None else os.stat(path)
            rebuilt = Rebuilt(self.index_interval_bytes)
            yield self._change(name, old_index, data, like, rebuilt, f"{log_name} is converted")

    def _change(
        self,
        name: str,
        before: FileState | None,
        data: bytes,
        like: os.stat_result,
        content: Content,
        reason: str,
    ) -> FileChange:
        after = FileState.of_bytes(data, like)
        return FileChange(self._place(name), before, after, content, reason)

    def _path(self, segment: LogSegment, suffix: str) -> str:
        return self._place(segment_file_name(segment.base_offset, suffix))

    def _place(self, name: str) -> str:
        return name if self.log.log_dir is None else f"{self.log.path.name}/{name}"


def _index(builder: IndexBuilder, epochs: LeaderEpochs, data: bytes, position: int) -> None:
    """Add converted batches to the indexes and the leader epochs."""
    headers = np.empty(len(data) // batch_header.LARGEST_HEADER + 1, BATCH_HEADER)
    count, scanned, *_ = batch_header.scan(data, position, headers)
    assert scanned == len(data)
    builder.append(headers[:count])
    epochs.assign_many(headers[:count])
