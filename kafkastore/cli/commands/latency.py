"""``kafkastore latency``: the time from a record's creation to its append."""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from kafkastore.arguments import thread_count
from kafkastore.cli.options.durations import format_duration
from kafkastore.cli.options.selection import ANY_PATH
from kafkastore.cli.output.failures import print_note
from kafkastore.cli.output.json_lines import write_json
from kafkastore.cli.output.tables import print_table
from kafkastore.cli.store_command import StoreCall, store_command
from kafkastore.errors import DuplicatePartitionError
from kafkastore.formats.state.file_names import TopicPartition
from kafkastore.jobs.latency import PERCENTILES, LatencyJob, by_topic, latency_row
from kafkastore.runner import threads_within
from kafkastore.store.log_store import LogStore, open_store
from kafkastore.use_cases.latency import Latency

_PERCENTILES = {f"p{percent:g}": percent for percent in PERCENTILES.values()}


@store_command("on-corrupt", "threads", "spark")
@click.option(
    "--create-time-header", metavar="NAME",
    help="Take create times from this record header, in ms (digits, or 8 bytes), not from batches "
    "with LogAppendTime.",
)
@click.option(
    "--created-in", type=ANY_PATH, metavar="PATH",
    help="Take create times from the same records in this log directory of another cluster.",
)
def command(call: StoreCall, create_time_header: str | None, created_in: Path | None) -> int:
    """Show append latency (LogAppendTime minus CreateTime) by topic.

    Both times are known in topics with LogAppendTime: their batches keep the producers'
    timestamps, in message format v2 always, in v1 if they are compressed. failover uses the largest
    latency.
    """
    if create_time_header is not None and created_in is not None:
        raise click.UsageError("--create-time-header and --created-in cannot be combined")
    selection = call.selection
    other = None if created_in is None else open_store(created_in)
    shown: list[Latency] = []
    items = LatencyJob.items(selection.store, _only_once(call), other, is_weighed=call.is_weighed)
    threads = 1 if call.master else threads_within(thread_count(call.threads), len(items))
    job = LatencyJob(create_time_header, other is not None, call.problems.on_corrupt, threads)
    with call.executor("reading", here=call.here) as runner:
        for each in by_topic(call.readable(job, items, runner)):
            if call.as_json:
                write_json(
                    {"topic": each.topic, "partitions": each.partitions, **latency_row(each)}
                )
            else:
                shown.append(each)
    if not call.as_json:
        _print(shown, create_time_header, other)
    return call.problems.exit_code


def _only_once(call: StoreCall) -> Iterator[TopicPartition]:
    """Yield the selected partitions; report duplicate ones."""
    duplicates = call.selection.store.partitions.duplicates
    for each in call.selection.topic_partitions:
        if each in duplicates:
            call.problems.add(each, DuplicatePartitionError({each: duplicates[each]}))
        else:
            yield each


def _print(
    found: Sequence[Latency], create_time_header: str | None, created_in: LogStore | None
) -> None:
    measured = [each for each in found if each.records]
    if not measured:
        _explain_missing_latency(found, create_time_header, created_in)
        return
    print_table(
        ["topic", "records", *_PERCENTILES, "max", "unknown", "negative"],
        (
            [
                each.topic,
                f"{each.records:,}",
                *(format_duration(each.percentile(percent)) for percent in _PERCENTILES.values()),
                format_duration(each.largest),
                f"{each.unknown_records:,}",
                f"{each.negative_records:,}",
            ]
            for each in measured
        ),
        right=",".join(["records", *_PERCENTILES, "max", "unknown", "negative"]),
    )
    others = [each.topic for each in found if not each.records]
    if others:
        shown = ", ".join(others[:5]) + (", ..." if len(others) > 5 else "")
        print_note(f"no latency is known of {shown}")


def _explain_missing_latency(
    found: Sequence[Latency], create_time_header: str | None, created_in: LogStore | None
) -> None:
    """Explain why no latency is known."""
    if any(each.unknown_records for each in found):
        source = "kept no create times"
        if create_time_header is not None:
            source = f"have no header {create_time_header} with a time"
        elif created_in is not None:
            source = "are not in the other cluster with create times"
        print_note(f"no latency is known: the records with LogAppendTime {source}")
    else:
        print_note("no latency is known: no record has LogAppendTime")
