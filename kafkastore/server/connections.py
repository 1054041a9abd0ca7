"""Connections of clients: one request of each at a time.

Source: Kafka 4.3.1 ``SocketServer``, ``NetworkReceive``.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl

from kafkastore.errors import KafkaStoreError
from kafkastore.formats.requests.apis import parse_request_header
from kafkastore.server.authentication import AuthenticationError
from kafkastore.server.node import Client, ServedNode, UnknownRequestError
from kafkastore.server.sending import DirectSender, RequestReader, send, set_options

#: Largest request, as a broker's ``socket.request.max.bytes`` but smaller: nothing is produced.
MAX_REQUEST_BYTES = 8 * 1024 * 1024
#: As a broker's ``connections.max.idle.ms``, s.
IDLE_SECONDS = 600
_SIZE_BYTES = 4
_BACKLOG = 512
#: A line for each client that comes and goes.
CONNECTION_LOG = logging.getLogger(__name__)


class Connections:
    """A listening socket and its clients; all methods are for one event loop."""

    def __init__(self, node: ServedNode) -> None:
        self._node = node
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def listen(self, sock: socket.socket, tls: ssl.SSLContext | None) -> None:
        """Accept clients from a bound socket."""
        loop = asyncio.get_running_loop()

        def protocol() -> asyncio.StreamReaderProtocol:
            return asyncio.StreamReaderProtocol(
                RequestReader(loop=loop), self._accept, loop=loop
            )

        self._server = await loop.create_server(protocol, sock=sock, backlog=_BACKLOG, ssl=tls)

    async def close(self) -> None:
        """Stop to accept clients, and end the connections."""
        if self._server is not None:
            self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._node.close()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        host, port = (writer.get_extra_info("peername") or ("", 0))[:2]
        CONNECTION_LOG.info("%s:%s connected", host, port)
        reason = "the client closed"
        try:
            set_options(writer.get_extra_info("socket"), host)
            assert isinstance(reader, RequestReader)
            client = self._node.client(host, DirectSender(reader, writer))
            await self._serve(reader, writer, client)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        except TimeoutError:
            reason = f"idle for {IDLE_SECONDS} s"
        except (UnknownRequestError, AuthenticationError, KafkaStoreError) as error:
            reason = str(error)
        except asyncio.CancelledError:
            reason = "the server stops"
        finally:
            writer.close()
            CONNECTION_LOG.info("%s:%s disconnected: %s", host, port, reason)

    async def _serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, client: Client
    ) -> None:
        """Answer one request after the other, in their order."""
        while True:
            async with asyncio.timeout(IDLE_SECONDS):
                head = await reader.readexactly(_SIZE_BYTES)
                size = int.from_bytes(head, "big", signed=True)
                if not 0 <= size <= MAX_REQUEST_BYTES:
                    raise UnknownRequestError(f"request of {size} bytes")
                frame = await reader.readexactly(size)
            sasl = client.authentication
            if sasl is not None and sasl.is_raw and sasl.user is None:
                token = await asyncio.to_thread(sasl.next_message, frame)
                writer.write(len(token).to_bytes(_SIZE_BYTES, "big") + token)
                continue
            header, position = parse_request_header(frame)
            parts = await self._node.answer(header, frame, position, client)
            if parts is not None:
                async with asyncio.timeout(IDLE_SECONDS):
                    await send(writer, parts)
