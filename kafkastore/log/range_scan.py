"""The scan of a partition's batches between two offsets, while a broker may be at work.

Every reader of a range goes this way: it opens one segment after the other, begins where the offset
index leads, continues after corrupt bytes where that is asked for, and lists the segments again
where one is gone.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kafkastore.errors import CorruptBatchError, CorruptionError, SegmentGoneError
from kafkastore.log.damage import Damage
from kafkastore.segment.log_file import LARGEST_READ, SMALLEST_READ, BatchRun, LogFile
from kafkastore.segment.log_segment import LogSegment

if TYPE_CHECKING:
    from kafkastore.formats.record_columns import RecordColumns
    from kafkastore.log.partition_log import PartitionLog

#: Up to so many offsets are read in small pieces.
SMALL_RANGE = 1000


class ScannedRun(NamedTuple):
    """Successive batches of a segment, and what is done at corrupt ones.

    `headers` may be some of the run's only.
    """

    segment: LogSegment
    run: BatchRun
    headers: NDArray[Any]
    damage: Damage

    def of(self, headers: NDArray[Any]) -> ScannedRun:
        """Return the same with other headers of the run."""
        return self._replace(headers=headers)

    def readable(self, headers: NDArray[Any]) -> NDArray[Any]:
        """Return the headers of batches before the one at which decoding stopped, if it did."""
        stopped_at = self.damage.stopped_at
        return headers if stopped_at is None else headers[headers["position"] < stopped_at]

    def decode(self, columns: RecordColumns) -> Iterator[bool]:
        """Decode the batches into columns; yield after each step whether the columns are full.

        Full columns have to be emptied. Raises `CorruptionError` if a batch's records break their
        format, and that is not skipped.
        """
        done = 0
        while done < len(self.headers):
            try:
                done = columns.append(
                    self.run.data, self.headers, done, position=self.run.position
                )
            except CorruptionError as error:
                done = int(np.searchsorted(self.headers["position"], error.position or 0))
                self.damage.skip_batch(error, self.segment, self.headers[done])
                done = len(self.headers) if self.damage.has_stopped else done + 1
            yield done < len(self.headers)

    def decoded(self, columns: RecordColumns) -> Iterator[tuple[int, dict[str, Any]]]:
        """Decode the batches into empty columns; yield their rows and buffers after each step."""
        for _ in self.decode(columns):
            rows, taken = columns.take()
            if rows:
                yield rows, taken


class RangeScan:
    """One scan of the batches between two offsets.

    Parameters
    ----------
    log : PartitionLog
        The partition; listed again where a segment is gone.
    start_offset, end_offset : int
        Inclusive, exclusive.
    damage : Damage, optional
        What is done at corrupt bytes. Default: they are raised.
    known_end_offset : int, optional
        Bytes at the log's end that are no whole batch, before this offset, are corrupt.

    Attributes
    ----------
    first_offset : int
        What to begin with in a segment. After a new listing above the start: compaction may have
        put what was read already into one segment with what was not.
    """

    def __init__(
        self,
        log: PartitionLog,
        start_offset: int,
        end_offset: int,
        damage: Damage | None = None,
        *,
        known_end_offset: int | None = None,
    ) -> None:
        self.first_offset = self._next_offset = start_offset
        self.damage = Damage() if damage is None else damage
        self._log, self._end_offset = log, end_offset
        self._known_end_offset = known_end_offset

    def runs(
        self,
        *,
        verify_crc: bool = False,
        few: bool = False,
        mapped: bool = False,
        room: Callable[[int], memoryview] | None = None,
        is_wanted: Callable[[LogSegment], bool] | None = None,
    ) -> Iterator[ScannedRun]:
        """Scan batches from the one that holds the start to the one that holds the end.

        The first ones, which the offset index leads to, may lie before the start. A scan of `few`
        records reads little first; so does one that begins within a segment. The segments are those
        that `is_wanted`; the other parameters are those of `LogFile.runs`.

        Raises `SegmentGoneError` if a segment is listed again and again but is not there, such as
        a link to nothing.
        """
        for segment, file in self._segments():
            if is_wanted is not None and not is_wanted(segment):
                continue
            position = segment.position_before(self.first_offset, file)
            is_small = few or position > 0 or self._end_offset - self.first_offset < SMALL_RANGE
            for run in self._runs_of(
                segment,
                file,
                position,
                verify_crc=verify_crc,
                first_read=SMALLEST_READ if is_small else LARGEST_READ,
                mapped=mapped,
                room=room,
            ):
                yield ScannedRun(segment, run, run.headers, self.damage)

    def _segments(self) -> Iterator[tuple[LogSegment, LogFile]]:
        """Yield each segment and its log, which is closed after its turn."""
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
                self.first_offset = max(self._next_offset, segment.base_offset)
                self._log.refresh()

    def _runs_of(
        self, segment: LogSegment, file: LogFile, position: int, **reading: Any
    ) -> Iterator[BatchRun]:
        """Scan a segment up to the end offset, past corrupt bytes if that is asked for."""
        # Not the start offset: the batch that holds it may begin before it, after corrupt bytes.
        next_offset = segment.base_offset
        while position < file.size:
            try:
                for run in file.runs(position, **reading):
                    yield run
                    position += len(run.data)
                    next_offset = int(run.headers["last_offset"][-1]) + 1
                    self._next_offset = max(self._next_offset, next_offset)
                    if self.damage.has_stopped or next_offset >= self._end_offset:
                        break
                break
            except CorruptionError as error:
                position = self.damage.skip_bytes(error, segment, file, next_offset)
        self._check_end(segment, file, position)

    def _check_end(self, segment: LogSegment, file: LogFile, position: int) -> None:
        """Treat bytes as corrupt that were cut short before an offset that is known."""
        known_end_offset = self._known_end_offset
        if known_end_offset is None or not segment.is_active or self.damage.has_stopped:
            return
        if self._next_offset < known_end_offset and position < file.size:
            reason = f"the last {file.size - position} bytes are no whole batch"
            error = CorruptBatchError(reason, path=segment.log_path, position=position)
            self.damage.skip_bytes(error, segment, file, self._next_offset)
