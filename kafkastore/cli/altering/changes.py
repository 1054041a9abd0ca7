"""``kafkastore changes``: list, resume and undo changes of log directories."""
from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import click

from kafkastore.changes import REMOVED_MARK
from kafkastore.changes.areas import (
    RECOVERY_JOB,
    RecoveryArea,
    UnreadableArea,
    find_half_removed,
    find_recovery_areas,
    is_recovery_area,
    kept_files,
    open_journals,
    remove,
    remove_recovery_area,
)
from kafkastore.changes.journal import Journal
from kafkastore.changes.undo_area import KEPT_DIRECTORY, PLAN_FILE
from kafkastore.cli.apply_plans import open_journal, resume_plan, undo_plan
from kafkastore.cli.options.confirm import check_can_confirm, confirm
from kafkastore.cli.options.on_spark import check_one_runner, spark_option, threads_option
from kafkastore.cli.options.selection import ANY_PATH
from kafkastore.cli.output.control_characters import print_text
from kafkastore.cli.output.failures import (
    FOUND_PROBLEMS,
    format_error,
    print_note,
    print_problem,
)
from kafkastore.cli.output.grouped_lines import verbose_option
from kafkastore.cli.output.json_lines import json_option, write_json
from kafkastore.cli.output.tables import format_count, print_table
from kafkastore.log.time_text import format_time
from kafkastore.shown_text import format_size
from kafkastore.store.log_store import open_store

_AREAS = click.argument("areas", metavar="AREA...", nargs=-1, required=True, type=ANY_PATH)
_ROOT = click.option(
    "--root", type=ANY_PATH, metavar="DIR",
    help="The log directory that was changed, if AREA is not next to it.",
)
_TRUST = click.option(
    "--trust-area", is_flag=True,
    help="Accept an undo area that users other than you and root may have written.",
)


