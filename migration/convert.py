"""Plans that rewrite messages of the formats 0 and 1 as record batches, for whole directories.

What a broker of 4.x would otherwise convert each time that it is read is then as new brokers write
it: with the logs go their indexes, and the leader epochs.  Offsets, keys, values, timestamps and
the files' modification times stay.  `segment.conversion` says how bytes are made.

Segments that hold record batches alone are left as they are, and so is one whose log is broken or
ends torn, unless it is the last.

Record batches can be given another leader epoch besides.  A topic that is new begins with epoch 0,
and a group whose members commit what they have read of larger epochs finds no leader when it comes
back: its consumers wait for a leader of an epoch as large (KIP-320).
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np

from kafkastore.arguments import INT32_MAX, check_choice, whole_number
from kafkastore.changes.file_state import FileState, read_state
from kafkastore.changes.new_bytes import conversion_of
from kafkastore.changes.plan import Content, Converted, FileChange, Inline, Plan, Rebuilt
from kafkastore.changes.runner import Progress
from kafkastore.errors import ChangeRefusedError, CorruptionError, KafkaStoreError
from kafkastore.formats import batch_header
from kafkastore.formats.batch_header import BATCH_HEADER
from kafkastore.formats.checkpoints import pack_leader_epoch_checkpoint
from kafkastore.formats.compression import Codec
from kafkastore.formats.file_names import (
    LEADER_EPOCH_CHECKPOINT,
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    TIME_INDEX_SUFFIX,
    segment_file_name,
)
from kafkastore.formats.index_builder import IndexBuilder
from kafkastore.formats.leader_epochs import LeaderEpochs
from kafkastore.log.log_store import AnyPartition, AnyPath, open_store
from kafkastore.log.partition_log import PartitionLog
from kafkastore.log.side_by_side import SideBySide
from kafkastore.paths import open_path, to_path
from kafkastore.segment.conversion import converted
from kafkastore.segment.log_segment import LogSegment
from kafkastore.segment.recovery import INDEX_INTERVAL_BYTES
from kafkastore.segment.small_file import has_bytes

#: What messages of format 0, which have none, get for a timestamp.
Untimed = Literal["none", "mtime"]
UNTIMED: tuple[Untimed, ...] = ("none", "mtime")


class UnconvertedSegment(NamedTuple):
    """A segment with messages of old formats that is left as it is.

    Parameters
    ----------
    path : str
        The ``.log``, relative to the plan's root.
    reason : str
        Why.
    """

    path: str
    reason: str


@dataclass(frozen=True, slots=True, eq=False)
class ConvertPlan(Plan):
    """A plan of `plan_convert`.

    Parameters
    ----------
    unconverted : tuple of UnconvertedSegment
        The segments that are left as they are; not kept with a plan.
    """

    unconverted: tuple[UnconvertedSegment, ...] = ()


def plan_convert(
    path: AnyPath,
    codec: str | Codec | None = None,
    *,
    untimed: Untimed = "none",
    leader_epoch: int | None = None,
    index_interval_bytes: int = INDEX_INTERVAL_BYTES,
    partitions: Collection[AnyPartition] | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
) -> ConvertPlan:
    """Plan to rewrite all messages of old formats as record batches.

    Parameters
    ----------
    path : path-like
        A log.dirs root, or one partition directory.
    codec : str or Codec, optional
        How records are compressed: ``none``, ``gzip``, ``snappy``, ``lz4``, ``zstd``. Default: as
        they were.
    untimed : str
        What messages of format 0 get for a timestamp: ``none``, or ``mtime``: that of their
        segment's modification, as a LogAppendTime.
    leader_epoch : int, optional
        Of every batch, those of the newest format included; 0 for a topic that is new. Default:
        record batches keep theirs.
    index_interval_bytes : int
        The topics' ``index.interval.bytes``.
    partitions : collection, optional
        Only these, each as ``("orders", 3)`` or ``"orders-3"``.
    threads : int, optional
        How many partitions are read in parallel; by default as many as there are processors.
    progress : callable, optional
        Called with the number of segments that are read, and of all, by one thread at a time.

    Returns
    -------
    ConvertPlan
        For `kafkastore.apply`. Each log is followed by its indexes: as long as a plan is not
        finished, no broker should start on the directory.

    Raises
    ------
    NotALogDirectoryError
        If the path is neither.
    DuplicatePartitionError
        If a partition lies in several directories.
    KeyError
        If one of `partitions` is not there.
    ValueError
        If there is no such codec, no such `untimed`, or no such leader epoch.
    """
    if leader_epoch is not None:
        leader_epoch = whole_number("leader_epoch", leader_epoch, 0, INT32_MAX)
    check_choice("untimed", untimed, UNTIMED)
    name = codec.name.lower() if isinstance(codec, Codec) else codec
    if name is not None:
        check_choice("codec", name.lower(), [each.name.lower() for each in Codec])
    root = to_path(os.path.abspath(open_path(path)))
    store = open_store(root)
    logs, total = store.logs_of(partitions), 0
    if progress is not None:
        total = sum(len(log.segments) for log in store.logs_of(partitions))
    segments_done, one_at_a_time = 0, threading.Lock()

    def advance() -> None:
        nonlocal segments_done
        if progress is not None:
            with one_at_a_time:
                segments_done += 1
                progress(segments_done, total)

    def convert(log: PartitionLog) -> _Partition:
        done = _Partition(log, name, untimed, leader_epoch, index_interval_bytes)
        for segment in done.log.segments:
            done.convert(segment)
            advance()
        if leader_epoch is not None and done.unconverted:
            done.leave_all()
        return done

    changes: list[FileChange] = []
    unconverted: list[UnconvertedSegment] = []
    threads = threads or os.cpu_count() or 1
    with SideBySide(convert, logs, threads, "kafkastore-convert") as in_turn:
        for done in in_turn:
            changes += done.all_changes()
            unconverted += done.unconverted
    job = "convert" if name is None else f"convert ({name})"
    return ConvertPlan(str(root), job, tuple(changes), tuple(unconverted))


@dataclass(slots=True)
class _Partition:
    """What one partition's segments become, one after the other."""

    log: PartitionLog
    codec: str | None
    untimed: Untimed
    leader_epoch: int | None
    index_interval_bytes: int
    changes: list[FileChange] = field(default_factory=list)
    unconverted: list[UnconvertedSegment] = field(default_factory=list)
    epochs: LeaderEpochs = field(default_factory=LeaderEpochs)

    def convert(self, segment: LogSegment) -> None:
        """Plan a segment's log and indexes, if it has messages of old formats or other epochs."""
        try:
            summary = segment.summary
            if summary.magics <= {2} and not self._has_other_epochs(segment):
                self._go_along(segment)
                return
            if summary.error is not None:
                raise summary.error
            if summary.valid_bytes < segment.size and not segment.is_active:
                raise CorruptionError("its last batch is torn, and another segment follows")
            self.changes += self._changes(segment)
        except (KafkaStoreError, OSError, ValueError) as error:
            self.unconverted.append(UnconvertedSegment(self._path(segment, LOG_SUFFIX), str(error)))

    def leave_all(self) -> None:
        """Convert nothing: replicas cut logs wrongly where some batches have other epochs."""
        left = {each.path for each in self.unconverted}
        why = "another segment can't be converted, and all are to have one leader epoch"
        for segment in self.log.segments:
            if (path := self._path(segment, LOG_SUFFIX)) not in left:
                self.unconverted.append(UnconvertedSegment(path, why))
        self.changes.clear()

    def all_changes(self) -> Iterator[FileChange]:
        """Yield all changes, with that of the leader epochs."""
        yield from self.changes
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
        why = "every offset has a leader epoch now"
        yield self._change(LEADER_EPOCH_CHECKPOINT, before, data, like, Inline(data), why)

    def _has_other_epochs(self, segment: LogSegment) -> bool:
        """Tell whether record batches are to have another leader epoch than they have."""
        if self.leader_epoch is None:
            return False
        with segment.open_log() as log:
            epochs = (run.headers["leader_epoch"] for run in log.runs())
            return any((each != self.leader_epoch).any() for each in epochs)

    def _go_along(self, segment: LogSegment) -> None:
        """Take note of the epochs of a segment that stays as it is."""
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
            for data in converted(log, conversion_of(content)):
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
            return  # every batch is where it was
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
    """Take in batches that were made."""
    headers = np.empty(len(data) // batch_header.LARGEST_HEADER + 1, BATCH_HEADER)
    count, scanned, *_ = batch_header.scan(data, position, headers)
    assert scanned == len(data)
    builder.append(headers[:count])
    epochs.assign_many(headers[:count])
