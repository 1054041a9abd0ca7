"""``kafkastore repair``: repair damaged logs and indexes; all removed bytes are kept."""
from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import click

from kafkastore.checks.mending import Damage, LeftAlone
from kafkastore.checks.repair import KEEP, RepairPlan, plan_repair
from kafkastore.cli.apply_plans import apply_plans
from kafkastore.cli.change_options import ChangeOptions, change_options, index_interval_option
from kafkastore.cli.failures import FOUND_PROBLEMS, UNREADABLE, sentence, tell
from kafkastore.cli.few_lines import few_lines, verbose_option
from kafkastore.cli.json_lines import json_option, write_json
from kafkastore.cli.plans import print_plan
from kafkastore.cli.progress import counting, progress
from kafkastore.cli.selection import paths_argument, select, topic_options
from kafkastore.cli.tables import counted, print_table
from kafkastore.cli.visible import visible
from kafkastore.versions import rules_of

#: The broker whose repair is shown next to `KEEP` if the user chooses none.
_BROKER = "2.4"


class _Outcome(NamedTuple):
    """The plans for all directories under one way of repair."""

    like: str
    plans: list[RepairPlan]

    @property
    def damages(self) -> list[Damage]:
        """Bytes that are removed from logs."""
        return [each for plan in self.plans for each in plan.damages]

    @property
    def left_alone(self) -> list[LeftAlone]:
        """Problems that are not repaired."""
        return [each for plan in self.plans for each in plan.left_alone]

    @property
    def files(self) -> int:
        """Number of changed files."""
        return sum(len(planned.changes) for planned in self.plans)

    @property
    def lost_bytes(self) -> int:
        """Number of bytes that are removed from logs."""
        return sum(each.size for each in self.damages)

    @property
    def exit_code(self) -> int:
        """The exit code: not 0 if some problems are not repaired."""
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
@change_options("repair")
@verbose_option
@json_option
def command(
    paths: tuple[Path, ...],
    topics: tuple[str, ...],
    partitions: tuple[int, ...],
    like: str | None,
    index_interval_bytes: int,
    options: ChangeOptions,
    verbose: bool,
    as_json: bool,
) -> int:
    """Plan to repair damaged logs and the files that do not match them; repair where asked to.

    With --like keep only the corrupt bytes leave a log, and the batches after them become a segment
    of their own. With --like 2.4 a log ends at its first corrupt batch, and later segments are
    removed. Without --like nothing is taken from a log: where one is damaged, both outcomes are
    shown and nothing is changed. Old files are kept, and kafkastore changes undo restores them.
    """
    if like not in (None, KEEP):
        rules_of(like or "")
    options.check(paths)

    def planned(directories: Sequence[Path], like: str) -> _Outcome:
        return _Outcome(
            like,
            [
                options.rooted(_plan(path, topics, partitions, like, index_interval_bytes))
                for path in directories
            ],
        )

    if like is None:
        outcome = planned(paths, KEEP)
        if outcome.damages:
            choices = [outcome, planned(paths, _BROKER)]
            _show_choice(choices, as_json=as_json, verbose=verbose)
            return max(FOUND_PROBLEMS, outcome.exit_code)
    work = options.directories(paths, as_json=as_json)
    if like is not None or work is not paths:
        outcome = planned(work, like or KEEP)
    if as_json:
        for damage in outcome.damages:
            write_json({"kind": "damage", **damage._asdict()})
    else:
        _print_damages(outcome, verbose=verbose)
    for plan in outcome.plans:
        print_plan(plan, as_json=as_json, verbose=verbose)
    _tell_left(outcome, as_json=as_json)
    apply_plans(options, paths, outcome.plans, as_json=as_json)
    return outcome.exit_code


def _plan(
    path: Path,
    topics: tuple[str, ...],
    partitions: tuple[int, ...],
    like: str,
    index_interval_bytes: int,
) -> RepairPlan:
    """Plan one directory."""
    chosen = select([path], topics, partitions)
    with progress(f"reading {path.name}", len(chosen.topic_partitions)) as advance:
        return plan_repair(
            path,
            like,
            index_interval_bytes=index_interval_bytes,
            partitions=frozenset(chosen.topic_partitions),
            progress=counting(advance),
        )


def _show_choice(outcomes: list[_Outcome], *, as_json: bool, verbose: bool) -> None:
    """Print what each way of repair costs."""
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
    """Print what is not repaired."""
    for each in outcome.left_alone:
        reason = sentence(each.error)
        if as_json:
            write_json({"kind": "left-alone", "path": str(each.path), "reason": reason})
        else:
            tell(f"{each.path} is left alone: {reason}")


def _print_damages(outcome: _Outcome, indent: str = "", *, verbose: bool) -> None:
    """Print what is corrupt, and what the repair does with it."""
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
