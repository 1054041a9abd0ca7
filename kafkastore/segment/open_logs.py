"""Limit how many searches of the process keep their ``.log`` open.

The most recently used ones do. Opening a file costs more than a search in it, and a store may have
more segments than a process may have open files.
"""
from __future__ import annotations

import resource
from collections import deque
from typing import Protocol
from weakref import ReferenceType, ref

MOST_OPEN = 64
#: Share of the process's limit of open files.
LARGEST_SHARE = 1 / 8


class KeepsOpen(Protocol):
    """The methods of `SegmentSearch` that this module uses."""

    def spare(self) -> bool:
        """Return whether the search was used since the last call."""

    def let_go(self) -> None:
        """Close the log, unless a search is using it."""


#: Used without a lock, because a finalizer or a forked process might wait for it. Each thread
#: removes the element that it looks at.
_kept: deque[ReferenceType[KeepsOpen]] = deque()


def keep(search: KeepsOpen) -> None:
    """Register a search that has opened its log; close logs that were not used lately.

    The search is not kept alive. A thread that still reads a closed log holds a reference to it,
    and the file is closed when that reference goes.
    """
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = MOST_OPEN
    if limit != resource.RLIM_INFINITY:
        most = max(1, min(most, int(limit * LARGEST_SHARE)))
    # A search that was used since its last turn keeps its log for one more turn.
    for _ in range(2 * len(_kept)):
        if len(_kept) < most:
            break
        try:
            oldest = _kept.popleft()
        except IndexError:  # other threads have removed the rest
            break
        other = oldest()
        if other is None:
            continue
        if other.spare():
            _kept.append(oldest)
        else:
            other.let_go()
    _kept.append(ref(search))


def let_go_of_all() -> bool:
    """Close the logs of all searches to free descriptors; return whether there were any."""
    has_let_go = False
    while _kept:
        try:
            search = _kept.popleft()()
        except IndexError:  # another thread has removed the rest
            break
        if search is not None:
            search.let_go()
            has_let_go = True
    return has_let_go
