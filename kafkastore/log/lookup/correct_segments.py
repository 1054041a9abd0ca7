"""A segment as the right answer needs it: its true maximum, and a search from a true entry on.

Indexes only choose where to begin, and only as far as they are trusted; markers are passed over.
"""
from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING

from kafkastore.caching import cached_property
from kafkastore.log.lookup.segments_by_time import LARGEST_TIMESTAMP, Search
from kafkastore.segment.checked_times import Indexes
from kafkastore.segment.log_segment import LogSegment

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from kafkastore.errors import CorruptionError
    from kafkastore.formats.entries import TimestampAndOffset
    from kafkastore.log.partition_log import PartitionLog


class CorrectSegment:
    """A segment whose records may be found.

    Parameters
    ----------
    segment : LogSegment
        Its files.
    indexes : str
        How far its time index is trusted, see `LogSegment.search_by_time`.
    """

    def __init__(self, segment: LogSegment, indexes: Indexes) -> None:
        self.segment = segment
        self.indexes = indexes

    @cached_property
    def largest_timestamp(self) -> int:
        """The largest timestamp of its batches, ms; -1 none, and any where that is not known."""
        # What is behind broken bytes is not known, nor anything without a look at the log.
        if self.segment.may_reach(LARGEST_TIMESTAMP, self.indexes):
            return LARGEST_TIMESTAMP
        largest = self.segment.largest_record_timestamp(self.indexes)
        return -1 if largest is None else largest

    @cached_property
    def search(self) -> Search:
        """The search from the indexes' entries on, where these are right."""
        search = self.segment.search_by_time(self.indexes)
        checked = self.segment.checked_times if self.indexes == "check" else None
        if checked is None or checked.error is None:
            return search
        return _SearchBeforeDamage(search, checked.end_offset, checked.error)


class _SearchBeforeDamage:
    """The search of a corrupt segment: what it finds before the corrupt bytes is right."""

    def __init__(self, search: Search, end_offset: int, error: CorruptionError) -> None:
        self._search, self._end_offset, self._error = search, end_offset, error

    def find(self, target_timestamp: int, starting_offset: int) -> TimestampAndOffset | None:
        """Search once."""
        found = self._search.find(target_timestamp, starting_offset)
        if found is None or found.offset >= self._end_offset:
            raise copy(self._error)
        return found

    def find_many(
        self, targets: NDArray[np.int64], starting_offset: int, answers: NDArray[np.void]
    ) -> None:
        """Search for each of some rising targets."""
        self._search.find_many(targets, starting_offset, answers)
        if ((answers["offset"] < 0) | (answers["offset"] >= self._end_offset)).any():
            raise copy(self._error)


def correct_segments(log: PartitionLog, indexes: Indexes) -> list[CorrectSegment]:
    """Return the segments of a log that may have a record at or after the log start offset.

    Parameters
    ----------
    log : PartitionLog
        The partition.
    indexes : str
        How far time indexes are trusted.
    """
    start = log.log_start_offset
    return [
        CorrectSegment(segment, indexes)
        for segment in log.segments
        if segment.next_base_offset is None or segment.next_base_offset > start
    ]
