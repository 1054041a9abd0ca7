"""The pipeline on Spark: inventory, verify, migrate, write, look up, report.

1. Inventory: each partition is read once.
2. Verify the stores, and look up offsets for times.
3. Copy each store into the output (unless it is migrated in place), plan the migration, apply it.
4. Verify and look up again.
5. Write the records to Parquet through the data source, and count them.
6. Write ``report.html`` and ``result.json``, and move the output directory to its place.
"""
from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from kafkastore.arguments import whole_number
from kafkastore.checks.findings import Finding, FindingKind
from kafkastore.checks.verify import ClusterCheck
from kafkastore.clock import clock
from kafkastore.errors import ChangeRefusedError, RefusalReason
from kafkastore.formats.state.file_names import TopicPartition
from kafkastore.fs import FileSystem
from kafkastore.jobs.compare import AnswersJob, AskedPartition
from kafkastore.jobs.error_fields import ErrorFields
from kafkastore.jobs.inventory import InventoryJob, PartitionInventory, SegmentInventory
from kafkastore.jobs.verify import VerifyJob, with_topic_ids
from kafkastore.paths import to_path
from kafkastore.runner import Progress
from kafkastore.spark import register
from kafkastore.spark.pipeline import report
from kafkastore.spark.pipeline.migrating import (
    Finished,
    check_copies,
    copy_stores,
    finish_other_plans,
    migrate_stores,
    shift_progress,
)
from kafkastore.spark.pipeline.output_directory import output_directory, store_names
from kafkastore.spark.pipeline.records import write_records
from kafkastore.spark.pipeline.results import (
    AnswerColumns,
    FailedStep,
    PipelineResult,
    StoreResult,
    agreement,
    by_severity,
)
from kafkastore.spark.pipeline.run import Run
from kafkastore.spark.pipeline.saved_steps import SavedSteps
from kafkastore.spark.runner import spread
from kafkastore.spark.session import session
from kafkastore.spark.watch import failures_of_spark, is_connect
from kafkastore.store.cluster_metadata import find_cluster_or_warn
from kafkastore.store.log_store import (
    AnyPath,
    Paths,
    is_partition_directory,
    listed,
    open_store,
    root_of_plan,
)
from kafkastore.store.partition_path import PartitionPath
from kafkastore.store.sample_times import MOST_SAMPLES, SAMPLES
from kafkastore.versions import NEWEST_VERSION

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kafkastore.migration.plan import Mode
    from kafkastore.spark.progress import PipelineProgress


