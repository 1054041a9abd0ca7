"""Which searches keep their ``.log`` open: the few that were used last, in the whole process.

Opening a file costs more than a search in it; a store may have more segments than a process may
have open files.
"""
from __future__ import annotations

import resource
from collections import deque
from typing import Protocol
from weakref import ReferenceType, ref

MOST_OPEN = 64
#: Of the files that the process may have open.
LARGEST_SHARE = 1 / 8


class KeepsOpen(Protocol):
    """A search, as far as this module knows it; see `SegmentSearch`."""

    def spare(self) -> bool:
        """Tell whether it was used since this was asked last."""

    def let_go(self) -> None:
        """Close its log, unless a search needs it just now."""


#: Without a lock, for which a finalizer or a forked process might wait: a thread takes out what it
#: looks at.
_kept: deque[ReferenceType[KeepsOpen]] = deque()


def keep(search: KeepsOpen) -> None:
    """Take note that a search has opened its log; one that was not used lately lets go of its own.

    Parameters
    ----------
    search : SegmentSearch
        Not kept alive by this. A thread that is just reading the log that is let go has a reference
        to it, with which the file is closed.
    """
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = MOST_OPEN
    if limit != resource.RLIM_INFINITY:
        most = max(1, min(most, int(limit * LARGEST_SHARE)))
    # Each is spared once for having been used since its last turn.
    for _ in range(2 * len(_kept)):
        if len(_kept) < most:
            break
        try:
            oldest = _kept.popleft()
        except IndexError:  # other threads have taken the rest
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
    """Let every search close its log, where the process has no descriptor left; False: none has."""
    has_let_go = False
    while _kept:
        try:
            search = _kept.popleft()()
        except IndexError:  # another thread has taken the rest
            break
        if search is not None:
            search.let_go()
            has_let_go = True
    return has_let_go
