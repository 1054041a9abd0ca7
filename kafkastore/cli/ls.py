"""``kafkastore ls``: list the partitions or segments of log directories."""
from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import tzinfo
from pathlib import Path
from typing import Any

import click

from kafkastore.arguments import INT64_MAX
from kafkastore.cli.failures import sentence
from kafkastore.cli.few_lines import few_lines, verbose_option
from kafkastore.cli.json_lines import json_option, write_json
from kafkastore.cli.problems import Problems
from kafkastore.cli.progress import track
from kafkastore.cli.selection import Selection, select, selection_options
from kafkastore.cli.tables import counted, print_table, show_size
from kafkastore.cli.times import show_time, zone_option
from kafkastore.cli.unfinished import note_unfinished
from kafkastore.cli.visible import visible
from kafkastore.errors import (
    CorruptionError,
    KafkaStoreError,
    OffsetOutOfRangeError,
    SegmentGoneError,
)
from kafkastore.formats.file_names import TopicPartition
from kafkastore.log.batch_reading import first_timestamp
from kafkastore.log.log_dir import LogDir
from kafkastore.segment.log_segment import LogSegment
from kafkastore.segment.regular_file import check_regular
from kafkastore.store.partition_log import PartitionLog

Row = dict[str, Any]


@click.command()
@selection_options
@click.option("--segments", is_flag=True, help="One row for each segment.")
@click.option(
    "--offset",
    type=click.IntRange(min=0),
    metavar="N",
    help="Say which segment and batch of the one chosen partition hold an offset.",
)
@click.option(
    "--quick",
    is_flag=True,
    help="Names and sizes only: no file is opened, so no end offsets and no times.",
)
@zone_option
@verbose_option
@json_option
def command(
    paths: tuple[Path, ...],
    topics: tuple[str, ...],
    partitions: tuple[int, ...],
    segments: bool,
    offset: int | None,
    quick: bool,
    zone: tzinfo | None,
    verbose: bool,
    as_json: bool,
) -> int:
    """List the partitions of log directories, or of partition directories.

    Times are those of the first record and of the newest one, wherever it is. They come from the
    time indexes; where those are missing or wrong, the headers of the log are read. What is not
    known because the log is corrupt there is left out, and the partition named; verify reads all.
    """
    selection = select(paths, topics, partitions)
    note_unfinished(paths)
    if offset is not None:
        _print_place(selection.only_log("--offset"), offset, as_json)
        return 0
    problems = Problems(len(selection.topic_partitions))
    rows: Iterable[Row] = _rows(
        selection, problems, segments=segments, quick=quick, as_json=as_json
    )
    if as_json:
        rows = itertools.chain(_directories(selection.store.log_dirs), rows)
    shown = []
    for row in rows:
        if as_json:
            write_json(row)
        elif row["kind"] != "error":
            shown.append(row)
    if not as_json:
        _print_rows(selection, shown, segments, zone, verbose=verbose)
    return problems.exit_code


def _rows(
    selection: Selection, problems: Problems, *, segments: bool, quick: bool, as_json: bool
) -> Iterator[Row]:
    """Describe the selected partitions or segments; report those that cannot be read."""
    chosen = selection.topic_partitions
    for topic_partition in track(chosen, "listing", len(chosen), while_printing=as_json):
        try:
            log = selection.store.partitions[topic_partition]
            rows = _segments if segments else _partition
            described, error = log.beside_changes(functools.partial(rows, log, quick))
            yield from described
            yield from _leftovers(log)
            if error is not None:
                raise error
        except (KafkaStoreError, OSError) as error:
            problems.add(topic_partition, error)
            yield _failure(topic_partition, error)


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
            yield {"kind": "skipped", "path": str(skipped.path), "reason": skipped.reason}
        for damaged in log_dir.damaged_checkpoints:
            yield {"kind": "damaged", "path": str(damaged.path), "error": str(damaged.error)}


