"""Appends to a segment, line by line as in Kafka's source: slow and obvious."""

from __future__ import annotations

from typing import NamedTuple


class Set(NamedTuple):
    """One set of batches."""

    size: int
    first_offset: int
    last_offset: int
    largest_timestamp: int
    offset_of_max_timestamp: int


class SegmentModel:
    """A segment: its size, its index entries, and the state that decides on the next entry."""

    def __init__(self, base_offset, *, interval, created, max_offset_entries, max_time_entries):
        self.base_offset, self.interval, self.created = base_offset, interval, created
        self.max_offset_entries, self.max_time_entries = max_offset_entries, max_time_entries
        self.size = self.since_last = 0
        self.first_timestamp = None
        self.largest = (-1, base_offset)
        self.offset_entries, self.time_entries = [], []

    def must_roll(self, new, *, now, segment_bytes, roll_ms):
        if self.first_timestamp is not None and self.first_timestamp >= 0:
            waited = new.largest_timestamp - self.first_timestamp
        else:
            waited = now - self.created
        return (
            self.size > segment_bytes - new.size
            or (self.size > 0 and waited > roll_ms)
            or len(self.offset_entries) >= self.max_offset_entries
            or len(self.time_entries) >= self.max_time_entries - 1
            or not 0 <= new.last_offset - self.base_offset < 2**31
        )

    def append(self, new):
        position = self.size
        if position == 0:
            self.first_timestamp = new.largest_timestamp
        if new.largest_timestamp > self.largest[0]:
            self.largest = (new.largest_timestamp, new.offset_of_max_timestamp)
        if self.since_last > self.interval:
            self.offset_entries.append((new.last_offset, position))
            self.maybe_append_time()
            self.since_last = 0
        self.since_last += new.size
        self.size += new.size

    def maybe_append_time(self):
        last = self.time_entries[-1][0] if self.time_entries else -1
        if self.largest[0] > last:
            self.time_entries.append(self.largest)
