"""Where a log starts and ends, and what each of that rests on: a file, or what is assumed without.

A checkpoint that a broker could not read is passed over where brokers go on without it: damaged log
start offsets count as none, damaged recovery points as 0 (Kafka 2.4.0 ``LogManager.loadLogs``).
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from kafkastore.formats.file_names import (
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
)
from kafkastore.log.isolation import first_undecided_offset

if TYPE_CHECKING:
    from kafkastore.errors import CorruptionError
    from kafkastore.log.log_dir import Checkpoint
    from kafkastore.log.partition_log import PartitionLog

#: The log end, what the broker last wrote down, or an offset.
HighWatermark = Literal["log-end", "checkpoint"] | int

_NO_LOG_DIR = "a partition directory by itself has no checkpoints"


class Bound(NamedTuple):
    """An offset, in words what it rests on, and what is corrupt at it."""

    offset: int
    basis: str
    error: CorruptionError | None = None


class LogBounds(NamedTuple):
    """The bounds of a log; see the properties of `PartitionLog` of the same names."""

    log_start_offset: Bound
    log_end_offset: Bound
    high_watermark: Bound
    last_stable_offset: Bound


def find_bounds(log: PartitionLog, high_watermark: HighWatermark = "log-end") -> LogBounds:
    """Find the bounds of a log.

    Parameters
    ----------
    log : PartitionLog
        The partition.
    high_watermark : "log-end", "checkpoint" or int
        What the last two are bounded by; see `find_high_watermark`.

    Returns
    -------
    LogBounds

    Raises
    ------
    CorruptionError
        If the high watermark's checkpoint is asked for and damaged, or a batch behind the newest
        producer snapshot is broken.
    """
    end = find_log_end(log)
    watermark = find_high_watermark(log, high_watermark, end.offset)
    return LogBounds(
        find_log_start(log), end, watermark, find_last_stable(log, watermark.offset)
    )


def find_log_start(log: PartitionLog) -> Bound:
    """Find the first offset a reader may ask for: the checkpoint's or the first segment's.

    Notes
    -----
    Source: Kafka 2.4.0 ``Log.loadSegments``, ``LogManager.loadLogs``.
    """
    first = log.segments[0].base_offset if log.segments else 0
    basis = "base offset of the first segment" if log.segments else "there is no segment"
    if log.log_dir is None:
        return Bound(first, f"{basis}: {_NO_LOG_DIR}")
    checkpoint = log.log_dir.checkpoint(LOG_START_OFFSET_CHECKPOINT)
    offset = checkpoint.offsets.get(log.topic_partition)
    if offset is None:
        return Bound(first, f"{basis}: {_why_unknown(checkpoint)}")
    if offset < first:
        return Bound(first, f"{basis}, above {offset} in {LOG_START_OFFSET_CHECKPOINT}")
    return Bound(offset, LOG_START_OFFSET_CHECKPOINT)


def find_log_end(log: PartitionLog) -> Bound:
    """Find the offset after the last batch that can be read; `error` says why no more can."""
    start = log.log_start_offset
    if not log.segments:
        return Bound(start, "the log start offset: there is no segment")
    last = log.segments[-1]
    basis = f"behind the last whole batch of {last.log_path.name}"
    if last.end_error is not None:
        basis += f"; what follows can't be read: {last.end_error}"
    if last.next_offset < start:
        basis = f"the log start offset, for the segments end at {last.next_offset}"
        return Bound(start, basis, last.end_error)
    return Bound(last.next_offset, basis, last.end_error)


def find_high_watermark(
    log: PartitionLog, choice: HighWatermark = "log-end", log_end_offset: int | None = None
) -> Bound:
    """Find the first offset that is not known to be replicated.

    Parameters
    ----------
    log : PartitionLog
        The partition.
    choice : "log-end", "checkpoint" or int
        ``log-end``: what a sole replica has after its restart. ``checkpoint``: what the broker last
        wrote down, every 5 seconds, so that it lags in a killed one. Or an offset.

    Returns
    -------
    Bound
        Never outside of the log: brokers raise it to the log start offset and lower it to the end.

    Raises
    ------
    CorruptCheckpointError
        If the checkpoint is asked for and damaged: brokers take the log directory offline.
    ValueError
        If it is none of these choices.

    Notes
    -----
    Source: Kafka 2.4.0 ``Partition.createLog``, ``Log.updateHighWatermark``.
    """
    start = log.log_start_offset
    end = log.log_end_offset if log_end_offset is None else log_end_offset
    if choice == "log-end":
        return Bound(end, "the log end offset, which a sole replica has after its restart")
    if choice == "checkpoint":
        offset, basis = log.checkpointed_high_watermark, HIGH_WATERMARK_CHECKPOINT
        if offset is None:
            unknown = (
                _NO_LOG_DIR if log.log_dir is None
                else _why_unknown(log.log_dir.checkpoint(HIGH_WATERMARK_CHECKPOINT))
            )
            return Bound(start, f"the log start offset, where a broker begins: {unknown}")
    elif isinstance(choice, int | np.integer) and not isinstance(choice, bool):
        offset, basis = int(choice), "as given"
    else:
        raise ValueError(f"high_watermark is 'log-end', 'checkpoint' or a number, not {choice!r}")
    if offset < start:
        return Bound(start, f"the log start offset, above {offset} ({basis})")
    if offset > end:
        return Bound(end, f"the log end offset, below {offset} ({basis})")
    return Bound(offset, basis)


def find_last_stable(log: PartitionLog, high_watermark: int) -> Bound:
    """Find the first offset that a reader of committed records does not get.

    Parameters
    ----------
    log : PartitionLog
        The partition.
    high_watermark : int
        No transaction that was decided at or above it counts as decided.

    Returns
    -------
    Bound

    Notes
    -----
    Source: Kafka 2.4.0 ``ProducerStateManager.firstUnstableOffset``,
    ``Log.fetchLastStableOffsetMetadata``.
    """
    undecided = first_undecided_offset(log, high_watermark)
    if undecided is None:
        return Bound(high_watermark, "the high watermark: no transaction is open below it")
    if undecided < log.log_start_offset:
        basis = f"the log start offset, above offset {undecided} of the oldest open transaction"
        return Bound(log.log_start_offset, basis)
    return Bound(undecided, "first offset of the oldest open transaction")


def _why_unknown(checkpoint: Checkpoint) -> str:
    """Say why a checkpoint does not name a partition."""
    if checkpoint.error is not None:
        return f"the checkpoint is damaged ({checkpoint.error})"
    if not checkpoint.is_there:
        return f"there is no {checkpoint.path.name}"
    return f"{checkpoint.path.name} has no line for it"
