"""The search in one segment that passes over records of aborted transactions."""
from __future__ import annotations

from bisect import bisect_left

import numpy as np
from numpy.typing import NDArray

from kafkastore.caching import cached_property
from kafkastore.formats.entries import TimestampAndOffset
from kafkastore.formats.transactions import AbortedBatches
from kafkastore.log.lookup.correct_segments import CorrectSegment
from kafkastore.log.lookup.segments_by_time import Search, as_entry


class CommittedSegment:
    """A segment of which aborted records are not found; it searches by itself.

    Parameters
    ----------
    segment : CorrectSegment
        With all records but markers.
    aborted : AbortedBatches
        Knows its aborted batches.
    """

    def __init__(self, segment: CorrectSegment, aborted: AbortedBatches) -> None:
        self._segment = segment
        self._aborted = aborted

    @property
    def largest_timestamp(self) -> int:
        """Times up to this one, inclusive, lead to the segment."""
        return self._segment.largest_timestamp

    @property
    def search(self) -> CommittedSegment:
        """The segment itself."""
        return self

    @cached_property
    def _search(self) -> Search:
        return self._segment.search

    @cached_property
    def _aborted_runs(self) -> tuple[list[int], list[int]]:
        """First and last offsets of aborted batches; those that follow each other are one run."""
        firsts: list[int] = []
        lasts: list[int] = []
        with self._segment.segment.open_log() as file:
            for run in file.runs():
                headers = run.headers[self._aborted.of(run.headers)]
                for first, last in headers[["base_offset", "last_offset"]].tolist():
                    if lasts and first == lasts[-1] + 1:
                        lasts[-1] = last
                    else:
                        firsts.append(first)
                        lasts.append(last)
        return firsts, lasts

    def find(self, target_timestamp: int, starting_offset: int) -> TimestampAndOffset | None:
        """Search once."""
        while True:
            found = self._search.find(target_timestamp, starting_offset)
            if found is None:
                return None
            firsts, lasts = self._aborted_runs
            number = bisect_left(lasts, found.offset)
            if number == len(lasts) or firsts[number] > found.offset:
                return found
            starting_offset = lasts[number] + 1

    def find_many(
        self, targets: NDArray[np.int64], starting_offset: int, answers: NDArray[np.void]
    ) -> None:
        """Search for each of some rising targets."""
        self._search.find_many(targets, starting_offset, answers)
        firsts, lasts = (np.array(each, np.int64) for each in self._aborted_runs)
        numbers = np.searchsorted(lasts, answers["offset"])
        inside = numbers < len(lasts)
        inside[inside] = firsts[numbers[inside]] <= answers["offset"][inside]
        for each in np.flatnonzero(inside & (answers["offset"] >= 0)).tolist():
            answers[each] = as_entry(self.find(int(targets[each]), starting_offset))
