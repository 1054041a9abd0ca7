"""Simulate how long `to_arrow` takes with many cores, from what each piece costs on one.

usage:  many_cores.py LOG_DIRECTORY_OR_PARTITION [CORES ...]

Each piece of the first partition is decoded once, alone: its costs are the time of the owner, who
finds pieces and makes Arrow batches, and the time of decoding, which any thread may spend. Then
threads take the pieces as `PieceDecoder` gives them out. Memory bandwidth is not simulated: each
line says how many bytes a second the result moves.
"""
from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import NamedTuple

import kafkastore
from kafkastore.formats.records.record_columns import RecordColumns
from kafkastore.log import record_reading, records_as_arrow
from kafkastore.log.parallel.piece_reading import _MORE_PIECES
from kafkastore.log.records_as_arrow import ArrowOptions
from kafkastore.segment.decoding.piece_decoder import PieceDecoder


class Cost(NamedTuple):
    """The seconds of one piece: of the owner, who has the lock, and of a thread without it."""

    owner: float
    free: float
    log_bytes: int
    arrow_bytes: int


def costs_of(path: str) -> list[Cost]:
    """Decode every piece of the first partition, one after the other, in this thread."""
    log = next(iter(kafkastore.open(path)))
    options = ArrowOptions()
    reading = record_reading._open(log, options)
    take = records_as_arrow._ArrowBatches(options, log).take
    columns = [record_reading._columns(options) for _ in range(4)]
    decoder = PieceDecoder(columns, threads=1, most_pieces=1)
    pieces, found = reading.pieces(), []
    while True:
        begun, taken, skipped, arrow_bytes = time.thread_time(), 0.0, 0.0, 0
        piece = next(pieces, None)
        if piece is None:
            return found
        reading.add_to(decoder, piece)
        planned = time.thread_time()

        def timed(filled: RecordColumns) -> int:
            nonlocal taken, skipped
            started = time.thread_time()
            batches = take(filled)
            taken += time.thread_time() - started
            size = sum(batch.nbytes for batch in batches)
            skipped += time.thread_time() - started
            return size

        while (size := decoder.next(timed)) is not None:
            arrow_bytes += size
        free = time.thread_time() - planned - skipped
        position, _ = decoder.end_first()
        log_bytes = position - piece.start.position
        reading._log_bytes += log_bytes  # the next piece has as many Arrow bytes as others
        reading._arrow_bytes += arrow_bytes
        found.append(Cost(planned - begun + taken, free, log_bytes, arrow_bytes))


def simulate(costs: Sequence[Cost], cores: int) -> float:
    """Return the seconds until all rows are taken.

    The owner takes the rows of each piece in order; until then it decodes, as other threads do,
    whenever the next piece is not there yet.
    """
    threads = [0.0] * cores  # when each is free; the first is the owner
    done: list[float] = []
    taken = 0
    for cost in costs:
        while taken < len(done) and len(done) - taken > cores + _MORE_PIECES:
            threads[0] = max(threads[0], done[taken]) + costs[taken].owner
            taken += 1
        first = min(range(cores), key=threads.__getitem__)
        threads[first] += cost.free
        done.append(threads[first])
    for cost, ready in zip(costs[taken:], done[taken:], strict=True):
        threads[0] = max(threads[0], ready) + cost.owner
    return threads[0]


def main() -> None:
    """Print a table."""
    path, *numbers = sys.argv[1:]
    costs = min(
        (costs_of(path) for _ in range(3)), key=lambda each: sum(map(sum, each))
    )
    alone = simulate(costs, 1)
    log_bytes = sum(each.log_bytes for each in costs)
    arrow_bytes = sum(each.arrow_bytes for each in costs)
    owner = sum(each.owner for each in costs) / alone
    print(f"{len(costs)} pieces, {alone * 1e3:.0f} ms on one core, {owner:.1%} the owner's")
    for cores in map(int, numbers or ("2", "4", "8", "16")):
        ratio = alone / simulate(costs, cores)
        # Read into memory, read again, written: by the copy from the page cache and by decoding.
        moved = (3 * log_bytes + arrow_bytes) / alone * ratio / 1e9
        print(f"{cores:3} cores  {ratio:5.1f}x   {moved:6.1f} GB/s moved")


if __name__ == "__main__":
    main()
