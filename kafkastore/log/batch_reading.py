"""One segment of a partition after the other, and their batches, beside a broker at work."""
from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from kafkastore.errors import CorruptionError, SegmentGoneError
from kafkastore.formats.java_text import INT64_MAX
from kafkastore.formats.record_batch import RecordBatch, TimestampType
from kafkastore.segment.log_file import LARGEST_READ, SMALLEST_READ, LogFile
from kafkastore.segment.log_segment import LogSegment

if TYPE_CHECKING:
    from kafkastore.log.partition_log import PartitionLog


class SegmentsInTurn:
    """The segments between two offsets, opened one after the other.

    Parameters
    ----------
    log : PartitionLog
        The partition; listed anew where a segment is gone.
    start_offset, end_offset : int
        Inclusive, exclusive.

    Attributes
    ----------
    first_offset : int
        What to begin with in a segment. Above the start behind a new listing: compaction may have
        put what was read already into one segment with what was not.
    next_offset : int
        Behind what was read; the reader tells.
    """

    def __init__(self, log: PartitionLog, start_offset: int, end_offset: int) -> None:
        self.first_offset = self.next_offset = start_offset
        self._log, self._end_offset = log, end_offset

    def __iter__(self) -> Iterator[tuple[LogSegment, LogFile]]:
        """Yield each segment and its log, which is closed behind its turn.

        Raises
        ------
        SegmentGoneError
            If a segment is listed again and again but is not there, such as a link to nothing.
        """
        gone = None
        while True:
            try:
                for segment in self._log.segments_between(self.first_offset, self._end_offset):
                    with segment.open_log() as file:
                        yield segment, file
                return
            except SegmentGoneError as error:
                if error.path == gone:
                    raise
                gone = error.path
                self.first_offset = max(self.next_offset, segment.base_offset)
                self._log.refresh()


def read_batches(
    log: PartitionLog, start_offset: int | None, end_offset: int | None
) -> Iterator[tuple[Path, RecordBatch]]:
    """Read batches, each with its file: a harmed batch's offsets do not tell where it lies.

    Parameters
    ----------
    log : PartitionLog
        The partition.
    start_offset, end_offset : int, optional
        As for `PartitionLog.batches`.

    Yields
    ------
    path : path
    batch : RecordBatch
    """
    start, end = log.bounds(start_offset, end_offset)
    first_read = SMALLEST_READ if end_offset is not None else LARGEST_READ
    segments = SegmentsInTurn(log, start, end)
    for segment, file in segments:
        position = segment.position_before(segments.first_offset, file)
        for batch in file.batches(position, first_read=first_read):
            if batch.last_offset < segments.first_offset and _has_sense(batch):
                continue
            if batch.last_offset >= end and _first_offset(batch, segment.log_path) >= end:
                return
            segments.next_offset = batch.last_offset + 1
            yield segment.log_path, batch


def first_timestamp(
    log: PartitionLog, start_offset: int, end_offset: int | None = None
) -> int | None:
    """Return the first timestamp of the first batch at or after an offset, by its header.

    Parameters
    ----------
    log : PartitionLog
        The partition.
    start_offset : int
        Inclusive.
    end_offset : int, optional
        Exclusive.

    Returns
    -------
    int or None
        ms since 1970, of a compressed batch before magic 2 its largest; None where there is no
        batch, or one without timestamps.
    """
    # An end in any case: reading with one begins with little.
    end_offset = INT64_MAX if end_offset is None else end_offset
    for _, batch in read_batches(log, start_offset, end_offset):
        timestamp = _first_timestamp_of(batch)
        return timestamp if timestamp >= 0 else None
    return None


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


def _first_timestamp_of(batch: RecordBatch) -> int:
    """Return the timestamp of a batch's first record, as far as its header tells."""
    by_broker = batch.timestamp_type == TimestampType.LOG_APPEND_TIME
    if by_broker or batch.delete_horizon_ms is not None:
        return batch.max_timestamp
    return batch.base_timestamp
