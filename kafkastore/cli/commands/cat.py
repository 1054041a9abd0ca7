"""``kafkastore cat``: print the records of partitions, between offsets or times."""
from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import tzinfo
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import click

from kafkastore.arguments import INT64_MAX
from kafkastore.cli.cat.bounds import Bounds
from kafkastore.cli.cat.column_writer import COLUMN_FORMS, ColumnWriter
from kafkastore.cli.cat.line_formats import LineWriter, json_format, text_format
from kafkastore.cli.cat.record_writer import RecordWriter
from kafkastore.cli.options.selection import ANY_PATH, Selection
from kafkastore.cli.options.times import Moment, indexes_option
from kafkastore.cli.output.failures import print_note
from kafkastore.cli.output.output_file import check_output, is_stdout, open_output
from kafkastore.cli.output.partition_errors import Problems
from kafkastore.cli.output.progress import progress
from kafkastore.cli.output.tables import format_count
from kafkastore.cli.store_command import StoreCall, store_command
from kafkastore.log.damage import OnCorrupt, SkippedBytes
from kafkastore.log.isolation import Isolation
from kafkastore.segment.index_trust import Indexes
from kafkastore.store.partition_log import PartitionLog

if TYPE_CHECKING:
    from pyarrow import RecordBatch

#: Memory of larger batches is returned to the system before the next one.
_LARGE_BATCH_BYTES = 32 * 1024 * 1024
_FORM_BY_SUFFIX = {
    ".parquet": "parquet", ".arrow": "arrow", ".arrows": "arrows", ".json": "json",
    ".jsonl": "json", ".ndjson": "json", ".txt": "text",
}  # fmt: skip


@store_command("relative-to", "tz", "on-corrupt")
@click.option("--from-offset", type=click.IntRange(min=0), metavar="N",
              help="First offset, inclusive.")
@click.option("--until-offset", type=click.IntRange(min=0), metavar="N",
              help="End offset, exclusive.")
@click.option("--from", "from_time", metavar="TIME", help="Start time, inclusive.")
@click.option("--until", "until_time", metavar="TIME", help="End time, exclusive.")
@click.option("--limit", type=click.IntRange(min=0), metavar="N", help="Maximum number of records.")
@click.option(
    "--isolation",
    type=click.Choice(["read_uncommitted", "read_committed"]),
    default="read_uncommitted",
    show_default=True,
    help="read_committed leaves out aborted transactions, and all records from the last stable "
    "offset on.",
)
@indexes_option
@click.option("--headers", is_flag=True, help="Print record headers too.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json", "arrow", "parquet"]),
    help="Default: by the name of FILE (.parquet, .arrow, .json, .jsonl), else text. arrow (IPC "
    "file) and parquet have the columns of Spark's Kafka source.",
)
@click.option(
    "-o",
    "--output",
    type=ANY_PATH,
    metavar="FILE",
    help="Write to this file, which appears when it is complete; - is standard output.",
)
def command(
    call: StoreCall,
    from_offset: int | None,
    until_offset: int | None,
    from_time: str | None,
    until_time: str | None,
    limit: int | None,
    isolation: Isolation,
    indexes: Indexes,
    headers: bool,
    form: str | None,
    output: Path | None,
) -> int:
    """Print records by partition and offset, without transaction markers.

    Times select records one by one, because timestamps need not rise with offsets. With --indexes
    trust, segments without such records are not read. TIME is ms since 1970, ISO 8601
    (2024-03-01T14:05:00Z) or -2h.
    """
    form = _form(form, call.as_json, output)
    times = (from_time, until_time)
    moments = [None if text is None else call.parse_moment(text) for text in times]
    selection = call.selection
    start, end = _timestamps(call, moments, indexes)
    bounds = Bounds(
        _as_int64(from_offset),
        _as_int64(until_offset),
        start,
        end,
        _as_int64(limit),
        isolation,
        indexes,
    )
    problems = call.problems
    if output is None or is_stdout(output):
        _write(sys.stdout.buffer, form, selection, bounds, headers, call.zone, problems)
        return problems.exit_code
    check_output(output, selection.store)
    with open_output(output) as file:
        _write(file, form, selection, bounds, headers, call.zone, problems)
    return problems.exit_code


