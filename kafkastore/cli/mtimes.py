"""``--mtimes`` and related options: modification times from a file instead of the file system."""
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
    """What a legacy broker uses besides the log, as `kafkastore.legacy` takes it.

    `now` is the broker's clock in ms since 1970; `mtimes` are the given modification times by path;
    `whole_seconds` is for a Java version that reads whole seconds only.
    """

    now: int
    mtimes: Mapping[str, int] | None
    whole_seconds: bool


def mtimes_options(function: FunctionT) -> FunctionT:
    """Add ``--mtimes`` and ``--whole-seconds``, passed as `mtimes_file` and `whole_seconds`."""
    function = click.option(
        "--whole-seconds", is_flag=True,
        help="Legacy answers of a broker on Java 8 or 9, which sees modification times so.",
    )(function)
    return mtimes_option("Modification times for legacy answers")(function)


def mtimes_option(help_text: str) -> Callable[[FunctionT], FunctionT]:
    """Return a decorator that adds only ``--mtimes``, passed as `mtimes_file`."""
    return click.option(
        "--mtimes", "mtimes_file", type=ANY_PATH, metavar="FILE",
        help=f"{help_text}: JSON, paths of .log files and ms since 1970.",
    )


def save_mtimes_option(function: FunctionT) -> FunctionT:
    """Add ``--save-mtimes``, passed as `save_mtimes`."""
    return click.option(
        "--save-mtimes", type=ANY_PATH, metavar="FILE",
        help="Write the files' own modification times down, for a later --mtimes.",
    )(function)


def write_mtimes(path: Path, logs: Iterable[PartitionLog]) -> None:
    """Write the modification times of partitions to a file, which appears when it is complete."""
    with written_whole(path) as stream:
        stream.write(pack_mtimes(mtimes_of(logs)))


def load_mtimes(path: Path | None, selection: Selection) -> Mapping[str, int] | None:
    """Read a file of modification times, in ms since 1970 by path; None stays None.

    Raises InvalidMtimesError for an invalid file, and click.UsageError if a name matches several
    partitions.
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
    """Yield the partitions; after the last, print a note if `mtimes` has no segment of any.

    `mtimes` is what `load_mtimes` returned for `path`.
    """
    named = mtimes is None
    for log in logs:
        named = named or names_a_segment(mtimes or {}, log)
        yield log
    if not named and path is not None:
        note_unnamed(path)


def note_unnamed(path: Path) -> None:
    """Print that a file of modification times has no segment of the selected partitions."""
    note(
        f"{path} names no segment of what is chosen, so that the files' own modification "
        f"times count; its paths begin in the log directory: orders-3/...log"
    )
