"""The offset bounds of a log, each with its origin: a file, or an assumption.

A corrupt checkpoint is ignored where brokers ignore it: corrupt log start offsets count as missing,
corrupt recovery points as 0 (Kafka 2.4.0 ``LogManager.loadLogs``).
"""
from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np

from kafkastore.errors import ArgumentValueError
from kafkastore.formats.state.file_names import HIGH_WATERMARK_CHECKPOINT
from kafkastore.log.isolation import first_undecided_offset
from kafkastore.log.log_view import BoundSource, LogBound, LogView

#: The log end offset, the broker's last checkpoint, or an offset.
HighWatermark = Literal["log-end", "checkpoint"] | int


class LogBounds(NamedTuple):
    """The bounds of a log; see the properties of `PartitionLog` with the same names."""

    log_start_offset: LogBound
    log_end_offset: LogBound
    high_watermark: LogBound
    last_stable_offset: LogBound


def find_bounds(view: LogView, high_watermark: HighWatermark = "log-end") -> LogBounds:
    """Find the bounds of a log.

    Raise a `CorruptionError` if the high watermark's checkpoint is requested and corrupt, or if a
    batch after the newest producer snapshot is corrupt.
    """
    end = view.end_bound
    watermark = find_high_watermark(view, high_watermark, end.offset)
    return LogBounds(view.start_bound, end, watermark, find_last_stable(view, watermark.offset))


def find_high_watermark(
    view: LogView, choice: HighWatermark = "log-end", log_end_offset: int | None = None
) -> LogBound:
    """Find the first offset that may not be replicated, within the log's bounds.

    "log-end" is that of a restarted sole replica; "checkpoint" the broker's last write, up to 5 s
    old. Raises an error for a corrupt checkpoint.

    Source: Kafka 2.4.0 ``Partition.createLog``, ``Log.updateHighWatermark``.
    """
    start = view.start_bound.offset
    end = view.log_end_offset if log_end_offset is None else log_end_offset
    if choice == "log-end":
        basis = "the log end offset, which a sole replica has after its restart"
        return LogBound(end, BoundSource.LOG_END, basis)
    if choice == "checkpoint":
        offset, source = view.checkpointed_high_watermark, BoundSource.CHECKPOINT
        basis = HIGH_WATERMARK_CHECKPOINT
        if offset is None:
            _, unknown = view.checkpointed(HIGH_WATERMARK_CHECKPOINT)
            basis = f"the log start offset, where a broker begins: {unknown}"
            return LogBound(start, BoundSource.LOG_START, basis)
    elif isinstance(choice, int | np.integer) and not isinstance(choice, bool):
        offset, source, basis = int(choice), BoundSource.CALLER, "as given"
    else:
        raise ArgumentValueError("high_watermark", "'log-end', 'checkpoint' or an int", choice)
    if offset < start:
        basis = f"the log start offset, above {offset} ({basis})"
        return LogBound(start, BoundSource.LOG_START, basis)
    if offset > end:
        return LogBound(end, BoundSource.LOG_END, f"the log end offset, below {offset} ({basis})")
    return LogBound(offset, source, basis)


def find_last_stable(view: LogView, high_watermark: int) -> LogBound:
    """Find the first offset that a ``read_committed`` reader does not get.

    A transaction whose marker is at or above the high watermark counts as open.
    Source: Kafka 2.4.0 ``ProducerStateManager.firstUnstableOffset``,
    ``Log.fetchLastStableOffsetMetadata``.
    """
    undecided = first_undecided_offset(view, high_watermark)
    if undecided is None:
        basis = "the high watermark: no transaction is open below it"
        return LogBound(high_watermark, BoundSource.HIGH_WATERMARK, basis)
    start = view.start_bound.offset
    if undecided < start:
        basis = f"the log start offset, above offset {undecided} of the oldest open transaction"
        return LogBound(start, BoundSource.LOG_START, basis)
    basis = "first offset of the oldest open transaction"
    return LogBound(undecided, BoundSource.OPEN_TRANSACTION, basis)
