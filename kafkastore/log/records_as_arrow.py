"""A partition's records as Arrow record batches, decoded straight into Arrow's buffers."""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from kafkastore.errors import CorruptionError
from kafkastore.formats.compression import MAX_DECOMPRESSED_BYTES
from kafkastore.formats.record_columns import (
    BATCH_ROWS,
    HEADERS_COLUMN,
    KAFKA_COLUMNS,
    OTHER_COLUMNS,
    RecordColumns,
)
from kafkastore.segment.log_file import LARGEST_READ, SMALLEST_READ

if TYPE_CHECKING:
    from kafkastore.log.partition_log import PartitionLog

#: Up to so many offsets are read in small pieces.
SMALL_RANGE = 1000

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


def schema(columns: Sequence[str] | None = None, *, include_headers: bool = False) -> pa.Schema:
    """Return the Arrow schema of records: the columns of Spark's Kafka source, in its order.

    Parameters
    ----------
    columns : sequence of str, optional
        Names to choose, in any order; the schema keeps the source's order. Default: all of the
        Kafka source's.
    include_headers : bool
        Add `headers` where `columns` is not given, as the Kafka source's option of that name does.

    Raises
    ------
    ValueError
        If a name is not known.
    """
    known = (*KAFKA_COLUMNS, HEADERS_COLUMN, *OTHER_COLUMNS)
    if columns is None:
        columns = (*KAFKA_COLUMNS, HEADERS_COLUMN) if include_headers else KAFKA_COLUMNS
    unknown = [name for name in columns if name not in known]
    if unknown:
        raise ValueError(
            f"no column {', '.join(map(repr, unknown))}; there are {', '.join(known)}"
        )
    return pa.schema([(name, COLUMN_TYPES[name]) for name in known if name in columns])


def read(
    log: PartitionLog,
    columns: Sequence[str] | None = None,
    *,
    start_offset: int | None = None,
    end_offset: int | None = None,
    start_timestamp: int | None = None,
    end_timestamp: int | None = None,
    include_headers: bool = False,
    include_control: bool = False,
    batch_rows: int = BATCH_ROWS,
    verify: bool = True,
    max_decompressed_bytes: int = MAX_DECOMPRESSED_BYTES,
) -> pa.RecordBatchReader:
    """Read records into Arrow.

    Parameters
    ----------
    log : PartitionLog
        The partition.
    columns : sequence of str, optional
        See `schema`; values of columns not asked for are never copied.
    start_offset, end_offset : int, optional
        Inclusive, exclusive. Default: from the log start offset to the log end.
    start_timestamp, end_timestamp : int, optional
        ms since 1970; inclusive, exclusive. Segments whose largest timestamp is below the start are
        not read; records without timestamp count as -1.
    include_headers : bool
        Add the `headers` column.
    include_control : bool
        Whether transaction markers are rows.
    batch_rows : int
        At most so many rows a batch.
    verify : bool
        Check each batch's checksum.
    max_decompressed_bytes : int
        What one compressed batch may grow to.

    Returns
    -------
    pyarrow.RecordBatchReader
        Memory is bounded by one batch, whatever the size of the log. A timestamp whose microseconds
        do not fit 64 bits is null. Reading raises `CorruptBatchError` at the first broken batch;
        all rows before it have been given.
    """
    chosen = schema(columns, include_headers=include_headers)
    start, end = log.bounds(start_offset, end_offset)
    limits: dict[str, Any] = {"start_offset": start, "end_offset": end}
    if start_timestamp is not None:
        limits["start_timestamp"] = start_timestamp
    if end_timestamp is not None:
        limits["end_timestamp"] = end_timestamp
    record_columns = RecordColumns(
        chosen.names,
        include_control=include_control,
        max_rows=batch_rows,
        max_decompressed_bytes=max_decompressed_bytes,
        **limits,
    )
    batches = _read(log, chosen, record_columns, start, end, start_timestamp, batch_rows, verify)
    return pa.RecordBatchReader.from_batches(chosen, batches)


