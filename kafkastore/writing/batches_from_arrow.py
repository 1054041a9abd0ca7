"""Build batches from Arrow columns, for a leader to append.

No Python object per record is created.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from kafkastore.errors import InvalidColumnError, MissingExtraError
from kafkastore.formats.records.record_builder import build_batches_from_columns

try:
    import pyarrow as pa
    import pyarrow.compute as pc
except ModuleNotFoundError as missing:
    raise MissingExtraError("pyarrow", "arrow") from missing

if TYPE_CHECKING:
    from kafkastore.formats.records.record_builder import BatchFields

_HEADERS = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))


def batches_of_columns(
    data: Any, batch_bytes: int, fields: BatchFields, *, keep_offsets: bool = False
) -> Iterator[bytes]:
    """Build batches of up to `batch_bytes` uncompressed bytes from Arrow data.

    Columns are `value`, optional `key`, `timestamp` (or int ms), `headers`, and `offset` to keep.
    Raises `InvalidColumnError`, or `OutOfOrderAppendError` if offsets do not increase.
    """
    table = pa.table(data) if isinstance(data, pa.RecordBatch) else data
    reader = pa.RecordBatchReader.from_stream(table)
    for rows in reader:
        if rows.num_rows:
            columns = _columns_of(rows)
            if keep_offsets:
                columns["offset"] = _offsets(rows)
            yield from build_batches_from_columns(rows.num_rows, columns, batch_bytes, **fields)


def _offsets(rows: pa.RecordBatch) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return the offsets to keep."""
    _check_names(rows, "offset")
    if not pa.types.is_integer(rows["offset"].type):
        raise InvalidColumnError("offset", f"must be integers, got {rows['offset'].type}")
    column = _converted("offset", rows["offset"], pa.int64())
    if column.null_count:
        raise InvalidColumnError("offset", "must not have nulls")
    return np.ascontiguousarray(column.to_numpy())


def _check_names(rows: pa.RecordBatch, required: str, *optional: str) -> None:
    """Raise if the required column is missing, or a name is there more than once."""
    names = rows.schema.names
    if required not in names:
        raise InvalidColumnError(required, "is missing")
    for name in (required, *optional):
        if names.count(name) > 1:
            raise InvalidColumnError(name, "is there more than once")


def _columns_of(rows: pa.RecordBatch) -> dict[str, Any]:
    """Return the buffers that the builder needs."""
    _check_names(rows, "value", "key", "timestamp", "headers")
    names = rows.schema.names
    nulls = pa.nulls(rows.num_rows, pa.binary())
    columns: dict[str, Any] = {
        "offset": np.arange(rows.num_rows, dtype=np.int64),
        "timestamp": _milliseconds(rows["timestamp"]) if "timestamp" in names else None,
    }
    for name in ("key", "value"):
        column = rows[name] if name in names else nulls
        columns[name] = _binary(_converted(name, column, pa.binary()))
    if "headers" in names:
        headers = _converted("headers", rows["headers"], _HEADERS)
        if headers.flatten().null_count:
            raise InvalidColumnError("headers", "must not have null headers in a list")
        pairs = headers.values
        if headers.flatten().field("key").null_count:
            raise InvalidColumnError("headers", "must not have null keys")
        columns["headers"] = (
            headers.null_count,
            *headers.buffers()[:2],
            len(pairs),
            _binary(pairs.field("key")),
            _binary(pairs.field("value")),
        )
    return columns


def _converted(name: str, column: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Convert a column to a type, with buffers that begin at its first element."""
    try:
        converted = column if column.type == wanted else column.cast(wanted)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InvalidColumnError(name, f"must be {wanted}, got {column.type}") from error
    parts = [converted]
    if pa.types.is_list(wanted):
        pairs = converted.values
        parts += [pairs, pairs.field("key"), pairs.field("value")]
    if any(part.offset for part in parts):
        return converted.take(pa.array(np.arange(len(converted))))
    return converted


def _binary(column: pa.Array) -> tuple[Any, ...]:
    """Return a binary column's null count and its buffers."""
    validity, offsets, values = column.buffers()
    return column.null_count, validity, offsets, values


def _milliseconds(column: pa.Array) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return timestamps in ms since 1970; -1 for null."""
    kind = column.type
    try:
        if pa.types.is_timestamp(kind):
            if kind.unit in ("us", "ns"):
                # Round down to whole ms first: a cast would round times before 1970 up.
                column = pc.floor_temporal(column, unit="millisecond")
            column = column.cast(pa.timestamp("ms", kind.tz))
        elif not pa.types.is_integer(kind):
            raise InvalidColumnError("timestamp", f"must be a timestamp or ms, got {kind}")
        filled = pc.fill_null(column.cast(pa.int64()), -1)
    except pa.ArrowInvalid as error:
        raise InvalidColumnError("timestamp", f"must fit 64 bits of ms: {error}") from error
    values: np.ndarray[Any, np.dtype[np.int64]] = filled.to_numpy(zero_copy_only=False)
    return np.ascontiguousarray(values)
