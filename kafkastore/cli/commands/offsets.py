"""``kafkastore offsets``: find the offset for a time, by one or several rules."""
from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from kafkastore.arguments import INT64_MIN
from kafkastore.cli.options.durations import format_duration, parse_duration
from kafkastore.cli.options.mtimes import load_mtimes, mtimes_options, note_unused_mtimes
from kafkastore.cli.options.rules import ALL_RULES, check_rules
from kafkastore.cli.options.selection import Selection
from kafkastore.cli.options.times import indexes_option
from kafkastore.cli.output.control_characters import print_text
from kafkastore.cli.output.failures import FOUND_PROBLEMS, print_note
from kafkastore.cli.output.json_lines import write_json
from kafkastore.cli.output.reset_plan import (
    ResetPosition,
    check_one_format,
    csv_option,
    note_left_out,
    write_reset_plan,
)
from kafkastore.cli.output.tables import format_count, format_value, print_table
from kafkastore.cli.store_command import StoreCall, store_command
from kafkastore.clock import clock
from kafkastore.errors import InRemoteSegmentError
from kafkastore.formats.state.file_names import TopicPartition
from kafkastore.jobs.offsets import (
    REFUSED,
    OffsetAnswer,
    OffsetsJob,
    PartitionTimeOffsets,
    TimeOffsets,
)
from kafkastore.log.isolation import Isolation
from kafkastore.log.time_text import format_time
from kafkastore.lookup.rules import (
    CORRECT,
    LEGACY,
    LookupChoice,
    broker_rules,
    check_isolation_is_known,
)
from kafkastore.segment.index_trust import Indexes
from kafkastore.use_cases.clock_skew import earliest_timestamp

#: Special values other than times; the names are those of Kafka's GetOffsetShell.
SPECIAL_TIMESTAMPS = {
    "latest": -1,
    "earliest": -2,
    "max-timestamp": -3,
    "earliest-local": -4,
    "latest-tiered": -5,
    "earliest-pending-upload": -6,
}
_SPECIAL_NAMES = {timestamp: name for name, timestamp in SPECIAL_TIMESTAMPS.items()}


def _check_all_rules(
    context: click.Context, parameter: click.Parameter, names: tuple[str, ...]
) -> tuple[str, ...]:
    return tuple(map(check_rules, names))


@store_command("metadata", "relative-to", "tz", "on-corrupt", "spark")
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
    help="read_committed: only offsets below the last stable offset; with correct rules, no "
    "records of aborted transactions.",
)
@indexes_option
@click.option("--explain", is_flag=True, help="Show the steps of each search.")
@mtimes_options
@click.option(
    "--clock-skew", "clock_skew_ms", callback=parse_duration, default="0", metavar="DURATION",
    help="Subtract this from each time, to find records of producers whose clocks are late by up "
    "to that much: 5m, 90s, or a number of ms.",
)
@csv_option("topic, partition and offset (the log end if no record is that late)")
def command(
    call: StoreCall,
    times: tuple[str, ...],
    names: tuple[str, ...],
    isolation: Isolation,
    indexes: Indexes,
    explain: bool,
    clock_skew_ms: int,
    mtimes_file: Path | None,
    whole_seconds: bool,
    as_csv: bool,
) -> int:
    """Find the first offset at or after a time.

    If no record is that late, a consumer begins at the log end, which a note names.

    Rules: correct finds the first record at or after the time, even if indexes are wrong. A Kafka
    version gives the answer of that broker. kip-33 follows the text of KIP-33. legacy gives the
    answer to OffsetRequest v0, by modification times. all is legacy, kip-33, the newest version
    and correct.

    Of a topic with remote storage, only the last segments are here. For an offset that is in
    remote storage, the answer is the first and the last offset of the segment there.
    """
    rules = _without_repetitions(names)
    _check_isolation(rules, isolation)
    check_one_format(as_csv=as_csv, as_json=call.as_json)
    if as_csv and (len(times) > 1 or len(rules) > 1 or explain):
        raise click.UsageError(
            "--csv has one offset for each partition: it needs one --at and one --rules, and no "
            "--explain"
        )
    specials = {
        text: special for text in times if (special := parse_special_timestamp(text)) is not None
    }
    moments = [
        call.parse_moment(text, SPECIAL_TIMESTAMPS) for text in times if text not in specials
    ]
    asked = call.resolve_times(moments, indexes)
    resolved = iter([earliest_timestamp(each, clock_skew_ms) for each in asked])
    job = OffsetsJob(
        tuple(specials[text] if text in specials else next(resolved) for text in times),
        rules,
        isolation,
        indexes,
        explain,
        clock(),
        load_mtimes(mtimes_file, call.selection),
        whole_seconds,
        call.problems.on_corrupt,
        call.remote_settings,
    )
    if not call.as_json:
        _note_broker_state(call.selection, rules)
        if clock_skew_ms:
            print_note(
                f"searched from {format_duration(clock_skew_ms)} before each time, to find records "
                "of producers whose clocks were late by up to that much"
            )
    shown: list[tuple[TopicPartition, TimeOffsets]] = []
    items = call.items(job)
    with call.executor("looking up times", is_streamed=call.as_json or explain) as runner:
        for _, found in call.readable(job, items, runner):
            answered = [*call.problems.answered(found.topic_partition, found.times)]
            if call.as_json:
                for row in _rows(job, found, answered):
                    write_json(row)
            elif explain:
                _print_explanations(call, found.topic_partition, answered)
            else:
                shown += [(found.topic_partition, each) for each in answered]
    note_unused_mtimes(call.selection, mtimes_file, job.mtimes)
    if as_csv:
        return _write_csv(shown) or call.problems.exit_code
    if not call.as_json and not explain:
        if len(rules) == 1:
            _print_one_rule(call, shown)
        else:
            _print_several_rules(call, shown, rules)
    return call.problems.exit_code


