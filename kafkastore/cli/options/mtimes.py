"""``--mtimes`` and related options: modification times from a file."""
from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click

from kafkastore.cli.options.selection import ANY_PATH, Selection
from kafkastore.cli.output.failures import print_note
from kafkastore.cli.output.output_file import open_output
from kafkastore.errors import KafkaStoreError
from kafkastore.legacy import mtimes_of, pack_mtimes, read_mtimes
from kafkastore.legacy.mtimes import names_a_segment
from kafkastore.store.partition_log import PartitionLog
from kafkastore.store.unread_partition import UnreadPartition

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])


def mtimes_options(function: FunctionT) -> FunctionT:
    """Add ``--mtimes`` (`mtimes_file`) and ``--whole-seconds``."""
    function = click.option(
        "--whole-seconds", is_flag=True,
        help="Read modification times in whole seconds, as a broker on Java 8 or 9 does.",
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
        help="Save the files' own modification times to FILE, for --mtimes.",
    )(function)


def write_mtimes(path: Path, logs: Iterable[PartitionLog]) -> list[UnreadPartition]:
    """Write partitions' modification times; return the unread partitions."""
    found: dict[str, int] = {}
    unread = []
    for log in logs:
        try:
            found |= mtimes_of([log])
        except (KafkaStoreError, OSError) as error:
            unread.append(UnreadPartition.of(log, error))
    with open_output(path) as stream:
        stream.write(pack_mtimes(found))
    return unread


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
                    f"{path} has {name} without a partition, and several are selected; "
                    f"write orders-3/{name}, or select one partition"
                )
    return mtimes


def note_unused_mtimes(
    selection: Selection, path: Path | None, mtimes: Mapping[str, int] | None
) -> None:
    """Print a note if `mtimes` has no segment of the selection."""
    if path is None or mtimes is None:
        return
    store = selection.store
    logs = (log for each in selection.topic_partitions for log in store.partitions.copies(each))
    if not any(names_a_segment(mtimes, log) for log in logs):
        print_unused_mtimes(path)


def print_unused_mtimes(path: Path) -> None:
    """Print that a file of modification times has no selected segment."""
    print_note(
        f"{path} has no entry for the selected segments; the files' own modification times are "
        "used; its paths must begin in the log directory, such as orders-3/...log"
    )
