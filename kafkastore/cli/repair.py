"""``kafkastore repair``: damaged logs and indexes mended, with everything kept that leaves."""
from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import click

from kafkastore.changes.plan import Plan
from kafkastore.checks.mending import Damage, LeftAlone
from kafkastore.checks.repair import KEEP, plan_repair
from kafkastore.cli.confirm import check_can_confirm
from kafkastore.cli.failures import FOUND_PROBLEMS, UNREADABLE, sentence, tell
from kafkastore.cli.few_lines import few_lines, verbose_option
from kafkastore.cli.json_lines import json_option, write_json
from kafkastore.cli.plan_options import (
    carry_out,
    index_interval_option,
    mending_options,
    refuse_urls,
)
from kafkastore.cli.plans import print_plan
from kafkastore.cli.progress import progress
from kafkastore.cli.selection import paths_argument, select, topic_options
from kafkastore.cli.tables import counted, print_table
from kafkastore.cli.visible import visible
from kafkastore.versions import rules_of

#: The broker whose way is shown beside `KEEP` where none is chosen.
_BROKER = "2.4"


@dataclass
class _Outcome:
    """What one way of mending does to all the directories."""

    like: str
    plans: list[Plan] = field(default_factory=list)
    damages: list[Damage] = field(default_factory=list)
    left_alone: list[LeftAlone] = field(default_factory=list)

    @property
    def files(self) -> int:
        """How many are changed."""
        return sum(len(planned.changes) for planned in self.plans)

    @property
    def lost_bytes(self) -> int:
        """How many bytes leave logs."""
        return sum(each.size for each in self.damages)

    @property
    def exit_code(self) -> int:
        """Of a run that leaves something alone."""
        if any(isinstance(each.error, OSError) for each in self.left_alone):
            return UNREADABLE
        return FOUND_PROBLEMS if self.left_alone else 0


@click.command()
@paths_argument()
@topic_options
@click.option(
    "--like", metavar="keep|VERSION",
    help="keep: keep every batch that can be read. A version such as 2.4: end each damaged log "
    "where that broker would end it. Needed where a log is damaged; without it both are shown.",
)
@index_interval_option("Kafka's setting of that name.")
@mending_options
@verbose_option
@json_option
def command(
    paths: tuple[Path, ...],
    topics: tuple[str, ...],
    partitions: tuple[int, ...],
    like: str | None,
    index_interval_bytes: int,
    dry_run: bool,
    yes: bool,
    undo_dir: Path | None,
    verbose: bool,
    as_json: bool,
) -> int:
    """Mend damaged logs, and the files beside them that are not what their logs say.

    With --like keep just the broken bytes leave, and what can be read behind them becomes a segment
    of its own. With --like 2.4 a log ends at its first broken batch, and later segments go. Without
    --like nothing is taken from a log: where one is damaged, both outcomes are shown and nothing is
    changed. The old files are kept first, and kafkastore changes undo brings them back.
    """
    if like not in (None, KEEP):
        rules_of(like or "")
    if not dry_run:
        refuse_urls(paths)

    def planned(way: str) -> _Outcome:
        outcome = _Outcome(way)
        for path in paths:
            _plan(outcome, path, topics, partitions, index_interval_bytes)
        return outcome

    outcome = planned(like or KEEP)
    if like is None and outcome.damages:
        _show_choice([outcome, planned(_BROKER)], as_json=as_json, verbose=verbose)
        return max(FOUND_PROBLEMS, outcome.exit_code)
    if as_json:
        for damage in outcome.damages:
            write_json({"kind": "damage", **damage._asdict()})
    else:
        _print_damages(outcome, verbose=verbose)
    for plan in outcome.plans:
        print_plan(plan, as_json=as_json, verbose=verbose)
    _tell_left(outcome, as_json=as_json)
    if not dry_run and outcome.files:
        if not yes:
            check_can_confirm("repair")
        carry_out(paths, outcome.plans, undo_dir, asks=not yes, as_json=as_json)
    return outcome.exit_code


def _plan(
    outcome: _Outcome,
    path: Path,
    topics: tuple[str, ...],
    partitions: tuple[int, ...],
    index_interval_bytes: int,
) -> None:
    """Plan one directory."""
    chosen = select([path], topics, partitions)
    with progress(f"reading {path.name}", len(chosen.topic_partitions)) as advance:
        outcome.plans.append(
            plan_repair(
                path,
                outcome.like,
                index_interval_bytes=index_interval_bytes,
                partitions=frozenset(chosen.topic_partitions),
                found=outcome.damages.append,
                left=outcome.left_alone.append,
                progress=lambda: advance(1),
            )
        )


def _show_choice(outcomes: list[_Outcome], *, as_json: bool, verbose: bool) -> None:
    """Say what either way costs."""
    for outcome in outcomes:
        if as_json:
            write_json(
                {
                    "kind": "choice",
                    "like": outcome.like,
                    "files": outcome.files,
                    "lost_bytes": outcome.lost_bytes,
                    "damages": [each._asdict() for each in outcome.damages],
                }
            )
            continue
        print(f"--like {outcome.like}")
        _print_damages(outcome, "    ", verbose=verbose)
    if as_json:
        _tell_left(outcomes[0], as_json=True)
        return
    print_table(
        ["choice", "bytes that leave logs", "files to change"],
        ([f"--like {each.like}", f"{each.lost_bytes:,}", f"{each.files:,}"] for each in outcomes),
        right="bytes that leave logs,files to change",
    )
    for outcome in outcomes:
        _tell_left(outcome, as_json=False)
    print("nothing was changed; choose with --like: all bytes that leave are kept in an undo area")


def _tell_left(outcome: _Outcome, *, as_json: bool) -> None:
    """Say what is not mended."""
    for each in outcome.left_alone:
        reason = sentence(each.error)
        if as_json:
            write_json({"kind": "left-alone", "path": str(each.path), "reason": reason})
        else:
            tell(f"{each.path} is left alone: {reason}")


def _print_damages(outcome: _Outcome, indent: str = "", *, verbose: bool) -> None:
    """Say what is broken, and what becomes of it."""
    lines = ((None, _line(each)) for each in outcome.damages)
    for line in few_lines(lines, verbose=verbose):
        print(visible(f"{indent}{line}"))


def _line(damage: Damage) -> str:
    missing = damage.end_offset - damage.first_offset
    offsets = f", {counted(missing, 'offset')} from {damage.first_offset} on" if missing else ""
    return (
        f"{damage.path}: {counted(damage.size, 'byte')} from byte {damage.position:,} on{offsets}: "
        f"{damage.what}"
    )
