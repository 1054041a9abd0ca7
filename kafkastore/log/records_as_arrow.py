"""Read a partition's records into Arrow record batches.

Records are decoded directly into Arrow's buffers.
"""
from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypedDict

import pyarrow as pa

from kafkastore.arguments import INT64_MIN, check_collection, whole_number
from kafkastore.caching import cached_property
from kafkastore.errors import ArgumentValueError, CorruptionError, KafkaStoreError, SegmentGoneError
from kafkastore.formats.records.decompression import MAX_DECOMPRESSED_BYTES
from kafkastore.formats.records.record_columns import (
    BATCH_BYTES,
    BATCH_ROWS,
    HEADERS_COLUMN,
    KAFKA_COLUMNS,
    OTHER_COLUMNS,
    RecordColumns,
)
from kafkastore.log.damage import CorruptionHandler, OnCorrupt, SkippedBytes, check_on_corrupt
from kafkastore.log.isolation import Isolation, find_aborted, find_committed, reads_committed
from kafkastore.log.log_view import LogView
from kafkastore.log.range_scan import SMALL_RANGE, RangeScan, ScannedRun
from kafkastore.segment.index_trust import DEFAULT_INDEXES, Indexes, check_indexes

if TYPE_CHECKING:
    from kafkastore.formats.state.transactions import AbortedBatches
    from kafkastore.segment.log_segment import LogSegment

HEADERS_TYPE = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
COLUMN_TYPES = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestampType": pa.int32(),
    HEADERS_COLUMN: HEADERS_TYPE,
    "leader_epoch": pa.int32(),
    "producer_id": pa.int64(),
    "producer_epoch": pa.int32(),
    "is_transactional": pa.bool_(),
    "is_control": pa.bool_(),
}

VIEW_TYPES = {"key": pa.binary_view(), "value": pa.binary_view()}
#: Types without loss: ms of any size, and header names as bytes, which need not be UTF-8.
EXACT_TYPES = {
    "timestamp": pa.int64(),
    HEADERS_COLUMN: pa.list_(pa.struct([("key", pa.binary()), ("value", pa.binary())])),
}
#: The type of a dictionary-encoded `topic`.
DICTIONARY_TYPE = pa.dictionary(pa.int32(), pa.string())

#: The smallest value of each number among `ArrowOptions`.
_WHOLE_NUMBERS = {
    "start_offset": INT64_MIN,
    "end_offset": INT64_MIN,
    "start_timestamp": INT64_MIN,
    "end_timestamp": INT64_MIN,
    "known_end_offset": INT64_MIN,
    "limit": 0,
    "batch_rows": 1,
    "batch_bytes": 1,
    "max_decompressed_bytes": 0,
}
#: Those that are never None.
_NEEDED = ("batch_rows", "batch_bytes", "max_decompressed_bytes")


def schema(
    columns: Sequence[str] | None = None,
    *,
    include_headers: bool = False,
    binary_view: bool = False,
    dictionary: bool = False,
    exact: bool = False,
) -> pa.Schema:
    """Return the Arrow schema of records: the columns of Spark's Kafka source.

    They are in the source's order. `include_headers` adds `headers` if `columns` is not given.
    `binary_view` is the type of `key` and `value`; `dictionary` encodes `topic`; `exact`:
    `EXACT_TYPES`.
    """
    check_collection("columns", columns)
    known = (*KAFKA_COLUMNS, HEADERS_COLUMN, *OTHER_COLUMNS)
    if columns is None:
        columns = (*KAFKA_COLUMNS, HEADERS_COLUMN) if include_headers else KAFKA_COLUMNS
    unknown = [name for name in columns if name not in known]
    if unknown:
        raise ArgumentValueError("columns", f"among {', '.join(known)}", unknown)
    types = COLUMN_TYPES | (VIEW_TYPES if binary_view else {}) | (EXACT_TYPES if exact else {})
    if dictionary:
        types["topic"] = DICTIONARY_TYPE
    return pa.schema([(name, types[name]) for name in known if name in columns])


