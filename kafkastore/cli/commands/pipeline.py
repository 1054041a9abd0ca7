"""``kafkastore pipeline``: from log directories to a report, on Spark."""
from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from kafkastore.changes.areas import each_journal
from kafkastore.cli.altering import migrate
from kafkastore.cli.options.change_options import ChangeOptions, change_options
from kafkastore.cli.options.confirm import confirm
from kafkastore.cli.options.on_spark import check_installed
from kafkastore.cli.options.selection import ANY_PATH, paths_argument
from kafkastore.cli.options.whole_numbers import WholeNumber
from kafkastore.cli.output.changes_command import changes_command
from kafkastore.cli.output.control_characters import print_text
from kafkastore.cli.output.failures import FOUND_PROBLEMS, Interrupted, print_problem
from kafkastore.cli.output.json_lines import json_option, write_json
from kafkastore.cli.output.progress import StepProgress
from kafkastore.cli.output.tables import format_count, print_table
from kafkastore.errors import KafkaStoreError
from kafkastore.migration import MODES
from kafkastore.shown_text import escape_control_characters, format_size
from kafkastore.spark.watch import SparkFailedError
from kafkastore.store.log_store import open_store
from kafkastore.store.sample_times import MOST_SAMPLES, SAMPLES
from kafkastore.versions import NEWEST_VERSION

if TYPE_CHECKING:
    from kafkastore.changes.journal import Phase
    from kafkastore.migration.plan import Mode
    from kafkastore.spark.pipeline.results import Agreement, PipelineResult, StoreResult, SummaryRow

#: Packages that the pipeline imports; the extra `spark` installs them.
_REQUIRED_PACKAGES = ("pyspark", "pandas", "jinja2", "matplotlib")


@click.command()
@paths_argument()
@click.option("--out", type=ANY_PATH, metavar="DIR",
              help="Output directory: new, empty, or of an earlier run, which is replaced.")
@click.option("--mode", type=click.Choice(MODES), default="auto", show_default=True,
              help="As in kafkastore migrate.")
@change_options("migrate", default="Without --copy-to and --in-place, the run "
                "migrates copies in its output.")
@click.option("--spark", "master", default="local[*]", show_default=True, metavar="MASTER",
              help="The Spark master: local[*], local[4], spark://host:7077, sc://host:15002.")
@click.option("--samples", type=WholeNumber(0, MOST_SAMPLES), default=SAMPLES, show_default=True,
              metavar="N",
              help="Number of times to look up in each partition, besides those where answers "
              "can differ; 0: no lookups.")
