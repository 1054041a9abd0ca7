"""Search by create time, where clocks differ: KIP-33's first use case.

What holds of ``offset_for_create_time(log, T, clock_skew_ms=S)``, if no clock that stamped a record
was more than S behind the one that T was read from:

- Every record that was created at T or later lies at or after the offset. With CreateTime its
  stamp is at least T - S. With LogAppendTime it is at least that too, for a record is appended
  after it was created; the stamp itself says nothing of when that was.
- Records before T lie there too: those of S, those that stand between later ones, and with
  LogAppendTime those that were on their way. The stamp can't tell them apart.
- Nothing holds of records without timestamp, nor of a stamp that an application made up.
"""
from __future__ import annotations

from kafkastore.formats.entries import TimestampAndOffset
from kafkastore.log.partition_log import PartitionLog


def earliest_timestamp(create_time: int, clock_skew_ms: int) -> int:
    """Return the smallest timestamp that a record created at a time or later can have.

    Parameters
    ----------
    create_time : int
        ms since 1970.
    clock_skew_ms : int
        How far a clock may be behind, at least 0.

    Returns
    -------
    int
        ms since 1970, at least 0.

    Raises
    ------
    ValueError
        If the skew is negative.

    Examples
    --------
    >>> earliest_timestamp(1_500_000_000_000, 300_000)
    1499999700000
    """
    if clock_skew_ms < 0:
        raise ValueError(f"clock_skew_ms must be at least 0, got {clock_skew_ms}")
    return max(create_time - clock_skew_ms, 0)


def offset_for_create_time(
    log: PartitionLog, create_time: int, *, clock_skew_ms: int = 0
) -> TimestampAndOffset | None:
    """Find where to begin so that no record is missed that was created at a time or later.

    Parameters
    ----------
    log : PartitionLog
        The partition.
    create_time : int
        ms since 1970, inclusive.
    clock_skew_ms : int
        How far a clock that stamped records may be behind the one `create_time` is from.

    Returns
    -------
    TimestampAndOffset or None
        The first record that may be one; None where none is, and all that comes is.

    Notes
    -----
    Source: KIP-33, use cases, "search by timestamp": CT - X, where X is the largest skew.
    """
    return log.offset_for_timestamp(earliest_timestamp(create_time, clock_skew_ms))
