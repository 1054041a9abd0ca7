"""``kafkastore reindex``: rebuild indexes from their logs."""
from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import click

from kafkastore.checks.reindex import UnindexedBytes, plan_reindex
from kafkastore.cli.apply_plans import apply_plans, plan_directories
from kafkastore.cli.options.change_options import (
    ChangeOptions,
    change_options,
    index_interval_option,
)
from kafkastore.cli.options.kafka_version import kafka_version_option
from kafkastore.cli.output.control_characters import print_text
from kafkastore.cli.output.failures import FOUND_PROBLEMS
from kafkastore.cli.output.grouped_lines import group_lines
from kafkastore.cli.output.json_lines import write_json
from kafkastore.cli.output.partition_errors import Problems
from kafkastore.cli.output.plans import print_plans
from kafkastore.cli.output.tables import format_count
from kafkastore.cli.store_command import StoreCall, store_command


@store_command("threads", "spark", "verbose")
@kafka_version_option("The Kafka version whose recovery is followed.")
@index_interval_option("The topics' index.interval.bytes.")
@click.option("--up-to-damage", is_flag=True,
              help="Index a corrupt log up to its first corrupt byte; by default it is skipped.")
@change_options("reindex", copies_to_urls=True)
def command(
    call: StoreCall,
    version: str,
    index_interval_bytes: int,
    up_to_damage: bool,
    options: ChangeOptions,
) -> int:
    """Rebuild indexes that do not match their logs.

    Writes .index, .timeindex and .txnindex as a recovering broker would. Logs and correct indexes
    are not changed; bytes that a broker would truncate are reported. Replaced files are kept, and
    kafkastore changes undo restores them.
    """
    options.check(call.paths)
    make = partial(
        plan_reindex,
        version=version,
        index_interval_bytes=index_interval_bytes,
        up_to_damage=up_to_damage,
    )
    problems = Problems()
    with call.session():
        plans = [*plan_directories(call, options, make, problems)]
        print_plans(plans, as_json=call.as_json, verbose=call.verbose)
        for planned in plans:
            problems.add_unread(planned.unread)
        unindexed = [each for planned in plans for each in planned.unindexed]
        _show(unindexed, as_json=call.as_json, verbose=call.verbose)
        apply_plans(call, options, plans, problems)
    is_left = any(not each.is_indexed for each in unindexed)
    return problems.exit_code or (FOUND_PROBLEMS if is_left else 0)


def _show(unindexed: Sequence[UnindexedBytes], *, as_json: bool, verbose: bool) -> None:
    """Print the ends of logs that no index covers."""
    if as_json:
        for each in unindexed:
            write_json({"kind": "unindexed", **each._asdict()})
        return
    lines = ((each.is_indexed, _line(each)) for each in unindexed)
    for line in group_lines(lines, verbose=verbose):
        print_text(line)


def _line(unindexed: UnindexedBytes) -> str:
    left = unindexed.size - unindexed.valid_bytes
    if not unindexed.is_indexed and not unindexed.valid_bytes:
        return f"{unindexed.path}: {unindexed.reason}; not indexed"
    outcome = "indexed up to there" if unindexed.is_indexed else "not indexed"
    return (
        f"{unindexed.path}: {format_count(left, 'byte')} from byte {unindexed.valid_bytes:,} on "
        f"{'is' if left == 1 else 'are'} not complete batches: {unindexed.reason}; {outcome}"
    )