def run_pipeline(
    path: Paths,
    out: AnyPath,
    *,
    copy_to: AnyPath | None = None,
    in_place: bool = False,
    mode: Mode = "auto",
    master: str = "local[*]",
    samples: int = SAMPLES,
    timestamps: Sequence[int] = (),
    resume: bool = False,
    undo_dir: AnyPath | None = None,
    progress: PipelineProgress | None = None,
    spark: SparkSession | None = None,
) -> PipelineResult:
    """Verify, migrate and export Kafka log directories, and write a report.

    Parameters
    ----------
    path : path-like, LogStore or list of these
        Log directories or partition directories; each is a separate store in the report.
    out : path-like
        The output directory: missing, empty, or that of an earlier run, which is replaced when this
        run is done.
    copy_to : path-like, optional
        Where to make the copy that is migrated, of a single store. Default: in the output.
    in_place : bool
        Whether to migrate the directories themselves, with replaced files in an undo area, instead
        of copies.
    mode : {"auto", "kip-33", "rebuild", "empty"}
        See `kafkastore.migration.plan`.
    master : str
        The Spark master to use if `spark` is not given.
    samples : int
        How many times spread over the records of each partition to look up, besides others where
        answers can differ, up to 200 together; 0: no lookups.
    timestamps : sequence of int
        If given, exactly these times are looked up, ms since 1970, in all partitions.
    resume : bool
        Whether to continue an interrupted run: reuse its copies, or, in place, finish its changes.
    undo_dir : path-like, optional
        With `in_place` or `copy_to`: the directory for undo areas. Default: next to each log
        directory.
    progress : PipelineProgress, optional
        Receives the progress of each step.
    spark : SparkSession, optional
        A session to use. This function stops neither it nor a session that it starts.

    Returns
    -------
    PipelineResult
        Partitions that failed are among its problems; all others are complete.

    Raises
    ------
    NotALogDirectoryError
        If a path is not a log directory.
    ChangeRefusedError
        If `out` or `copy_to` has other files, a broker has a directory open, files change during
        the run, or options cannot be combined.
    SparkFailedError
        If Spark fails; finished steps are saved for a run with `resume`.
    """
    given = listed(path)
    if copy_to is not None and in_place:
        raise ChangeRefusedError(
            "copy_to and in_place cannot be combined", RefusalReason.UNSUPPORTED
        )
    if copy_to is not None and len(given) != 1:
        raise ChangeRefusedError(
            f"copy_to takes one path, got {len(given)}", RefusalReason.UNSUPPORTED
        )
    if undo_dir is not None and not in_place and copy_to is None:
        raise ChangeRefusedError(
            "undo_dir requires in_place or copy_to: copies in the output are removed, not undone",
            RefusalReason.UNSUPPORTED,
        )
    sources = [root_of_plan(each) for each in given]
    for source in sources:
        open_store(source)
    target = Path(os.path.realpath(out))
    outside = [] if copy_to is None else [Path(os.path.realpath(copy_to))]
    names = store_names(sources)
    migrated = sources if in_place else outside or map(partial(_copy, target), names, sources)
    stores = [
        StoreResult(name, str(source), str(place))
        for name, source, place in zip(names, sources, migrated, strict=True)
    ]
    result = PipelineResult(target, mode, clock(), stores)
    apart = [*sources, *outside]
    with output_directory(target, apart, resume=resume) as working, failures_of_spark():
        saved, fs = SavedSteps(working), FileSystem()
        options = {
            "stores": [[store.name, store.path, store.migrated] for store in stores],
            "mode": mode,
            "samples": whole_number("samples", samples, 0, MOST_SAMPLES),
            "timestamps": [whole_number("timestamps", each) for each in timestamps],
            "undo_dir": None if undo_dir is None else os.path.realpath(undo_dir),
        }
        _take_over(result, saved, options, undo_dir, resume=resume)
        run = Run(result, working, saved, progress, is_resumed=resume)
        if not in_place:
            check_copies(run)
        with run.step("start Spark", "session") as step:
            spark = session(master) if spark is None else spark
            register(spark)
            where = "Connect" if is_connect(spark) else spark.sparkContext.master
            step.summary = f"Spark {spark.version} on {where}"
        _inventory_of(run, spark, 0 if timestamps else samples)
        _verify(run, spark, after=False)
        times = _times(run, timestamps)
        for store in stores:
            report.drop_samples(store)
        _ask(run, spark, times, after=False)
        if not in_place:
            copy_stores(run)
        migrate_stores(run, spark, undo_dir)
        _verify(run, spark, after=True)
        write_records(run, spark)
        _ask(run, spark, times, after=True)
        with run.step("report", "pages") as step:
            fs.replace_content(working / "report.html", report.render(result).encode())
            step.summary = str(result.report)
        with (working / "result.json").open("w", encoding="utf-8") as file:
            file.writelines(result.json_parts())
            file.flush()
            fs.fsync(file.fileno())
        fs.fsync_directory(working)
    return result


def _take_over(
    result: PipelineResult,
    saved: SavedSteps,
    options: Mapping[str, Any],
    undo_dir: AnyPath | None,
    *,
    resume: bool,
) -> None:
    """Resume an interrupted run, or start a new one."""
    paths = [store.path for store in result.stores]
    finished: list[Finished] = []
    also = None
    if resume:
        also = saved.take_over(options, paths)
        if result.is_in_place:
            plans = saved.read_plans(list(map(Path, paths)))
            finished = finish_other_plans(result.stores, plans, undo_dir)
        if any(each.files for each in finished):
            saved.discard()  # these results are from when the files were only partly changed
            also = None
    if also is None:
        also = {"now": result.now, "finished": finished}
        saved.start(options, paths, also)
    result.now = also["now"]
    for store, (files, size, area) in zip(result.stores, also["finished"], strict=False):
        store.files_made, store.bytes_made, store.undo_area = files, size, area


def _copy(target: Path, name: str, source: Path) -> Path:
    """Return the path of a store's copy; a partition directory must keep its name."""
    folder = target / "migrated" / name
    return folder / source.name if is_partition_directory(source) else folder


def _inventory_of(run: Run, spark: SparkSession, samples: int) -> None:
    """Read each partition once; choose the times to look up."""
    items = [(place,) for place in run.places()]
    with run.step("inventory", "partitions", len(items)) as step:
        job = InventoryJob(samples)
        runner = partial(spread, spark, progress=step.progress)
        rows = step.result(
            lambda: list(job.results(items, runner)),
            lambda values: [_inventory(value) for value in values],
        )
        for row in rows:
            run.store(row.place).partitions.append(row)
            if row.error is not None:
                run.fail_partition(row.place, row.error, FailedStep.READ)
        records = sum(store.records for store in run.result.stores)
        segments = sum(store.segments for store in run.result.stores)
        step.summary = f"{records:,} records in {segments:,} segments"


