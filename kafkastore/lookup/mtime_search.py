"""Find segments whose records have no timestamps by their last modification.

Message format v0 has no timestamps, so no lookup by time finds its records.  A user may prefer to
start at the first of them: such a segment counts as one record at its first offset, with the time
of the KIP-33 entry that a migration gave it, or else the modification time of its ``.log``.
"""
from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kafkastore.caching import cached_property
from kafkastore.errors import CorruptIndexError, CorruptionError
from kafkastore.formats.indexes.entries import NO_TIMESTAMP, TimestampAndOffset, as_targets
from kafkastore.log.log_view import LogView
from kafkastore.lookup.segments_by_time import Lookup, SearchStep
from kafkastore.segment.index_trust import Indexes
from kafkastore.segment.log_segment import LogSegment


class _UntimedSegments(NamedTuple):
    """The segments without timestamps up to the first corrupt one, by offset.

    `times` are the largest times up to and including each segment. From `error_offset` on, segments
    are unknown because of `error`.
    """

    times: NDArray[np.int64]
    first_offsets: NDArray[np.int64]
    error: CorruptionError | None
    error_offset: int


class MtimeLookup:
    """Combine a lookup by other rules with the segments without timestamps.

    The answer is the smaller offset of the record found by the other rules, and of the first such
    segment last written at or after the time; the latter has timestamp -1.
    """

    def __init__(
        self,
        lookup: Lookup,
        view: LogView,
        end_offset: int,
        indexes: Indexes,
        *,
        past_damage: bool = False,
    ) -> None:
        self._lookup = lookup
        self._view = view
        self._end_offset = end_offset
        self._indexes = indexes
        self._past_damage = past_damage

    @cached_property
    def _segments(self) -> _UntimedSegments:
        found, error, error_offset = [], None, self._end_offset
        for segment in self._view.segments:
            first = max(segment.base_offset, self._view.log_start_offset)
            try:
                if self._is_untimed(segment, first):
                    found.append((last_written_ms(segment), first))
            except CorruptionError as corrupt:
                error, error_offset = corrupt.again(), first
                break
        times, offsets = np.array(found, np.int64).reshape(-1, 2).T
        return _UntimedSegments(np.maximum.accumulate(times), offsets, error, error_offset)

    def _is_untimed(self, segment: LogSegment, first_offset: int) -> bool:
        """Return whether a segment has batches from an offset on, and no timestamp."""
        if self._past_damage:
            summary = segment.summary
            return summary.next_offset > first_offset and summary.largest_record_timestamp is None
        if segment.next_base_offset is not None and segment.next_base_offset <= first_offset:
            return False
        if segment.end_error is not None:
            raise segment.end_error.again()
        if segment.next_offset <= first_offset:
            return False
        return segment.largest_record_timestamp(self._indexes) is None

    def find(
        self, target_timestamp: int, trace: list[SearchStep] | None = None
    ) -> TimestampAndOffset | None:
        """Find the offset for a time, ms since 1970, inclusive."""
        found = self._lookup.find(target_timestamp, trace)
        times, offsets, error, error_offset = self._segments
        number = int(np.searchsorted(times, max(target_timestamp, 0)))
        if number == len(offsets) or offsets[number] >= self._end_offset:
            if error is not None and (found is None or found.offset >= error_offset):
                raise error.again()
            return found
        if found is not None and found.offset < offsets[number]:
            return found
        return TimestampAndOffset(NO_TIMESTAMP, int(offsets[number]))

    def find_many(self, target_timestamps: ArrayLike) -> NDArray[np.void]:
        """Find the offsets for many times, in any order."""
        answers = self._lookup.find_many(target_timestamps)
        targets = as_targets(target_timestamps).ravel()
        times, offsets, error, error_offset = self._segments
        numbers = np.searchsorted(times, np.maximum(targets, 0))
        firsts = np.append(offsets, self._end_offset)[numbers]
        if error is not None:
            is_known = (firsts < self._end_offset) | (
                (answers["offset"] >= 0) & (answers["offset"] < error_offset)
            )
            if not is_known.all():
                raise error.again()
        is_first = (firsts < self._end_offset) & (
            (answers["offset"] < 0) | (firsts <= answers["offset"])
        )
        answers["offset"][is_first] = firsts[is_first]
        answers["timestamp"][is_first] = NO_TIMESTAMP
        answers["leader_epoch"][is_first] = -1
        return answers


def last_written_ms(segment: LogSegment) -> int:
    """Return when a segment without timestamps was last written, as far as known."""
    try:
        # Records without timestamps never produce an entry with time 0: zeros are lost bytes.
        if (
            segment.time_index is not None
            and (timestamp := segment.time_index.last_entry.timestamp) > 0
        ):
            return timestamp
    except CorruptIndexError:
        pass
    return segment.last_modified_ms
