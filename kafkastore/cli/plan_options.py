"""The options of commands that plan changes, and what such commands end with."""
from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from kafkastore.changes.plan import Plan
from kafkastore.cli.applied import apply_plan
from kafkastore.cli.confirm import check_can_confirm, confirm
from kafkastore.cli.selection import ANY_PATH, DESTINATION
from kafkastore.cli.tables import counted
from kafkastore.errors import ChangeRefusedError
from kafkastore.formats.java_text import INT32_MAX
from kafkastore.paths import refuse_remote
from kafkastore.segment.recovery import INDEX_INTERVAL_BYTES

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])


def index_interval_option(help_text: str) -> Callable[[FunctionT], FunctionT]:
    """Return a decorator that adds ``--index-interval-bytes``: `index_interval_bytes`."""
    return click.option(
        "--index-interval-bytes", type=click.IntRange(min=0, max=INT32_MAX),
        default=INDEX_INTERVAL_BYTES, show_default=True, metavar="N", help=help_text,
    )


def mending_options(function: FunctionT) -> FunctionT:
    """Add ``--dry-run``, ``--yes``, ``--undo-dir``: of commands that work in place."""
    return _add(
        function,
        click.option("--dry-run", is_flag=True, help="Print the plan and do nothing."),
        click.option("--yes", is_flag=True, help="Do not ask before changing anything."),
        _UNDO_DIR,
    )


def rewriting_options(
    verb: str, *, copies_to_urls: bool = False
) -> Callable[[FunctionT], FunctionT]:
    """Return a decorator for commands that work in place or on a copy, and only plan without.

    It adds ``--dry-run``, ``--copy-to``, ``--in-place``, ``--yes`` and ``--undo-dir``.
    """
    return lambda function: _add(
        function,
        click.option("--dry-run", is_flag=True, help="Print the plan and do nothing; so without "
                     "--copy-to and --in-place too."),
        click.option("--copy-to", type=DESTINATION if copies_to_urls else ANY_PATH, metavar="DEST",
                     help=f"Copy the whole directory{', to a URL too' if copies_to_urls else ''}, "
                     f"and {verb} the copy."),
        click.option("--in-place", is_flag=True, help=f"{verb.capitalize()} the directory itself."),
        click.option("--yes", is_flag=True, help="Do not ask before changing anything in place."),
        _UNDO_DIR,
    )


_UNDO_DIR = click.option(
    "--undo-dir", type=ANY_PATH, metavar="DIR",
    help="Where to keep what is replaced. Default: beside the log directory.",
)


def _add(function: FunctionT, *options: Callable[[FunctionT], FunctionT]) -> FunctionT:
    for option in reversed(options):
        function = option(function)
    return function


def check_yes(yes: bool, *, dry_run: bool, copy_to: Path | str | None, in_place: bool) -> None:
    """Check that `rewriting_options` say what is to be done, and that who is to be asked is there.

    Raises
    ------
    click.UsageError
        If nothing is to be asked, and nothing to be done: somebody thinks that it is.
    ChangeRefusedError
        If a question is to be asked, and stdin is no terminal.
    """
    if yes and not (dry_run or in_place or copy_to is not None):
        raise click.UsageError(
            "--yes goes with --in-place, which changes the directory itself, or with --copy-to"
        )
    if in_place and not yes:
        check_can_confirm("--in-place")


def refuse_urls(paths: Sequence[Path]) -> None:
    """Refuse to change what is not on a local disk, before it is read.

    Raises
    ------
    ChangeRefusedError
        If one of the paths was given as a URL.
    """
    for path in paths:
        refuse_remote(path)


def carry_out(
    paths: Sequence[Path],
    plans: Sequence[Plan],
    undo_dir: Path | None,
    *,
    asks: bool,
    as_json: bool,
    master: str | None = None,
) -> None:
    """Apply plans that change something, after a question if there is to be one.

    Parameters
    ----------
    paths : sequence of path
        The directories, as they were given.
    plans : sequence of Plan
        What is to be applied.
    undo_dir : path or None
        Where the undo areas are made.
    asks : bool
        Whether to ask before.
    as_json : bool
        Say as JSON what was done.
    master : str, optional
        The Spark whose executors do it; else threads do.

    Raises
    ------
    ChangeRefusedError
        If the answer is no, or two of the plans change the same files.
    """
    _check_apart(plans)
    changes = sum(len(planned.changes) for planned in plans)
    if not changes:
        return
    if asks:
        names = ", ".join(map(str, paths))
        confirm(f"Change {counted(changes, 'file')} in {names}?", "nothing was changed")
    for planned in plans:
        apply_plan(planned, undo_dir, as_json=as_json, master=master)


def _check_apart(plans: Sequence[Plan]) -> None:
    """Refuse a root and a partition in it: the second plan would find the first one's files."""
    roots: dict[str, str] = {}
    for planned in plans:
        real = os.path.realpath(planned.root)
        for change in planned.changes:
            other = roots.setdefault(os.path.join(real, change.path), planned.root)
            if other != planned.root:
                raise ChangeRefusedError(
                    f"{other} and {planned.root} hold the same files: name one of them"
                )
