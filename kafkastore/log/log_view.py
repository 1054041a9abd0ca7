"""The files, segments and bounds of a log, for everything that reads it.

Scans, isolation and lookups take a `LogView` as their first argument.
"""
from __future__ import annotations

import warnings
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator
from enum import StrEnum
from operator import attrgetter
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from kafkastore.arguments import INT64_MAX, LARGEST_OFFSET, whole_number
from kafkastore.caching import cached_until_refresh
from kafkastore.errors import CorruptCheckpointError, CorruptionError, SegmentGoneError
from kafkastore.formats.state.checkpoints import EpochStart, parse_leader_epoch_checkpoint
from kafkastore.formats.state.file_names import (
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    SWAP_SUFFIX,
    TopicPartition,
)
from kafkastore.formats.state.leader_epochs import LeaderEpochs
from kafkastore.log.damage import CorruptionHandler, OnCorrupt, SkippedBytes
from kafkastore.log.log_dir import LogDir, UnknownLogStartWarning
from kafkastore.log.partition_files import PartitionFiles
from kafkastore.log.remote_log import (
    RemoteLog,
    RemoteSource,
    RemoteStorage,
    find_remote_log,
    has_remote_log_metadata,
)
from kafkastore.paths import list_again, open_path
from kafkastore.segment.log_segment import LogSegment
from kafkastore.segment.small_file import read_if_there

#: How many listings may name a segment that does not exist before this is an error.
MOST_LISTINGS = 20

AnswerT = TypeVar("AnswerT")


class BoundSource(StrEnum):
    """Where an offset bound comes from."""

    CHECKPOINT = "checkpoint"
    FIRST_SEGMENT = "first-segment"
    LAST_BATCH = "last-batch"
    NO_SEGMENT = "no-segment"
    REMOTE_SEGMENT = "remote-segment"
    LOG_START = "log-start"
    LOG_END = "log-end"
    HIGH_WATERMARK = "high-watermark"
    OPEN_TRANSACTION = "open-transaction"
    CALLER = "caller"


class LogBound(NamedTuple):
    """An offset, where it comes from, the same as a text, and any corruption there."""

    offset: int
    source: BoundSource
    basis: str
    error: CorruptionError | None = None


