"""Record batches of one codec into those of another, as a leader does it for ``compression.type``.

Source: Kafka 2.4.0 and 3.9.0 ``LogValidator.buildRecordsAndAssignOffsets``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkastore.errors import InvalidRecordError
from kafkastore.formats.compression import Codec
from kafkastore.formats.decompression import MAX_DECOMPRESSED_BYTES
from kafkastore.formats.record_batch import RecordBatch
from kafkastore.formats.record_builder import build_batch

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


def recompress(
    batch: ReadableBuffer, codec: Codec, *, max_decompressed_bytes: int = MAX_DECOMPRESSED_BYTES
) -> bytes:
    """Build a record batch anew with another codec.

    Parameters
    ----------
    batch : bytes-like
        One record batch (magic 2) with CreateTime, no control batch.
    codec : Codec
        The one that it gets.
    max_decompressed_bytes : int
        What the batch may grow to.

    Returns
    -------
    bytes
        With the offsets, records, leader epoch, producer, sequence and transactional flag of the
        old one; the largest timestamp is that of the records.

    Raises
    ------
    CorruptBatchError
        If the batch can't be read.
    InvalidRecordError
        If a broker's builder refuses what the batch says of its producer.
    """
    old = RecordBatch(batch)
    records = old.records(max_decompressed_bytes=max_decompressed_bytes)
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
        raise InvalidRecordError(f"a batch can't be compressed anew: {error}") from error
