"""Who does the work of a job: this thread, or several threads. Spark's runner is `spark.spread`."""
from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, Protocol, TypeVar

from kafkastore.log.side_by_side import SideBySide, Stop
from kafkastore.paths import name_url

Item = TypeVar("Item")
Result = TypeVar("Result")

#: Called with how many units are done, and of how many, where that is known.
Progress = Callable[[int, int | None], None]


class Runner(Protocol):
    """Calls a function with each of many items."""

    def __call__(
        self,
        work: Callable[[Item], Result],
        items: Iterable[Item],
        /,
        *,
        weigh: Callable[[Item], int],
    ) -> Iterator[Result]:
        """Yield the results in the order of `items`; `weigh` says how many bytes an item reads."""


class Failed(NamedTuple):
    """What was raised for an item, as a value."""

    error: Exception


def attempt(work: Callable[[Item], Result], item: Item) -> Result | Failed:
    """Call a function, and return what it raises."""
    try:
        return work(item)
    except Exception as error:
        name_url(error)
        return Failed(error)


def run_here(
    work: Callable[[Item], Result], items: Iterable[Item], *, weigh: Callable[[Item], int]
) -> Iterator[Result]:
    """Do the work in this thread, that for an item when its result is asked for."""
    return map(work, items)


def in_threads(threads: int, stop: Stop | None = None) -> Runner:
    """Return a runner of several threads; its results are a `SideBySide`, which ends them."""
    def run(
        work: Callable[[Item], Result], items: Iterable[Item], *, weigh: Callable[[Item], int]
    ) -> SideBySide[Item, Result]:
        return SideBySide(work, items, threads, "kafkastore-job", stop=stop)

    return run
