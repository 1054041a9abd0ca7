"""Bounds on offset and timestamp that filters of a query engine imply.

Engines filter the rows again, so bounds may be too wide; they are never too narrow.
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self

from kafkastore.arguments import INT64_MAX, INT64_MIN, timestamp_ms

#: How a column's value is compared with a number, or with several.
Comparison = Literal["==", ">", ">=", "<", "<=", "in"]


@dataclass
class RecordLimits:
    """Bounds that contain every record that passes the filters; None for no bound.

    Starts are inclusive and ends exclusive; timestamps are in ms since 1970.
    """

    start_offset: int | None = None
    end_offset: int | None = None
    start_timestamp: int | None = None
    end_timestamp: int | None = None

    @classmethod
    def of_options(cls, options: Mapping[str, Any]) -> Self:
        """Return the bounds among the arguments of `to_arrow`."""
        bounds = cls(*map(options.get, ("start_offset", "end_offset")))
        for name in ("start_timestamp", "end_timestamp"):
            if (time := options.get(name)) is not None:
                setattr(bounds, name, timestamp_ms(name, time))
        return bounds

    def narrow(self, column: str, comparison: Comparison, numbers: Sequence[int]) -> None:
        """Narrow the bounds by a comparison that must hold.

        `column` is "offset", or "timestamp" in microseconds. `numbers` is one, or any for "in".
        """
        start, end = _range(comparison, numbers)
        if column == "offset":
            self.start_offset = _larger(self.start_offset, start)
            self.end_offset = _smaller(self.end_offset, end)
        else:
            self.start_timestamp = _larger(self.start_timestamp, _whole_ms(start))
            self.end_timestamp = _smaller(self.end_timestamp, _whole_ms(end))

    @property
    def is_empty(self) -> bool:
        """Whether no record can be within the bounds."""
        pairs = (
            (self.start_offset, self.end_offset), (self.start_timestamp, self.end_timestamp)
        )
        return any(
            start is not None and end is not None and start >= end for start, end in pairs
        )


def _range(comparison: Comparison, numbers: Sequence[int]) -> tuple[int | None, int | None]:
    """Return the accepted numbers: start inclusive, end exclusive, None for no limit."""
    if not numbers:
        return 0, 0
    first, last = min(numbers), max(numbers)
    match comparison:
        case "==" | "in":
            return first, last + 1
        case ">":
            return first + 1, None
        case ">=":
            return first, None
        case "<":
            return None, first
        case "<=":
            return None, first + 1


def _whole_ms(microseconds: int | None) -> int | None:
    """Return a bound in ms, rounded up: correct for both ends of [start, end)."""
    return None if microseconds is None else -(-microseconds // 1000)


def _larger(one: int | None, other: int | None) -> int | None:
    found = max((each for each in (one, other) if each is not None), default=None)
    return None if found is None else max(min(found, INT64_MAX), INT64_MIN)


def _smaller(one: int | None, other: int | None) -> int | None:
    found = min((each for each in (one, other) if each is not None), default=None)
    return None if found is None else max(min(found, INT64_MAX), INT64_MIN)
