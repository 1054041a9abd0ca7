"""The rows, as columns, of a partition's tables except the records."""
from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kafkastore.arguments import INT64_MAX
from kafkastore.errors import CorruptIndexError
from kafkastore.formats.indexes import transaction_index
from kafkastore.formats.state.file_names import TopicPartition
from kafkastore.formats.topics.consumer_offsets import NO_LEADER_EPOCH
from kafkastore.jobs.listing import describe_segment
from kafkastore.log.batch_columns import BatchColumn, batch_columns
from kafkastore.log.damage import CorruptionHandler
from kafkastore.log.log_dir import LogDir
from kafkastore.log.range_scan import RangeScan
from kafkastore.paths import open_path
from kafkastore.segment.index_file import OffsetIndex, TimeIndex, check_order
from kafkastore.segment.log_segment import LogSegment
from kafkastore.segment.transaction_index_file import TransactionIndex
from kafkastore.spark.source.options import ReadOptions
from kafkastore.spark.source.planning import warn
from kafkastore.spark.source.slice_reading import Skipped
from kafkastore.spark.source.slices import END, LogSlice
from kafkastore.store.partition_log import PartitionLog
from kafkastore.use_cases.committed_offsets import committed_in

Columns = dict[str, pa.Array]

TIMESTAMP = pa.timestamp("us", tz="UTC")
LARGEST_MS = INT64_MAX // 1000


@dataclass(frozen=True, slots=True)
class SegmentRange(LogSlice):
    """Successive segments of a partition directory, by their base offsets.

    `root` is the log directory around it, if any, whose checkpoints set `log_start_offset`.
    """

    root: str | None = None
    log_start_offset: int = 0


# ---------------------------------------------------------------- batches


def of_batches(
    segments: SegmentRange, names: Collection[str], options: ReadOptions
) -> Iterator[Columns]:
    """Yield the batch headers of `PartitionLog.batches`, from the log start on.

    Checksums are only computed for the column `crc_valid`. `on_corrupt` decides whether corrupt
    bytes are an error, are skipped, or end these segments.
    """
    log = segments.open_log()
    skipped = Skipped(segments)
    damage = CorruptionHandler(options.on_corrupt, skipped.found)
    start = max(segments.start_offset, segments.log_start_offset)
    scan = RangeScan(log, start, segments.end_offset, damage)
    for segment, run, headers, _ in scan.runs():
        is_asked = headers["last_offset"] >= scan.first_offset
        following = END if segment.next_base_offset is None else segment.next_base_offset
        if following > segments.end_offset:
            is_asked &= headers["last_offset"] < segments.end_offset
        skipped.report()
        rows = np.flatnonzero(is_asked)
        made = batch_columns(run, rows, [name for name in names if name != "segment"])
        columns = {name: _as_arrow(name, each) for name, each in made.items()}
        if "segment" in names:
            columns["segment"] = pa.repeat(segment.base_offset, len(rows))
        yield columns
    skipped.report()


def _as_arrow(name: str, column: BatchColumn) -> pa.Array:
    values, is_known, texts = column
    if texts is not None:
        return pa.array(texts).take(pa.array(values))
    if name in ("max_timestamp", "delete_horizon"):
        return timestamps(values if is_known is None else np.where(is_known, values, -1))
    return numbers(values, is_known)


# ---------------------------------------------------------------- segments


def of_segments(
    segments: SegmentRange, names: Collection[str], options: ReadOptions
) -> Iterator[Columns]:
    """Yield segments as `describe_segment` does.

    `on_corrupt` decides whether corrupt bytes are an error; otherwise a value that they hide is
    null.
    """
    log = segments.open_log()

    def describe(segment: LogSegment) -> dict[str, Any]:
        row, error = describe_segment(log, segment, names, segments.log_start_offset)
        if error is not None and options.on_corrupt == "raise":
            raise error
        if error is not None:
            warn(segments.path, error)
        return row

    asked = partial(log.segments_between, segments.start_offset, segments.end_offset)
    found = log.retry_if_changed(lambda: list(map(describe, asked())))
    columns: Columns = {}
    for name in names:
        values = [row[name] for row in found]
        if name in ("first_timestamp", "largest_timestamp", "modified"):
            columns[name] = timestamps(np.array([-1 if v is None else v for v in values], np.int64))
        else:
            columns[name] = pa.array(values)
    yield columns