def parse_special_timestamp(text: str) -> int | None:
    """Parse a special timestamp by name or number; return None for any other text.

    >>> [parse_special_timestamp(text) for text in ("earliest", "-3", "-2h")]
    [-2, -3, None]
    """
    name = text.strip().lower()
    if re.fullmatch(r"-[0-9]{1,19}", name) and int(name) >= INT64_MIN:
        return int(name)
    return SPECIAL_TIMESTAMPS.get(name)


def _check_isolation(rules: Sequence[str], isolation: Isolation) -> None:
    """Refuse read_committed for brokers without isolation levels."""
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


def _note(found: TimeOffsets) -> str:
    """Describe how answers differ from the correct one; empty if all agree."""
    refused = [f"{each.rules} refuses it" for each in found.answers if each.is_refused]
    if any(each.remote is not None for each in found.answers):
        return ", ".join(refused)
    ends = {each.rules: each.log_end_offset for each in found.answers if each.offset is None}
    is_known = CORRECT in ends or (not found.is_agreed and found.correct is None)
    if is_known and found.target_timestamp >= 0:
        end = ends.get(CORRECT)
        begin = "" if end is None else f"; begin at the log end, {end}"
        return f"no record is at or after this time{begin}"
    if found.is_agreed and (end := next(reversed(ends.values()), None)) is not None:
        return f"no answer: kafka-consumer-groups begins at the log end, {end}"
    if found.is_agreed or found.correct is None:
        return ", ".join(refused)
    notes = [
        f"{answer.rules} {_difference(answer.offset, found.correct)}"
        for answer in found.answers
        if answer.offset != found.correct and not answer.is_refused
    ]
    return ", ".join([*notes, *refused])


def _difference(offset: int | None, right: int) -> str:
    if offset is None:
        return "finds nothing"
    if offset < right:
        return f"begins {format_count(right - offset, 'offset')} early"
    return f"skips {format_count(offset - right, 'offset')}"


def _rows(
    job: OffsetsJob, found: PartitionTimeOffsets, times: Iterable[TimeOffsets]
) -> Iterator[dict[str, Any]]:
    """Yield the job's row of each answer, with what a reader would look up."""
    place = found.topic_partition._asdict()
    for each in times:
        rows = job.rows(found._replace(times=(each,)))
        for answer, row in zip(each.answers, rows, strict=True):
            added: dict[str, Any] = {
                "time": None if answer.timestamp is None else format_time(answer.timestamp),
                "note": _note(each) or None,
            }
            if job.explains:
                added["explanation"] = answer.explanation and answer.explanation.as_json()
            yield {**place, **row, **added}


