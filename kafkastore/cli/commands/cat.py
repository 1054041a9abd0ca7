"""``kafkastore cat``: print the records of partitions, between offsets or times."""
from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from datetime import tzinfo
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

import click

from kafkastore.arguments import INT64_MAX
from kafkastore.cli.dump.log import format_headers, json_record
from kafkastore.cli.options.selection import ANY_PATH, Selection
from kafkastore.cli.options.times import Moment, indexes_option
from kafkastore.cli.output.bytes_text import (
    PIECE_BYTES,
    format_bytes,
    format_bytes_in_pieces,
    json_bytes_in_pieces,
)
from kafkastore.cli.output.control_characters import escape_control_characters
from kafkastore.cli.output.failures import print_note
from kafkastore.cli.output.json_lines import json_line, json_line_in_pieces
from kafkastore.cli.output.output_file import (
    check_output,
    is_stdout,
    open_columns_writer,
    open_output,
)
from kafkastore.cli.output.partition_errors import Problems
from kafkastore.cli.output.progress import progress
from kafkastore.cli.output.tables import format_count
from kafkastore.cli.store_command import StoreCall, store_command
from kafkastore.formats.records.record_batch import Record
from kafkastore.formats.records.record_columns import BATCH_BYTES, BATCH_ROWS
from kafkastore.log.damage import OnCorrupt, SkippedBytes
from kafkastore.log.isolation import Isolation
from kafkastore.log.time_text import format_time
from kafkastore.segment.index_trust import Indexes
from kafkastore.store.partition_log import PartitionLog

if TYPE_CHECKING:
    from pyarrow import RecordBatch

#: Records between two updates of the progress bar.
_STRIDE = 10_000
#: Size of a Parquet row group; larger than an Arrow batch, because readers skip by row group.
_ROW_GROUP_ROWS = 100_000
_ROW_GROUP_BYTES = 32 * 1024 * 1024
_FORM_BY_SUFFIX = {
    ".parquet": "parquet", ".arrow": "arrow", ".json": "json", ".jsonl": "json", ".txt": "text",
}  # fmt: skip


class Bounds(NamedTuple):
    """The requested records; starts inclusive, ends exclusive, None means unbounded."""

    start_offset: int | None
    end_offset: int | None
    start_timestamp: int | None
    end_timestamp: int | None
    limit: int | None
    isolation: Isolation
    indexes: Indexes

    def hold(self, record: Record) -> bool:
        """Return whether a record's timestamp is within the time bounds."""
        return (self.start_timestamp is None or record.timestamp >= self.start_timestamp) and (
            self.end_timestamp is None or record.timestamp < self.end_timestamp
        )


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


def _write(
    file: BinaryIO,
    form: str,
    selection: Selection,
    bounds: Bounds,
    headers: bool,
    zone: tzinfo | None,
    problems: Problems,
) -> None:
    """Write the selected records in the requested format."""
    if form in ("arrow", "parquet"):
        _write_columns(file, form, selection, bounds, headers, problems)
    else:
        _Lines(file, form, headers, zone).write(selection, bounds, problems)


class _Lines:
    """Writes records as lines of text or JSON."""

    def __init__(self, stream: BinaryIO, form: str, headers: bool, zone: tzinfo | None) -> None:
        self._stream, self._form = stream, form
        self._headers, self._zone = headers, zone

    def write(self, selection: Selection, bounds: Bounds, problems: Problems) -> None:
        """Write the selected records, up to the limit."""
        count = 0
        to_stdout = self._stream is sys.stdout.buffer
        with progress("records", bounds.limit, while_printing=to_stdout) as advance:
            for log in problems.logs(selection):
                left = None if bounds.limit is None else bounds.limit - count
                if left == 0:
                    break
                for record in itertools.islice(_records(log, bounds, problems), left):
                    if record.value is None or len(record.value) <= PIECE_BYTES:
                        self._stream.write(self._line(log, record))
                    else:
                        self._stream.writelines(self._pieces(log, record, record.value))
                    count += 1
                    if count % _STRIDE == 0:
                        advance(_STRIDE)
                    del record  # may be large; free it before the next batch is decompressed
        if not problems.count:
            _note_if_none(count, selection, bounds)

    def _line(self, log: PartitionLog, record: Record) -> bytes:
        if self._form == "json":
            place = {"topic": log.topic, "partition": log.partition}
            return json_line(place | json_record(record, headers=self._headers))
        before, after = self._metadata_around_value(log, record)
        line = before + format_bytes(record.value) + after
        return line.encode("utf-8", "backslashreplace")

    def _metadata_around_value(self, log: PartitionLog, record: Record) -> tuple[str, str]:
        """Return the parts of a text line before and after the value."""
        cells = [
            escape_control_characters(str(log.topic_partition)),
            str(record.offset),
            format_time(record.timestamp, self._zone),
            format_bytes(record.key),
        ]
        return "\t".join(cells) + "\t", f"\t{format_headers(record)}\n" if self._headers else "\n"

    def _pieces(self, log: PartitionLog, record: Record, value: bytes) -> Iterator[bytes]:
        """Yield the line of a record with a large value in pieces."""
        if self._form == "json":
            place = {"topic": log.topic, "partition": log.partition}
            fields = json_record(record._replace(value=None), headers=self._headers)
            name, pieces = json_bytes_in_pieces("value", value)
            renamed = {
                **{name if each == "value" else each: field for each, field in fields.items()},
                name: pieces,
            }
            yield from json_line_in_pieces(place | renamed)
            return
        before, after = self._metadata_around_value(log, record)
        yield before.encode("utf-8", "backslashreplace")
        yield from (text.encode() for text in format_bytes_in_pieces(value))
        yield after.encode("utf-8", "backslashreplace")


