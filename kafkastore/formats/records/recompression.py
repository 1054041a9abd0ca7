"""Recompress batches with another codec, as leaders do by ``compression.type``.

Source: Kafka 2.4.0 and 3.9.0 ``LogValidator.buildRecordsAndAssignOffsets``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkastore.errors import InvalidRecordError
from kafkastore.formats.records.compression import Codec
from kafkastore.formats.records.record_batch import RecordBatch
from kafkastore.formats.records.record_builder import build_batch

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


def recompress(batch: ReadableBuffer, codec: Codec) -> bytes:
    """Compress a record batch (magic 2) with another codec.

    It must have CreateTime and not be a control batch. Only the largest timestamp is corrected.
    Raises `CorruptBatchError`, or `InvalidRecordError` for producer fields that brokers refuse.
    """
    old = RecordBatch(batch)
    records = old.records()
    try:
        return build_batch(
            records,
            base_offset=old.base_offset,
            last_offset=old.last_offset,
            codec=codec,
            leader_epoch=-1 if old.leader_epoch is None else old.leader_epoch,
            producer_id=old.producer_id,
            producer_epoch=old.producer_epoch,
            base_sequence=old.base_sequence,
            is_transactional=old.is_transactional,
        )
    except ValueError as error:
        raise InvalidRecordError(f"a batch can't be recompressed: {error}") from error
