"""``kafkastore pipeline``: run all steps on Spark, from log directories to a report."""
from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kafkastore.changes.journal import each_journal
from kafkastore.cli.changes_command import changes_command
from kafkastore.cli.confirm import check_can_confirm, confirm
from kafkastore.cli.failures import FOUND_PROBLEMS, Interrupted, tell
from kafkastore.cli.json_lines import json_option, write_json
from kafkastore.cli.on_spark import check_installed
from kafkastore.cli.progress import StepProgress
from kafkastore.cli.selection import ANY_PATH, paths_argument
from kafkastore.cli.tables import counted, print_table, show_size
from kafkastore.cli.visible import visible
from kafkastore.errors import KafkaStoreError
from kafkastore.migration import MODES
from kafkastore.spark.watch import SparkFailedError
from kafkastore.store.log_store import open_store

if TYPE_CHECKING:
    from kafkastore.migration.plan import Mode
    from kafkastore.spark.pipeline.results import Agreement, PipelineResult, StoreResult, SummaryRow

#: Packages that the pipeline imports; the extra `spark` installs them.
_NEEDED = ("pyspark", "pandas", "jinja2", "matplotlib")


@click.command()
@paths_argument()
@click.option("--out", required=True, type=ANY_PATH, metavar="DIR",
              help="Where the results go: new, empty, or of an earlier run, which is replaced.")
@click.option("--mode", type=click.Choice(MODES), default="auto", show_default=True,
              help="As in kafkastore migrate.")
@click.option("--in-place", is_flag=True,
              help="Migrate the directories themselves. Default: copies in the output.")
@click.option("--yes", is_flag=True, help="Do not ask before changing anything in place.")
@click.option("--undo-dir", type=ANY_PATH, metavar="DIR",
              help="In place: where to keep what is replaced. Default: beside the log directory.")
@click.option("--spark", "master", default="local[*]", show_default=True, metavar="MASTER",
              help="The Spark to run on: local[*], local[4], spark://host:7077, sc://host:15002.")
@click.option("--samples", type=click.IntRange(min=1), default=9, show_default=True, metavar="N",
              help="Times to ask each partition for, besides those around its segments' times.")
@click.option("--resume", is_flag=True, help="Go on with what an interrupted run left.")
@json_option
def command(
    paths: tuple[Path, ...],
    out: Path,
    mode: Mode,
    in_place: bool,
    yes: bool,
    undo_dir: Path | None,
    master: str,
    samples: int,
    resume: bool,
    as_json: bool,
) -> int:
    """Take log directories the whole way on Spark.

    Survey, verify, migrate a copy (or in place), records to Parquet, offsets for a spread of times
    by legacy, kip-33, 2.4 and correct rules before and after, and a report as one HTML page.
    """
    if undo_dir is not None and not in_place:
        raise click.UsageError("--undo-dir goes with --in-place")
    for path in paths:
        open_store(path)  # checks the path before Spark is imported
    if in_place and not yes:
        check_can_confirm("--in-place")
        confirm(f"Migrate {', '.join(map(str, paths))} in place?", "nothing was changed")
    run = _import_pipeline()
    shown = StepProgress(_write_step if as_json else _print_step)
    earlier = _undo_areas(paths, undo_dir) if in_place else {}
    try:
        result: PipelineResult = run(
            paths,
            out,
            in_place=in_place,
            mode=mode,
            master=master,
            sample_times=samples,
            resume=resume,
            undo_dir=undo_dir,
            progress=shown,
        )
    except (KeyboardInterrupt, SparkFailedError) as error:
        areas = _undo_areas(paths, undo_dir) if in_place else {}
        changed = [told for area, told in areas.items() if earlier.get(area) != told]
        left = "; ".join(
            [*changed, f"{out} is as it was before, and the same command with --resume goes on"]
        )
        if isinstance(error, KeyboardInterrupt):
            raise Interrupted(f"interrupted; {left}") from error
        raise KafkaStoreError(f"{error}; {left}") from error
    finally:
        shown.close()
    if as_json:
        _write_result(result)
    else:
        _print_result(result)
    for problem in result.problems:
        tell(problem)
    return FOUND_PROBLEMS if result.problems else 0


def _undo_areas(paths: tuple[Path, ...], undo_dir: Path | None) -> dict[Path, str]:
    """Describe the state of each migration of some directories, and how to undo it."""
    return {
        journal.area: (
            f"{len(journal.changed):,} of {counted(len(journal.plan.changes), 'file')} are changed "
            f"in {path}, each wholly or not at all: "
            f"{changes_command('undo', journal.area, journal.plan.root)} goes back"
        )
        for path in paths
        for journal in each_journal(path, undo_dir)
    }