def _form(form: str | None, as_json: bool, output: Path | None) -> str:
    """Return the output format that the options request."""
    if as_json and form not in (None, "json"):
        raise click.UsageError(f"--json and --format {form} cannot be combined")
    suffix = "" if output is None else output.suffix.lower()
    chosen = "json" if as_json else form or _FORM_BY_SUFFIX.get(suffix, "text")
    is_shown = output is None or (is_stdout(output) and sys.stdout.isatty())
    if chosen in ("arrow", "parquet") and is_shown:
        raise click.UsageError(f"--format {chosen} needs a file: -o FILE")
    return chosen


def _as_int64(number: int | None) -> int | None:
    """Clamp a number to 64 bits; no offset is larger, and no log has more records."""
    return None if number is None else min(number, INT64_MAX)


def _timestamps(
    call: StoreCall, moments: list[Moment | None], indexes: Indexes
) -> tuple[int | None, int | None]:
    """Return the time bounds as timestamps."""
    given = [moment for moment in moments if moment is not None]
    resolved = iter(call.resolve_times(given, indexes))
    start, end = (None if moment is None else next(resolved) for moment in moments)
    return start, end


@contextmanager
def _open_writer(
    file: BinaryIO, form: str, headers: bool, zone: tzinfo | None
) -> Iterator[RecordWriter]:
    """Open a writer of the requested format."""
    if form in COLUMN_FORMS:
        with closing(ColumnWriter(file, form, headers=headers)) as writer:
            yield writer
    elif form == "json":
        yield LineWriter(file.write, json_format(headers=headers))
    else:
        yield LineWriter(file.write, text_format(headers=headers, zone=zone))


def _write(
    file: BinaryIO,
    form: str,
    selection: Selection,
    bounds: Bounds,
    headers: bool,
    zone: tzinfo | None,
    problems: Problems,
) -> None:
    """Write the selected records, up to the limit, batch by batch."""
    from pyarrow import default_memory_pool

    count = 0
    to_stdout = file is sys.stdout.buffer
    with (
        _open_writer(file, form, headers, zone) as writer,
        progress("records", bounds.limit, while_printing=to_stdout) as advance,
    ):
        for log in problems.logs(selection):
            skipped: list[SkippedBytes] = []
            left = None if bounds.limit is None else bounds.limit - count
            batches = _batches(log, writer, bounds, left, problems.on_corrupt, skipped)
            for batch in problems.until_error(log.topic_partition, batches):
                writer.write_batch(log, batch)
                count += batch.num_rows
                advance(batch.num_rows)
                if count == bounds.limit:
                    return
                is_large = batch.nbytes > _LARGE_BATCH_BYTES
                del batch  # may be large; free it before the next batch is decompressed
                if is_large:  # also free the memory that Arrow wrote it from
                    default_memory_pool().release_unused()
            problems.add_skipped(log.topic_partition, skipped)
    if not problems.count:
        _note_if_none(count, selection, bounds)


def _batches(
    log: PartitionLog,
    writer: RecordWriter,
    bounds: Bounds,
    limit: int | None,
    on_corrupt: OnCorrupt,
    skipped: list[SkippedBytes],
) -> Iterator[RecordBatch]:
    """Yield a partition's records within the bounds, in non-empty batches."""
    if limit == 0:
        return
    from kafkastore.log.records_as_arrow import ArrowOptions, read

    options = ArrowOptions(
        start_offset=bounds.start_offset,
        end_offset=bounds.end_offset,
        start_timestamp=bounds.start_timestamp,
        end_timestamp=bounds.end_timestamp,
        limit=limit,
        isolation=bounds.isolation,
        indexes=bounds.indexes,
        on_corrupt=on_corrupt,
        skipped=skipped,
        **writer.reading,
    )
    yield from read(log, options)


def _note_if_none(count: int, selection: Selection, bounds: Bounds) -> None:
    """Explain why nothing was printed, if that may be unexpected."""
    if count or bounds.limit == 0:
        return
    if len(selection.topic_partitions) == 1:
        log = next(selection.logs())
        start, end = log.log_start_offset, log.log_end_offset
        there = f"has offsets {start} to {end - 1}" if start < end else "has no records"
        print_note(f"no record is within these bounds; {log.topic_partition} {there}")
    else:
        partitions = format_count(len(selection.topic_partitions), "partition")
        print_note(f"no record of {partitions} is within these bounds")
