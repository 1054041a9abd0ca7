"""An event loop in which time passes without waiting, for groups without connections."""

from __future__ import annotations

import asyncio
import selectors
from functools import wraps

from kafkastore.formats.requests.apis import REQUESTS


class Clock(selectors.DefaultSelector):
    """Advances the time instead of waiting."""

    now = 0.0

    def select(self, timeout=None):
        assert timeout is not None, "all wait for each other"
        self.now += max(timeout, 0)
        return super().select(0)


class Loop(asyncio.SelectorEventLoop):
    """An event loop with its own time."""

    def __init__(self):
        self.clock = Clock()
        super().__init__(self.clock)

    def time(self):
        return self.clock.now


def in_loop(test):
    """Run a test in an event loop whose time passes when all wait, and only then."""
    @wraps(test)
    def run(coordinator):
        async def run_and_close():
            try:
                await test(coordinator)
            finally:
                await coordinator.close()

        asyncio.run(coordinator.load())
        with asyncio.Runner(loop_factory=Loop) as runner:
            runner.run(run_and_close())

    return run


def request(key, version, /, **fields):
    """Return a request as the server parses it: with all fields."""
    codec = REQUESTS.known_codec(key, version)
    parsed, _ = codec.parse(codec.pack(fields))
    return parsed


async def ticks():
    """Let everything run that can run."""
    for _ in range(20):
        await asyncio.sleep(0)
