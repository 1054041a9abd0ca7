"""``kafkastore changes``: list, resume and undo changes of log directories."""
from __future__ import annotations

import shlex
from pathlib import Path

import click

from kafkastore.changes.journal import Journal, find_half_removed, find_journals, remove
from kafkastore.changes.recovery_areas import (
    RECOVERY_JOB,
    RecoveryArea,
    find_recovery_areas,
    is_recovery_area,
    kept_files,
    remove_recovery_area,
)
from kafkastore.changes.undo_area import KEPT_DIRECTORY, PLAN_FILE, REMOVED_MARK
from kafkastore.cli.apply_plans import finish, go_back, open_journal
from kafkastore.cli.confirm import check_can_confirm, confirm
from kafkastore.cli.failures import note
from kafkastore.cli.few_lines import verbose_option
from kafkastore.cli.json_lines import json_option, write_json
from kafkastore.cli.selection import ANY_PATH
from kafkastore.cli.tables import counted, print_table, show_size
from kafkastore.cli.times import show_time
from kafkastore.cli.visible import visible
from kafkastore.store.log_store import open_store

_AREAS = click.argument("areas", metavar="AREA...", nargs=-1, required=True, type=ANY_PATH)
_ROOT = click.option(
    "--root", type=ANY_PATH, metavar="DIR",
    help="The log directory that was changed, if AREA does not lie beside it.",
)
_TRUST = click.option(
    "--trust-area", is_flag=True,
    help="Take an undo area that others than you and root may have written.",
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
    """List what commands changed in log directories; finish it, undo it, or forget it.

    AREA is an undo area: a directory beside the log directory, named as the list says.
    """


@command.command("list")
@click.argument(
    "paths", metavar="PATH...", nargs=-1, required=True, type=ANY_PATH
)
@click.option("--undo-dir", type=ANY_PATH, metavar="DIR",
              help="Where the undo areas are, if not beside the log directory.")
@json_option
def list_changes(paths: tuple[Path, ...], undo_dir: Path | None, as_json: bool) -> None:
    """List the changes to log directories or partition directories."""
    journals: dict[Path, Journal] = {}
    recovery_areas: dict[Path, RecoveryArea] = {}
    for path in paths:
        open_store(path)  # raises for a path that is not a log directory
        journals |= {each.area: each for each in find_journals(path, undo_dir)}
        recovery_areas |= {each.area: each for each in find_recovery_areas(path, undo_dir)}
        for each in find_half_removed(path, undo_dir):
            note(
                f"the removal of an undo area was interrupted; kafkastore changes remove "
                f"{shlex.quote(str(each))} finishes it"
            )
    if as_json:
        for journal in journals.values():
            write_json(
                {
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
            )
        for recovered in recovery_areas.values():
            write_json(
                {
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
            )
    elif not journals and not recovery_areas:
        print("nothing was changed, or its undo area is gone or elsewhere (--undo-dir)")
    else:
        print_table(
            ["undo area", "job", "state", "since", "files", "kept"],
            [
                *(
                    [
                        str(journal.area),
                        journal.plan.job,
                        journal.phase
                        if journal.is_finished
                        else f"interrupted while {journal.phase}",
                        show_time(journal.at_ms),
                        f"{len(journal.plan.changes):,}",
                        show_size(_kept_bytes(journal.area)),
                    ]
                    for journal in journals.values()
                ),
                *(
                    [
                        str(recovered.area),
                        RECOVERY_JOB,
                        "applied",
                        show_time(recovered.at_ms),
                        f"{recovered.files:,}",
                        show_size(_kept_bytes(recovered.area)),
                    ]
                    for recovered in recovery_areas.values()
                ),
            ],
            right="files,kept",
        )


@command.command("resume")
@_AREAS
@_ROOT
@_TRUST
@verbose_option
@json_option
def resume_change(
    areas: tuple[Path, ...], root: Path | None, trust_area: bool, verbose: bool, as_json: bool
) -> None:
    """Finish changes, or undoings, that were interrupted."""
    for area in areas:
        finish(area, root=root, trust_area=trust_area, as_json=as_json, verbose=verbose)


@command.command("undo")
@_AREAS
@_ROOT
@_TRUST
@click.option("--leave-changed", is_flag=True,
              help="Leave files alone that somebody changed since, and restore the others.")
@verbose_option
@json_option
def undo_change(
    areas: tuple[Path, ...],
    root: Path | None,
    trust_area: bool,
    leave_changed: bool,
    verbose: bool,
    as_json: bool,
) -> int:
    """Put everything back as it was: bytes, modification times, absence.

    Of several changes to the same files give the newest first.
    """
    codes = [
        go_back(
            area, root=root, trust_area=trust_area, leave_changed=leave_changed, as_json=as_json,
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
    """Delete undo areas; what was replaced can't be brought back then."""
    for area in areas:
        if REMOVED_MARK in area.name and area.is_dir():
            remove(area, trust_area=trust_area)
            print(visible(f"removed {area}"))
            continue
        is_of_recovery = is_recovery_area(area)
        files = kept_files(area) if is_of_recovery else len(open_journal(area).plan.changes)
        if not yes:
            check_can_confirm("changes remove")
            kept = show_size(_kept_bytes(area))
            confirm(f"Delete {area} with {kept} of replaced files for ever?", "nothing was removed")
        (remove_recovery_area if is_of_recovery else remove)(area, trust_area=trust_area)
        print(visible(f"removed {area}, {counted(files, 'file')} can't be undone any more"))


def _kept_bytes(area: Path) -> int:
    """Return the total size of the replaced files in an undo area, in bytes."""
    kept = area if is_recovery_area(area) else area / KEPT_DIRECTORY
    return sum(path.stat().st_size for path in kept.rglob("*") if path.is_file())
