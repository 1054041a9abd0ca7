"""``kafkastore migrate``: add time indexes to directories that have none."""
from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

import click

from kafkastore.changes.plan import Plan
from kafkastore.cli.apply_plans import apply_plans, read_directory
from kafkastore.cli.options.change_options import (
    ChangeOptions,
    change_options,
    index_interval_option,
)
from kafkastore.cli.options.mtimes import (
    load_mtimes,
    mtimes_option,
    print_unused_mtimes,
    save_mtimes_option,
    write_mtimes,
)
from kafkastore.cli.options.selection import select
from kafkastore.cli.options.whole_numbers import WholeNumber
from kafkastore.cli.output.control_characters import print_text
from kafkastore.cli.output.failures import FOUND_PROBLEMS, print_note
from kafkastore.cli.output.grouped_lines import MAX_SHOWN, group_lines
from kafkastore.cli.output.json_lines import write_json
from kafkastore.cli.output.output_file import check_output
from kafkastore.cli.output.partition_errors import Problems
from kafkastore.cli.output.plans import print_plan_details, print_plan_summary, print_plans
from kafkastore.cli.output.progress import progress, to_progress_callback
from kafkastore.cli.output.tables import format_count, print_table
from kafkastore.cli.store_command import StoreCall, store_command
from kafkastore.formats.state.file_names import TopicPartition
from kafkastore.log.time_text import format_time
from kafkastore.migration import (
    ENTRY_OFFSETS,
    MODES,
    READING_MODES,
    AnswersSummary,
    LeftSegment,
    MigrationAnswers,
    SampleAnswer,
    Survey,
    answers,
    left_segments,
    plan,
    survey,
)
from kafkastore.migration.plan import EntryOffset, LeftReason, Mode
from kafkastore.segment.log_segment import REPLACES_SEGMENTS
from kafkastore.store.sample_times import MOST_SAMPLES, SAMPLES

_LEFT = {
    LeftReason.UNREAD: "the log can't be read to its end",
    LeftReason.REBUILT_BY_BROKER: "the next start of a broker rebuilds it",
    LeftReason.SWAP: REPLACES_SEGMENTS,
}


@store_command("threads", "spark", "verbose")
@click.option(
    "--mode", type=click.Choice(MODES), default="auto", show_default=True,
    help="rebuild: from the records' timestamps. kip-33: one entry by modification time. empty: "
    "an empty file, as brokers create. auto: rebuild if records have timestamps, else kip-33.",
)
@click.option(
    "--entry-offset", type=click.Choice(ENTRY_OFFSETS), default="next", show_default=True,
    help="Offset of an entry by modification time: the first offset of the next segment, or of the "
    "segment itself.",
)
@index_interval_option("Kafka's setting of that name, for rebuilt indexes.")
@mtimes_option("Modification times, for directories that lost their own")
@save_mtimes_option
@click.option(
    "--samples", type=WholeNumber(0, MOST_SAMPLES), default=SAMPLES, show_default=True,
    metavar="N",
    help="Number of times to look up in each partition, before and after, to compare brokers' "
    "answers; if there are many partitions, in some of them.",
)
@change_options("migrate", copies_to_urls=True)
def command(
    call: StoreCall,
    mode: Mode,
    entry_offset: EntryOffset,
    index_interval_bytes: int,
    mtimes_file: Path | None,
    save_mtimes: Path | None,
    samples: int,
    options: ChangeOptions,
) -> int:
    """Build time indexes for log directories of Kafka versions before 0.10.1.

    Log files and modification times do not change. Each index file is entirely old or entirely new
    at any instant. Replaced files are kept; kafkastore changes undo restores them.
    """
    options.check(call.paths)
    chosen = call.selection  # raises before anything is read or copied
    problems = Problems()
    problems.add_unknown_starts(chosen.store)
    if save_mtimes is not None:
        check_output(save_mtimes, chosen.store)
        problems.add_unread(write_mtimes(save_mtimes, chosen.logs()))
    mtimes = load_mtimes(mtimes_file, chosen)
    for path in call.paths:
        problems.expect(len(_chosen_in(path, chosen.topic_partitions)))
    work = options.directories(call.paths, problems, as_json=call.as_json)
    how = _MigrationSettings(mode, entry_offset, index_interval_bytes, mtimes, samples)
    with call.session():
        found = [_plan_migration(call, path, how) for path in work]
        if mtimes_file is not None and not any(each.has_given_mtimes for each in found):
            print_unused_mtimes(mtimes_file)
        found = [each._replace(plan=options.rooted(each.plan)) for each in found]
        if not call.as_json:
            _show(found, verbose=call.verbose)
        for each in found:
            if call.as_json:
                _write(each, mode)
            problems.add_unread(each.survey.unread)
        plans = [each.plan for each in found]
        apply_plans(call, options, plans, problems, mtimes_are_kept=save_mtimes is not None)
    left = [segment for each in found for segment in left_segments(each.survey, mode)]
    if not options.is_plan_only and not call.as_json:
        _print_left_segments(left)
    is_left = any(each.reason is LeftReason.UNREAD for each in left)
    return problems.exit_code or (FOUND_PROBLEMS if is_left else 0)


