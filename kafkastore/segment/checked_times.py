"""How far time indexes are trusted, and what the headers of a segment say of its own.

The headers of a segment are gone through once in a process: what they said is remembered as long
as the files are the same.
"""
from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Literal, NamedTuple

from kafkastore.remote.sparse_files import status_of
from kafkastore.segment import segment_glimpse
from kafkastore.segment.log_file import LogFile

Indexes = Literal["check", "trust", "ignore"]
#: For every lookup and every reader from a time on; the one that is right whatever indexes say.
DEFAULT_INDEXES: Indexes = "check"
_KNOWN = ("check", "trust", "ignore")

#: So many segments are remembered; behind them everything is forgotten.
MOST_REMEMBERED = 100_000

_Identity = tuple[int, ...]
_remembered: dict[_Identity, CheckedTimes] = {}


class CheckedTimes(NamedTuple):
    """What the headers of all batches say.

    Parameters
    ----------
    largest_timestamp : int
        ms; -1 where no batch has a timestamp.
    index_holds : bool
        Whether every entry of the time index is true: no batch before the one that holds its offset
        is later.
    identity : tuple of int
        Device, inode, size and modification time of the log and of its time index.
    """

    largest_timestamp: int
    index_holds: bool
    identity: _Identity


def known_indexes(indexes: str) -> Indexes:
    """Return how far indexes are trusted, if it is a way.

    Raises
    ------
    ValueError
        If it is none.
    """
    for known in _KNOWN:
        if indexes == known:
            return known  # type: ignore[return-value]
    raise ValueError(f"indexes must be 'check', 'trust' or 'ignore', got {indexes!r}")


def check_times(
    path: str, base_offset: int, open_log: Callable[[], LogFile], temporary: str
) -> CheckedTimes | None:
    """Check a segment's time index by the headers of its log, once for the same files.

    Parameters
    ----------
    path, base_offset, open_log, temporary
        As for `segment_glimpse.check_time_index`.

    Returns
    -------
    CheckedTimes or None
        None where the log is missing or can't be read.

    Raises
    ------
    CorruptBatchError, UnsupportedFormatError, SegmentGoneError
        As from `segment_glimpse.check_time_index`.
    """
    identity = _identity(path, temporary)
    known = _remembered.get(identity)
    if known is None:
        found = segment_glimpse.check_time_index(path, base_offset, open_log, temporary)
        if found is None:
            return None
        known = CheckedTimes(*found, identity)
        if _identity(path, temporary) == identity:
            if len(_remembered) >= MOST_REMEMBERED:
                _remembered.clear()
            _remembered[identity] = known
    return known


def _identity(path: str, temporary: str) -> _Identity:
    return tuple(
        number
        for suffix in (".log", ".timeindex")
        for number in _identity_of(Path(f"{path}{suffix}{temporary}"))
    )


def _identity_of(path: Path) -> _Identity:
    try:
        status = status_of(path)
    except OSError:
        return ()
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
