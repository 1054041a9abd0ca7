"""Build batches from records without offsets, for a leader to append."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from kafkastore.errors import InvalidRecordError
from kafkastore.formats.records.batch_builder import BatchBuilder

if TYPE_CHECKING:
    from kafkastore.formats.records.record_builder import BatchFields, NewRecord


class _NumberedRecord(NamedTuple):
    """A record with its number in the append, from which its batch is built."""

    offset: int
    timestamp: int
    key: Any
    value: Any
    headers: Any


def batches_of_records(
    records: Iterable[NewRecord], batch_bytes: int, fields: BatchFields
) -> Iterator[bytes]:
    """Build batches from records, with offsets from 0 on.

    `batch_bytes` limits a batch before compression; a larger record gets a batch of its own. A
    record that can't be written raises `InvalidRecordError`, possibly after earlier batches.
    """
    builder = BatchBuilder(max_batch_bytes=batch_bytes, **fields)
    is_empty = True
    for number, record in enumerate(records):
        finished = None
        try:
            numbered = _NumberedRecord(
                number,
                operator.index(record.timestamp),
                record.key,
                record.value,
                getattr(record, "headers", ()),
            )
            if not builder.append(numbered):
                finished = builder.finish()
                builder.append(numbered)
        except (AttributeError, BufferError, OverflowError, TypeError, ValueError) as error:
            raise InvalidRecordError(f"record {number} can't be written: {error}") from error
        if finished is not None:
            yield finished
        is_empty = False
    if not is_empty:
        yield builder.finish()
