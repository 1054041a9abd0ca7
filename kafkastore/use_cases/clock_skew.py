"""Search by create time with clock skew: KIP-33's first use case.

Guarantees of ``offset_for_create_time(log, T, clock_skew_ms=S)``, if every clock that set a
record's timestamp was at most S behind the clock that gave T:

- Every record created at T or later is at or after the returned offset. With CreateTime its
  timestamp is at least T - S. The same is true with LogAppendTime, because a record is appended
  after it is created; the timestamp does not show when it was created.
- Records created before T may also follow: those within S, those between later records, and with
  LogAppendTime those that were delayed. Their timestamps do not distinguish them.
- Nothing is guaranteed for records without a timestamp, or with an arbitrary timestamp set by an
  application.
"""
from __future__ import annotations

from kafkastore.arguments import whole_number
from kafkastore.formats.indexes.entries import TimestampAndOffset
from kafkastore.store.partition_log import PartitionLog


def earliest_timestamp(create_time: int, clock_skew_ms: int) -> int:
    """Return the smallest timestamp (ms) of a record created since a time.

    `clock_skew_ms` is the largest clock error, at least 0.

    Examples
    --------
    >>> earliest_timestamp(1_500_000_000_000, 300_000)
    1499999700000
    """
    return max(create_time - whole_number("clock_skew_ms", clock_skew_ms, 0), 0)


def offset_for_create_time(
    log: PartitionLog, create_time: int, *, clock_skew_ms: int = 0
) -> TimestampAndOffset | None:
    """Find the offset from which no record created since a time is missed.

    Returns the first record that may qualify; None if there is none, and every later append
    qualifies. Source: KIP-33, use cases, "search by timestamp": CT - X, where X is the largest
    skew.
    """
    return log.offset_for_timestamp(earliest_timestamp(create_time, clock_skew_ms))
