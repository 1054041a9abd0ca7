"""Find the first record in offset order at or after a time; never a marker.

Indexes only determine where a search starts, as far as they are trusted. With ``read_committed``,
aborted records are not found.
"""
from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from kafkastore.caching import cached_property
from kafkastore.errors import CorruptionError
from kafkastore.formats.indexes.entries import TimestampAndOffset
from kafkastore.log.isolation import find_aborted, reads_committed
from kafkastore.log.log_view import LogView
from kafkastore.lookup.rules import LookupChoice
from kafkastore.lookup.segments_by_time import (
    LARGEST_TIMESTAMP,
    ChosenBy,
    RecordSearch,
    SearchedSegment,
    SearchStep,
    SegmentsByTime,
    as_entry,
)
from kafkastore.segment.index_trust import Indexes
from kafkastore.segment.log_segment import LogSegment
from kafkastore.segment.timestamp_search import SearchTrace, SegmentSearch


def prepare(view: LogView, choice: LookupChoice, end_offset: int) -> SegmentsByTime:
    """Prepare the search for correct answers below an offset; no segment is read yet."""
    return SegmentsByTime(
        _segments(view, choice),
        view.log_start_offset,
        falls_through=True,
        smallest_target=0,  # the timestamp of a record without one is -1, and is never found
        end_offset=end_offset,
    )


def _segments(view: LogView, choice: LookupChoice) -> Sequence[SearchedSegment]:
    """List the segments that may have a record at or after the log start offset."""
    start = view.log_start_offset
    segments = [
        CorrectSegment(segment, choice.indexes)
        for segment in view.segments
        if segment.next_base_offset is None or segment.next_base_offset > start
    ]
    if not reads_committed(choice.isolation):
        return segments
    return [CommittedSegment(segment, view) for segment in segments]


class CorrectSegment:
    """A segment with its true maximum timestamp, searched from a valid entry on."""

    def __init__(self, segment: LogSegment, indexes: Indexes) -> None:
        self.segment = segment
        self._indexes = indexes

    @cached_property
    def largest_timestamp(self) -> int:
        """The largest timestamp of its batches, ms since 1970; -1 if none.

        If it is unknown, the largest possible timestamp.
        """
        # Unknown after corrupt bytes, and unknown as long as the log is not read.
        if self.segment.may_reach(LARGEST_TIMESTAMP, self._indexes):
            return LARGEST_TIMESTAMP
        largest = self.segment.largest_record_timestamp(self._indexes)
        return -1 if largest is None else largest

    @cached_property
    def search(self) -> SegmentSearch | _SearchBeforeDamage:
        """The search from the indexes' entries on, if these are valid."""
        search = self.segment.search_by_time(self._indexes)
        checked = None if self._indexes == "trust" else self.segment.index_check
        if checked is None or checked.error is None:
            return search
        return _SearchBeforeDamage(search, checked.end_offset, checked.error)

    def trace(self, target_timestamp: int, starting_offset: int) -> SearchStep:
        """Search, and return the steps."""
        by_index = (
            self._indexes == "trust" and self.segment.largest_timestamp_by_index is not None
        )
        traced = self.search.trace(target_timestamp, starting_offset)
        return SearchStep(
            self.segment,
            traced.answer,
            ChosenBy.TIME_INDEX if by_index else ChosenBy.BATCHES,
            self.largest_timestamp,
            traced.starting_position,
            traced.time_entry,
            traced.offset_entry,
            by=self,
        )


class _SearchBeforeDamage:
    """The search of a corrupt segment; answers before the corrupt bytes are certain."""

    def __init__(self, search: SegmentSearch, end_offset: int, error: CorruptionError) -> None:
        self._search, self._end_offset, self._error = search, end_offset, error

    def find(self, target_timestamp: int, starting_offset: int) -> TimestampAndOffset | None:
        """Find the first record at or after a time, or raise the corruption."""
        return self._known(self._search.find(target_timestamp, starting_offset))

    def trace(self, target_timestamp: int, starting_offset: int) -> SearchTrace:
        """Search, and return the steps with the answer."""
        traced = self._search.trace(target_timestamp, starting_offset)
        self._known(traced.answer)
        return traced

    def _known(self, found: TimestampAndOffset | None) -> TimestampAndOffset:
        if found is None or found.offset >= self._end_offset:
            raise self._error.again()
        return found

    def find_many(
        self, targets: NDArray[np.int64], starting_offset: int, answers: NDArray[np.void]
    ) -> None:
        """Search for each of several ascending times."""
        self._search.find_many(targets, starting_offset, answers)
        if ((answers["offset"] < 0) | (answers["offset"] >= self._end_offset)).any():
            raise self._error.again()


class CommittedSegment:
    """A segment whose aborted records are not found; it is its own search."""

    def __init__(self, segment: CorrectSegment, view: LogView) -> None:
        self._of_all = segment
        self._view = view
        self.segment = segment.segment

    @property
    def largest_timestamp(self) -> int:
        """The largest time, inclusive, for which the segment is searched."""
        return self._of_all.largest_timestamp

    @property
    def search(self) -> CommittedSegment:
        """The segment itself."""
        return self

    @cached_property
    def _search(self) -> RecordSearch:
        return self._of_all.search

    @cached_property
    def _aborted_runs(self) -> tuple[list[int], list[int]]:
        """First and last offsets of aborted batches; adjacent batches are merged."""
        firsts: list[int] = []
        lasts: list[int] = []
        end = self.segment.next_base_offset
        end = self._view.log_end_offset if end is None else end
        aborted = find_aborted(self._view, self.segment.base_offset, end)
        with self.segment.open_log() as file:
            for run in file.runs():
                headers = run.headers[aborted.of(run.headers)]
                for first, last in headers[["base_offset", "last_offset"]].tolist():
                    if lasts and first == lasts[-1] + 1:
                        lasts[-1] = last
                    else:
                        firsts.append(first)
                        lasts.append(last)
        return firsts, lasts

    def find(self, target_timestamp: int, starting_offset: int) -> TimestampAndOffset | None:
        """Find the first committed record at or after a time."""
        return self._committed(
            self._search.find(target_timestamp, starting_offset), target_timestamp
        )

    def trace(self, target_timestamp: int, starting_offset: int) -> SearchStep:
        """Search, and return the steps of the first search.

        Further searches after aborted records are not traced.
        """
        step = self._of_all.trace(target_timestamp, starting_offset)
        return step._replace(by=self, found=self._committed(step.found, target_timestamp))

    def _committed(
        self, found: TimestampAndOffset | None, target_timestamp: int
    ) -> TimestampAndOffset | None:
        """Return `found`, or search again after the aborted batches that contain it."""
        while found is not None:
            firsts, lasts = self._aborted_runs
            number = bisect_left(lasts, found.offset)
            if number == len(lasts) or firsts[number] > found.offset:
                break
            found = self._search.find(target_timestamp, lasts[number] + 1)
        return found

    def find_many(
        self, targets: NDArray[np.int64], starting_offset: int, answers: NDArray[np.void]
    ) -> None:
        """Search for each of several ascending times."""
        self._search.find_many(targets, starting_offset, answers)
        firsts, lasts = (np.array(each, np.int64) for each in self._aborted_runs)
        numbers = np.searchsorted(lasts, answers["offset"])
        inside = numbers < len(lasts)
        inside[inside] = firsts[numbers[inside]] <= answers["offset"][inside]
        for each in np.flatnonzero(inside & (answers["offset"] >= 0)).tolist():
            answers[each] = as_entry(self.find(int(targets[each]), starting_offset))
