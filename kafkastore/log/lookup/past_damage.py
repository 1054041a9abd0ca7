"""The right answer for a time in a corrupt log, as far as its records can be read."""
from __future__ import annotations

from typing import TYPE_CHECKING

from kafkastore.formats.entries import TimestampAndOffset

if TYPE_CHECKING:
    from kafkastore.log.damage import OnCorrupt, SkippedBytes
    from kafkastore.log.isolation import Isolation
    from kafkastore.log.partition_log import PartitionLog


def find_past_damage(
    log: PartitionLog,
    target_timestamp: int,
    isolation: Isolation,
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
    isolation, on_corrupt, skipped
        As for `PartitionLog.to_arrow`.

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
    if not found.num_rows:
        return None
    offset = found.column("offset")[0].as_py()
    record = next(log.records(offset, offset + 1, on_corrupt=on_corrupt, skipped=[]))
    return TimestampAndOffset(record.timestamp, offset, record.leader_epoch)
