"""A client: who it is, what it may take of a shared server, and why it left."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from kafkastore.formats.requests.apis import RequestHeader
from kafkastore.server.authentication import Authentication
from kafkastore.server.sending import DirectSender


class ClientLimits(NamedTuple):
    """What clients may take; times in seconds.

    `idle`: between two requests, as a broker's ``connections.max.idle.ms``. `first_request`: from
    the connection to the end of its first request, TLS and authentication included. `request`: from
    the size of a request to its last byte. `response`: until it is sent. `drain`: for the responses
    under way when the server ends.
    """

    connections: int = 2000
    #: As a broker's ``socket.request.max.bytes``, but smaller: nothing is produced.
    request_bytes: int = 8 * 1024 * 1024
    idle: float = 600
    first_request: float = 30
    request: float = 30
    response: float = 600
    drain: float = 10


DEFAULT_LIMITS = ClientLimits()


class EndReason(StrEnum):
    """Why a connection ended."""

    CLIENT_CLOSED = "client-closed"
    IDLE = "idle"
    NO_FIRST_REQUEST = "no-first-request"
    SLOW_REQUEST = "slow-request"
    SLOW_RESPONSE = "slow-response"
    BAD_REQUEST = "bad-request"
    BAD_TLS = "bad-tls"
    AUTHENTICATION_FAILED = "authentication-failed"
    FILE_CHANGED = "file-changed"
    TOO_MANY_CONNECTIONS = "too-many-connections"
    SERVER_ENDS = "server-ends"
    INTERNAL_ERROR = "internal-error"


@dataclass
class Client:
    """The client of one connection; `authentication` is None if it needs none."""

    host: str
    port: int = 0
    authentication: Authentication | None = None
    client_id: str | None = None
    software: str = ""
    requests: int = 0
    sent_bytes: int = 0
    #: Sends records at once, from the thread that reads them.
    sender: DirectSender | None = None
    #: Whether a request was received whose response is not sent yet: since when, and its size.
    is_answering: bool = False
    asked_at: float = 0
    api_key: int = -1
    response_bytes: int = 0
    #: Whether the client can no longer take a response.
    has_left: Callable[[], bool] = bool

    @property
    def is_authenticated(self) -> bool:
        """Whether its requests are answered."""
        return self.authentication is None or self.authentication.user is not None

    def begin_answer(self) -> None:
        """Note that a request was received."""
        self.is_answering, self.asked_at, self.response_bytes = True, time.monotonic(), 0

    def note(self, header: RequestHeader) -> None:
        """Note who the client says it is, and what it asks."""
        self.client_id, self.api_key = header.client_id, header.api_key

    def end_answer(self) -> float:
        """Note that its response was sent; return how long that took, s."""
        self.is_answering = False
        self.requests += 1
        self.sent_bytes += self.response_bytes
        return time.monotonic() - self.asked_at

    @property
    def address(self) -> str:
        """Where it connects from."""
        return f"{self.host}:{self.port}"

    def __str__(self) -> str:
        parts = [f"client {self.client_id or '-'}"]
        if self.software:
            parts.append(f"software {self.software}")
        if self.authentication is not None:
            parts.append(f"user {self.authentication.user or '-'}")
        return ", ".join([*parts, f"{self.requests} requests", f"{self.sent_bytes} bytes sent"])
