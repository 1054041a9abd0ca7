"""Read the last record of each key, as compaction would leave a topic.

Two passes read the same records: the first notes the last offset of each key, the second keeps the
records at these offsets.

Source: Kafka 2.4.0 ``Cleaner.buildOffsetMap``, ``Cleaner.shouldRetainRecord``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from kafkastore.arguments import whole_number
from kafkastore.formats.records.decompression import MAX_DECOMPRESSED_BYTES
from kafkastore.formats.records.latest_offsets import LatestOffsets
from kafkastore.formats.records.record_columns import BATCH_BYTES, BATCH_ROWS
from kafkastore.log import records_as_arrow
from kafkastore.log.damage import OnCorrupt, SkippedBytes, check_on_corrupt
from kafkastore.log.log_view import LogView

#: The timestamp of a record without one, and of one that Arrow can't hold: -1 ms.
_NO_TIMESTAMP = pa.scalar(-1000, records_as_arrow.COLUMN_TYPES["timestamp"])


class _Found(NamedTuple):
    """The last records of the keys in some logs; `shifts` has one number a log."""

    offsets: LatestOffsets
    shifts: list[int]


def read(
    logs: Iterable[LogView],
    columns: Sequence[str] | None = None,
    *,
    start_offset: int | None = None,
    end_offset: int | None = None,
    start_timestamp: int | None = None,
    end_timestamp: int | None = None,
    include_headers: bool = False,
    include_tombstones: bool = False,
    batch_rows: int = BATCH_ROWS,
    batch_bytes: int = BATCH_BYTES,
    verify: bool = True,
    max_decompressed_bytes: int = MAX_DECOMPRESSED_BYTES,
    on_corrupt: OnCorrupt = "raise",
    skipped: list[SkippedBytes] | None = None,
) -> pa.RecordBatchReader:
    """Read the last record of each key in the partitions of one topic into Arrow.

    See `PartitionLog.latest`. A key that is in several partitions belongs to the one with its
    newest record by timestamp, and to the last of these partitions if several are equally new.
    Rows are in the order of the logs.
    """
    given = {
        "start_offset": start_offset,
        "end_offset": end_offset,
        "start_timestamp": start_timestamp,
        "end_timestamp": end_timestamp,
    }
    bounds = {
        name: whole_number(name, bound) for name, bound in given.items() if bound is not None
    }
    reading: dict[str, Any] = {
        "isolation": "read_committed",
        "verify": verify,
        "max_decompressed_bytes": whole_number("max_decompressed_bytes", max_decompressed_bytes, 0),
        "on_corrupt": check_on_corrupt(on_corrupt),
        **bounds,
    }
    batch_rows = whole_number("batch_rows", batch_rows, 1)
    batch_bytes = whole_number("batch_bytes", batch_bytes, 1)
    chosen = records_as_arrow.schema(columns, include_headers=include_headers)
    batches = _read(tuple(logs), chosen, include_tombstones, reading, skipped)
    return pa.RecordBatchReader.from_batches(chosen, _joined(batches, batch_rows, batch_bytes))


def _read(
    logs: tuple[LogView, ...],
    chosen: pa.Schema,
    include_tombstones: bool,
    reading: dict[str, Any],
    skipped: list[SkippedBytes] | None,
) -> Iterator[pa.RecordBatch]:
    """Yield the last records of the keys, in batches of any size."""
    found = _find_latest(logs, reading, skipped)
    # Values that nobody asked for only say which records are tombstones.
    needed = [*chosen.names, "key", "offset", *([] if include_tombstones else ["value"])]
    for log, shift in zip(logs, found.shifts, strict=True):
        # The first pass has noted the corrupt bytes.
        noted = [] if skipped is None else skipped
        for batch in records_as_arrow.read(log, needed, skipped=noted, **reading):
            rows = batch.num_rows
            latest = found.offsets.find_latest(rows, _keys(batch), _numbers(batch["offset"]), shift)
            mask = pa.Array.from_buffers(pa.bool_(), rows, [None, pa.py_buffer(latest)])
            if not include_tombstones:
                mask = pc.and_(mask, batch["value"].is_valid())
            if mask.true_count:
                yield batch.filter(mask).select(chosen.names)


def _find_latest(
    logs: tuple[LogView, ...], reading: dict[str, Any], skipped: list[SkippedBytes] | None
) -> _Found:
    """Read the keys, and note the last record of each."""
    across_partitions = len(logs) > 1
    columns = ["key", "offset", *(["timestamp"] if across_partitions else [])]
    found = _Found(LatestOffsets(across_partitions=across_partitions), [])
    timestamps = None
    for log in logs:
        found.shifts.append(shift := found.offsets.end_place)
        for batch in records_as_arrow.read(log, columns, skipped=skipped, **reading):
            if across_partitions:
                timestamps = _numbers(batch["timestamp"].fill_null(_NO_TIMESTAMP))
            offsets = _numbers(batch["offset"])
            found.offsets.add(batch.num_rows, _keys(batch), offsets, timestamps, shift)
    return found


def _keys(batch: pa.RecordBatch) -> tuple[int, Any, Any, Any]:
    """Return the buffers of a batch's keys."""
    keys = batch["key"]
    return (keys.offset, *keys.buffers())


def _numbers(column: pa.Array) -> memoryview:
    """Return 64-bit values without null as a buffer that begins with the first row."""
    buffer: pa.Buffer = column.buffers()[1]
    return memoryview(buffer.slice(8 * column.offset, 8 * len(column)))


def _joined(
    batches: Iterator[pa.RecordBatch], batch_rows: int, batch_bytes: int
) -> Iterator[pa.RecordBatch]:
    """Join small batches, and divide those of more than `batch_rows`."""
    kept: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        kept.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows >= batch_rows or size >= batch_bytes:
            yield from _as_one(kept, batch_rows)
            kept, rows, size = [], 0, 0
    yield from _as_one(kept, batch_rows)


def _as_one(batches: list[pa.RecordBatch], batch_rows: int) -> Iterator[pa.RecordBatch]:
    if batches:
        joined = pa.Table.from_batches(batches).combine_chunks()
        yield from joined.to_batches(max_chunksize=batch_rows)
