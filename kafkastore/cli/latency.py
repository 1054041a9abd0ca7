"""``kafkastore latency``: how long records took from their creation to the broker's log."""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

import click

from kafkastore.cli.durations import show_duration
from kafkastore.cli.failures import note
from kafkastore.cli.json_lines import json_option, write_json
from kafkastore.cli.on_spark import executor, spark_option
from kafkastore.cli.problems import Problems, on_corrupt_option
from kafkastore.cli.selection import ANY_PATH, Selection, select, selection_options
from kafkastore.cli.tables import print_table
from kafkastore.errors import DuplicatePartitionError
from kafkastore.formats.file_names import TopicPartition
from kafkastore.kip_33.latency import Latency
from kafkastore.log.damage import OnCorrupt
from kafkastore.spark.jobs.times import combined, measure_latency, to_measure, weigh_both
from kafkastore.spark.spread import Failed, Run, attempt
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
    with executor(master, "reading", while_printing=as_json) as run:
        found = _measured(
            run, selection, create_time_header, other, problems, is_weighed=master is not None
        )
        for each in found:
            if as_json:
                write_json(_as_json(each))
            else:
                shown.append(each)
    if not as_json:
        _print(shown, create_time_header, other)
    return problems.exit_code


def _measured(
    run: Run,
    selection: Selection,
    create_time_header: str | None,
    created_in: LogStore | None,
    problems: Problems,
    *,
    is_weighed: bool,
) -> Iterator[Latency]:
    """Measure partition by partition, and sum up by topic; what can't be read is told."""
    items = []
    duplicates = selection.store.partitions.duplicates
    for topic_partition in selection.topic_partitions:
        if topic_partition in duplicates:
            error = DuplicatePartitionError({topic_partition: duplicates[topic_partition]})
            problems.add(topic_partition, error)
            continue
        items.append(
            to_measure(selection.store, topic_partition, created_in, is_weighed=is_weighed)
        )
    job = partial(
        measure_latency,
        create_time_header=create_time_header,
        is_elsewhere=created_in is not None,
        on_corrupt=problems.on_corrupt,
    )
    found = run(partial(attempt, job), items, weigh=weigh_both)
    places = (item.copies[0] for item in items)
    of_topic = zip(places, found, strict=True)
    for topic, group in groupby(of_topic, key=lambda pair: pair[0].topic):
        measured: list[Latency] = []
        for place, each in group:
            partition = TopicPartition(topic, place.partition)
            if isinstance(each, Failed):
                problems.add(partition, each.error)
            else:
                problems.add_skipped(partition, each.skipped)
                measured.append(each)
        if measured:
            yield combined(topic, measured)


def _as_json(found: Latency) -> dict[str, Any]:
    return {
        "topic": found.topic,
        "partitions": found.partitions,
        "records": found.records,
        "unknown_records": found.unknown_records,
        "create_time_batches": found.create_time_batches,
        "negative_records": found.negative_records,
        **{
            f"{name.replace('.', '_')}_ms": found.percentile(percent)
            for name, percent in _PERCENTILES.items()
        },
        "max_ms": found.largest,
    }


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
    """Say why no latency is known."""
    if any(each.unknown_records for each in found):
        source = "kept no create times"
        if create_time_header is not None:
            source = f"have no header {create_time_header} with a time"
        elif created_in is not None:
            source = "are not in the other cluster with create times"
        note(f"no latency is known: the records with LogAppendTime {source}")
    else:
        note("no latency is known: no record has LogAppendTime, so that its append is not dated")
