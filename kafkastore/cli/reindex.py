"""``kafkastore reindex``: indexes made anew from the logs."""
from __future__ import annotations

from pathlib import Path

import click

from kafkastore.changes.plan import Plan
from kafkastore.checks.reindex import UnindexedBytes, plan_reindex
from kafkastore.cli.confirm import check_can_confirm
from kafkastore.cli.failures import FOUND_PROBLEMS
from kafkastore.cli.json_lines import json_option, write_json
from kafkastore.cli.plan_options import carry_out, index_interval_option, mending_options
from kafkastore.cli.plans import print_plan
from kafkastore.cli.progress import progress
from kafkastore.cli.selection import paths_argument, select, topic_options
from kafkastore.cli.tables import counted
from kafkastore.formats.broker_rules import rules_of


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
    as_json: bool,
) -> int:
    """Make .index, .timeindex and .txnindex anew where they are not what the log gives.

    What a recovering broker would write, and no more: logs stay as they are, bytes that a broker
    would cut are told, and files that are right are left alone. What is replaced is kept, and
    kafkastore changes undo brings it back.
    """
    rules_of(rules)
    unindexed: list[UnindexedBytes] = []
    plans = [
        _plan(path, topics, partitions, rules, index_interval_bytes, unindexed, up_to_damage)
        for path in paths
    ]
    for planned in plans:
        print_plan(planned, as_json=as_json)
    for each in unindexed:
        _show(each, as_json=as_json)
    code = FOUND_PROBLEMS if any(not each.is_indexed for each in unindexed) else 0
    if not dry_run and any(planned.changes for planned in plans):
        if not yes:
            check_can_confirm("reindex")
        carry_out(paths, plans, undo_dir, asks=not yes, as_json=as_json)
    return code


def _plan(
    path: Path,
    topics: tuple[str, ...],
    partitions: tuple[int, ...],
    rules: str,
    index_interval_bytes: int,
    unindexed: list[UnindexedBytes],
    up_to_damage: bool,
) -> Plan:
    """Plan one directory, and note what is not indexed."""
    chosen = select([path], topics, partitions)
    segments = sum(len(log.segments) for log in chosen.store.logs_of(chosen.topic_partitions))
    with progress(f"reading {path.name}", segments) as advance:
        return plan_reindex(
            path,
            rules,
            index_interval_bytes,
            up_to_damage=up_to_damage,
            partitions=frozenset(chosen.topic_partitions),
            found=unindexed.append,
            progress=lambda: advance(1),
        )


def _show(unindexed: UnindexedBytes, *, as_json: bool) -> None:
    """Say what is behind the indexed part of a log."""
    if as_json:
        write_json({"kind": "unindexed", **unindexed._asdict()})
        return
    left = unindexed.size - unindexed.valid_bytes
    if not unindexed.is_indexed and not unindexed.valid_bytes:
        print(f"{unindexed.path}: {unindexed.reason}; left alone")
        return
    outcome = "indexed up to there" if unindexed.is_indexed else "left alone"
    print(
        f"{unindexed.path}: {counted(left, 'byte')} from byte {unindexed.valid_bytes:,} on "
        f"{'is' if left == 1 else 'are'} no whole batches: {unindexed.reason}; {outcome}"
    )
