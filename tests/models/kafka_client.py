"""A client of Kafka's protocol that sends what it is told, and parses what comes back."""

from __future__ import annotations

import socket
from typing import Any

from kafkastore.formats.requests.apis import RequestHeader, pack_request, parse_response


class Hangup(Exception):
    """The server closed the connection."""


class KafkaClient:
    """A connection to one server."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), 60)
        self._correlation_id = 0

    def __enter__(self) -> KafkaClient:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def ask(self, api_key: int, version: int, fields: dict[str, Any]) -> dict[str, Any]:
        """Return the response to a request."""
        self._correlation_id += 1
        header = RequestHeader(api_key, version, self._correlation_id, "tests")
        return parse_response(header, self._exchange(pack_request(header, fields)))

    def exchange(self, frame: bytes) -> bytes:
        """Send the content of a frame, and return that of the next one."""
        return self._exchange(len(frame).to_bytes(4, "big") + frame)

    def _exchange(self, data: bytes) -> bytes:
        try:
            self._socket.sendall(data)
            return self._receive(int.from_bytes(self._receive(4), "big"))
        except ConnectionError as error:
            raise Hangup from error

    def _receive(self, size: int) -> bytes:
        received = bytearray()
        while len(received) < size:
            more = self._socket.recv(size - len(received))
            if not more:
                raise Hangup
            received += more
        return bytes(received)
