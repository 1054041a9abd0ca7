"""The log of one partition: its segments, its bounds, its records."""
from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from kafkastore.errors import (
    CorruptCheckpointError,
    CorruptionError,
    KafkaStoreError,
    NotALogDirectoryError,
)
from kafkastore.formats.checkpoints import EpochStart, parse_leader_epoch_checkpoint
from kafkastore.formats.decompression import MAX_DECOMPRESSED_BYTES
from kafkastore.formats.entries import TimestampAndOffset
from kafkastore.formats.file_names import (
    LEADER_EPOCH_CHECKPOINT,
    TopicPartition,
    parse_segment_file,
)
from kafkastore.formats.record_batch import Record, RecordBatch
from kafkastore.formats.record_columns import BATCH_BYTES, BATCH_ROWS
from kafkastore.log import offset_lookup
from kafkastore.log.isolation import Isolation, find_committed, reads_committed
from kafkastore.log.log_dir import LogDir
from kafkastore.segment.log_file import LARGEST_READ, SMALLEST_READ
from kafkastore.segment.log_segment import LogSegment

if TYPE_CHECKING:
    import pyarrow as pa



class PartitionLog:
    """The segments of one partition, read lazily and never changed.

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
        self.path = path
        self.topic_partition = topic_partition
        self.log_dir = log_dir

    def __repr__(self) -> str:
        return f"PartitionLog({str(self.path)!r})"

    @property
    def topic(self) -> str:
        """The topic's name."""
        return self.topic_partition.topic

    @property
    def partition(self) -> int:
        """The partition's number."""
        return self.topic_partition.partition

    @cached_property
    def segments(self) -> tuple[LogSegment, ...]:
        """The segments by base offset, without files being deleted, cleaned or swapped."""
        try:
            names = os.listdir(self.path)
        except OSError as error:
            raise NotALogDirectoryError(f"{self.path} can't be listed: {error.strerror}") from error
        files = (parse_segment_file(name) for name in names)
        bases = sorted(
            file.base_offset
            for file in files
            if file is not None and file.type_suffix == ".log" and not file.temporary
        )
        return tuple(
            LogSegment(self.path, base, following)
            for base, following in zip(bases, [*bases[1:], None], strict=False)
        )

    @property
    def is_clean(self) -> bool:
        """Whether there is a clean-shutdown marker; False for a directory by itself."""
        return self.log_dir is not None and self.log_dir.is_clean

    @cached_property
    def log_start_offset(self) -> int:
        """First offset a reader may ask for: the checkpoint's or the first segment's."""
        first = self.segments[0].base_offset if self.segments else 0
        if self.log_dir is None:
            return first
        return max(first, self.log_dir.log_start_offsets.get(self.topic_partition, 0))

    @cached_property
    def log_end_offset(self) -> int:
        """Offset the next record will get: behind the last whole batch."""
        if not self.segments:
            return self.log_start_offset
        return max(self.segments[-1].next_offset, self.log_start_offset)

    @property
    def high_watermark(self) -> int:
        """First offset not replicated: the log end, which a sole replica has after its restart.

        What the broker last wrote down is `checkpointed_high_watermark`; it lags in a killed
        broker.
        """
        return self.log_end_offset

    @property
    def last_stable_offset(self) -> int:
        """First offset that is not decided: of the oldest open transaction, or the log end."""
        return find_committed(self, self.log_end_offset, 0).last_stable_offset

    @property
    def checkpointed_high_watermark(self) -> int | None:
        """The high watermark that the broker last wrote to its checkpoint, or None."""
        if self.log_dir is None:
            return None
        return self.log_dir.high_watermarks.get(self.topic_partition)

    @property
    def recovery_point(self) -> int | None:
        """First offset not known to be flushed, or None where no checkpoint says."""
        if self.log_dir is None:
            return None
        return self.log_dir.recovery_points.get(self.topic_partition)

    @cached_property
    def leader_epochs(self) -> tuple[EpochStart, ...]:
        """The leader epochs and their start offsets; empty without the checkpoint."""
        path = self.path / LEADER_EPOCH_CHECKPOINT
        try:
            return parse_leader_epoch_checkpoint(path.read_bytes())
        except FileNotFoundError:
            return ()
        except CorruptCheckpointError as error:
            raise error.located(path) from error

    def segments_between(self, start_offset: int, end_offset: int) -> Iterator[LogSegment]:
        """Yield segments that may hold offsets from a start, inclusive, to an end, exclusive."""
        for segment in self.segments:
            ends = segment.next_base_offset
            if (ends is None or ends > start_offset) and segment.base_offset < end_offset:
                yield segment

    def bounds(self, start_offset: int | None, end_offset: int | None) -> tuple[int, int]:
        """Return bounds within the log for what a caller asked: start inclusive, end exclusive."""
        start = self.log_start_offset
        if start_offset is not None:
            start = max(start, start_offset)
        end = (1 << 63) - 1 if end_offset is None else end_offset
        return start, end

    def batches(
        self, start_offset: int | None = None, end_offset: int | None = None
    ) -> Iterator[RecordBatch]:
        """Read record batches, markers and emptied ones among them.

        Parameters
        ----------
        start_offset : int, optional
            Inclusive; the first batch may begin before it. Default: the log start offset.
        end_offset : int, optional
            Exclusive; the last batch may end behind it. Default: the log end.

        Yields
        ------
        RecordBatch

        Raises
        ------
        CorruptBatchError
            Where bytes break the format; checksums are not looked at (`RecordBatch.verify` does).
        """
        for _, batch in self._batches_with_paths(start_offset, end_offset):
            yield batch

    def _batches_with_paths(
        self, start_offset: int | None, end_offset: int | None
    ) -> Iterator[tuple[Path, RecordBatch]]:
        """Yield each batch with its file: a harmed batch's offsets do not tell where it lies."""
        start, end = self.bounds(start_offset, end_offset)
        first_read = SMALLEST_READ if end_offset is not None else LARGEST_READ
        for segment in self.segments_between(start, end):
            position = segment.position_before(start) if start > segment.base_offset else 0
            with segment.open_log() as log:
                for batch in log.batches(position, first_read=first_read):
                    if batch.last_offset < start and _has_sense(batch):
                        continue
                    if batch.last_offset >= end and _first_offset(batch, segment.log_path) >= end:
                        return
                    yield segment.log_path, batch

    def records(
        self,
        start_offset: int | None = None,
        end_offset: int | None = None,
        *,
        include_control: bool = False,
        isolation: Isolation = "read_uncommitted",
        verify: bool = True,
        max_decompressed_bytes: int = MAX_DECOMPRESSED_BYTES,
    ) -> Iterator[Record]:
        """Read records one by one; for many, see `to_arrow`.

        Parameters
        ----------
        start_offset, end_offset : int, optional
            Inclusive, exclusive. Default: from the log start offset to the log end.
        include_control : bool
            Whether to yield transaction markers.
        isolation : str
            "read_uncommitted", or "read_committed": without records of aborted transactions, up to
            the last stable offset.
        verify : bool
            Check each batch's checksum before its records are read.
        max_decompressed_bytes : int
            What one compressed batch may grow to.

        Yields
        ------
        Record

        Raises
        ------
        CorruptBatchError
            At the first batch that is broken; all records before it have been yielded.
        """
        start, end = self.bounds(start_offset, end_offset)
        aborted = None
        if reads_committed(isolation):
            last_stable_offset, aborted = find_committed(self, start, end, verify=verify)
            end = min(end, last_stable_offset)
        for path, batch in self._batches_with_paths(start, end):
            try:
                # Before the flags are believed: the checksum covers them.
                if verify:
                    batch.verify()
                if batch.is_control and not include_control:
                    continue
                if aborted is not None and aborted.of(batch.header)[0]:
                    continue
                records = batch.records(max_decompressed_bytes=max_decompressed_bytes)
            except CorruptionError as error:
                raise error.located(path) from error
            for record in records:
                if start <= record.offset < end:
                    yield record

    def to_arrow(
        self,
        columns: Sequence[str] | None = None,
        *,
        start_offset: int | None = None,
        end_offset: int | None = None,
        start_timestamp: int | None = None,
        end_timestamp: int | None = None,
        limit: int | None = None,
        include_headers: bool = False,
        include_control: bool = False,
        isolation: Isolation = "read_uncommitted",
        binary_view: bool = False,
        batch_rows: int = BATCH_ROWS,
        batch_bytes: int = BATCH_BYTES,
        verify: bool = True,
        max_decompressed_bytes: int = MAX_DECOMPRESSED_BYTES,
    ) -> pa.RecordBatchReader:
        """Read records into Arrow; see `records_as_arrow.read` for the parameters."""
        from kafkastore.log import records_as_arrow  # pyarrow takes longer to import than a lookup

        return records_as_arrow.read(
            self,
            columns,
            start_offset=start_offset,
            end_offset=end_offset,
            start_timestamp=start_timestamp,
            end_timestamp=end_timestamp,
            limit=limit,
            include_headers=include_headers,
            include_control=include_control,
            isolation=isolation,
            binary_view=binary_view,
            batch_rows=batch_rows,
            batch_bytes=batch_bytes,
            verify=verify,
            max_decompressed_bytes=max_decompressed_bytes,
        )

    def offset_for_timestamp(
        self, target_timestamp: int, rules: str = "correct"
    ) -> TimestampAndOffset | None:
        """Find the offset to begin with for a time; see `offset_lookup.offset_for_timestamp`."""
        return offset_lookup.offset_for_timestamp(self, target_timestamp, rules)

    def check_readable(self) -> None:
        """Raise one clear error where a file of this partition can't be opened for reading."""
        for segment in self.segments:
            try:
                segment.open_log().close()
            except PermissionError as error:
                raise KafkaStoreError(
                    f"{segment.log_path} can't be read: no permission"
                ) from error


def _has_sense(batch: RecordBatch) -> bool:
    """Whether a batch's offsets can be; a harmed one is not passed over for being elsewhere."""
    last_offset = batch.last_offset
    return last_offset >= 0 and (batch.magic < 2 or batch.base_offset <= last_offset)


def _first_offset(batch: RecordBatch, path: Path) -> int:
    """Return a batch's first offset, which in a wrapper has to be decompressed."""
    try:
        return batch.base_offset
    except CorruptionError as error:
        raise error.located(path) from error
