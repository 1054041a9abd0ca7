"""Search by create time with clock skew: KIP-33's first use case.

Guarantees of the offset for ``earliest_timestamp(T, S)``, if every clock that set a
record's timestamp was at most S slow, compared with the clock that gave T:

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


def earliest_timestamp(create_time: int, clock_skew_ms: int) -> int:
    """Return the smallest timestamp (ms) of a record created since a time.

    `clock_skew_ms` is the largest clock error, at least 0.

    >>> earliest_timestamp(1_500_000_000_000, 300_000)
    1499999700000
    """
    return max(create_time - whole_number("clock_skew_ms", clock_skew_ms, 0), 0)