class ArrowArguments(TypedDict, total=False):
    """The arguments of `PartitionLog.to_arrow` that make sense for several logs."""

    start_offset: int | None
    end_offset: int | None
    start_timestamp: int | None
    end_timestamp: int | None
    limit: int | None
    include_headers: bool
    include_control: bool
    isolation: Isolation
    binary_view: bool
    batch_rows: int
    batch_bytes: int
    verify: bool
    max_decompressed_bytes: int
    on_corrupt: OnCorrupt
    skipped: list[SkippedBytes] | None
    indexes: Indexes


@dataclass(frozen=True, eq=False, kw_only=True)
class ArrowOptions:
    """The arguments of `PartitionLog.to_arrow`, checked.

    `all_topics`: dictionary-encode `topic`, with these as the dictionary of every batch. `exact` is
    as for `schema`.
    """

    columns: Sequence[str] | None = None
    start_offset: int | None = None
    end_offset: int | None = None
    start_timestamp: int | None = None
    end_timestamp: int | None = None
    limit: int | None = None
    include_headers: bool = False
    include_control: bool = False
    isolation: Isolation = "read_uncommitted"
    is_decided: bool = False
    binary_view: bool = False
    all_topics: tuple[str, ...] | None = None
    exact: bool = False
    batch_rows: int = BATCH_ROWS
    batch_bytes: int = BATCH_BYTES
    verify: bool = True
    max_decompressed_bytes: int = MAX_DECOMPRESSED_BYTES
    on_corrupt: OnCorrupt = "raise"
    skipped: list[SkippedBytes] | None = None
    known_end_offset: int | None = None
    indexes: Indexes = DEFAULT_INDEXES

    def __post_init__(self) -> None:
        for name, smallest in _WHOLE_NUMBERS.items():
            if getattr(self, name) is not None or name in _NEEDED:
                object.__setattr__(self, name, whole_number(name, getattr(self, name), smallest))
        check_on_corrupt(self.on_corrupt)
        reads_committed(self.isolation)
        check_indexes(self.indexes)
        if self.columns is not None:
            check_collection("columns", self.columns)
            object.__setattr__(self, "columns", tuple(self.columns))
        _ = self.schema

    @cached_property
    def schema(self) -> pa.Schema:
        """The schema of the batches."""
        return schema(
            self.columns,
            include_headers=self.include_headers,
            binary_view=self.binary_view,
            dictionary=self.all_topics is not None,
            exact=self.exact,
        )


def read(log: LogView, options: ArrowOptions) -> Iterator[pa.RecordBatch]:
    """Read a log into Arrow; see `PartitionLog.to_arrow`.

    Nothing is read before the first batch is asked for.
    """
    limit, isolation, verify = options.limit, options.isolation, options.verify
    start, end = log.bounds(options.start_offset, options.end_offset)
    damage = CorruptionHandler(options.on_corrupt, options.skipped)
    aborted = broken = None
    if reads_committed(isolation) and options.is_decided:
        aborted = log.retry_if_changed(lambda: find_aborted(log, start, end, verify=verify))
    elif reads_committed(isolation):
        end, aborted, broken = _find_committed(log, start, end, damage, verify=verify)
    limits: dict[str, Any] = {"start_offset": start, "end_offset": end}
    if options.start_timestamp is not None:
        limits["start_timestamp"] = options.start_timestamp
    if options.end_timestamp is not None:
        limits["end_timestamp"] = options.end_timestamp
    record_columns = RecordColumns(
        options.schema.names,
        include_control=options.include_control,
        binary_view=options.binary_view,
        in_millis=options.exact,
        max_rows=options.batch_rows if limit is None else max(min(options.batch_rows, limit), 1),
        max_bytes=options.batch_bytes,
        max_decompressed_bytes=options.max_decompressed_bytes,
        **limits,
    )
    may_reach = None
    # The timestamp of a record without one is -1.
    start_timestamp = options.start_timestamp
    if options.indexes == "trust" and start_timestamp is not None and start_timestamp >= 0:
        may_reach = partial(_may_reach, start_timestamp=start_timestamp)
    most_records = end - start if limit is None else min(limit, end - start)
    scan = RangeScan(log, start, end, damage, known_end_offset=options.known_end_offset)
    runs = scan.runs(
        verify_crc=verify,
        decodes=options.on_corrupt == "raise" and limits.keys() == {"start_offset", "end_offset"},
        few=most_records < SMALL_RANGE,
        mapped=options.binary_view,
        room=record_columns.room,
        is_wanted=may_reach,
    )
    arrow_batches = _ArrowBatches(options, log, record_columns)
    batches = _decode(runs, scan, arrow_batches, aborted, broken)
    yield from batches if limit is None else _first_rows(batches, limit)


