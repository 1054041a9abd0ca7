"""Read logs into Arrow with several threads, as one thread reads them.

The rows and their order are the same.

Threads decode pieces of logs; the caller gets their rows in order. A piece counts only if it begins
after the batches before it, and up to the first batch that needs a closer look. From there on it is
read as one thread does.
"""
from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from itertools import count
from threading import Thread
from typing import TYPE_CHECKING, Any

from kafkastore.arguments import INT64_MAX
from kafkastore.errors import CorruptionError, KafkaStoreError
from kafkastore.formats.records.record_columns import BATCH_BYTES
from kafkastore.log.log_view import LogView
from kafkastore.log.parallel.log_pieces import LogPiece, cut_log
from kafkastore.log.range_scan import USUAL_READ, RangeScan, ScanStart
from kafkastore.segment.decoding.piece_decoder import PieceDecoder
from kafkastore.segment.log_segment import LogSegment

if TYPE_CHECKING:
    import pyarrow as pa

    from kafkastore.formats.records.record_columns import RecordColumns
    from kafkastore.formats.state.aborted_batches import AbortedBatches

#: Logs of fewer bytes are read by the thread that takes the rows.
SMALL_LOG_BYTES = 2 * 1024 * 1024
#: Arrow bytes of a piece.
_PIECE_ARROW_BYTES = 2 * BATCH_BYTES
#: Pieces that are found before their turn, beyond one for each thread; columns, to be filled and
#: taken, for each thread and in addition.
_MORE_PIECES, _THREAD_COLUMNS, _MORE_COLUMNS = 2, 2, 4
#: About the bytes of a row without key and value.
_ROW_BYTES = 48
#: Bytes of a log in a piece. Before the first one is read, its Arrow bytes are unknown.
_SMALLEST_PIECE, _FIRST_PIECE, _LARGEST_PIECE = 128 * 1024, 1024 * 1024, 8 * 1024 * 1024


