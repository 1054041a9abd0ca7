"""OffsetRequest v0: find offsets by the modification times of segments.

A broker lists (base offset, modification time) of every segment and, if the last one is not
empty, adds (log end offset, now). From the newest element on, it searches for the first one that is
not later than the requested time, and returns the offsets from there down, as many as requested::

    segment 0           segment 7           padding
    (0, t1)             (7, t2)             (8, now)

    LatestTime, -1    -> from (8, now)      [8, 7, 0] at most
    T >= t2           -> from (7, t2)       [7, 0]
    t1 <= T < t2      -> from (0, t1)       [0]
    T < t1            ->                    []
    EarliestTime, -2  -> (0, t1)            [0]

So the answer is the *first* offset of a segment whose *last* append was not after T.

`kafkastore.lookup.legacy` finds the times of a log; `kafkastore.legacy.offset_request` lists the
differences between versions.

Source: Kafka 0.10.0.1 ``KafkaApis.fetchOffsetsBefore``; 2.4.0 ``Log.legacyFetchOffsetsBefore``.
"""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kafkastore.arguments import timestamp_ms, timestamps_ms, whole_number
from kafkastore.errors import UnsupportedTimestampError
from kafkastore.formats.indexes.entries import as_targets
from kafkastore.formats.requests.list_offsets import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP


class OffsetTimes(NamedTuple):
    """The properties of a log that decide the answer, for `offsets_before`.

    Parameters
    ----------
    segments : tuple of (base offset, modification time in ms)
        In offset order, at least one.
    log_end_offset : int or None
        Offset of the next record, exclusive end of the log; None if the last segment is empty.
    log_start_offset : int
        Replaces all lower offsets in an answer; 0 for brokers that have none.
    high_watermark : int or None
        End of what a consumer may read, exclusive: it replaces all higher offsets in an answer,
        once.
    refuses_negative : bool
        Whether negative times other than -1 and -2 are an error.
    """

    segments: tuple[tuple[int, int], ...]
    log_end_offset: int | None
    log_start_offset: int = 0
    high_watermark: int | None = None
    refuses_negative: bool = False

    def elements(self, now: int) -> list[tuple[int, int]]:
        """Return pairs of offset and time, oldest first, perhaps with the log end."""
        start = self.log_start_offset
        elements = [(max(base_offset, start), mtime) for base_offset, mtime in self.segments]
        if self.log_end_offset is not None:
            elements.append((self.log_end_offset, now))
        return elements

    def newest_before(self, target_timestamp: int, now: int) -> int:
        """Return the number of the newest element that is not later than a time, or -1."""
        elements = self.elements(now)
        # Backwards: modification times may not ascend, and the newest matching element wins.
        number = len(elements) - 1
        while number >= 0 and elements[number][1] > target_timestamp:
            number -= 1
        return number


def offsets_before(
    times: OffsetTimes,
    target_timestamp: int | datetime,
    max_num_offsets: int,
    now: int | datetime,
) -> list[int]:
    """Compute the answer from the segments' times.

    Parameters
    ----------
    times : OffsetTimes
        The segments, and where the log ends.
    target_timestamp : int or datetime
        ms since 1970, inclusive; -1 latest, -2 earliest.
    max_num_offsets : int
        Maximum number of offsets, at least 0.
    now : int
        The clock, ms since 1970.

    Returns
    -------
    list of int
        Offsets, descending.

    Raises
    ------
    UnsupportedTimestampError
        If the broker rejects the timestamp.
    ValueError
        If `max_num_offsets` is negative.

    Examples
    --------
    Segments at 0 and 7, last appended to at 100 and 200; one record in the second:

    >>> article = OffsetTimes(((0, 100), (7, 200)), log_end_offset=8)
    >>> offsets_before(article, LATEST_TIMESTAMP, 1, now=300)
    [8]
    >>> offsets_before(article, EARLIEST_TIMESTAMP, 1, now=300)
    [0]
    >>> offsets_before(article, 150, 1, now=300)
    [0]
    >>> offsets_before(article, 250, 1, now=300)
    [7]
    >>> offsets_before(article, LATEST_TIMESTAMP, 10, now=300)
    [8, 7, 0]
    >>> offsets_before(article, 99, 10, now=300)
    []
    """
    target_timestamp = timestamp_ms("target_timestamp", target_timestamp)
    whole_number("max_num_offsets", max_num_offsets, 0)
    now = timestamp_ms("now", now)
    elements = times.elements(now)
    if target_timestamp == LATEST_TIMESTAMP:
        newest = len(elements) - 1
    elif target_timestamp == EARLIEST_TIMESTAMP:
        newest = 0
    elif target_timestamp < 0 and times.refuses_negative:
        raise UnsupportedTimestampError(f"timestamp {target_timestamp} is not supported (error 35)")
    else:
        newest = times.newest_before(target_timestamp, now)
    # At least -1: a negative index would count from the end of `elements`.
    oldest = max(newest - max_num_offsets, -1)
    offsets = sorted((elements[each][0] for each in range(newest, oldest, -1)), reverse=True)
    high_watermark = times.high_watermark
    if high_watermark is not None and any(offset > high_watermark for offset in offsets):
        offsets = [high_watermark, *(each for each in offsets if each <= high_watermark)]
    return offsets


def first_offsets_before(
    times: OffsetTimes, target_timestamps: ArrayLike, now: int
) -> NDArray[np.int64]:
    """Return the first offset that `offsets_before` returns, for each of many times.

    Parameters
    ----------
    times : OffsetTimes
        The segments, and where the log ends.
    target_timestamps : array_like of int64, shape (n,)
        ms since 1970, inclusive, at least 0.
    now : int
        The clock, ms since 1970.

    Returns
    -------
    numpy.ndarray of int64, shape (n,)
        Offsets; -1 if the answer is empty.

    Examples
    --------
    >>> article = OffsetTimes(((0, 100), (7, 200)), log_end_offset=8)
    >>> first_offsets_before(article, [99, 100, 199, 200, 300], now=300).tolist()
    [-1, 0, 0, 7, 8]
    """
    targets = as_targets(timestamps_ms("target_timestamps", target_timestamps))
    if len(targets) and targets.min() < 0:
        raise UnsupportedTimestampError(f"timestamps must be at least 0, got {targets.min()}")
    offsets, earliest = np.array(times.elements(now), np.int64).T
    # The smallest time from each element on ascends, so that it can be searched.
    earliest = np.minimum.accumulate(earliest[::-1])[::-1]
    newest = np.searchsorted(earliest, targets, side="right") - 1
    found = np.where(newest < 0, -1, offsets[newest])
    return found if times.high_watermark is None else np.minimum(found, times.high_watermark)
