"""One segment of a partition after the other, and their batches, beside a broker at work."""
from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from kafkastore.arguments import INT64_MAX
from kafkastore.errors import CorruptionError, SegmentGoneError
from kafkastore.formats.record_batch import RecordBatch, TimestampType
from kafkastore.log.damage import Damage
from kafkastore.segment.log_file import LARGEST_READ, SMALLEST_READ, BatchRun, LogFile
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
    next_offset, position : int
        After what was read: the offset, and the byte position in that segment.
    damage : Damage
        What is done at corrupt bytes.
    """

    def __init__(
        self,
        log: PartitionLog,
        start_offset: int,
        end_offset: int,
        damage: Damage | None = None,
    ) -> None:
        self.first_offset = self.next_offset = start_offset
        self.position = 0
        self.damage = Damage() if damage is None else damage
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
                    if self.damage.has_stopped:
                        return
                return
            except SegmentGoneError as error:
                if error.path == gone:
                    raise
                gone = error.path
                self.first_offset = max(self.next_offset, segment.base_offset)
                self._log.refresh()

    def runs(
        self,
        segment: LogSegment,
        file: LogFile,
        position: int,
        *,
        verify_crc: bool = False,
        first_read: int = LARGEST_READ,
        mapped: bool = False,
        room: Callable[[int], memoryview] | None = None,
    ) -> Iterator[BatchRun]:
        """Scan batches of a segment up to the end offset, past corrupt bytes if that is asked for.

        The parameters are those of `LogFile.runs`.
        """
        # Not the start offset: the batch that holds it may begin before it, after corrupt bytes.
        next_offset = segment.base_offset
        self.position = position
        while position < file.size:
            try:
                for run in file.runs(
                    position,
                    verify_crc=verify_crc,
                    first_read=first_read,
                    mapped=mapped,
                    room=room,
                ):
                    yield run
                    self.position = position = position + len(run.data)
                    next_offset = int(run.headers["last_offset"][-1]) + 1
                    self.next_offset = max(self.next_offset, next_offset)
                    if self.damage.has_stopped or next_offset >= self._end_offset:
                        return
                return
            except CorruptionError as error:
                self.position = position = self.damage.skip_bytes(
                    error, segment, file, next_offset
                )


def read_batches(
    log: PartitionLog,
    start_offset: int | None,
    end_offset: int | None,
    *,
    verify: bool = False,
    damage: Damage | None = None,
    copied: bool = False,
) -> Iterator[tuple[LogSegment, RecordBatch]]:
    """Read batches, each with its segment; see `PartitionLog.batches`.

    A batch is valid until the next one is asked for, unless it is `copied`.
    """
    start, end = log.bounds(start_offset, end_offset)
    first_read = SMALLEST_READ if end_offset is not None else LARGEST_READ
    segments = SegmentsInTurn(log, start, end, damage)
    for segment, file in segments:
        first = segments.first_offset
        position = segment.position_before(first, file)
        for run in segments.runs(
            segment, file, position, verify_crc=verify, first_read=first_read
        ):
            for index in np.flatnonzero(run.headers["last_offset"] >= first).tolist():
                header = run.headers[index]
                data = run.batch(index)
                batch = RecordBatch(bytes(data) if copied else data, int(header["position"]))
                if header["last_offset"] >= end and _first_offset(batch, segment) >= end:
                    return
                yield segment, batch


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
    for _, batch in read_batches(log, start_offset, end_offset, verify=True):
        timestamp = _first_timestamp_of(batch)
        return timestamp if timestamp >= 0 else None
    return None


def _first_offset(batch: RecordBatch, segment: LogSegment) -> int:
    """Return a batch's first offset, which in a wrapper has to be decompressed."""
    try:
        return batch.base_offset
    except CorruptionError as error:
        raise error.located(segment.log_path) from error


def _first_timestamp_of(batch: RecordBatch) -> int:
    """Return the timestamp of a batch's first record, as far as its header tells."""
    by_broker = batch.timestamp_type == TimestampType.LOG_APPEND_TIME
    if by_broker or batch.delete_horizon_ms is not None:
        return batch.max_timestamp
    return batch.base_timestamp
