"""Answer lookups as OffsetRequest v0 does, by the modification times of segments.

The answer is the first offset of the newest segment whose ``.log`` was last modified at or before
the time; the log end counts as a segment that is modified now. No record is read.
`kafkastore.lookup.offsets_before` has the rule.

Source: Kafka 2.4.0 ``Log.legacyFetchOffsetsBefore``, ``LogSegment.lastModified``.
"""
from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kafkastore.arguments import whole_number
from kafkastore.clock import clock
from kafkastore.errors import ArgumentTypeError
from kafkastore.formats.indexes.entries import NO_TIMESTAMP, TimestampAndOffset, as_targets
from kafkastore.formats.state.file_names import LOG_SUFFIX, segment_file_name
from kafkastore.log.log_view import LogView
from kafkastore.lookup.offsets_before import OffsetTimes, first_offsets_before
from kafkastore.lookup.rules import LookupChoice, legacy_rules
from kafkastore.lookup.segments_by_time import ChosenBy, SearchStep, nothing_found
from kafkastore.versions import NEWEST_LEGACY_VERSION


class SegmentTime(NamedTuple):
    """A segment's base offset and its log's modification time in ms."""

    base_offset: int
    last_modified_ms: int


def prepare(view: LogView, choice: LookupChoice, end_offset: int) -> LegacyLookup:
    """Prepare the lookup of the newest version with OffsetRequest v0."""
    return LegacyLookup(view, offset_times(view, clock(), past_damage=choice.past_damage))


class LegacyLookup:
    """A lookup by modification times; answers have no timestamp or epoch.

    `now` is the broker's clock, ms since 1970; without it, the clock is read at each lookup.
    """

    def __init__(self, view: LogView, times: OffsetTimes, now: int | None = None) -> None:
        self._view = view
        self._times = times
        self._now = now

    def find(
        self, target_timestamp: int, trace: list[SearchStep] | None = None
    ) -> TimestampAndOffset | None:
        """Find the offset for a time; `trace` receives the segment that has the answer."""
        (offset,) = self._offsets([target_timestamp])
        if offset < 0:
            return None
        found = TimestampAndOffset(NO_TIMESTAMP, int(offset))
        if trace is not None:
            trace += self._steps(target_timestamp, found)
        return found

    def find_many(self, target_timestamps: ArrayLike) -> NDArray[np.void]:
        """Find the offsets for many times, in any order; -1 in all fields: none."""
        targets = as_targets(target_timestamps).ravel()
        answers = nothing_found(len(targets))
        answers["offset"] = self._offsets(targets)
        return answers

    def _offsets(self, targets: ArrayLike) -> NDArray[np.int64]:
        """Find the offsets for many times; nothing was modified before 1970."""
        asked = as_targets(targets)
        now = clock() if self._now is None else self._now
        found = first_offsets_before(self._times, np.maximum(asked, 0), now)
        return np.where(asked < 0, -1, found)

    def _steps(self, target_timestamp: int, found: TimestampAndOffset) -> list[SearchStep]:
        """Return the newest segment not modified after a time; none for the log end."""
        now = clock() if self._now is None else self._now
        number = self._times.newest_before(target_timestamp, now)
        segments = self._view.segments
        if number >= len(segments):
            return []
        modified = self._times.segments[number][1]
        return [SearchStep(segments[number], found, ChosenBy.MODIFICATION_TIME, modified)]


def offset_times(
    log: LogView,
    now: int,
    rules: str = NEWEST_LEGACY_VERSION,
    mtimes: Mapping[str, int] | None = None,
    *,
    high_watermark: int | None = None,
    whole_seconds: bool = False,
    past_damage: bool = False,
) -> OffsetTimes:
    """Return the properties of a log that `offsets_before` needs.

    Parameters
    ----------
    log : PartitionLog
        The partition.
    now : int
        ms since 1970; the time of a log without segments, because a broker creates one at its
        start.
    rules, mtimes, high_watermark, whole_seconds
        As for `fetch_offsets_before`.
    past_damage : bool
        Whether corrupt bytes end the log, as in the broker, and do not raise.

    Returns
    -------
    OffsetTimes
        For `offsets_before` and `first_offsets_before`.

    Raises
    ------
    UnknownRulesError
        If the version does not support OffsetRequest v0.
    """
    _check_log(log)
    row = legacy_rules(rules)
    now = whole_number("now", now)
    if high_watermark is not None:
        high_watermark = whole_number("high_watermark", high_watermark)

    def of_log() -> OffsetTimes:
        is_empty = not log.segments or log.segments[-1].next_offset == log.segments[-1].base_offset
        end = log.end_bound.offset if past_damage else log.log_end_offset
        return OffsetTimes(
            segment_times(log, mtimes, whole_seconds=whole_seconds)
            or (SegmentTime(log.log_start_offset, now),),
            None if is_empty else end,
            log.log_start_offset if row.has_log_start_offset else 0,
            end if high_watermark is None else high_watermark,
            row.other_negatives_are_refused,
        )

    return log.retry_if_changed(of_log)


def segment_times(
    log: LogView, mtimes: Mapping[str, int] | None = None, *, whole_seconds: bool = False
) -> tuple[SegmentTime, ...]:
    """List the times of the last append to the segments of a log.

    Parameters
    ----------
    log : PartitionLog
        The partition.
    mtimes : mapping of str to int, optional
        Modification times, ms since 1970, by the name of the ``.log``, or by its path relative to
        the log directory (``orders-3/00000000000000000042.log``). For directories that lost theirs;
        a missing entry is taken from the file. `read_mtimes` reads such a mapping.
    whole_seconds : bool
        Whether the broker's Java returned whole seconds only, as Java 8 and 9 do (JDK-8177809;
        fixed in later updates of 8). A directory does not show which Java it was.

    Returns
    -------
    tuple of SegmentTime
        By base offset. The times may not ascend.

    Raises
    ------
    TypeError
        If `log` is not an open partition, or `mtimes` is not a mapping.

    Notes
    -----
    Source: Kafka 2.4.0 ``LogSegment.lastModified``, which is Java's ``File.lastModified``.
    """
    _check_log(log)
    given = {} if mtimes is None else mtimes
    if not isinstance(given, Mapping):
        raise ArgumentTypeError("mtimes", "a mapping of file names to times in ms", mtimes)
    times = []
    for segment in log.segments:
        name = segment_file_name(segment.base_offset, LOG_SUFFIX)
        mtime = given.get(f"{log.topic_partition}/{name}", given.get(name))
        if mtime is None:
            mtime = segment.last_modified_ms
        if whole_seconds:
            mtime -= mtime % 1000
        times.append(SegmentTime(segment.base_offset, mtime))
    return tuple(times)


def _check_log(log: LogView) -> None:
    """Raise unless `log` is an open partition."""
    if not isinstance(log, LogView):
        raise ArgumentTypeError("log", "a PartitionLog", log)
