"""Work on many items with several threads, results in the order of the items, a few at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from itertools import count
from threading import Lock, Thread
from typing import Generic, Self, TypeVar

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")

#: How many items each thread has before it; as many results may wait for a slow one before them.
_AHEAD = 2


class Stop:
    """Whether work is to end early: an attribute and nothing more.

    The garbage collector may set it, in a thread that holds any lock. A `threading.Event` has a
    lock of its own, and is not for that.
    """

    __slots__ = ("is_set",)

    def __init__(self) -> None:
        self.is_set = False

    def __call__(self) -> bool:
        """Whether it is set."""
        return self.is_set


class _Shared(Generic[ItemT, ResultT]):
    """What the threads know. They do not know the iterator, which an owner may forget."""

    def __init__(self, work: Callable[[ItemT], ResultT], stop: Stop) -> None:
        self.work, self.stop = work, stop
        self.lock = Lock()
        self.queue: deque[tuple[ItemT, Future[ResultT]]] = deque()
        self.running = 0

    def run(self) -> None:
        """Do what is queued. A thread ends when nothing is: none waits for an owner to return."""
        while True:
            with self.lock:
                if self.stop.is_set or not self.queue:
                    self.running -= 1
                    return
                item, future = self.queue.popleft()
            try:
                future.set_result(self.work(item))
            except BaseException as error:  # raised again in the owner's thread
                future.set_exception(error)
            del item, future  # a result is kept by its owner alone


class SideBySide(Iterator[ResultT], Generic[ItemT, ResultT]):
    """The results for each item, in their order; the end of a `with` block ends the threads.

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
    stop : Stop, optional
        Set at the end, for long work to look at.

    Notes
    -----
    What `work` raises is raised when its item's turn comes; what is not begun then is not done.

    `close`, the end of a `with` block, the last result and an error wait for the threads. An
    iterator that is dropped does not: the garbage collector may drop it in any thread, such as one
    that is starting and holds a lock of `threading` that every ending thread needs. The threads see
    `stop` and end by themselves.
    """

    def __init__(
        self,
        work: Callable[[ItemT], ResultT],
        items: Iterable[ItemT],
        threads: int,
        name: str,
        *,
        stop: Stop | None = None,
    ) -> None:
        self._stop = Stop() if stop is None else stop
        self._shared = _Shared(work, self._stop)
        self._items = iter(items)
        self._limit, self._names = threads, map(f"{name}_{{}}".format, count())
        self._waiting: deque[Future[ResultT]] = deque()
        self._threads: list[Thread] = []

    def __next__(self) -> ResultT:
        """Return the next result; wait for it."""
        try:
            if self._limit == 1 and not self._stop.is_set:
                return self._shared.work(next(self._items))
            while len(self._waiting) <= _AHEAD * self._limit and not self._stop.is_set:
                try:
                    self._submit(next(self._items))
                except StopIteration:
                    break
            if self._stop.is_set or not self._waiting:
                raise StopIteration
            return self._waiting.popleft().result()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Begin nothing more, and wait for what has begun; safe to repeat."""
        self._stop.is_set = True
        for thread in self._threads:
            if thread.ident is not None:  # an interrupt may come before it starts
                thread.join()
        self._threads = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __del__(self) -> None:
        self._stop.is_set = True  # see the notes: nothing here may wait

    def _submit(self, item: ItemT) -> None:
        """Queue an item, and have a thread for it."""
        future: Future[ResultT] = Future()
        self._waiting.append(future)
        with self._shared.lock:
            self._shared.queue.append((item, future))
            if self._shared.running == self._limit:
                return
            self._shared.running += 1
        self._threads = [each for each in self._threads if each.is_alive()]
        self._threads.append(Thread(target=self._shared.run, name=next(self._names)))
        self._threads[-1].start()
