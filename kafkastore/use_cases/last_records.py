"""The last record of each key of a compacted topic, as its reader has it.

Records sent in a transaction count at its COMMIT marker, which may follow later records of the same
key; the transaction does not replace a later record, nor restore a key that was deleted meanwhile.
(Coordinators of ZooKeeper clusters restored it when they loaded the log, and only then.)

Source: Kafka 4.1.1 ``OffsetMetadataManager.replay``, ``replayEndTransactionMarker``; 2.4.0
``GroupMetadata.removeOffsets``.
"""
from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kafkastore.errors import CorruptBatchError, CorruptionError
from kafkastore.formats.primitives.record_buffers import BinaryColumn
from kafkastore.formats.records.control_records import ControlRecordType
from kafkastore.log.damage import OnCorrupt, SkippedBytes
from kafkastore.log.record_reading import RecordOptions, read
from kafkastore.store.partition_log import PartitionLog

_COLUMNS = ("key", "value", "offset", "producer_id", "is_transactional", "is_control")


class LastRecord(NamedTuple):
    """The last record of a key; if `value` is None, the key was deleted."""

    offset: int
    value: bytes | None


Latest = dict[bytes, LastRecord]


class _Columns(NamedTuple):
    """What is read of records, by row."""

    keys: BinaryColumn
    values: BinaryColumn
    offsets: NDArray[np.int64]


@contextmanager
def about_record(log: PartitionLog, offset: int) -> Iterator[None]:
    """Say in errors which record they are about."""
    try:
        yield
    except CorruptionError as error:
        raise CorruptionError(
            f"the record at offset {offset} of {log.topic_partition} can't be read: {error}",
            path=log.path,
        ) from error


def last_records(
    log: PartitionLog,
    on_corrupt: OnCorrupt = "raise",
    skipped: list[SkippedBytes] | None = None,
    written: dict[bytes, int] | None = None,
) -> Latest:
    """Find the last record of each key, by first write.

    `on_corrupt` and `skipped` are as for `PartitionLog.records`. `written` receives the offset of
    each key's last record with a value, whether its transaction was committed or not.
    """
    return log.retry_if_changed(partial(_latest, log, on_corrupt, skipped, written))


def _latest(
    log: PartitionLog,
    on_corrupt: OnCorrupt,
    skipped: list[SkippedBytes] | None,
    written: dict[bytes, int] | None,
) -> Latest:
    """Find the last record of each key, with transactions applied, batch by batch."""
    latest: Latest = {}
    pending: dict[int, Latest] = {}
    options = RecordOptions(
        columns=_COLUMNS, include_control=True, on_corrupt=on_corrupt, skipped=skipped
    )
    for batch in read(log, options):
        columns = _Columns(batch.binary("key"), batch.binary("value"), batch.numbers("offset"))
        keys, values, offsets = columns
        producers, in_transaction = batch.numbers("producer_id"), batch.numbers("is_transactional")
        is_control = batch.numbers("is_control")
        if written is not None:
            last = _last_of_each_key(columns, np.flatnonzero(values.is_valid() & ~is_control))
            written.update((key, each.offset) for key, each in last.items())
        markers = np.flatnonzero(is_control)
        start = 0
        for end in (*markers.tolist(), len(offsets)):
            plain = np.flatnonzero(~in_transaction[start:end]) + start
            latest.update(_last_of_each_key(columns, plain))
            for producer in np.unique(producers[start:end][in_transaction[start:end]]).tolist():
                rows = np.flatnonzero(
                    in_transaction[start:end] & (producers[start:end] == producer)
                ) + start
                pending.setdefault(producer, {}).update(_last_of_each_key(columns, rows))
            if end < len(offsets):
                ended = pending.pop(int(producers[end]), {})
                if _is_commit(keys[end], log, int(offsets[end]), on_corrupt):
                    _commit(latest, ended)
            start = end + 1
    return latest


def _last_of_each_key(columns: _Columns, rows: NDArray[np.int64]) -> Latest:
    """Find the last record of each key among some rows."""
    keys, values, offsets = columns
    last = dict(zip(keys.take(rows), rows.tolist(), strict=True))  # the last of equal keys wins
    return {
        key: LastRecord(int(offsets[row]), values[row])
        for key, row in last.items()
        if key is not None
    }


def _is_commit(
    key: bytes | None, log: PartitionLog, offset: int, on_corrupt: OnCorrupt
) -> bool:
    """Return whether a marker commits; its key is version int16 and type int16."""
    if key is None or len(key) < 4:
        if on_corrupt != "raise":
            return False
        raise CorruptBatchError(
            f"the control record at offset {offset} of {log.topic_partition} has no type",
            path=log.path,
        )
    return int.from_bytes(key[2:4], "big", signed=True) == ControlRecordType.COMMIT


def _commit(latest: Latest, ended: Latest) -> None:
    """Apply the offsets of a transaction to keys without a later record."""
    for key, written in ended.items():
        if written.value is None:
            continue
        before = latest.get(key)
        if before is None or before.offset < written.offset:
            latest[key] = written
