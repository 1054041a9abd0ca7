"""Timestamps as text, in every output and message."""
from __future__ import annotations

from datetime import UTC, tzinfo

from kafkastore.clock import EPOCH, MILLISECOND


def format_time(timestamp: int | None, zone: tzinfo | None = None) -> str:
    """Format a timestamp in ms since 1970 as ISO 8601, by default in UTC.

    A negative number or None is ``-``; a number beyond the calendar is printed in ``ms``.

    >>> format_time(1500000000123)
    '2017-07-14T02:40:00.123Z'
    """
    if timestamp is None or timestamp < 0:
        return "-"
    try:
        moment = (EPOCH + timestamp * MILLISECOND).astimezone(zone or UTC)
    except OverflowError:
        return f"{timestamp} ms"
    text = moment.isoformat(timespec="milliseconds")
    return text.removesuffix("+00:00") + "Z" if zone is None else text


def time_in_text(timestamp: int | None) -> str:
    """Format a timestamp as `format_time`; a negative number is printed in ``ms``."""
    is_negative = timestamp is not None and timestamp < 0
    return f"{timestamp} ms" if is_negative else format_time(timestamp)
