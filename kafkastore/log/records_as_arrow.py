"""Read a partition's records into Arrow record batches.

Records are decoded directly into Arrow's buffers.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, TypedDict, cast

import pyarrow as pa

from kafkastore.arguments import (
    INT64_MAX,
    INT64_MIN,
    check_choice,
    check_collection,
    thread_count,
    timestamp_ms,
    whole_number,
)
from kafkastore.caching import cached_property
from kafkastore.errors import ArgumentValueError, CorruptionError, SegmentGoneError
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
from kafkastore.log.piece_reading import LogReading, read_parallel
from kafkastore.log.range_scan import SMALL_RANGE, RangeScan, first_offset_since
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
_STRING = pa.string()
_from_buffers, _py_buffer = pa.Array.from_buffers, pa.py_buffer
#: The encoding that keys and values can be decoded from.
UTF_8 = "utf-8"
#: The type of a dictionary-encoded `topic`.
DICTIONARY_TYPE = pa.dictionary(pa.int32(), pa.string())

#: A limit of fewer rows is read by one thread: others would read more than it.
MANY_ROWS = 1_000_000
#: The smallest value of each number among `ArrowOptions`.
_WHOLE_NUMBERS = {
    "start_offset": INT64_MIN,
    "end_offset": INT64_MIN,
    "known_end_offset": INT64_MIN,
    "limit": 0,
    "batch_rows": 1,
    "batch_bytes": 1,
    "max_decompressed_bytes": 0,
}
#: The times among them, which become ms since 1970.
_TIMESTAMPS = ("start_timestamp", "end_timestamp")
#: Those that are never None.
_NEEDED = ("batch_rows", "batch_bytes", "max_decompressed_bytes")


def schema(
    columns: Sequence[str] | None = None,
    *,
    include_headers: bool = False,
    binary_view: bool = False,
    exact: bool = False,
    dictionary: bool = False,
    decode: str | None = None,
) -> pa.Schema:
    """Return the Arrow schema of records: the columns of Spark's Kafka source.

    They are in the source's order. `include_headers` adds `headers` if `columns` is not given.
    `binary_view` and `exact`: `VIEW_TYPES`, `EXACT_TYPES`; `decode`: keys and values are text;
    `dictionary` encodes `topic`.
    """
    check_collection("columns", columns)
    known = (*KAFKA_COLUMNS, HEADERS_COLUMN, *OTHER_COLUMNS)
    if columns is None:
        columns = (*KAFKA_COLUMNS, HEADERS_COLUMN) if include_headers else KAFKA_COLUMNS
    unknown = [name for name in columns if name not in known]
    if unknown:
        raise ArgumentValueError("columns", f"among {', '.join(known)}", unknown)
    types = COLUMN_TYPES | (VIEW_TYPES if binary_view else {}) | (EXACT_TYPES if exact else {})
    if decode is not None:
        types |= dict.fromkeys(VIEW_TYPES, pa.string_view() if binary_view else pa.string())
    if dictionary:
        types["topic"] = DICTIONARY_TYPE
    return pa.schema([(name, types[name]) for name in known if name in columns])


class ScanArguments(TypedDict, total=False):
    """The arguments of `PartitionLog.to_arrow` for engines with their own limit."""

    start_offset: int | None
    end_offset: int | None
    start_timestamp: int | datetime | None
    end_timestamp: int | datetime | None
    include_headers: bool
    include_control: bool
    isolation: Isolation
    binary_view: bool
    decode: str | None
    batch_rows: int
    batch_bytes: int
    verify: bool
    max_decompressed_bytes: int
    on_corrupt: OnCorrupt
    skipped: list[SkippedBytes] | None
    threads: int | None


class ArrowArguments(ScanArguments, total=False):
    """The arguments of `PartitionLog.to_arrow` that make sense for several logs."""

    limit: int | None
    indexes: Indexes


@dataclass(frozen=True, eq=False, kw_only=True)
class ArrowOptions:
    """The arguments of `PartitionLog.to_arrow`, checked.

    `all_topics`: dictionary-encode `topic`, with these as the dictionary of every batch.
    """

    columns: Sequence[str] | None = None
    start_offset: int | None = None
    end_offset: int | None = None
    start_timestamp: int | datetime | None = None
    end_timestamp: int | datetime | None = None
    limit: int | None = None
    include_headers: bool = False
    include_control: bool = False
    isolation: Isolation = "read_uncommitted"
    is_decided: bool = False
    binary_view: bool = False
    exact: bool = False
    decode: str | None = None
    all_topics: tuple[str, ...] | None = None
    batch_rows: int = BATCH_ROWS
    batch_bytes: int = BATCH_BYTES
    verify: bool = True
    max_decompressed_bytes: int = MAX_DECOMPRESSED_BYTES
    on_corrupt: OnCorrupt = "raise"
    skipped: list[SkippedBytes] | None = None
    known_end_offset: int | None = None
    indexes: Indexes = DEFAULT_INDEXES
    threads: int | None = None

    def __post_init__(self) -> None:
        thread_count(self.threads)
        for name, smallest in _WHOLE_NUMBERS.items():
            if getattr(self, name) is not None or name in _NEEDED:
                object.__setattr__(self, name, whole_number(name, getattr(self, name), smallest))
        for name in _TIMESTAMPS:
            if (time := getattr(self, name)) is not None:
                object.__setattr__(self, name, timestamp_ms(name, time))
        check_on_corrupt(self.on_corrupt)
        reads_committed(self.isolation)
        if self.decode is not None:
            check_choice("decode", self.decode, (UTF_8,))
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
            exact=self.exact,
            dictionary=self.all_topics is not None,
            decode=self.decode,
        )

    @property
    def has_few_offsets(self) -> bool:
        """Whether the range of offsets is so small that threads would read more than it."""
        start, end = self.start_offset, self.end_offset
        return start is not None and end is not None and end - start < SMALL_RANGE


def read(log: LogView, options: ArrowOptions) -> Iterator[pa.RecordBatch]:
    """Read a log into Arrow; see `PartitionLog.to_arrow`.

    Nothing is read before the first batch is asked for.
    """
    reading = _open(log, options)
    limit, threads = options.limit, thread_count(options.threads)
    if threads == 1 or reading.is_small or _is_small(limit):
        batches = reading.in_order()
    else:
        batches = read_parallel([reading], threads, partial(_columns, options))
    yield from batches if limit is None else first_rows(batches, limit)


def read_many(logs: Iterable[LogView], options: ArrowOptions) -> Iterator[pa.RecordBatch]:
    """Read several logs into Arrow, one after the other.

    Each log is taken from `logs` when a thread is free for it, a few before their rows are. The
    limit is that of all of them. An error in one log is raised after the rows before it.
    """
    limit, threads = options.limit, thread_count(options.threads)
    if threads == 1 or _is_small(limit) or options.has_few_offsets:
        batches = _one_by_one(logs, options)
    else:
        batches = read_parallel(_opened(logs, options), threads, partial(_columns, options))
    yield from batches if limit is None else first_rows(batches, limit)


def _is_small(limit: int | None) -> bool:
    """Return whether threads are not worth their start for so many rows."""
    return limit is not None and limit < MANY_ROWS


def _one_by_one(logs: Iterable[LogView], options: ArrowOptions) -> Iterator[pa.RecordBatch]:
    """Read logs in this thread."""
    left = options.limit
    for log in logs:
        if left == 0:
            return
        reading = _open(log, options if left is None else replace(options, limit=left))
        for batch in reading.in_order():
            left = None if left is None else max(left - batch.num_rows, 0)
            yield batch


def _opened(
    logs: Iterable[LogView], options: ArrowOptions
) -> Iterator[LogReading | Exception]:
    """Yield the reading of each log; an error as a value, the last one."""
    try:
        for log in logs:
            yield _open(log, options)
    except Exception as error:  # raised when the rows before it are taken
        yield error


def _open(log: LogView, options: ArrowOptions) -> LogReading:
    """Find the bounds of a read."""
    limit, isolation, verify = options.limit, options.isolation, options.verify
    start, end = log.bounds(options.start_offset, options.end_offset)
    damage = CorruptionHandler(options.on_corrupt, options.skipped)
    start_timestamp = cast("int | None", options.start_timestamp)
    may_reach = None
    # The timestamp of a record without one is -1.
    if options.indexes == "trust" and start_timestamp is not None and start_timestamp >= 0:
        may_reach = partial(_may_reach, start_timestamp=start_timestamp)
        if options.on_corrupt == "raise":  # else the bytes that are skipped are reported
            since = partial(_start_since, log, start, end, start_timestamp)
            start = log.retry_if_changed(since)
    aborted = broken = None
    if reads_committed(isolation) and options.is_decided:
        aborted = log.retry_if_changed(lambda: find_aborted(log, start, end, verify=verify))
    elif reads_committed(isolation):
        end, aborted, broken = _find_committed(log, start, end, damage, verify=verify)
    most_records = end - start if limit is None else min(limit, end - start)
    return LogReading(
        log,
        RangeScan(log, start, end, damage, known_end_offset=options.known_end_offset),
        (start, end),
        partial(_columns, options, start, end),
        _ArrowBatches(options, log).take,
        aborted=aborted,
        broken=broken,
        is_wanted=may_reach,
        few=most_records < SMALL_RANGE,
        reading={
            "verify_crc": verify,
            "decodes": options.on_corrupt == "raise"
            and start_timestamp is None
            and options.end_timestamp is None,
            "mapped": options.binary_view,
        },
    )


def _columns(
    options: ArrowOptions, start_offset: int = 0, end_offset: int = INT64_MAX
) -> RecordColumns:
    """Make columns for a range of offsets, or one that is set later."""
    settings: dict[str, Any] = {}
    for name in _TIMESTAMPS:
        if (time := getattr(options, name)) is not None:
            settings[name] = time
    rows, limit = options.batch_rows, options.limit
    return RecordColumns(
        options.schema.names,
        start_offset=start_offset,
        end_offset=end_offset,
        include_control=options.include_control,
        binary_view=options.binary_view,
        in_millis=options.exact,
        max_rows=rows if limit is None else max(min(rows, limit), 1),
        max_bytes=options.batch_bytes,
        max_decompressed_bytes=options.max_decompressed_bytes,
        **settings,
    )


def _find_committed(
    log: LogView, start: int, end: int, damage: CorruptionHandler, *, verify: bool
) -> tuple[int, AbortedBatches, CorruptionError | None]:
    """Find the end of decided offsets, the aborted batches, and what is corrupt."""
    last_stable_offset, aborted, broken = log.retry_if_changed(
        lambda: find_committed(log, start, end, verify=verify, until_broken=True, damage=damage)
    )
    return min(end, last_stable_offset), aborted, broken if end > last_stable_offset else None


def _start_since(log: LogView, start: int, end: int, timestamp: int) -> int:
    """Return a range's first offset that may reach a timestamp, or its end."""
    for segment in log.segments_between(start, end):
        first = first_offset_since(segment, timestamp, start)
        if first is not None:
            return min(first, end)
    return end


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


