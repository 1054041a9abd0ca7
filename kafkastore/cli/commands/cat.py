"""``kafkastore cat``: print the records of partitions, between offsets or times."""
from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import click

from kafkastore.arguments import INT64_MAX, thread_count
from kafkastore.cli import interrupts
from kafkastore.cli.cat.bounds import Bounds
from kafkastore.cli.cat.following import follow as follow_logs
from kafkastore.cli.cat.layout import FORMS, choose_layout
from kafkastore.cli.cat.reading import count_records, of_latest, read_batches
from kafkastore.cli.cat.record_filter import filter_options, parse_filter
from kafkastore.cli.cat.record_writer import RecordWriter
from kafkastore.cli.options.selection import FILE_PATH, Selection
from kafkastore.cli.options.times import Moment, indexes_option
from kafkastore.cli.options.whole_numbers import WholeNumber
from kafkastore.cli.output.failures import print_note
from kafkastore.cli.output.json_lines import write_json
from kafkastore.cli.output.output_file import check_reader, is_stdout
from kafkastore.cli.output.partition_errors import Problems
from kafkastore.cli.output.progress import progress
from kafkastore.cli.output.tables import format_count
from kafkastore.cli.store_command import StoreCall, store_command
from kafkastore.formats.state.file_names import TopicPartition
from kafkastore.log.damage import SkippedBytes
from kafkastore.log.isolation import Isolation
from kafkastore.segment.index_trust import Indexes
from kafkastore.store.partition_log import PartitionLog

#: Memory of larger batches is returned to the system before the next one.
_LARGE_BATCH_BYTES = 32 * 1024 * 1024
#: The partitions to read, each with the bounds of what to read of it.
Ranges = Iterable[tuple[PartitionLog, Bounds]]


@store_command("relative-to", "tz", "on-corrupt", "threads")
@click.option("--from-offset", type=WholeNumber(min=0), metavar="N",
              help="First offset, inclusive.")
@click.option("--until-offset", type=WholeNumber(min=0), metavar="N",
              help="End offset, exclusive.")
@click.option("--from", "from_time", metavar="TIME", help="Start time, inclusive.")
@click.option("--until", "until_time", metavar="TIME", help="End time, exclusive.")
@filter_options
@click.option("--tail", type=WholeNumber(min=0), metavar="N",
              help="Only the last N of these records in each partition.")
@click.option("--latest", is_flag=True,
              help="Only the last record of each key, as compaction would leave it: of committed "
              "records, and without deleted keys.")
@click.option("-c", "--limit", type=WholeNumber(min=0), metavar="N",
              help="Maximum number of records.")
@click.option("--count", is_flag=True, help="Print only the number of records.")
@click.option("--follow", is_flag=True,
              help="Continue with new records until Ctrl-C, which then is not an error.")
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
    type=click.Choice(FORMS),
    help="Default: by the extension of FILE (.json, .csv, .parquet, ...), else text. arrow (IPC "
    "file), arrows (IPC stream) and parquet have the columns of Spark's Kafka source.",
)
@click.option(
    "-f",
    "--format-string",
    "template",
    metavar="STRING",
    help="The format of a record, as kcat's: %t topic, %p partition, %o offset, %T timestamp, %k "
    "key, %s value, %K and %S their lengths, %R the value's as 4 bytes, %h headers; \\n \\t \\xHH.",
)
@click.option(
    "-o",
    "--output",
    type=FILE_PATH,
    metavar="FILE",
    help="Write to this file, which appears when it is complete; - is standard output. {topic}, "
    "{partition} and {date} in its name divide the records among files.",
)
def command(
    call: StoreCall,
    from_offset: int | None,
    until_offset: int | None,
    from_time: str | None,
    until_time: str | None,
    key: str | None,
    value: str | None,
    header: tuple[str, ...],
    tail: int | None,
    latest: bool,
    limit: int | None,
    count: bool,
    follow: bool,
    isolation: Isolation,
    indexes: Indexes,
    headers: bool,
    form: str | None,
    template: str | None,
    output: Path | None,
) -> int:
    """Print records by partition and offset, without transaction markers.

    Times select records one by one, because timestamps need not rise with offsets. With --indexes
    trust, segments without such records are not read. TIME is ms since 1970, ISO 8601
    (2024-03-01T14:05:00Z) or -2h. REGEX is a regular expression of Python for bytes.
    """
    threads = thread_count(call.threads)
    layout = choose_layout(
        form, template, output, as_json=call.as_json, headers=headers, zone=call.zone,
        threads=threads,
    )
    records = parse_filter(key, value, header)
    if count and (follow or output is not None or template is not None or form is not None):
        raise click.UsageError("--count prints a number; it takes no format, output or --follow")
    if follow and (until_offset is not None or until_time is not None):
        raise click.UsageError("--follow has no end; leave out --until and --until-offset")
    if latest and (follow or tail is not None):
        raise click.UsageError("--latest reads whole topics; leave out --tail and --follow")
    if latest and isolation == "read_uncommitted" and _is_given("isolation"):
        raise click.UsageError("--latest reads committed records only; leave out --isolation")
    times = (from_time, until_time)
    moments = [None if text is None else call.parse_moment(text) for text in times]
    selection, problems = call.selection, call.problems
    start, end = _timestamps(call, moments, indexes)
    bounds = Bounds(
        _as_int64(from_offset),
        _as_int64(until_offset),
        start,
        end,
        _as_int64(tail),
        _as_int64(limit),
        isolation,
        indexes,
        records,
    )
    ranges: Ranges = ((log, bounds) for log in problems.logs(selection))
    if latest:
        ranges = of_latest(problems.logs(selection), bounds, problems)
    if count:
        _print_count(ranges, bounds.limit, problems, as_json=call.as_json)
        return problems.exit_code
    to_stdout = output is None or is_stdout(output)
    with (
        interrupts.noted() if follow else nullcontext(_never) as is_over,
        layout.opened(output, selection.store, follow=follow) as writer,
        progress("records", bounds.limit, while_printing=to_stdout) as advance,
    ):
        if follow:
            ranges = follow_logs(
                lambda: call.select(*call.paths), bounds, problems,
                partial(_flush, writer, to_stdout=to_stdout), is_over,
            )  # fmt: skip
        written = _write(writer, ranges, bounds.limit, threads, problems, advance, is_over)
    if not written and bounds.limit != 0 and not problems.count and not follow:
        _note_why_empty(selection)
    return problems.exit_code


