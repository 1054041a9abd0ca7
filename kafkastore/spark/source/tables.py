"""Tables of batches, segments, index entries, aborted transactions, commits.

============================  ==========================================================
option ``table``              a row is
============================  ==========================================================
``batches``                   the header of a record batch
``segments``                  a segment
``time_index``                an entry of a ``.timeindex``
``offset_index``              an entry of an ``.index``
``transactions``              an aborted transaction, an entry of a ``.txnindex``
``committed_offsets``         the newest offset that a group has committed for a partition
============================  ==========================================================

Columns have the names of the JSON of ``kafkastore ls`` and ``kafkastore dump``. Times are
timestamps, null if missing. Spark sees every column as nullable.
"""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from kafkastore.segment.log_segment import LogSegment
from kafkastore.spark.by_value import SentByValue
from kafkastore.spark.source.options import OptionError, OptionProblem, ReadOptions
from kafkastore.spark.source.planning import chosen
from kafkastore.spark.source.short_errors import short_errors
from kafkastore.spark.source.slice_reading import joined
from kafkastore.spark.source.slices import END, OPENING_BYTES, SlicePack, pack, task_bytes
from kafkastore.spark.source.table_rows import (
    TIMESTAMP,
    SegmentRange,
    index_path,
    of_batches,
    of_commits,
    of_entries,
    of_segments,
)
from kafkastore.store.log_store import LogStore, open_store
from kafkastore.store.partition_log import PartitionLog
from kafkastore.use_cases.committed_offsets import CONSUMER_OFFSETS, NoCommittedOffsetsError

_PLACE = [("topic", pa.string()), ("partition", pa.int32())]
_SLOT = [*_PLACE, ("segment", pa.int64()), ("slot", pa.int32())]

#: The columns of each table except ``records``, in order.
SCHEMAS = {
    "batches": pa.schema([
        *_PLACE,
        ("segment", pa.int64()),
        ("position", pa.int64()),
        ("size", pa.int32()),
        ("base_offset", pa.int64()),
        ("last_offset", pa.int64()),
        ("magic", pa.int32()),
        ("codec", pa.string()),
        ("count", pa.int32()),
        ("max_timestamp", TIMESTAMP),
        ("timestamp_type", pa.string()),
        ("leader_epoch", pa.int32()),
        ("producer_id", pa.int64()),
        ("producer_epoch", pa.int32()),
        ("base_sequence", pa.int32()),
        ("is_transactional", pa.bool_()),
        ("is_control", pa.bool_()),
        ("control_type", pa.string()),
        ("delete_horizon", TIMESTAMP),
        ("crc", pa.int64()),
        ("crc_valid", pa.bool_()),
    ]),
    "segments": pa.schema([
        *_PLACE,
        ("path", pa.string()),
        ("base_offset", pa.int64()),
        ("next_offset", pa.int64()),
        ("is_active", pa.bool_()),
        ("first_timestamp", TIMESTAMP),
        ("largest_timestamp", TIMESTAMP),
        ("modified", TIMESTAMP),
        ("size", pa.int64()),
        ("index", pa.int64()),
        ("timeindex", pa.int64()),
    ]),
    "time_index": pa.schema([*_SLOT, ("timestamp", TIMESTAMP), ("offset", pa.int64())]),
    "offset_index": pa.schema([*_SLOT, ("offset", pa.int64()), ("position", pa.int32())]),
    "transactions": pa.schema([
        *_SLOT,
        ("producer_id", pa.int64()),
        ("first_offset", pa.int64()),
        ("last_offset", pa.int64()),
        ("last_stable_offset", pa.int64()),
    ]),
    "committed_offsets": pa.schema([
        *_PLACE,
        ("group", pa.string()),
        ("offset", pa.int64()),
        ("leader_epoch", pa.int32()),
        ("metadata", pa.string()),
        ("commit_timestamp", TIMESTAMP),
        ("expire_timestamp", TIMESTAMP),
        ("topic_id", pa.string()),
    ]),
}
_ROWS = {
    "batches": of_batches,
    "segments": of_segments,
    "time_index": of_entries,
    "offset_index": of_entries,
    "transactions": of_entries,
    "committed_offsets": of_commits,
}
#: The approximate cost of a segment's row, as bytes that could be read in that time.
SEGMENT_BYTES = 1 << 16


