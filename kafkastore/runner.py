"""Runners of work on many items, in this thread or in threads.

`spark.runner` has the one of Spark.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from threading import Lock
from typing import Any, NamedTuple, Protocol, TypeVar

from kafkastore.log.parallel.parallel_map import ParallelMap, StopFlag
from kafkastore.paths import name_url, to_path
from kafkastore.store.partition_path import FAILURES, PartitionPath
from kafkastore.store.unread_partition import UnreadPartition

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


class Steps:
    """Counts the steps of several threads, and calls `progress` after each."""

    def __init__(self, progress: Progress, total: int) -> None:
        self._progress, self._total = progress, total
        self._done, self._one_at_a_time = 0, Lock()

    def __call__(self) -> None:
        """Count one more step."""
        with self._one_at_a_time:
            self._done += 1
            self._progress(min(self._done, self._total), self._total)


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


def threads_within(threads: int, items: int) -> int:
    """Return how many threads work within each item, if `threads` work on all items.

    A few items share the threads that they do not use; of many items each has one.
    """
    return max(threads // max(items, 1), 1)


def _itself(item: Any) -> PartitionPath:
    """Return an item that is the path of a partition."""
    place: PartitionPath = item
    return place


def read_partitions(
    work: Callable[[Item], Result],
    items: Sequence[Item],
    runner: Runner,
    place: Callable[[Item], PartitionPath] = _itself,
) -> Iterator[tuple[Item, Result | UnreadPartition]]:
    """Yield each item with its result, or with the partition that was not read."""
    found = runner(partial(attempt, work), items, weigh=lambda each: place(each).bytes)
    for item, each in zip(items, found, strict=True):
        if not isinstance(each, Failed):
            yield item, each
        elif isinstance(each.error, FAILURES):
            where = place(item)
            yield item, UnreadPartition(where.topic_partition, to_path(where.path), each.error)
        else:
            raise each.error
