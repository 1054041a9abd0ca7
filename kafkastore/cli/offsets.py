"""``kafkastore offsets``: find the offset for a time, by one or several rules."""
from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Sequence
from datetime import tzinfo
from pathlib import Path
from typing import Any, NamedTuple

import click

from kafkastore.cli.durations import parse_duration, show_duration
from kafkastore.cli.failures import note
from kafkastore.cli.json_lines import json_option, write_json
from kafkastore.cli.mtimes import LegacyView, load_mtimes, mtimes_options, watched
from kafkastore.cli.problems import Problems, on_corrupt_option
from kafkastore.cli.progress import track
from kafkastore.cli.selection import Selection, select, selection_options
from kafkastore.cli.tables import counted, print_table
from kafkastore.cli.times import (
    indexes_option,
    parse_moment,
    relative_option,
    resolve,
    show_time,
    zone_option,
)
from kafkastore.cli.visible import visible
from kafkastore.errors import CorruptionError, UnsupportedTimestampError
from kafkastore.formats.entries import NO_TIMESTAMP, TimestampAndOffset
from kafkastore.kip_33.clock_skew import earliest_timestamp
from kafkastore.log.damage import OnCorrupt, SkippedBytes
from kafkastore.log.isolation import Isolation
from kafkastore.lookup.explanation import Explanation
from kafkastore.lookup.rules import (
    CORRECT,
    KIP_33,
    LookupChoice,
    broker_rules,
    check_isolation_is_known,
)
from kafkastore.segment.checked_times import Indexes
from kafkastore.store.partition_log import PartitionLog
from kafkastore.versions import NEWEST_VERSION, UnknownVersionError, rules_of

LEGACY = "legacy"
#: Special values besides times; the names are those of Kafka's GetOffsetShell.
SPECIAL_TIMESTAMPS = {
    "latest": -1,
    "earliest": -2,
    "max-timestamp": -3,
    "earliest-local": -4,
    "latest-tiered": -5,
    "earliest-pending-upload": -6,
}
_SPECIAL_NAMES = {timestamp: name for name, timestamp in SPECIAL_TIMESTAMPS.items()}
#: The rules of ``--rules all``, in historical order.
ALL_RULES = (LEGACY, KIP_33, "2.4", CORRECT)

#: Kafka's name of error code 35.
REFUSED = "UNSUPPORTED_VERSION"


def check_rules(name: str) -> str:
    """Return the name of rules; raise click.BadParameter if it is unknown."""
    if name in (CORRECT, KIP_33, LEGACY, "all"):
        return name
    try:
        # "4" would mean another broker version when a newer 4.x is added.
        rules = rules_of(name) if "." in name else None
    except UnknownVersionError:
        rules = None
    if rules is None:
        raise click.BadParameter(
            f"unknown rules {name!r}; use correct, kip-33, legacy, all, or a Kafka version such "
            f"as {NEWEST_VERSION}"
        )
    if not rules.has_time_indexes:
        raise click.BadParameter(f"Kafka {name} has no time indexes; use legacy for how it answers")
    return name


def _check_all_rules(
    context: click.Context, parameter: click.Parameter, names: tuple[str, ...]
) -> tuple[str, ...]:
    return tuple(map(check_rules, names))


class Answer(NamedTuple):
    """One partition's answer for one time under one set of rules; offset None is no answer."""

    rules: str
    offset: int | None
    timestamp: int | None
    leader_epoch: int | None
    is_refused: bool = False
    explanation: Explanation | None = None


class Answers(NamedTuple):
    """All answers of one partition for one time, and a note if they differ."""

    log: PartitionLog
    asked: int
    answers: tuple[Answer, ...]
    note: str


class Question(NamedTuple):
    """The request that every partition answers."""

    targets: tuple[int, ...]
    rules: tuple[str, ...]
    isolation: Isolation
    indexes: Indexes
    explains: bool
    legacy: LegacyView
    on_corrupt: OnCorrupt


