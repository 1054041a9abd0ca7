"""``--csv``: offsets as ``kafka-consumer-groups --from-file`` takes them."""
from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypeVar

import click

from kafkastore.cli.output.failures import print_note
from kafkastore.cli.output.tables import format_count
from kafkastore.formats.state.file_names import TopicPartition

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])


class ResetPosition(NamedTuple):
    """Where a group is to continue."""

    group: str
    topic_partition: TopicPartition
    offset: int


def csv_option(columns: str) -> Callable[[FunctionT], FunctionT]:
    """Return a decorator that adds ``--csv``, passed as `as_csv`."""
    return click.option(
        "--csv", "as_csv", is_flag=True,
        help=f"Write {columns} as CSV, from which kafka-consumer-groups resets offsets.",
    )


def check_one_format(*, as_csv: bool, as_json: bool) -> None:
    """Refuse two formats of the output."""
    if as_csv and as_json:
        raise click.UsageError("--csv and --json cannot be combined")


def write_reset_plan(positions: Iterable[ResetPosition], *, with_groups: bool) -> None:
    """Write a line for each position, without a header.

    As ``--export`` of Kafka's tool does, lines have groups unless one group is named. The tool
    divides the file at newlines before it looks at quotes.
    """
    for each in positions:
        if "\n" in each.group:
            print_note(
                f"group {each.group!r} is left out: Kafka's tool can't read a name with a newline"
            )
            continue
        line = io.StringIO()
        place = (*each.topic_partition, each.offset)
        csv.writer(line, lineterminator="\n").writerow((each.group, *place)[not with_groups :])
        click.echo(line.getvalue(), nl=False)


def note_left_out(count: int, noun: str, why: str) -> None:
    """Note how many positions are not in the output, if some are not."""
    if count:
        print_note(f"{format_count(count, noun)} left out: {why}")
