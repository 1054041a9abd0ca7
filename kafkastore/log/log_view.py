"""What reads of a log need of it: its files, its segments and its bounds.

Scans, isolation and lookups take a `LogView` as their first argument.
"""
from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator
from operator import attrgetter
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from kafkastore.arguments import INT64_MAX, whole_number
from kafkastore.caching import cached_until_refresh
from kafkastore.errors import CorruptCheckpointError, CorruptionError, SegmentGoneError
from kafkastore.formats.checkpoints import EpochStart, parse_leader_epoch_checkpoint
from kafkastore.formats.file_names import (
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    SWAP_SUFFIX,
    TopicPartition,
)
from kafkastore.log.damage import OnCorrupt, known_on_corrupt
from kafkastore.log.log_dir import LogDir
from kafkastore.log.partition_files import PartitionFiles
from kafkastore.paths import list_again, open_path
from kafkastore.segment.log_segment import LogSegment
from kafkastore.segment.small_file import read_if_there

#: How often a segment may be listed and then not be there, until that is an error.
MOST_LISTINGS = 20

AnswerT = TypeVar("AnswerT")


class LogBound(NamedTuple):
    """An offset, in words what it rests on, and what is corrupt at it."""

    offset: int
    basis: str
    error: CorruptionError | None = None


