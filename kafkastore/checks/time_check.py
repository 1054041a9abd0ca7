"""Report modification times that look lost, and timestamps that look wrong.

Source: KIP-33; Kafka 2.4.0 ``LogSegment.largestTimestamp``,
``Log.deleteRetentionMsBreachedSegments``.
"""

from __future__ import annotations

from collections.abc import Iterator

from kafkastore.checks.findings import Finding, FindingKind
from kafkastore.checks.segment_check import SegmentCheck
from kafkastore.errors import CorruptIndexError, NotAFileError
from kafkastore.log.modification_times import (
    SegmentTimes,
    in_the_future,
    of_a_copy,
    older_than_records,
)
from kafkastore.log.timestamp_warnings import TimestampWarning, find_timestamp_warning
from kafkastore.segment.log_segment import LogSegment
from kafkastore.store.partition_log import PartitionLog

#: Clock differences do not make a file this much older than its newest record.
_DAY_MS = 86_400_000


class TimeCheck:
    """The times of one partition's segments, added one by one."""

    def __init__(self, log: PartitionLog, now_ms: int) -> None:
        self._log, self._now_ms = log, now_ms
        self._times: list[SegmentTimes] = []
        self._all_known = True
        self._without_entries: list[str] = []
        self._future = 0
        self._first_future: tuple[LogSegment, int, int] | None = None

    def add(self, segment: LogSegment, check: SegmentCheck | None) -> None:
        """Add a segment with its finished check; None if its log was not read."""
        if not segment.size:
            return
        name = segment.log_path.name
        newest = None
        if check is None:
            self._all_known = False
        elif check.largest_timestamp >= 0:
            newest = check.largest_timestamp
            doubt = find_timestamp_warning(newest, self._now_ms)
            if doubt is TimestampWarning.FUTURE:
                self._future += 1
                where = segment, check.position_of_largest_timestamp, newest
                self._first_future = self._first_future or where
            if doubt is not None:
                newest = None  # the check of the segment reports a wrong unit
        self._times.append(SegmentTimes(name, segment.last_modified_ms, newest))
        if not segment.is_active and not _has_entries(segment):
            self._without_entries.append(name)

    def findings(self) -> Iterator[Finding]:
        """Yield the findings that the times of all segments together give."""
        yield from self._modification_times()
        if self._first_future is not None:
            yield self._of_the_future(*self._first_future)

    def _modification_times(self) -> Iterator[Finding]:
        dated = self._without_entries
        why = self._why_lost(is_relied_on=bool(dated))
        if why is None:
            return
        # Without record timestamps, a log that was written at once looks the same.
        is_proved = any(each.newest_ms is not None for each in self._times)
        what = f"modification times look lost: {why}"
        if not dated:
            kind = FindingKind.LOST_UNUSED_MODIFICATION_TIMES
            yield Finding(kind, self._log.path, None, what)
            return
        yield Finding(
            FindingKind.LOST_MODIFICATION_TIMES if is_proved
            else FindingKind.DOUBTFUL_MODIFICATION_TIMES,
            self._log.path, None,
            f"{what}; segments without time index entries: {len(dated)}, such as {dated[0]}",
            "correct them (touch -d), or pass them to kafkastore migrate --mtimes if time indexes "
            "are missing",
        )

    def _why_lost(self, *, is_relied_on: bool) -> str | None:
        """Return why the modification times look lost, or None.

        A topic that was filled with old data looks like a copy. That does not matter unless the
        modification time is the only date of a segment.
        """
        times = self._times
        older = [
            each
            for each in older_than_records(times)
            if each.newest_ms is not None and each.newest_ms - each.mtime_ms > _DAY_MS
        ]
        if older:
            return (
                f"{len(older)} of {len(times)} segments were modified days before their newest "
                f"record, such as {older[0].path}"
            )
        if future := in_the_future(times, self._now_ms):
            return f"{len(future)} segments were modified in the future, such as {future[0].path}"
        return of_a_copy(times, all_known=self._all_known) if is_relied_on else None

    def _of_the_future(self, segment: LogSegment, position: int, newest: int) -> Finding:
        others = self._future - 1
        more = f"; {others} more segments have such timestamps" if others else ""
        return Finding(
            FindingKind.FUTURE_TIMESTAMP, segment.log_path, position,
            f"timestamp {newest} is in the future{more}",
            "none needed if this is intended",
        )


def _has_entries(segment: LogSegment) -> bool:
    """Return whether a time index dates a segment; True if the index is unreadable.

    `index_check` reports an unreadable index.
    """
    try:
        index = segment.time_index
    except (CorruptIndexError, NotAFileError):
        return True
    return index is not None and index.used_entry_count > 0
