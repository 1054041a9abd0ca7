"""Read the last record of each key, as compaction would leave a topic.

Two passes read the same records: the first notes the last offset of each key, the second keeps the
records at these offsets.

Source: Kafka 2.4.0 ``Cleaner.buildOffsetMap``, ``Cleaner.shouldRetainRecord``.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import datetime
from typing import Any, TypedDict

from kafkastore.errors import MissingExtraError
from kafkastore.formats.records.latest_offsets import LatestOffsets
from kafkastore.formats.records.record_columns import BATCH_BYTES, BATCH_ROWS
from kafkastore.formats.state.file_names import TopicPartition
from kafkastore.log.damage import OnCorrupt, SkippedBytes
from kafkastore.log.log_view import LogView
from kafkastore.log.record_reading import first_rows, read
from kafkastore.log.records_as_arrow import ArrowOptions, as_text
from kafkastore.segment.index_trust import Indexes

try:
    import pyarrow as pa
    import pyarrow.compute as pc
except ModuleNotFoundError as missing:
    raise MissingExtraError("pyarrow", "arrow") from missing


class LatestArguments(TypedDict, total=False):
    """The arguments of `PartitionLog.latest` that make sense for several logs."""

    start_offset: int | None
    end_offset: int | None
    start_timestamp: int | datetime | None
    end_timestamp: int | datetime | None
    limit: int | None
    include_headers: bool
    decode: str | None
    batch_rows: int
    batch_bytes: int
    verify: bool
    max_decompressed_bytes: int
    on_corrupt: OnCorrupt
    skipped: list[SkippedBytes] | None
    indexes: Indexes
    threads: int | None


class LatestRecords:
    """The last record of each key in the partitions of one topic.

    All partitions are added, and then read; the options of both calls say which records count,
    except that aborted and undecided ones never do. A key that is in several partitions belongs to
    the one with its newest record by timestamp, and to the last added of these if several are
    equally new.
    """

    def __init__(self, *, across_partitions: bool) -> None:
        self._offsets = LatestOffsets(os.urandom(16), across_partitions=across_partitions)
        self._across_partitions = across_partitions
        self._shifts: dict[TopicPartition, int] = {}

    def add(self, log: LogView, options: ArrowOptions) -> None:
        """Read the keys of a partition, and note the last record of each."""
        columns = ["key", "offset", *(["timestamp"] if self._across_partitions else [])]
        self._shifts[log.topic_partition] = shift = self._offsets.end_place
        timestamps = None
        for batch in read(log, replace(_of_all_keys(options), columns=columns, exact=True)):
            if self._across_partitions:
                timestamps = _numbers(batch["timestamp"])
            offsets = _numbers(batch["offset"])
            self._offsets.add(batch.num_rows, _keys(batch), offsets, timestamps, shift)

    def read(
        self, log: LogView, options: ArrowOptions, *, include_tombstones: bool = False
    ) -> Iterator[pa.RecordBatch]:
        """Yield the last records in a partition that was added; ignore the limit."""
        batches = self._read(log, options, include_tombstones)
        return _joined(batches, options.batch_rows, options.batch_bytes)

    def newest_timestamps(self, batch: pa.RecordBatch) -> pa.Array:
        """Return the newest timestamp of each row's key in its partition, in ms.

        The rows have a column `key` of binary keys; the records must be read across partitions.
        """
        newest = self._offsets.newest_timestamps(batch.num_rows, _keys(batch))
        return pa.Array.from_buffers(pa.int64(), batch.num_rows, [None, pa.py_buffer(newest)])

    def _read(
        self, log: LogView, options: ArrowOptions, include_tombstones: bool
    ) -> Iterator[pa.RecordBatch]:
        """Yield them in batches of any size."""
        needed = [*options.schema.names, "key", "offset"]
        if not include_tombstones:
            needed.append("value")  # if it was not asked for, it only shows tombstones
        shift = self._shifts[log.topic_partition]
        for batch in read(log, replace(_of_all_keys(options), columns=needed)):
            rows, offsets = batch.num_rows, _numbers(batch["offset"])
            is_last = self._offsets.find_latest(rows, _keys(batch), offsets, shift)
            mask = pa.Array.from_buffers(pa.bool_(), rows, [None, pa.py_buffer(is_last)])
            if not include_tombstones:
                mask = pc.and_(mask, batch["value"].is_valid())
            if mask.true_count:
                yield _as_asked(batch.filter(mask), options)


def read_latest(
    logs: Iterable[LogView], options: ArrowOptions, *, include_tombstones: bool = False
) -> Iterator[pa.RecordBatch]:
    """Read the last record of each key, log by log; see `PartitionLog.latest`."""
    logs = tuple(logs)
    latest = LatestRecords(across_partitions=len(logs) > 1)
    for log in logs:
        latest.add(log, options)
    # The first pass has noted the corrupt bytes.
    options = replace(options, skipped=[] if options.skipped is None else options.skipped)
    batches = (
        batch
        for log in logs
        for batch in latest.read(log, options, include_tombstones=include_tombstones)
    )
    yield from batches if options.limit is None else first_rows(batches, options.limit)


def _of_all_keys(options: ArrowOptions) -> ArrowOptions:
    """Return the options by which both passes read: bytes of all committed records."""
    return replace(
        options,
        include_headers=False,
        isolation="read_committed",
        binary_view=False,
        decode=None,
        limit=None,
        batch_rows=BATCH_ROWS,
        batch_bytes=BATCH_BYTES,
    )


def _as_asked(batch: pa.RecordBatch, options: ArrowOptions) -> pa.RecordBatch:
    """Return the columns that were asked for, with their types."""
    arrays = [batch[name] for name in options.schema.names]
    if not arrays or (options.decode is None and not options.binary_view):
        return batch.select(options.schema.names)
    if options.decode is not None:
        arrays = [as_text(each) if pa.types.is_binary(each.type) else each for each in arrays]
    kinds = options.schema.types
    arrays = [each.cast(kind) for each, kind in zip(arrays, kinds, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=options.schema)


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
    """Join small batches, and divide those of too many rows."""
    kept: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        kept.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows >= batch_rows or size >= batch_bytes:
            yield from _as_one(kept, batch_rows)
            kept, rows, size = [], 0, 0
    yield from _as_one(kept, batch_rows)


def _as_one(batches: list[pa.RecordBatch], most_rows: int) -> Iterator[pa.RecordBatch]:
    if batches:
        joined = pa.Table.from_batches(batches).combine_chunks()
        yield from joined.to_batches(max_chunksize=most_rows)
