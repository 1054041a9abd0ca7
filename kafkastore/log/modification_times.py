"""Whether the modification times of segments can be true: guesses, from what the records say.

A broker dates a segment without time index entries by when its ``.log`` was last modified, for
look-ups and for retention.  A careless copy loses that; these functions notice.

A topic that was filled with old data in one go looks the same as a copy.
"""
from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

#: Less than this between two times may be the clocks of two machines, or a slow flush.
TOLERANCE_MS = 60_000

_DAY_MS = 86_400_000
_UNITS = (("days", _DAY_MS), ("hours", 3_600_000), ("minutes", 60_000))


class SegmentTimes(NamedTuple):
    """When one segment with records was modified, and when its newest record was made.

    Parameters
    ----------
    path : str
        The ``.log``, as the caller names it.
    mtime_ms : int
        Its modification time, ms since 1970.
    newest_ms : int or None
        The largest timestamp of its records, ms since 1970; None if none has one, or if that is not
        known.
    """

    path: str
    mtime_ms: int
    newest_ms: int | None


def older_than_records(segments: Iterable[SegmentTimes]) -> list[SegmentTimes]:
    """List the segments that were modified before their newest record was made.

    Parameters
    ----------
    segments : iterable of SegmentTimes
        Segments that have records.

    Returns
    -------
    list of SegmentTimes
        In the order given.
    """
    return [
        each
        for each in segments
        if each.newest_ms is not None and each.mtime_ms + TOLERANCE_MS < each.newest_ms
    ]


def in_the_future(segments: Iterable[SegmentTimes], now_ms: int) -> list[SegmentTimes]:
    """List the segments that were modified later than now.

    Parameters
    ----------
    segments : iterable of SegmentTimes
        Any segments.
    now_ms : int
        The clock, ms since 1970.

    Returns
    -------
    list of SegmentTimes
        In the order given.
    """
    return [each for each in segments if each.mtime_ms > now_ms + TOLERANCE_MS]


def of_a_copy(segments: Iterable[SegmentTimes], *, all_known: bool = True) -> str | None:
    """Say why the modification times of a directory look like those of a copy.

    Parameters
    ----------
    segments : iterable of SegmentTimes
        The segments of one directory that have records.
    all_known : bool
        Whether each was asked for its newest record; if not, nothing can be said of a directory
        whose records seem to have no timestamps.

    Returns
    -------
    str or None
        A clause without its full stop; None where they look true.
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
    """Say how long something took, in the unit that fits.

    Parameters
    ----------
    milliseconds : int
        At least 0.

    Examples
    --------
    >>> span(119_000), span(120_000), span(3 * 86_400_000)
    ('119 seconds', '2 minutes', '3 days')
    """
    for unit, length in _UNITS:
        if milliseconds >= 2 * length:
            return f"{milliseconds // length} {unit}"
    return f"{milliseconds // 1000} seconds"
