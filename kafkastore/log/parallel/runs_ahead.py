"""Scan a segment's batches with several threads, as one thread scans them.

Threads scan pieces that begin where the offset index says that a batch begins. A piece counts only
if the batches before it end there. From the first one that does not count, or that has a batch
which needs a closer look, the segment is scanned by the thread that takes the batches.
"""
from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

from kafkastore.errors import CorruptionError
from kafkastore.log.parallel.log_pieces import indexed_batch
from kafkastore.log.parallel.parallel_map import ParallelMap
from kafkastore.reads import is_remote
from kafkastore.segment.log_file import BatchRun, LogFile, ReusedMemory
from kafkastore.segment.log_segment import LogSegment

#: Bytes of a piece, which are read at once; a log of fewer than two pieces starts no thread.
PIECE_BYTES = 4 * 1024 * 1024
#: Between index entries that are farther apart, one thread scans.
_LARGEST_PIECE_BYTES = 2 * PIECE_BYTES


class _ScannedPiece(NamedTuple):
    start: int
    end: int


def runs_ahead(
    segment: LogSegment, file: LogFile, position: int, threads: int
) -> Iterator[BatchRun]:
    """Yield what ``file.runs`` yields from a position on, and raise what it raises."""
    if threads > 1 and file.size - position >= 2 * PIECE_BYTES and not is_remote(file.descriptor):
        rooms: deque[ReusedMemory] = deque()
        # Threads may still read when the caller has closed its file.
        scanned = ParallelMap(
            partial(_scan, file.copy(), rooms),
            _pieces(segment, file, position),
            threads,
            "kafkastore-scan",
            queued=1,
        )
        for runs, memory in scanned:
            for run in runs:
                if run.position != position:
                    break
                yield run
                position = run.end_position
            else:
                rooms.append(memory)
                continue
            break
        scanned.close()
    yield from file.runs(position, verify_crc=True)


def _pieces(segment: LogSegment, file: LogFile, position: int) -> Iterator[_ScannedPiece]:
    """Divide a log from a batch on, at index entries; the caller scans what is left."""
    while True:
        limit = min(position + _LARGEST_PIECE_BYTES, file.size)
        found = indexed_batch(segment, position + PIECE_BYTES, limit)
        if found is None:
            return
        yield _ScannedPiece(position, found.position)
        position = found.position


def _scan(
    file: LogFile, rooms: deque[ReusedMemory], piece: _ScannedPiece
) -> tuple[list[BatchRun], ReusedMemory]:
    """Scan a piece up to its end, or to the first bytes that are not a batch."""
    size = piece.end - piece.start
    try:
        memory = rooms.pop()
    except IndexError:
        memory = ReusedMemory()
    free = memory.room(size)

    def next_room(wanted: int) -> memoryview:
        nonlocal free
        taken, free = free[:wanted], free[wanted:]
        return taken if len(taken) == wanted else memoryview(bytearray(wanted))

    runs: list[BatchRun] = []
    try:
        for run in file.up_to(piece.end).runs(
            piece.start, verify_crc=True, first_read=size, room=next_room
        ):
            runs.append(run._replace(headers=run.headers.copy()))
    except CorruptionError:
        pass  # the caller finds it again, and raises it
    return runs, memory
