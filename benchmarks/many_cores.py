"""Simulate how long `to_arrow` takes with many cores, from what each piece costs on one.

usage:  many_cores.py LOG_DIRECTORY_OR_PARTITION [CORES ...]

Each piece of the first partition is read once, alone: its costs are the time that needs the
interpreter's lock, and the time that does not. Then threads take the pieces in order, as
`ParallelMap` gives them out, and wait for the lock. Memory bandwidth is not simulated: the last
line says how many bytes a second the result moves.
"""
from __future__ import annotations

import heapq
import sys
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import kafkastore
from kafkastore.formats.records import batch_header
from kafkastore.log import piece_reading
from kafkastore.log.parallel_map import StopFlag
from kafkastore.log.record_reading import _open
from kafkastore.log.records_as_arrow import ArrowOptions
from kafkastore.segment.log_file import LogFile

#: As `read_parallel` has it: results that wait, and the one that is taken.
_QUEUED = 1


class Cost(NamedTuple):
    """The seconds of one piece: planned and taken by the owner, decoded by a thread."""

    owner: float
    locked: float
    free: float
    log_bytes: int
    arrow_bytes: int


class _Clock:
    """Adds up the time in compiled code, which runs without the lock."""

    def __init__(self) -> None:
        self.free = 0.0

    def timed(self, function: Any) -> Any:
        def call(*arguments: Any, **named: Any) -> Any:
            begun = time.thread_time()
            try:
                return function(*arguments, **named)
            finally:
                self.free += time.thread_time() - begun

        return call


class _TimedColumns:
    """`RecordColumns` whose decoding is timed."""

    def __init__(self, columns: Any, clock: _Clock) -> None:
        self.append, self.room, self.take = clock.timed(columns.append), columns.room, columns.take


def costs_of(path: str) -> list[Cost]:
    """Read every piece of the first partition, one after the other."""
    log = next(iter(kafkastore.open(path)))
    clock = _Clock()
    batch_header.scan = clock.timed(batch_header.scan)
    LogFile._read_into = clock.timed(LogFile._read_into)
    reading = _open(log, ArrowOptions())
    make = reading._builder

    def timed_builder() -> Any:
        builder = make()
        builder.columns = _TimedColumns(builder.columns, clock)
        return builder

    reading._builder = timed_builder
    stop, found = StopFlag(), []
    pieces = reading.pieces()
    while True:
        begun = time.thread_time()
        piece = next(pieces, None)
        if piece is None:
            return found
        planned, clock.free = time.thread_time(), 0.0
        rows = reading.read_piece(piece, stop)
        decoded = time.thread_time()
        arrow_bytes = 0
        for batch in reading.take(rows):
            arrow_bytes += batch.nbytes
        done = time.thread_time()
        end = piece.end_position or piece.start.file.size
        found.append(
            Cost(
                planned - begun + done - decoded,
                decoded - planned - clock.free,
                clock.free,
                end - piece.start.position,
                arrow_bytes,
            )
        )


def simulate(costs: Sequence[Cost], cores: int, *, has_lock: bool) -> float:
    """Return the seconds until all rows are taken.

    A piece needs the lock before and after its free time, in halves.
    """
    if cores == 1:
        return sum(each.owner + each.locked + each.free for each in costs)
    threads = [0.0] * cores
    lock = owner = 0.0
    waiting: list[float] = []
    for cost in costs:
        if len(waiting) > _QUEUED * cores:
            owner = max(owner, waiting.pop(0))
        if has_lock:
            lock = owner = max(owner, lock) + cost.owner
        else:
            owner += cost.owner
        begun = max(heapq.heappop(threads), owner)
        if has_lock:
            lock = max(lock, begun) + cost.locked
            begun = lock + cost.free
        else:
            begun += cost.locked + cost.free
        heapq.heappush(threads, begun)
        waiting.append(begun)
    return max([owner, *waiting, *threads])


def main() -> None:
    """Print a table."""
    path, *numbers = sys.argv[1:]
    costs = min(
        (costs_of(path) for _ in range(3)), key=lambda each: sum(map(sum, each))
    )
    alone = simulate(costs, 1, has_lock=True)
    log_bytes = sum(each.log_bytes for each in costs)
    arrow_bytes = sum(each.arrow_bytes for each in costs)
    shares = [sum(each[number] for each in costs) / alone for number in range(3)]
    print(f"{len(costs)} pieces, {alone * 1e3:.0f} ms on one core: "
          f"owner {shares[0]:.1%}, with the lock {shares[1]:.1%}, without {shares[2]:.1%}")
    for cores in map(int, numbers or ("2", "4", "8", "16")):
        ratios = [alone / simulate(costs, cores, has_lock=each) for each in (True, False)]
        # Read into memory, read again, written: by the copy from the page cache and by decoding.
        moved = (3 * log_bytes + arrow_bytes) / alone * ratios[0] / 1e9
        print(f"{cores:3} cores  {ratios[0]:5.1f}x   without the lock {ratios[1]:5.1f}x   "
              f"{moved:6.1f} GB/s moved")


if __name__ == "__main__":
    assert piece_reading
    main()
