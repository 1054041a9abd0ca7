"""Retention as a list that loses its first segment repeatedly: slow and obvious."""
from __future__ import annotations

from dataclasses import dataclass


@dataclass
class ModelSegment:
    """A segment; its end is where the next begins."""

    base_offset: int
    size: int
    largest_timestamp: int


class ModelLog:
    """A log whose old segments a broker deletes.

    `deleted` is [(base offset, rule)].
    """

    def __init__(self, segments, log_end_offset, high_watermark, log_start_offset):
        self.segments = list(segments)
        self.log_end_offset = log_end_offset
        self.high_watermark = high_watermark
        self.log_start_offset = log_start_offset
        self.deleted = []
        self.rolled = False

    def run(self, version, now, policy, retention_ms, retention_bytes):
        """Delete segments as a broker of a version (a tuple of numbers) does."""
        deletes = "delete" in policy

        def time_is_over():
            return retention_ms >= 0 and now - self.segments[0].largest_timestamp > retention_ms

        def is_too_large():
            without = sum(segment.size for segment in self.segments[1:])
            return retention_bytes >= 0 and without >= retention_bytes

        def is_below_the_start():
            has_next = len(self.segments) > 1
            return has_next and self.segments[1].base_offset <= self.log_start_offset

        if version < (3, 0):
            rules = [("time", time_is_over), ("size", is_too_large), ("start", is_below_the_start)]
        else:
            rules = [("start", is_below_the_start), ("size", is_too_large), ("time", time_is_over)]
        for name, holds in rules:
            if name == "start":
                if version < (0, 11) or not (deletes or version >= (2, 1)):
                    continue
            elif not deletes:
                continue
            while self._oldest_may_go(version) and holds():
                self._delete_oldest(name, now)

    def _oldest_may_go(self, version):
        is_last = len(self.segments) == 1
        end = self.log_end_offset if is_last else self.segments[1].base_offset
        if version >= (0, 11, 0, 1) and self.high_watermark < end:
            return False
        return not (is_last and self.segments[0].size == 0)

    def _delete_oldest(self, rule, now):
        oldest = self.segments.pop(0)
        self.deleted.append((oldest.base_offset, rule))
        if not self.segments:
            self.segments.append(ModelSegment(self.log_end_offset, 0, now))
            self.rolled = True
        self.log_start_offset = max(self.log_start_offset, self.segments[0].base_offset)