class LogReading:
    """One read of a range of a log, by this thread or by several.

    `aborted` batches give no rows; `broken` is raised at the end. `columns` makes columns to decode
    into, and `take` empties them. `reading` are arguments of `LogFile.runs`.
    """

    def __init__(
        self,
        log: LogView,
        scan: RangeScan,
        bounds: tuple[int, int],
        columns: Callable[[], RecordColumns],
        take: Callable[[RecordColumns], list[pa.RecordBatch]],
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
        self._new_columns, self._take = columns, take
        self._columns: RecordColumns | None = None
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
        columns = self._columns = self._columns or self._new_columns()
        runs = self._scan.decode(
            columns,
            aborted=self._aborted,
            few=self.few,
            is_wanted=self._is_wanted,
            start=start,
            stop=stop,
            **self._reading,
        )
        try:
            for run in runs:
                if run.is_paused:
                    yield from self._take(columns)
        except (KafkaStoreError, OSError):
            yield from self._take(columns)
            raise
        yield from self._take(columns)
        if start is None:
            self.end()

    def end(self) -> None:
        """Raise what is corrupt: after it, no offset is decided."""
        if self._broken is not None:
            raise self._broken

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

    def add_to(self, decoder: PieceDecoder, piece: LogPiece) -> bool:
        """Let threads decode a piece; return whether to start another one."""
        file = piece.start.file
        assert file is not None
        return file.add_piece(
            decoder,
            piece.start.position,
            end_position=piece.end_position,
            offsets=(self._start, self._end),
            end_offset=self._end if self._is_last(piece.segment) else INT64_MAX,
            aborted=self._aborted,
            verify_crc=self._reading["verify_crc"],
            decodes=self._reading["decodes"],
            read_size=USUAL_READ,
        )

    def is_decodable(self, piece: LogPiece) -> bool:
        """Return whether threads can decode a piece without Python."""
        return piece.start.file is not None and not self._reading["mapped"]

    def take(self, piece: LogPiece, decoder: PieceDecoder | None) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the next piece: as the decoder finds them, or read here."""
        if piece.segment is not self._segment:
            self._segment, self._next_offset = piece.segment, None
        start: ScanStart | None = piece.start
        if decoder is not None:
            start = yield from self._take_decoded(piece, decoder)
        if start is None or self._is_over or piece.segment is self._lost:
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

    def _take_decoded(
        self, piece: LogPiece, decoder: PieceDecoder
    ) -> Generator[pa.RecordBatch, None, ScanStart | None]:
        """Yield the decoded rows of a piece; return what is left of it."""
        counts: bool | None = None
        size = 0
        while True:
            found = decoder.next(self._take_sized if counts is not False else _drop)
            if counts is None:
                counts = not self._is_over and piece.segment is not self._lost and (
                    self._next_offset is None or decoder.first_offset >= self._next_offset
                )
            if found is None:
                break
            if counts:
                batches, taken = found
                size += taken
                batches.reverse()
                while batches:
                    yield batches.pop()  # its memory is reused
        position, next_offset = decoder.end_first()
        if not counts:
            return piece.start
        if position > piece.start.position:
            self._next_offset = next_offset
            self._scan.pass_to(next_offset)
        if position == piece.end_position:
            self._log_bytes += position - piece.start.position
            self._arrow_bytes += size
            return None
        if next_offset >= self._end and self._is_last(piece.segment):
            self._is_over = True
        return piece.start._replace(position=position, next_offset=self._next_offset)

    def _take_sized(self, columns: RecordColumns) -> tuple[list[pa.RecordBatch], int]:
        """Return rows, and about how many bytes they take."""
        size = columns.rows * _ROW_BYTES + columns.bytes_bound
        return self._take(columns), size

    def _is_last(self, segment: LogSegment) -> bool:
        following = segment.next_base_offset
        return following is None or following > self._end


def read_parallel(
    readings: Iterable[LogReading | Exception],
    threads: int,
    columns: Callable[[], RecordColumns],
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of several reads, one after the other; an error at its turn.

    Readings are made when threads get to them. `columns` makes columns for any of them.
    """
    most_pieces = threads + _MORE_PIECES
    all_columns = [columns() for _ in range(_THREAD_COLUMNS * threads + _MORE_COLUMNS)]
    decoder = PieceDecoder(all_columns, threads=threads, most_pieces=most_pieces)
    decoding = DecodingThreads(decoder)
    found: Iterator[tuple[LogReading | Exception, LogPiece | None]] = _pieces_of(readings)
    waiting: deque[tuple[LogReading | Exception, LogPiece | None]] = deque()
    try:
        while True:
            while len(waiting) < most_pieces and (item := next(found, None)) is not None:
                reading, piece = item
                waiting.append(item)
                if (
                    isinstance(reading, LogReading)
                    and piece is not None
                    and reading.is_decodable(piece)
                ):
                    decoding.add(reading, piece)
            if not waiting:
                break
            decoding.check_process()
            reading, piece = waiting.popleft()
            if isinstance(reading, Exception):
                raise reading
            if piece is None:
                reading.end()
            else:
                yield from reading.take(piece, decoder if reading.is_decodable(piece) else None)
    except Exception:
        decoding.end()
        raise
    decoding.end()


class DecodingThreads:
    """Threads that decode pieces of logs, and the owner, who takes the rows.

    Dropped, it stops them without waiting: the garbage collector may do that.
    """

    def __init__(self, decoder: PieceDecoder) -> None:
        self.decoder = decoder
        self._names = map("kafkastore-read_{}".format, count())
        self._started: list[Thread] = []
        self._process = os.getpid()

    def add(self, reading: LogReading, piece: LogPiece) -> None:
        """Let threads decode a piece."""
        if reading.add_to(self.decoder, piece):
            self._started = [each for each in self._started if each.is_alive()]
            self._started.append(Thread(target=self.decoder.work, name=next(self._names)))
            self._started[-1].start()

    def check_process(self) -> None:
        """Raise if this is a child of the process that started the threads."""
        if os.getpid() != self._process:
            raise RuntimeError(
                "this read began before the process was forked, and its threads are in the "
                "parent process; start it again"
            )

    def end(self) -> None:
        """End the threads, and wait for them."""
        self.decoder.stop()
        if os.getpid() == self._process:
            self.decoder.wake()
            for thread in self._started:
                thread.join()

    def __del__(self) -> None:
        self.decoder.stop()  # must not wait: see the class


def _pieces_of(
    readings: Iterable[LogReading | Exception],
) -> Iterator[tuple[LogReading | Exception, LogPiece | None]]:
    """Yield the pieces of all reads; None, or an error, at the end of each."""
    for reading in readings:
        if isinstance(reading, LogReading):
            for piece in reading.pieces():
                yield reading, piece
        yield reading, None


def _drop(columns: RecordColumns) -> tuple[list[pa.RecordBatch], int]:
    columns.take()
    return [], 0
