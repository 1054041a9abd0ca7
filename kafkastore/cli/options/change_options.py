"""The options of all altering commands: plan, in place, or a copy."""
from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import click

from kafkastore.arguments import INT32_MAX
from kafkastore.changes.plan import Plan
from kafkastore.cli.copies import check_upload, make_copy
from kafkastore.cli.options.confirm import check_can_confirm
from kafkastore.cli.options.selection import ANY_PATH, DESTINATION
from kafkastore.cli.options.whole_numbers import WholeNumber
from kafkastore.cli.output.partition_errors import Problems
from kafkastore.paths import refuse_remote
from kafkastore.segment.recovery import INDEX_INTERVAL_BYTES

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])
PlanT = TypeVar("PlanT", bound=Plan)


def index_interval_option(
    help_text: str, default: int | None = INDEX_INTERVAL_BYTES
) -> Callable[[FunctionT], FunctionT]:
    """Return a decorator that adds ``--index-interval-bytes``."""
    return click.option(
        "--index-interval-bytes", type=WholeNumber(min=0, max=INT32_MAX),
        default=default, show_default=True, metavar="N", help=help_text,
    )


@dataclass(frozen=True, slots=True)
class ChangeOptions:
    """Whether a command only plans, changes in place, or changes a copy.

    `verb` is the command's action as in its name; `copy_to` is a Path, or a URL as str; `undo_dir`
    is where undo areas are created if not next to the log directory. `applied_by` is the option
    or the command to which ``--yes`` is added.
    """

    verb: str
    dry_run: bool
    copy_to: Path | str | None
    in_place: bool
    yes: bool
    undo_dir: Path | None
    applied_by: str = "--in-place"

    @property
    def is_plan_only(self) -> bool:
        """Return whether nothing is changed."""
        return self.dry_run or not (self.in_place or self.copy_to is not None)

    @property
    def asks(self) -> bool:
        """Return whether the user must confirm before anything is changed."""
        return self.in_place and not self.yes

    def check(self, paths: Sequence[Path]) -> None:
        """Refuse incompatible options, and what cannot be changed or confirmed."""
        if self.dry_run and self.in_place:
            raise click.UsageError("--dry-run and --in-place cannot be combined")
        if self.copy_to is not None and self.in_place:
            raise click.UsageError("--copy-to and --in-place cannot be combined")
        if self.copy_to is not None and len(paths) > 1:
            raise click.UsageError(f"--copy-to takes one PATH, got {len(paths)}")
        if self.yes and self.copy_to is None and not (self.dry_run or self.in_place):
            raise click.UsageError(
                "--yes needs --in-place or --copy-to"
            )
        if self.asks:
            check_can_confirm(self.applied_by)
        if self.in_place:
            for path in paths:
                refuse_remote(path)

    def directories(
        self, paths: Sequence[Path], problems: Problems, *, as_json: bool
    ) -> Sequence[Path]:
        """Return the directories to plan for: those given, or a copy, which is made here.

        Partitions that can't be copied are reported to `problems`. A copy in an object store is
        made later, from the plan; only its URL is checked here.
        """
        if isinstance(self.copy_to, str):
            check_upload(paths[0], self.copy_to)
        elif self.copy_to is not None and not self.dry_run:
            make_copy(paths[0], self.copy_to, problems, as_json=as_json)
            return (self.copy_to,)
        return paths

    def rooted(self, plan: PlanT) -> PlanT:
        """Return a plan for the directory that is to be changed, which may not exist yet."""
        if isinstance(self.copy_to, Path):
            return replace(plan, root=os.path.abspath(self.copy_to))
        return plan

    @property
    def hint(self) -> str:
        """Return what to print after a plan that was not applied."""
        if self.applied_by != "--in-place":
            return "nothing was changed"
        third_person = self.verb + ("es" if self.verb.endswith("x") else "s")
        return (
            f"nothing was changed; --copy-to DIR {third_person} a copy, --in-place this directory"
        )


def change_options(
    verb: str, *, copies_to_urls: bool = False, default: str | None = None
) -> Callable[[FunctionT], Callable[..., Any]]:
    """Return a decorator that adds the options, passed as `options`: `ChangeOptions`.

    They are ``--dry-run``, ``--copy-to``, ``--in-place``, ``--yes`` and ``--undo-dir``. `default`
    is a sentence for the help on what the command does without any of the first three.
    """
    added = (
        click.option("--dry-run", is_flag=True, help="Only print the plan." + (
                         " This is the default." if default is None else "")),
        click.option("--copy-to", type=DESTINATION if copies_to_urls else ANY_PATH, metavar="DIR",
                     help=f"Copy the directory to this path{' or URL' if copies_to_urls else ''}, "
                     f"and {verb} the copy."),
        click.option("--in-place", is_flag=True, help=f"{verb.capitalize()} the directory itself."
                     + ("" if default is None else f" {default}")),
        click.option("--yes", is_flag=True, help="Do not ask before changing anything in place."),
        click.option("--undo-dir", type=ANY_PATH, metavar="DIR",
                     help="Where to keep replaced files. Default: next to the log directory."),
    )

    def decorate(function: FunctionT) -> Callable[..., Any]:
        @wraps(function)
        def command(
            *,
            dry_run: bool,
            copy_to: Path | str | None,
            in_place: bool,
            yes: bool,
            undo_dir: Path | None,
            **others: Any,
        ) -> Any:
            options = ChangeOptions(verb, dry_run, copy_to, in_place, yes, undo_dir)
            return function(options=options, **others)

        for option in reversed(added):
            command = option(command)
        return command

    return decorate
