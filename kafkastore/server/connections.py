"""Connections of clients: one request of each at a time, within limits.

Source: Kafka 4.3.1 ``SocketServer``, ``NetworkReceive``.
"""

from __future__ import annotations

import asyncio
import logging
import resource
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from kafkastore.errors import CorruptionError, UnsupportedFormatError
from kafkastore.formats.requests.apis import parse_request_header
from kafkastore.segment.open_file_limit import close_unused_logs
from kafkastore.server.authentication import AuthenticationError
from kafkastore.server.client import Client, ClientLimits, EndReason
from kafkastore.server.metrics import ServerMetrics
from kafkastore.server.node import ServedNode, UnknownRequestError
from kafkastore.server.sending import (
    DirectSender,
    FileTruncatedError,
    RequestReader,
    send,
    set_options,
)

#: Requests above this size are read a few at a time: most clients never send one.
_LARGE_REQUEST_BYTES = 64 * 1024
_LARGE_REQUESTS = 16
_SIZE_BYTES = 4
_BACKLOG = 512
#: The others are for the files that are sent.
_SHARE_OF_OPEN_FILES = 3 / 4
#: When no more files can be open, s.
_ACCEPT_AGAIN_SECONDS = 0.2
#: For the last bytes of a connection that ends, s.
_CLOSE_SECONDS = 5
#: Files stay open for once or twice this time after they were last read, s.
CLOSE_UNUSED_EVERY: float = 5
#: A line for each client that comes and goes.
CONNECTION_LOG = logging.getLogger(__name__)


class ConnectionEndedError(Exception):
    """The connection must end, for a reason."""

    def __init__(self, reason: EndReason, detail: str = "") -> None:
        super().__init__(reason, detail)
        self.reason, self.detail = reason, detail


