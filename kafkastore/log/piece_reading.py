"""Read logs into Arrow with several threads, as one thread reads them.

The rows and their order are the same.

Threads read pieces of logs; the caller gets them in order. A piece counts only if it
is free of errors, begins after the batches before it, and ends where the next one begins. Any other
is read again as one thread does, from the same byte on.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from kafkastore.errors import CorruptionError, KafkaStoreError
from kafkastore.formats.records.record_columns import BATCH_BYTES
from kafkastore.log.log_pieces import LogPiece, cut_log
from kafkastore.log.log_view import LogView
from kafkastore.log.parallel_map import ParallelMap, StopFlag
from kafkastore.log.range_scan import RangeScan, ScannedRun, ScanStart
from kafkastore.segment.log_file import BatchRun
from kafkastore.segment.log_segment import LogSegment

if TYPE_CHECKING:
    import pyarrow as pa

    from kafkastore.formats.records.record_columns import RecordColumns
    from kafkastore.formats.state.transactions import AbortedBatches

#: Logs of fewer bytes are read by the thread that takes the rows.
SMALL_LOG_BYTES = 2 * 1024 * 1024
#: Arrow bytes of a piece, and when reading a piece pauses until its rows are taken.
_PIECE_ARROW_BYTES = 2 * BATCH_BYTES
_MOST_ARROW_BYTES = 2 * _PIECE_ARROW_BYTES
#: Bytes of a log in a piece. Before the first one is read, its Arrow bytes are unknown.
_SMALLEST_PIECE, _FIRST_PIECE, _LARGEST_PIECE = 128 * 1024, 1024 * 1024, 8 * 1024 * 1024


class RowBuilder(Protocol):
    """Makes Arrow record batches of columns, for one thread at a time."""

    @property
    def columns(self) -> RecordColumns:
        """The columns to decode into."""

    def take(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows decoded so far."""


class PieceRows(NamedTuple):
    """The rows of a piece, or of its beginning; None if the piece does not count.

    `first_offset` is that of the first batch, `next_offset` follows the last one. `rest` is what
    was not read yet. With `is_end` the requested range ends in the piece.
    """

    piece: LogPiece
    batches: list[pa.RecordBatch] | None
    first_offset: int = 0
    next_offset: int = 0
    rest: ScanStart | None = None
    is_end: bool = False
    arrow_bytes: int = 0


