"""Ranges of logs that were sent before: checksums are not verified again.

A range belongs to a file as it was: its device, inode, size and times, and its place in the log.
A file that changed a moment ago may change again without a new time, so nothing of it is kept.
"""

from __future__ import annotations

import os
import threading
import time
from typing import NamedTuple

from kafkastore.segment.index_trust import SETTLED_NS
from kafkastore.segment.log_file import LogFile, SegmentBounds

#: A full cache, of about 25 MB, is cleared. Usual clients fetch 1 MiB of a partition at a time.
MAX_CACHED_RANGES = 100_000
#: What is known is sent without looking for more if it fills this share of the room.
_ENOUGH = 1 / 2

_File = tuple[int | SegmentBounds | None, ...]
_lock = threading.Lock()


class VerifiedRange(NamedTuple):
    """Whole batches; `end_offset` is exclusive."""

    position: int
    size: int
    end_offset: int


_cache: dict[tuple[_File, int], VerifiedRange] = {}


class VerifiedRanges:
    """The ranges of one open file, each by the first offset that was asked for."""

    def __init__(self, log: LogFile) -> None:
        self._log, self._opened = log, time.time_ns()
        self._file, self._changed, self._size = self._look()

    def _look(self) -> tuple[_File, int, int]:
        """Return what identifies the file, when it changed, ns, and its size."""
        status = os.fstat(self._log.descriptor)
        times = status.st_mtime_ns, status.st_ctime_ns
        file = (status.st_dev, status.st_ino, status.st_size, *times, self._log.bounds)
        return file, max(times), status.st_size

    def find(self, offset: int, end_offset: int, max_bytes: int) -> VerifiedRange | None:
        """Return the batches from the one that has an offset on, if they fit.

        They end where a range does. None if they are few and more can follow.
        """
        found = None
        following = _cache.get((self._file, offset))
        while following is not None and following.end_offset <= end_offset:
            size = following.size if found is None else found.size + following.size
            if size > max_bytes:
                break
            position = following.position if found is None else found.position
            found = VerifiedRange(position, size, following.end_offset)
            following = _cache.get((self._file, found.end_offset))
        if found is None or found.size >= max_bytes * _ENOUGH:
            return found
        is_last = found.position + found.size >= self._size or found.end_offset >= end_offset
        return found if is_last else None

    def add(self, offset: int, verified: VerifiedRange) -> None:
        """Keep a range, if the file has not changed for a while."""
        if self._changed + SETTLED_NS >= self._opened or self._look()[0] != self._file:
            return
        with _lock:
            if len(_cache) >= MAX_CACHED_RANGES:
                _cache.clear()
            _cache.setdefault((self._file, offset), verified)
