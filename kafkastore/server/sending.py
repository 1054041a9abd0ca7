"""Responses to a socket: bytes from memory, records from their files.

A thread sends the records of a client that takes them at once, in system calls that wait; the event
loop sends those of slow clients, and of TLS. ``docs/design/server.md`` has the measurements.
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from typing import TypeVar

from kafkastore.formats.messages.message_codec import Elsewhere
from kafkastore.server.fetch.batches import FileRange, close_files

#: Twice a broker's ``socket.send.buffer.bytes``. What is sent is still in the core's cache when a
#: client of this machine reads it; to others, the system chooses what the network needs.
SEND_BUFFER_BYTES = 200 * 1024
#: A client that takes less than a third of its buffer in this time is slow, ms.
_PATIENCE_MS = 250
#: A thread looks at the clock after each piece, and gives up a client after some seconds.
_PIECE_BYTES = 1024 * 1024
_MOST_SECONDS = 1
#: How long a thread waits for the next request of a client, ms; who waits takes one of some places.
_STAY_MS = 100
_PLACES: SimpleQueue[None] = SimpleQueue()
for _ in range(32):
    _PLACES.put(None)
#: Larger requests are for the loop.
_LARGEST_REQUEST = 64 * 1024
_SIZE_BYTES = 4
_TIMEVAL = struct.Struct("@ll")
_LOOPBACK = ("127.", "::1", "::ffff:127.")

Parts = Sequence[bytes | Elsewhere]
AnswerT = TypeVar("AnswerT")


class FileTruncatedError(ConnectionError):
    """A file has become shorter since its batches were found."""


def set_options(sock: socket.socket, host: str) -> None:
    """Set what a broker sets; `host` is the client's address."""
    # asyncio sets it only for sockets that it made. Without it, each part of a response waits
    # until the client has acknowledged the one before.
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    # Only threads let their system calls wait.
    for option, milliseconds in (
        (socket.SO_SNDTIMEO, _PATIENCE_MS), (socket.SO_RCVTIMEO, _STAY_MS)
    ):
        sock.setsockopt(socket.SOL_SOCKET, option, _TIMEVAL.pack(0, milliseconds * 1000))
    if host.startswith(_LOOPBACK):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)


async def send(writer: asyncio.StreamWriter, parts: Parts) -> None:
    """Send what is left of a response, and close its files."""
    try:
        for part in parts:
            if isinstance(part, bytes):
                writer.write(part)
            elif isinstance(part, FileRange):
                await _send_in_loop(writer, part)
        await writer.drain()
    finally:
        close_files(parts)


async def _send_in_loop(writer: asyncio.StreamWriter, part: FileRange) -> None:
    if writer.is_closing():
        raise ConnectionResetError
    loop = asyncio.get_running_loop()
    with os.fdopen(part.descriptor, "rb", buffering=0, closefd=False) as file:
        sent = await loop.sendfile(writer.transport, file, part.position, part.size)
    if sent < part.size:
        raise FileTruncatedError(f"{part.log.path} was truncated while it was sent")


class RequestReader(asyncio.StreamReader):
    """The requests of a client; a thread may read on while the event loop does not."""

    def give_back(self, received: bytes) -> None:
        """Take what a thread has received and not answered, unless the client has left."""
        if not self._eof:    # type: ignore[attr-defined]
            self.feed_data(received)

    @property
    def is_empty(self) -> bool:
        """Whether all that was received has been read."""
        return not self._buffer    # type: ignore[attr-defined]


class DirectSender:
    """The socket of a client, which a thread uses while the event loop does not.

    Only `run` is for the loop, and only the others are for threads.
    """

    # A client that fetches asks again at once. So the thread that sent to it waits a moment for its
    # next request: to wake the loop and a thread for each costs more than to answer it.

    def __init__(self, reader: RequestReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._transport = reader, writer.transport
        self._socket: socket.socket = writer.get_extra_info("socket")
        self._is_plain = writer.get_extra_info("sslcontext") is None
        self._waiting: socket.socket | None = None
        self._received = b""

    async def run(self, threads: Executor, answer: Callable[[], AnswerT]) -> AnswerT:
        """Run in a thread what may `send` and receive the `next_request`."""
        transport = self._transport
        has_socket = (
            self._is_plain
            and transport.is_reading()    # type: ignore[attr-defined]
            and not transport.get_write_buffer_size()
        )
        if has_socket:
            transport.pause_reading()    # type: ignore[attr-defined]
            answer = partial(self._run_with_socket, answer)
        running = asyncio.get_running_loop().run_in_executor(threads, answer)
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)    # ends the thread's system call
            await asyncio.wait([running])
            raise
        finally:
            if has_socket:
                received, self._received = self._received, b""
                self._reader.give_back(received)
                if not transport.is_closing():
                    transport.resume_reading()    # type: ignore[attr-defined]

    def _run_with_socket(self, answer: Callable[[], AnswerT]) -> AnswerT:
        """Run what sends, while the calls of the socket wait."""
        descriptor = self._socket.fileno()
        self._waiting = sock = socket.socket(fileno=descriptor)
        try:
            sock.setblocking(True)
            return answer()
        finally:
            self._waiting = None
            os.set_blocking(descriptor, False)
            sock.detach()

    def send(self, parts: Parts) -> Parts:
        """Send in system calls that wait; return what a slow client leaves."""
        if self._waiting is None:
            return parts
        try:
            left = _send_waiting(self._waiting, parts)
        except BaseException:
            close_files(parts)
            raise
        close_files(parts[: len(parts) - len(left)])
        return left

    def next_request(self) -> bytes | None:
        """Return the next request, without its size; None if it does not come at once."""
        sock = self._waiting
        if sock is None or not self._reader.is_empty:
            return None
        try:
            _PLACES.get_nowait()
        except Empty:
            return None
        try:
            self._received = received = sock.recv(_SIZE_BYTES + _LARGEST_REQUEST)
        except (BlockingIOError, ConnectionError):    # the loop finds what is wrong, too
            return None
        finally:
            _PLACES.put(None)
        size = int.from_bytes(received[:_SIZE_BYTES], "big", signed=True)
        is_one = len(received) >= _SIZE_BYTES and len(received) == _SIZE_BYTES + size
        return received[_SIZE_BYTES:] if is_one else None

    def take_request(self) -> None:
        """Answer the `next_request` here; else the loop does."""
        self._received = b""


def _send_waiting(sock: socket.socket, parts: Parts) -> Parts:
    deadline = time.monotonic() + _MOST_SECONDS
    for number, part in enumerate(parts):
        is_last = number == len(parts) - 1
        if isinstance(part, bytes):
            sent = _send_bytes(sock, part, 0 if is_last else socket.MSG_MORE)
            if sent < len(part):
                return [part[sent:], *parts[number + 1 :]]
        elif isinstance(part, FileRange) and not _send_range(sock.fileno(), part, deadline):
            return parts[number:]
    return ()


def _send_bytes(sock: socket.socket, data: bytes, flags: int) -> int:
    try:
        return sock.send(data, flags)
    except BlockingIOError:    # the time is over
        return 0


def _send_range(descriptor: int, part: FileRange, deadline: float) -> bool:
    """Send a range; False: some of it is left, and it begins there."""
    while part.size:
        try:
            sent = os.sendfile(
                descriptor, part.descriptor, part.position, min(part.size, _PIECE_BYTES)
            )
        except BlockingIOError:
            return False
        if not sent:
            raise FileTruncatedError(f"{part.log.path} was truncated while it was sent")
        part.position += sent
        part.size -= sent
        if part.size and time.monotonic() > deadline:
            return False
    return True
