"""``--mtimes`` and what goes with it: modification times where files don't tell."""
from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import click

from kafkastore.cli.failures import note
from kafkastore.cli.output_file import written_whole
from kafkastore.cli.selection import ANY_PATH, Selection
from kafkastore.legacy import mtimes_of, pack_mtimes, read_mtimes
from kafkastore.legacy.mtimes import names_a_segment
from kafkastore.store.partition_log import PartitionLog

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])


class LegacyView(NamedTuple):
    """What a legacy broker sees beside the log, as the functions of `kafkastore.legacy` take it.

    Parameters
    ----------
    now : int
        Its clock, ms since 1970.
    mtimes : mapping of str to int, or None
        Modification times that are given.
    whole_seconds : bool
        Whether its Java sees whole seconds only.
    """

    now: int
    mtimes: Mapping[str, int] | None
    whole_seconds: bool


def mtimes_options(function: FunctionT) -> FunctionT:
    """Add ``--mtimes`` and ``--whole-seconds``, passed on as `mtimes_file`, `whole_seconds`."""
    function = click.option(
        "--whole-seconds", is_flag=True,
        help="Legacy answers of a broker on Java 8 or 9, which sees modification times so.",
    )(function)
    return mtimes_option("Modification times for legacy answers")(function)


def mtimes_option(help_text: str) -> Callable[[FunctionT], FunctionT]:
    """Return a decorator that adds ``--mtimes`` alone, passed on as `mtimes_file`."""
    return click.option(
        "--mtimes", "mtimes_file", type=ANY_PATH, metavar="FILE",
        help=f"{help_text}: JSON, paths of .log files and ms since 1970.",
    )


def save_mtimes_option(function: FunctionT) -> FunctionT:
    """Add ``--save-mtimes``, passed on as `save_mtimes`."""
    return click.option(
        "--save-mtimes", type=ANY_PATH, metavar="FILE",
        help="Write the files' own modification times down, for a later --mtimes.",
    )(function)


def write_mtimes(path: Path, logs: Iterable[PartitionLog]) -> None:
    """Write the modification times of partitions down.

    Parameters
    ----------
    path : path
        The file, which appears when it is whole.
    logs : iterable of PartitionLog
        The partitions.
    """
    with written_whole(path) as stream:
        stream.write(pack_mtimes(mtimes_of(logs)))


def load_mtimes(path: Path | None, selection: Selection) -> Mapping[str, int] | None:
    """Read the modification times that the user gives.

    Parameters
    ----------
    path : path or None
        The file; None if none is given.
    selection : Selection
        The partitions that are asked.

    Returns
    -------
    mapping of str to int, or None
        ms since 1970 by path.

    Raises
    ------
    InvalidMtimesError
        If the file is not of that kind.
    click.UsageError
        If a name could belong to any of several partitions.
    """
    if path is None:
        return None
    mtimes = read_mtimes(path)
    if len(selection.topic_partitions) > 1:
        for name in mtimes:
            if name.endswith(".log") and "/" not in name:
                raise click.UsageError(
                    f"{path} has {name} without a partition, and several are chosen; "
                    f"write orders-3/{name}, or choose one partition"
                )
    return mtimes


def watched(
    logs: Iterable[PartitionLog], path: Path | None, mtimes: Mapping[str, int] | None
) -> Iterator[PartitionLog]:
    """Pass partitions on; behind the last, say so where `mtimes` names no segment of any.

    Parameters
    ----------
    logs : iterable of PartitionLog
        The partitions that are asked.
    path, mtimes : path or None, mapping or None
        As for `load_mtimes`, and what that returned.

    Yields
    ------
    PartitionLog
    """
    named = mtimes is None
    for log in logs:
        named = named or names_a_segment(mtimes or {}, log)
        yield log
    if not named and path is not None:
        note_unnamed(path)


def note_unnamed(path: Path) -> None:
    """Say that a file of modification times names nothing of what is chosen."""
    note(
        f"{path} names no segment of what is chosen, so that the files' own modification "
        f"times count; its paths begin in the log directory: orders-3/...log"
    )
