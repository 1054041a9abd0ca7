"""The pipeline's migration: copies, plans, and changes by executors.

Plans are saved before anything is changed; a resumed run applies the same plans and so finishes
them.
"""
from __future__ import annotations

import os
import shutil
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from kafkastore import migration
from kafkastore.changes.apply import apply
from kafkastore.changes.areas import find_journals
from kafkastore.changes.copy_store import check_places, copy_store, files_of, is_complete_copy
from kafkastore.changes.partition_changes import apply_partition
from kafkastore.changes.plan import Plan
from kafkastore.changes.resume import resume
from kafkastore.jobs.error_fields import ErrorFields
from kafkastore.paths import to_path
from kafkastore.runner import Progress, Runner
from kafkastore.spark.pipeline.results import FailedStep, StoreResult
from kafkastore.spark.pipeline.run import Run
from kafkastore.spark.runner import spread

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Item = TypeVar("Item")
Result = TypeVar("Result")

UNDO_FOLDER = "undo"


class Finished(NamedTuple):
    """The files of a store that were built by finishing an earlier run."""

    files: int
    bytes: int
    undo_area: str | None


def copy_stores(run: Run) -> None:
    """Copy every store into the output, with modification times.

    A copy gets its name when it is complete. Copies that a resumed run had finished are reused.
    """
    stores = run.result.stores
    files = [sum(len(names) for _, _, names in os.walk(to_path(store.path))) for store in stores]
    total = sum(files)
    with run.step("copy", "files", total) as step:

        def copy() -> int:
            return sum(
                _copy(run, store, shift_progress(step.progress, before, total))
                for store, before in zip(stores, accumulate(files, initial=0), strict=False)
            )

        size = step.result(copy, int)
        step.summary = f"{size:,} bytes"
    for store in stores:
        left_out: dict[str, Exception] = {}
        deque(files_of(to_path(store.path), left_out=left_out), maxlen=0)
        for directory, error in left_out.items():
            run.fail(store, directory, ErrorFields.of(error), FailedStep.COPY)
    run.copied()


def check_copies(run: Run) -> None:
    """Refuse to copy to a place outside the output where something else is."""
    for store in run.result.stores if run.saved.read("copy") is None else ():
        if not run.is_in_output(store) and not _is_copied(run, store):
            check_places(to_path(store.path), store.migrated)


def _is_copied(run: Run, store: StoreResult) -> bool:
    """Return whether an interrupted run has copied a store.

    Outside the working directory, others may write too.
    """
    copy = run.copy_of(store)
    if run.is_in_output(store):
        return copy.exists()
    return run.is_resumed and is_complete_copy(to_path(store.path), copy)


def _copy(run: Run, store: StoreResult, progress: Progress) -> int:
    """Copy a store unless its copy exists; return the size of the copy."""
    target = run.copy_of(store)
    if _is_copied(run, store):
        return sum(
            os.stat(os.path.join(folder, name)).st_size
            for folder, _, names in os.walk(target)
            for name in names
        )
    if run.is_in_output(store):
        target.parent.mkdir(parents=True, exist_ok=True)
    return copy_store(to_path(store.path), target, progress=progress).bytes


def finish_other_plans(
    stores: Sequence[StoreResult],
    plans: Sequence[Plan] | None,
    undo_dir: str | os.PathLike[str] | None,
) -> list[Finished]:
    """Finish interrupted changes in place that belong to none of `plans`.

    `plans` are those of the resumed run. Returns the result for each store.
    """
    known = set() if plans is None else {plan.id for plan in plans}
    found = []
    for store in stores:
        files, size, area = 0, 0, None
        for journal in find_journals(store.path, undo_dir):
            if journal.phase == "applying" and journal.plan.id not in known:
                resume(journal)
                files += len(journal.plan.changes)
                size += journal.plan.new_bytes
                area = str(journal.area)
        found.append(Finished(files, size, area))
    return found


