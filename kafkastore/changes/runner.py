"""Interfaces for running work on many items, and for reporting its progress."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

#: Called as ``progress(done, total)``; the total is None if unknown.
Progress = Callable[[int, int | None], None]


class Runner(Protocol):
    """Calls a function for many items, here or in processes on the same storage."""

    def __call__(
        self,
        work: Callable[[Item], Result],
        items: Iterable[Item],
        /,
        *,
        weigh: Callable[[Item], int],
    ) -> Iterable[Result]:
        """Return the results in order; `weigh` estimates the bytes to read."""
