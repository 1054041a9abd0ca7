"""Limits of a read: Spark's filters on topic, partition, offset and timestamp.

Spark filters the rows again, so a filter that is not understood, or only in part, only costs time.
"""
from __future__ import annotations

import sys
from base64 import b64decode
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)
from pyspark.sql.types import VariantVal

from kafkastore.formats.state.file_names import TopicPartition
from kafkastore.store.record_limits import Comparison, RecordLimits

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)


#: The module with which PySpark reads filters in the process that plans.
_PLANNER = "pyspark.sql.worker.data_source_pushdown_filters"


def accept_far_times() -> None:
    """Let filters contain times after the year 9999, which then set no limit.

    PySpark converts each time to a `datetime` before it calls a reader, so planning such a query
    would otherwise fail.

    Source: Spark 4.2 ``data_source_pushdown_filters.deserializeVariant``, ``VariantUtils``.
    """
    planner: Any = sys.modules.get(_PLANNER)
    if planner is not None and planner.deserializeVariant is not _literal:
        planner.deserializeVariant = _literal


def _literal(stored: Mapping[str, str]) -> _Literal:
    return _Literal(b64decode(stored["value"]), b64decode(stored["metadata"]))


class _Literal(VariantVal):
    """A filter's value; None if Python cannot represent it."""

    def toPython(self) -> Any:
        try:
            return super().toPython()
        except OverflowError:
            return None


#: The columns whose filters reduce a read.
COLUMNS = frozenset(("topic", "partition", "offset", "timestamp"))


@dataclass
class Limits(RecordLimits):
    """What contains every record that passes Spark's filters."""

    _of_topics: list[Filter] = field(default_factory=list)
    _of_partitions: list[Filter] = field(default_factory=list)

    def add(self, filters: Iterable[Filter], columns: Container[str | None] = COLUMNS) -> None:
        """Narrow the limits by filters on `columns` that must all hold."""
        for each in filters:
            column = _column_of(each)
            if column not in columns:
                continue
            match column:
                case "topic":
                    self._of_topics.append(each)
                case "partition":
                    self._of_partitions.append(each)
                case "offset" | "timestamp":
                    comparison, values = _comparison(each)
                    kind = int if column == "offset" else datetime
                    if comparison is not None and all(_is(value, kind) for value in values):
                        self.narrow(column, comparison, [_number(value) for value in values])

    def include(self, topic_partition: TopicPartition) -> bool:
        """Return whether records of a partition may pass."""
        topic, partition = topic_partition
        return all(_holds(each, topic) is not False for each in self._of_topics) and all(
            _holds(each, partition) is not False for each in self._of_partitions
        )


def _column_of(each: Filter) -> str | None:
    """Return the column of a filter; None if the filter is on a nested field."""
    inner = each
    while isinstance(inner, Not):
        inner = inner.child
    path: tuple[str, ...] = getattr(inner, "attribute", ())
    return path[0] if len(path) == 1 else None


def _comparison(each: Filter) -> tuple[Comparison | None, Sequence[Any]]:
    """Return a filter as a comparison with values; None if it is another one."""
    match each:
        case EqualTo(_, value) | EqualNullSafe(_, value):
            return "==", [value]
        case GreaterThan(_, value):
            return ">", [value]
        case GreaterThanOrEqual(_, value):
            return ">=", [value]
        case LessThan(_, value):
            return "<", [value]
        case LessThanOrEqual(_, value):
            return "<=", [value]
        case In(_, values) if values:
            return "in", values
    return None, ()


def _is(value: object, kind: type) -> bool:
    """Return whether a literal is an int, or a time with a time zone."""
    if isinstance(value, datetime):
        return kind is datetime and value.tzinfo is not None
    return kind is int and type(value) is int


def _number(value: int | datetime) -> int:
    """Return a literal as a number; a time as microseconds since 1970."""
    return (value - EPOCH) // MICROSECOND if isinstance(value, datetime) else value


def _holds(each: Filter, value: Any) -> bool | None:
    """Evaluate a filter on a non-null value; None if it is not understood."""
    if isinstance(each, Not):
        held = _holds(each.child, value)
        return None if held is None else not held
    if isinstance(each, In):
        same = all(type(wanted) is type(value) for wanted in each.value)
        return value in each.value if same else None
    wanted: Any = vars(each).get("value")
    if type(wanted) is not type(value):
        return None
    match each:
        case EqualTo() | EqualNullSafe():
            return bool(value == wanted)
        case GreaterThan():
            return bool(value > wanted)
        case GreaterThanOrEqual():
            return bool(value >= wanted)
        case LessThan():
            return bool(value < wanted)
        case LessThanOrEqual():
            return bool(value <= wanted)
        case StringStartsWith():
            return str(value).startswith(wanted)
        case StringEndsWith():
            return str(value).endswith(wanted)
        case StringContains():
            return wanted in str(value)
    return None
