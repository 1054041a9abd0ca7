"""The outcome of a command, and the expected outcome of one that is refused."""
from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple


class Ran(NamedTuple):
    """The exit code and output of a command."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[dict[str, Any]]:
        """Return the printed JSON objects."""
        return [json.loads(line) for line in self.out.splitlines()]


Run = Callable[..., Ran]


def assert_one_sentence(ran: Ran, *parts: str) -> None:
    """Check that the error is one sentence with these parts, and the exit code is 2."""
    assert ran.code == 2, ran
    assert ran.err.startswith("kafkastore: "), ran.err
    assert ran.err.count("\n") == 1, ran.err
    assert "Traceback" not in ran.err
    for part in parts:
        assert part in ran.err