@dataclass(frozen=True, slots=True)
class _MigrationSettings:
    """The options that are the same for all directories."""

    mode: Mode
    entry_offset: EntryOffset
    index_interval_bytes: int
    mtimes: Mapping[str, int] | None
    samples: int


class _Found(NamedTuple):
    """The survey and plan of one directory, and sample answers before and after."""

    survey: Survey
    plan: Plan
    answers: MigrationAnswers | None

    @property
    def has_given_mtimes(self) -> bool:
        """Return whether a given modification time is of a segment in this directory."""
        return any(each.mtime_is_given for part in self.survey.partitions for each in part.segments)


def _plan_migration(call: StoreCall, path: Path, how: _MigrationSettings) -> _Found:
    """Survey a directory, make the plan, and compute sample answers."""
    surveyed = _survey(call, path, how)
    planned: Plan = plan(surveyed, how.mode, entry_offset=how.entry_offset)
    if not how.samples or not planned.changes:
        return _Found(surveyed, planned, None)
    with progress("looking up sample times", None) as advance:
        show = to_progress_callback(advance)
        found = answers(surveyed, planned, how.samples, threads=call.threads, progress=show)
    return _Found(surveyed, planned, found)


def _chosen_in(path: Path, chosen: Collection[TopicPartition]) -> list[TopicPartition]:
    """Return the selected partitions of a directory."""
    return [each for each in select([path]).topic_partitions if each in chosen]


def _survey(call: StoreCall, path: Path, how: _MigrationSettings) -> Survey:
    """Survey partitions of a directory, in threads or on Spark."""
    make = partial(
        survey,
        mtimes=how.mtimes,
        index_interval_bytes=how.index_interval_bytes,
        read_logs=how.mode in READING_MODES,
    )
    here = _chosen_in(path, call.selection.topic_partitions)
    found: Survey = read_directory(call, path, here, make, len(here))
    return found


def _show(found: Sequence[_Found], *, verbose: bool) -> None:
    """Print the surveys, plans and counted answers, then their details."""
    for each in found:
        _print_warnings(each.survey, verbose=verbose)
        segments = [segment for part in each.survey.partitions for segment in part.segments]
        without = sum(segment.time_index != "present" for segment in segments)
        partitions = format_count(len(each.survey.partitions), "partition")
        print_text(
            f"{each.survey.root}: {format_count(len(segments), 'segment')} of {partitions}, "
            f"{without:,} without time index entries"
        )
        print_plan_summary(each.plan)
        if each.answers is not None:
            _print_answers_summary(each.answers, verbose=verbose)
    for each in found:
        print_plan_details(each.plan, verbose=verbose, is_one_of_several=len(found) > 1)
        if each.answers is not None:
            _print_answers(each.answers, verbose=verbose)