def _is_given(name: str) -> bool:
    """Return whether an option is in the command line."""
    source = click.get_current_context().get_parameter_source(name)
    return source is click.core.ParameterSource.COMMANDLINE


def _never() -> bool:
    return False


def _flush(writer: RecordWriter, *, to_stdout: bool) -> None:
    """Flush a writer; raise if no process reads, even if nothing was written."""
    writer.flush()
    if to_stdout:
        check_reader(sys.stdout.buffer)


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
    writer: RecordWriter,
    ranges: Ranges,
    limit: int | None,
    threads: int,
    problems: Problems,
    advance: Callable[[int], None],
    is_over: Callable[[], bool],
) -> int:
    """Write the records of ranges, up to the limit, batch by batch; return how many."""
    count = 0
    if limit == 0:
        return count
    skipped_in: defaultdict[TopicPartition, list[SkippedBytes]] = defaultdict(list)
    for log, bounds in ranges:
        skipped = skipped_in[log.topic_partition]
        known = len(skipped)  # a partition that is followed is read many times
        left = None if limit is None else limit - count
        batches = read_batches(log, writer, bounds, left, threads, problems.on_corrupt, skipped)
        for batch in problems.until_error(log.topic_partition, batches):
            writer.write_batch(log, batch)
            rows: int = batch.num_rows
            count += rows
            advance(rows)
            if count == limit or is_over():
                break
            is_large = batch.nbytes > _LARGE_BATCH_BYTES
            del batch  # may be large; free it before the next batch is decompressed
            # also free the memory that Arrow wrote it from
            if is_large and (arrow := sys.modules.get("pyarrow")) is not None:
                arrow.default_memory_pool().release_unused()
        problems.add_skipped(log.topic_partition, skipped[known:])
        if count == limit or is_over():
            break
    return count


def _print_count(
    ranges: Ranges, limit: int | None, problems: Problems, *, as_json: bool
) -> None:
    """Print the number of selected records."""
    count = 0
    with progress("records", limit) as advance:
        for log, bounds in ranges:
            skipped: list[SkippedBytes] = []
            counts = count_records(log, bounds, problems.on_corrupt, skipped)
            for number in problems.until_error(log.topic_partition, counts):
                count += number
                advance(number)
            problems.add_skipped(log.topic_partition, skipped)
    count = count if limit is None else min(count, limit)
    if as_json:
        write_json({"records": count})
    else:
        print(count)


def _note_why_empty(selection: Selection) -> None:
    """Explain why nothing was printed."""
    if len(selection.topic_partitions) == 1:
        log = next(selection.logs())
        start, end = log.log_start_offset, log.log_end_offset
        there = f"has offsets {start} to {end - 1}" if start < end else "has no records"
        print_note(f"no record matches; {log.topic_partition} {there}")
    else:
        partitions = format_count(len(selection.topic_partitions), "partition")
        print_note(f"no record of {partitions} matches")
