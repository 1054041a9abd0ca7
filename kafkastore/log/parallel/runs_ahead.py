"""Scan a segment's batches with several threads, as one thread scans them.

Threads scan pieces that begin where the offset index says that a batch begins. A piece counts only
if the batches before it end there. From the first one that does not count, or that is not scanned
up to its end, the segment is scanned by the thread that takes the batches.
"""
from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kafkastore.arguments import INT64_MIN
from kafkastore.formats.records.batch_header import BATCH_HEADER
from kafkastore.log.parallel.log_pieces import indexed_batch
from kafkastore.log.parallel.parallel_map import IDLE_SECONDS, ParallelMap
from kafkastore.reads import is_remote
from kafkastore.segment.decoding.header_scan import scan_file
from kafkastore.segment.log_file import HEADERS_A_SCAN, BatchRun, LogFile, ReusedMemory
from kafkastore.segment.log_segment import LogSegment
from kafkastore.segment.wrapped_offsets import WrongWrapper, find_wrong_wrappers

#: Bytes of a piece; a log of fewer than two pieces is not divided.
PIECE_BYTES = 8 * 1024 * 1024
#: Between index entries that are farther apart, one thread scans.
_LARGEST_PIECE_BYTES = 2 * PIECE_BYTES
#: Bytes that are read at once: they are checked while they are in the core's own cache.
_READ = 256 * 1024


class HeaderRun(NamedTuple):
    """Successive batches whose bytes are not kept.

    `headers` are valid until the next piece. `wrong` are the wrong wrappers after the first batch.
    """

    file: LogFile
    headers: NDArray[Any]
    wrong: list[WrongWrapper]

    def batch(self, index: int) -> memoryview:
        """Read the bytes of one batch."""
        header = self.headers[index]
        return self.file.read(int(header["position"]), int(header["size"]))

    def wrong_wrappers(self, next_offset: int) -> Iterator[WrongWrapper]:
        """Yield the wrappers with a wrong offset; `next_offset` follows the batch before."""
        yield from find_wrong_wrappers(self.batch, self.headers[:1], next_offset)
        yield from self.wrong


class _Piece(NamedTuple):
    start: int
    end: int


class _Room:
    """What a piece is scanned with; it is used for many, one after the other."""

    def __init__(self) -> None:
        self.bytes = ReusedMemory()
        self.headers: list[NDArray[Any]] = []


class _ScannedPiece(NamedTuple):
    end: int
    position: int  # up to which it was scanned
    runs: list[HeaderRun]
    room: _Room


def runs_ahead(
    segment: LogSegment, file: LogFile, position: int, threads: int
) -> Iterator[BatchRun | HeaderRun]:
    """Yield the batches of ``file.runs`` from a position on; raise what it raises."""
    if threads > 1 and file.size - position >= 2 * PIECE_BYTES and not is_remote(file.descriptor):
        rooms: deque[_Room] = deque()
        scanned = ParallelMap(
            # Threads may still read when the caller has closed its file.
            partial(_scan, file.copy(), rooms),
            _pieces(segment, file, position),
            threads,
            "kafkastore-scan",
            owner_helps=True,
            idle_seconds=IDLE_SECONDS,
        )
        for found in scanned.helped():
            yield from found.runs
            position = found.position
            rooms.append(found.room)
            if position != found.end:
                break
        scanned.close()
    yield from file.runs(position, verify_crc=True)


def _pieces(segment: LogSegment, file: LogFile, position: int) -> Iterator[_Piece]:
    """Divide a log from a batch on, at index entries; the caller scans what is left."""
    while position < file.size:
        limit = min(position + _LARGEST_PIECE_BYTES, file.size)
        found = indexed_batch(segment, position + PIECE_BYTES, limit)
        end = file.size if found is None else found.position
        if end > position + _LARGEST_PIECE_BYTES:
            return
        yield _Piece(position, end)
        position = end


def _scan(file: LogFile, rooms: deque[_Room], piece: _Piece) -> _ScannedPiece:
    """Scan a piece up to its end, or to the first bytes that are not a batch."""
    try:
        room = rooms.pop()
    except IndexError:
        room = _Room()
    position, wanted, count = piece.start, _READ, -1
    runs: list[HeaderRun] = []
    while wanted or count == HEADERS_A_SCAN:
        if len(runs) == len(room.headers):
            room.headers.append(np.empty(HEADERS_A_SCAN, BATCH_HEADER))
        headers = room.headers[len(runs)]
        memory = room.bytes.room(max(wanted, _READ))
        count, position, wanted = scan_file(
            file.descriptor, position, piece.end, memory, headers
        )
        if count:
            run = HeaderRun(file, headers[:count], [])
            wrong = find_wrong_wrappers(run.batch, run.headers, INT64_MIN)
            runs.append(run._replace(wrong=[each for each in wrong if each.slot]))
    return _ScannedPiece(piece.end, position, runs, room)
