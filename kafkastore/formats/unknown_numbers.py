"""Numbers that Kafka writes as -1 where it has none."""

from __future__ import annotations


def none_if_negative(number: int) -> int | None:
    """Return a number of a file or a protocol, or None for one that stands for none."""
    return None if number < 0 else number
