"""Search a log for a time, segment by segment, in the same way for all rules.

`SegmentsByTime` searches; a `SearchedSegment` applies the rules to one segment.
"""
from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kafkastore.arguments import INT64_MAX, INT64_MIN
from kafkastore.formats.indexes.entries import (
    TIMESTAMP_AND_OFFSET,
    OffsetPosition,
    TimestampAndOffset,
    TimestampOffset,
    as_targets,
)
from kafkastore.segment.log_segment import LogSegment

#: The exclusive end of answers where nothing bounds them.
NO_END = INT64_MAX
LARGEST_TIMESTAMP = INT64_MAX
SMALLEST_TIMESTAMP = INT64_MIN
#: Larger than every time, so that a bisection of times ends before it.
_NOT_ASKED = math.inf

Find = Callable[[int, int], TimestampAndOffset | None]


class ChosenBy(StrEnum):
    """Why a segment was searched.

    `MEMORY` is the largest timestamp that a running broker knows; `RECOVERY` the time index as a
    start rebuilds it; `BATCHES` their headers; `FALL_THROUGH`: an earlier segment had no match.
    """

    TIME_INDEX = "time-index"
    MODIFICATION_TIME = "modification-time"
    MEMORY = "running-broker"
    RECOVERY = "recovery"
    BATCHES = "batches"
    FALL_THROUGH = "fall-through"


class RecordSearch(Protocol):
    """Find the first record of one segment at or after a time, from an offset on."""

    def find(self, target_timestamp: int, starting_offset: int, /) -> TimestampAndOffset | None:
        """Return the first matching record, or None."""

    def find_many(
        self, targets: NDArray[np.int64], starting_offset: int, answers: NDArray[np.void], /
    ) -> None:
        """Search for each of several ascending times; fill `answers`, with -1 for none."""


class SearchedSegment(Protocol):
    """A segment under some rules; its properties are computed when first read."""

    @property
    def segment(self) -> LogSegment:
        """The segment's files."""

    @property
    def largest_timestamp(self) -> int:
        """The largest time, inclusive, for which the segment is searched."""

    @property
    def search(self) -> RecordSearch:
        """The search in the segment."""

    def trace(self, target_timestamp: int, starting_offset: int, /) -> SearchStep | None:
        """Search as `search` does, and return the steps; None if nothing is searched."""


class SearchStep(NamedTuple):
    """How one segment was searched; see `Explanation`.

    `by` applied the rules; None, like `starting_position`, if no record was read.
    """

    segment: LogSegment
    found: TimestampAndOffset | None
    chosen_by: ChosenBy
    largest_timestamp: int
    starting_position: int | None = None
    time_entry: TimestampOffset | None = None
    offset_entry: OffsetPosition | None = None
    time_slots: tuple[int, ...] = ()
    offset_slots: tuple[int, ...] = ()
    by: SearchedSegment | None = None


class Lookup(Protocol):
    """A prepared lookup in a log, for any number of times."""

    def find(
        self, target_timestamp: int, trace: list[SearchStep] | None = None, /
    ) -> TimestampAndOffset | None:
        """Find the offset for a time; `trace` receives each searched segment."""

    def find_many(self, target_timestamps: ArrayLike, /) -> NDArray[np.void]:
        """Find the offsets for many times, in any order; -1 in all fields: none."""


