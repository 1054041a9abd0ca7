"""Who does a piece of work on many items, and how its progress is reported."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

#: Called with the number of units that are done, and of all, where that is known.
Progress = Callable[[int, int | None], None]


class Runner(Protocol):
    """Calls a function with each of many items, here or in processes that see the same storage."""

    def __call__(
        self,
        work: Callable[[Item], Result],
        items: Iterable[Item],
        /,
        *,
        weigh: Callable[[Item], int],
    ) -> Iterable[Result]:
        """Return the results in the order of the items; `weigh` estimates the bytes to be read."""
