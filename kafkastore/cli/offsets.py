"""``kafkastore offsets``: which offset is at a time, by one or several rules."""
from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from datetime import tzinfo
from pathlib import Path
from typing import Any, NamedTuple

import click

from kafkastore.cli.failures import note
from kafkastore.cli.json_lines import json_option, write_json
from kafkastore.cli.progress import progress
from kafkastore.cli.selection import Selection, select, selection_options
from kafkastore.cli.tables import counted, print_table
from kafkastore.cli.times import parse_moment, relative_option, resolve, show_time, zone_option
from kafkastore.formats.entries import TimestampAndOffset
from kafkastore.log.offset_lookup import CORRECT, FIRST_VERSION_WITH_TIME_INDEX, KIP_33
from kafkastore.log.partition_log import PartitionLog

LEGACY = "legacy"
#: What ``--rules all`` stands for, in the order of history.
ALL_RULES = (LEGACY, KIP_33, "2.4", CORRECT)

_VERSION = re.compile(r"\d+(\.\d+){1,3}")


def check_rules(name: str) -> str:
    """Return the name of rules, if there are such.

    Parameters
    ----------
    name : str
        As the user wrote it.

    Raises
    ------
    click.BadParameter
        If there are none.
    """
    if name in (CORRECT, KIP_33, LEGACY, "all"):
        return name
    if not _VERSION.fullmatch(name):
        raise click.BadParameter(
            f"{name!r} are no rules; use correct, kip-33, legacy, all, or a Kafka version"
        )
    if tuple(map(int, name.split("."))) < FIRST_VERSION_WITH_TIME_INDEX:
        raise click.BadParameter(f"Kafka {name} has no time indexes; use legacy for how it answers")
    return name


def _check_all_rules(
    context: click.Context, parameter: click.Parameter, names: tuple[str, ...]
) -> tuple[str, ...]:
    return tuple(map(check_rules, names))


class Answer(NamedTuple):
    """What one partition answers for one time under one set of rules; offset None: nothing."""

    rules: str
    offset: int | None
    timestamp: int | None
    leader_epoch: int | None


class Answers(NamedTuple):
    """All answers of one partition for one time, and a note where they differ."""

    log: PartitionLog
    asked: int
    answers: tuple[Answer, ...]
    note: str


@click.command()
@selection_options
@click.option(
    "--at", "times", multiple=True, required=True, metavar="TIME",
    help="The time: ms since 1970, ISO 8601 (2024-03-01T14:05:00Z) or -2h; may be repeated.",
)
@click.option(
    "--rules",
    "names",
    multiple=True,
    callback=_check_all_rules,
    default=(CORRECT,),
    metavar="RULES",
    help="correct (default), a Kafka version such as 2.4 or 3.9, kip-33, legacy, or all; "
    "may be repeated.",
)
@relative_option
@zone_option
@json_option
def command(
    paths: tuple[Path, ...],
    topics: tuple[str, ...],
    partitions: tuple[int, ...],
    times: tuple[str, ...],
    names: tuple[str, ...],
    relative_to: str,
    zone: tzinfo | None,
    as_json: bool,
) -> None:
    """Find the offset to begin with for a time.

    correct is the first record at or after the time, whatever the indexes say. A Kafka version is
    what that broker answers, kip-33 what the proposal's text answers, legacy what OffsetRequest v0
    answered by the log files' modification times. all is legacy, kip-33, 2.4 and correct.
    """
    moments = [parse_moment(text, zone) for text in times]
    selection = select(paths, topics, partitions)
    targets = resolve(moments, selection, relative_to)
    rules = _without_repetitions(names)
    found = _answers(selection, targets, rules)
    if as_json:
        for each in found:
            for answer in each.answers:
                write_json(_as_json(each, answer))
        return
    _tell_bounds(selection, rules)
    if len(rules) == 1:
        _print_one_rule(list(found), zone)
    else:
        _print_side_by_side(list(found), rules, zone)


def _without_repetitions(names: Sequence[str]) -> list[str]:
    """Write out ``all`` and keep the first of equal names."""
    expanded = [each for name in names for each in (ALL_RULES if name == "all" else (name,))]
    return list(dict.fromkeys(expanded))


