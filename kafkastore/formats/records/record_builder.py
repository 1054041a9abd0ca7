"""Build the bytes of a log from records: record batches, and message sets.

Record batches have magic 2, message sets magic 0 or 1. The bytes are those that a broker's own
builder makes from the same records, except for differences between compression libraries.

Source: Kafka 2.4.0 ``MemoryRecordsBuilder``, ``MemoryRecords``, ``EndTransactionMarker``.
"""
from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol, TypedDict, Unpack

from kafkastore.arguments import INT32_MAX, whole_number
from kafkastore.formats.records.batch_builder import BatchBuilder
from kafkastore.formats.records.compression import Codec
from kafkastore.formats.records.control_records import ControlRecordType
from kafkastore.formats.records.record_batch import Record, TimestampType
from kafkastore.formats.records.record_rows import RecordRows

# `control_records` has the layout; brokers write both with version 0.
_CONTROL_RECORD_KEY = struct.Struct(">hh")
_END_TRANSACTION_MARKER = struct.Struct(">hi")


class NewRecord(Protocol):
    """A record to write; its `headers` are written too, if it has this attribute."""

    @property
    def timestamp(self) -> int:
        """Timestamp in ms since 1970; -1 for none."""
    @property
    def key(self) -> bytes | bytearray | memoryview | None:
        """The key; None is null, which differs from empty."""
    @property
    def value(self) -> bytes | bytearray | memoryview | None:
        """The value; None marks the key's records for deletion in a compacted topic."""


class WritableRecord(NewRecord, Protocol):
    """A record with an offset."""

    @property
    def offset(self) -> int:
        """Offset in the log; larger than that of the record before."""


class BatchFields(TypedDict, total=False):
    """Fields that all records of a batch share, and all batches of a `BatchBuilder`.

    Attributes
    ----------
    magic : int
        The message format. 2, the default, builds a record batch. 0 and 1 build a message for each
        record or, with a codec, one message that wraps these. Of the fields after
        `compression_level`, magic 1 has only `log_append_time`, and magic 0 has none.
    codec : Codec
        How the records are compressed; default: not compressed.
    compression_level : int or None
        Within `compression.COMPRESSION_LEVELS`; None: the codec's default, see `compression`.
    log_append_time : int or None
        ms; all records then have this timestamp, as LogAppendTime. None: they have CreateTime. A
        record batch also stores the records' own timestamps, which readers ignore.
    leader_epoch : int
        Of the partition's leader; -1 none.
    producer_id, producer_epoch, base_sequence : int
        Of an idempotent producer; -1 none. Only a control batch may have an id without a sequence.
    is_transactional : bool
        Whether the records belong to a transaction.
    is_control : bool
        Whether the records are for brokers, and not for consumers.
    delete_horizon_ms : int or None
        When the tombstones of a compacted batch may be deleted (KIP-534), ms since 1970.
    """

    magic: int
    codec: Codec
    compression_level: int | None
    log_append_time: int | None
    leader_epoch: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    is_transactional: bool
    is_control: bool
    delete_horizon_ms: int | None


def build_batch(
    records: Iterable[WritableRecord],
    *,
    base_offset: int | None = None,
    last_offset: int | None = None,
    max_timestamp: int | None = None,
    **fields: Unpack[BatchFields],
) -> bytes:
    """Build one batch.

    Parameters
    ----------
    records : iterable of Record
        Or of any objects with the attributes of `WritableRecord`, in offset order. `timestamp_type`
        and `leader_epoch` of a `Record` belong to its batch, and are ignored.
    base_offset : int, optional
        At most the first record's offset, which is the default. Compaction keeps it when it removes
        that record. Magic 2 only.
    last_offset : int, optional
        Inclusive; at least the last record's offset, which is the default. Magic 2 only.
    max_timestamp : int, optional
        ms; only for a batch without records, which keeps its maximum after compaction. Such a batch
        needs `base_offset` and `last_offset`, and has no codec. Magic 2 only.
    **fields : BatchFields
        Fields that the records share.

    Returns
    -------
    bytes
        A record batch, a wrapper, or messages one after the other.

    Raises
    ------
    OutOfOrderAppendError
        If offsets do not rise.
    OffsetOverflowError
        If an offset is more than 2**31 - 1 from the base offset.
    ValueError
        If the magic does not have a field, a broker's builder refuses it, or the batch would be
        larger than 2**31 - 1 bytes.
    """
    builder = BatchBuilder(**fields)
    builder.start(base_offset)
    for record in records:
        builder.append(record)
    return builder.finish(last_offset, max_timestamp)


def build_batch_from_columns(
    rows: int,
    columns: Mapping[str, Any],
    *,
    base_offset: int | None = None,
    last_offset: int | None = None,
    **fields: Unpack[BatchFields],
) -> bytes:
    """Build one batch of one or more records from buffers in Arrow's layout.

    Raises as `build_batch`, and ValueError if a column is missing or its offsets are outside its
    bytes.

    | column               | value; `nulls` are ignored, a validity of None means no nulls       |
    | -------------------- | ------------------------------------------------------------------- |
    | `offset`             | int64                                                               |
    | `timestamp`          | int64, **ms** since 1970, -1 for none; or None if no record has one |
    | `key`, `value`       | (nulls, validity, int32 offsets, bytes)                             |
    | `headers` (optional) | (nulls, validity, int32 offsets, number of names, names, values)    |
    """
    builder = BatchBuilder(**fields)
    builder.start(base_offset)
    builder.append_rows(RecordRows(rows, columns))
    return builder.finish(last_offset)


def build_batches_from_columns(
    rows: int,
    columns: Mapping[str, Any],
    max_batch_bytes: int,
    **fields: Unpack[BatchFields],
) -> Iterator[bytes]:
    """Build as few batches from columns as `max_batch_bytes` allows, on demand.

    The limit is before compression; only a single larger record exceeds it. The sequence continues
    from batch to batch. Columns and errors are as for `build_batch_from_columns`.
    """
    builder = BatchBuilder(max_batch_bytes=max_batch_bytes, **fields)
    record_rows, row = RecordRows(rows, columns), 0
    while row < rows:
        row = builder.append_rows(record_rows, row)
        yield builder.finish()


def build_end_transaction_marker(
    offset: int,
    timestamp: int,
    producer_id: int,
    producer_epoch: int,
    *,
    is_commit: bool,
    coordinator_epoch: int,
    leader_epoch: int = -1,
) -> bytes:
    """Build the control batch that ends a transaction.

    Parameters
    ----------
    offset : int
        Of the marker, which has an offset like any record.
    timestamp : int
        ms since 1970.
    producer_id, producer_epoch : int
        Of the producer whose transaction it is.
    is_commit : bool
        True for COMMIT, False for ABORT.
    coordinator_epoch : int
        Of the transaction coordinator.
    leader_epoch : int
        Of the partition's leader; -1 none.

    Returns
    -------
    bytes
        As of `build_batch`.

    Notes
    -----
    Source: Kafka 2.4.0 ``MemoryRecords.withEndTransactionMarker``.
    """
    kind = ControlRecordType.COMMIT if is_commit else ControlRecordType.ABORT
    key = _CONTROL_RECORD_KEY.pack(0, kind)
    epoch = whole_number("coordinator_epoch", coordinator_epoch, -INT32_MAX - 1, INT32_MAX)
    value = _END_TRANSACTION_MARKER.pack(0, epoch)
    marker = Record(offset, timestamp, TimestampType.CREATE_TIME, key, value, (), None)
    return build_batch(
        [marker],
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        is_transactional=True,
        is_control=True,
    )