def _leftovers(log: PartitionLog) -> Iterator[Row]:
    """Describe files that are not part of a log, or not yet."""
    for note in log.leftovers:
        yield {
            "kind": "leftover",
            "topic": log.topic,
            "partition": log.partition,
            "path": str(note.path),
            "what": note.what,
            "at_next_start": note.at_next_start,
        }


def _partition(log: PartitionLog, quick: bool) -> tuple[list[Row], CorruptionError | None]:
    """Describe a partition in one row; also return the first error found in it."""
    row: Row = {
        "kind": "partition",
        "topic": log.topic,
        "partition": log.partition,
        "path": str(log.path),
        "segments": len(log.segments),
        "size": sum(segment.size for segment in log.segments),
        "missing": {
            "index": sum(each.offset_index_path.name not in log.files for each in log.segments),
            "timeindex": sum(each.time_index_path.name not in log.files for each in log.segments),
        },
    }
    error = None
    if not quick:
        start, end = log.start_bound, log.end_bound
        first, error = _known(lambda: first_timestamp(log, log.log_start_offset))
        largest, in_batches = _known(lambda: _largest_timestamp(log.segments))
        error = error or in_batches or end.error
        row |= {
            "log_start_offset": start.offset,
            "log_start_basis": start.basis,
            "log_end_offset": end.offset if end.error is None else None,
            "log_end_basis": end.basis,
            "first_timestamp": first,
            "largest_timestamp": largest,
        }
    return [row], error


def _segments(log: PartitionLog, quick: bool) -> tuple[list[Row], CorruptionError | None]:
    """Describe the segments of a partition; also return the first error found in them."""
    described = [_segment(log, segment, quick) for segment in log.segments]
    errors = (error for _, error in described if error is not None)
    return [row for row, _ in described], next(errors, None)


def _segment(
    log: PartitionLog, segment: LogSegment, quick: bool
) -> tuple[Row, CorruptionError | None]:
    """Describe a segment; also return the first error found in it."""
    row: Row = {
        "kind": "segment",
        "topic": log.topic,
        "partition": log.partition,
        "path": str(segment.log_path),
        "base_offset": segment.base_offset,
        "is_active": segment.is_active,
        "size": segment.size,
        "modified": segment.last_modified_ms,
        "index": _size_of(segment.offset_index_path),
        "timeindex": _size_of(segment.time_index_path),
    }
    error = None
    if not quick:
        base, following = segment.base_offset, segment.next_base_offset
        first, error = _known(lambda: first_timestamp(log, base, following))
        largest, in_batches = _known(lambda: _largest_timestamp([segment]))
        error = error or in_batches or segment.end_error
        row |= {
            "next_offset": segment.next_offset if segment.end_error is None else None,
            "first_timestamp": first,
            "largest_timestamp": largest,
        }
    return row, error


def _known(read: Callable[[], int | None]) -> tuple[int | None, CorruptionError | None]:
    """Read a value from a log, or return the corruption error."""
    try:
        return read(), None
    except CorruptionError as error:
        return None, error


def _largest_timestamp(segments: Sequence[LogSegment]) -> int | None:
    """Return the largest timestamp of segments; uses time indexes where they are trusted."""
    found = []
    for segment in segments:
        largest = segment.largest_timestamp_by_index
        if largest is None:
            if segment.summary.error is not None:
                raise segment.summary.error
            largest = segment.summary.largest_record_timestamp
        found.append(largest)
    return max((each for each in found if each is not None), default=None)


def _failure(topic_partition: TopicPartition, error: BaseException) -> Row:
    """Describe a partition that cannot be read."""
    return {
        "kind": "error",
        "topic": topic_partition.topic,
        "partition": topic_partition.partition,
        "error": sentence(error),
    }