def read_several(logs: Iterable[LogView], options: ArrowOptions) -> Iterator[pa.RecordBatch]:
    """Read logs one after the other; the limit is that of all together."""
    left = options.limit
    for log in logs:
        if left == 0:
            return
        for batch in read(log, options if left is None else replace(options, limit=left)):
            yield batch
            if left is not None:
                left -= batch.num_rows


def _find_committed(
    log: LogView, start: int, end: int, damage: CorruptionHandler, *, verify: bool
) -> tuple[int, AbortedBatches, CorruptionError | None]:
    """Find the end of decided offsets, the aborted batches, and what is corrupt."""
    last_stable_offset, aborted, broken = log.retry_if_changed(
        lambda: find_committed(log, start, end, verify=verify, until_broken=True, damage=damage)
    )
    return min(end, last_stable_offset), aborted, broken if end > last_stable_offset else None


def _decode(
    runs: Iterator[ScannedRun],
    scan: RangeScan,
    arrow: _ArrowBatches,
    aborted: AbortedBatches | None,
    broken: CorruptionError | None,
) -> Iterator[pa.RecordBatch]:
    """Yield the records of the batches of a scan that are not aborted."""
    start = scan.first_offset
    try:
        for scanned in runs:
            headers = scanned.headers
            if scan.first_offset > start:
                headers = headers[headers["last_offset"] >= scan.first_offset]
            if aborted is not None:
                headers = headers[~aborted.of(headers)]
            for is_full in scanned.of(headers).decode(arrow.columns):
                if is_full:
                    yield from arrow.take()
    except (KafkaStoreError, OSError):
        yield from arrow.take()
        raise
    yield from arrow.take()
    if broken is not None:  # after it, no offset is decided
        raise broken


def _may_reach(segment: LogSegment, start_timestamp: int) -> bool:
    """Return whether a time index allows records at or after a timestamp.

    The segment is open. Without a valid index the answer is True: finding out would take reading
    the segment.
    """
    try:
        largest = segment.largest_timestamp_by_index
    except SegmentGoneError:
        return True
    return largest is None or largest >= start_timestamp


def _first_rows(batches: Iterator[pa.RecordBatch], limit: int) -> Iterator[pa.RecordBatch]:
    """Yield at most `limit` rows, and read no batch after them."""
    left = limit
    while left > 0 and (batch := next(batches, None)) is not None:
        yield batch.slice(0, left)
        left -= batch.num_rows


