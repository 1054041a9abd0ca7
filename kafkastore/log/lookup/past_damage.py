"""The right answer for a time in a corrupt log, as far as its records can be read."""
from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np

from kafkastore.formats.entries import NO_TIMESTAMP, TimestampAndOffset
from kafkastore.log.lookup.untimed import time_of

if TYPE_CHECKING:
    from kafkastore.log.damage import OnCorrupt, SkippedBytes
    from kafkastore.log.isolation import Isolation
    from kafkastore.log.partition_log import PartitionLog


def find_past_damage(
    log: PartitionLog,
    target_timestamp: int,
    isolation: Isolation,
    untimed: Literal["segment"] | None,
    on_corrupt: OnCorrupt,
    skipped: list[SkippedBytes] | None,
) -> TimestampAndOffset | None:
    """Find the first record with at least a timestamp that can be read.

    Parameters
    ----------
    log : PartitionLog
        The partition.
    target_timestamp : int
        ms since 1970, inclusive.
    isolation, untimed, on_corrupt, skipped
        As for `PartitionLog.offset_for_timestamp`.

    Returns
    -------
    TimestampAndOffset or None
    """
    found = log.to_arrow(
        ["offset"],
        start_timestamp=max(target_timestamp, 0),
        limit=1,
        isolation=isolation,
        on_corrupt=on_corrupt,
        skipped=skipped,
    ).read_all()
    offset = found.column("offset")[0].as_py() if found.num_rows else None
    if untimed is not None:
        first = _first_untimed(log, target_timestamp, offset, isolation, on_corrupt)
        if first is not None:
            return TimestampAndOffset(NO_TIMESTAMP, first)
    if offset is None:
        return None
    record = next(log.records(offset, offset + 1, on_corrupt=on_corrupt, skipped=[]))
    return TimestampAndOffset(record.timestamp, offset, record.leader_epoch)


def _first_untimed(
    log: PartitionLog,
    target_timestamp: int,
    end_offset: int | None,
    isolation: Isolation,
    on_corrupt: OnCorrupt,
) -> int | None:
    """Find the first segment, before an offset, of which no record that can be read is dated."""
    read = log.to_arrow(
        ["offset", "timestamp"],
        end_offset=None if end_offset is None else end_offset + 1,
        isolation=isolation,
        on_corrupt=on_corrupt,
        skipped=[],
    )
    bases = np.array([segment.base_offset for segment in log.segments], np.int64)
    has_records, is_dated = np.zeros((2, len(bases)), bool)
    for batch in read:
        segments = np.searchsorted(bases, batch.column("offset").to_numpy(), side="right") - 1
        has_records[segments] = True
        # One that does not fit 64 bits in microseconds is null.
        stamps = batch.column("timestamp").cast("int64").fill_null(0).to_numpy()
        is_dated[segments[stamps >= 0]] = True
    for number in np.flatnonzero(has_records & ~is_dated).tolist():
        segment = log.segments[number]
        if time_of(segment) >= max(target_timestamp, 0):
            return max(segment.base_offset, log.log_start_offset)
    return None
