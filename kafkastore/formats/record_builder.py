"""Records into the bytes of a log: record batches (magic 2), and message sets (magic 0 and 1).

The bytes are those that a broker's own builder makes of the same records, but for what compression
libraries do differently.

Source: Kafka 2.4.0 ``MemoryRecordsBuilder``, ``MemoryRecords``, ``EndTransactionMarker``.
"""
from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol, TypedDict, Unpack

from kafkastore.formats.batch_builder import BatchBuilder
from kafkastore.formats.compression import Codec
from kafkastore.formats.control_records import ControlRecordType
from kafkastore.formats.record_batch import Record, TimestampType
from kafkastore.formats.record_rows import RecordRows

# Laid out in `control_records`; brokers write both with version 0.
_CONTROL_RECORD_KEY = struct.Struct(">hh")
_END_TRANSACTION_MARKER = struct.Struct(">hi")


class NewRecord(Protocol):
    """What is written of a record; its `headers` too, if it has such an attribute."""

    @property
    def timestamp(self) -> int:
        """In ms since 1970; -1 none."""
    @property
    def key(self) -> bytes | bytearray | memoryview | None:
        """None is null, which is not the same as empty."""
    @property
    def value(self) -> bytes | bytearray | memoryview | None:
        """None marks the key's records for deletion, where the log is compacted."""


class WritableRecord(NewRecord, Protocol):
    """A record that has its place in the log."""

    @property
    def offset(self) -> int:
        """Larger than that of the record before."""


class BatchFields(TypedDict, total=False):
    """What is the same for all records of a batch, and for all batches of a `BatchBuilder`.

    Attributes
    ----------
    magic : int
        The message format. 2, the default, makes a record batch. 0 and 1 make a message of every
        record, or, with a codec, one message that wraps these; of what is below `compression_level`
        they have nothing but `log_append_time`, and that only with 1.
    codec : Codec
        How the records are compressed; not at all by default.
    compression_level : int or None
        Within `compression.COMPRESSION_LEVELS`; None is what `compression` says of the codec.
    log_append_time : int or None
        ms; the timestamps of all records are then LogAppendTime, and this one. None: they are
        CreateTime. A record batch keeps the records' own beside it, where no reader looks at them.
    leader_epoch : int
        Of the partition's leader; -1 none.
    producer_id, producer_epoch, base_sequence : int
        Of an idempotent producer; -1 none. Only a control batch may have an id without a sequence.
    is_transactional : bool
        Whether the records belong to a transaction.
    is_control : bool
        Whether the records are for brokers, and not for consumers.
    delete_horizon_ms : int or None
        When the tombstones of a compacted batch may go (KIP-534).
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
        Or of anything with the attributes of `WritableRecord`, in offset order. `timestamp_type`
        and `leader_epoch` of a `Record` are its batch's, and not looked at here.
    base_offset : int, optional
        At most the first record's offset, which it is by default. Compaction keeps it when that
        record is gone. Magic 2 only.
    last_offset : int, optional
        Inclusive; at least the last record's, which it is by default. Magic 2 only.
    max_timestamp : int, optional
        ms; only of a batch without records, which compaction leaves with the maximum it had. Such a
        batch needs `base_offset` and `last_offset`, and has no codec. Magic 2 only.
    **fields : BatchFields
        What the records have in common.

    Returns
    -------
    bytes
        Of a record batch, of a wrapper, or of messages one after the other.

    Raises
    ------
    OutOfOrderAppendError
        If offsets do not rise.
    OffsetOverflowError
        If an offset is more than 2**31 - 1 from the base offset.
    ValueError
        If the magic has no place for something, a broker's builder refuses it, or the batch would
        be larger than 2**31 - 1 bytes.
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
    """Build one batch of columns, without a Python object a record.

    Parameters
    ----------
    rows : int
        How many records, at least one.
    columns : mapping
        Buffers in Arrow's layout, as `RecordColumns.take` gives them but for the timestamp.
        `offset`: int64. `timestamp`: int64, **milliseconds** since 1970, -1 none; or None where no
        record has one. `key`, `value`: (nulls, validity, int32 offsets, bytes). `headers`, if it is
        there: (nulls, validity, int32 offsets, count of names, names, values), the last two as
        `key` is. `nulls` is not looked at; a validity of None says that there are none.
    base_offset, last_offset : int, optional
        As for `build_batch`.
    **fields : BatchFields
        What the records have in common.

    Returns
    -------
    bytes
        As of `build_batch`.

    Raises
    ------
    OutOfOrderAppendError, OffsetOverflowError
        As of `build_batch`.
    ValueError
        As of `build_batch`; or if a column is not there, or its offsets leave its bytes.
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
    """Build as few batches of columns as a largest size allows.

    Parameters
    ----------
    rows : int
        How many records; without any there are no batches.
    columns : mapping
        As for `build_batch_from_columns`.
    max_batch_bytes : int
        Of a batch before it is compressed; only a record that alone is larger gets a larger one.
    **fields : BatchFields
        What the records have in common. The sequence goes on from batch to batch.

    Yields
    ------
    bytes
        As of `build_batch`, made when it is asked for.

    Raises
    ------
    OutOfOrderAppendError, ValueError
        As of `build_batch_from_columns`.
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
    """Build the control batch with which a transaction ends.

    Parameters
    ----------
    offset : int
        Of the marker, which takes one like any record.
    timestamp : int
        ms since 1970.
    producer_id, producer_epoch : int
        Of the producer whose transaction it is.
    is_commit : bool
        Otherwise it is an abort.
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
    value = _END_TRANSACTION_MARKER.pack(0, coordinator_epoch)
    marker = Record(offset, timestamp, TimestampType.CREATE_TIME, key, value, (), None)
    return build_batch(
        [marker],
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        is_transactional=True,
        is_control=True,
    )
