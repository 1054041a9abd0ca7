"""Work on many things by several threads, in their order, a few at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from threading import get_ident
from typing import TypeVar

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")

#: How many items each thread has before it; as many results may wait for a slow one before them.
_AHEAD = 2


def side_by_side(
    work: Callable[[ItemT], ResultT],
    items: Iterable[ItemT],
    threads: int,
    name: str,
    *,
    give_up: Callable[[], None] | None = None,
) -> Iterator[ResultT]:
    """Yield what comes of each item, in their order.

    Parameters
    ----------
    work : callable
        Called with each item, on one of the threads.
    items : iterable
        Taken when their turn comes: so that a store of any size takes no more memory than a part of
        it. `Executor.map` takes all of them at once.
    threads : int
        How many; with one, the caller's own does the work.
    name : str
        What the threads' names begin with.
    give_up : callable, optional
        Called at the end, before threads that still work are waited for.

    Yields
    ------
    object
        What `work` returns.

    Notes
    -----
    What `work` raises is raised when its item's turn comes; what is not begun then is not done.
    """
    if threads == 1:
        yield from map(work, items)
        return
    waiting: deque[Future[ResultT]] = deque()
    workers: set[int] = set()
    pool = ThreadPoolExecutor(threads, name, lambda: workers.add(get_ident()))
    try:
        for item in items:
            waiting.append(pool.submit(work, item))
            if len(waiting) > _AHEAD * threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        if give_up is not None:
            give_up()
        # The collector closes a generator that nobody wants any more in whatever thread it runs.
        pool.shutdown(wait=get_ident() not in workers, cancel_futures=True)
