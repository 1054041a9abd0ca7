"""Limit how many objects of the process keep their ``.log`` open.

The most recently used ones do. Opening a file costs about as much as a search in it, and a store
may have more segments than a process may have open files.
"""
from __future__ import annotations

import resource
from collections import deque
from typing import Protocol
from weakref import ReferenceType, ref

MAX_OPEN_LOGS = 128
#: Share of the process's limit of open files.
MAX_SHARE_OF_OPEN_FILES = 1 / 8


class LogKeeper(Protocol):
    """What keeps a log open."""

    def clear_used(self) -> bool:
        """Return whether the log was used since the last call."""

    def close_log(self) -> None:
        """Close the log as soon as nothing is using it."""


#: Used without a lock, because a finalizer or a forked process might wait for it. Each thread
#: removes the element that it looks at.
_open: deque[ReferenceType[LogKeeper]] = deque()


def register(keeper: LogKeeper) -> None:
    """Register an object that opened its log; close logs not used lately.

    The object is not kept alive. A thread that still reads a closed log holds a reference to it,
    and the file is closed when that reference goes.
    """
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = MAX_OPEN_LOGS
    if limit != resource.RLIM_INFINITY:
        most = max(1, min(most, int(limit * MAX_SHARE_OF_OPEN_FILES)))
    # A log that was used since its last turn stays open for one more turn.
    for _ in range(2 * len(_open)):
        if len(_open) < most:
            break
        _close_oldest_unless_used()
    _open.append(ref(keeper))


def close_unused_logs() -> None:
    """Close the logs not used since the last call; a deleted one still takes space."""
    for _ in range(len(_open)):
        _close_oldest_unless_used()


def _close_oldest_unless_used() -> None:
    """Close the oldest log, or give it another turn if it was used since the last."""
    try:
        oldest = _open.popleft()
    except IndexError:  # other threads have removed the rest
        return
    keeper = oldest()
    if keeper is not None and keeper.clear_used():
        _open.append(oldest)
    elif keeper is not None:
        keeper.close_log()


def close_all_logs() -> bool:
    """Close all logs to free their descriptors; return whether there were any."""
    has_closed = False
    while _open:
        try:
            keeper = _open.popleft()()
        except IndexError:  # another thread has removed the rest
            break
        if keeper is not None:
            keeper.close_log()
            has_closed = True
    return has_closed
