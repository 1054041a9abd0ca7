"""Plans of changes to a log directory whose partitions executors read.

The plans are the same, change for change, as those that this process would make alone.
"""
from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

from kafkastore import migration
from kafkastore.changes.plan import InvalidPlanError
from kafkastore.changes.runner import Runner
from kafkastore.checks.reindex import (
    ReindexedPartition,
    ReindexPlan,
    reindex_partition,
    reindex_plan,
)
from kafkastore.jobs.partition_paths import (
    FAILURES,
    PartitionPath,
    open_partition,
    to_partition_path,
)
from kafkastore.jobs.runner import Failed, attempt
from kafkastore.migration import PartitionSurvey, Survey
from kafkastore.paths import to_path
from kafkastore.segment.recovery import INDEX_INTERVAL_BYTES
from kafkastore.store.log_store import AnyPartition, AnyPath, open_store, root_of_plan
from kafkastore.store.unread_partition import UnreadPartition
from kafkastore.versions import NEWEST_VERSION, rules_of
from kafkastore.writing.log_config import LogConfig

Item = TypeVar("Item")
Result = TypeVar("Result")


def survey(
    run: Runner,
    path: AnyPath,
    mtimes: Mapping[str, int] | None = None,
    *,
    index_interval_bytes: int = INDEX_INTERVAL_BYTES,
    read_logs: bool = True,
    partitions: Collection[AnyPartition] | None = None,
) -> Survey:
    """Survey a log directory, with the result of `kafkastore.migration.survey`.

    `run` does the work on the partitions, for example `spread` with a session.
    """
    places = places_in(path, partitions)
    found = migration.survey(path, index_interval_bytes=index_interval_bytes, partitions=())
    given: dict[str, dict[str, int]] = {}
    for name, mtime_ms in ({} if mtimes is None else mtimes).items():
        given.setdefault(name.rpartition("/")[0], {})[name] = mtime_ms
    asked = [
        (place, given.get(f"{place.topic}-{place.partition}", {}) | given.get("", {}))
        for place in places
    ]
    job = partial(survey_place, read_logs=read_logs, index_interval_bytes=index_interval_bytes)
    surveyed, unread = [], []
    for (place, _), each in _read(run, job, asked, lambda each: each[0]):
        if isinstance(each, UnreadPartition):
            unread.append(each)
            continue
        _check_within(place, [each.directory])
        surveyed.append(each)
    return replace(found, partitions=tuple(surveyed), unread=tuple(unread))


def survey_place(
    asked: tuple[PartitionPath, Mapping[str, int]], *, read_logs: bool, index_interval_bytes: int
) -> PartitionSurvey:
    """Survey one partition; see `kafkastore.migration.survey_partition`.

    `asked` has the partition and its known modification times.
    """
    place, mtimes = asked
    found: PartitionSurvey = migration.survey_partition(
        open_partition(place),
        mtimes,
        directory=directory_of(place),
        index_interval_bytes=index_interval_bytes,
        read_logs=read_logs,
    )
    return found


def plan_reindex(
    run: Runner,
    path: AnyPath,
    version: str = NEWEST_VERSION,
    index_interval_bytes: int = INDEX_INTERVAL_BYTES,
    *,
    up_to_damage: bool = False,
    partitions: Collection[AnyPartition] | None = None,
) -> ReindexPlan:
    """Plan as `kafkastore.plan_reindex`, with the same result; `run` as above."""
    rules_of(version)
    interval = LogConfig(index_interval_bytes=index_interval_bytes).index_interval_bytes
    job = partial(
        reindex_place, version=version, index_interval_bytes=interval, up_to_damage=up_to_damage
    )
    planned = []
    for place, each in _read(run, job, places_in(path, partitions), lambda place: place):
        if not isinstance(each, UnreadPartition):
            _check_within(place, (os.path.dirname(change.path) for change in each.changes))
        planned.append(each)
    return reindex_plan(root_of_plan(path), version, planned)


def reindex_place(
    place: PartitionPath, *, version: str, index_interval_bytes: int, up_to_damage: bool
) -> ReindexedPartition:
    """Plan one partition; see `kafkastore.checks.reindex`."""
    return reindex_partition(
        open_partition(place), version, index_interval_bytes, up_to_damage=up_to_damage
    )


def places_in(
    path: AnyPath,
    partitions: Collection[AnyPartition] | None = None,
    *,
    is_weighed: bool = True,
) -> list[PartitionPath]:
    """Return the partitions of a directory by topic and number.

    Each partition has one place. Raises `NotALogDirectoryError` if the path is neither, and
    `KeyError` if one of `partitions` is missing.
    """
    root = root_of_plan(path)
    store = open_store(root)
    return [
        to_partition_path(log, store, is_weighed=is_weighed) for log in store.logs_of(partitions)
    ]


def directory_of(place: PartitionPath) -> str:
    """Return a partition's directory in its log directory; empty if it is in none."""
    return "" if place.root is None else os.path.basename(place.path)


def _check_within(place: PartitionPath, directories: Iterable[str]) -> None:
    """Raise an error if an executor's result is for another partition."""
    for directory in directories:
        if directory != directory_of(place):
            raise InvalidPlanError(
                f"an executor that was given {place.path} answered for {directory!r}"
            )


def _read(
    run: Runner,
    job: Callable[[Item], Result],
    items: Sequence[Item],
    place: Callable[[Item], PartitionPath],
) -> Iterator[tuple[Item, Result | UnreadPartition]]:
    """Yield items with their results, or with the error that reading them raised."""
    found = run(partial(attempt, job), items, weigh=lambda each: place(each).bytes)
    for item, each in zip(items, found, strict=True):
        if not isinstance(each, Failed):
            yield item, each
        elif isinstance(each.error, FAILURES):
            where = place(item)
            yield item, UnreadPartition(where.topic_partition, to_path(where.path), each.error)
        else:
            raise each.error