def _answers(
    selection: Selection, targets: Sequence[int], rules: Sequence[str]
) -> Iterator[Answers]:
    """Ask every chosen partition for every time."""
    now = time.time_ns() // 1_000_000
    total = len(selection.topic_partitions) * len(targets)
    with progress("times", total, while_printing=True) as advance:
        for log in selection.logs():
            for target in targets:
                answers = tuple(_answer(log, target, each, now) for each in rules)
                yield Answers(log, target, answers, _note(log, target, answers))
                advance(1)


def _answer(log: PartitionLog, target: int, rules: str, now: int) -> Answer:
    """Ask one partition for one time."""
    if rules == LEGACY:
        from kafkastore.legacy import fetch_offsets_before

        offsets = fetch_offsets_before(log, target, 1, now=now)
        return Answer(rules, offsets[0] if offsets else None, None, None)
    found: TimestampAndOffset | None = log.offset_for_timestamp(target, rules)
    if found is None:
        return Answer(rules, None, None, None)
    return Answer(rules, found.offset, found.timestamp, found.leader_epoch)


def _note(log: PartitionLog, target: int, answers: Sequence[Answer]) -> str:
    """Say how answers differ from the right one; nothing where all agree."""
    if len({answer.offset for answer in answers}) == 1:
        return ""
    right = next((each.offset for each in answers if each.rules == CORRECT), -1)
    if right == -1:
        found = log.offset_for_timestamp(target, CORRECT)
        right = None if found is None else found.offset
    if right is None:
        return "no record is at or after this time"
    notes = [
        f"{answer.rules} {_difference(answer.offset, right)}"
        for answer in answers
        if answer.offset != right
    ]
    return ", ".join(notes)


def _difference(offset: int | None, right: int) -> str:
    if offset is None:
        return "finds nothing"
    if offset < right:
        return f"begins {counted(right - offset, 'offset')} early"
    return f"skips {counted(offset - right, 'offset')}"


def _as_json(found: Answers, answer: Answer) -> dict[str, Any]:
    return {
        "topic": found.log.topic,
        "partition": found.log.partition,
        "asked_timestamp": found.asked,
        "rules": answer.rules,
        "offset": answer.offset,
        "timestamp": answer.timestamp,
        "time": None if answer.timestamp is None else show_time(answer.timestamp),
        "leader_epoch": answer.leader_epoch,
        "note": found.note or None,
    }


def _tell_bounds(selection: Selection, rules: Sequence[str]) -> None:
    """Say which state of a broker is meant, where that is not in the directory itself."""
    by_broker = [name for name in rules if name != CORRECT]
    if by_broker and any(log.log_dir is None for log in selection.logs()):
        note(
            "a partition directory by itself has no clean-shutdown marker and no checkpoints; "
            "answers are those of a broker that was running"
        )


def _print_one_rule(found: Sequence[Answers], zone: tzinfo | None) -> None:
    print_table(
        ["partition", "asked", "offset", "timestamp", "time of the record", "epoch"],
        (
            [
                str(each.log.topic_partition),
                show_time(each.asked, zone),
                _or_none(answer.offset),
                _or_dash(answer.timestamp),
                show_time(answer.timestamp, zone),
                _or_dash(answer.leader_epoch),
            ]
            for each in found
            for answer in each.answers
        ),
        right="offset,timestamp,epoch",
    )


def _print_side_by_side(
    found: Sequence[Answers], rules: Sequence[str], zone: tzinfo | None
) -> None:
    """Print one column of offsets for each of the rules, then what the last of them found."""
    print_table(
        ["partition", "asked", *rules, "time of the record", "epoch", "note"],
        (
            [
                str(each.log.topic_partition),
                show_time(each.asked, zone),
                *(_or_none(answer.offset) for answer in each.answers),
                *_record_of(each.answers, zone),
                each.note,
            ]
            for each in found
        ),
        right=",".join([*rules, "epoch"]),
        prose="note",
    )


def _record_of(answers: Sequence[Answer], zone: tzinfo | None) -> tuple[str, str]:
    """Return time and epoch of the record found by the last rules that look at records."""
    by_record = [each for each in answers if each.rules != LEGACY]
    if not by_record:
        return "-", "-"
    return show_time(by_record[-1].timestamp, zone), _or_dash(by_record[-1].leader_epoch)


def _or_none(offset: int | None) -> str:
    return "none" if offset is None else str(offset)


def _or_dash(value: int | None) -> str:
    return "-" if value is None else str(value)
