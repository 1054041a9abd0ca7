"""``kafkastore repair``: repair logs and indexes; keep removed bytes."""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple, get_args

import click

from kafkastore.checks.partition_repair import NotRepaired, RemovedBytes
from kafkastore.checks.repair import OnCorruptLog, RepairPlan, plan_repair
from kafkastore.cli.apply_plans import apply_plans, plan_directory
from kafkastore.cli.options.change_options import (
    ChangeOptions,
    change_options,
    index_interval_option,
)
from kafkastore.cli.options.kafka_version import kafka_version_option
from kafkastore.cli.output.control_characters import print_text
from kafkastore.cli.output.failures import FOUND_PROBLEMS, format_error, print_problem
from kafkastore.cli.output.grouped_lines import group_lines
from kafkastore.cli.output.json_lines import write_json
from kafkastore.cli.output.partition_errors import Problems
from kafkastore.cli.output.plans import print_plan_details, print_plan_summary, print_plans
from kafkastore.cli.output.tables import format_count, print_table
from kafkastore.cli.store_command import StoreCall, store_command
from kafkastore.errors import NotALogDirectoryError
from kafkastore.formats.state.file_names import (
    OFFSET_INDEX_SUFFIX,
    TIME_INDEX_SUFFIX,
    parse_partition_directory,
)
from kafkastore.metadata.cluster import Cluster, MetadataSource
from kafkastore.metadata.topic_configs import ConfigSource
from kafkastore.writing.topic_settings import TopicSettings, settings_of

_INDEX_INTERVAL_BYTES = "index.interval.bytes"


class _RepairOutcome(NamedTuple):
    """The plans for all directories under one way of repair."""

    on_corrupt: OnCorruptLog
    plans: list[RepairPlan]
    problems: Problems

    @property
    def damages(self) -> list[RemovedBytes]:
        """Bytes that are removed from logs."""
        return [each for plan in self.plans for each in plan.removed]

    @property
    def unrepaired(self) -> list[NotRepaired]:
        """Problems that are not repaired."""
        return [each for plan in self.plans for each in plan.not_repaired]

    @property
    def files(self) -> int:
        """Number of changed files."""
        return sum(len(planned.changes) for planned in self.plans)

    @property
    def rebuilt_topics(self) -> list[str]:
        """The topics whose indexes are rebuilt."""
        places = (
            Path(plan.root, change.path) for plan in self.plans for change in plan.changes
            if change.path.endswith((OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX))
        )
        found = {parse_partition_directory(each.parent.name).topic_partition for each in places}
        return sorted({each.topic for each in found})

    @property
    def lost_bytes(self) -> int:
        """Number of bytes that are removed from logs."""
        return sum(each.size for each in self.damages)

    @property
    def exit_code(self) -> int:
        """The exit code: not 0 if some problems are not repaired."""
        for each in self.unrepaired:
            if each.is_partition and isinstance(each.error, OSError | NotALogDirectoryError):
                self.problems.count_unread(each.path)
        return self.problems.exit_code or (FOUND_PROBLEMS if self.unrepaired else 0)


@store_command("metadata", "threads", "spark", "verbose")
@click.option(
    "--on-corrupt", type=click.Choice(get_args(OnCorruptLog)),
    help="truncate: end each corrupt log where a broker would end it. skip: remove only the "
    "corrupt bytes. Required if a log is corrupt; without it, both results are shown.",
)
@kafka_version_option("The version of the broker that truncate follows.")
@index_interval_option(
    "The topics' index.interval.bytes. Default: that of the metadata, or 4096.", default=None
)
@change_options("repair")
def command(
    call: StoreCall,
    on_corrupt: OnCorruptLog | None,
    version: str,
    index_interval_bytes: int | None,
    options: ChangeOptions,
) -> int:
    """Repair corrupt logs, and files that do not match them; removed bytes are kept.

    --on-corrupt skip removes only the corrupt bytes; the batches after them become a new
    segment. --on-corrupt truncate ends a log before its first corrupt batch, and removes later
    segments. Without --on-corrupt, if a log is corrupt, both
    results are shown and nothing is changed. With the metadata of a KRaft cluster, a missing
    partition.metadata is written with the topic id from there. Old files are kept; kafkastore
    changes undo restores them.
    """
    options.check(call.paths)

    problems = Problems()
    for path in call.paths:
        problems.expect(len(call.select(path).topic_partitions))

    def planned(directories: Sequence[Path], on_corrupt: OnCorruptLog) -> _RepairOutcome:
        make = partial(
            plan_repair,
            version=version,
            on_corrupt=on_corrupt,
            index_interval_bytes=index_interval_bytes,
            # Without one, an empty one: the copies of the directories are not searched again.
            metadata=call.cluster or Cluster(MetadataSource.LOG_DIRECTORIES),
        )
        plans = (plan_directory(call, path, make, by_segment=False) for path in directories)
        return _RepairOutcome(on_corrupt, [*map(options.rooted, plans)], problems)

    given = {} if index_interval_bytes is None else {_INDEX_INTERVAL_BYTES: index_interval_bytes}
    with call.session():
        return _repair(call, on_corrupt, options, planned, problems, given)