class _ArrowBatches:
    """Build Arrow record batches from the buffers of `RecordColumns`."""

    def __init__(self, options: ArrowOptions, log: LogView, columns: RecordColumns) -> None:
        self.columns = columns
        self._schema = options.schema
        self._batch_rows = options.batch_rows
        # Cached: Arrow creates new objects at each access to fields and types.
        self._fields = [(field.name, field.type) for field in self._schema]
        self._same: dict[str, Any] = {"topic": log.topic, "partition": log.partition}
        self._all_topics = options.all_topics
        self._repeated: dict[str, pa.Array] = {}

    def take(self) -> Iterator[pa.RecordBatch]:
        """Yield the decoded rows, in batches of at most `batch_rows`."""
        rows, buffers = self.columns.take()
        if not rows:
            return
        arrays = [self._array(name, kind, rows, buffers) for name, kind in self._fields]
        if arrays:
            batch = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        else:  # no columns: only a number of rows
            nothing = pa.Array.from_buffers(pa.struct([]), rows, [None])
            batch = pa.RecordBatch.from_struct_array(nothing)
        if rows <= self._batch_rows:
            yield batch
        else:
            for first in range(0, rows, self._batch_rows):
                yield batch.slice(first, self._batch_rows)

    def _array(self, name: str, kind: pa.DataType, rows: int, buffers: dict[str, Any]) -> pa.Array:
        """Wrap one column's buffers as an Arrow array, without a copy."""
        if name in self._same:
            return self._repeat(name, kind, rows)
        parts = buffers[name]
        if name in ("key", "value"):
            return _binary(kind, rows, parts)
        if name == "timestamp":
            nulls, validity, values = parts
            return pa.Array.from_buffers(
                kind, rows, [_validity(validity), pa.py_buffer(values)], nulls
            )
        if name == HEADERS_COLUMN:
            nulls, validity, offsets, name_count, names, values = parts
            name_type, value_type = list(kind.value_type)
            is_exact = name_type.type == pa.binary()
            as_names = partial(_binary, pa.binary()) if is_exact else _text
            pairs = pa.StructArray.from_arrays(
                [as_names(name_count, names), _binary(pa.binary(), name_count, values)],
                fields=[name_type, value_type],
            )
            wrapped = [_validity(validity), pa.py_buffer(offsets)]
            return pa.Array.from_buffers(kind, rows, wrapped, nulls, children=[pairs])
        if name in ("is_transactional", "is_control"):
            bytes_array = pa.Array.from_buffers(pa.uint8(), rows, [None, pa.py_buffer(parts)], 0)
            return bytes_array.cast(pa.bool_())
        return pa.Array.from_buffers(kind, rows, [None, pa.py_buffer(parts)], 0)

    def _repeat(self, name: str, kind: pa.DataType, rows: int) -> pa.Array:
        """Return an array with the same value in every row."""
        made = self._repeated.get(name)
        if made is None or len(made) < rows:
            if name == "topic" and self._all_topics is not None:
                code = pa.scalar(self._all_topics.index(self._same[name]), kind.index_type)
                dictionary = pa.array(self._all_topics, kind.value_type)
                made = pa.DictionaryArray.from_arrays(pa.repeat(code, rows), dictionary)
            else:
                made = pa.repeat(pa.scalar(self._same[name], kind), rows)
            self._repeated[name] = made
        return made.slice(0, rows)


def _validity(bits: Any) -> pa.Buffer | None:
    return None if bits is None else pa.py_buffer(bits)


def _binary(kind: pa.DataType, rows: int, parts: tuple[int, Any, Any, Any]) -> pa.Array:
    nulls, validity, places, content = parts
    buffers = content if isinstance(content, list) else [content]
    wrapped = [_validity(validity), pa.py_buffer(places), *map(pa.py_buffer, buffers)]
    return pa.Array.from_buffers(kind, rows, wrapped, nulls)


def _text(rows: int, parts: tuple[int, Any, Any, Any]) -> pa.Array:
    """Wrap UTF-8 strings; invalid bytes become U+FFFD, as in a Java consumer."""
    texts = _binary(pa.string(), rows, parts)
    try:
        texts.validate(full=True)
    except pa.ArrowInvalid:
        names = texts.view(pa.binary()).to_pylist()
        return pa.array([name.decode("utf-8", "replace") for name in names], pa.string())
    return texts