def first_rows(batches: Iterator[pa.RecordBatch], limit: int) -> Iterator[pa.RecordBatch]:
    """Yield at most `limit` rows, and read no batch after them."""
    left = limit
    while left > 0 and (batch := next(batches, None)) is not None:
        yield batch.slice(0, left)
        left -= batch.num_rows


class _ArrowBatches:
    """Build Arrow record batches from the buffers of `RecordColumns`."""

    def __init__(self, options: ArrowOptions, log: LogView) -> None:
        self._schema = options.schema
        self._batch_rows = options.batch_rows
        self._is_binary = options.decode is None
        self._same: dict[str, Any] = {"topic": log.topic, "partition": log.partition}
        self._all_topics = options.all_topics
        self._repeated: dict[str, pa.Array] = {}
        self._columns = [(field.name, self._maker(field)) for field in self._schema]

    def take(self, columns: RecordColumns) -> list[pa.RecordBatch]:
        """Return the decoded rows, in batches of at most `batch_rows`."""
        rows, buffers = columns.take()
        if not rows:
            return []
        arrays = [make(rows, buffers.get(name)) for name, make in self._columns]
        if arrays:
            batch = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        else:  # no columns: only a number of rows
            nothing = pa.Array.from_buffers(pa.struct([]), rows, [None])
            batch = pa.RecordBatch.from_struct_array(nothing)
        size = self._batch_rows
        if rows <= size:
            return [batch]
        return [batch.slice(first, size) for first in range(0, rows, size)]

    def _maker(self, field: pa.Field) -> Callable[[int, Any], pa.Array]:
        """Return what wraps one column's buffers as an Arrow array, without a copy."""
        name, kind = field.name, field.type
        if name in self._same:
            return partial(self._repeat, name, kind)
        if name in ("key", "value"):
            return partial(_binary if self._is_binary else _text, kind)
        if name == "timestamp":
            return partial(_timestamps, kind)
        if name == HEADERS_COLUMN:
            return partial(_headers, kind)
        if name in ("is_transactional", "is_control"):
            return _booleans
        return partial(_numbers, kind)

    def _repeat(self, name: str, kind: pa.DataType, rows: int, _: Any) -> pa.Array:
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
    return None if bits is None else _py_buffer(bits)