def _repair(
    call: StoreCall,
    on_corrupt: OnCorruptLog | None,
    options: ChangeOptions,
    planned: Callable[[Sequence[Path], OnCorruptLog], _RepairOutcome],
    problems: Problems,
    given: Mapping[str, object],
) -> int:
    """Plan, show and apply; return the exit code."""
    if on_corrupt is None:
        outcome = planned(call.paths, "skip")
        if outcome.damages:
            choices = [outcome, planned(call.paths, "truncate")]
            _show_choice(choices, as_json=call.as_json, verbose=call.verbose)
            return max(FOUND_PROBLEMS, outcome.exit_code)
    work = options.directories(call.paths, problems, as_json=call.as_json)
    if on_corrupt is not None or work is not call.paths:
        outcome = planned(work, on_corrupt or "skip")
    is_one_of_several = len(outcome.plans) > 1
    if call.as_json:
        for damage in outcome.damages:
            write_json({"kind": "damage", **damage._asdict()})
    else:
        for plan in outcome.plans:
            print_plan_summary(plan, is_one_of_several=is_one_of_several)
        _print_damages(outcome, verbose=call.verbose)
    if call.cluster is not None:
        settings = settings_of(call.cluster, call.selection.store, given)
        _print_intervals(outcome, settings, as_json=call.as_json)
    if call.as_json:
        print_plans(outcome.plans, as_json=True, verbose=call.verbose)
    else:
        for plan in outcome.plans:
            print_plan_details(
                plan, verbose=call.verbose, is_one_of_several=is_one_of_several
            )
    _print_unrepaired(outcome, as_json=call.as_json)
    apply_plans(call, options, outcome.plans, problems)
    return outcome.exit_code


def _show_choice(outcomes: list[_RepairOutcome], *, as_json: bool, verbose: bool) -> None:
    """Print what each way of repair costs."""
    if as_json:
        for outcome in outcomes:
            write_json(
                {
                    "kind": "choice",
                    "on_corrupt": outcome.on_corrupt,
                    "files": outcome.files,
                    "lost_bytes": outcome.lost_bytes,
                    "damages": [each._asdict() for each in outcome.damages],
                }
            )
        _print_unrepaired(outcomes[0], as_json=True)
        return
    print_table(
        ["choice", "bytes removed", "files to change"],
        (
            [f"--on-corrupt {each.on_corrupt}", f"{each.lost_bytes:,}", f"{each.files:,}"]
            for each in outcomes
        ),
        right="bytes removed,files to change",
    )
    for outcome in outcomes:
        print(f"--on-corrupt {outcome.on_corrupt}")
        _print_damages(outcome, "    ", verbose=verbose)
    for outcome in outcomes:
        _print_unrepaired(outcome, as_json=False)
    print("nothing was changed; choose with --on-corrupt; removed bytes are kept in an undo area")


def _print_intervals(
    outcome: _RepairOutcome, settings: TopicSettings, *, as_json: bool
) -> None:
    """Print the index.interval.bytes of rebuilt indexes, and its source."""
    topics: dict[str, dict[str, None]] = {}
    for each in outcome.rebuilt_topics:
        setting = settings.of(each)
        if as_json:
            source = setting.sources.get(_INDEX_INTERVAL_BYTES, ConfigSource.DEFAULT)
            write_json({
                "kind": "setting",
                "topic": each,
                "index_interval_bytes": settings.config(each).index_interval_bytes,
                "config_sources": {_INDEX_INTERVAL_BYTES: source.value},
            })
        else:
            topics.setdefault(setting.describe(_INDEX_INTERVAL_BYTES), {})[each] = None
    for setting_text, names in topics.items():
        print_text(f"{setting_text}: {', '.join(names)}")


def _print_unrepaired(outcome: _RepairOutcome, *, as_json: bool) -> None:
    """Print what is not repaired."""
    for each in outcome.unrepaired:
        reason = format_error(each.error)
        if as_json:
            write_json({"kind": "unrepaired", "path": str(each.path), "reason": reason})
        else:
            print_problem(f"{each.path} is not repaired: {reason}")


def _print_damages(outcome: _RepairOutcome, indent: str = "", *, verbose: bool) -> None:
    """Print what is corrupt, and what the repair does with it."""
    lines = ((None, _line(each)) for each in outcome.damages)
    for line in group_lines(lines, verbose=verbose):
        print_text(f"{indent}{line}")


def _line(damage: RemovedBytes) -> str:
    if damage.end_offset is None:
        offsets = f", offsets from {damage.first_offset} on"
    elif missing := damage.end_offset - damage.first_offset:
        offsets = f", {format_count(missing, 'offset')} from {damage.first_offset} on"
    else:
        offsets = ""
    return (
        f"{damage.path}: {format_count(damage.size, 'byte')} from byte {damage.position:,} on"
        f"{offsets}: {damage.what}"
    )
