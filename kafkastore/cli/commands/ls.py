"""``kafkastore ls``: list the partitions or segments of log directories."""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import click

from kafkastore.arguments import INT64_MAX
from kafkastore.cli.options.whole_numbers import WholeNumber
from kafkastore.cli.output.control_characters import print_text
from kafkastore.cli.output.grouped_lines import group_lines
from kafkastore.cli.output.json_lines import write_json
from kafkastore.cli.output.tables import format_count, format_value, print_table
from kafkastore.cli.output.unfinished_changes import print_unfinished_changes
from kafkastore.cli.store_command import StoreCall, store_command
from kafkastore.errors import (
    OffsetOutOfRangeError,
    SegmentGoneError,
)
from kafkastore.jobs.listing import ListJob
from kafkastore.log.log_dir import LogDir
from kafkastore.log.remote_log import RemoteStorage
from kafkastore.runner import Failed
from kafkastore.shown_text import format_size
from kafkastore.store.partition_log import PartitionLog
from kafkastore.writing.topic_settings import TopicSettings

Row = dict[str, Any]
_OFF = RemoteStorage.OFF.value


@store_command("metadata", "tz", "spark", "verbose")
@click.option("--segments", is_flag=True, help="One row for each segment.")
@click.option(
    "--offset",
    type=WholeNumber(min=0),
    metavar="N",
    help="Show the segment and batch of the selected partition that contain an offset.",
)
@click.option(
    "--quick",
    is_flag=True,
    help="Show names and sizes only. No file is opened; end offsets and times are not shown.",
)
def command(call: StoreCall, segments: bool, offset: int | None, quick: bool) -> int:
    """List the partitions of log directories, or of partition directories.

    Times are those of the first and the newest record, from time indexes, or from batch headers if
    a time index is missing or wrong. Of a topic with remote storage, only the segments here are
    counted, and remote shows the others. Values that a corrupt log hides are left out, and the
    partition is reported; verify reads everything.
    """
    log_dirs = call.selection.store.log_dirs
    print_unfinished_changes(call.paths)
    if offset is not None:
        if call.master is not None:
            raise click.UsageError("--offset and --spark cannot be combined")
        _print_place(call.selection.only_log("--offset"), offset, call.as_json)
        return 0
    settings = TopicSettings() if quick else call.remote_settings
    job, shown = ListJob(segments, quick, settings), []
    items = call.items(job)
    if call.as_json:
        for row in _directories(log_dirs):
            write_json(row)
    with call.executor("listing") as runner:
        for item, found in job.outcomes(items, runner):
            rows = [] if isinstance(found, Failed) else [*found.rows]
            if not call.as_json:
                shown += rows
            elif found.error is not None:
                rows.append({"kind": "error", **job.failure_row(item, found.error)})
            if found.error is not None:
                call.problems.add(item[0].topic_partition, found.error)
            for row in rows if call.as_json else ():
                write_json(row)
    if not call.as_json:
        _print_rows(call, shown, segments=segments)
    return call.problems.exit_code


def _directories(log_dirs: Sequence[LogDir]) -> Iterator[Row]:
    """Describe log directories, and their files and directories that are not read."""
    for log_dir in log_dirs:
        yield {
            "kind": "log_dir",
            "path": str(log_dir.path),
            "is_clean": log_dir.is_clean,
            "partitions": len(log_dir.partition_paths),
        }
        for skipped in log_dir.skipped:
            yield {
                "kind": "skipped",
                "path": str(skipped.path),
                "skipped_kind": skipped.kind.value,
                "reason": skipped.reason,
            }
        for corrupt in log_dir.corrupt_checkpoints:
            path, error = str(corrupt.path), str(corrupt.error)
            yield {"kind": "corrupt-checkpoint", "path": path, "error": error}


def _print_rows(call: StoreCall, rows: Sequence[Row], *, segments: bool) -> None:
    """Print the rows as tables."""
    log_dirs = call.selection.store.log_dirs
    for log_dir in log_dirs:
        state = "clean shutdown" if log_dir.is_clean else "no clean shutdown"
        partitions = format_count(len(log_dir.partition_paths), "partition")
        print_text(f"{log_dir.path}: {partitions}, {state}")
    leftovers = [row for row in rows if row["kind"] == "leftover"]
    listed = [row for row in rows if row["kind"] != "leftover"]
    if segments:
        _print_segments(call, listed)
    else:
        _print_partitions(call, listed)
    lines = (
        (
            (row["leftover_kind"], row["start_action"]),
            f"leftover file: {row['path']}, {row['what']}: {row['at_next_start']}",
        )
        for row in leftovers
    )
    for line in group_lines(lines, verbose=call.verbose):
        print_text(line)
    skipped = (each for log_dir in log_dirs for each in log_dir.skipped)
    unread = ((each.kind, f"not read: {each.path}, {each.reason}") for each in skipped)
    for line in group_lines(unread, verbose=call.verbose):
        print_text(line)
    for log_dir in log_dirs:
        for corrupt in log_dir.corrupt_checkpoints:
            print_text(f"corrupt: {corrupt.error}")


