"""Migrations and index rebuilds of whole stores by executors.

1. Executors read the partitions; this process combines their results into one plan.
2. Executors inspect all files of the plan; if one of them does not fit, the plan is refused.
3. This process locks the log directory and writes the plan into the undo area; executors change
   the files and write a journal for each partition (see `changes.apply`).

This process and the executors must see the same storage under the same paths.
"""
from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from kafkastore import migration
from kafkastore.changes.apply import apply
from kafkastore.changes.areas import find_journals
from kafkastore.changes.journal import Journal
from kafkastore.changes.plan import Plan
from kafkastore.changes.resume import resume as resume_changes
from kafkastore.checks.reindex import plan_reindex
from kafkastore.errors import ChangeRefusedError, RefusalReason
from kafkastore.jobs.job import Row, columns_of, table_schema
from kafkastore.paths import describe_error, refuse_remote
from kafkastore.runner import Progress, Runner
from kafkastore.segment.recovery import INDEX_INTERVAL_BYTES
from kafkastore.spark.runner import frame_of, spread
from kafkastore.store.log_store import (
    AnyPartition,
    AnyPath,
    Paths,
    listed,
    open_store,
    root_of_plan,
)
from kafkastore.store.partition_path import PartitionPath, list_unique_paths
from kafkastore.store.unread_partition import UnreadPartition
from kafkastore.versions import NEWEST_VERSION

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from kafkastore.migration.plan import EntryOffset, Mode

#: A plan, and the partitions for which nothing is planned.
_Planned = tuple[Plan, Sequence[UnreadPartition]]


def migrate(
    spark: SparkSession,
    path: Paths,
    mode: Mode = "auto",
    *,
    entry_offset: EntryOffset = "next",
    index_interval_bytes: int = INDEX_INTERVAL_BYTES,
    mtimes: Mapping[str, int] | None = None,
    partitions: Collection[AnyPartition] | None = None,
    undo_dir: AnyPath | None = None,
    resume: bool = False,
    progress: Progress | None = None,
) -> DataFrame:
    """Build the time indexes of log directories that predate them, in place.

    Parameters
    ----------
    spark : SparkSession
        Its executors see the storage under the same paths as this process.
    path : path-like, LogStore or list of these
        Log directories or partition directories. No broker may have them open.
    mode, entry_offset : str
        As for `kafkastore.migration.plan`.
    index_interval_bytes, mtimes : int, mapping of str to int
        As for `kafkastore.migration.survey`.
    partitions : collection, optional
        Migrate only these partitions, each as ``("orders", 3)`` or ``"orders-3"``.
    undo_dir : path-like, optional
        The directory in which to create undo areas. Default: next to each log directory.
    resume : bool
        Whether to finish an interrupted run first; otherwise such a run is an error.
    progress : callable, optional
        Called in each step with the number of partitions done and their total number.

    Returns
    -------
    DataFrame
        A row for each partition, when all is done: store, topic, partition, path, number of files
        and bytes written, undo_area, error. A partition with an error is consistent, and `resume`
        continues where it stopped; `kafkastore.undo` undoes the changes of one undo area.

    Raises
    ------
    ChangeRefusedError
        If the change is not safe; nothing in that log directory has been changed.
    NotALogDirectoryError
        If a path is not a log directory in this process.
    """
    run = partial(spread, spark, progress=progress)

    def planned(root: Path) -> _Planned:
        found = migration.survey(
            root,
            mtimes,
            runner=run,
            index_interval_bytes=index_interval_bytes,
            read_logs=mode in migration.READING_MODES,
            partitions=partitions,
        )
        return migration.plan(found, mode, entry_offset=entry_offset), found.unread

    return _frame(spark, _change(run, path, partitions, planned, undo_dir, resume=resume))


def reindex(
    spark: SparkSession,
    path: Paths,
    version: str = NEWEST_VERSION,
    *,
    index_interval_bytes: int = INDEX_INTERVAL_BYTES,
    up_to_damage: bool = False,
    partitions: Collection[AnyPartition] | None = None,
    undo_dir: AnyPath | None = None,
    resume: bool = False,
    progress: Progress | None = None,
) -> DataFrame:
    """Rebuild indexes that do not match their logs, in place.

    Parameters
    ----------
    spark : SparkSession
        Its executors see the storage under the same paths as this process.
    path : path-like, LogStore or list of these
        Log directories or partition directories. No broker may have them open.
    version, index_interval_bytes, up_to_damage : str, int, bool
        As for `kafkastore.plan_reindex`.
    partitions : collection, optional
        Check only these partitions, each as ``("orders", 3)`` or ``"orders-3"``.
    undo_dir, resume, progress : path-like, bool, callable
        As for `migrate`.

    Returns
    -------
    DataFrame
        As for `migrate`.

    Raises
    ------
    ChangeRefusedError
        If the change is not safe; nothing in that log directory has been changed.
    NotALogDirectoryError
        If a path is not a log directory in this process.
    """
    run = partial(spread, spark, progress=progress)

    def planned(root: Path) -> _Planned:
        plan = plan_reindex(
            root,
            version,
            index_interval_bytes=index_interval_bytes,
            up_to_damage=up_to_damage,
            partitions=partitions,
            runner=run,
        )
        return plan, plan.unread

    return _frame(spark, _change(run, path, partitions, planned, undo_dir, resume=resume))


