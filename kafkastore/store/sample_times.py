"""Choose times to look up in a partition, to compare answers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress

import numpy as np

from kafkastore.arguments import INT64_MAX, whole_number
from kafkastore.errors import CorruptionError
from kafkastore.log.batch_reading import first_timestamp
from kafkastore.segment.log_file import SMALLEST_READ
from kafkastore.segment.log_segment import LogSegment
from kafkastore.store.partition_log import PartitionLog

#: How many times to look up in each partition, unless another number is given.
SAMPLES = 10
#: Maximum number of times for one partition, with which they fit in memory.
MOST_SAMPLES = 100_000
#: Maximum number of time index entries used per segment, chosen evenly.
_MOST_ENTRIES = 64


def sample_times(
    log: PartitionLog, spread: int, around: int = 0, modified: Iterable[int] = ()
) -> list[int]:
    """Choose ascending times (ms since 1970) from a partition's first to its largest.

    `spread` are evenly over records, `around` near segment boundaries and index entries. `modified`
    replaces missing timestamps. Raises `CorruptionError` if no segment can be read.
    """
    spread = whole_number("spread", spread, 0, MOST_SAMPLES)
    around = whole_number("around", around, 0, MOST_SAMPLES)
    modified = [each for each in modified if each >= 0]
    stamps = _stamps(log)
    known = stamps or sorted(set(modified))
    if not known:
        return []
    chosen = set(_spread_over(known, spread))
    if around:
        marks = {*known, *modified, *_marks(log)}
        beyond = 1 if stamps else 0  # before the first record and after the last
        first, last = max(known[0] - beyond, 0), min(known[-1] + beyond, INT64_MAX)
        near = {
            mark + step for mark in marks for step in (-1, 0, 1) if first <= mark + step <= last
        }
        chosen.update(_evenly(sorted(near - chosen), around))
    return sorted(chosen)


def _stamps(log: PartitionLog) -> list[int]:
    """Return timestamps of the readable segments; raise if all are corrupt."""
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
    """Yield `count` times evenly between known times, whatever the gaps."""
    places = np.linspace(0, len(known) - 1, count if len(known) > 1 else min(count, 1))
    for place in places.tolist():
        at = int(place)
        following = known[min(at + 1, len(known) - 1)]
        # With integers: a float does not represent every time to the ms.
        yield known[at] + int((following - known[at]) * (place - at))


def _evenly(values: Sequence[int], most: int) -> Sequence[int]:
    """Return at most `most` of the values, evenly chosen."""
    if len(values) <= most:
        return values
    return [values[(2 * at + 1) * len(values) // (2 * most)] for at in range(most)]


def _first_and_largest(segment: LogSegment) -> Iterator[int]:
    """Yield the timestamps of a segment's first batch, and the largest one, if any."""
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
    """Yield timestamps of each segment's last batch and of its time index entries."""
    for segment in log.segments:
        with suppress(CorruptionError):
            last = first_timestamp(log, segment.next_offset - 1, segment.next_offset)
            if last is not None:
                yield last
        with suppress(CorruptionError):  # the entries of a corrupt index are not used
            if (index := segment.time_index) is not None:
                yield from _evenly(index.entries()["timestamp"].tolist(), _MOST_ENTRIES)