def _print_partitions(call: StoreCall, rows: Sequence[Row]) -> None:
    is_tiered = any(row.get("remote_storage", _OFF) != _OFF for row in rows)
    print_table(
        ["partition", "segments", "start", *["local start"] * is_tiered, "end", "first record",
         "newest record", "size", *["remote"] * is_tiered, "missing"],
        (
            [
                f"{row['topic']}-{row['partition']}",
                f"{row['segments']:,}",
                format_value(row.get("log_start_offset")),
                *[format_value(row.get("local_log_start_offset"))] * is_tiered,
                format_value(row.get("log_end_offset")),
                call.format_time(row.get("first_timestamp")),
                call.format_time(row.get("largest_timestamp")),
                format_size(row["size"]),
                *[_remote(row)] * is_tiered,
                _missing(row),
            ]
            for row in rows
        ),
        right="segments,start,local start,end,size",
    )
    unsure = (
        (
            ("remote storage",),
            (
                f"{row['topic']}-{row['partition']}: the log starts at {row['log_start_offset']}, "
                f"or at {row['log_start_if_tiered']} if the topic has remote storage; --metadata "
                "names the cluster's metadata, which says whether it has"
            ),
        )
        for row in rows
        if row.get("log_start_if_tiered") is not None
    )
    for line in group_lines(unsure, verbose=call.verbose):
        print_text(line)


def _remote(row: Row) -> str:
    """Return what of a partition is in remote storage."""
    if row.get("remote_storage", _OFF) == _OFF:
        return "-"
    if row.get("remote_segments") is None:
        return f"unknown ({row.get('unknown_remote')})"
    if not row["remote_segments"]:
        return "none"
    segments = format_count(row["remote_segments"], "segment")
    return f"{segments} up to {row['highest_remote_offset']}, {format_size(row['remote_size'])}"


def _missing(row: Row) -> str:
    """Return which kinds of index files are missing, and for how many segments."""
    missing = [f"{count} .{kind}" for kind, count in row["missing"].items() if count]
    return ", ".join(missing) or "-"


def _print_segments(call: StoreCall, rows: Sequence[Row]) -> None:
    print_table(
        ["partition", "base", "next", "first record", "newest record", "modified", "size",
         ".index", ".timeindex"],
        (
            [
                f"{row['topic']}-{row['partition']}",
                str(row["base_offset"]),
                format_value(row.get("next_offset")),
                call.format_time(row.get("first_timestamp")),
                call.format_time(row.get("largest_timestamp")),
                call.format_time(row["modified"]),
                format_size(row["size"]),
                *("missing" if row[kind] is None else format_size(row[kind])
                  for kind in ("index", "timeindex")),
            ]
            for row in rows
        ),
        right="base,next,size,.index,.timeindex",
    )


def _print_place(log: PartitionLog, offset: int, as_json: bool) -> None:
    """Print the batch and the segment that hold an offset."""
    row = log.retry_if_changed(lambda: _place(log, offset))
    if as_json:
        write_json(row)
    else:
        _print_batch(row)


def _place(log: PartitionLog, offset: int) -> Row:
    """Describe the batch that holds an offset, or the first batch after it."""
    start, end = log.log_start_offset, log.log_end_offset
    if not start <= offset < end:
        there = f"it has {start} to {end - 1}" if start < end else "it has no records"
        raise OffsetOutOfRangeError(f"{log.topic_partition} has no offset {offset}; {there}")
    if offset < (local := log.local_log_start_offset):
        raise OffsetOutOfRangeError(
            f"{log.topic_partition}: offset {offset} is in remote storage; the segments here start "
            f"at {local}"
        )
    for segment in log.segments_between(offset, INT64_MAX):
        found = segment.translate_offset(offset)
        if found is None:
            continue  # the gap extends to the end of the segment
        with segment.open_log() as file:
            batch = next(file.batches(found.position), None)
        if batch is None:
            raise SegmentGoneError(segment.log_path)  # truncated meanwhile
        return {
            "kind": "batch",
            "topic": log.topic,
            "partition": log.partition,
            "offset": offset,
            "path": str(segment.log_path),
            "segment": segment.base_offset,
            "position": found.position,
            "size": found.size,
            "base_offset": batch.base_offset,
            "last_offset": found.offset,
            "is_within": batch.base_offset <= offset,
        }
    raise OffsetOutOfRangeError(
        f"{log.topic_partition} has no batch at or after offset {offset}; the offset is in the gap "
        f"before the log end offset {end}"
    )


def _print_batch(row: Row) -> None:
    offsets = f"offsets {row['base_offset']} to {row['last_offset']}"
    if row["base_offset"] == row["last_offset"]:
        offsets = f"only offset {row['last_offset']}"
    what = f"in the batch of {offsets}" if row["is_within"] else f"in a gap before {offsets}"
    place = f"{format_count(row['size'], 'byte')} at byte {row['position']} of {row['path']}"
    partition = f"{row['topic']}-{row['partition']}"
    print_text(f"{partition} offset {row['offset']} is {what}, {place}")