def _inventory(value: list[Any]) -> PartitionInventory:
    """Rebuild a row from JSON values."""
    row = PartitionInventory(*value)
    return row._replace(
        place=PartitionPath(*row.place),
        segments=tuple(SegmentInventory(*segment) for segment in row.segments),
        samples=tuple((timestamp, offset) for timestamp, offset in row.samples),
        error=_error(row.error),
        times=tuple(row.times),
    )


def _error(value: Sequence[Any] | None) -> ErrorFields | None:
    """Rebuild an error from JSON values."""
    return None if value is None else ErrorFields(*value)


def _verify(run: Run, spark: SparkSession, *, after: bool) -> None:
    """Check each store, before the migration or after it."""
    total = sum(len(store.partitions) for store in run.result.stores)
    with run.step("verify again" if after else "verify", "partitions", total) as step:
        checked = step.result(
            lambda: list(_checked(run, spark, step.progress, total)),
            lambda values: [
                _Checked(
                    [_finding(*finding) for finding in findings],
                    [(whose, ErrorFields(*error)) for whose, error in failures],
                )
                for findings, failures in values
            ],
        )
        for store, (findings, failures) in zip(run.result.stores, checked, strict=True):
            (store.findings_after if after else store.findings_before).extend(findings)
            for whose, error in failures:
                run.fail(store, whose, error, FailedStep.VERIFY)
        counts = by_severity(finding for each in checked for finding in each.findings)
        found = ", ".join(f"{count:,} {severity}" for severity, count in counts.items())
        step.summary = found or "nothing found"


class _Checked(NamedTuple):
    """A store's findings, and the partitions that were not checked, with reasons."""

    findings: list[Finding]
    failures: list[tuple[str, ErrorFields]]


def _checked(
    run: Run, spark: SparkSession, progress: Progress, total: int
) -> Iterator[_Checked]:
    """Check one store after another."""
    before = 0
    for store in run.result.stores:
        runner = partial(spread, spark, progress=shift_progress(progress, before, total))
        findings: list[Finding] = []
        failures: list[tuple[str, ErrorFields]] = []
        opened = open_store(run.location(store))
        job = VerifyJob(cluster=ClusterCheck.of(find_cluster_or_warn(opened), opened))
        items = job.items(opened)
        for each in with_topic_ids(job.results(items, runner)):
            findings += each.findings
            whose = each.topic_partition or "the directory"
            failures += ((str(whose), ErrorFields.of(error)) for error in each.failures)
        yield _Checked(
            [each._replace(path=run.final(each.path)) for each in findings], failures
        )
        before += len(store.partitions)


def _finding(kind: str, path: str, *rest: Any) -> Finding:
    """Rebuild a finding from JSON values."""
    return Finding(FindingKind(kind), to_path(path), *rest)


def _times(
    run: Run, timestamps: Sequence[int]
) -> dict[tuple[str, TopicPartition], Sequence[int]]:
    """Return the times to look up in each readable partition, by store and partition."""
    return {
        (row.place.store, row.place.topic_partition): timestamps or row.times
        for row in run.inventories()
        if row.error is None
    }


def _ask(
    run: Run,
    spark: SparkSession,
    times: Mapping[tuple[str, TopicPartition], Sequence[int]],
    *,
    after: bool,
) -> None:
    """Look up times in each partition, before the migration or after it."""
    asked = [
        AskedPartition(place, chosen)
        for place in run.places()
        if (chosen := times.get((place.store, place.topic_partition)))
    ]
    with run.step("offsets again" if after else "offsets", "partitions", len(asked)) as step:
        job = AnswersJob(run.result.now)
        runner = partial(spread, spark, progress=step.progress)
        answers = step.result(
            lambda: [
                (each.place, AnswerColumns(each.rows), each.error)
                for each in job.results(asked, runner)
            ],
            lambda values: [
                (PartitionPath(*place), AnswerColumns(rows), _error(error))
                for place, rows, error in values
            ],
        )
        for place, rows, error in answers:
            store = run.store(place)
            (store.after if after else store.before)[place.topic_partition] = rows
            if error is not None:
                run.fail_partition(place, error, FailedStep.LOOKUP)
        right = agreement(rows for _, rows, _ in answers)
        step.summary = (
            f"{right.times:,} times, correct by legacy {right.legacy:,}, kip-33 {right.kip_33:,}, "
            f"{NEWEST_VERSION} {right.broker:,}"
        )
