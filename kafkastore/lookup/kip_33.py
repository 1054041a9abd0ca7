"""Answer lookups by the text of KIP-33, by segments' last time index entries.

The first segment whose last entry is later than the time is searched from the floor entry's offset
on; if the time equals the last entry, the next segment is searched. A missing time index of an
inactive segment counts as (modification time -> base offset of the next).

Source: KIP-33, "Search message by timestamp", "Broker startup".
"""
from __future__ import annotations

from bisect import bisect_right

import numpy as np
from numpy.typing import NDArray

from kafkastore.caching import cached_property
from kafkastore.formats.indexes.entries import TimestampAndOffset, TimestampOffset
from kafkastore.log.log_view import LogView
from kafkastore.lookup.rules import LookupChoice
from kafkastore.lookup.segments_by_time import (
    LARGEST_TIMESTAMP,
    SMALLEST_TIMESTAMP,
    ChosenBy,
    SearchStep,
    SegmentsByTime,
    as_entry,
)
from kafkastore.segment.log_segment import LogSegment


def prepare(view: LogView, choice: LookupChoice, end_offset: int) -> SegmentsByTime:
    """Prepare the search by the text of KIP-33; no segment is read yet."""
    return SegmentsByTime(
        [Kip33Segment(segment, past_damage=choice.past_damage) for segment in view.segments],
        view.log_start_offset,
        falls_through=True,
        end_offset=end_offset,
    )


def kip_33_entries(segment: LogSegment) -> list[TimestampOffset]:
    """Return a segment's time index entries according to KIP-33.

    An inactive segment without a time index has one entry, by modification time; an active one has
    none.
    """
    if segment.time_index is not None:
        return [TimestampOffset(*entry) for entry in segment.time_index.entries().tolist()]
    if segment.next_base_offset is None:
        return []
    return [TimestampOffset(segment.last_modified_ms, segment.next_base_offset)]


class Kip33Segment:
    """A segment with its entries according to KIP-33; it is its own search.

    `past_damage`: corrupt bytes end the segment and do not raise.
    """

    def __init__(self, segment: LogSegment, *, past_damage: bool = False) -> None:
        self.segment = segment
        self._open_log = segment.open_as_broker if past_damage else segment.open_log

    @cached_property
    def entries(self) -> list[TimestampOffset]:
        """The time index entries; see `kip_33_entries`."""
        return kip_33_entries(self.segment)

    @cached_property
    def _rising(self) -> list[TimestampOffset]:
        return sorted(self.entries)

    @cached_property
    def largest_timestamp(self) -> int:
        """1 ms before the last entry's time; without entries, the smallest time."""
        if not self.entries or self.entries[-1].timestamp == SMALLEST_TIMESTAMP:
            return SMALLEST_TIMESTAMP
        return self.entries[-1].timestamp - 1

    @property
    def search(self) -> Kip33Segment:
        """The segment itself."""
        return self

    def find(self, target_timestamp: int, starting_offset: int) -> TimestampAndOffset | None:
        """Find the first record at or after a time."""
        return self._search(target_timestamp, starting_offset)[0]

    def trace(self, target_timestamp: int, starting_offset: int) -> SearchStep | None:
        """Search, and return the steps; None unless the last entry is after the time."""
        found, floor, position = self._search(target_timestamp, starting_offset)
        if position is None:
            return None
        return SearchStep(
            self.segment,
            found,
            ChosenBy.MODIFICATION_TIME if self.segment.time_index is None else ChosenBy.TIME_INDEX,
            self.entries[-1].timestamp,
            position,
            floor,
            by=self,
        )

    def _search(
        self, target_timestamp: int, starting_offset: int
    ) -> tuple[TimestampAndOffset | None, TimestampOffset | None, int | None]:
        """Return the answer, the floor entry, and the byte position where the scan began."""
        if not self.entries or self.entries[-1].timestamp <= target_timestamp:
            return None, None, None
        number = bisect_right(self._rising, (target_timestamp, LARGEST_TIMESTAMP))
        floor = self._rising[number - 1] if number else None
        first = self.segment.base_offset if floor is None else floor.offset
        with self._open_log() as file:
            position = self.segment.position_before(max(starting_offset, first), file)
            found = file.search_for_timestamp(target_timestamp, position, starting_offset)
        if found is None:
            return None, floor, position
        epoch = found[2] if found[2] >= 0 else None
        return TimestampAndOffset(found[0], found[1], epoch), floor, position

    def find_many(
        self, targets: NDArray[np.int64], starting_offset: int, answers: NDArray[np.void]
    ) -> None:
        """Search for each of several ascending times."""
        for number, target in enumerate(targets.tolist()):
            answers[number] = as_entry(self.find(target, starting_offset))