@click.option("--resume", is_flag=True, help="Continue an interrupted run.")
@json_option
def command(
    paths: tuple[Path, ...],
    out: Path | None,
    mode: Mode,
    options: ChangeOptions,
    master: str,
    samples: int,
    resume: bool,
    as_json: bool,
) -> int:
    """Run all steps on Spark, from inventory to report.

    Inventory, verify, look up times by legacy, kip-33, newest-version and correct rules, migrate
    copies (or in place), verify again, write records to Parquet, look up times again, and write an
    HTML report.
    """
    if options.dry_run and resume:
        raise click.UsageError("--resume and --dry-run cannot be combined")
    options.check(paths)
    if options.dry_run:
        found: int = click.get_current_context().invoke(
            migrate.command,
            paths=paths,
            mode=mode,
            dry_run=True,
            copy_to=options.copy_to,
            master=master,
            as_json=as_json,
        )
        return found
    if out is None:
        raise click.UsageError("Missing option '--out'.")
    if options.undo_dir is not None and options.is_plan_only:
        raise click.UsageError("--undo-dir needs --in-place or --copy-to")
    for path in paths:
        open_store(path)  # checks the path before Spark is imported
    if options.asks:
        confirm(f"Migrate {', '.join(map(str, paths))} in place?", "nothing was changed")
    run = _import_pipeline()
    shown = StepProgress(_write_step if as_json else _print_step)
    earlier = _undo_areas(paths, options)
    try:
        result: PipelineResult = run(
            paths,
            out,
            copy_to=options.copy_to,
            in_place=options.in_place,
            mode=mode,
            master=master,
            samples=samples,
            resume=resume,
            undo_dir=options.undo_dir,
            progress=shown,
        )
    except (KeyboardInterrupt, SparkFailedError) as error:
        areas = _undo_areas(paths, options)
        changed = [each.describe() for area, each in areas.items() if earlier.get(area) != each]
        left = "; ".join(
            [*changed, f"{out} is unchanged; run the same command with --resume to continue"]
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
        print_problem(problem)
    return FOUND_PROBLEMS if result.problems else 0


class _Migration(NamedTuple):
    """The state of one migration outside the output."""

    path: Path
    area: Path
    root: str
    phase: Phase
    changed: int
    files: int

    def describe(self) -> str:
        """Return how far it is, and how to undo it."""
        return (
            f"{self.changed:,} of {format_count(self.files, 'file')} are changed in {self.path}: "
            f"{changes_command('undo', self.area, self.root)} undoes them; "
            "each file is entirely old or entirely new"
        )


def _undo_areas(paths: Sequence[Path], options: ChangeOptions) -> dict[Path, _Migration]:
    """Return the migrations outside the output, by undo area."""
    if options.is_plan_only:
        return {}
    changed = paths if options.copy_to is None else [Path(options.copy_to)]
    return {
        journal.area: _Migration(
            path,
            journal.area,
            journal.plan.root,
            journal.phase,
            len(journal.changed),
            len(journal.plan.changes),
        )
        for path in changed
        for journal in each_journal(path, options.undo_dir)
    }


def _import_pipeline() -> Callable[..., Any]:
    """Import the pipeline; raise with one sentence if Spark is not installed."""
    check_installed("the pipeline", _REQUIRED_PACKAGES)
    from kafkastore.spark.pipeline import run_pipeline

    return run_pipeline


def _write_step(step: str, seconds: float, summary: str) -> None:
    """Write a finished step as JSON."""
    write_json({"kind": "step", "step": step, "seconds": round(seconds, 3), "summary": summary})
    sys.stdout.buffer.flush()


def _print_step(step: str, seconds: float, summary: str) -> None:
    """Print a finished step."""
    print(escape_control_characters(f"{step:<18} {seconds:7.1f} s  {summary}".rstrip()), flush=True)


def _write_result(result: PipelineResult) -> None:
    """Write the figures of each store, then the output paths, as JSON."""
    for row in result.summary():
        write_json({"kind": "store", **row.as_json()})
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
         "kip-33", NEWEST_VERSION],
        (_summary_cells(row) for row in result.summary()),
        right="partitions,segments,records,size,files made",
    )
    print(
        f"\nlegacy, kip-33, {NEWEST_VERSION}: correct answers of all times looked up; "
        "a -> b: before and after the migration"
    )
    for row in result.summary():
        if count := row.partitions_without_answers:
            partitions = f"{count:,} of {format_count(row.partitions, 'partition')}"
            print_text(
                f"{row.store}: no times looked up in {partitions}, {row.corrupt_partitions:,} "
                "corrupt; the numbers are of the others"
            )
    print_text("", f"report   {result.report}")
    print_text(f"records  {result.records}")
    for store in result.stores:
        print_text(f"migrated {store.migrated}")
        if store.undo_area is not None:
            undo = changes_command("undo", Path(store.undo_area), store.migrated)
            print_text(f"to undo  {undo}")
    print("\nTry next:")
    for line in _next_commands(result):
        print_text(f"  {line}")


def _summary_cells(row: SummaryRow) -> list[str]:
    return [
        row.store,
        f"{row.partitions:,}",
        f"{row.segments:,}",
        f"{row.records:,}",
        format_size(row.bytes),
        _change(f"{row.findings_before:,}", f"{row.findings_after:,}"),
        f"{row.files_made:,}",
        *(_change(_share(row.before, name), _share(row.after, name))
          for name in ("legacy", "kip_33", "broker")),
    ]


def _share(agreement: Agreement, rules: str) -> str:
    return f"{getattr(agreement, rules):,}/{agreement.times:,}"


def _change(before: str, after: str) -> str:
    return before if before == after else f"{before} -> {after}"


def _has_timestamps(store: StoreResult) -> bool:
    """Return whether any record has a timestamp to look up."""
    return any(row.correct is not None for rows in store.after.values() for row in rows)


def _next_commands(result: PipelineResult) -> list[str]:
    """Return commands that show the result, and what the original lacks."""
    stamped = [store for store in result.stores if _has_timestamps(store)]
    shown = (stamped or result.stores)[0]
    migrated, given = shlex.quote(shown.migrated), shlex.quote(shown.path)
    by_time = f"kafkastore offsets {migrated} --at -1m --relative-to newest --rules all"
    return [
        f"kafkastore ls {migrated}",
        *([by_time] if stamped else []),
        f"kafkastore cat {migrated} --limit 10 --json",
        f"kafkastore verify {migrated}",
        *([f"kafkastore migrate {given} --dry-run"] if given != migrated else []),
    ]
