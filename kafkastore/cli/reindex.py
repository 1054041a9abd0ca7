"""``kafkastore reindex``: rebuild indexes from their logs."""
from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import NamedTuple

import click

from kafkastore.checks.reindex import ReindexPlan, UnindexedBytes, plan_reindex
from kafkastore.cli.apply_plans import apply_plans
from kafkastore.cli.change_options import ChangeOptions, change_options, index_interval_option
from kafkastore.cli.failures import FOUND_PROBLEMS
from kafkastore.cli.few_lines import few_lines, verbose_option
from kafkastore.cli.json_lines import json_option, write_json
from kafkastore.cli.on_spark import executor, session_of, spark_option
from kafkastore.cli.plans import print_plan
from kafkastore.cli.progress import counting, progress
from kafkastore.cli.selection import paths_argument, select, topic_options
from kafkastore.cli.tables import counted
from kafkastore.cli.visible import visible
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
@change_options("reindex", copies_to_urls=True)
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
    options: ChangeOptions,
    master: str | None,
    verbose: bool,
    as_json: bool,
) -> int:
    """Plan to rebuild indexes that do not match their logs, and rebuild them where asked to.

    They become what a recovering broker would write: .index, .timeindex and .txnindex. Logs stay as
    they are, bytes that a broker would truncate are reported, and files that are right are left
    alone. Replaced files are kept, and kafkastore changes undo restores them.
    """
    rules_of(rules)
    options.check(paths)
    for path in paths:
        select([path], topics, partitions)  # raises before anything is read or copied
    how = _How(rules, index_interval_bytes, up_to_damage, master)
    with nullcontext() if master is None else session_of(master):
        plans = [
            options.rooted(_plan(path, topics, partitions, how))
            for path in options.directories(paths, as_json=as_json)
        ]
        for planned in plans:
            print_plan(planned, as_json=as_json, verbose=verbose)
        unindexed = [each for planned in plans for each in planned.unindexed]
        _show(unindexed, as_json=as_json, verbose=verbose)
        apply_plans(options, paths, plans, as_json=as_json, master=master)
    return FOUND_PROBLEMS if any(not each.is_indexed for each in unindexed) else 0


class _How(NamedTuple):
    """The options that are the same for all directories."""

    rules: str
    index_interval_bytes: int
    up_to_damage: bool
    master: str | None


def _plan(
    path: Path, topics: tuple[str, ...], partitions: tuple[int, ...], how: _How
) -> ReindexPlan:
    """Plan one directory, in threads or on the executors of Spark."""
    chosen = select([path], topics, partitions)
    if how.master is not None:
        from kafkastore.jobs import planning

        with executor(how.master, f"reading {path.name}") as run:
            return planning.plan_reindex(
                run,
                path,
                how.rules,
                how.index_interval_bytes,
                up_to_damage=how.up_to_damage,
                partitions=frozenset(chosen.topic_partitions),
            )
    segments = sum(len(log.segments) for log in chosen.store.logs_of(chosen.topic_partitions))
    with progress(f"reading {path.name}", segments) as advance:
        return plan_reindex(
            path,
            how.rules,
            how.index_interval_bytes,
            up_to_damage=how.up_to_damage,
            partitions=frozenset(chosen.topic_partitions),
            progress=counting(advance),
        )


def _show(unindexed: Sequence[UnindexedBytes], *, as_json: bool, verbose: bool) -> None:
    """Print the ends of logs that no index covers."""
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
