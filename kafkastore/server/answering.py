"""Requests that read files: threads answer them, and send the responses.

A slow disk holds up no other client then.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial
from typing import NamedTuple, Protocol

from kafkastore.errors import CorruptionError, UnsupportedFormatError
from kafkastore.formats.messages.message_table import Values
from kafkastore.formats.requests.apis import (
    RequestHeader,
    pack_response,
    parse_request,
    parse_request_header,
)
from kafkastore.server.sending import DirectSender, Parts
from kafkastore.server.served_log import ServedLog

#: How often a log that a client waits for is looked at, s.
_LOOK_EVERY = 0.05


class Asked(NamedTuple):
    """A request, and when it arrived, s."""

    header: RequestHeader
    request: Values
    arrived: float

    @property
    def deadline(self) -> float:
        """Until when a client waits for records."""
        wait_ms: int = self.request["max_wait_ms"]
        return self.arrived + max(wait_ms, 0) / 1000


class Waiting(NamedTuple):
    """A request that waits for more in logs, each with its state before it was read."""

    asked: Asked
    logs: tuple[tuple[ServedLog, tuple[int, ...]], ...]

    async def wait(self) -> None:
        """Wait until one of the logs has changed, or until the client's time."""
        while (left := self.asked.deadline - time.monotonic()) > 0:
            await asyncio.sleep(min(left, _LOOK_EVERY))
            if any(log.state != before for log, before in self.logs):
                return


class HasSender(Protocol):
    """A client."""

    @property
    def sender(self) -> DirectSender:
        """Its socket, for a thread."""


class InThread:
    """A handler of requests, whose `answer` runs in one of some threads.

    The thread also answers what the client asks next, if `find` has such a handler for it.
    """

    def __init__(
        self,
        answer: Callable[[Asked], Values | Waiting],
        find: Callable[[int], object],
        threads: Executor,
    ) -> None:
        self.answer, self._find, self._threads = answer, find, threads

    async def __call__(self, request: Values, header: RequestHeader, client: HasSender) -> Parts:
        """Answer; return what is left to send."""
        asked = Asked(header, request, time.monotonic())
        while True:
            found = await client.sender.run(
                self._threads, partial(self._answer_all, asked, client.sender)
            )
            if not isinstance(found, Waiting):
                return found
            asked = found.asked
            await found.wait()

    def _answer_all(self, asked: Asked, sender: DirectSender) -> Parts | Waiting:
        """Answer a request, and those that follow at once."""
        handler = self._find(asked.header.api_key)
        assert isinstance(handler, InThread)
        while True:
            response = handler.answer(asked)
            if isinstance(response, Waiting):
                return response
            left = sender.send(pack_response(asked.header, response))
            following = None if left else sender.next_request()
            parsed = None if following is None else _parse(following)
            handler = None if parsed is None else self._find(parsed.header.api_key)
            if parsed is None or not isinstance(handler, InThread):
                return left
            sender.take_request()
            asked = parsed


def _parse(frame: bytes) -> Asked | None:
    """Parse a request; None if the loop is to refuse it."""
    try:
        header, position = parse_request_header(frame)
        return Asked(header, parse_request(header, frame, position), time.monotonic())
    except (CorruptionError, UnsupportedFormatError):
        return None
