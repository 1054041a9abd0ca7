"""Runners of jobs: this thread, or threads. `spark.runner` has Spark's."""
from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, TypeVar

from kafkastore.changes.runner import Runner
from kafkastore.log.parallel_map import ParallelMap, StopFlag
from kafkastore.paths import name_url

Item = TypeVar("Item")
Result = TypeVar("Result")


class Failed(NamedTuple):
    """The error that was raised for an item, as a value."""

    error: Exception


def attempt(work: Callable[[Item], Result], item: Item) -> Result | Failed:
    """Call a function; return its result, or its error as a value."""
    try:
        return work(item)
    except Exception as error:
        name_url(error)
        return Failed(error)


def run_here(
    work: Callable[[Item], Result], items: Iterable[Item], *, weigh: Callable[[Item], int]
) -> Iterator[Result]:
    """Do the work in this thread, for each item when its result is requested."""
    return map(work, items)


def in_threads(threads: int, stop: StopFlag | None = None) -> Runner:
    """Return a runner of several threads; the `ParallelMap` it returns ends them."""
    def run(
        work: Callable[[Item], Result], items: Iterable[Item], *, weigh: Callable[[Item], int]
    ) -> ParallelMap[Item, Result]:
        return ParallelMap(work, items, threads, "kafkastore-job", stop=stop)

    return run
