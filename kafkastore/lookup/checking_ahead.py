"""Check time indexes with several threads, before lookups need them."""
from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from kafkastore.errors import KafkaStoreError
from kafkastore.log.log_view import LogView
from kafkastore.log.parallel.parallel_map import ParallelMap
from kafkastore.lookup.rules import CORRECT, LookupChoice
from kafkastore.segment.log_segment import LogSegment

#: Segments of fewer bytes are checked by the lookup, when it gets to them.
SMALL_SEGMENT_BYTES = 1024 * 1024


class _SegmentToCheck(NamedTuple):
    """A segment of a log; those after one that reaches the time are not needed."""

    log: LogView
    target_timestamp: int
    segment: LogSegment


def check_ahead(
    targets: Iterable[tuple[LogView, int]], choice: LookupChoice, threads: int
) -> None:
    """Read the segments of logs up to the last requested times.

    `targets` are logs, and ms since 1970. The results are kept by `index_trust`; an error is left
    to the lookup.
    """
    if threads == 1 or choice.rules != CORRECT or choice.indexes == "trust":
        return
    reached: set[int] = set()
    with ParallelMap(_reaches, _segments(targets, reached), threads, "kafkastore-lookup") as found:
        for log in found:
            if log is not None:
                reached.add(id(log))


def _segments(
    targets: Iterable[tuple[LogView, int]], reached: set[int]
) -> Iterator[_SegmentToCheck]:
    """Yield the segments of large logs, until one reaches the time."""
    for log, target_timestamp in targets:
        try:
            segments = log.segments
            if len(segments) and segments[0].size < SMALL_SEGMENT_BYTES:
                continue
        except (KafkaStoreError, OSError):
            continue
        for segment in segments:
            if id(log) in reached:
                break
            yield _SegmentToCheck(log, target_timestamp, segment)


def _reaches(asked: _SegmentToCheck) -> LogView | None:
    """Return the log if nothing after the segment is needed."""
    try:
        check = asked.segment.index_check
    except (KafkaStoreError, OSError):
        return asked.log
    is_last = check.error is not None or check.largest_timestamp >= asked.target_timestamp
    return asked.log if is_last else None
