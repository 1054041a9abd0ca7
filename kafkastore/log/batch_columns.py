"""The fields of batch headers as columns, for JSON and for Arrow.

Source: Kafka 2.4.0 ``DefaultRecordBatch``, ``AbstractLegacyRecordBatch``.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kafkastore.errors import CorruptionError
from kafkastore.formats.records import batch_header
from kafkastore.formats.records.batch_header import (
    CODEC_BITS,
    DELETE_HORIZON_BIT,
    LOG_APPEND_TIME_BIT,
    TRANSACTIONAL_BIT,
    is_control,
)
from kafkastore.formats.records.compression import Codec
from kafkastore.formats.records.control_records import ControlRecordType, first_control_record
from kafkastore.formats.records.record_batch import RecordBatch, TimestampType
from kafkastore.segment.log_file import BatchRun

#: The columns of a batch, in order.
BATCH_COLUMNS = (
    "position", "size", "base_offset", "last_offset", "magic", "codec", "count", "max_timestamp",
    "timestamp_type", "leader_epoch", "producer_id", "producer_epoch", "base_sequence",
    "is_transactional", "is_control", "control_type", "delete_horizon", "crc", "crc_valid",
)
#: Kafka's names of the timestamp types.
TIMESTAMP_TYPE_NAMES = {
    TimestampType.NO_TIMESTAMP_TYPE: "NoTimestampType",
    TimestampType.CREATE_TIME: "CreateTime",
    TimestampType.LOG_APPEND_TIME: "LogAppendTime",
}
_KNOWN_CODECS = {int(codec): codec.name.lower() for codec in Codec}
_CODEC_NAMES = tuple(
    _KNOWN_CODECS.get(code, f"unknown ({code})") for code in range(CODEC_BITS + 1)
)


class BatchColumn(NamedTuple):
    """Values of one field; null where `is_known` is false.

    With `names`, the values are indexes of those, so that no text is made for each batch. Times are
    in ms since 1970, and negative where there is none.
    """

    values: NDArray[Any]
    is_known: NDArray[np.bool_] | None = None
    names: tuple[str, ...] | None = None

    def to_list(self) -> list[Any]:
        """Return the values as Python values, None for null."""
        values: list[Any] = self.values.tolist()
        if self.names is not None:
            values = [self.names[each] for each in values]
        if self.is_known is None:
            return values
        known = self.is_known.tolist()
        return [each if is_known else None for each, is_known in zip(values, known, strict=True)]


def batch_columns(
    run: BatchRun, chosen: NDArray[np.intp], names: Iterable[str]
) -> dict[str, BatchColumn]:
    """Compute the columns in `names` of some batches of a run, and no others."""
    headers = run.headers[chosen]  # a copy, because the run's memory is reused
    attributes, magic = headers["attributes"].astype(np.int32), headers["magic"]
    is_v2 = magic == 2
    # The header of compressed messages before magic 2 has neither.
    has_count = is_v2 | (attributes & CODEC_BITS == 0)
    has_producer = headers["producer_id"] >= 0
    made: dict[str, Callable[[], BatchColumn]] = {
        "base_offset": lambda: BatchColumn(headers["base_offset"], has_count),
        "codec": lambda: BatchColumn(attributes & CODEC_BITS, names=_CODEC_NAMES),
        "count": lambda: BatchColumn(headers["count"], has_count),
        "timestamp_type": lambda: BatchColumn(
            np.where(magic == 0, 0, 1 + (attributes & LOG_APPEND_TIME_BIT > 0)),
            names=tuple(TIMESTAMP_TYPE_NAMES.values()),
        ),
        "leader_epoch": lambda: BatchColumn(headers["leader_epoch"], headers["leader_epoch"] >= 0),
        "producer_id": lambda: BatchColumn(headers["producer_id"], has_producer),
        "producer_epoch": lambda: BatchColumn(headers["producer_epoch"], has_producer),
        "base_sequence": lambda: BatchColumn(headers["base_sequence"], has_producer),
        "is_transactional": lambda: BatchColumn(is_v2 & (attributes & TRANSACTIONAL_BIT > 0)),
        "is_control": lambda: BatchColumn(is_control(headers)),
        "control_type": lambda: BatchColumn(_control_types(run, chosen, is_control(headers))),
        "delete_horizon": lambda: BatchColumn(
            headers["base_timestamp"], is_v2 & (attributes & DELETE_HORIZON_BIT > 0)
        ),
        "crc_valid": lambda: BatchColumn(_checked(run)[chosen] == 1),
    }
    return {name: made[name]() if name in made else BatchColumn(headers[name]) for name in names}


def batch_rows(run: BatchRun, chosen: NDArray[np.intp]) -> Iterator[dict[str, Any]]:
    """Yield some batches of a run as rows, with all columns."""
    columns = batch_columns(run, chosen, BATCH_COLUMNS)
    for values in zip(*(each.to_list() for each in columns.values()), strict=True):
        yield dict(zip(columns, values, strict=True))


def _checked(run: BatchRun) -> NDArray[np.int8]:
    """Return which checksums of a run are right; compute them if the reader did not."""
    checked: NDArray[np.int8] = run.headers["crc_valid"]
    if (checked < 0).any():
        headers = run.headers.copy()
        batch_header.scan(run.data, run.position, headers, verify_crc=True)
        checked = headers["crc_valid"]
    return checked


def _control_types(
    run: BatchRun, chosen: NDArray[np.intp], is_marker: NDArray[np.bool_]
) -> NDArray[np.object_]:
    """Return the types of control batches: a name, or the number of an unknown one.

    None for other batches, for one that can't be read, and for one without a record.
    """
    types = np.full(len(chosen), None, object)
    for row in np.flatnonzero(is_marker):
        try:
            record = first_control_record(RecordBatch(run.batch(int(chosen[row]))))
        except CorruptionError:
            continue
        if record is not None:
            kind = record.type
            types[row] = kind.name if isinstance(kind, ControlRecordType) else str(kind)
    return types
