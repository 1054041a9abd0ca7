"""``kafkastore cluster best-replicas``: the disk to restore each partition from."""
from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import click

from kafkastore.cli.options.selection import ANY_PATH
from kafkastore.cli.output.control_characters import print_text
from kafkastore.cli.output.failures import print_note
from kafkastore.cli.output.grouped_lines import group_lines
from kafkastore.cli.output.tables import format_count, format_value, print_table
from kafkastore.cli.store_command import StoreCall, store_command
from kafkastore.formats.state.file_names import TopicPartition
from kafkastore.jobs.best_replicas import BestReplicasJob, check_one_cluster
from kafkastore.use_cases.replica_snapshot import check_snapshot_place, write_snapshot
from kafkastore.use_cases.replicas import BestReplica, LackingOffsets, LackReason

_REASONS = {
    LackReason.BEFORE_START: "before its log start",
    LackReason.UNREADABLE: "in corrupt bytes",
    LackReason.AFTER_END: "after its log end",
    LackReason.OTHER_LINEAGE: "where it has records of another leader",
}


@store_command("metadata", "spark", "verbose")
@click.option(
    "--snapshot", type=ANY_PATH, metavar="DIR",
    help="Write a snapshot of the metadata log into this directory, as a new __cluster_metadata-0 "
    "for all nodes: with the same topics, ids and configurations, led by the best replicas. It has "
    "secrets.",
)
def command(call: StoreCall, snapshot: Path | None) -> int:
    """Find, of several brokers' disks, the replica to restore each partition from.

    All batches are read, with their checksums. By the cluster's metadata, replicas that were in
    sync come first; the newest leader epoch and the largest log end decide which lineage counts;
    the best replica is the one with the most readable offsets of it.
    """
    check_one_cluster(call.selection.store)
    if snapshot is not None:
        if call.is_narrowed:
            raise click.UsageError(
                "--snapshot needs all partitions: leave out --topic, --partition"
            )
        check_snapshot_place(call.cluster, call.selection.store, snapshot)
    job = BestReplicasJob.of(call.cluster, call.selection.store)
    found = call.run(job, call.items(job), "reading replicas")
    for each in found:
        for other in each.others:
            if other.replica.error is not None:
                call.problems.add(str(each.topic_partition), other.replica.error)
    if not call.as_json:
        _print(found, verbose=call.verbose)
    if snapshot is not None:
        assert call.cluster is not None  # checked
        _note_empty(write_snapshot(call.cluster, found, snapshot).empty)
    return call.problems.exit_code


def _note_empty(partitions: Sequence[TopicPartition]) -> None:
    """Note which partitions of the cluster have no replica here."""
    if partitions:
        shown = ", ".join(map(str, partitions[:5])) + (", ..." if len(partitions) > 5 else "")
        count = format_count(len(partitions), "partition")
        print_note(f"{count} of the cluster will be empty, no replica is here: {shown}")


def _print(found: Iterable[BestReplica], *, verbose: bool) -> None:
    """Print a table of the best replicas, and what the others have that these lack."""
    rows = list(found)
    print_table(
        ["partition", "best replica", "broker", "role", "epoch", "start", "end", "unreadable",
         "replicas"],
        (
            [
                str(each.topic_partition), str(each.best.path.parent),
                format_value(each.best.broker_id), each.best.role.replace("-", " "),
                format_value(each.best.leader_epoch), str(each.best.log_start_offset),
                str(each.best.log_end_offset), str(each.best.unreadable_offsets),
                str(1 + len(each.others)),
            ]
            for each in rows
        ),
        right="broker,epoch,start,end,unreadable,replicas",
    )
    lines = ((reason, text) for each in rows for reason, text in _lacking(each))
    for line in group_lines(lines, verbose=verbose):
        print_text(line)
    lacking = sum(any(other.lacking for other in each.others) for each in rows)
    partitions = format_count(len(rows), "partition")
    print_text(f"{partitions}; of {lacking:,}, other replicas have records that the best one lacks")


def _lacking(found: BestReplica) -> Iterator[tuple[LackReason, str]]:
    """Yield a line for each range of offsets that the best replica lacks."""
    for other in found.others:
        for each in other.lacking:
            where = f"{other.replica.path.parent} has {_offsets(each)}"
            yield each.reason, (
                f"{found.topic_partition}: {where}, which {found.best.path.parent} lacks "
                f"{_REASONS[each.reason]}"
            )


def _offsets(lacking: LackingOffsets) -> str:
    if lacking.end_offset - lacking.start_offset == 1:
        return f"offset {lacking.start_offset}"
    return f"offsets {lacking.start_offset} to {lacking.end_offset - 1}"