def _records(log: PartitionLog, bounds: Bounds, problems: Problems) -> Iterator[Record]:
    """Yield a partition's records within the bounds; report what cannot be read."""
    skipped: list[SkippedBytes] = []
    yield from problems.until_error(
        log.topic_partition, _records_of(log, bounds, problems.on_corrupt, skipped)
    )
    problems.add_skipped(log.topic_partition, skipped)


def _records_of(
    log: PartitionLog, bounds: Bounds, on_corrupt: OnCorrupt, skipped: list[SkippedBytes]
) -> Iterator[Record]:
    """Yield a partition's records within the bounds; skip segments that are too old."""
    start, end = log.bounds(bounds.start_offset, bounds.end_offset)
    read = partial(log.records, on_corrupt=on_corrupt, skipped=skipped)
    if bounds.isolation == "read_committed":  # reads much of the log each time
        yield from filter(bounds.hold, read(start, end, isolation=bounds.isolation))
        return
    for segment in log.segments_between(start, end):
        # A record without a timestamp has timestamp -1.
        if (
            bounds.indexes == "trust"
            and bounds.start_timestamp is not None
            and bounds.start_timestamp >= 0
            and not segment.may_reach(bounds.start_timestamp, bounds.indexes)
        ):
            continue
        ends = end if segment.next_base_offset is None else min(end, segment.next_base_offset)
        yield from filter(bounds.hold, read(max(start, segment.base_offset), ends))
        if skipped and on_corrupt == "stop":
            return


def _write_columns(
    file: BinaryIO,
    form: str,
    selection: Selection,
    bounds: Bounds,
    headers: bool,
    problems: Problems,
) -> None:
    """Write the selected records as an Arrow IPC file or as Parquet, batch by batch."""
    from pyarrow import default_memory_pool

    from kafkastore.log import records_as_arrow

    count = 0
    columns = records_as_arrow.schema(include_headers=headers)
    # Minimum and maximum of values would be copies of values that no reader uses.
    dated = [name for name in columns.names if name != "value"]
    with (
        open_columns_writer(file, form, columns, dated=dated) as writer,
        progress("records", bounds.limit) as advance,
    ):
        for log in problems.logs(selection):
            skipped: list[SkippedBytes] = []
            batches = _batches(log, form, bounds, headers, problems.on_corrupt, skipped)
            for batch in problems.until_error(log.topic_partition, batches):
                wanted = batch if bounds.limit is None else batch.slice(0, bounds.limit - count)
                writer.write_batch(wanted)
                count += wanted.num_rows
                advance(wanted.num_rows)
                if count == bounds.limit:
                    return
                is_large = wanted.nbytes > _ROW_GROUP_BYTES
                del batch, wanted  # may be large; free them before the next batch is decompressed
                if is_large:  # also free the memory that Arrow wrote it from
                    default_memory_pool().release_unused()
            problems.add_skipped(log.topic_partition, skipped)
    if not problems.count:
        _note_if_none(count, selection, bounds)


def _batches(
    log: PartitionLog,
    form: str,
    bounds: Bounds,
    headers: bool,
    on_corrupt: OnCorrupt,
    skipped: list[SkippedBytes],
) -> Iterator[RecordBatch]:
    """Yield a partition's records within the bounds, in non-empty batches."""
    if bounds.limit == 0:
        return
    yield from log.to_arrow(
        start_offset=bounds.start_offset,
        end_offset=bounds.end_offset,
        start_timestamp=bounds.start_timestamp,
        end_timestamp=bounds.end_timestamp,
        include_headers=headers,
        isolation=bounds.isolation,
        indexes=bounds.indexes,
        batch_rows=_ROW_GROUP_ROWS if form == "parquet" else BATCH_ROWS,
        batch_bytes=_ROW_GROUP_BYTES if form == "parquet" else BATCH_BYTES,
        on_corrupt=on_corrupt,
        skipped=skipped,
    )


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