def table_schema(table: str, columns: Sequence[str] | None = None) -> StructType:
    """Return the schema of a table's frame, in the order of the table.

    `columns` may be in any order; `table` is a key of `SCHEMAS`. Raises `OptionError` if a column
    is unknown.

    >>> table_schema("offset_index", ["position", "offset"]).simpleString()
    'struct<offset:bigint,position:int>'
    """
    known = SCHEMAS[table]
    chosen = known.names if columns is None else columns
    for name in chosen:
        if name not in known.names:
            raise OptionError(
                f"option columns: no column {name!r} in the table {table}; there are "
                f"{', '.join(known.names)}",
                OptionProblem.NOT_FOUND, "columns",
            )
    return from_arrow_schema(pa.schema([field for field in known if field.name in chosen]))


class TableReader(SentByValue, DataSourceReader):
    """Plans a table's read, and executes it in tasks; yields `columns`, in order."""

    def __init__(self, options: ReadOptions, columns: tuple[str, ...]) -> None:
        self.options = options
        self.columns = columns

    @short_errors()
    def partitions(self) -> list[InputPartition]:
        """Divide the chosen partitions between segments into tasks, by the bytes to read."""
        logs = self._logs(open_store(list(self.options.paths)))
        segments = [(log, log.retry_if_changed(partial(self._weighed, log))) for log in logs]
        total = sum(weight for _, each in segments for _, weight in each)
        wanted = self.options.min_partitions
        size = task_bytes(total + OPENING_BYTES * len(segments), wanted)
        # The commits of a partition are only known after reading all of it.
        is_whole = self.options.table == "committed_offsets" or (
            self.options.table == "batches" and self.options.stops_partitions
        )
        largest = END if is_whole else min(size, total // wanted)
        ranges = (one for log, each in segments for one in _ranges(log, each, largest))
        return list(pack(ranges, size))

    def _logs(self, store: LogStore) -> list[PartitionLog]:
        """Return the partitions to read."""
        if self.options.table != "committed_offsets":
            return [store.partitions[each] for each in chosen(store, self.options)]
        logs = [store.partitions[each] for each in store.partitions
                if each.topic == CONSUMER_OFFSETS]
        if not logs:
            raise NoCommittedOffsetsError(
                f"there is no partition of {CONSUMER_OFFSETS} in {' and '.join(self.options.paths)}"
            )
        return logs

    def _weighed(self, log: PartitionLog) -> list[tuple[LogSegment, int]]:
        """Return the segments to read, each with an estimate of the bytes to read."""
        table = self.options.table
        if table == "segments":
            return [(segment, SEGMENT_BYTES) for segment in log.segments]
        if table in ("batches", "committed_offsets"):
            return [(each, each.size) for each in log.segments_between(log.log_start_offset, END)]
        sizes = ((each, index_path(each, table)) for each in log.segments)
        return [(each, _size_of(path)) for each, path in sizes if path.name in log.files]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one task."""
        if not isinstance(partition, SlicePack):
            return  # Spark reads one partition even if none is planned
        with short_errors():
            yield from joined(
                batch
                for each in partition.slices
                if isinstance(each, SegmentRange)
                for batch in self._read(each)
            )

    def _read(self, segments: SegmentRange) -> Iterator[pa.RecordBatch]:
        """Yield the rows of some segments."""
        known = SCHEMAS[self.options.table]
        schema = pa.schema([known.field(name) for name in self.columns])
        same = {} if self.options.table == "committed_offsets" else _place(segments)
        names = [name for name in self.columns if name not in same]
        # If no column is requested, one is still needed to count rows.
        asked = names or [next(name for name in known.names if name not in same)]
        for columns in _ROWS[self.options.table](segments, asked, self.options):
            rows = len(columns[asked[0]])
            if not rows:
                continue
            for name, value in same.items():
                columns[name] = pa.repeat(value, rows)
            arrays = [columns[name].cast(known.field(name).type) for name in self.columns]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _place(segments: SegmentRange) -> dict[str, pa.Scalar]:
    """Return the columns with the same value in all rows of a partition."""
    return {"topic": pa.scalar(segments.topic), "partition": pa.scalar(segments.partition)}


def _size_of(path: Path) -> int:
    """Return the size of a file that may be deleted meanwhile."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _ranges(
    log: PartitionLog, segments: Sequence[tuple[LogSegment, int]], largest: int
) -> Iterator[SegmentRange]:
    """Combine successive segments up to a number of bytes; never divide one."""
    if not segments:
        return
    root = None if log.log_dir is None else str(log.log_dir.path)
    start, waiting = segments[0][0].base_offset, 0

    def until(end: int) -> SegmentRange:
        return SegmentRange(
            str(log.path), log.topic, log.partition, start, end, waiting,
            root=root, log_start_offset=log.log_start_offset,
        )

    for segment, size in segments:
        if waiting and waiting + size > largest:
            yield until(segment.base_offset)
            start, waiting = segment.base_offset, 0
        waiting += size
    yield until(END)