class LogReading:
    """One read of a range of a log, by this thread or by several.

    `aborted` batches give no rows; `broken` is raised at the end. `builder` makes a `RowBuilder`
    for one thread. `reading` are the arguments of `LogFile.runs`, but for the room.
    """

    def __init__(
        self,
        log: LogView,
        scan: RangeScan,
        bounds: tuple[int, int],
        builder: Callable[[], RowBuilder],
        *,
        aborted: AbortedBatches | None,
        broken: CorruptionError | None,
        is_wanted: Callable[[LogSegment], bool] | None,
        few: bool,
        reading: dict[str, Any],
    ) -> None:
        self.few = few
        self._log, self._scan, self._reading = log, scan, reading
        self._start, self._end = bounds
        self._aborted, self._broken, self._is_wanted = aborted, broken, is_wanted
        self._builder = builder
        self._idle: list[RowBuilder] = []
        self._next_offset: int | None = None  # after the rows taken of a segment
        self._segment: LogSegment | None = None
        self._lost: LogSegment | None = None  # whose pieces begin at wrong bytes
        self._is_over = False
        self._log_bytes, self._arrow_bytes = 0, 0

    @property
    def is_small(self) -> bool:
        """Whether threads are not worth their start."""
        size = 0
        try:
            for segment in self._log.segments_between(self._start, self._end):
                size += segment.size
                if size >= SMALL_LOG_BYTES:
                    return self.few
        except (KafkaStoreError, OSError):
            pass
        return True

    def in_order(
        self, start: ScanStart | None = None, stop: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Read in this thread; from `start`, up to a byte position of its segment."""
        builder = self._builder()
        scan = self._scan
        runs = scan.runs(
            few=self.few,
            room=builder.columns.room,
            is_wanted=self._is_wanted,
            start=start,
            stop=stop,
            **self._reading,
        )
        try:
            for scanned in runs:
                headers = scanned.headers
                if scan.first_offset > self._start:
                    headers = headers[headers["last_offset"] >= scan.first_offset]
                for is_full in scanned.of(self._visible(headers)).decode(builder.columns):
                    if is_full:
                        yield from builder.take()
        except (KafkaStoreError, OSError):
            yield from builder.take()
            raise
        yield from builder.take()
        if start is None:
            self.end()

    def end(self) -> None:
        """Raise what is corrupt: after it, no offset is decided."""
        if self._broken is not None:
            raise self._broken

    def _visible(self, headers: Any) -> Any:
        """Return the headers of batches that are not aborted."""
        return headers if self._aborted is None else headers[~self._aborted.of(headers)]

    def pieces(self) -> Iterator[LogPiece]:
        """Divide what is left to read into pieces, as long as more is wanted."""
        segments = tuple(self._log.segments_between(self._scan.first_offset, self._end))
        for piece in cut_log(
            segments, self._scan.first_offset, self._end, self._piece_bytes, self._is_wanted
        ):
            if self._is_over:
                return
            if piece.segment is not self._lost:
                yield piece

    def _piece_bytes(self) -> int:
        if not self._log_bytes:
            return _FIRST_PIECE
        fitting = _PIECE_ARROW_BYTES * self._log_bytes // max(self._arrow_bytes, 1)
        return max(_SMALLEST_PIECE, min(fitting, _LARGEST_PIECE))

    def read_piece(self, piece: LogPiece, is_stopped: StopFlag) -> PieceRows:
        """Read a piece in any thread."""
        nothing = PieceRows(piece, None)
        if piece.start.file is None:
            return nothing
        builder = self._idle.pop() if self._idle else self._builder()
        try:
            with piece.start.file.copy(piece.end_position) as file:
                return self._read_file(piece, file, builder, is_stopped) or nothing
        except (KafkaStoreError, OSError):
            return nothing  # the builder may hold rows

    def _read_file(
        self, piece: LogPiece, file: Any, builder: RowBuilder, is_stopped: StopFlag
    ) -> PieceRows | None:
        """Read a piece of an open file that ends where the piece does."""
        start, end = piece.start, piece.end_position
        batches: list[pa.RecordBatch] = []
        size, rest, next_offset, is_end = 0, None, None, False
        scan = self._scan.of_piece(is_last=end is None)
        first_offset = None
        for scanned in scan.scan_from(start, file, room=builder.columns.room, **self._reading):
            if is_stopped() or self._is_over:
                return None
            run = scanned.run
            if first_offset is None:
                first_offset = int(run.headers["base_offset"][0])
                if first_offset < 0:  # a wrapper
                    first_offset = file.first_offset_at(start.position)
                    if first_offset is None:
                        return None
            if run.end_position == end and not self._is_followed(piece, run):
                return None
            for done in _decode(scanned, self._visible(run.headers), builder.columns):
                taken = list(builder.take())
                batches += taken
                size += sum(map(self._size, taken))
                if size >= _MOST_ARROW_BYTES:
                    rest = _after(start, run, done)
                    break
            if rest is not None:
                next_offset = rest.next_offset
                break
            next_offset = run.next_offset
        else:
            if first_offset is None or next_offset is None:
                return None
            is_end = next_offset >= self._end and self._is_last(piece.segment)
            if end is not None and run.end_position != end and not is_end:
                return None
        last = list(builder.take())
        size += sum(map(self._size, last))
        batches += last
        self._idle.append(builder)
        assert first_offset is not None
        assert next_offset is not None
        return PieceRows(piece, batches, first_offset, next_offset, rest, is_end, size)

    def _is_followed(self, piece: LogPiece, run: BatchRun) -> bool:
        """Return whether the bytes after a piece begin as a batch after its last one may."""
        file = piece.start.file
        if file is None or run.end_position >= file.size:
            return file is not None
        following = bytes(file.read(run.end_position, 8))
        return len(following) == 8 and (
            int.from_bytes(following, "big", signed=True) >= run.next_offset
        )

    def _size(self, batch: pa.RecordBatch) -> int:
        """Return the bytes that a batch occupies, without those of a mapped file."""
        if self._reading["mapped"]:
            return int(batch.num_rows) * 64
        return int(batch.get_total_buffer_size())

    def take(self, rows: PieceRows) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the next piece, or read it here if it does not count."""
        piece = rows.piece
        if self._is_over or piece.segment is self._lost:
            return
        if piece.segment is not self._segment:
            self._segment, self._next_offset = piece.segment, None
        start: ScanStart | None = piece.start
        if rows.batches is not None and (
            self._next_offset is None or rows.first_offset >= self._next_offset
        ):
            self._note(rows)
            rows.batches.reverse()
            while rows.batches:
                yield rows.batches.pop()  # its memory is reused
            self._next_offset, start = rows.next_offset, rows.rest
            self._scan.pass_to(rows.next_offset)
        if start is None:
            self._is_over = rows.is_end
            return
        if start.next_offset is None:
            start = start._replace(next_offset=self._next_offset)
        yield from self.in_order(start, piece.end_position)
        scan = self._scan
        if scan.damage.has_stopped or not (scan.is_at_stop or scan.is_after_segment):
            self._is_over = True
        elif scan.is_at_stop:
            self._next_offset = scan.next_offset
        else:
            self._lost = piece.segment

    def _is_last(self, segment: LogSegment) -> bool:
        following = segment.next_base_offset
        return following is None or following > self._end

    def _note(self, rows: PieceRows) -> None:
        """Remember how large rows are in Arrow."""
        if rows.piece.end_position is not None and rows.rest is None:
            self._log_bytes += rows.piece.end_position - rows.piece.start.position
            self._arrow_bytes += rows.arrow_bytes


def read_parallel(
    readings: Iterable[LogReading | Exception], threads: int
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of several reads, one after the other; an error at its turn.

    Readings are made when threads get to them.
    """
    stop = StopFlag()

    def items() -> Iterator[tuple[LogReading | Exception, LogPiece | None]]:
        for reading in readings:
            if isinstance(reading, LogReading):
                for piece in reading.pieces():
                    yield reading, piece
            yield reading, None

    def work(
        item: tuple[LogReading | Exception, LogPiece | None],
    ) -> tuple[LogReading | Exception, PieceRows | None]:
        reading, piece = item
        if piece is None or isinstance(reading, Exception):
            return reading, None
        return reading, reading.read_piece(piece, stop)

    # Not in a `with` block: the garbage collector may end this generator, and must not wait.
    found = ParallelMap(work, items(), threads, "kafkastore-read", stop=stop, queued=1)
    try:
        for reading, rows in found:
            if isinstance(reading, Exception):
                raise reading
            if rows is None:
                reading.end()
            else:
                yield from reading.take(rows)
    except (KafkaStoreError, OSError):
        found.close()
        raise


def _decode(scanned: ScannedRun, headers: Any, columns: RecordColumns) -> Iterator[int]:
    """Decode batches; yield the position of the next one whenever columns are full."""
    done = 0
    while done < len(headers):
        done = columns.append(
            scanned.run.data,
            headers,
            done,
            position=scanned.run.position,
            smallest_offset=scanned.run.smallest_offset,
        )
        if done < len(headers):
            yield int(headers["position"][done])


def _after(start: ScanStart, run: BatchRun, position: int) -> ScanStart:
    """Return where a scan continues within a run, at a batch's position."""
    count = int(np.searchsorted(run.headers["position"], position))
    next_offset = int(run.headers["last_offset"][count - 1]) + 1 if count else run.smallest_offset
    return start._replace(position=position, next_offset=next_offset)
