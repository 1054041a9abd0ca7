"""Process items in several threads; results come in the order of the items.

Only a few items are in memory at a time.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import count
from threading import Condition, Thread
from typing import TYPE_CHECKING, Generic, Self, TypeVar

if TYPE_CHECKING:
    from concurrent.futures import Future

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")

#: A useful `idle_seconds` where an item takes about as long as a thread needs to start.
IDLE_SECONDS = 0.1
#: Queued items per thread, unless said otherwise; as many results may wait for a slow one.
_QUEUED_PER_THREAD = 2


class StopFlag:
    """A flag that asks for an early end of work.

    The garbage collector may set it in a thread that holds any lock. A `threading.Event` has a lock
    of its own, and could deadlock.
    """

    __slots__ = ("is_set",)

    def __init__(self) -> None:
        self.is_set = False

    def __call__(self) -> bool:
        """Return whether the flag is set."""
        return self.is_set


class _Shared(Generic[ItemT, ResultT]):
    """The state that the threads share; it must not refer to the iterator.

    Otherwise an iterator that its owner drops would never be freed.
    """

    def __init__(
        self, work: Callable[[ItemT], ResultT], stop: StopFlag, idle_seconds: float
    ) -> None:
        self.work, self.stop, self.idle_seconds = work, stop, idle_seconds
        self.changed = Condition()
        self.queue: deque[tuple[ItemT, Future[ResultT]]] = deque()
        self.running = self.idle = 0

    def result_of(self, item: ItemT) -> ResultT:
        """Process one item; a StopIteration would end the results before their end."""
        try:
            return self.work(item)
        except StopIteration as error:
            raise RuntimeError("the work on an item raised StopIteration") from error

    def run(self) -> None:
        """Process the queue, and end when it is empty for long enough."""
        while True:
            with self.changed:
                if self.idle_seconds and not self.queue and not self.stop.is_set:
                    self.idle += 1
                    self.changed.wait(self.idle_seconds)
                    self.idle -= 1
                if self.stop.is_set or not self.queue:
                    self.running -= 1
                    return
                item, future = self.queue.popleft()
            self.process(item, future)
            del item, future  # only the owner keeps a result

    def process(self, item: ItemT, future: Future[ResultT]) -> None:
        """Process one item of the queue."""
        try:
            future.set_result(self.result_of(item))
        except BaseException as error:  # raised again in the owner's thread
            future.set_exception(error)


class ParallelMap(Iterator[ResultT], Generic[ItemT, ResultT]):
    """The results for all items, in order; leaving a `with` block ends the threads.

    An error in `work` is raised at its item's turn; no further items start. `close`, the last
    result and an error wait for the threads. After a fork, the next result is an error. If the
    owner helps, it counts as one of the threads, and must call `help`, or take the results from
    `helped`. A thread waits for work for `idle_seconds` before it ends.
    """

    # `items` are taken one by one, so memory does not grow with a store (`Executor.map` takes all
    # at once). The garbage collector only sets `stop`: it may run in a thread that holds a lock of
    # `threading` that every ending thread needs.

    def __init__(
        self,
        work: Callable[[ItemT], ResultT],
        items: Iterable[ItemT],
        threads: int,
        name: str,
        *,
        stop: StopFlag | None = None,
        queued: int = _QUEUED_PER_THREAD,
        owner_helps: bool = False,
        idle_seconds: float = 0,
    ) -> None:
        self._stop = StopFlag() if stop is None else stop
        self._shared = _Shared(work, self._stop, idle_seconds)
        self._items = iter(items)
        self._most_waiting = queued * threads
        self._limit, self._names = threads, map(f"{name}_{{}}".format, count())
        self._most_running = threads - owner_helps
        self._waiting: deque[Future[ResultT]] = deque()
        self._threads: list[Thread] = []
        self._process = os.getpid()

    def __next__(self) -> ResultT:
        """Return the next result; wait for it."""
        try:
            if self._limit == 1 and not self._stop.is_set:
                return self._shared.result_of(next(self._items))
            if os.getpid() != self._process and not self._stop.is_set:
                raise RuntimeError(
                    "this work began before the process was forked, and its threads are in the "
                    "parent process; start it again"
                )
            self.begin()
            if self._stop.is_set or not self._waiting:
                raise StopIteration
            return self._waiting.popleft().result()
        except BaseException:
            self.close()
            raise

    def begin(self) -> None:
        """Let threads begin as many items as may wait for their turn."""
        if self._limit == 1:
            return
        while len(self._waiting) <= self._most_waiting and not self._stop.is_set:
            try:
                self._submit(next(self._items))
            except StopIteration:
                break

    def help(self, *, leave: int) -> bool:
        """Process an item in the owner's thread if more than `leave` wait for a thread."""
        with self._shared.changed:
            if len(self._shared.queue) <= leave:
                return False
            item, future = self._shared.queue.popleft()
        self._shared.process(item, future)
        return True

    def helped(self) -> Iterator[ResultT]:
        """Yield the results; while one is not there, process items in this thread."""
        while True:
            self.begin()
            while not self.is_next_ready and self.help(leave=0):
                pass
            try:
                result = next(self)
            except StopIteration:
                return
            yield result
            del result  # only the caller keeps it

    @property
    def is_next_ready(self) -> bool:
        """Whether the next result is there, or an error in its place."""
        return bool(self._waiting) and self._waiting[0].done()

    def close(self) -> None:
        """Start no further items, and wait for the running ones; safe to repeat."""
        self._stop.is_set = True
        if os.getpid() == self._process:    # a lock may have been held during a fork
            with self._shared.changed:
                self._shared.changed.notify_all()
        for thread in self._threads:
            if thread.ident is not None:  # an interrupt may come before the thread starts
                thread.join()
        self._threads = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __del__(self) -> None:
        self._stop.is_set = True  # must not wait: see the class

    def _submit(self, item: ItemT) -> None:
        """Queue an item, and start a thread for it if the limit allows."""
        from concurrent.futures import Future  # with logging: most commands start no thread

        future: Future[ResultT] = Future()
        self._waiting.append(future)
        with self._shared.changed:
            self._shared.queue.append((item, future))
            if self._shared.idle >= len(self._shared.queue):
                self._shared.changed.notify()
                return
            if self._shared.running == self._most_running:
                return
            self._shared.running += 1
        self._threads = [each for each in self._threads if each.is_alive()]
        self._threads.append(Thread(target=self._shared.run, name=next(self._names)))
        self._threads[-1].start()
