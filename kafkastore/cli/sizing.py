"""``kafkastore sizing``: show index sizes by index interval and by time bucket."""
from __future__ import annotations

from pathlib import Path

import click

from kafkastore.cli.json_lines import json_option, write_json
from kafkastore.cli.on_spark import executor, spark_option
from kafkastore.cli.problems import Problems
from kafkastore.cli.selection import paths_argument, select, topic_options
from kafkastore.cli.tables import counted, print_table, show_size
from kafkastore.jobs.sizing import SizingJob, densities, sizing, sizing_rows
from kafkastore.kip_33.sizing import (
    INTERVALS,
    MINUTE_MS,
    PARTITIONS,
    SECOND_MS,
    Sizing,
    total,
)

_NAMES = {SECOND_MS: "second", MINUTE_MS: "minute"}


@click.command()
@paths_argument(required=False)
@topic_options
@click.option(
    "--interval", "intervals", multiple=True, type=click.IntRange(min=1), metavar="BYTES",
    help="A value of index.interval.bytes; may be repeated. Default: 1, 4, 16 and 64 KiB.",
)
@click.option(
    "--broker-partitions", "broker_partitions", type=click.IntRange(min=1), default=PARTITIONS,
    show_default=True, metavar="N",
    help="Without PATH: how many partitions. KIP-33 counts with 3500.",
)
@spark_option
@json_option
def command(
    paths: tuple[Path, ...],
    topics: tuple[str, ...],
    partitions: tuple[int, ...],
    intervals: tuple[int, ...],
    broker_partitions: int,
    master: str | None,
    as_json: bool,
) -> int:
    """Size indexes by index.interval.bytes, and by the time buckets that KIP-33 dropped.

    Of directories, all batch headers are read. Without PATH: by formula, of a broker whose
    partitions have 1 GiB of log each, and records in every second of one day.
    """
    intervals = intervals or INTERVALS
    exit_code = 0
    if paths:
        selection = select(paths, topics, partitions)
        problems = Problems(len(selection.topic_partitions))
        job = SizingJob(intervals)
        items = job.items(
            selection.store, selection.topic_partitions, is_weighed=master is not None
        )
        with executor(master, "measuring") as runner:
            found = total(problems.known(job.outcomes(items, runner)), intervals)
        exit_code = problems.exit_code
    elif master is not None:
        raise click.UsageError("--spark reads a PATH, and there is none")
    elif topics or partitions:
        raise click.UsageError("--topic and --partition choose from a PATH, and there is none")
    else:
        found = sizing(intervals=intervals, partitions=broker_partitions)
    if as_json:
        _write_json(found)
    else:
        _print(found)
    return exit_code


def _write_json(found: Sizing) -> None:
    write_json(
        {
            "kind": "log",
            "partitions": found.partitions,
            "segments": found.segments,
            "log_bytes": found.log_bytes,
        }
    )
    for row in sizing_rows(found):
        write_json(row)


def _print(found: Sizing) -> None:
    """Print two tables: the released design, and the KIP-33 draft that was never released."""
    print(
        f"{counted(found.partitions, 'partition')}, {counted(found.segments, 'segment')}, "
        f"{show_size(found.log_bytes)} of log"
    )
    print_table(
        ["interval", "offset entries", ".index", "time entries", ".timeindex", "mapped", "scan",
         "at most"],
        (
            [
                "as it is" if size.index_interval_bytes is None
                else show_size(size.index_interval_bytes),
                f"{size.offset_entries:,}",
                show_size(size.offset_index_bytes),
                f"{size.time_entries:,}",
                show_size(size.time_index_bytes),
                show_size(found.mapped_bytes(size)),
                show_size(round(found.mean_scan_bytes(size))),
                show_size(size.largest_scan_bytes),
            ]
            for size in densities(found)
        ),
        right="interval,offset entries,.index,time entries,.timeindex,mapped,scan,at most",
    )
    print()
    print_table(
        ["time bucket (dropped)", "entries", ".timeindex"],
        (
            [
                _NAMES.get(bucket.bucket_ms, f"{bucket.bucket_ms} ms"),
                f"{bucket.entries:,}",
                show_size(bucket.bytes),
            ]
            for bucket in found.by_bucket
        ),
        right="entries,.timeindex",
    )
