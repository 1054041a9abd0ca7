"""Wait until a log that a client is at the end of has changed.

All clients that wait for a log share one look at it. A log is looked at often after a change, and
ever less while it stays as it is.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Hashable, Iterable, Sequence
from concurrent.futures import Executor
from typing import Generic, Protocol, TypeVar

#: How long after a look the next one is, s: at first, and at most.
SHORTEST_PAUSE, LONGEST_PAUSE = 0.02, 0.32
_GROWTH = 2


class Changing(Hashable, Protocol):
    """A log, whose state is another when it has changed; reading it may take time."""

    @property
    def state(self) -> object:
        """What is compared."""


LogT = TypeVar("LogT", bound=Changing)


class _Watched:
    """A log that clients wait for."""

    def __init__(self) -> None:
        self.waiting: dict[asyncio.Event, object] = {}
        self.pause = SHORTEST_PAUSE


class LogWatch(Generic[LogT]):
    """The logs that clients wait for; its methods are for one event loop."""

    def __init__(self, threads: Executor) -> None:
        self._threads = threads
        self._watched: dict[LogT, _Watched] = {}
        self._due: list[tuple[float, int, LogT]] = []
        self._numbers = itertools.count()
        self._task: asyncio.Task[None] | None = None

    def close(self) -> None:
        """Look at nothing any more."""
        if self._task is not None:
            self._task.cancel()

    def wake(self) -> None:
        """End the waiting of all clients."""
        for watched in self._watched.values():
            for changed in watched.waiting:
                changed.set()

    async def wait(self, states: Sequence[tuple[LogT, object]], seconds: float) -> bool:
        """Wait until a log has another state, or some seconds; return which."""
        changed = asyncio.Event()
        for log, state in states:
            self._watch(log).waiting[changed] = state
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._look())
        try:
            async with asyncio.timeout(seconds):
                await changed.wait()
        except TimeoutError:
            pass
        finally:
            for log, _ in states:
                watched = self._watched.get(log)
                if watched is not None:
                    watched.waiting.pop(changed, None)
        return changed.is_set()

    def _watch(self, log: LogT) -> _Watched:
        watched = self._watched.get(log)
        if watched is None:
            watched = self._watched[log] = _Watched()
            self._plan(log, watched)
        return watched

    def _plan(self, log: LogT, watched: _Watched) -> None:
        now = asyncio.get_running_loop().time()
        heapq.heappush(self._due, (now + watched.pause, next(self._numbers), log))

    async def _look(self) -> None:
        """Look at each log when its time has come, until no client waits."""
        loop = asyncio.get_running_loop()
        while self._due:
            await asyncio.sleep(max(self._due[0][0] - loop.time(), SHORTEST_PAUSE))
            logs = []
            while self._due and self._due[0][0] <= loop.time():
                log = heapq.heappop(self._due)[2]
                if self._watched[log].waiting:
                    logs.append(log)
                else:
                    del self._watched[log]
            states = await loop.run_in_executor(self._threads, _states, logs)
            for log, state in zip(logs, states, strict=True):
                watched = self._watched[log]
                changed = [
                    event for event, known in watched.waiting.items() if known != state
                ]
                for event in changed:
                    event.set()
                watched.pause = SHORTEST_PAUSE if changed else min(
                    watched.pause * _GROWTH, LONGEST_PAUSE
                )
                self._plan(log, watched)


def _states(logs: Iterable[Changing]) -> list[object]:
    return [log.state for log in logs]
