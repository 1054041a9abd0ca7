"""``kafkastore reindex``: indexes made anew from the logs."""
from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import NamedTuple

import click

from kafkastore.changes.plan import Plan
from kafkastore.checks.reindex import UnindexedBytes, plan_reindex
from kafkastore.cli.confirm import check_can_confirm
from kafkastore.cli.failures import FOUND_PROBLEMS
from kafkastore.cli.few_lines import few_lines, verbose_option
from kafkastore.cli.json_lines import json_option, write_json
from kafkastore.cli.on_spark import executor, session_of, spark_option
from kafkastore.cli.plan_options import (
    carry_out,
    index_interval_option,
    mending_options,
    refuse_urls,
)
from kafkastore.cli.plans import print_plan
from kafkastore.cli.progress import progress
from kafkastore.cli.selection import paths_argument, select, topic_options
from kafkastore.cli.tables import counted
from kafkastore.cli.visible import visible
from kafkastore.formats.file_names import TopicPartition
from kafkastore.versions import rules_of


@click.command()
@paths_argument()
@topic_options
@click.option(
    "--rules", default="2.4", show_default=True, metavar="VERSION",
    help="The Kafka version whose recovery makes the files.",
)
@index_interval_option("Kafka's setting of that name.")
@click.option("--up-to-damage", is_flag=True,
              help="Index a log that is broken up to there, rather than leave it alone.")
@mending_options
@spark_option
@verbose_option
@json_option
def command(
    paths: tuple[Path, ...],
    topics: tuple[str, ...],
    partitions: tuple[int, ...],
    rules: str,
    index_interval_bytes: int,
    up_to_damage: bool,
    dry_run: bool,
    yes: bool,
    undo_dir: Path | None,
    master: str | None,
    verbose: bool,
    as_json: bool,
) -> int:
    """Make .index, .timeindex and .txnindex anew where they are not what the log gives.

    What a recovering broker would write, and no more: logs stay as they are, bytes that a broker
    would cut are told, and files that are right are left alone. What is replaced is kept, and
    kafkastore changes undo brings it back.
    """
    if not dry_run:
        refuse_urls(paths)
    rules_of(rules)
    how = _How(rules, index_interval_bytes, up_to_damage, master)
    unindexed: list[UnindexedBytes] = []
    with nullcontext() if master is None else session_of(master):
        plans = [_plan(path, topics, partitions, how, unindexed.append) for path in paths]
        for planned in plans:
            print_plan(planned, as_json=as_json, verbose=verbose)
        _show(unindexed, as_json=as_json, verbose=verbose)
        code = FOUND_PROBLEMS if any(not each.is_indexed for each in unindexed) else 0
        if not dry_run and any(planned.changes for planned in plans):
            if not yes:
                check_can_confirm("reindex")
            carry_out(paths, plans, undo_dir, asks=not yes, as_json=as_json, master=master)
    return code


class _How(NamedTuple):
    """What the options say of any directory."""

    rules: str
    index_interval_bytes: int
    up_to_damage: bool
    master: str | None


def _plan(
    path: Path,
    topics: tuple[str, ...],
    partitions: tuple[int, ...],
    how: _How,
    found: Callable[[UnindexedBytes], None],
) -> Plan:
    """Plan one directory, and tell what is not indexed."""
    chosen = select([path], topics, partitions)
    if how.master is not None:
        return _plan_on_spark(path, chosen.topic_partitions, how, how.master, found)
    segments = sum(len(log.segments) for log in chosen.store.logs_of(chosen.topic_partitions))
    with progress(f"reading {path.name}", segments) as advance:
        return plan_reindex(
            path,
            how.rules,
            how.index_interval_bytes,
            up_to_damage=how.up_to_damage,
            partitions=frozenset(chosen.topic_partitions),
            found=found,
            progress=lambda: advance(1),
        )


def _plan_on_spark(
    path: Path,
    chosen: Collection[TopicPartition],
    how: _How,
    master: str,
    found: Callable[[UnindexedBytes], None],
) -> Plan:
    """Plan one directory whose partitions executors read."""
    from kafkastore.jobs import planning

    with executor(master, f"reading {path.name}") as run:
        return planning.plan_reindex(
            run,
            path,
            how.rules,
            how.index_interval_bytes,
            up_to_damage=how.up_to_damage,
            partitions=frozenset(chosen),
            found=found,
        )


def _show(unindexed: Sequence[UnindexedBytes], *, as_json: bool, verbose: bool) -> None:
    """Say what is behind the indexed parts of logs."""
    if as_json:
        for each in unindexed:
            write_json({"kind": "unindexed", **each._asdict()})
        return
    lines = ((each.is_indexed, _line(each)) for each in unindexed)
    for line in few_lines(lines, verbose=verbose):
        print(visible(line))


def _line(unindexed: UnindexedBytes) -> str:
    left = unindexed.size - unindexed.valid_bytes
    if not unindexed.is_indexed and not unindexed.valid_bytes:
        return f"{unindexed.path}: {unindexed.reason}; left alone"
    outcome = "indexed up to there" if unindexed.is_indexed else "left alone"
    return (
        f"{unindexed.path}: {counted(left, 'byte')} from byte {unindexed.valid_bytes:,} on "
        f"{'is' if left == 1 else 'are'} no whole batches: {unindexed.reason}; {outcome}"
    )
