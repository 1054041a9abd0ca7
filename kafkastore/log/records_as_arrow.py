"""Read a partition's records into Arrow record batches.

Records are decoded directly into Arrow's buffers.
"""
from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from itertools import accumulate
from typing import Any, TypedDict

from kafkastore.arguments import check_choice, check_collection
from kafkastore.caching import cached_property
from kafkastore.errors import ArgumentValueError, MissingExtraError
from kafkastore.formats.primitives.record_buffers import RecordBuffers
from kafkastore.formats.records.record_columns import (
    HEADERS_COLUMN,
    KAFKA_COLUMNS,
    OTHER_COLUMNS,
    RecordColumns,
)
from kafkastore.log.damage import OnCorrupt, SkippedBytes
from kafkastore.log.isolation import Isolation
from kafkastore.log.log_view import LogView
from kafkastore.log.record_reading import RecordOptions
from kafkastore.segment.index_trust import Indexes

try:
    import pyarrow as pa
except ModuleNotFoundError as missing:
    raise MissingExtraError("pyarrow", "arrow") from missing

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
class ArrowOptions(RecordOptions):
    """The arguments of `PartitionLog.to_arrow`, checked.

    `all_topics`: dictionary-encode `topic`, with these as the dictionary of every batch.
    """

    include_headers: bool = False
    binary_view: bool = False
    exact: bool = False
    decode: str | None = None
    all_topics: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.decode is not None:
            check_choice("decode", self.decode, (UTF_8,))
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
    def in_millis(self) -> bool:
        """Whether timestamps are in ms, and none is null."""
        return self.exact

    @property
    def has_views(self) -> bool:
        """Whether keys and values are views of the bytes of a mapped file."""
        return self.binary_view

    @property
    def names(self) -> Sequence[str]:
        """The columns to decode."""
        names: Sequence[str] = self.schema.names
        return names

    def taker(self, log: LogView) -> Callable[[RecordColumns], list[pa.RecordBatch]]:
        """Return what makes record batches of columns."""
        return _ArrowBatches(self, log).take


class _ArrowBatches:
    """Build Arrow record batches from the buffers of `RecordColumns`."""

    def __init__(self, options: ArrowOptions, log: LogView) -> None:
        self._schema = options.schema
        self._batch_rows = options.batch_rows
        self._is_binary = options.decode is None
        topics = _strings((log.topic,))
        if (names := options.all_topics) is not None:
            topics = pa.DictionaryArray.from_arrays(_int32(names.index(log.topic)), _strings(names))
        self._same = {"topic": topics[0], "partition": _int32(log.partition)[0]}
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
            return partial(self._repeat, name)
        if name in ("key", "value"):
            return partial(_binary if self._is_binary else _text, kind)
        if name == "timestamp":
            return partial(_timestamps, kind)
        if name == HEADERS_COLUMN:
            return partial(_headers, kind)
        if name in ("is_transactional", "is_control"):
            return _booleans
        return partial(_numbers, kind)

    def _repeat(self, name: str, rows: int, _: Any) -> pa.Array:
        """Return an array with the same value in every row."""
        made = self._repeated.get(name)
        if made is None or len(made) < rows:
            self._repeated[name] = made = pa.repeat(self._same[name], rows)
        return made.slice(0, rows)


# `pyarrow.array` and `pyarrow.scalar` import pandas, if it is there: a fifth of a second.
def _strings(texts: Sequence[str]) -> pa.Array:
    """Return an array of strings."""
    content = [each.encode() for each in texts]
    ends = array("i", accumulate(map(len, content), initial=0))
    return _from_buffers(
        _STRING, len(content), [None, _py_buffer(ends), _py_buffer(b"".join(content))], 0
    )


def _int32(number: int) -> pa.Array:
    """Return an array of one number."""
    return _numbers(pa.int32(), 1, array("i", (number,)))


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
    """Wrap UTF-8 strings; invalid bytes become U+FFFD, as by ``errors="replace"``."""
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


def buffers_of(batch: pa.RecordBatch) -> RecordBuffers:
    """Return a batch without the columns that all rows have in common."""
    columns: dict[str, Any] = {}
    for name in batch.schema.names:
        column = batch[name]
        if name in ("key", "value"):
            columns[name] = _parts(column)
        elif name == "timestamp":
            columns[name] = column.null_count, *column.buffers()
        elif name == HEADERS_COLUMN:
            pairs = column.values
            columns[name] = (
                column.null_count, *column.buffers()[:2], len(pairs),
                _parts(pairs.field("key")), _parts(pairs.field("value")),
            )  # fmt: skip
        elif name not in ("topic", "partition"):
            columns[name] = column.buffers()[1]
    first = batch.column(0).offset if columns else 0
    return RecordBuffers(columns, first, first + batch.num_rows)


def _parts(values: pa.Array) -> tuple[int, Any, Any, Any]:
    """Return the buffers of bytes, as `RecordColumns` has them."""
    validity, ends, content = values.buffers()
    return values.null_count, validity, ends, b"" if content is None else content