class LogView:
    """Read the files, segments and bounds of one partition lazily; never change them.

    A view is a snapshot: the directory is listed at the first access, and the listing and the
    bounds are kept until `refresh`. Threads may share a view: see ``docs/threads.md``. `log_dir` is
    the log directory whose checkpoints bound the log; None for a partition directory by itself.
    """

    def __init__(
        self, path: Path, topic_partition: TopicPartition, log_dir: LogDir | None = None
    ) -> None:
        self.path = open_path(path)
        self.topic_partition = topic_partition
        self.log_dir = log_dir
        self._remote_storage: RemoteStorage | None = None
        self._remote_metadata_partitions: int | None = None
        #: Everything read since `refresh`: properties by name, and lookups by their choice.
        self.facts: dict[Any, Any] = {}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.path)!r})"

    @property
    def topic(self) -> str:
        """Topic name."""
        return self.topic_partition.topic

    @property
    def partition(self) -> int:
        """Partition number."""
        return self.topic_partition.partition

    def refresh(self) -> None:
        """Drop cached values: the next access lists the directory and reads files again."""
        if self.log_dir is not None:
            self.log_dir.refresh()
        self.refresh_files()

    def refresh_files(self) -> None:
        """Drop what was read of the partition's own directory, but not the checkpoints."""
        list_again(self.path)
        # Last, so that no old value gets in; a thread that is still reading keeps the old dict.
        self.facts = {}

    def retry_if_changed(self, answer: Callable[[], AnswerT]) -> AnswerT:
        """Return `answer()`; if a segment was deleted meanwhile, refresh and retry.

        Raises SegmentGoneError if repeated listings name a segment that does not exist.
        """
        # A writer may create and delete a segment repeatedly.
        gone: Counter[str | PathLike[str]] = Counter()
        while True:
            try:
                return answer()
            except SegmentGoneError as error:
                gone[error.path] += 1
                if gone[error.path] > MOST_LISTINGS:
                    raise
                self.refresh()

    @cached_until_refresh
    def files(self) -> PartitionFiles:
        """The file names in the directory."""
        return PartitionFiles(self.path)

    @cached_until_refresh
    def segments(self) -> tuple[LogSegment, ...]:
        """The segments by base offset, without those being deleted or cleaned.

        A ``.swap`` segment counts if the segments that it replaces are gone.
        """
        return self.retry_if_changed(self._list_segments)

    def _list_segments(self) -> tuple[LogSegment, ...]:
        bases, swapped = self.files.base_offsets, self.files.swapped_offsets
        if swapped:
            end = LogSegment(self.path, swapped[-1], temporary=SWAP_SUFFIX).next_offset
            bases = sorted([*(b for b in bases if not swapped[0] < b < end), *swapped])
        return tuple(
            LogSegment(self.path, base, following, SWAP_SUFFIX if base in swapped else "")
            for base, following in zip(bases, [*bases[1:], None], strict=False)
        )

    @property
    def is_clean(self) -> bool:
        """Whether the clean-shutdown marker exists; False for a directory by itself."""
        return self.log_dir is not None and self.log_dir.is_clean

    @property
    def remote_storage(self) -> RemoteStorage | None:
        """Whether the topic has remote storage, if its configuration is known.

        None by default: then the files around the partition decide.
        """
        return self._remote_storage

    @remote_storage.setter
    def remote_storage(self, configured: RemoteStorage | None) -> None:
        self.set_remote_storage(configured)

    def set_remote_storage(
        self, configured: RemoteStorage | None, metadata_partitions: int | None = None
    ) -> None:
        """Set `remote_storage`, and how many partitions ``__remote_log_metadata`` has."""
        known = self._remote_storage, self._remote_metadata_partitions
        if (configured, metadata_partitions) != known:
            self._remote_storage = configured
            self._remote_metadata_partitions = metadata_partitions
            self.facts = {}

    @cached_until_refresh
    def remote_log(self) -> RemoteLog:
        """The part of the log that is in remote storage."""
        return find_remote_log(
            self.path,
            self.topic_partition,
            self.log_dir,
            self._remote_storage,
            self._remote_metadata_partitions,
        )

    @cached_until_refresh
    def start_bound(self) -> LogBound:
        """First offset of the log: the checkpoint's, or the first base offset.

        A tiered log may start in remote storage, before its first segment here.

        Source: Kafka 2.4.0 ``Log.loadSegments``, ``LogManager.loadLogs``; 4.3.1 ``LogLoader``.
        """
        if self.segments:
            first, source = self.segments[0].base_offset, BoundSource.FIRST_SEGMENT
            basis = "base offset of the first segment"
        else:
            first, source, basis = 0, BoundSource.NO_SEGMENT, "there is no segment"
        offset, unknown = self.checkpointed(LOG_START_OFFSET_CHECKPOINT)
        if (offset or 0) < first and self._may_be_tiered(offset):
            return self._remote_start(offset or 0, first)
        if offset is None:
            error = None if self.log_dir is None else self.log_dir.log_starts_error
            return LogBound(first, source, f"{basis}: {unknown}", error)
        if offset < first:
            basis += f", above {offset} in {LOG_START_OFFSET_CHECKPOINT}"
            return LogBound(first, source, basis)
        return LogBound(offset, BoundSource.CHECKPOINT, LOG_START_OFFSET_CHECKPOINT)

    @property
    def log_start_if_tiered(self) -> int | None:
        """Where the log starts if its topic has remote storage, while nothing says so.

        None if that is known, or makes no difference.
        """
        offset, _ = self.checkpointed(LOG_START_OFFSET_CHECKPOINT)
        if offset is None or not self.segments or offset >= self.segments[0].base_offset:
            return None
        return offset if self.remote_log.source is RemoteSource.NOTHING else None

    def _may_be_tiered(self, checkpointed: int | None) -> bool:
        """Return whether the log is tiered, if there is any sign of that."""
        is_sign = checkpointed is not None or self._remote_storage is not None or (
            # From 3.8 on, a broker writes a line for each tiered partition.
            self.log_dir is not None
            and self.log_dir.is_listed
            and has_remote_log_metadata(self.log_dir)
        )
        return is_sign and self.remote_log.is_tiered

    def _remote_start(self, checkpointed: int, first: int) -> LogBound:
        """Return the start of a tiered log that is not checkpointed at a segment here.

        A leader raises it to the first remote segment, or without one to the first segment here.

        Source: Kafka 4.3.1 ``RemoteLogManager.maybeUpdateLogStartOffsetOnBecomingLeader``.
        """
        remote = self.remote_log
        if remote.segments is None or remote.storage is RemoteStorage.COPY_DISABLED:
            return LogBound(checkpointed, BoundSource.CHECKPOINT, LOG_START_OFFSET_CHECKPOINT)
        found = remote.segments.first_offset(LeaderEpochs(self.leader_epochs))
        if found is None:
            basis = "base offset of the first segment: no segment is in remote storage"
            return LogBound(first, BoundSource.FIRST_SEGMENT, basis)
        if found > checkpointed:
            basis = f"the first segment in remote storage, above {checkpointed} in "
            return LogBound(
                found, BoundSource.REMOTE_SEGMENT, basis + LOG_START_OFFSET_CHECKPOINT
            )
        return LogBound(checkpointed, BoundSource.CHECKPOINT, LOG_START_OFFSET_CHECKPOINT)

    @property
    def local_log_start_offset(self) -> int:
        """First offset that can be read here; records before it are in remote storage."""
        first = self.segments[0].base_offset if self.segments else 0
        return max(self.log_start_offset, first)

    @cached_until_refresh
    def end_bound(self) -> LogBound:
        """The offset after the last readable batch; `error` says why reading ends there."""
        start = self.start_bound.offset
        if not self.segments:
            basis = "the log start offset: the log has no segment"
            return LogBound(start, BoundSource.NO_SEGMENT, basis)
        last = self.segments[-1]
        basis = f"after the last complete batch of {last.log_path.name}"
        if last.end_error is not None:
            basis += f"; the rest can't be read: {last.end_error}"
        if last.next_offset < start:
            basis = f"the log start offset, because the segments end at {last.next_offset}"
            return LogBound(start, BoundSource.LOG_START, basis, last.end_error)
        return LogBound(last.next_offset, BoundSource.LAST_BATCH, basis, last.end_error)

    def checkpointed(self, name: str) -> tuple[int | None, str]:
        """Return the partition's offset in a checkpoint, or None, and why it has none."""
        if self.log_dir is None:
            return None, "a partition directory by itself has no checkpoints"
        checkpoint = self.log_dir.checkpoint(name)
        return checkpoint.offsets.get(self.topic_partition), checkpoint.why_without_offset

    @cached_until_refresh
    def log_start_offset(self) -> int:
        """First offset of the log: the checkpoint's, or the first base offset.

        A tiered log has its first records in remote storage: `local_log_start_offset` is the first
        that can be read here. If the checkpoint is corrupt, an `UnknownLogStartWarning` says that
        deleted records reappear.
        """
        bound = self.start_bound
        if bound.error is not None:
            warnings.warn(UnknownLogStartWarning(bound.error), stacklevel=3)
        return bound.offset

    @cached_until_refresh
    def log_end_offset(self) -> int:
        """Offset of the next record: after the last complete batch.

        Only headers are checked, as in a broker that does not recover the log; `end_offset` also
        checks checksums.

        Raises
        ------
        CorruptBatchError
            If the bytes after that batch are not an incomplete one: the end of the log is then
            unknown. `explain_bounds` reports what can be read.
        """
        bound = self.retry_if_changed(lambda: self.end_bound)
        if bound.error is not None:
            raise bound.error.again()
        return bound.offset

    def end_offset(
        self, on_corrupt: OnCorrupt = "raise", skipped: list[SkippedBytes] | None = None
    ) -> int:
        """Return the log end offset for a reader that checks the last batches' checksums.

        At corrupt bytes, "skip" returns the end of the last valid batch in the last segment, "stop"
        the end before them. `skipped` receives those after it; default: a `SkippedBytesWarning`.
        """
        return self.end_before(CorruptionHandler(on_corrupt, skipped))

    def end_before(self, damage: CorruptionHandler) -> int:
        """Return what `end_offset` does; `damage` notes the corrupt bytes after it."""
        if not self.segments:
            return self.start_bound.offset
        damage = damage.of_another_read()
        end = self.retry_if_changed(lambda: damage.end_of(self.segments[-1]))
        return max(end, self.start_bound.offset)

    @property
    def high_watermark(self) -> int:
        """First offset not replicated: the log end, as in a restarted sole replica.

        `checkpointed_high_watermark` is the value that the broker last wrote; after a broker was
        killed, it is lower.
        """
        return self.log_end_offset

    @property
    def checkpointed_high_watermark(self) -> int | None:
        """The high watermark that the broker last wrote to its checkpoint, or None."""
        if self.log_dir is None:
            return None
        return self.log_dir.high_watermarks.get(self.topic_partition)

    @property
    def recovery_point(self) -> int | None:
        """First offset that may not be flushed, or None if no checkpoint has it.

        0 if the checkpoint is corrupt: a broker then recovers everything.
        """
        if self.log_dir is None:
            return None
        checkpoint = self.log_dir.checkpoint(RECOVERY_POINT_CHECKPOINT)
        if checkpoint.error is not None:
            return 0
        return checkpoint.offsets.get(self.topic_partition)

    def is_recovered_at_start(self, segment: LogSegment) -> bool:
        """Return whether the next start recovers a segment.

        Without a clean shutdown, these are the segments that end after the recovery point. False
        for a directory by itself.
        """
        if self.log_dir is None or self.is_clean:
            return False
        end = segment.next_base_offset
        return end is None or end > (self.recovery_point or 0)

    @cached_until_refresh
    def leader_epochs(self) -> tuple[EpochStart, ...]:
        """The leader epochs and their start offsets; empty without a checkpoint."""
        path = self.path / LEADER_EPOCH_CHECKPOINT
        data = read_if_there(path, CorruptCheckpointError)
        try:
            return () if data is None else parse_leader_epoch_checkpoint(data)
        except CorruptCheckpointError as error:
            raise error.located(path) from error

    def segments_between(self, start_offset: int, end_offset: int) -> Iterator[LogSegment]:
        """Yield segments that may contain offsets of a range; the end is exclusive."""
        segments = self.segments
        following = bisect_right(segments, start_offset, key=attrgetter("base_offset"))
        for segment in segments[max(following - 1, 0) :]:
            # A segment that begins after the largest offset has no record: its batches are errors,
            # for each reader that reads up to the end.
            if min(segment.base_offset, LARGEST_OFFSET) >= end_offset:
                return
            yield segment

    def bounds(self, start_offset: int | None, end_offset: int | None) -> tuple[int, int]:
        """Limit requested offsets to the log: start inclusive, end exclusive."""
        start = self.log_start_offset
        if start_offset is not None:
            start = max(start, whole_number("start_offset", start_offset))
        end = INT64_MAX if end_offset is None else whole_number("end_offset", end_offset)
        return start, end
