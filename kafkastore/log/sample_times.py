"""Times to ask a partition for: spread over its records, and where answers can differ."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress

import numpy as np

from kafkastore.arguments import INT64_MAX, whole_number
from kafkastore.errors import CorruptionError
from kafkastore.log.batch_reading import first_timestamp
from kafkastore.log.partition_log import PartitionLog
from kafkastore.segment.log_file import SMALLEST_READ
from kafkastore.segment.log_segment import LogSegment

#: Time index entries of a segment that are looked at; of more, evenly chosen ones.
_MOST_ENTRIES = 64


def sample_times(
    log: PartitionLog, spread: int, around: int = 0, modified: Iterable[int] = ()
) -> list[int]:
    """Choose times from a partition's first timestamp to its largest.

    Parameters
    ----------
    log : PartitionLog
        The partition.
    spread : int
        How many lie among its records, as many in each segment as in another.
    around : int
        How many more lie where answers can differ: at a segment's modification time, at the
        timestamps of its first and its last batch, its largest one and those of its time index
        entries, and one ms before and after; of more such times, evenly chosen ones.
    modified : iterable of int
        Modification times of its segments, ms since 1970. Where no record has a timestamp they
        are all there is to choose from.

    Returns
    -------
    list of int
        ms since 1970, rising; fewer where there are not so many.

    Raises
    ------
    CorruptionError
        If no segment can be read.
    """
    spread = whole_number("spread", spread, 0)
    around = whole_number("around", around, 0)
    modified = [each for each in modified if each >= 0]
    stamps = _stamps(log)
    known = stamps or sorted(set(modified))
    if not known:
        return []
    chosen = set(_spread_over(known, spread))
    if around:
        marks = {*known, *modified, *_marks(log)}
        beyond = 1 if stamps else 0  # before the first record and behind the last one
        first, last = max(known[0] - beyond, 0), min(known[-1] + beyond, INT64_MAX)
        near = {
            mark + step for mark in marks for step in (-1, 0, 1) if first <= mark + step <= last
        }
        chosen.update(_evenly(sorted(near - chosen), around))
    return sorted(chosen)


def _stamps(log: PartitionLog) -> list[int]:
    """List timestamps of the segments that can be read; raise where none can."""
    found: set[int] = set()
    corrupt: CorruptionError | None = None
    for segment in log.segments:
        try:
            found.update(_first_and_largest(segment))
        except CorruptionError as error:
            corrupt = corrupt or error
    if corrupt is not None and not found:
        raise corrupt
    return sorted(found)


def _spread_over(known: Sequence[int], count: int) -> Iterator[int]:
    """Yield times between known ones, as many between two as between two others."""
    places = np.linspace(0, len(known) - 1, count if len(known) > 1 else min(count, 1))
    for place in places.tolist():
        at = int(place)
        following = known[min(at + 1, len(known) - 1)]
        # In whole numbers: a float does not hold every time to the ms.
        yield known[at] + int((following - known[at]) * (place - at))


def _evenly(values: Sequence[int], most: int) -> Sequence[int]:
    """Leave so many at most, each from the middle of as many values."""
    if len(values) <= most:
        return values
    return [values[(2 * at + 1) * len(values) // (2 * most)] for at in range(most)]


def _first_and_largest(segment: LogSegment) -> Iterator[int]:
    """Yield the timestamps of a segment's first batch, and the largest one, where there are."""
    if not segment.size:
        return
    with segment.open_log() as log:
        for run in log.runs(first_read=SMALLEST_READ):
            first = int(run.headers["max_timestamp"][0])
            if first >= 0:
                yield first
            break
    largest = segment.largest_record_timestamp("trust")
    if largest is not None:
        yield largest


def _marks(log: PartitionLog) -> Iterator[int]:
    """Yield the timestamps of the segments' last batches and of their time indexes' entries."""
    for segment in log.segments:
        with suppress(CorruptionError):
            last = first_timestamp(log, segment.next_offset - 1, segment.next_offset)
            if last is not None:
                yield last
        with suppress(CorruptionError):  # nothing in such an index is a time to ask for
            if (index := segment.time_index) is not None:
                yield from _evenly(index.entries()["timestamp"].tolist(), _MOST_ENTRIES)
