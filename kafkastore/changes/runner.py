"""Who does a piece of work on many items: this process, or tasks of a cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


class Runner(Protocol):
    """Calls a function for each item, in any process that sees the same storage."""

    def __call__(
        self, job: Callable[[Item], Result], items: Sequence[Item], *, weigh: Callable[[Item], int]
    ) -> Iterable[Result]:
        """Return the results in the order of the items; `weigh` estimates the bytes to be read."""