def _size_of(path: Path) -> int | None:
    """Return a file's size in bytes; None if it is missing."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    check_regular(path, status)
    return status.st_size


def _print_rows(
    selection: Selection,
    rows: Sequence[Row],
    segments: bool,
    zone: tzinfo | None,
    *,
    verbose: bool,
) -> None:
    """Print the rows as tables."""
    for log_dir in selection.store.log_dirs:
        state = "closed in order" if log_dir.is_clean else "not closed in order"
        partitions = counted(len(log_dir.partition_paths), "partition")
        print(visible(f"{log_dir.path}: {partitions}, {state}"))
    leftovers = [row for row in rows if row["kind"] == "leftover"]
    listed = [row for row in rows if row["kind"] != "leftover"]
    if segments:
        _print_segments(listed, zone)
    else:
        _print_partitions(listed, zone)
    kinds = ((row, (row["what"], row["at_next_start"])) for row in leftovers)
    lines = (
        (kind, f"left over: {row['path']}, {': '.join(kind)}") for row, kind in kinds
    )
    for line in few_lines(lines, verbose=verbose):
        print(visible(line))
    skipped = (each for log_dir in selection.store.log_dirs for each in log_dir.skipped)
    unread = ((each.reason, f"not read: {each.path}, {each.reason}") for each in skipped)
    for line in few_lines(unread, verbose=verbose):
        print(visible(line))
    for log_dir in selection.store.log_dirs:
        for damaged in log_dir.damaged_checkpoints:
            print(visible(f"damaged: {damaged.error}"))


def _print_partitions(rows: Sequence[Row], zone: tzinfo | None) -> None:
    print_table(
        ["partition", "segments", "start", "end", "first record", "newest record", "size",
         "missing"],
        (
            [
                f"{row['topic']}-{row['partition']}",
                f"{row['segments']:,}",
                _number(row.get("log_start_offset")),
                _number(row.get("log_end_offset")),
                show_time(row.get("first_timestamp"), zone),
                show_time(row.get("largest_timestamp"), zone),
                show_size(row["size"]),
                _missing(row),
            ]
            for row in rows
        ),
        right="segments,start,end,size",
    )


def _missing(row: Row) -> str:
    """Return which kinds of index files are missing, and for how many segments."""
    missing = [f"{count} .{kind}" for kind, count in row["missing"].items() if count]
    return ", ".join(missing) or "-"


def _print_segments(rows: Sequence[Row], zone: tzinfo | None) -> None:
    print_table(
        ["partition", "base", "next", "first record", "newest record", "modified", "size",
         ".index", ".timeindex"],
        (
            [
                f"{row['topic']}-{row['partition']}",
                str(row["base_offset"]),
                _number(row.get("next_offset")),
                show_time(row.get("first_timestamp"), zone),
                show_time(row.get("largest_timestamp"), zone),
                show_time(row["modified"], zone),
                show_size(row["size"]),
                *("missing" if row[kind] is None else show_size(row[kind])
                  for kind in ("index", "timeindex")),
            ]
            for row in rows
        ),
        right="base,next,size,.index,.timeindex",
    )


def _number(value: int | None) -> str:
    return "-" if value is None else str(value)


def _print_place(log: PartitionLog, offset: int, as_json: bool) -> None:
    """Print the batch and the segment that hold an offset."""
    row = log.beside_changes(lambda: _place(log, offset))
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
        f"{log.topic_partition} has no batch at or behind offset {offset}: it lies in the gap "
        f"before the log end offset {end}"
    )


def _print_batch(row: Row) -> None:
    offsets = f"offsets {row['base_offset']} to {row['last_offset']}"
    if row["base_offset"] == row["last_offset"]:
        offsets = f"offset {row['last_offset']} alone"
    what = f"in the batch of {offsets}" if row["is_within"] else f"in a gap before {offsets}"
    place = f"{counted(row['size'], 'byte')} at byte {row['position']} of {row['path']}"
    partition = f"{row['topic']}-{row['partition']}"
    print(visible(f"{partition} offset {row['offset']} lies {what}, {place}"))
