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
    parse_request,
    parse_request_header,
)
from kafkastore.server.client import Client
from kafkastore.server.sending import DirectSender, Parts
from kafkastore.server.served_log import ServedLog

#: How often a log that a client waits for is looked at, s.
_LOOK_EVERY = 0.05


class Asked(NamedTuple):
    """A request, whose it is, and when it arrived, s."""

    header: RequestHeader
    request: Values
    client: Client
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

    async def wait(self, is_over: Callable[[Client], bool]) -> None:
        """Wait until one of the logs has changed, or until the client's time."""
        while (left := self.asked.deadline - time.monotonic()) > 0:
            await asyncio.sleep(min(left, _LOOK_EVERY))
            if is_over(self.asked.client):
                return
            if any(log.state != before for log, before in self.logs):
                return


class AnsweringNode(Protocol):
    """What has the handlers of all requests, and counts responses."""

    def find(self, api_key: int) -> object:
        """Return the handler of a request."""

    def is_over(self, client: Client) -> bool:
        """Return whether a client no longer waits, and nothing of it is read ahead."""

    def pack(self, header: RequestHeader, response: Values, client: Client) -> Parts:
        """Pack a response, and count what is in it."""

    def end_answer(self, client: Client) -> None:
        """Count the request of a client whose response was sent."""


class InThread:
    """A handler of requests, whose `answer` runs in one of some threads.

    The thread also answers what the client asks next, if the node has such a handler for it.
    """

    def __init__(
        self,
        answer: Callable[[Asked], Values | Waiting],
        node: AnsweringNode,
        threads: Executor,
    ) -> None:
        self.answer, self._node, self._threads = answer, node, threads

    async def __call__(self, request: Values, header: RequestHeader, client: Client) -> Parts:
        """Answer; return what is left to send."""
        asked, sender = Asked(header, request, client, time.monotonic()), client.sender
        assert sender is not None
        while True:
            found = await sender.run(self._threads, partial(self._answer_all, asked, sender))
            if not isinstance(found, Waiting):
                return found
            asked = found.asked
            await found.wait(self._node.is_over)

    def _answer_all(self, asked: Asked, sender: DirectSender) -> Parts | Waiting:
        """Answer a request, and those that follow at once."""
        node, client = self._node, asked.client
        handler = node.find(asked.header.api_key)
        assert isinstance(handler, InThread)
        while True:
            response = handler.answer(asked)
            if isinstance(response, Waiting):
                return response
            left = sender.send(node.pack(asked.header, response, client))
            following = None if left or node.is_over(client) else sender.next_request()
            parsed = None if following is None else _parse(following, client)
            handler = None if parsed is None else node.find(parsed.header.api_key)
            if parsed is None or not isinstance(handler, InThread):
                return left
            sender.take_request()
            node.end_answer(client)
            client.begin_answer(parsed.header)
            asked = parsed


def _parse(frame: bytes, client: Client) -> Asked | None:
    """Parse a request; None if the loop is to refuse it."""
    try:
        header, position = parse_request_header(frame)
        request = parse_request(header, frame, position)
        return Asked(header, request, client, time.monotonic())
    except (CorruptionError, UnsupportedFormatError):
        return None
