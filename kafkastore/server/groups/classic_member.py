"""A member of a group of the classic protocol, and its requests that wait."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from kafkastore.formats.messages.message_table import Values
from kafkastore.formats.primitives.error_codes import ErrorCode


@dataclass(eq=False)
class ClassicMember:
    """A member; `joining` and `syncing` are its requests that wait for the others."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...] = ()
    assignment: bytes = b""
    joining: asyncio.Future[Values] | None = None
    syncing: asyncio.Future[Values] | None = None
    timer: asyncio.TimerHandle | None = None

    def metadata(self, protocol: str | None) -> bytes:
        """Return its subscription for a protocol."""
        return dict(self.protocols).get(protocol or "", b"")


def error_to_join(error: ErrorCode, member_id: str = "") -> Values:
    """Return a response to JoinGroup that refuses."""
    return {"error_code": error, "member_id": member_id, "protocol_name": None}


def protocols_of(request: Values) -> tuple[tuple[str, bytes], ...]:
    """Return a member's protocols, each with its subscription."""
    return tuple((each["name"], each["metadata"]) for each in request["protocols"])


def rebalance_timeout_of(request: Values) -> int:
    """Return the rebalance timeout; version 0 has only the session's."""
    timeout: int = request["rebalance_timeout_ms"]
    return request["session_timeout_ms"] if timeout < 0 else timeout


def call_later(
    milliseconds: int, function: Callable[..., None], *args: object
) -> asyncio.TimerHandle:
    """Call a function after a time."""
    return asyncio.get_running_loop().call_later(milliseconds / 1000, function, *args)


def cancel(timer: asyncio.TimerHandle | None) -> None:
    """Cancel a timer, if there is one."""
    if timer is not None:
        timer.cancel()


def answer(waiting: asyncio.Future[Values] | None, response: Values) -> None:
    """Answer a request that waits, if there is one."""
    if waiting is not None and not waiting.done():
        waiting.set_result(response)
