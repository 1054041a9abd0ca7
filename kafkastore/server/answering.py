"""Requests that read files: threads answer them, and send the responses.

A slow disk holds up no other client then. `docs/design/server.md` has the measurements.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple

from kafkastore.errors import CorruptionError, UnsupportedFormatError
from kafkastore.formats.messages.message_table import Values
from kafkastore.formats.requests.apis import (
    RequestHeader,
    pack_response,
    parse_request,
    parse_request_header,
)
from kafkastore.server.client import Client
from kafkastore.server.fetch.batches import size_of
from kafkastore.server.fetch.waiting import LogWatch
from kafkastore.server.metrics import ServerMetrics
from kafkastore.server.sending import DirectSender, Parts
from kafkastore.server.served_log import ServedLog

#: A slow client holds one up for a moment, and so does one that may ask again at once.
_THREADS = 64
#: How often it is looked whether a client that waits has left, s.
LOOK_FOR_CLIENT_EVERY = 0.5


class Asked(NamedTuple):
    """A request."""

    header: RequestHeader
    request: Values


#: Answers a request that is like the one before, from its frame without the size; or returns None.
Repeat = Callable[[bytes], Parts | None]


class Repeatable(NamedTuple):
    """A response, and what answers requests like this one once it is packed."""

    response: Values
    begin_repeat: Callable[[Parts], Repeat]


class Waiting(NamedTuple):
    """A request that waits for more in logs, each with its state before it was read.

    `again` answers it then; its argument is whether a log has changed before the deadline.
    """

    states: Sequence[tuple[ServedLog, object]]
    deadline: float
    again: Callable[[bool], Values | Repeatable | Waiting]


class _Paused(NamedTuple):
    """A request for which no thread waits."""

    asked: Asked
    waiting: Waiting


class Answering:
    """Threads that answer requests and send the responses, for one event loop."""

    def __init__(self, handlers: Mapping[int, object], metrics: ServerMetrics | None) -> None:
        self._handlers, self._metrics = handlers, metrics
        self._threads = ThreadPoolExecutor(_THREADS, "kafkastore-serve")
        self._watching = ThreadPoolExecutor(1, "kafkastore-watch")
        self._watch: LogWatch[ServedLog] = LogWatch(self._watching)
        self._is_waiting_over = False
        #: The bytes of responses that are in memory because their clients are slow.
        self.waiting_bytes = 0

    @contextmanager
    def waiting(self, parts: Parts) -> Iterator[None]:
        """Count what is in memory of a response while the block runs; for the event loop."""
        size = sum(len(each) for each in parts if isinstance(each, bytes))
        self.waiting_bytes += size
        try:
            yield
        finally:
            self.waiting_bytes -= size

    def stop_waiting(self) -> None:
        """Answer the requests that wait, with what there is."""
        self._is_waiting_over = True
        self._watch.wake()

    def is_over(self, client: Client) -> bool:
        """Return whether a client no longer waits for anything."""
        return self._is_waiting_over or client.has_left()

    def close(self) -> None:
        """End the threads."""
        self._watch.close()
        for threads in (self._threads, self._watching):
            threads.shutdown(wait=False, cancel_futures=True)

    def pack(self, header: RequestHeader, response: Values, client: Client) -> Parts:
        """Pack a response, and count what is in it."""
        if self._metrics is not None:
            self._metrics.count_errors(header.api_key, response)
        parts = pack_response(header, response)
        client.response_bytes = sum(map(size_of, parts))
        return parts

    def end_answer(self, client: Client) -> None:
        """Count a request whose response was sent."""
        seconds = client.end_answer()
        if self._metrics is not None:
            self._metrics.answered(client.api_key, client.response_bytes, seconds)

    async def run(
        self, asked: Asked, answer: Callable[[], Values | Repeatable | Waiting], client: Client
    ) -> Parts:
        """Answer a request in a thread; return what is left to send."""
        sender = client.sender
        assert sender is not None
        while True:
            found = await sender.run(
                self._threads, partial(self._answer_all, asked, answer, client, sender)
            )
            if not isinstance(found, _Paused):
                return found
            asked, waiting = found
            answer = partial(waiting.again, await self._wait(waiting, client))

    async def _wait(self, waiting: Waiting, client: Client) -> bool:
        """Wait until a log has another state, or no request waits for that; return which."""
        while not self.is_over(client):
            left = waiting.deadline - time.monotonic()
            if left <= 0:
                break
            if await self._watch.wait(waiting.states, min(left, LOOK_FOR_CLIENT_EVERY)):
                return not self._is_waiting_over
        return False

    def _answer_all(
        self,
        asked: Asked,
        answer: Callable[[], Values | Repeatable | Waiting],
        client: Client,
        sender: DirectSender,
    ) -> Parts | _Paused:
        """Answer a request, and those that follow at once."""
        while True:
            response, begin_repeat = answer(), None
            if isinstance(response, Waiting):
                return _Paused(asked, response)
            if isinstance(response, Repeatable):
                response, begin_repeat = response
            parts = self.pack(asked.header, response, client)
            repeat = None if begin_repeat is None else begin_repeat(parts)
            left, following = self._send(parts, sender)
            while following is not None and repeat is not None:
                repeated = repeat(following)
                if repeated is None:
                    break
                self._begin_next(client, sender)
                client.response_bytes = sum(map(size_of, repeated))
                left, following = self._send(repeated, sender)
            parsed = None if following is None else _parse(following)
            handler = None if parsed is None else self._handlers.get(parsed.header.api_key)
            if parsed is None or not isinstance(handler, InThread):
                return left
            self._begin_next(client, sender)
            client.note(parsed.header)
            asked, answer = parsed, partial(handler.answer, parsed)

    def _begin_next(self, client: Client, sender: DirectSender) -> None:
        """Take the request that followed: the response before it was sent."""
        sender.take_request()
        self.end_answer(client)
        client.begin_answer()

    def _send(self, parts: Parts, sender: DirectSender) -> tuple[Parts, bytes | None]:
        """Send a response; return what is left of it, or else what the client asks next."""
        left = sender.send(parts)
        return left, None if left or self._is_waiting_over else sender.next_request()


class InThread:
    """A handler of requests, whose `answer` runs in a thread.

    The thread also answers what the client asks next, if that has such a handler.
    """

    def __init__(
        self, answer: Callable[[Asked], Values | Repeatable | Waiting], answering: Answering
    ) -> None:
        self.answer, self._answering = answer, answering

    async def __call__(self, request: Values, header: RequestHeader, client: Client) -> Parts:
        """Answer; return what is left to send."""
        asked = Asked(header, request)
        return await self._answering.run(asked, partial(self.answer, asked), client)


def _parse(frame: bytes) -> Asked | None:
    """Parse a request; None if the loop is to refuse it."""
    try:
        header, position = parse_request_header(frame)
        return Asked(header, parse_request(header, frame, position))
    except (CorruptionError, UnsupportedFormatError):
        return None
