"""``kafkastore compare``: legacy answers beside time index answers, and what they cost."""
from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import tzinfo
from pathlib import Path
from typing import Any

import click

from kafkastore.cli.json_lines import json_option, write_json
from kafkastore.cli.offsets import check_rules
from kafkastore.cli.progress import progress
from kafkastore.cli.selection import select, selection_options
from kafkastore.cli.tables import counted, print_table
from kafkastore.cli.times import parse_moment, relative_option, resolve, show_time, zone_option
from kafkastore.formats.entries import TimestampAndOffset
from kafkastore.legacy import Comparison, compare
from kafkastore.log.partition_log import PartitionLog


def _check_rules(context: click.Context, parameter: click.Parameter, name: str) -> str:
    if name in ("all", "legacy"):
        raise click.BadParameter(f"{name} is no broker with time indexes; name a version")
    return check_rules(name)


@click.command()
@selection_options
@click.option(
    "--at", "times", multiple=True, metavar="TIME",
    help="A time: ms since 1970, ISO 8601 (2024-03-01T14:05:00Z) or -2h; may be repeated.",
)
@click.option(
    "--samples", type=click.IntRange(min=1), default=10, show_default=True, metavar="N",
    help="Without --at: so many times, spread over each partition's records and segments.",
)
@click.option(
    "--rules", callback=_check_rules, default="2.4", show_default=True, metavar="VERSION",
    help="The broker with time indexes.",
)
@relative_option
@zone_option
@json_option
def command(
    paths: tuple[Path, ...],
    topics: tuple[str, ...],
    partitions: tuple[int, ...],
    times: tuple[str, ...],
    samples: int,
    rules: str,
    relative_to: str,
    zone: tzinfo | None,
    as_json: bool,
) -> None:
    """Compare what OffsetRequest v0, a broker with time indexes, and the truth answer for times.

    Redelivered are the records that a consumer reads although they come before the right offset,
    missed are those it never sees, if it begins where the legacy answer says.
    """
    moments = [parse_moment(text, zone) for text in times]
    selection = select(paths, topics, partitions)
    asked = resolve(moments, selection, relative_to)
    now = time.time_ns() // 1_000_000
    compared: list[tuple[PartitionLog, Comparison]] = []
    partitions_chosen = len(selection.topic_partitions)
    with progress("comparing", partitions_chosen, while_printing=as_json) as advance:
        for log in selection.logs():
            for each in compare(log, asked or spread(log, samples), now=now, broker_rules=rules):
                if as_json:
                    write_json(_as_json(log, each))
                else:
                    compared.append((log, each))
            advance(1)
    if not as_json:
        _print(compared, rules, zone)


def spread(log: PartitionLog, count: int) -> list[int]:
    """Choose times evenly from the first to the last that a partition knows of.

    Parameters
    ----------
    log : PartitionLog
        The partition: its records' timestamps and its files' modification times count.
    count : int
        How many.

    Returns
    -------
    list of int
        ms since 1970, rising; fewer where there are not so many.
    """
    known = []
    for segment in log.segments:
        largest = segment.largest_record_timestamp()
        if largest is not None:
            known.append(largest)
        known.append(segment.last_modified_ms)
    known = [each for each in known if each >= 0]
    if not known:
        return []
    first, last = min(known), max(known)
    if count == 1:
        return [last]
    return sorted({first + (last - first) * step // (count - 1) for step in range(count)})


def _as_json(log: PartitionLog, each: Comparison) -> dict[str, Any]:
    return {
        "topic": log.topic,
        "partition": log.partition,
        "asked_timestamp": each.target_timestamp,
        "legacy": each.legacy,
        "broker": _offset(each.broker),
        "correct": _offset(each.correct),
        "redelivered": each.redelivered,
        "missed": each.missed,
    }


def _offset(found: TimestampAndOffset | None) -> int | None:
    return None if found is None else found.offset


def _print(
    compared: Sequence[tuple[PartitionLog, Comparison]], rules: str, zone: tzinfo | None
) -> None:
    print_table(
        ["partition", "asked", "legacy", rules, "correct", "redelivered", "missed"],
        (
            [
                str(log.topic_partition),
                show_time(each.target_timestamp, zone),
                *(
                    "none" if offset is None else str(offset)
                    for offset in (each.legacy, _offset(each.broker), _offset(each.correct))
                ),
                "-" if each.redelivered is None else f"{each.redelivered:,}",
                "-" if each.missed is None else f"{each.missed:,}",
            ]
            for log, each in compared
        ),
        right=f"legacy,{rules},correct,redelivered,missed",
    )
    wrong = sum(_offset(each.broker) != _offset(each.correct) for _, each in compared)
    without = sum(each.legacy is None for _, each in compared)
    redelivered = sum(each.redelivered or 0 for _, each in compared)
    missed = sum(each.missed or 0 for _, each in compared)
    print(
        f"{counted(len(compared), 'question')}: legacy answers redeliver "
        f"{counted(redelivered, 'record')}, miss {missed:,} and give nothing {without:,} times; "
        f"{rules} differs from correct {wrong:,} times"
    )