class SegmentsByTime:
    """Segments in offset order, each with the largest time for which it is searched.

    The first at or after the target (at least `smallest_target`) is searched; with `falls_through`,
    the next ones too. Answers are from `starting_offset` on and below `end_offset`.
    """

    # Threads that compute a largest time at the same time store equal values.

    def __init__(
        self,
        segments: Sequence[SearchedSegment],
        starting_offset: int,
        *,
        falls_through: bool,
        smallest_target: int = SMALLEST_TIMESTAMP,
        end_offset: int = NO_END,
    ) -> None:
        self.segments = segments
        self.starting_offset = starting_offset
        self._falls_through = falls_through
        self._smallest_target = smallest_target
        self.end_offset = end_offset
        # By segment. Segments are read in order, so unread ones are at the end of `_reached`.
        self._largest: list[float] = [_NOT_ASKED] * len(segments)
        self._reached: list[float] = [_NOT_ASKED] * len(segments)  # by it and all before it
        self._finds: list[Find | None] = [None] * len(segments)

    def find(
        self, target_timestamp: int, trace: list[SearchStep] | None = None
    ) -> TimestampAndOffset | None:
        """Find the offset for a time; `trace` receives each searched segment."""
        if target_timestamp < self._smallest_target:
            target_timestamp = self._smallest_target
        reached = self._reached
        number = bisect_left(reached, target_timestamp)
        # Fast path without a call. Another thread may have read the segment's time just now.
        if number == len(reached) or not target_timestamp <= reached[number] < _NOT_ASKED:
            number = self._number_from(number, target_timestamp)
            if number < 0:
                return None
        if trace is None:
            find = self._finds[number] or self._find_in(number)
            found = find(target_timestamp, self.starting_offset)
        else:
            found = self._trace_in(number, target_timestamp, trace)
        if found is None and self._falls_through:
            found = self._find_after(number, target_timestamp, trace)
        return found if found is not None and found.offset < self.end_offset else None

    def _number_from(self, number: int, target_timestamp: int) -> int:
        """Return the number of the first segment from one on to search for a time, or -1."""
        reached = self._reached
        while number < len(reached):
            if reached[number] == _NOT_ASKED:
                self._ask(number)
            if reached[number] >= target_timestamp:
                return number
            number += 1
        return -1

    def _ask(self, number: int) -> None:
        """Read the largest time of a segment, after those of all segments before it."""
        largest = self.segments[number].largest_timestamp
        self._largest[number] = largest
        # Last: if this is set, so is `_largest`.
        self._reached[number] = max(largest, self._reached[number - 1]) if number else largest

    def _find_in(self, number: int) -> Find:
        find = self._finds[number] = self.segments[number].search.find
        return find

    def _trace_in(
        self, number: int, target_timestamp: int, trace: list[SearchStep]
    ) -> TimestampAndOffset | None:
        step = self.segments[number].trace(target_timestamp, self.starting_offset)
        if step is None:
            return None
        if trace:
            step = step._replace(chosen_by=ChosenBy.FALL_THROUGH)
        trace.append(step)
        return step.found

    def _find_after(
        self, number: int, target_timestamp: int, trace: list[SearchStep] | None
    ) -> TimestampAndOffset | None:
        """Search the segments after one that has no answer."""
        for each in range(number + 1, len(self.segments)):
            if self._reached[each] == _NOT_ASKED:
                self._ask(each)
            if self._largest[each] >= target_timestamp:
                if trace is None:
                    find = self._finds[each] or self._find_in(each)
                    found = find(target_timestamp, self.starting_offset)
                else:
                    found = self._trace_in(each, target_timestamp, trace)
                if found is not None:
                    return found
        return None

    def find_many(self, target_timestamps: ArrayLike) -> NDArray[np.void]:
        """Find the offsets for many times, in any order; -1 in all fields: none."""
        asked = np.maximum(as_targets(target_timestamps).ravel(), self._smallest_target)
        if bool((asked[1:] >= asked[:-1]).all()):
            return self._find_rising(asked)
        order = np.argsort(asked)
        answers = np.empty(len(asked), TIMESTAMP_AND_OFFSET)
        answers[order] = self._find_rising(asked[order])
        return answers

    def _find_rising(self, targets: NDArray[np.int64]) -> NDArray[np.void]:
        """Find the offsets for ascending times, segment by segment."""
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
        if self.end_offset != NO_END:
            answers[answers["offset"] >= self.end_offset] = nothing_found(1)
        return answers

    def _search_many(self, number: int, targets: NDArray[np.int64]) -> NDArray[np.void]:
        answers = nothing_found(len(targets))
        if len(targets):
            self.segments[number].search.find_many(targets, self.starting_offset, answers)
        return answers


def nothing_found(count: int) -> NDArray[np.void]:
    """Return `count` answers with -1 in all fields."""
    return np.full(count, np.array((-1, -1, -1), TIMESTAMP_AND_OFFSET))


def as_entry(found: TimestampAndOffset | None) -> Any:
    """Return an answer as an entry of an array of answers."""
    if found is None:
        return (-1, -1, -1)
    epoch = found.leader_epoch
    return (found.timestamp, found.offset, -1 if epoch is None else epoch)