class Connections:
    """A listening socket and its clients; all methods are for one event loop."""

    def __init__(
        self,
        node: ServedNode,
        limits: ClientLimits,
        metrics: ServerMetrics | None = None,
    ) -> None:
        self._node, self._limits, self._metrics = node, limits, metrics
        self._sock: socket.socket | None = None
        self._tls: ssl.SSLContext | None = None
        self._clients: dict[asyncio.Task[None], Client] = {}
        self._large_requests = asyncio.Semaphore(_LARGE_REQUESTS)
        self._is_draining = False
        self._closing: asyncio.Task[None] | None = None
        open_files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._most_clients = limits.connections
        if open_files != resource.RLIM_INFINITY:
            self._most_clients = min(
                limits.connections, max(1, int(open_files * _SHARE_OF_OPEN_FILES))
            )

    def __len__(self) -> int:
        return len(self._clients)

    async def listen(self, sock: socket.socket, tls: ssl.SSLContext | None) -> None:
        """Accept clients from a bound socket."""
        sock.setblocking(False)
        sock.listen(_BACKLOG)
        self._sock, self._tls = sock, tls
        self._accept()
        self._closing = asyncio.create_task(_close_unused_logs())

    def _accept(self) -> None:
        """Accept clients from now on."""
        if self._sock is not None:
            asyncio.get_running_loop().add_reader(self._sock, self._accept_waiting)

    async def drain(self) -> None:
        """Stop accepting clients; wait for the responses under way, for a limited time."""
        self._is_draining = True
        self._stop_accepting()
        self._node.stop_waiting()
        for task, client in self._clients.items():
            if not client.is_answering:
                task.cancel()
        if self._clients:
            await asyncio.wait([*self._clients], timeout=self._limits.drain)

    async def close(self) -> None:
        """Stop accepting clients, and end the connections."""
        self._stop_accepting()
        tasks = [*self._clients]
        if self._closing is not None:
            tasks.append(self._closing)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._node.close()

    def _stop_accepting(self) -> None:
        if self._sock is not None:
            asyncio.get_running_loop().remove_reader(self._sock)
            self._sock.close()
            self._sock = None

    def _accept_waiting(self) -> None:
        """Accept the client that is there."""
        assert self._sock is not None
        try:
            accepted, (host, port, *_) = self._sock.accept()
        except (BlockingIOError, ConnectionError):    # the client is gone already
            return
        except OSError as error:    # no more files or memory: others may end and free some
            CONNECTION_LOG.info("can't accept clients: %s", error)
            loop = asyncio.get_running_loop()
            loop.remove_reader(self._sock)
            loop.call_later(_ACCEPT_AGAIN_SECONDS, self._accept)
            return
        client = self._node.client(host, port)
        if len(self._clients) >= self._most_clients:
            accepted.close()
            self._ended(client, EndReason.TOO_MANY_CONNECTIONS)
            return
        accepted.setblocking(False)
        task = asyncio.get_running_loop().create_task(self._serve_client(accepted, client))
        self._clients[task] = client
        task.add_done_callback(self._clients.pop)
        # Also of a task that was cancelled before it began.
        task.add_done_callback(lambda _: accepted.close())

    def _ended(self, client: Client, reason: EndReason, detail: str = "") -> None:
        """Report a client that has gone."""
        CONNECTION_LOG.info(
            "%s disconnected: %s%s; %s",
            client.address, reason, f" ({detail})" if detail else "", client,
        )
        if self._metrics is not None:
            self._metrics.connection_ended(reason)

    async def _serve_client(self, accepted: socket.socket, client: Client) -> None:
        CONNECTION_LOG.info("%s connected", client.address)
        detail = ""
        writer: asyncio.StreamWriter | None = None
        try:
            deadline = asyncio.get_running_loop().time() + self._limits.first_request
            with _ending(EndReason.NO_FIRST_REQUEST):
                set_options(accepted, client.host)
                reader, writer = await _open(accepted, self._tls, deadline)
            client.sender = DirectSender(reader, writer)
            client.has_left = partial(_has_left, reader, writer)
            await self._serve(reader, writer, client, deadline)
            reason = EndReason.SERVER_ENDS
        except ConnectionEndedError as ended:
            reason, detail = ended.reason, ended.detail
        except FileTruncatedError as error:
            reason, detail = EndReason.FILE_CHANGED, str(error)
        except (asyncio.IncompleteReadError, ConnectionError):
            reason = EndReason.CLIENT_CLOSED
        except ssl.SSLError as error:
            reason, detail = EndReason.BAD_TLS, str(error)
        except (UnknownRequestError, CorruptionError, UnsupportedFormatError) as error:
            reason, detail = EndReason.BAD_REQUEST, str(error)
        except AuthenticationError as error:
            reason, detail = EndReason.AUTHENTICATION_FAILED, str(error)
        except asyncio.CancelledError:
            reason = EndReason.SERVER_ENDS
        except Exception as error:
            reason, detail = EndReason.INTERNAL_ERROR, f"{type(error).__name__}: {error}"
            CONNECTION_LOG.exception("%s: a request could not be answered", client.address)
        self._ended(client, reason, detail)
        if writer is None:
            accepted.close()
        else:
            await _close(writer, at_once=reason is EndReason.SLOW_RESPONSE)

    async def _serve(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        client: Client,
        deadline: float,
    ) -> None:
        """Answer one request after the other, in their order."""
        while not self._is_draining:
            is_known = client.requests > 0 and client.is_authenticated
            frame = await self._read_request(reader, None if is_known else deadline)
            client.begin_answer()
            sasl = client.authentication
            if sasl is not None and sasl.is_raw and sasl.user is None:
                token = await asyncio.to_thread(sasl.next_message, frame)
                writer.write(len(token).to_bytes(_SIZE_BYTES, "big") + token)
                client.end_answer()
                continue
            header, position = parse_request_header(frame)
            client.note(header)
            parts = await self._node.answer(header, frame, position, client)
            if parts is not None:
                with _ending(EndReason.SLOW_RESPONSE), self._node.waiting(parts):
                    async with asyncio.timeout(self._limits.response):
                        await send(writer, parts)
            self._node.end_answer(client)
            if sasl is not None and sasl.has_failed:
                raise AuthenticationError("authentication failed")

    async def _read_request(
        self, reader: asyncio.StreamReader, deadline: float | None
    ) -> bytes:
        """Read the next request; `deadline` is that of a client's first."""
        loop, limits = asyncio.get_running_loop(), self._limits
        late = EndReason.IDLE if deadline is None else EndReason.NO_FIRST_REQUEST
        with _ending(late):
            async with asyncio.timeout_at(deadline or loop.time() + limits.idle):
                size = int.from_bytes(await reader.readexactly(_SIZE_BYTES), "big", signed=True)
        if not 0 <= size <= limits.request_bytes:
            raise ConnectionEndedError(EndReason.BAD_REQUEST, f"request of {size} bytes")
        if size > _LARGE_REQUEST_BYTES:
            async with self._large_requests:
                return await self._read_frame(reader, size, deadline)
        return await self._read_frame(reader, size, deadline)

    async def _read_frame(
        self, reader: asyncio.StreamReader, size: int, deadline: float | None
    ) -> bytes:
        until = asyncio.get_running_loop().time() + self._limits.request
        with _ending(EndReason.SLOW_REQUEST):
            async with asyncio.timeout_at(until if deadline is None else min(until, deadline)):
                return await reader.readexactly(size)


@contextmanager
def _ending(reason: EndReason) -> Iterator[None]:
    """Give the end of a time limit its reason."""
    try:
        yield
    except TimeoutError as error:
        raise ConnectionEndedError(reason) from error


async def _open(
    accepted: socket.socket, tls: ssl.SSLContext | None, deadline: float
) -> tuple[RequestReader, asyncio.StreamWriter]:
    """Return the streams of an accepted socket, after the handshake of TLS."""
    loop = asyncio.get_running_loop()
    reader = RequestReader(loop=loop)
    protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
    async with asyncio.timeout_at(deadline):
        transport, _ = await loop.connect_accepted_socket(lambda: protocol, accepted, ssl=tls)
    return reader, asyncio.StreamWriter(transport, protocol, reader, loop)


async def _close_unused_logs() -> None:
    """Close files that no client reads any more, which may be deleted meanwhile."""
    while True:
        await asyncio.sleep(CLOSE_UNUSED_EVERY)
        close_unused_logs()


def _has_left(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    return reader.at_eof() or reader.exception() is not None or writer.is_closing()


async def _close(writer: asyncio.StreamWriter, *, at_once: bool) -> None:
    """End a connection after its last bytes, if the client takes them."""
    if not at_once:
        writer.close()
        try:
            async with asyncio.timeout(_CLOSE_SECONDS):
                await writer.wait_closed()
        except (OSError, asyncio.CancelledError):    # TimeoutError is an OSError
            pass
    writer.transport.abort()
