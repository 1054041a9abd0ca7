"""Timestamps as text, in every output and message."""
from __future__ import annotations

from datetime import UTC, tzinfo

from kafkastore.clock import EPOCH, MILLISECOND
from kafkastore.formats.indexes.entries import NO_TIMESTAMP


def format_time(timestamp: int | None, zone: tzinfo | None = None) -> str:
    """Format a timestamp in ms since 1970 as ISO 8601, by default in UTC.

    None and -1, Kafka's number for no timestamp, are ``-``. A number outside the years 1 to 9999 is
    printed in ``ms``.

    >>> format_time(1500000000123), format_time(-2)
    ('2017-07-14T02:40:00.123Z', '1969-12-31T23:59:59.998Z')
    """
    if timestamp is None or timestamp == NO_TIMESTAMP:
        return "-"
    try:
        moment = (EPOCH + timestamp * MILLISECOND).astimezone(zone or UTC)
    except OverflowError:
        return f"{timestamp} ms"
    text = moment.isoformat(timespec="milliseconds")
    return text.removesuffix("+00:00") + "Z" if zone is None else text


def time_in_text(timestamp: int | None) -> str:
    """Format a timestamp as `format_time`; -1 is printed in ``ms``."""
    return f"{timestamp} ms" if timestamp == NO_TIMESTAMP else format_time(timestamp)