# ---------------------------------------------------------------- entries of indexes

_INDEXES: Mapping[str, type[OffsetIndex | TimeIndex | TransactionIndex]] = {
    "time_index": TimeIndex,
    "offset_index": OffsetIndex,
    "transactions": TransactionIndex,
}


def index_path(segment: LogSegment, table: str) -> Path:
    """Return the path of a segment's file of a table; it may be missing."""
    if table == "time_index":
        return segment.time_index_path
    return segment.offset_index_path if table == "offset_index" else segment.transaction_index_path


def of_entries(
    segments: SegmentRange, names: Collection[str], options: ReadOptions
) -> Iterator[Columns]:
    """Yield the entries of indexes, without the zeros after them.

    `on_corrupt` decides whether an index with unordered entries, or with extra bytes at its end, is
    an error; otherwise its entries are returned anyway.
    """
    log = segments.open_log()
    for segment in log.segments_between(segments.start_offset, segments.end_offset):
        try:
            entries = _entries(segments, segment, options)
        except FileNotFoundError:
            continue  # no index, or just deleted
        columns: Columns = {}
        for name in names:
            if name == "segment":
                columns[name] = pa.repeat(segment.base_offset, len(entries))
            elif name == "slot":
                columns[name] = pa.array(np.arange(len(entries)))
            else:
                values = entries[name]
                columns[name] = timestamps(values) if name == "timestamp" else numbers(values)
        yield columns


def _entries(
    segments: SegmentRange, segment: LogSegment, options: ReadOptions
) -> NDArray[np.void]:
    """Read the entries of one index, and check their order."""
    kind = _INDEXES[options.table]

    def meet(error: CorruptIndexError) -> None:
        if options.on_corrupt == "raise":
            raise error
        warn(segments.path, error)

    with kind.open(index_path(segment, options.table), segment.base_offset) as index:
        try:
            entries = index.entries()
        except CorruptIndexError as error:  # an entry of an unknown version
            meet(error)
            return transaction_index.parse(index.entry_bytes()[: error.position])
        try:
            check_order(index)
        except CorruptIndexError as error:
            meet(error)
        return entries


# ---------------------------------------------------------------- committed offsets


def of_commits(
    segments: SegmentRange, names: Collection[str], options: ReadOptions
) -> Iterator[Columns]:
    """Yield committed offsets, from one whole ``__consumer_offsets`` partition.

    `selection` chooses the partitions whose commits are rows; `on_corrupt` decides whether a
    corrupt batch, key or value is an error or is skipped.
    """
    log_dir = None
    if segments.root is not None:
        log_dir = LogDir(open_path(segments.root, with_all_below=False))
    topic_partition = TopicPartition(segments.topic, segments.partition)
    log = PartitionLog(open_path(segments.path), topic_partition, log_dir)
    skipped = Skipped(segments)
    rows = [
        key._asdict() | committed._asdict()
        for key, committed in committed_in(
            log, options.on_corrupt, skipped.found
        ).items()
        if options.selection.includes(TopicPartition(key.topic, key.partition))
    ]
    skipped.report()
    if not rows:
        return
    columns: Columns = {}
    for name in names:
        values = [row[name] for row in rows]
        if name.endswith("_timestamp"):
            columns[name] = timestamps(np.array(values, np.int64))
        elif name == "leader_epoch":
            columns[name] = numbers(np.array(values), np.array(values) != NO_LEADER_EPOCH)
        else:
            columns[name] = pa.array(values)
    yield columns


# ---------------------------------------------------------------- values


def timestamps(milliseconds: NDArray[np.int64]) -> pa.Array:
    """Convert ms since 1970 to timestamps; null if negative or out of range.

    The timestamps are in microseconds.
    """
    is_none = (milliseconds < 0) | (milliseconds > LARGEST_MS)
    return pa.array(np.where(is_none, 0, milliseconds) * 1000, mask=is_none).cast(TIMESTAMP)


def numbers(values: NDArray[Any], is_there: NDArray[np.bool_] | None = None) -> pa.Array:
    """Return an array of numbers, with null where `is_there` is false."""
    contiguous = np.ascontiguousarray(values)
    return pa.array(contiguous, mask=None if is_there is None else ~is_there)