def _write(found: _Found, mode: Mode) -> None:
    """Write the plan, and the answers before and after, as JSON."""
    _print_warnings(found.survey, verbose=True)
    print_plans([found.plan], as_json=True, verbose=True)
    for segment in left_segments(found.survey, mode):
        write_json({"kind": "unmigrated", "root": found.plan.root, **segment._asdict()})
    if found.answers is not None:
        _write_answers(found.answers, found.plan.root)


def _print_warnings(surveyed: Survey, *, verbose: bool) -> None:
    """Print what the survey warns of."""
    warnings = ((each.kind, str(each)) for each in surveyed.warnings)
    for line in group_lines(warnings, verbose=verbose):
        print_note(line)


def _write_answers(found: MigrationAnswers, root: str) -> None:
    """Write answers as JSON: a line for each, and a summary for each broker version."""
    for partition in found.partitions:
        place = {"topic": partition.topic_partition.topic,
                 "partition": partition.topic_partition.partition}
        if partition.problem is not None:
            write_json({"kind": "unanswered", **place, "problem": partition.problem})
        for timestamp, *rest in partition.answers:
            rules, correct, before, after = rest
            write_json({
                "kind": "answer", **place, "target_timestamp": timestamp, "rules": rules,
                "correct": correct, "before": before, "after": after,
            })
    for each in found.summaries:
        write_json({
            "kind": "answers", "root": root, **each._asdict(), "partitions": len(found.partitions),
            "changed_partitions": found.changed_partitions,
        })


def _print_answers_summary(found: MigrationAnswers, *, verbose: bool) -> None:
    """Print how many answers are correct before and after."""
    problems = (
        (None, f"no times looked up in {each.topic_partition}: {each.problem}")
        for each in found.partitions
        if each.problem is not None
    )
    for line in group_lines(problems, verbose=verbose):
        print_note(line)
    changed = format_count(found.changed_partitions, "partition")
    answered = sum(each.problem is None for each in found.partitions)
    looked_up = f"looked up in {answered:,} of {changed}"
    if not found.summaries:
        why = "no record has a timestamp; " if answered else ""
        print(f"answers: {why}{looked_up}")
    alike: dict[AnswersSummary, list[str]] = {}
    for each in found.summaries:
        alike.setdefault(each._replace(rules=""), []).append(each.rules)
    for each, brokers in alike.items():
        print(
            f"answers of {' and '.join(brokers)} for {format_count(each.times, 'sample time')}: "
            f"{each.correct_before:,} correct before, {each.correct_after:,} after; {looked_up}"
        )


def _print_answers(found: MigrationAnswers, *, verbose: bool) -> None:
    """Print the answers that change or are wrong."""
    rows = [*_rows(found)]
    if rows:
        columns = ["partition", "time", "brokers", "correct", "before", "after"]
        shown = rows if verbose else rows[:MAX_SHOWN]
        print_table(columns, shown, right="correct,before,after")
        if len(rows) > len(shown):
            print(f"... and {len(rows) - len(shown):,} more like these; --verbose lists all")


def _rows(found: MigrationAnswers) -> Iterable[list[str]]:
    """Yield answers that change or are wrong; versions with equal ones share a row."""
    for partition in found.partitions:
        alike: dict[SampleAnswer, list[str]] = {}
        for each in partition.answers:
            if each.before != each.correct or each.after != each.correct:
                alike.setdefault(each._replace(rules=""), []).append(each.rules)
        for each, brokers in alike.items():
            offsets = (each.correct, each.before, each.after)
            yield [
                str(partition.topic_partition),
                format_time(each.target_timestamp),
                ", ".join(brokers),
                *("none" if offset is None else str(offset) for offset in offsets),
            ]


def _print_left_segments(left: Iterable[LeftSegment]) -> None:
    """Print how many segments stay without a time index, and why."""
    for reason, count in Counter(each.reason for each in left).items():
        segments = format_count(count, "segment")
        print_text(f"not migrated: {segments}: {_LEFT[reason]}; --json lists them")
