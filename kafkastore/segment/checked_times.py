"""How far time indexes are trusted, and what the batches of a segment say of its own.

The batches of a segment are read once in a process, with their checksums: what they said is
remembered as long as the files are the same.
"""
from __future__ import annotations

import time
from collections.abc import Callable
from copy import copy
from pathlib import Path
from typing import Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from kafkastore.arguments import check_choice
from kafkastore.errors import CorruptionError
from kafkastore.paths import to_path
from kafkastore.segment.log_file import LogFile

Indexes = Literal["check", "trust", "ignore"]
#: The first is the default of every lookup and every reader from a time on.
INDEXES: tuple[Indexes, ...] = get_args(Indexes)
DEFAULT_INDEXES = INDEXES[0]

#: So many segments are remembered; behind them everything is forgotten.
MOST_REMEMBERED = 100_000

#: Of file systems whose times have a resolution of a second, or two.
SETTLED_NS = 3_000_000_000

_Identity = tuple[int, ...]


class CheckedTimes(NamedTuple):
    """What the batches of a segment say, all of them read once, with their checksums.

    Parameters
    ----------
    largest_timestamp : int
        ms; -1 where no batch has a timestamp.
    index_holds : bool
        Whether every entry of the time index is true: no batch before the one that holds its offset
        is later.
    identity : tuple of int
        Device, inode, size, times of the last modification and of the last change, of the log and
        of its time index.
    end_offset : int
        After the last batch read.
    error : CorruptionError or None
        Why nothing is known of what follows that.
    """

    largest_timestamp: int
    index_holds: bool
    identity: _Identity
    end_offset: int
    error: CorruptionError | None = None


#: By what the files are, and by whether another segment follows: only the last may be torn.
_remembered: dict[tuple[_Identity, bool], CheckedTimes] = {}


def known_indexes(indexes: str) -> Indexes:
    """Return how far to trust indexes; another text is a ValueError."""
    return check_choice("indexes", indexes, INDEXES)


def check_times(
    path: str,
    base_offset: int,
    read_entries: Callable[[], NDArray[np.void]],
    open_log: Callable[[], LogFile],
    temporary: str,
    *,
    is_active: bool,
) -> CheckedTimes:
    """Read a segment's batches, once for the same files, and check its time index by them.

    Parameters
    ----------
    path : str
        Of its files, without what follows the base offset in their names.
    base_offset : int
        Of the segment.
    read_entries : callable
        Returns the entries of its time index, absolute offsets.
    open_log : callable
        Returns its `LogFile`.
    temporary : str
        What follows the names of all its files, such as ``.swap``.
    is_active : bool
        Whether it is the last segment of its log.

    Returns
    -------
    CheckedTimes
        To be raised, an error is copied: threads share this one.

    Raises
    ------
    SegmentGoneError
        If the log is not there when it is to be opened.
    """
    identity = _identity(path, temporary)
    known = _remembered.get((identity, is_active))
    if known is None:
        began = time.time_ns()
        known = _checked(base_offset, read_entries(), open_log, identity)
        if _is_settled(identity, began) and _identity(path, temporary) == identity:
            if len(_remembered) >= MOST_REMEMBERED:
                _remembered.clear()
            _remembered[identity, is_active] = known
    return known


def _checked(
    base_offset: int,
    entries: NDArray[np.void],
    open_log: Callable[[], LogFile],
    identity: _Identity,
) -> CheckedTimes:
    """Go over a log; an entry promises that no record before the batch of its offset is later."""
    offsets, timestamps = entries["offset"], entries["timestamp"]
    holds = bool((np.diff(offsets) >= 0).all() and (np.diff(timestamps) >= 0).all())
    largest, slot, end_offset = -1, 0, base_offset
    try:
        with open_log() as log:
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
        # A copy does not keep what was on the stack.
        return CheckedTimes(largest, False, identity, end_offset, copy(error))
    return CheckedTimes(largest, holds and slot == len(entries), identity, end_offset)


def _is_settled(identity: _Identity, now: int) -> bool:
    """Whether the next change of a file is sure to get another time than its last one."""
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
