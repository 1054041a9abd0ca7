"""The segments of a log as some rules see them: which one a time leads to, and the search in it.

`SegmentsByTime` is the same for all rules; a `SegmentByTime` is what the rules make of a segment.
"""
from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kafkastore.arguments import INT64_MAX, INT64_MIN
from kafkastore.formats.entries import TIMESTAMP_AND_OFFSET, TimestampAndOffset, as_targets

LARGEST_OFFSET = LARGEST_TIMESTAMP = INT64_MAX
SMALLEST_TIMESTAMP = INT64_MIN
#: Above every time, so that a search among times ends before it.
_NOT_ASKED = math.inf

Find = Callable[[int, int], TimestampAndOffset | None]


class Search(Protocol):
    """Finds the first record of one segment with at least a timestamp, from an offset on."""

    def find(self, target_timestamp: int, starting_offset: int, /) -> TimestampAndOffset | None:
        """Search once."""

    def find_many(
        self, targets: NDArray[np.int64], starting_offset: int, answers: NDArray[np.void], /
    ) -> None:
        """Search for each of some rising targets, and fill as many answers; -1 each: none."""


class SegmentByTime(Protocol):
    """What rules make of a segment; what it says is worked out when it is asked."""

    @property
    def largest_timestamp(self) -> int:
        """Times up to this one, inclusive, lead to the segment."""

    @property
    def search(self) -> Search:
        """The search in the segment."""


class Lookup(Protocol):
    """What some rules make of a log, kept for many questions."""

    def find(self, target_timestamp: int, /) -> TimestampAndOffset | None:
        """Find the offset for a time."""

    def find_many(self, target_timestamps: ArrayLike, /) -> NDArray[np.void]:
        """Find the offsets for many times."""


class SegmentsByTime:
    """Segments in offset order, each with the largest time that leads to it.

    Parameters
    ----------
    segments : sequence of SegmentByTime
        In offset order. Each is asked no sooner than a time leads so far.
    starting_offset : int
        First offset that may be found.
    falls_through : bool
        Whether the next segment is tried where the first that a time leads to has no answer.
    smallest_target : int
        Times below it are taken as it.
    end_offset : int
        First offset that may not be found; where one is, nothing is.

    Notes
    -----
    Threads may share it. What a segment says is remembered in the segment's own place, where
    another thread that asks the same segment at the same time puts the same value.
    """

    def __init__(
        self,
        segments: Sequence[SegmentByTime],
        starting_offset: int,
        *,
        falls_through: bool,
        smallest_target: int = SMALLEST_TIMESTAMP,
        end_offset: int = LARGEST_OFFSET,
    ) -> None:
        self.segments = segments
        self.starting_offset = starting_offset
        self._falls_through = falls_through
        self._smallest_target = smallest_target
        self._end_offset = end_offset
        # By segment. Segments are asked in order, so that `_reached` ends with those not asked.
        self._largest: list[float] = [_NOT_ASKED] * len(segments)
        self._reached: list[float] = [_NOT_ASKED] * len(segments)  # by it and all before it
        self._finds: list[Find | None] = [None] * len(segments)

    def find(self, target_timestamp: int) -> TimestampAndOffset | None:
        """Find the offset for a time.

        Parameters
        ----------
        target_timestamp : int
            ms since 1970, inclusive.

        Returns
        -------
        TimestampAndOffset or None
        """
        if target_timestamp < self._smallest_target:
            target_timestamp = self._smallest_target
        number = self.number_for(target_timestamp)
        if number < 0:
            return None
        find = self._finds[number] or self._find_in(number)
        found = find(target_timestamp, self.starting_offset)
        if found is None and self._falls_through:
            found = self._find_behind(number, target_timestamp)
        return found if found is not None and found.offset < self._end_offset else None

    def number_for(self, target_timestamp: int) -> int:
        """Find the first segment that a time leads to; -1: none."""
        reached = self._reached
        number = bisect_left(reached, target_timestamp)
        while number < len(reached):
            if reached[number] == _NOT_ASKED:
                self._ask(number)
            if reached[number] >= target_timestamp:
                return number
            number += 1
        return -1

    def _ask(self, number: int) -> None:
        """Ask a segment for the largest time that leads to it; those before it were asked."""
        largest = self.segments[number].largest_timestamp
        self._largest[number] = largest
        # Last: where this is set, both are.
        self._reached[number] = max(largest, self._reached[number - 1]) if number else largest

    def _find_in(self, number: int) -> Find:
        find = self._finds[number] = self.segments[number].search.find
        return find

    def _find_behind(self, number: int, target_timestamp: int) -> TimestampAndOffset | None:
        """Go on behind a segment that has no answer."""
        for each in range(number + 1, len(self.segments)):
            if self._reached[each] == _NOT_ASKED:
                self._ask(each)
            if self._largest[each] >= target_timestamp:
                find = self._finds[each] or self._find_in(each)
                found = find(target_timestamp, self.starting_offset)
                if found is not None:
                    return found
        return None

    def find_many(self, target_timestamps: ArrayLike) -> NDArray[np.void]:
        """Find the offsets for many times.

        Parameters
        ----------
        target_timestamps : array_like of int64, shape (n,)
            ms since 1970, inclusive, in any order.

        Returns
        -------
        numpy.ndarray of TIMESTAMP_AND_OFFSET, shape (n,)
            In the order asked; -1 each where there is none.
        """
        asked = np.maximum(as_targets(target_timestamps).ravel(), self._smallest_target)
        if bool((asked[1:] >= asked[:-1]).all()):
            return self._find_rising(asked)
        order = np.argsort(asked)
        answers = np.empty(len(asked), TIMESTAMP_AND_OFFSET)
        answers[order] = self._find_rising(asked[order])
        return answers

    def _find_rising(self, targets: NDArray[np.int64]) -> NDArray[np.void]:
        """Find the offsets for times that rise, segment by segment."""
        answers = nothing_found(len(targets))
        first, missed = 0, np.empty(0, np.intp)
        for number in range(len(self.segments)):
            if first == len(targets) and not len(missed):
                break
            if self._reached[number] == _NOT_ASKED:
                self._ask(number)
            end = int(np.searchsorted(targets, self._reached[number], side="right"))
            own = answers[first:end]
            if len(missed):
                again = missed[targets[missed] <= self._largest[number]]
                answers[again] = self._search_many(number, targets[again])
            if len(own):
                self.segments[number].search.find_many(
                    targets[first:end], self.starting_offset, own
                )
            if self._falls_through:
                missed = np.concatenate((missed, np.arange(first, end)))
                missed = missed[answers["offset"][missed] < 0]
            first = max(first, end)
        if self._end_offset != LARGEST_OFFSET:
            answers[answers["offset"] >= self._end_offset] = nothing_found(1)
        return answers

    def _search_many(self, number: int, targets: NDArray[np.int64]) -> NDArray[np.void]:
        answers = nothing_found(len(targets))
        if len(targets):
            self.segments[number].search.find_many(targets, self.starting_offset, answers)
        return answers


def nothing_found(count: int) -> NDArray[np.void]:
    """Return answers that are none."""
    return np.full(count, np.array((-1, -1, -1), TIMESTAMP_AND_OFFSET))


def as_entry(found: TimestampAndOffset | None) -> Any:
    """Return an answer as an entry of an array of them."""
    if found is None:
        return (-1, -1, -1)
    epoch = found.leader_epoch
    return (found.timestamp, found.offset, -1 if epoch is None else epoch)
