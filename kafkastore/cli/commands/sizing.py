"""``kafkastore sizing``: show index sizes by index interval and by time bucket."""
from __future__ import annotations

import click

from kafkastore.arguments import INT32_MAX
from kafkastore.cli.options.whole_numbers import WholeNumber
from kafkastore.cli.output.json_lines import write_json
from kafkastore.cli.output.tables import format_count, print_table
from kafkastore.cli.store_command import StoreCall, store_command
from kafkastore.jobs.sizing import SizingJob, densities, sizing, sizing_rows
from kafkastore.shown_text import format_size
from kafkastore.use_cases.sizing import (
    INTERVALS,
    MINUTE_MS,
    PARTITIONS,
    SECOND_MS,
    Sizing,
    total,
)

_NAMES = {SECOND_MS: "second", MINUTE_MS: "minute"}


@store_command("spark", paths_required=False)
@click.option(
    "--interval", "intervals", multiple=True, type=WholeNumber(1, INT32_MAX), metavar="BYTES",
    help="A value of index.interval.bytes; may be repeated. Default: 1, 4, 16 and 64 KiB.",
)
@click.option(
    "--broker-partitions", "broker_partitions", type=WholeNumber(1, INT32_MAX),
    default=PARTITIONS, show_default=True, metavar="N",
    help="Without PATH: the number of partitions. KIP-33 uses 3500.",
)
def command(call: StoreCall, intervals: tuple[int, ...], broker_partitions: int) -> int:
    """Compute index sizes by interval, and by time bucket.

    Intervals are values of index.interval.bytes, time buckets those of KIP-33's drafts (never
    released). With PATH all batch headers are read. Without PATH sizes are computed for a broker
    whose partitions have 1 GiB of log each, with records in every second of one day.
    """
    intervals = intervals or INTERVALS
    if call.paths:
        job = SizingJob(intervals)
        items = call.items(job)
        with call.executor("measuring", is_streamed=False) as runner:
            found = total((each for _, each in call.readable(job, items, runner)), intervals)
    elif call.master is not None:
        raise click.UsageError("--spark needs a PATH")
    elif call.is_narrowed:
        raise click.UsageError("--topic and --partition need a PATH")
    else:
        found = sizing(intervals=intervals, broker_partitions=broker_partitions)
    if call.as_json:
        _write_json(found)
    else:
        _print(found)
    return call.problems.exit_code if call.paths else 0


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
    """Print two tables: the released design, and the KIP-33 draft."""
    print(
        f"{format_count(found.partitions, 'partition')}, "
        f"{format_count(found.segments, 'segment')}, "
        f"{format_size(found.log_bytes)} of log"
    )
    print_table(
        ["interval", "offset entries", ".index", "time entries", ".timeindex", "mapped", "scan",
         "at most"],
        (
            [
                "as it is" if size.index_interval_bytes is None
                else format_size(size.index_interval_bytes),
                f"{size.offset_entries:,}",
                format_size(size.offset_index_bytes),
                f"{size.time_entries:,}",
                format_size(size.time_index_bytes),
                format_size(found.mapped_bytes(size)),
                format_size(round(found.mean_scan_bytes(size))),
                format_size(size.largest_scan_bytes),
            ]
            for size in densities(found)
        ),
        right="interval,offset entries,.index,time entries,.timeindex,mapped,scan,at most",
    )
    print()
    print_table(
        ["KIP-33 draft, never released", "entries", ".timeindex"],
        (
            [
                _NAMES.get(bucket.bucket_ms, f"{bucket.bucket_ms} ms"),
                f"{bucket.entries:,}",
                format_size(bucket.bytes),
            ]
            for bucket in found.by_bucket
        ),
        right="entries,.timeindex",
    )