@click.command()
@selection_options
@click.option(
    "--at", "times", multiple=True, required=True, metavar="TIME",
    help="The time: ms since 1970, ISO 8601 (2024-03-01T14:05:00Z) or -2h; or earliest, latest, "
    "max-timestamp (-2, -1, -3) and Kafka's other special timestamps; may be repeated.",
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
@click.option(
    "--isolation",
    type=click.Choice(["read_uncommitted", "read_committed"]),
    default="read_uncommitted",
    show_default=True,
    help="read_committed: no offset at or behind the last stable offset, and, under correct, of "
    "no aborted transaction.",
)
@indexes_option
@click.option("--explain", is_flag=True, help="Say which way each answer was found.")
@mtimes_options
@click.option(
    "--clock-skew", "clock_skew_ms", callback=parse_duration, default="0", metavar="DURATION",
    help="Look so much earlier, lest a record is missed that was created at the time by a clock "
    "that is so much behind: 5m, 90s or ms.",
)
@relative_option
@zone_option
@on_corrupt_option
@json_option
def command(
    paths: tuple[Path, ...],
    topics: tuple[str, ...],
    partitions: tuple[int, ...],
    times: tuple[str, ...],
    names: tuple[str, ...],
    isolation: Isolation,
    indexes: Indexes,
    explain: bool,
    clock_skew_ms: int,
    mtimes_file: Path | None,
    whole_seconds: bool,
    relative_to: str,
    zone: tzinfo | None,
    as_json: bool,
    on_corrupt: OnCorrupt,
) -> int:
    """Find the offset to begin with for a time.

    correct is the first record at or after the time, whatever the indexes say. A Kafka version is
    what that broker answers, kip-33 what the proposal's text answers, legacy what OffsetRequest v0
    answered by the log files' modification times. all is legacy, kip-33, 2.4 and correct.
    """
    rules = _without_repetitions(names)
    _check_isolation(rules, isolation)
    specials = {text: special for text in times if (special := special_timestamp(text)) is not None}
    moments = [parse_moment(text, zone) for text in times if text not in specials]
    selection = select(paths, topics, partitions)
    asked = resolve(moments, selection, relative_to, indexes)
    resolved = iter([earliest_timestamp(each, clock_skew_ms) for each in asked])
    targets = tuple(specials[text] if text in specials else next(resolved) for text in times)
    mtimes = load_mtimes(mtimes_file, selection)
    legacy = LegacyView(time.time_ns() // 1_000_000, mtimes, whole_seconds)
    problems = Problems(len(selection.topic_partitions), on_corrupt)
    logs = watched(problems.logs(selection), mtimes_file, mtimes)
    total = len(selection.topic_partitions) * len(targets)
    question = Question(
        targets, tuple(rules), isolation, indexes, explain, legacy, on_corrupt
    )
    found = _answers(logs, total, question, problems, is_streamed=as_json or explain)
    if as_json:
        for each in found:
            for answer in each.answers:
                write_json(_as_json(each, answer, with_explanation=explain))
        return problems.exit_code
    _tell_bounds(selection, rules)
    if clock_skew_ms:
        note(
            f"asked {show_duration(clock_skew_ms)} before each time: what was created at the time "
            f"or later is not missed, unless a clock was behind by more"
        )
    if explain:
        _print_explanations(found, zone)
    elif len(rules) == 1:
        _print_one_rule(list(found), zone)
    else:
        _print_side_by_side(list(found), rules, zone)
    return problems.exit_code


def special_timestamp(text: str) -> int | None:
    """Parse a special timestamp by name or number; return None for any other text.

    >>> special_timestamp("earliest"), special_timestamp("-3"), special_timestamp("-2h")
    (-2, -3, None)
    """
    name = text.strip().lower()
    if re.fullmatch(r"-[0-9]{1,19}", name):
        return int(name)
    return SPECIAL_TIMESTAMPS.get(name)


def _check_isolation(rules: Sequence[str], isolation: Isolation) -> None:
    """Refuse read_committed for brokers without isolation levels; legacy brokers have none."""
    for name in rules:
        if name != LEGACY:
            try:
                check_isolation_is_known(LookupChoice(name, isolation), broker_rules(name))
            except ValueError as error:
                raise click.BadParameter(str(error), param_hint="'--isolation'") from None


def _without_repetitions(names: Sequence[str]) -> list[str]:
    """Expand ``all`` and remove duplicates."""
    expanded = [each for name in names for each in (ALL_RULES if name == "all" else (name,))]
    return list(dict.fromkeys(expanded))


def _answers(
    logs: Iterable[PartitionLog],
    total: int,
    question: Question,
    problems: Problems,
    *,
    is_streamed: bool,
) -> Iterator[Answers]:
    """Ask every partition for every time; report those that cannot be read."""
    found = _readable_answers(logs, question, problems)
    return track(found, "times", total, while_printing=is_streamed)


def _readable_answers(
    logs: Iterable[PartitionLog], question: Question, problems: Problems
) -> Iterator[Answers]:
    for log in logs:
        skipped: list[SkippedBytes] = []
        for target in question.targets:  # one time may hit corrupt bytes that another avoids
            asked = (_answers_of(log, each, question, skipped) for each in (target,))
            yield from problems.readable(log.topic_partition, asked)
        problems.add_skipped(log.topic_partition, dict.fromkeys(skipped))


def _answers_of(
    log: PartitionLog, target: int, question: Question, skipped: list[SkippedBytes]
) -> Answers:
    answers = tuple(_answer(log, target, each, question, skipped) for each in question.rules)
    return Answers(log, target, answers, _note(log, target, question, answers, skipped))


def _answer(
    log: PartitionLog,
    target: int,
    rules: str,
    question: Question,
    skipped: list[SkippedBytes],
) -> Answer:
    """Ask one partition for one time."""
    nothing = Answer(rules, None, None, None)
    try:
        if rules == LEGACY:
            from kafkastore.legacy import fetch_offsets_before

            offsets = fetch_offsets_before(log, target, 1, **question.legacy._asdict())
            return nothing._replace(offset=offsets[0] if offsets else None)
        found = _find(log, target, rules, question, skipped)
    except UnsupportedTimestampError:
        return nothing._replace(is_refused=True)
    explanation = None
    if question.explains and target >= 0:
        explanation = _explained(log, target, rules, question)
    if found is None:
        return nothing._replace(explanation=explanation)
    is_record = target >= 0 or found.timestamp != NO_TIMESTAMP
    timestamp = found.timestamp if is_record else None
    return Answer(rules, found.offset, timestamp, found.leader_epoch, explanation=explanation)


def _explained(
    log: PartitionLog, target: int, rules: str, question: Question
) -> Explanation | None:
    """Return the explanation of an answer; None if it runs into corrupt bytes."""
    try:
        return log.explain_timestamp(
            target, rules, isolation=question.isolation, indexes=question.indexes
        )
    except CorruptionError:
        if question.on_corrupt == "raise":
            raise
        return None


def _find(
    log: PartitionLog, target: int, rules: str, question: Question, skipped: list[SkippedBytes]
) -> TimestampAndOffset | None:
    find = log.list_offset if target < 0 else log.offset_for_timestamp
    return find(
        target,
        rules,
        isolation=question.isolation,
        indexes=question.indexes,
        on_corrupt=question.on_corrupt,
        skipped=skipped,
    )


def _note(
    log: PartitionLog,
    target: int,
    question: Question,
    answers: Sequence[Answer],
    skipped: list[SkippedBytes],
) -> str:
    """Describe how answers differ from the correct one; empty if all agree."""
    refused = ", ".join(f"{each.rules} refuses it" for each in answers if each.is_refused)
    if len({answer.offset for answer in answers}) == 1:
        return refused
    right = next((each.offset for each in answers if each.rules == CORRECT), -1)
    if right == -1:
        right = _answer(log, target, CORRECT, question._replace(explains=False), skipped).offset
    if right is None and target < 0:
        return refused
    if right is None:
        return "no record is at or after this time"
    notes = [
        f"{answer.rules} {_difference(answer.offset, right)}"
        for answer in answers
        if answer.offset != right and not answer.is_refused
    ]
    return ", ".join([*notes, *filter(None, [refused])])


def _difference(offset: int | None, right: int) -> str:
    if offset is None:
        return "finds nothing"
    if offset < right:
        return f"begins {counted(right - offset, 'offset')} early"
    return f"skips {counted(offset - right, 'offset')}"


def _as_json(found: Answers, answer: Answer, *, with_explanation: bool) -> dict[str, Any]:
    fields = {
        "topic": found.log.topic,
        "partition": found.log.partition,
        "asked_timestamp": found.asked,
        "rules": answer.rules,
        "offset": answer.offset,
        "timestamp": answer.timestamp,
        "time": None if answer.timestamp is None else show_time(answer.timestamp),
        "leader_epoch": answer.leader_epoch,
        "error": REFUSED if answer.is_refused else None,
        "note": found.note or None,
    }
    if with_explanation:
        fields["explanation"] = answer.explanation and answer.explanation.as_json()
    return fields


def _show_asked(asked: int, zone: tzinfo | None) -> str:
    """Format the requested time, or the name of a special timestamp."""
    return show_time(asked, zone) if asked >= 0 else _SPECIAL_NAMES.get(asked, str(asked))


def _print_explanations(found: Iterator[Answers], zone: tzinfo | None) -> None:
    """Print each answer with its explanation, a paragraph for each partition and time."""
    for each in found:
        print(visible(f"{each.log.topic_partition} at {_show_asked(each.asked, zone)}"))
        for answer in each.answers:
            if answer.explanation is not None:
                first, *others = answer.explanation.lines()
                print(visible("\n".join((f"  {first}", *(f"    {line}" for line in others)))))
            else:
                print(f"  {answer.rules}: {_shown(answer)}{_BY_FILES.get(answer.rules, '')}")


_BY_FILES = {LEGACY: ", by the modification times of the .log files"}


def _shown(answer: Answer) -> str:
    if answer.is_refused:
        return f"refused ({REFUSED})"
    return "none" if answer.offset is None else f"offset {answer.offset}"


def _tell_bounds(selection: Selection, rules: Sequence[str]) -> None:
    """Print which broker state the answers assume, if the directory does not show it."""
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
                _show_asked(each.asked, zone),
                _offset_of(answer),
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
    """Print a column of offsets for each set of rules, then the record that the last one found."""
    print_table(
        ["partition", "asked", *rules, "time of the record", "epoch", "note"],
        (
            [
                str(each.log.topic_partition),
                _show_asked(each.asked, zone),
                *(_offset_of(answer) for answer in each.answers),
                *_record_of(each.answers, zone),
                each.note,
            ]
            for each in found
        ),
        right=",".join([*rules, "epoch"]),
        prose="note",
    )


def _record_of(answers: Sequence[Answer], zone: tzinfo | None) -> tuple[str, str]:
    """Return time and epoch of the record found by the last rules that look up records."""
    by_record = [each for each in answers if each.rules != LEGACY]
    if not by_record:
        return "-", "-"
    return show_time(by_record[-1].timestamp, zone), _or_dash(by_record[-1].leader_epoch)


def _offset_of(answer: Answer) -> str:
    if answer.is_refused:
        return "refused"
    return "none" if answer.offset is None else str(answer.offset)


def _or_dash(value: int | None) -> str:
    return "-" if value is None else str(value)
