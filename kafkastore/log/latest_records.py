"""Read the last record of each key, as compaction would leave a topic.

Two passes read the same records: the first notes the last offset of each key, the second keeps the
records at these offsets.

Source: Kafka 2.4.0 ``Cleaner.buildOffsetMap``, ``Cleaner.shouldRetainRecord``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, TypedDict

import pyarrow as pa
import pyarrow.compute as pc

from kafkastore.formats.records.latest_offsets import LatestOffsets
from kafkastore.formats.records.record_columns import BATCH_BYTES, BATCH_ROWS
from kafkastore.log.damage import OnCorrupt, SkippedBytes
from kafkastore.log.log_view import LogView
from kafkastore.log.records_as_arrow import (
    COLUMN_TYPES,
    ArrowOptions,
    first_rows,
    read_many,
)
from kafkastore.segment.index_trust import Indexes

#: The timestamp of a record without one, and of one that Arrow has no room for: -1 ms.
_NO_TIMESTAMP = pa.scalar(-1000, COLUMN_TYPES["timestamp"])


class LatestArguments(TypedDict, total=False):
    """The arguments of `PartitionLog.latest` that make sense for several logs."""

    start_offset: int | None
    end_offset: int | None
    start_timestamp: int | None
    end_timestamp: int | None
    limit: int | None
    include_headers: bool
    batch_rows: int
    batch_bytes: int
    verify: bool
    max_decompressed_bytes: int
    on_corrupt: OnCorrupt
    skipped: list[SkippedBytes] | None
    indexes: Indexes


def read_latest(
    logs: Iterable[LogView], options: ArrowOptions, *, include_tombstones: bool = False
) -> Iterator[pa.RecordBatch]:
    """Read the last record of each key in the partitions of a topic; see `PartitionLog.latest`.

    A key that is in several partitions belongs to the one with its newest record by timestamp, and
    to the last of these partitions if several are equally new. Rows are in the order of the logs.
    """
    batches = _joined(_read(tuple(logs), options, include_tombstones), options)
    yield from batches if options.limit is None else first_rows(batches, options.limit)


def _read(
    logs: tuple[LogView, ...], options: ArrowOptions, include_tombstones: bool
) -> Iterator[pa.RecordBatch]:
    """Yield the last records of the keys, in batches of any size."""
    names = options.schema.names
    reading = replace(
        options,
        include_headers=False,
        isolation="read_committed",
        limit=None,
        batch_rows=BATCH_ROWS,
        batch_bytes=BATCH_BYTES,
    )
    latest, shifts = find_latest(logs, reading)
    # Values that nobody asked for only show which records are tombstones.
    needed = [*names, "key", "offset", *([] if include_tombstones else ["value"])]
    # The first pass has noted the corrupt bytes.
    skipped = [] if options.skipped is None else options.skipped
    reading = replace(reading, columns=needed, skipped=skipped)
    for log, shift in zip(logs, shifts, strict=True):
        for batch in read_many([log], reading):
            rows = batch.num_rows
            is_last = latest.find_latest(rows, _keys(batch), _numbers(batch["offset"]), shift)
            mask = pa.Array.from_buffers(pa.bool_(), rows, [None, pa.py_buffer(is_last)])
            if not include_tombstones:
                mask = pc.and_(mask, batch["value"].is_valid())
            if mask.true_count:
                yield batch.filter(mask).select(names)


def find_latest(
    logs: tuple[LogView, ...], reading: ArrowOptions
) -> tuple[LatestOffsets, list[int]]:
    """Read the keys, and note the last record of each; return also a shift for each log."""
    across_partitions = len(logs) > 1
    columns = ["key", "offset", *(["timestamp"] if across_partitions else [])]
    reading = replace(reading, columns=columns)
    latest = LatestOffsets(across_partitions=across_partitions)
    shifts: list[int] = []
    timestamps = None
    for log in logs:
        shifts.append(latest.end_place)
        for batch in read_many([log], reading):
            if across_partitions:
                timestamps = _numbers(batch["timestamp"].fill_null(_NO_TIMESTAMP))
            offsets = _numbers(batch["offset"])
            latest.add(batch.num_rows, _keys(batch), offsets, timestamps, shifts[-1])
    return latest, shifts


def _keys(batch: pa.RecordBatch) -> tuple[int, Any, Any, Any]:
    """Return the buffers of a batch's keys."""
    keys = batch["key"]
    return (keys.offset, *keys.buffers())


def _numbers(column: pa.Array) -> memoryview:
    """Return 64-bit values without null as a buffer that begins with the first row."""
    buffer: pa.Buffer = column.buffers()[1]
    return memoryview(buffer.slice(8 * column.offset, 8 * len(column)))


def _joined(
    batches: Iterator[pa.RecordBatch], options: ArrowOptions
) -> Iterator[pa.RecordBatch]:
    """Join small batches, and divide those of too many rows."""
    kept: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        kept.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows >= options.batch_rows or size >= options.batch_bytes:
            yield from _as_one(kept, options.batch_rows)
            kept, rows, size = [], 0, 0
    yield from _as_one(kept, options.batch_rows)


def _as_one(batches: list[pa.RecordBatch], most_rows: int) -> Iterator[pa.RecordBatch]:
    if batches:
        joined = pa.Table.from_batches(batches).combine_chunks()
        yield from joined.to_batches(max_chunksize=most_rows)
