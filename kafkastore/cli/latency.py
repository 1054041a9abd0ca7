"""``kafkastore latency``: the time from a record's creation to its append."""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path

import click

from kafkastore.changes.runner import Runner
from kafkastore.cli.durations import show_duration
from kafkastore.cli.failures import note
from kafkastore.cli.json_lines import json_option, write_json
from kafkastore.cli.on_spark import executor, spark_option
from kafkastore.cli.problems import Problems, on_corrupt_option
from kafkastore.cli.selection import ANY_PATH, Selection, select, selection_options
from kafkastore.cli.tables import print_table
from kafkastore.errors import DuplicatePartitionError
from kafkastore.formats.file_names import TopicPartition
from kafkastore.jobs.latency import LatencyJob, MeasuredPartition, latency_row
from kafkastore.jobs.runner import Failed
from kafkastore.kip_33.latency import Latency, combined
from kafkastore.log.damage import OnCorrupt
from kafkastore.store.log_store import LogStore, open_store

_PERCENTILES = {"p50": 50.0, "p90": 90.0, "p99": 99.0, "p99.9": 99.9}


@click.command()
@selection_options
@click.option(
    "--create-time-header", metavar="NAME",
    help="A record header with the producer's time in ms (digits, or 8 bytes), instead of the "
    "create times that batches with LogAppendTime have kept.",
)
@click.option(
    "--created-in", type=ANY_PATH, metavar="PATH",
    help="Log directory of another cluster that has the same records with create times: those.",
)
@spark_option
@on_corrupt_option
@json_option
def command(
    paths: tuple[Path, ...],
    topics: tuple[str, ...],
    partitions: tuple[int, ...],
    create_time_header: str | None,
    created_in: Path | None,
    master: str | None,
    as_json: bool,
    on_corrupt: OnCorrupt,
) -> int:
    """Measure LogAppendTime minus CreateTime of records, by topic, where both are known.

    Both are known of topics with LogAppendTime: their batches keep what producers wrote, in message
    format v2 always, in v1 where they are compressed. The largest is what failover goes back by.
    """
    if create_time_header is not None and created_in is not None:
        raise click.UsageError("--create-time-header and --created-in contradict each other")
    selection = select(paths, topics, partitions)
    other = None if created_in is None else open_store(created_in)
    problems = Problems(len(selection.topic_partitions), on_corrupt)
    shown: list[Latency] = []
    job = LatencyJob(create_time_header, other is not None, on_corrupt)
    items = job.items(
        selection.store,
        _only_once(selection, problems),
        other,
        is_weighed=master is not None,
    )
    with executor(master, "reading", while_printing=as_json) as runner:
        for each in _by_topic(job, items, runner, problems):
            if as_json:
                write_json(
                    {"topic": each.topic, "partitions": each.partitions, **latency_row(each)}
                )
            else:
                shown.append(each)
    if not as_json:
        _print(shown, create_time_header, other)
    return problems.exit_code


def _only_once(selection: Selection, problems: Problems) -> Iterator[TopicPartition]:
    """Yield the selected partitions; report duplicate ones."""
    duplicates = selection.store.partitions.duplicates
    for each in selection.topic_partitions:
        if each in duplicates:
            problems.add(each, DuplicatePartitionError({each: duplicates[each]}))
        else:
            yield each


def _by_topic(
    job: LatencyJob, items: Sequence[MeasuredPartition], runner: Runner, problems: Problems
) -> Iterator[Latency]:
    """Measure each partition and aggregate by topic; report what cannot be read."""
    for topic, group in groupby(job.outcomes(items, runner), key=lambda pair: pair[0].topic):
        measured: list[Latency] = []
        for item, each in group:
            partition = TopicPartition(topic, item.copies[0].partition)
            if isinstance(each, Failed):
                problems.add(partition, each.error)
            else:
                problems.add_skipped(partition, each.skipped)
                measured.append(each)
        if measured:
            yield combined(topic, measured)


def _print(
    found: Sequence[Latency], create_time_header: str | None, created_in: LogStore | None
) -> None:
    measured = [each for each in found if each.records]
    if not measured:
        _tell_why_nothing(found, create_time_header, created_in)
        return
    print_table(
        ["topic", "records", *_PERCENTILES, "max", "unknown", "negative"],
        (
            [
                each.topic,
                f"{each.records:,}",
                *(show_duration(each.percentile(percent)) for percent in _PERCENTILES.values()),
                show_duration(each.largest),
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
        note(f"of {shown} no latency is known")


def _tell_why_nothing(
    found: Sequence[Latency], create_time_header: str | None, created_in: LogStore | None
) -> None:
    """Explain why no latency is known."""
    if any(each.unknown_records for each in found):
        source = "kept no create times"
        if create_time_header is not None:
            source = f"have no header {create_time_header} with a time"
        elif created_in is not None:
            source = "are not in the other cluster with create times"
        note(f"no latency is known: the records with LogAppendTime {source}")
    else:
        note("no latency is known: no record has LogAppendTime, so that its append is not dated")