def migrate_stores(
    run: Run, spark: SparkSession, undo_dir: str | os.PathLike[str] | None
) -> None:
    """Plan the migration of every store and apply it.

    Undo areas are in `undo_dir`; those of copies in the output are removed again.
    """
    in_output = run.is_copied and all(map(run.is_in_output, run.result.stores))
    if in_output:
        undo_dir = run.working / UNDO_FOLDER
        undo_dir.mkdir(exist_ok=True)
    plans = _plan(run, spark, run.saved.read_plans(list(map(run.location, run.result.stores))))
    total = sum(_directories(plan) for plan in plans)
    with run.step("migrate", "partitions", total) as step:

        def work() -> list[str | None]:
            return list(_apply(spark, plans, undo_dir, step.progress))

        areas: list[str | None] = step.result(work, list)
        if step.saved is not None and not in_output:
            areas = work()  # the change may have been undone meanwhile
        for store, plan, area in zip(run.result.stores, plans, areas, strict=True):
            store.files_made += len(plan.changes)
            store.bytes_made += plan.new_bytes
            if not in_output:
                store.undo_area = area or store.undo_area
        files = sum(store.files_made for store in run.result.stores)
        size = sum(store.bytes_made for store in run.result.stores)
        step.summary = f"{files:,} files of {size:,} bytes made"
    if in_output:
        shutil.rmtree(run.working / UNDO_FOLDER)


def _plan(run: Run, spark: SparkSession, known: list[Plan] | None) -> list[Plan]:
    """Survey stores without time indexes by executors, and plan, store by store."""
    total = len(run.places())
    with run.step("plan", "partitions", total) as step:
        plans: list[Plan] = [] if known is None else known

        def make() -> list[tuple[list[str], list[tuple[str, ErrorFields]]]]:
            plans.clear()
            planned, before = [], 0
            for store in run.result.stores:
                work = partial(spread, spark, progress=shift_progress(step.progress, before, total))
                plan, warnings, failures = _plan_of(run, store, work)
                plans.append(plan)
                planned.append((warnings, failures))
                before += len(store.partitions)
            stores = [store.path for store in run.result.stores]
            run.saved.write_plans(plans, stores if run.result.is_in_place else ())
            return planned

        planned: list[tuple[list[str], list[tuple[str, ErrorFields]]]] = step.result(make, list)
        for store, (warnings, failures) in zip(run.result.stores, planned, strict=True):
            store.warnings.extend(warnings)
            for whose, error in failures:
                run.fail(store, whose, ErrorFields(*error), FailedStep.SURVEY)
        count = sum(len(plan.changes) for plan in plans)
        step.summary = f"{count:,} files to make, mode {run.result.mode}"
    return plans


def _plan_of(
    run: Run, store: StoreResult, work: Runner
) -> tuple[Plan, list[str], list[tuple[str, ErrorFields]]]:
    """Plan one store; return the plan, warnings, and failed partitions with reasons."""
    found = migration.survey(
        run.location(store),
        runner=work,
        read_logs=run.result.mode in migration.READING_MODES,
    )
    failures = [(str(each.topic_partition), ErrorFields.of(each.error)) for each in found.unread]
    warnings = replace(found, root=str(run.final(run.location(store)))).warnings
    return migration.plan(found, run.result.mode), list(map(str, warnings)), failures


def _apply(
    spark: SparkSession,
    plans: Sequence[Plan],
    undo_dir: str | os.PathLike[str] | None,
    step_progress: Progress,
) -> Iterator[str | None]:
    """Apply plans one after another; yield the undo areas."""
    total = sum(_directories(plan) for plan in plans)
    before = 0
    for plan in plans:
        progress = shift_progress(step_progress, before, total)

        def work(
            job: Callable[[Item], Result],
            items: Iterable[Item],
            *,
            weigh: Callable[[Item], int],
            progress: Progress = progress,
        ) -> Iterator[Result]:
            # The step does not count the inspection before.
            shown = progress if job is apply_partition else None
            return spread(spark, job, items, weigh=weigh, progress=shown)

        journal = apply(plan, undo_dir, runner=work)
        for failure in journal.failures:
            raise failure.error
        before += _directories(plan)
        yield str(journal.area) if plan.changes else None


def _directories(plan: Plan) -> int:
    """Count the partitions that a plan changes."""
    return len({os.path.dirname(change.path) for change in plan.changes})


def shift_progress(progress: Progress, before: int, total: int) -> Progress:
    """Return the progress of one store within that of all stores.

    `before` units are done in other stores, of `total` in all.
    """
    return lambda done, _: progress(min(before + done, total), total)
