"""``kafkastore restore``: put partitions into the empty logs of new topics."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import click

from kafkastore.arguments import INT32_MAX
from kafkastore.cli.apply_plans import apply_plans
from kafkastore.cli.options.change_options import ChangeOptions, index_interval_option
from kafkastore.cli.options.selection import ANY_PATH, STORE_PATH
from kafkastore.cli.options.whole_numbers import WholeNumber
from kafkastore.cli.output.control_characters import print_text
from kafkastore.cli.output.grouped_lines import group_lines
from kafkastore.cli.output.json_lines import write_json
from kafkastore.cli.output.partition_errors import Problems
from kafkastore.cli.output.plans import print_plans
from kafkastore.cli.output.progress import progress, to_progress_callback
from kafkastore.cli.store_command import StoreCall, store_command
from kafkastore.formats.state.file_names import TopicPartition
from kafkastore.migration import UNTIMED, Untimed, plan_restore
from kafkastore.store.unread_partition import count_segments


@store_command("threads", "verbose")
@click.argument("log_dir", metavar="NEW_LOG_DIR", type=ANY_PATH)
@click.option(
    "--leader-epoch", type=WholeNumber(min=0, max=INT32_MAX), metavar="N", default=0,
    show_default=True, help="The leader epoch of every batch; 0 for a new topic.",
)
@click.option(
    "--untimed", type=click.Choice(UNTIMED), default="none", show_default=True,
    help="The timestamp of messages of format 0: none, or their log file's modification time.",
)
@index_interval_option("The topics' index.interval.bytes.")
@click.option(
    "--metadata", type=STORE_PATH, metavar="PATH",
    help="Where the new cluster's metadata is, which has the topic ids and the replicas of "
    "partitions: a log directory with __cluster_metadata-0, that directory, or a snapshot. "
    "Default: NEW_LOG_DIR, if it has it.",
)
@click.option(
    "--without-topic-ids", is_flag=True,
    help="NEW_LOG_DIR is empty, and its broker uses ZooKeeper: topic ids are not needed.",
)
@click.option("--dry-run", is_flag=True, help="Only print the plan.")
@click.option("--yes", is_flag=True, help="Do not ask before changing anything.")
@click.option("--undo-dir", type=ANY_PATH, metavar="DIR",
              help="Where to keep replaced files. Default: next to NEW_LOG_DIR.")
def command(
    call: StoreCall,
    log_dir: Path,
    leader_epoch: int,
    untimed: Untimed,
    index_interval_bytes: int,
    metadata: Path | None,
    without_topic_ids: bool,
    dry_run: bool,
    yes: bool,
    undo_dir: Path | None,
) -> int:
    """Put partitions of PATH... into the empty logs of new topics.

    NEW_LOG_DIR is the log directory of a broker (of 0.11 or later) that was stopped after the
    topics had been created; it may be empty or only formatted. Missing partition directories are
    created. PATH... is not changed. Topic ids stay those of the new topics; replaced files are
    kept, and kafkastore changes undo restores them. Without --topic, internal topics are left out.
    """
    options = ChangeOptions(
        "restore", dry_run, None, not dry_run, yes and not dry_run, undo_dir, "kafkastore restore"
    )
    options.check((log_dir,))
    store, partitions = call.selection
    if not call.is_narrowed:
        partitions = tuple(each for each in partitions if not each.topic.startswith("__"))
    make = partial(
        plan_restore, store, log_dir, leader_epoch=leader_epoch, untimed=untimed,
        index_interval_bytes=index_interval_bytes, partitions=partitions, threads=call.threads,
        metadata=metadata, without_topic_ids=without_topic_ids,
    )
    with progress("reading", count_segments(store.logs_of(partitions))) as advance:
        planned = make(progress=to_progress_callback(advance))
    print_plans([planned], as_json=call.as_json, verbose=call.verbose)
    _show(planned.elsewhere, as_json=call.as_json, verbose=call.verbose)
    apply_plans(replace(call, paths=(log_dir,)), options, [planned], Problems())
    return 0


def _show(partitions: Sequence[TopicPartition], *, as_json: bool, verbose: bool) -> None:
    """Name the partitions that are not restored here."""
    if as_json:
        for each in partitions:
            write_json({"kind": "elsewhere", **each._asdict()})
        return
    why = "is not restored here: other brokers have it"
    print_text(*group_lines(((None, f"{each} {why}") for each in partitions), verbose=verbose))
