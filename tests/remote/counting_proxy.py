"""An HTTP proxy in front of the S3 server that counts requests, and can inject faults."""
from __future__ import annotations

import http.client
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple
from urllib.parse import unquote


class Request(NamedTuple):
    """One request and its response."""

    method: str
    path: str
    range: str | None
    status: int
    bytes: int

    @property
    def is_listing(self) -> bool:
        """Return whether the request lists objects."""
        return "list-type=2" in self.path


class CountingProxy(ThreadingHTTPServer):
    """Records requests in order; `fault` may answer instead of the server.

    A fault receives method and path. It returns None to forward the request, a status to answer
    with, or "cut" for an answer that ends in the middle.
    """

    daemon_threads = True
    block_on_close = False

    def __init__(self, server_port: int) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.target_port = server_port
        self.requests: list[Request] = []
        self.fault: Callable[[str, str], int | str | None] = lambda method, path: None

    @property
    def url(self) -> str:
        """Return the URL for clients."""
        return f"http://127.0.0.1:{self.server_address[1]}"

    @property
    def gets(self) -> list[Request]:
        """Return the requests for bytes of objects."""
        return [each for each in self.requests if each.method == "GET" and not each.is_listing]


class _Handler(BaseHTTPRequestHandler):
    server: CountingProxy
    protocol_version = "HTTP/1.1"

    def forward(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length)
        path = unquote(self.path)
        fault = self.server.fault(self.command, path)
        if isinstance(fault, int):
            self.server.requests.append(Request(self.command, path, None, fault, 0))
            self.send_response(fault)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        connection = http.client.HTTPConnection("127.0.0.1", self.server.target_port, timeout=800)
        try:
            connection.putrequest(
                self.command, self.path, skip_host=True, skip_accept_encoding=True
            )
            for name, value in self.headers.items():
                connection.putheader(name, value)
            connection.endheaders(body)
            answer = connection.getresponse()
            data = answer.read()
        finally:
            connection.close()
        size = len(data)
        self.server.requests.append(
            Request(self.command, path, self.headers.get("Range"), answer.status, size)
        )
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in ("content-length", "transfer-encoding", "connection"):
                self.send_header(name, value)
        length = answer.getheader("Content-Length") if self.command == "HEAD" else str(size)
        self.send_header("Content-Length", length or "0")
        self.end_headers()
        if fault == "cut":
            self.wfile.write(data[: size // 2])
            self.close_connection = True
            return
        self.wfile.write(data)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = forward

    def log_message(self, *arguments: object) -> None:
        pass


@contextmanager
def counting(server_port: int) -> Iterator[CountingProxy]:
    """Run a proxy."""
    with CountingProxy(server_port) as proxy:
        thread = threading.Thread(target=proxy.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield proxy
        finally:
            proxy.shutdown()
            thread.join()