def _read(
    log: PartitionLog,
    chosen: pa.Schema,
    columns: RecordColumns,
    start: int,
    end: int,
    start_timestamp: int | None,
    batch_rows: int,
    verify: bool,
) -> Iterator[pa.RecordBatch]:
    for segment in log.segments_between(start, end):
        if start_timestamp is not None and start_timestamp >= 0:
            largest = segment.largest_record_timestamp()
            if largest is None or largest < start_timestamp:
                continue
        position = segment.position_before(start) if start > segment.base_offset else 0
        # A whole segment is read in large pieces, the few records of a bounded read in small ones.
        bounded = position > 0 or end - start < SMALL_RANGE
        with segment.open_log() as file:
            try:
                for run in file.runs(
                    position,
                    verify_crc=verify,
                    first_read=SMALLEST_READ if bounded else LARGEST_READ,
                ):
                    index = 0
                    while index < len(run.headers):
                        at = int(run.headers["position"][index] - run.headers["position"][0])
                        index += columns.append(run.data[at:], run.headers[index:])
                        if columns.is_full:
                            yield from _take(log, chosen, columns, batch_rows)
                    if run.headers["last_offset"][-1] >= end:
                        break
            except CorruptionError as error:
                yield from _take(log, chosen, columns, batch_rows)
                raise error if error.path else error.located(segment.log_path) from error
    yield from _take(log, chosen, columns, batch_rows)


def _take(
    log: PartitionLog, chosen: pa.Schema, columns: RecordColumns, batch_rows: int
) -> Iterator[pa.RecordBatch]:
    """Give away what was decoded, in batches of at most `batch_rows`."""
    rows, buffers = columns.take()
    if not rows:
        return
    arrays = [_array(field, rows, buffers, log) for field in chosen]
    if arrays:
        batch = pa.RecordBatch.from_arrays(arrays, schema=chosen)
    else:  # rows without columns: only their number
        nothing = pa.Array.from_buffers(pa.struct([]), rows, [None])
        batch = pa.RecordBatch.from_struct_array(nothing)
    for first in range(0, rows, batch_rows):
        yield batch.slice(first, batch_rows)


def _array(field: pa.Field, rows: int, buffers: dict[str, Any], log: PartitionLog) -> pa.Array:
    """Wrap one column's buffers as an Arrow array, without a copy."""
    if field.name == "topic":
        return pa.repeat(pa.scalar(log.topic, pa.string()), rows)
    if field.name == "partition":
        return pa.repeat(pa.scalar(log.partition, pa.int32()), rows)
    parts = buffers[field.name]
    if field.name in ("key", "value"):
        return _binary(field.type, rows, parts)
    if field.name == "timestamp":
        nulls, validity, values = parts
        wrapped = [pa.py_buffer(validity) if nulls else None, pa.py_buffer(values)]
        return pa.Array.from_buffers(field.type, rows, wrapped, nulls)
    if field.name == HEADERS_COLUMN:
        nulls, validity, offsets, name_count, names, values = parts
        pairs = pa.StructArray.from_arrays(
            [_text(name_count, names), _binary(pa.binary(), name_count, values)],
            fields=list(HEADERS_TYPE.value_type),
        )
        wrapped = [pa.py_buffer(validity), pa.py_buffer(offsets)]
        return pa.Array.from_buffers(field.type, rows, wrapped, nulls, children=[pairs])
    if pa.types.is_boolean(field.type):
        bytes_array = pa.Array.from_buffers(pa.uint8(), rows, [None, pa.py_buffer(parts)])
        return bytes_array.cast(pa.bool_())
    return pa.Array.from_buffers(field.type, rows, [None, pa.py_buffer(parts)])


def _binary(kind: pa.DataType, rows: int, parts: tuple[int, Any, Any, Any]) -> pa.Array:
    nulls, validity, offsets, values = parts
    buffers = [
        pa.py_buffer(validity) if nulls else None, pa.py_buffer(offsets), pa.py_buffer(values),
    ]
    return pa.Array.from_buffers(kind, rows, buffers, nulls)


def _text(rows: int, parts: tuple[int, Any, Any, Any]) -> pa.Array:
    """Wrap UTF-8 texts; what is none is shown with U+FFFD, as Java shows it to consumers."""
    texts = _binary(pa.string(), rows, parts)
    try:
        texts.validate(full=True)
    except pa.ArrowInvalid:
        names = texts.view(pa.binary()).to_pylist()
        return pa.array([name.decode("utf-8", "replace") for name in names], pa.string())
    return texts
