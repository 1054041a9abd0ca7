"""A segment as KIP-33's text sees it: by the last entry of its time index.

The first segment whose last entry is later than the time is searched from the floor entry's offset
on; a time equal to the last entry leads to the next segment. A missing time index of an inactive
segment counts as (modification time -> base offset of the next).

Source: KIP-33, "Search message by timestamp", "Broker startup".
"""
from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from kafkastore.caching import cached_property
from kafkastore.formats.entries import TimestampAndOffset, TimestampOffset
from kafkastore.log.lookup.segments_by_time import LARGEST_TIMESTAMP, SMALLEST_TIMESTAMP, as_entry
from kafkastore.segment.log_segment import LogSegment

if TYPE_CHECKING:
    from kafkastore.log.partition_log import PartitionLog


def kip_33_entries(segment: LogSegment) -> list[TimestampOffset]:
    """Return the time index that KIP-33's text gives a segment.

    Its own, or for an inactive segment without one an entry by modification time.

    Parameters
    ----------
    segment : LogSegment
        Its files.

    Returns
    -------
    list of TimestampOffset
        Empty for an active segment without a time index.

    Notes
    -----
    Source: KIP-33, "Broker startup".
    """
    if segment.time_index is not None:
        return [TimestampOffset(*entry) for entry in segment.time_index.entries().tolist()]
    if segment.next_base_offset is None:
        return []
    return [TimestampOffset(segment.last_modified_ms, segment.next_base_offset)]


class Kip33Segment:
    """A segment with the entries that the text gives it; it searches by itself.

    Parameters
    ----------
    segment : LogSegment
        Its files.
    past_damage : bool
        Take corrupt bytes for the end of the segment instead of raising.
    """

    def __init__(self, segment: LogSegment, *, past_damage: bool = False) -> None:
        self.segment = segment
        self._open_log = segment.open_as_broker if past_damage else segment.open_log

    @cached_property
    def entries(self) -> list[TimestampOffset]:
        """See `kip_33_entries`."""
        return kip_33_entries(self.segment)

    @cached_property
    def _rising(self) -> list[TimestampOffset]:
        return sorted(self.entries)

    @cached_property
    def largest_timestamp(self) -> int:
        """The time just before the last entry's; the smallest without one."""
        if not self.entries or self.entries[-1].timestamp == SMALLEST_TIMESTAMP:
            return SMALLEST_TIMESTAMP
        return self.entries[-1].timestamp - 1

    @property
    def search(self) -> Kip33Segment:
        """The segment itself."""
        return self

    def floor_entry(self, target_timestamp: int) -> TimestampOffset | None:
        """Return the last entry at or before a time, in order of times."""
        number = bisect_right(self._rising, (target_timestamp, LARGEST_TIMESTAMP))
        return self._rising[number - 1] if number else None

    def find(self, target_timestamp: int, starting_offset: int) -> TimestampAndOffset | None:
        """Search once."""
        if not self.entries or self.entries[-1].timestamp <= target_timestamp:
            return None
        floor = self.floor_entry(target_timestamp)
        first = self.segment.base_offset if floor is None else floor.offset
        with self._open_log() as file:
            position = self.segment.position_before(max(starting_offset, first), file)
            found = file.search_for_timestamp(target_timestamp, position, starting_offset)
        if found is None:
            return None
        return TimestampAndOffset(found[0], found[1], found[2] if found[2] >= 0 else None)

    def find_many(
        self, targets: NDArray[np.int64], starting_offset: int, answers: NDArray[np.void]
    ) -> None:
        """Search for each of some rising targets."""
        for number, target in enumerate(targets.tolist()):
            answers[number] = as_entry(self.find(target, starting_offset))


def kip_33_segments(log: PartitionLog, *, past_damage: bool = False) -> list[Kip33Segment]:
    """Return the segments of a log as the text sees them.

    Parameters
    ----------
    log : PartitionLog
        The partition.
    past_damage : bool
        See `Kip33Segment`.
    """
    return [Kip33Segment(segment, past_damage=past_damage) for segment in log.segments]