def _numbers(kind: pa.DataType, rows: int, numbers: Any) -> pa.Array:
    return _from_buffers(kind, rows, [None, _py_buffer(numbers)], 0)


def _booleans(rows: int, flags: Any) -> pa.Array:
    return _numbers(pa.uint8(), rows, flags).cast(pa.bool_())


def _timestamps(kind: pa.DataType, rows: int, parts: tuple[int, Any, Any]) -> pa.Array:
    nulls, validity, values = parts
    return _from_buffers(kind, rows, [_validity(validity), _py_buffer(values)], nulls)


def _headers(kind: pa.DataType, rows: int, parts: tuple[Any, ...]) -> pa.Array:
    nulls, validity, offsets, name_count, names, values = parts
    name_type, value_type = list(kind.value_type)
    as_names = _binary if name_type.type == pa.binary() else _text
    pairs = pa.StructArray.from_arrays(
        [as_names(name_type.type, name_count, names), _binary(pa.binary(), name_count, values)],
        fields=[name_type, value_type],
    )
    wrapped = [_validity(validity), _py_buffer(offsets)]
    return _from_buffers(kind, rows, wrapped, nulls, children=[pairs])


def _binary(kind: pa.DataType, rows: int, parts: tuple[int, Any, Any, Any]) -> pa.Array:
    nulls, validity, places, content = parts
    wrapped = [_validity(validity), _py_buffer(places)]
    if isinstance(content, list):
        wrapped += map(_py_buffer, content)
    else:
        wrapped.append(_py_buffer(content))
    return _from_buffers(kind, rows, wrapped, nulls)


def as_text(values: pa.Array) -> pa.Array:
    """Return an array of bytes, not a slice of one, as strings: see `_text`."""
    validity, places, content = values.buffers()
    content = b"" if content is None else content
    return _text(_STRING, len(values), (values.null_count, validity, places, content))


def _text(kind: pa.DataType, rows: int, parts: tuple[int, Any, Any, Any]) -> pa.Array:
    """Wrap UTF-8 strings; invalid bytes become U+FFFD, as in a Java consumer."""
    texts = _binary(kind, rows, parts)
    try:
        texts.validate(full=True)
    except pa.ArrowInvalid:
        found = _binary(pa.binary() if kind == _STRING else pa.binary_view(), rows, parts)
        return pa.array(
            [None if each is None else each.decode(UTF_8, "replace") for each in found.to_pylist()],
            kind,
        )
    return texts
