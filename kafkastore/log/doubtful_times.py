"""Timestamps that may not mean what a broker takes them for: of the future, or in another unit.

Producers write what they like into a record's timestamp, and brokers take it for ms since 1970.
"""
from __future__ import annotations

import enum

# Times of the years 1990 to 2100, in seconds.
_PLAUSIBLE_SECONDS = range(631_152_000, 4_102_444_800)


class Doubt(enum.StrEnum):
    """What may be wrong with a timestamp.

    `FUTURE`: it lies ahead of the clock. The others: it is a plausible time in that unit, and as ms
    lies in 1970 or thousands of years ahead.
    """

    FUTURE = "future"
    SECONDS = "seconds"
    MICROSECONDS = "microseconds"
    NANOSECONDS = "nanoseconds"


# To have ms: by what to multiply, by what to divide.
_UNITS = {
    Doubt.SECONDS: (1000, 1),
    Doubt.MICROSECONDS: (1, 1000),
    Doubt.NANOSECONDS: (1, 1_000_000),
}


def find_doubt(timestamp: int, now: int) -> Doubt | None:
    """Tell what may be wrong with a timestamp.

    Parameters
    ----------
    timestamp : int
        ms since 1970, as a broker takes it.
    now : int
        ms since 1970.

    Returns
    -------
    Doubt or None

    Examples
    --------
    >>> find_doubt(1_700_000_000, now=1_700_000_000_000).value
    'seconds'
    >>> find_doubt(1_700_000_000_000_000, now=1_700_000_000_000).value
    'microseconds'
    """
    for unit in _UNITS:
        meant = meant_timestamp(timestamp, unit)
        if meant is not None and meant // 1000 in _PLAUSIBLE_SECONDS:
            return unit
    return Doubt.FUTURE if timestamp > now else None


def meant_timestamp(timestamp: int, doubt: Doubt | None) -> int | None:
    """Return what a timestamp is in ms, if the doubt about its unit is right.

    Parameters
    ----------
    timestamp : int
        As a broker takes it.
    doubt : Doubt or None
        About it.

    Returns
    -------
    int or None
        None where the doubt is not about the unit.

    Examples
    --------
    >>> meant_timestamp(1_700_000_000, Doubt.SECONDS)
    1700000000000
    """
    if doubt not in _UNITS:
        return None
    factor, divisor = _UNITS[doubt]
    return timestamp * factor // divisor