def _format_target(call: StoreCall, target: int) -> str:
    """Format the requested time, or the name of a special timestamp."""
    return call.format_time(target) if target >= 0 else _SPECIAL_NAMES.get(target, str(target))


def _print_explanations(
    call: StoreCall, partition: TopicPartition, times: Iterable[TimeOffsets]
) -> None:
    """Print each answer with its explanation, a paragraph for each time."""
    for each in times:
        print_text(f"{partition} at {_format_target(call, each.target_timestamp)}")
        for answer in each.answers:
            if answer.explanation is not None:
                first, *others = answer.explanation.lines()
                print_text(f"  {first}", *(f"    {line}" for line in others))
            else:
                print(f"  {answer.rules}: {_printed(answer)}{_LEGACY_NOTE.get(answer.rules, '')}")


_LEGACY_NOTE = {LEGACY: ", by the modification times of the .log files"}


def _printed(answer: OffsetAnswer) -> str:
    if answer.is_refused:
        return f"refused ({REFUSED})"
    if answer.remote is not None:
        return f"in remote storage, offsets {_remote_range(answer.remote)}"
    return "none" if answer.offset is None else f"offset {answer.offset}"


def _note_broker_state(selection: Selection, rules: Sequence[str]) -> None:
    """Print which broker state the answers assume, if the directory does not show it."""
    by_broker = [name for name in rules if name != CORRECT]
    if by_broker and any(log.log_dir is None for log in selection.logs()):
        print_note(
            "a partition directory by itself has no clean-shutdown marker and no checkpoints; "
            "answers are those of a broker that was running"
        )


def _print_one_rule(
    call: StoreCall, found: Sequence[tuple[TopicPartition, TimeOffsets]]
) -> None:
    notes = [_note(each) for _, each in found]
    print_table(
        ["partition", "time", "offset", "timestamp", "time of the record", "epoch"]
        + ["note"] * any(notes),
        (
            [
                str(partition),
                _format_target(call, each.target_timestamp),
                _offset_of(answer),
                format_value(answer.timestamp),
                call.format_time(answer.timestamp),
                format_value(answer.leader_epoch),
            ]
            + [note] * any(notes)
            for (partition, each), note in zip(found, notes, strict=True)
            for answer in each.answers
        ),
        right="offset,timestamp,epoch",
        prose="note",
    )


def _write_csv(found: Sequence[tuple[TopicPartition, TimeOffsets]]) -> int:
    """Write where consumers begin; return 1 if it is unknown for a partition."""
    positions = []
    for partition, each in found:
        (answer,) = each.answers
        offset = answer.log_end_offset if answer.offset is None else answer.offset
        if offset is not None:
            positions.append(ResetPosition("", partition, offset))
    write_reset_plan(positions, with_groups=False)
    unknown = len(found) - len(positions)
    note_left_out(unknown, "partition", "there is no answer, or it is in remote storage")
    return FOUND_PROBLEMS if unknown else 0


def _print_several_rules(
    call: StoreCall, found: Sequence[tuple[TopicPartition, TimeOffsets]], rules: Sequence[str]
) -> None:
    """Print a column of offsets for each set of rules, then the record found."""
    print_table(
        ["partition", "time", *rules, "time of the record", "epoch", "note"],
        (
            [
                str(partition),
                _format_target(call, each.target_timestamp),
                *(_offset_of(answer) for answer in each.answers),
                *_record_of(call, each.answers),
                _note(each),
            ]
            for partition, each in found
        ),
        right=",".join([*rules, "epoch"]),
        prose="note",
    )


def _record_of(call: StoreCall, answers: Sequence[OffsetAnswer]) -> tuple[str, str]:
    """Return time and epoch of the record that the last rules found."""
    by_record = [each for each in answers if each.rules != LEGACY]
    if not by_record:
        return "-", "-"
    return call.format_time(by_record[-1].timestamp), format_value(by_record[-1].leader_epoch)


def _remote_range(remote: InRemoteSegmentError) -> str:
    return f"{remote.start_offset} to {remote.end_offset}"


def _offset_of(answer: OffsetAnswer) -> str:
    if answer.is_refused:
        return "refused"
    if answer.remote is not None:
        return f"remote, {_remote_range(answer.remote)}"
    return "none" if answer.offset is None else str(answer.offset)
