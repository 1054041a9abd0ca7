"""Scan the batches between two offsets; a broker may be running meanwhile.

Every reader of a range uses this scan: it opens one segment after the other, starts at the position
from the offset index, skips corrupt bytes if requested, and lists the segments again if one is
gone.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator
from os import PathLike
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kafkastore.arguments import INT64_MAX
from kafkastore.errors import CorruptBatchError, CorruptionError, SegmentGoneError
from kafkastore.formats.records.record_batch import RecordBatch
from kafkastore.log.damage import CorruptionHandler
from kafkastore.log.log_view import LogView
from kafkastore.segment.log_file import (
    LARGEST_READ,
    SMALLEST_READ,
    BatchRun,
    DecodedRun,
    LogFile,
)
from kafkastore.segment.log_segment import LogSegment
from kafkastore.segment.wrapped_offsets import decode_error

if TYPE_CHECKING:
    from kafkastore.formats.records.record_columns import RecordColumns
    from kafkastore.formats.state.aborted_batches import AbortedBatches

#: Ranges of fewer offsets are read in small pieces.
SMALL_RANGE = 1000
#: Bytes of usual batches that are read at once: they stay in any core's own cache until they are
#: decoded.
USUAL_READ = 128 * 1024


def first_offset_since(segment: LogSegment, timestamp: int, start_offset: int) -> int | None:
    """Return a segment's first offset to read; None if no record reaches a timestamp.

    Before it no record has at least this timestamp (ms), if the time index is true. Without a
    trusted index it is where the segment begins, but at least `start_offset`.
    """
    everything = max(segment.base_offset, start_offset)
    try:
        largest = segment.largest_timestamp_by_index
        if largest is None:
            return everything
        if largest < timestamp:
            return None
        found = segment.find_offset_by_timestamp(timestamp, start_offset, "trust")
    except CorruptionError:
        return everything  # the read reports the error
    return None if found is None else found.offset


class ScanStart(NamedTuple):
    """Where a scan begins: at a byte position in the first of some segments.

    `file` is its open log; without one the scan opens it, and finds the position itself.
    `next_offset` follows the batches before the position, if they were scanned.
    """

    segments: tuple[LogSegment, ...]
    file: LogFile | None = None
    position: int = 0
    next_offset: int | None = None

    @property
    def segment(self) -> LogSegment:
        """The segment with the position."""
        return self.segments[0]


class ScannedRun(NamedTuple):
    """Successive batches of a segment, and how to handle corrupt ones.

    `headers` may be a subset of the run's headers.
    """

    segment: LogSegment
    run: BatchRun
    headers: NDArray[Any]
    damage: CorruptionHandler

    def of(self, headers: NDArray[Any]) -> ScannedRun:
        """Return a copy with other headers of the run."""
        return self._replace(headers=headers)

    def readable(self, headers: NDArray[Any]) -> NDArray[Any]:
        """Return the headers of the batches before the one at which decoding stopped."""
        stopped_at = self.damage.stopped_at
        return headers if stopped_at is None else headers[headers["position"] < stopped_at]

    def decode(self, columns: RecordColumns) -> Iterator[int]:
        """Decode batches into columns; yield after each step how many are decoded.

        Before the last one the columns are full, and the caller empties them. A batch with invalid
        records raises `CorruptionError`, unless it is skipped.
        """
        done = 0
        while done < len(self.headers):
            try:
                done = columns.append(
                    self.run.data,
                    self.headers,
                    done,
                    position=self.run.position,
                    smallest_offset=self.run.smallest_offset,
                )
            except CorruptionError as error:
                done = int(np.searchsorted(self.headers["position"], error.position or 0))
                reason = self._decode_error(done, columns.max_decompressed_bytes) or error
                self.damage.skip_batch(reason, self.segment, self.headers[done])
                done = len(self.headers) if self.damage.has_stopped else done + 1
            yield done

    def _decode_error(self, slot: int, max_decompressed_bytes: int) -> CorruptionError | None:
        """Return the error of a batch as those who read records one by one raise it."""
        position = int(self.headers["position"][slot])
        at = int(np.searchsorted(self.run.headers["position"], position))
        before = self.run.headers["last_offset"][at - 1] + 1 if at else self.run.smallest_offset
        batch = RecordBatch(self.run.batch(at), position)
        return decode_error(batch, int(before), max_decompressed_bytes)

    def decoded(self, columns: RecordColumns) -> Iterator[tuple[int, dict[str, Any]]]:
        """Decode batches into empty columns; yield rows and buffers after each step."""
        for _ in self.decode(columns):
            rows, taken = columns.take()
            if rows:
                yield rows, taken


class RangeScan:
    """A scan of the batches from `start_offset` to `end_offset`, exclusive.

    An incomplete batch before `known_end_offset` is corrupt. A new listing raises `first_offset`,
    where scans begin, as compaction may have merged batches already read with others. A scan up to
    a byte position ends there (`is_at_stop`) if a batch begins there, otherwise after the segment,
    or, after a new listing, at the end of the log. `next_offset` follows the last batch.
    """

    def __init__(
        self,
        log: LogView,
        start_offset: int,
        end_offset: int,
        damage: CorruptionHandler | None = None,
        *,
        known_end_offset: int | None = None,
    ) -> None:
        self.first_offset = self._next_offset = start_offset
        self.damage = CorruptionHandler() if damage is None else damage
        self.is_at_stop = self.is_after_segment = False
        self.next_offset: int | None = None
        self._log, self._start_offset, self._end_offset = log, start_offset, end_offset
        self._known_end_offset = known_end_offset
        self._stop: int | None = None

    def pass_to(self, next_offset: int) -> None:
        """Note that the batches before an offset have been read, by other scans."""
        self._next_offset = max(self._next_offset, next_offset)

    def runs(
        self,
        *,
        verify_crc: bool = False,
        decodes: bool = False,
        few: bool = False,
        start: ScanStart | None = None,
        stop: int | None = None,
    ) -> Iterator[ScannedRun]:
        """Scan batches from the one with the start to the one with the end.

        Reads begin small for a `few` records; `start` is where to continue, up to the byte `stop`;
        the rest is as for `LogFile.runs`.
        """
        for segment, run in self._steps(
            few=few, start=start, stop=stop, verify_crc=verify_crc, decodes=decodes
        ):
            assert isinstance(run, BatchRun)
            yield ScannedRun(segment, run, run.headers, self.damage)

    def decode(
        self,
        columns: RecordColumns,
        *,
        aborted: AbortedBatches | None = None,
        few: bool = False,
        is_wanted: Callable[[LogSegment], bool] | None = None,
        start: ScanStart | None = None,
        stop: int | None = None,
        **reading: Any,
    ) -> Iterator[DecodedRun]:
        """Decode the same batches into columns, which the caller empties at a pause.

        `aborted` batches give no rows; `is_wanted` selects segments; `start` is where to continue,
        up to the byte `stop`; the rest is as for `runs`.
        """
        if not reading.get("mapped"):
            reading.update(columns=columns, aborted=aborted)
        for segment, run in self._steps(
            few=few, is_wanted=is_wanted, start=start, stop=stop, **reading
        ):
            if isinstance(run, DecodedRun):
                yield run
            else:
                yield from self._decode_run(segment, run, columns, aborted)

    def _decode_run(
        self,
        segment: LogSegment,
        run: BatchRun,
        columns: RecordColumns,
        aborted: AbortedBatches | None,
    ) -> Iterator[DecodedRun]:
        """Decode the batches of a run."""
        headers = run.headers
        # Not those after the end: of a wrapper only the messages say where it begins.
        within = int(np.searchsorted(headers["last_offset"], self._end_offset - 1)) + 1
        headers = headers[: within if run.smallest_offset < self._end_offset else 0]
        if self.first_offset > self._start_offset:
            headers = headers[headers["last_offset"] >= self.first_offset]
        if aborted is not None:
            headers = headers[~aborted.of(headers)]
        for done in ScannedRun(segment, run, headers, self.damage).decode(columns):
            if done < len(headers):
                count = int(np.searchsorted(run.headers["position"], headers["position"][done]))
                before = run.first(count) if count else run
                position = before.end_position if count else run.position
                next_offset = before.next_offset if count else run.smallest_offset
                yield DecodedRun(position, next_offset, is_paused=True)
        yield DecodedRun(run.end_position, run.next_offset, is_paused=False)

    def _steps(
        self,
        *,
        few: bool = False,
        is_wanted: Callable[[LogSegment], bool] | None = None,
        start: ScanStart | None = None,
        stop: int | None = None,
        **reading: Any,
    ) -> Iterator[tuple[LogSegment, BatchRun | DecodedRun]]:
        """Scan batches; with `columns`, decode those that are usual."""
        gone: str | PathLike[str] | None = None
        segment: LogSegment | None = None
        self.is_at_stop = self.is_after_segment = False
        self._stop = stop
        while True:
            try:
                if start is None:
                    segments = self._log.segments_between(self.first_offset, self._end_offset)
                else:
                    segments = iter(start.segments)
                    if start.file is not None:
                        segment = next(segments)
                        yield from self._runs_of(
                            segment, start.file, start.position,
                            next_offset=start.next_offset, **reading,
                        )
                        if self.damage.has_stopped or self.is_at_stop:
                            return
                        if stop is not None:
                            self.is_after_segment = True
                            return
                for segment in segments:
                    with segment.open_log() as file:
                        if is_wanted is None or is_wanted(segment):
                            yield from self._scan(segment, file, few=few, **reading)
                    if self.damage.has_stopped:
                        return
                return
            except SegmentGoneError as error:
                if error.path == gone or segment is None:
                    raise
                gone = error.path
                self.first_offset = max(self._next_offset, segment.base_offset)
                self._log.refresh()
                start = self._stop = None

    def _scan(
        self, segment: LogSegment, file: LogFile, *, few: bool, **reading: Any
    ) -> Iterator[tuple[LogSegment, BatchRun | DecodedRun]]:
        """Scan a segment from the start offset, or its own start, on."""
        position = segment.position_before(self.first_offset, file)
        is_small = few or position > 0 or self._end_offset - self.first_offset < SMALL_RANGE
        first_read = SMALLEST_READ if is_small else LARGEST_READ
        yield from self._runs_of(segment, file, position, first_read=first_read, **reading)

    def _runs_of(
        self,
        segment: LogSegment,
        file: LogFile,
        position: int,
        *,
        next_offset: int | None = None,
        **reading: Any,
    ) -> Iterator[tuple[LogSegment, BatchRun | DecodedRun]]:
        """Scan a segment up to the end offset; skip corrupt bytes if requested."""
        before = next_offset
        # Not the start offset: after corrupt bytes, the batch that contains it may begin before it.
        next_offset = segment.base_offset if next_offset is None else next_offset
        # Of a whole segment, bytes after the last batch are read too: they may be records that
        # belong to the next one, or after the largest offset.
        following = segment.next_base_offset
        ends = INT64_MAX if following is None else following
        is_whole = ends <= self._end_offset
        end_offset = INT64_MAX if is_whole else self._end_offset
        while position < file.size:
            try:
                for scanned in self._file_runs(file, position, before, end_offset, **reading):
                    run = self._up_to_stop(scanned)
                    yield segment, run
                    position, next_offset = run.end_position, run.next_offset
                    self._next_offset = max(self._next_offset, next_offset)
                    self.next_offset = next_offset
                    is_done = next_offset >= self._end_offset and not is_whole
                    if self.damage.has_stopped or is_done:
                        break
                    if self.is_at_stop:
                        return
                break
            except CorruptionError as error:
                position = self.damage.skip_bytes(error, segment, file, next_offset)
                before = None
        self._check_end(segment, file, position)

    def _file_runs(
        self,
        file: LogFile,
        position: int,
        next_offset: int | None,
        end_offset: int,
        *,
        columns: RecordColumns | None = None,
        aborted: AbortedBatches | None = None,
        first_read: int = LARGEST_READ,
        **reading: Any,
    ) -> Iterator[BatchRun | DecodedRun]:
        """Scan a file from a position on; with `columns`, decode usual batches at once."""
        if columns is None or self.first_offset > self._start_offset:
            yield from file.runs(
                position, next_offset=next_offset, first_read=first_read, **reading
            )
            return
        read_size = min(first_read, USUAL_READ)
        while position < file.size:
            is_usual = False
            while (
                decoded := file.decode_usual(
                    columns,
                    position,
                    next_offset=next_offset,
                    end_position=self._stop,
                    end_offset=end_offset,
                    aborted=aborted,
                    verify_crc=reading["verify_crc"],
                    decodes=reading["decodes"],
                    read_size=read_size,
                )
            ) is not None:
                yield decoded
                is_usual, read_size = True, min(4 * read_size, USUAL_READ)
                position, next_offset = decoded.end_position, decoded.next_offset
            looked_at = read_size if is_usual else first_read
            for run in file.runs(
                position, next_offset=next_offset, first_read=looked_at, **reading
            ):
                yield run
                position, next_offset = run.end_position, run.next_offset
                if is_usual:
                    break  # those after it may be usual again
            else:
                return

    def _up_to_stop(self, run: BatchRun | DecodedRun) -> BatchRun | DecodedRun:
        """Return the batches of a run before the stop, if a batch ends there."""
        if isinstance(run, DecodedRun):
            self.is_at_stop = run.end_position == self._stop
            return run
        if self._stop is None or run.end_position < self._stop:
            return run
        count = int(np.searchsorted(run.headers["position"], self._stop))
        if count == 0 or run.first(count).end_position != self._stop:
            self._stop = None
            return run
        self.is_at_stop = True
        return run.first(count)

    def _check_end(self, segment: LogSegment, file: LogFile, position: int) -> None:
        """Treat an incomplete batch before the known end offset as corrupt."""
        known_end_offset = self._known_end_offset
        if known_end_offset is None or not segment.is_active or self.damage.has_stopped:
            return
        # What follows the end offset is not read, whole or not.
        if self._next_offset < min(known_end_offset, self._end_offset) and position < file.size:
            reason = f"the last {file.size - position} bytes are not a complete batch"
            error = CorruptBatchError(reason, path=segment.log_path, position=position)
            self.damage.skip_bytes(error, segment, file, self._next_offset)
