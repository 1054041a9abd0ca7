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
from itertools import chain
from typing import Any, TypedDict

import pyarrow as pa
import pyarrow.compute as pc

from kafkastore.formats.records.latest_offsets import LatestOffsets
from kafkastore.formats.records.record_columns import BATCH_BYTES, BATCH_ROWS
from kafkastore.formats.state.file_names import TopicPartition
from kafkastore.log.damage import OnCorrupt, SkippedBytes
from kafkastore.log.log_view import LogView
from kafkastore.log.records_as_arrow import ArrowOptions, as_text, first_rows, read
from kafkastore.segment.index_trust import Indexes


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

    All partitions are added, and then read. A key that is in several belongs to the one with its
    newest record by timestamp, and to the last added of these if several are equally new.
    `options` say which records count, and which columns are read; `limit` has no effect.
    """

    def __init__(
        self, options: ArrowOptions, *, across_partitions: bool, include_tombstones: bool = False
    ) -> None:
        self._offsets = LatestOffsets(os.urandom(16), across_partitions=across_partitions)
        self._across_partitions, self._include_tombstones = across_partitions, include_tombstones
        self._options = options
        self._reading = replace(
            options,
            include_headers=False,
            decode=None,
            isolation="read_committed",
            limit=None,
            batch_rows=BATCH_ROWS,
            batch_bytes=BATCH_BYTES,
        )
        self._shifts: dict[TopicPartition, int] = {}

    def add(self, log: LogView) -> None:
        """Read the keys of a partition, and note the last record of each."""
        columns = ["key", "offset", *(["timestamp"] if self._across_partitions else [])]
        self._shifts[log.topic_partition] = shift = self._offsets.end_place
        timestamps = None
        for batch in read(log, replace(self._reading, columns=columns, exact=True)):
            if self._across_partitions:
                timestamps = _numbers(batch["timestamp"])
            offsets = _numbers(batch["offset"])
            self._offsets.add(batch.num_rows, _keys(batch), offsets, timestamps, shift)

    def read(self, log: LogView) -> Iterator[pa.RecordBatch]:
        """Yield the last records that are in a partition which was added."""
        return _joined(self._read(log), self._options)

    def _read(self, log: LogView) -> Iterator[pa.RecordBatch]:
        """Yield them in batches of any size."""
        # Values that nobody asked for only show which records are tombstones.
        needed = [*self._options.schema.names, "key", "offset"]
        if not self._include_tombstones:
            needed.append("value")
        # The first pass has noted the corrupt bytes.
        skipped = [] if self._options.skipped is None else self._options.skipped
        shift = self._shifts[log.topic_partition]
        reading = replace(self._reading, columns=needed, skipped=skipped)
        for batch in read(log, reading):
            rows, offsets = batch.num_rows, _numbers(batch["offset"])
            is_last = self._offsets.find_latest(rows, _keys(batch), offsets, shift)
            mask = pa.Array.from_buffers(pa.bool_(), rows, [None, pa.py_buffer(is_last)])
            if not self._include_tombstones:
                mask = pc.and_(mask, batch["value"].is_valid())
            if mask.true_count:
                yield self._as_asked(batch.filter(mask))

    def _as_asked(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the columns that were asked for, as text if so."""
        if self._options.decode is None:
            return batch.select(self._options.schema.names)
        arrays = [
            as_text(batch[name]) if pa.types.is_binary(batch[name].type) else batch[name]
            for name in self._options.schema.names
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._options.schema)


def read_latest(
    logs: Iterable[LogView], options: ArrowOptions, *, include_tombstones: bool = False
) -> Iterator[pa.RecordBatch]:
    """Read the last record of each key, log by log; see `PartitionLog.latest`."""
    logs = tuple(logs)
    latest = LatestRecords(
        options, across_partitions=len(logs) > 1, include_tombstones=include_tombstones
    )
    for log in logs:
        latest.add(log)
    batches = chain.from_iterable(map(latest.read, logs))
    yield from batches if options.limit is None else first_rows(batches, options.limit)


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