def _change(
    run: Runner,
    paths: Paths,
    partitions: Collection[AnyPartition] | None,
    planned: Callable[[Path], _Planned],
    undo_dir: AnyPath | None,
    *,
    resume: bool,
) -> list[Row]:
    """Plan and change log directories in turn; return a row for every partition."""
    for each in listed(paths):
        refuse_remote(each)
    roots = [Path(os.path.abspath(each)) for each in listed(paths)]
    _check_apart(roots)
    # Invalid paths fail here, before any change. The survey reads the sizes of the partitions.
    places = {
        root: list_unique_paths(open_store(root_of_plan(root)), partitions, is_weighed=False)
        for root in roots
    }
    done = (
        _change_one(run, root, places[root], planned, undo_dir, resume=resume) for root in roots
    )
    return [
        row
        for root, (journals, errors) in zip(roots, done, strict=True)
        for row in _rows(root, places[root], journals, errors)
    ]


def _change_one(
    run: Runner,
    root: Path,
    places: Sequence[PartitionPath],
    planned: Callable[[Path], _Planned],
    undo_dir: AnyPath | None,
    *,
    resume: bool,
) -> tuple[list[Journal], dict[str, Exception]]:
    """Change one log directory; return journals, and errors by partition directory."""
    journals: list[Journal] = []
    errors: dict[str, Exception] = {}

    def take(journal: Journal) -> None:
        journals.append(journal)
        errors.update(
            {_below(root, journal, each.directory): each.error for each in journal.failures}
        )

    for journal in find_journals(root, undo_dir) if resume else ():
        match journal.phase:
            case "applying":
                take(resume_changes(journal, runner=run))
            case "undoing":
                raise ChangeRefusedError(
                    f"{journal.area} is being undone; kafkastore changes resume {journal.area} "
                    "finishes the undo",
                    RefusalReason.UNFINISHED, journal.area,
                )
    unfinished = [journal for journal in journals if not journal.is_finished]
    if not unfinished:
        plan, unread = planned(root)
        directories = {place.path: place.directory for place in places}
        errors.update({directories[str(each.path)]: each.error for each in unread})
        take(apply(plan, undo_dir, runner=run))
    for place in places if unfinished else ():
        errors.setdefault(
            place.directory,
            ChangeRefusedError(
                "not begun: an earlier plan is unfinished; resume=True finishes it, kafkastore "
                f"changes undo {unfinished[0].area} undoes it",
                RefusalReason.UNFINISHED, unfinished[0].area,
            ),
        )
    return journals, errors


def _below(root: Path, journal: Journal, directory: str) -> str:
    """Return a plan's directory relative to `root`.

    A plan may be of one partition only.
    """
    path = os.path.join(os.path.realpath(journal.plan.root), directory)
    below = os.path.relpath(path, os.path.realpath(root))
    return "" if below == os.curdir else below


def _check_apart(roots: Sequence[Path]) -> None:
    """Raise an error for a directory given twice or with one of its partitions."""
    seen: dict[str, Path] = {}
    for root in sorted(roots, key=os.path.realpath):
        real = os.path.realpath(root)
        other = seen.get(real) or seen.get(os.path.dirname(real))
        if other is not None:
            raise ChangeRefusedError(
                f"{other} and {root} hold the same files: name one of them",
                RefusalReason.OVERLAP, root,
            )
        seen[real] = root


def _rows(
    root: Path,
    places: Sequence[PartitionPath],
    journals: Sequence[Journal],
    errors: Mapping[str, Exception],
) -> Iterator[Row]:
    """Yield the row of each partition, including files changed by resumed runs."""
    made: dict[str, tuple[int, int, str | None]] = {}
    for journal in journals:
        for change in journal.plan.changes:
            if change.path in journal.changed:
                directory = _below(root, journal, os.path.dirname(change.path))
                files, size, _ = made.get(directory, (0, 0, None))
                size += 0 if change.after is None else change.after.size
                made[directory] = files + 1, size, str(journal.area)
    for place in places:
        error = errors.get(place.directory)
        files, size, area = made.get(place.directory, (0, 0, None))
        yield {
            **columns_of([place]),
            "files": files,
            "bytes": size,
            "undo_area": area,
            "error": None if error is None else describe_error(error),
        }


def _frame(spark: SparkSession, rows: Iterable[Row]) -> DataFrame:
    """Return the frame of changed partitions."""
    import pyarrow as pa

    columns = [("files", pa.int64()), ("bytes", pa.int64()), ("undo_area", pa.string())]
    return frame_of(spark, rows, table_schema(columns))