def _import_pipeline() -> Callable[..., Any]:
    """Import the pipeline; raise with one sentence if Spark is not installed."""
    check_installed("the pipeline", _NEEDED)
    from kafkastore.spark.pipeline import run_pipeline

    return run_pipeline


def _write_step(step: str, seconds: float, summary: str) -> None:
    """Write a finished step as JSON."""
    write_json({"kind": "step", "step": step, "seconds": round(seconds, 3), "summary": summary})
    sys.stdout.buffer.flush()


def _print_step(step: str, seconds: float, summary: str) -> None:
    """Print a finished step."""
    print(visible(f"{step:<18} {seconds:7.1f} s  {summary}".rstrip()), flush=True)


def _write_result(result: PipelineResult) -> None:
    """Write the figures of each store, then the output paths, as JSON."""
    for row in result.summary():
        numbers = row._asdict()
        agreements = {name: numbers[name]._asdict() for name in ("before", "after")}
        write_json({"kind": "store", **numbers, **agreements})
    write_json(
        {
            "kind": "result",
            "out": str(result.out),
            "report": str(result.report),
            "records": str(result.records),
            "stores": [
                {
                    "name": store.name,
                    "path": store.path,
                    "migrated": store.migrated,
                    "undo_area": store.undo_area,
                }
                for store in result.stores
            ],
            "problems": result.problems,
        }
    )


def _print_result(result: PipelineResult) -> None:
    """Print the figures of each store, the output paths, and what to try next."""
    print()
    print_table(
        ["store", "partitions", "segments", "records", "size", "findings", "files made", "legacy",
         "kip-33", "2.4"],
        (_summary_cells(row) for row in result.summary()),
        right="partitions,segments,records,size,files made",
    )
    print(
        "\nlegacy, kip-33, 2.4: right answers of all times asked. An arrow: before and after the "
        "migration."
    )
    for row in result.summary():
        if row.not_asked:
            partitions = f"{row.not_asked:,} of {counted(row.partitions, 'partition')}"
            print(
                visible(f"{row.store}: {partitions} not asked, {row.damaged:,} damaged; ")
                + "the numbers are of the others"
            )
    print(visible(f"\nreport   {result.report}"))
    print(visible(f"records  {result.records}"))
    for store in result.stores:
        print(visible(f"migrated {store.migrated}"))
        if store.undo_area is not None:
            undo = changes_command("undo", Path(store.undo_area), store.migrated)
            print(visible(f"to undo  {undo}"))
    print("\nTry next:")
    for line in _next_commands(result):
        print(visible(f"  {line}"))


def _summary_cells(row: SummaryRow) -> list[str]:
    return [
        row.store,
        f"{row.partitions:,}",
        f"{row.segments:,}",
        f"{row.records:,}",
        show_size(row.bytes),
        _change(f"{row.findings_before:,}", f"{row.findings_after:,}"),
        f"{row.files_made:,}",
        *(_change(_share(row.before, name), _share(row.after, name))
          for name in ("legacy", "kip_33", "broker")),
    ]


def _share(agreement: Agreement, rules: str) -> str:
    return f"{getattr(agreement, rules):,}/{agreement.asked:,}"


def _change(before: str, after: str) -> str:
    return before if before == after else f"{before} -> {after}"


def _has_timestamps(store: StoreResult) -> bool:
    """Return whether any record has a timestamp, so that a lookup by time is possible."""
    return any(row.correct is not None for rows in store.after.values() for row in rows)


def _next_commands(result: PipelineResult) -> list[str]:
    """Return commands that show the result, and that run the same on the user's own data."""
    stamped = [store for store in result.stores if _has_timestamps(store)]
    migrated = shlex.quote((stamped or result.stores)[0].migrated)
    another = shlex.quote(str(result.out.with_name(result.out.name + "-2")))
    by_time = f"kafkastore offsets {migrated} --at -1m --relative-to newest --rules all"
    return [
        f"kafkastore ls {migrated}",
        *([by_time] if stamped else []),
        f"kafkastore cat {migrated} --limit 10 --json",
        "kafkastore verify /path/to/your/kafka-logs",
        "kafkastore migrate /path/to/your/kafka-logs --dry-run",
        f"kafkastore pipeline /path/to/your/kafka-logs --out {another}",
    ]
