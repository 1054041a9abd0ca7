"""Detect timestamps in the future or in a wrong unit.

Producers write any timestamp into a record, and brokers treat it as ms since 1970.
"""
from __future__ import annotations

import enum

# Years 1990 to 2100, in seconds since 1970.
_PLAUSIBLE_SECONDS = range(631_152_000, 4_102_444_800)


class TimestampWarning(enum.StrEnum):
    """A reason to doubt a timestamp.

    `FUTURE`: it is later than the clock. The others: it is a plausible time in that unit; as ms it
    would lie in 1970 or thousands of years ahead.
    """

    FUTURE = "future"
    SECONDS = "seconds"
    MICROSECONDS = "microseconds"
    NANOSECONDS = "nanoseconds"


# Multiplier and divisor to convert to ms.
_UNITS = {
    TimestampWarning.SECONDS: (1000, 1),
    TimestampWarning.MICROSECONDS: (1, 1000),
    TimestampWarning.NANOSECONDS: (1, 1_000_000),
}


def find_timestamp_warning(timestamp: int, now: int) -> TimestampWarning | None:
    """Return what may be wrong with a timestamp; both arguments are in ms since 1970.

    >>> find_timestamp_warning(1_700_000_000, now=1_700_000_000_000).value
    'seconds'
    >>> find_timestamp_warning(1_700_000_000_000_000, now=1_700_000_000_000).value
    'microseconds'
    """
    for unit in _UNITS:
        meant = meant_timestamp(timestamp, unit)
        if meant is not None and meant // 1000 in _PLAUSIBLE_SECONDS:
            return unit
    return TimestampWarning.FUTURE if timestamp > now else None


def meant_timestamp(timestamp: int, doubt: TimestampWarning | None) -> int | None:
    """Convert a timestamp in a doubtful unit to ms; None if the unit is not in doubt.

    >>> meant_timestamp(1_700_000_000, TimestampWarning.SECONDS)
    1700000000000
    """
    if doubt not in _UNITS:
        return None
    factor, divisor = _UNITS[doubt]
    return timestamp * factor // divisor