class _Commands(click.Group):
    """A group that also accepts a directory instead of a command."""

    def resolve_command(
        self, context: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command."""
        path = Path(args[0])
        if args[0] not in self.commands and path.is_dir() and not context.resilient_parsing:
            verb = "undo" if (path / PLAN_FILE).exists() else "list"
            raise click.UsageError(
                f"No such command '{args[0]}', did you mean "
                f"{context.command_path} {verb} {shlex.quote(args[0])}?",
                context,
            )
        return super().resolve_command(context, args)


@click.group(cls=_Commands)
def command() -> None:
    """List, resume, undo or remove the changes of log directories.

    AREA is an undo area: a directory next to the log directory; list shows its name.
    """


@command.command("list")
@click.argument(
    "paths", metavar="PATH...", nargs=-1, required=True, type=ANY_PATH
)
@click.option("--undo-dir", type=ANY_PATH, metavar="DIR",
              help="Where the undo areas are, if not next to the log directory.")
@json_option
def list_changes(paths: tuple[Path, ...], undo_dir: Path | None, as_json: bool) -> int:
    """List the changes to log directories or partition directories."""
    entries: dict[Path, dict[str, Any]] = {}
    interrupted: set[Path] = set()
    unreadable: dict[Path, UnreadableArea] = {}
    for path in paths:
        has_journals = False
        for found in open_journals(path, undo_dir):
            has_journals = True
            if isinstance(found, UnreadableArea):
                unreadable[found.area] = found
                continue
            entries[found.area] = _describe_journal(found)
            if not found.is_finished:
                interrupted.add(found.area)
        if not has_journals:  # a directory that was changed may be empty
            open_store(path)  # raises for a path that is not a log directory
        for recovered in find_recovery_areas(path, undo_dir):
            entries[recovered.area] = _describe_recovery(recovered)
        for each in find_half_removed(path, undo_dir):
            print_note(
                f"the removal of an undo area was interrupted; kafkastore changes remove "
                f"{shlex.quote(str(each))} finishes it"
            )
    # Recovery areas come last.
    ordered = sorted(entries.items(), key=lambda each: each[1]["job"] == RECOVERY_JOB)
    if as_json:
        for _, entry in ordered:
            write_json(entry)
    elif not entries and not unreadable:
        given = ", ".join(map(str, paths))
        if undo_dir is None:
            found_none = f"next to {given}; give --undo-dir DIR if it is elsewhere"
        else:
            found_none = f"in {undo_dir} for {given}"
        print_text(f"no undo area found {found_none}")
    elif entries:
        print_table(
            ["undo area", "job", "phase", "since", "files", "kept"],
            (
                [
                    str(area),
                    entry["job"],
                    ("interrupted while " if area in interrupted else "") + entry["phase"],
                    format_time(entry["at_ms"]),
                    f"{entry['files']:,}",
                    format_size(entry["kept_bytes"]),
                ]
                for area, entry in ordered
            ),
            right="files,kept",
        )
    for area in unreadable.values():
        print_problem(format_error(area.error))
    return FOUND_PROBLEMS if unreadable else 0


def _describe_journal(journal: Journal) -> dict[str, Any]:
    """Return the JSON fields of an undo area of a plan."""
    return {
        "undo_area": str(journal.area),
        "root": journal.plan.root,
        "job": journal.plan.job,
        "phase": journal.phase,
        "files": len(journal.plan.changes),
        "changed": len(journal.changed),
        "left": sorted(journal.left),
        "kept_bytes": _kept_bytes(journal.area),
        "at_ms": journal.at_ms,
    }


def _describe_recovery(recovered: RecoveryArea) -> dict[str, Any]:
    """Return the JSON fields of an undo area of a recovery."""
    return {
        "undo_area": str(recovered.area),
        "root": str(recovered.root),
        "job": RECOVERY_JOB,
        "phase": "applied",
        "files": recovered.files,
        "changed": recovered.files,
        "left": [],
        "kept_bytes": _kept_bytes(recovered.area),
        "at_ms": recovered.at_ms,
    }


@command.command("resume")
@_AREAS
@_ROOT
@_TRUST
@threads_option
@spark_option
@verbose_option
@json_option
def resume_change(
    areas: tuple[Path, ...],
    root: Path | None,
    trust_area: bool,
    threads: int | None,
    master: str | None,
    verbose: bool,
    as_json: bool,
) -> None:
    """Resume interrupted changes and undos."""
    check_one_runner(threads, master)
    for area in areas:
        resume_plan(
            area,
            root=root,
            trust_area=trust_area,
            threads=threads,
            master=master,
            as_json=as_json,
            verbose=verbose,
        )


@command.command("undo")
@_AREAS
@_ROOT
@_TRUST
@click.option("--leave-changed", is_flag=True,
              help="Skip files that were changed since, and restore the others.")
@threads_option
@verbose_option
@json_option
def undo_change(
    areas: tuple[Path, ...],
    root: Path | None,
    trust_area: bool,
    leave_changed: bool,
    threads: int | None,
    verbose: bool,
    as_json: bool,
) -> int:
    """Restore files with their modification times; delete created files.

    Undo the newest of several changes to the same files first.
    """
    codes = [
        undo_plan(
            area,
            root=root,
            trust_area=trust_area,
            leave_changed=leave_changed,
            threads=threads,
            as_json=as_json,
            verbose=verbose,
        )
        for area in areas
    ]
    return max(codes)


@command.command("remove")
@_AREAS
@_TRUST
@click.option("--yes", is_flag=True, help="Do not ask.")
def remove_change(areas: tuple[Path, ...], trust_area: bool, yes: bool) -> None:
    """Delete undo areas; their changes can't be undone afterwards."""
    for area in areas:
        if REMOVED_MARK in area.name and area.is_dir():
            remove(area, trust_area=trust_area)
            print_text(f"removed {area}")
            continue
        is_of_recovery = is_recovery_area(area)
        files = kept_files(area) if is_of_recovery else len(open_journal(area).plan.changes)
        if not yes:
            check_can_confirm("changes remove")
            kept = format_size(_kept_bytes(area))
            question = f"Permanently delete {area} with {kept} of replaced files?"
            confirm(question, "nothing was removed")
        (remove_recovery_area if is_of_recovery else remove)(area, trust_area=trust_area)
        print_text(f"removed {area}, {format_count(files, 'file')} can't be undone any more")


def _kept_bytes(area: Path) -> int:
    """Return the total size of the replaced files in an undo area, in bytes."""
    kept = area if is_recovery_area(area) else area / KEPT_DIRECTORY
    return sum(path.stat().st_size for path in kept.rglob("*") if path.is_file())
