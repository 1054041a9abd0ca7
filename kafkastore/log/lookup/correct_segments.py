"""A segment as the right answer needs it: its true maximum, and a search that trusts no index.

Indexes only choose where to begin, and only where they fit the log; markers are passed over.
"""
from __future__ import annotations

from typing import TYPE_CHECKING

from kafkastore.caching import cached_property
from kafkastore.log.lookup.segments_by_time import LARGEST_TIMESTAMP
from kafkastore.segment.log_segment import LogSegment
from kafkastore.segment.timestamp_search import SegmentSearch

if TYPE_CHECKING:
    from kafkastore.log.partition_log import PartitionLog


class CorrectSegment:
    """A segment whose records may be found.

    Parameters
    ----------
    segment : LogSegment
        Its files.
    """

    def __init__(self, segment: LogSegment) -> None:
        self.segment = segment

    @cached_property
    def largest_timestamp(self) -> int:
        """The largest timestamp of its batches, ms; -1 none, and any behind broken bytes."""
        if self.segment.largest_timestamp_by_index is None and self.segment.summary.problem:
            return LARGEST_TIMESTAMP
        largest = self.segment.largest_record_timestamp()
        return -1 if largest is None else largest

    @property
    def search(self) -> SegmentSearch:
        """The search from the indexes' entries on, where these are right."""
        return self.segment.search_by_time


def correct_segments(log: PartitionLog) -> list[CorrectSegment]:
    """Return the segments of a log that may have a record at or after the log start offset.

    Parameters
    ----------
    log : PartitionLog
        The partition.
    """
    start = log.log_start_offset
    return [
        CorrectSegment(segment)
        for segment in log.segments
        if segment.next_base_offset is None or segment.next_base_offset > start
    ]
