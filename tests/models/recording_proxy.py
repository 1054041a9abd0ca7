"""A proxy between clients and a server that records the requests."""

from __future__ import annotations

import contextlib
import socket
import threading
from contextlib import AbstractContextManager

from kafkastore.formats.requests.apis import parse_request, parse_request_header


class RecordingProxy(AbstractContextManager):
    """Listens on a free port; `requests` has the header and fields of each request.

    `forward_to` sets the server, which can then name the proxy's address to its clients.
    """

    def __init__(self):
        self.requests = []
        self._server = None
        self._sockets = []
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._accepting = threading.Thread(target=self._accept, daemon=True)

    @property
    def address(self):
        """Where clients connect."""
        return "{}:{}".format(*self._listening.getsockname())

    def forward_to(self, server):
        """Accept clients for a server."""
        host, _, port = server.rpartition(":")
        self._server = host, int(port)
        self._accepting.start()

    def __exit__(self, *_):
        for each in (self._listening, *self._sockets):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                server = socket.create_connection(self._server)
                self._sockets += [client, server]
                for target, ends in (
                    (self._pass_requests, (client, server)), (_copy, (server, client)),
                ):
                    threading.Thread(target=target, args=ends, daemon=True).start()

    def _pass_requests(self, client, server):
        with contextlib.suppress(OSError), client.makefile("rb") as requests:
            while head := requests.read(4):
                frame = requests.read(int.from_bytes(head, "big"))
                header, position = parse_request_header(frame)
                self.requests.append((header, parse_request(header, frame, position)))
                server.sendall(head + frame)
            server.shutdown(socket.SHUT_WR)


def _copy(source, target):
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
