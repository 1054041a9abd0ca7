"""How far lookups trust time indexes, and what batches say of their times.

A process reads the batches of a segment once, with their checksums, and caches the result for as
long as the files are unchanged.
"""
from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from kafkastore.arguments import check_choice
from kafkastore.errors import CorruptionError
from kafkastore.paths import to_path
from kafkastore.segment.log_file import LogFile

Indexes = Literal["check", "trust", "ignore"]
#: The first is the default of every lookup and of every reader that starts at a timestamp.
INDEXES: tuple[Indexes, ...] = get_args(Indexes)
DEFAULT_INDEXES = INDEXES[0]

#: Segments in the cache; a full cache is cleared.
MAX_CACHED_SEGMENTS = 100_000

#: Some file systems store times with a resolution of one or two seconds.
SETTLED_NS = 3_000_000_000

_Identity = tuple[int, ...]


class IndexCheck(NamedTuple):
    """A segment's times according to its batches, checksums verified."""

    largest_timestamp: int  # ms; -1: no batch has a timestamp
    # Whether every entry of the time index is true: no batch before the one that holds the entry's
    # offset is later.
    index_holds: bool
    # Device, inode, size, mtime and ctime (ns) of the log and of its time index.
    identity: _Identity
    end_offset: int  # exclusive: after the last batch that was read
    # Why nothing is known about the bytes after `end_offset`.
    error: CorruptionError | None = None


#: The key has `is_active`, because only the last segment may end with an incomplete batch.
_cache: dict[tuple[_Identity, bool], IndexCheck] = {}


def check_indexes(indexes: str) -> Indexes:
    """Return `indexes` if it is a known choice; raise `ArgumentValueError` otherwise."""
    return check_choice("indexes", indexes, INDEXES)


def check_time_index(
    path: str,
    base_offset: int,
    read_entries: Callable[[], NDArray[np.void]],
    open_log: Callable[[], LogFile],
    temporary: str,
    *,
    is_active: bool,
) -> IndexCheck:
    """Return the times in a segment's batches, and check its time index; cached.

    `path` is the files' path up to the base offset, `temporary` follows the suffix (``.swap``).
    Copy the result's error before raising it. Raises `SegmentGoneError` if the log is missing.
    """
    identity = _identity(path, temporary)
    known = _cache.get((identity, is_active))
    if known is None:
        began = time.time_ns()
        known = _checked(base_offset, read_entries(), open_log, identity)
        if _is_settled(identity, began) and _identity(path, temporary) == identity:
            if len(_cache) >= MAX_CACHED_SEGMENTS:
                _cache.clear()
            _cache[identity, is_active] = known
    if known.error is None:
        return known
    # The same file may have been read under another name.
    return known._replace(error=known.error.located(to_path(f"{path}.log{temporary}")))


def _checked(
    base_offset: int,
    entries: NDArray[np.void],
    open_log: Callable[[], LogFile],
    identity: _Identity,
) -> IndexCheck:
    """Scan a log; no record before an entry's batch may be later than the entry."""
    offsets, timestamps = entries["offset"], entries["timestamp"]
    holds = bool((np.diff(offsets) >= 0).all() and (np.diff(timestamps) >= 0).all())
    largest, slot, end_offset = -1, 0, base_offset
    with open_log() as log:
        try:
            for run in log.runs(verify_crc=True):
                last_offsets = run.headers["last_offset"]
                so_far = np.maximum.accumulate(np.maximum(run.headers["max_timestamp"], largest))
                following = int(np.searchsorted(offsets, last_offsets[-1], side="right"))
                if holds and following > slot:
                    batches = np.searchsorted(last_offsets, offsets[slot:following])
                    holds = bool((so_far[batches] <= timestamps[slot:following]).all())
                    slot = following
                largest, end_offset = int(so_far[-1]), int(last_offsets[-1]) + 1
        except CorruptionError as error:
            # The offsets of a corrupt batch may be those of records before it.
            with suppress(CorruptionError):
                first_offset = log.first_offset_at(error.position or 0)
                end_offset = end_offset if first_offset is None else min(end_offset, first_offset)
            return IndexCheck(largest, False, identity, end_offset, error.again())
    return IndexCheck(largest, holds and slot == len(entries), identity, end_offset)


def _is_settled(identity: _Identity, now: int) -> bool:
    """Return whether the next change of a file is sure to get a later time."""
    changed = identity[4::5]
    return bool(changed) and max(changed) + SETTLED_NS < now


def _identity(path: str, temporary: str) -> _Identity:
    return tuple(
        number
        for suffix in (".log", ".timeindex")
        for number in _identity_of(to_path(f"{path}{suffix}{temporary}"))
    )


def _identity_of(path: Path) -> _Identity:
    try:
        status = path.stat()
    except OSError:
        return ()
    return (
        status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
    )