class LogView:
    """The files, segments and bounds of one partition, read lazily and never changed.

    The log is as it was when it was first asked: its directory is listed once, and what files said
    of its bounds is kept, until `refresh`. Threads may share it: see ``docs/threads.md``.

    Parameters
    ----------
    path : path-like
        The partition directory.
    topic_partition : TopicPartition
        What its name says.
    log_dir : LogDir or None
        The log directory around it, whose checkpoints bound the log; None for a directory by
        itself.
    """

    def __init__(
        self, path: Path, topic_partition: TopicPartition, log_dir: LogDir | None = None
    ) -> None:
        self.path = open_path(path)
        self.topic_partition = topic_partition
        self.log_dir = log_dir
        #: What was read since `refresh`: properties by name, and lookups by their choice.
        self.facts: dict[Any, Any] = {}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.path)!r})"

    @property
    def topic(self) -> str:
        """The topic's name."""
        return self.topic_partition.topic

    @property
    def partition(self) -> int:
        """The partition's number."""
        return self.topic_partition.partition

    def refresh(self) -> None:
        """Forget what was read: the next question lists the directory and reads files again."""
        list_again(self.path)
        if self.log_dir is not None:
            self.log_dir.refresh()
        # Last, so that nothing of before gets in; a thread that still reads keeps the old ones.
        self.facts = {}

    def beside_changes(self, answer: Callable[[], AnswerT]) -> AnswerT:
        """Answer a question; whenever a segment was deleted meanwhile, refresh and ask again.

        Parameters
        ----------
        answer : callable
            Asks this log.

        Returns
        -------
        object
            What it returned.

        Raises
        ------
        SegmentGoneError
            If listing after listing names a segment that is not there.
        """
        # A writer may make and drop one again and again; a link to nowhere stays.
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
        """The names in the directory."""
        return PartitionFiles(self.path)

    @cached_until_refresh
    def segments(self) -> tuple[LogSegment, ...]:
        """The segments by base offset, without those that are being deleted or cleaned.

        One with ``.swap`` after its name counts where the segments that it replaces are gone.
        """
        return self.beside_changes(self._list_segments)

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
        """Whether there is a clean-shutdown marker; False for a directory by itself."""
        return self.log_dir is not None and self.log_dir.is_clean

    @cached_until_refresh
    def start_bound(self) -> LogBound:
        """The first offset a reader may ask for: the checkpoint's or the first segment's.

        Source: Kafka 2.4.0 ``Log.loadSegments``, ``LogManager.loadLogs``.
        """
        first = self.segments[0].base_offset if self.segments else 0
        basis = "base offset of the first segment" if self.segments else "there is no segment"
        offset, unknown = self.checkpointed(LOG_START_OFFSET_CHECKPOINT)
        if offset is None:
            return LogBound(first, f"{basis}: {unknown}")
        if offset < first:
            return LogBound(first, f"{basis}, above {offset} in {LOG_START_OFFSET_CHECKPOINT}")
        return LogBound(offset, LOG_START_OFFSET_CHECKPOINT)

    @property
    def end_bound(self) -> LogBound:
        """The offset after the last batch that can be read; `error`: why no more can."""
        start = self.log_start_offset
        if not self.segments:
            return LogBound(start, "the log start offset: there is no segment")
        last = self.segments[-1]
        basis = f"behind the last whole batch of {last.log_path.name}"
        if last.end_error is not None:
            basis += f"; what follows can't be read: {last.end_error}"
        if last.next_offset < start:
            basis = f"the log start offset, for the segments end at {last.next_offset}"
            return LogBound(start, basis, last.end_error)
        return LogBound(last.next_offset, basis, last.end_error)

    def checkpointed(self, name: str) -> tuple[int | None, str]:
        """Return the offset in a checkpoint of the log directory, or None and why it has none."""
        if self.log_dir is None:
            return None, "a partition directory by itself has no checkpoints"
        checkpoint = self.log_dir.checkpoint(name)
        return checkpoint.offsets.get(self.topic_partition), checkpoint.why_without_offset

    @property
    def log_start_offset(self) -> int:
        """First offset a reader may ask for: the checkpoint's or the first segment's."""
        return self.start_bound.offset

    @cached_until_refresh
    def log_end_offset(self) -> int:
        """Offset the next record will get: after the last whole batch.

        By headers, as a broker has it that does not recover the log; `end_offset` looks at
        checksums, too.

        Raises
        ------
        CorruptBatchError
            If what follows that batch is no torn tail: where the log ends is not known.
            `explain_bounds` gives what can be read.
        """
        bound = self.beside_changes(lambda: self.end_bound)
        if bound.error is not None:
            raise bound.error
        return bound.offset

    def end_offset(self, on_corrupt: OnCorrupt = "raise") -> int:
        """Return where the log ends for a reader, who checks the checksums of the last batches.

        Parameters
        ----------
        on_corrupt : "raise", "skip" or "stop"
            At corrupt bytes: raise; the end is after the last whole batch of the last segment; or
            before them.

        Returns
        -------
        int

        Raises
        ------
        CorruptBatchError
            If the last batches are corrupt, unless they are skipped, or reading stops there.
        """
        known_on_corrupt(on_corrupt)
        if not self.segments:
            return self.log_start_offset
        if on_corrupt == "skip":
            end = self.beside_changes(lambda: self.segments[-1].salvaged_end)
        else:
            end, error = self.beside_changes(lambda: self.segments[-1].verified_end)
            if error is not None and on_corrupt == "raise":
                raise error
        return max(end, self.log_start_offset)

    @property
    def high_watermark(self) -> int:
        """First offset not replicated: the log end, which a sole replica has after its restart.

        What the broker last wrote down is `checkpointed_high_watermark`; it lags in a killed
        broker.
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
        """First offset not known to be flushed, or None where no checkpoint says.

        0 where the checkpoint is damaged, as brokers take it: everything is recovered.
        """
        if self.log_dir is None:
            return None
        checkpoint = self.log_dir.checkpoint(RECOVERY_POINT_CHECKPOINT)
        if checkpoint.error is not None:
            return 0
        return checkpoint.offsets.get(self.topic_partition)

    @cached_until_refresh
    def leader_epochs(self) -> tuple[EpochStart, ...]:
        """The leader epochs and their start offsets; empty without the checkpoint."""
        path = self.path / LEADER_EPOCH_CHECKPOINT
        data = read_if_there(path, CorruptCheckpointError)
        try:
            return () if data is None else parse_leader_epoch_checkpoint(data)
        except CorruptCheckpointError as error:
            raise error.located(path) from error

    def segments_between(self, start_offset: int, end_offset: int) -> Iterator[LogSegment]:
        """Yield segments that may hold offsets from a start, inclusive, to an end, exclusive."""
        segments = self.segments
        behind = bisect_right(segments, start_offset, key=attrgetter("base_offset"))
        for segment in segments[max(behind - 1, 0) :]:
            if segment.base_offset >= end_offset:
                return
            yield segment

    def bounds(self, start_offset: int | None, end_offset: int | None) -> tuple[int, int]:
        """Return bounds within the log for what a caller asked: start inclusive, end exclusive."""
        start = self.log_start_offset
        if start_offset is not None:
            start = max(start, whole_number("start_offset", start_offset))
        end = INT64_MAX if end_offset is None else whole_number("end_offset", end_offset)
        return start, end
