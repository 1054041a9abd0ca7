"""What came of running a command, and what is expected of one that refuses."""
from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple


class Ran(NamedTuple):
    """What came of a command."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[dict[str, Any]]:
        """The JSON objects it printed."""
        return [json.loads(line) for line in self.out.splitlines()]


Run = Callable[..., Ran]


def assert_one_sentence(ran: Ran, *parts: str) -> None:
    """Check that a command refused with one sentence that has these parts, and exit code 2."""
    assert ran.code == 2, ran
    assert ran.err.startswith("kafkastore: "), ran.err
    assert ran.err.count("\n") == 1, ran.err
    assert "Traceback" not in ran.err
    for part in parts:
        assert part in ran.err
