"""The pipeline's migration: copies, plans worked out by Spark, changes applied here."""
from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from kafkastore import migration
from kafkastore.changes.apply import apply
from kafkastore.changes.copy_store import copy_store
from kafkastore.changes.journal import Journal, find_journals, remove
from kafkastore.changes.plan import Plan
from kafkastore.changes.undo import resume as resume_changes
from kafkastore.spark.jobs import partition_jobs
from kafkastore.spark.pipeline.results import StoreResult
from kafkastore.spark.pipeline.run import Run
from kafkastore.spark.spread import spread

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Kafka's default for topics; rebuilt indexes are as dense as that.
INDEX_INTERVAL_BYTES = 4096
UNDO_FOLDER = "undo"


def copy_stores(run: Run) -> None:
    """Copy every store into the output, modification times and all.

    A copy appears under its name when it is whole; one that an interrupted run has finished is
    taken as it is.
    """
    total = sum(
        len(files) for store in run.result.stores for _, _, files in os.walk(store.path)
    )
    with run.step("copy", "files", total) as step:
        advance = _counter(lambda done: step.tell(done, total))
        size = 0
        for store in run.result.stores:
            target = run.copy_of(store)
            target.parent.mkdir(parents=True, exist_ok=True)
            if not target.exists():
                size += copy_store(store.path, target, progress=advance).bytes
        step.summary = f"{size:,} bytes"
    run.copied()


def migrate_stores(
    run: Run, spark: SparkSession, undo_dir: str | os.PathLike[str] | None, *, resume: bool
) -> None:
    """Work out the migration of every store, and apply it.

    Parameters
    ----------
    run : Run
    spark : SparkSession
    undo_dir : path-like or None
        Where undo areas go; of copies, whose originals are there, they are removed again.
    resume : bool
        Whether unfinished changes of an interrupted run are finished first.
    """
    if run.is_copied:
        undo_dir = run.working / UNDO_FOLDER
        undo_dir.mkdir(exist_ok=True)
    if resume:
        for store in run.result.stores:
            _resume(run, store, undo_dir)
    plans = _plan(run, spark)
    total = sum(len(plan.changes) for plan in plans)
    with run.step("migrate", "files", total) as step:
        advance = _counter(lambda done: step.tell(done, total))
        for store, plan in zip(run.result.stores, plans, strict=True):
            journal = apply(plan, undo_dir, progress=advance, threads=os.cpu_count() or 1)
            _note(run, store, journal)
        files = sum(store.files_made for store in run.result.stores)
        size = sum(store.bytes_made for store in run.result.stores)
        step.summary = f"{files:,} files of {size:,} bytes made"
    if run.is_copied and undo_dir is not None:
        Path(undo_dir).rmdir()


def _resume(run: Run, store: StoreResult, undo_dir: str | os.PathLike[str] | None) -> None:
    """Finish what an interrupted run began, and note what it had finished."""
    for journal in find_journals(run.location(store), undo_dir):
        if journal.phase == "applying":
            _note(run, store, resume_changes(journal, threads=os.cpu_count() or 1))
        elif journal.phase == "applied" and journal.plan.job == f"migrate ({run.result.mode})":
            _note(run, store, journal)


def _plan(run: Run, spark: SparkSession) -> list[Plan]:
    """Survey on Spark what lacks time indexes, and plan, store by store."""
    places = run.places()
    with run.step("plan", "partitions", len(places)) as step:
        job = partial(
            partition_jobs.survey_for_migration,
            read_logs=run.result.mode in ("auto", "rebuild"),
            index_interval_bytes=INDEX_INTERVAL_BYTES,
        )
        surveyed = spread(spark, job, places, weigh=lambda each: each.bytes, tell=step.tell)
        for each in surveyed:
            if each.error is not None:
                run.fail(each.place, each.error, "surveyed for the migration")
        plans = [_plan_of(run, store, surveyed) for store in run.result.stores]
        count = sum(len(plan.changes) for plan in plans)
        step.summary = f"{count:,} files to make, mode {run.result.mode}"
    return plans


def _plan_of(run: Run, store: StoreResult, surveyed: Iterable[partition_jobs.Surveyed]) -> Plan:
    found = migration.survey(
        run.location(store), read_logs=False, index_interval_bytes=INDEX_INTERVAL_BYTES
    )
    partitions = (
        each.survey
        for each in surveyed
        if each.place.store == store.name and each.survey is not None
    )
    found = replace(found, partitions=tuple(partitions))
    store.warnings.extend(run.final(str(warning)) for warning in found.warnings)
    return migration.plan(found, run.result.mode)


def _note(run: Run, store: StoreResult, journal: Journal) -> None:
    """Note what was made, and where the old files are, or that they are not needed."""
    store.files_made += len(journal.plan.changes)
    store.bytes_made += journal.plan.new_bytes
    if not journal.plan.changes:
        return
    if run.is_copied:
        remove(journal)
    else:
        store.undo_area = str(journal.area)


def _counter(tell: Callable[[int], None]) -> Callable[[object], None]:
    """Return a function that counts how often it is called, and tells."""
    done = 0

    def advance(_done: object) -> None:
        nonlocal done
        done += 1
        tell(done)

    return advance


