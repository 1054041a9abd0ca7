"""Guess from the records whether the modification times of segments are genuine.

For lookups and retention, a broker uses the modification time of the ``.log`` if a segment's time
index is empty.  A copy that does not preserve modification times breaks both; these functions
detect such copies.

A topic that was filled with old data at once looks the same as a copy.
"""
from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

#: A smaller difference may come from the clocks of two machines, or from a slow flush.
TOLERANCE_MS = 60_000

_DAY_MS = 86_400_000
_UNITS = (("days", _DAY_MS), ("hours", 3_600_000), ("minutes", 60_000))


class SegmentTimes(NamedTuple):
    """Modification time and largest timestamp of a segment, in ms since 1970.

    `path` is the ``.log``, as the caller names it. `newest_ms` is None if no record has a
    timestamp, or if the largest one is unknown.
    """

    path: str
    mtime_ms: int
    newest_ms: int | None


def older_than_records(segments: Iterable[SegmentTimes]) -> list[SegmentTimes]:
    """Return the segments that were modified before their newest record was created."""
    return [
        each
        for each in segments
        if each.newest_ms is not None and each.mtime_ms + TOLERANCE_MS < each.newest_ms
    ]


def in_the_future(segments: Iterable[SegmentTimes], now_ms: int) -> list[SegmentTimes]:
    """Return the segments with a modification time after `now_ms`, ms since 1970."""
    return [each for each in segments if each.mtime_ms > now_ms + TOLERANCE_MS]


def of_a_copy(segments: Iterable[SegmentTimes], *, all_known: bool = True) -> str | None:
    """Return why the modification times of a directory look copied, or None.

    The reason is a clause without a full stop. Pass `all_known=False` if the newest record was not
    looked up for every segment: missing timestamps then mean nothing.
    """
    segments = list(segments)
    stamped = [(each.mtime_ms, each.newest_ms) for each in segments if each.newest_ms is not None]
    mtimes = [mtime for mtime, _ in stamped] or [each.mtime_ms for each in segments]
    spread = max(mtimes, default=0) - min(mtimes, default=0)
    if not stamped:
        if all_known and len(mtimes) > 2 and spread < TOLERANCE_MS:
            return (
                f"all {len(mtimes)} segments were modified within a minute, and no record has a "
                "timestamp to compare with"
            )
        return None
    if len(stamped) == 1:
        return None
    newest = [stamp for _, stamp in stamped]
    of_records = max(newest) - min(newest)
    lag = min(mtime - stamp for mtime, stamp in stamped)
    if of_records > max(10 * spread, 10 * TOLERANCE_MS):
        return (
            f"the newest records of segments are up to {span(of_records)} apart, their "
            f"modification times {span(spread)}"
        )
    if lag > max(100 * spread, _DAY_MS):
        return (
            f"all segments were modified within {span(spread)}, at least {span(lag)} after their "
            "newest records"
        )
    return None


def span(milliseconds: int) -> str:
    """Format a duration of at least 0 ms in the largest suitable unit.

    >>> span(119_000), span(120_000), span(3 * 86_400_000)
    ('119 seconds', '2 minutes', '3 days')
    """
    for unit, length in _UNITS:
        if milliseconds >= 2 * length:
            return f"{milliseconds // length} {unit}"
    return f"{milliseconds // 1000} seconds"
