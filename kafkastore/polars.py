"""Log directories as lazy Polars frames that read only what a query needs.

Needs the extra ``polars``. Polars passes a query's columns, filters and limit to `_Source`. Filters
on topic and partition choose partitions, those on offset and timestamp bound the read; Polars then
applies all of them to the rows that were read.
"""
from __future__ import annotations

import io
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Unpack

try:
    import polars as pl
    from polars.io.plugins import register_io_source
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError(
        f"Polars is not installed (no module {missing.name}): pip install 'kafkastore[polars]'",
        name=missing.name,
    ) from missing

from kafkastore.arguments import check_keywords
from kafkastore.formats.state.file_names import TopicPartition
from kafkastore.log.records_as_arrow import ScanArguments
from kafkastore.segment.index_trust import Indexes
from kafkastore.store.log_store import AnyPartition, LogStore, Paths, open_paths
from kafkastore.store.log_table import LogTable
from kafkastore.store.record_limits import Comparison, RecordLimits

_COMPARISONS: dict[str, Comparison] = {
    "Eq": "==", "EqValidity": "==", "Gt": ">", "GtEq": ">=", "Lt": "<", "LtEq": "<=",
}
#: The comparisons with both sides exchanged.
_EXCHANGED: dict[Comparison, Comparison] = {"==": "==", ">": "<", ">=": "<=", "<": ">", "<=": ">="}
#: Comparisons with the ends of `is_between`, by which of them are inside.
_BETWEEN: dict[str, tuple[Comparison, Comparison]] = {
    "Both": (">=", "<="), "Left": (">=", "<"), "Right": (">", "<="), "None": (">", "<"),
}
#: Operators and functions whose result depends on the values of one row only.
_OPERATORS = {*_COMPARISONS, "NotEq", "NotEqValidity", "And", "Or", "Xor"}
_FUNCTIONS = {
    "IsIn", "IsBetween", "Not", "IsNull", "IsNotNull", "Contains", "StartsWith", "EndsWith",
}


def scan(
    path: Paths,
    topics: str | Iterable[str] | None = None,
    columns: Sequence[str] | None = None,
    *,
    partitions: Iterable[AnyPartition] | None = None,
    dictionary: bool = False,
    indexes: Indexes = "trust",
    **options: Unpack[ScanArguments],
) -> pl.LazyFrame:
    """Return the records of log directories as a lazy frame.

    Parameters
    ----------
    path : path-like, LogStore or list of these
        As for `kafkastore.open`.
    topics, columns, partitions, dictionary
        As for `LogStore.to_arrow`. Of all columns only those that a query uses are read.
    indexes : str
        As for `PartitionLog.to_arrow`. By default time indexes are trusted, so that a filter on
        `timestamp` need not read all of the log.
    **options
        As for `PartitionLog.to_arrow`, without `limit`; bounds narrow those of filters.

    Returns
    -------
    polars.LazyFrame
        By topic, partition and offset, as long as a query keeps the order. Each query lists and
        reads the logs again.

    Raises
    ------
    NotALogDirectoryError
        If a path is not a log directory.
    UnknownTopicError, KeyError, DuplicatePartitionError, ArgumentTypeError, ArgumentValueError
        As `LogStore.to_arrow`.
    """
    if "limit" in options:
        raise TypeError("scan() takes no limit; use LazyFrame.head")
    check_keywords("scan", options, ScanArguments)
    store = open_paths(path)
    source = _Source(
        store,
        tuple(store.chosen_of(topics, partitions)),
        columns,
        RecordLimits.of_options(options),
        {**options, "dictionary": dictionary, "indexes": indexes},
    )
    return register_io_source(source, schema=source.schema, is_pure=True)


@dataclass
class _Source:
    """What Polars calls for each query; see ``polars.io.plugins.register_io_source``."""

    store: LogStore
    partitions: tuple[TopicPartition, ...]
    columns: Sequence[str] | None
    limits: RecordLimits
    options: dict[str, Any]

    def __post_init__(self) -> None:
        empty = self._table(self.partitions, self.columns, self.limits).schema.empty_table()
        self.schema = pl.DataFrame(empty).schema

    def _table(
        self,
        partitions: Iterable[TopicPartition],
        columns: Sequence[str] | None,
        limits: RecordLimits,
        limit: int | None = None,
    ) -> LogTable:
        return self.store.to_arrow(
            partitions=partitions,
            columns=columns,
            limit=limit,
            **{**self.options, **vars(limits)},
        )

    def __call__(
        self,
        with_columns: list[str] | None,
        predicate: pl.Expr | None,
        n_rows: int | None,
        batch_size: int | None,
    ) -> Iterator[pl.DataFrame]:
        """Yield the rows of a query.

        `predicate` applies to the first `n_rows` rows, not to all.
        """
        partitions, limits = self.partitions, self.limits
        if predicate is not None and n_rows is None:
            partitions, limits = self._narrowed(predicate)
        columns = self.schema.names() if with_columns is None else with_columns
        if limits.is_empty:
            partitions = ()
        for batch in self._table(partitions, columns, limits, n_rows):
            frame = pl.DataFrame(batch)
            yield (frame if predicate is None else frame.filter(predicate)).select(columns)

    def _narrowed(
        self, predicate: pl.Expr
    ) -> tuple[tuple[TopicPartition, ...], RecordLimits]:
        """Return the partitions and bounds that contain every row that passes."""
        kinds = pl.Schema(
            {"topic": self.schema.get("topic", pl.String()), "partition": pl.Int32()}
        )
        rows = {
            "topic": [each.topic for each in self.partitions],
            "partition": [each.partition for each in self.partitions],
        }
        left = pl.DataFrame(rows).cast(kinds).with_row_index("number")
        limits = replace(self.limits)
        try:
            for node in _conjuncts(json.loads(predicate.meta.serialize(format="json"))):
                expression = _expression(node)
                if {*expression.meta.root_names()} <= kinds.keys():
                    if _is_of_one_row(node):
                        left = left.filter(expression)
                else:
                    _narrow(limits, node)
        except (pl.exceptions.PolarsError, ValueError):
            return self.partitions, self.limits
        return tuple(self.partitions[number] for number in left["number"]), limits


def _expression(node: Any) -> pl.Expr:
    """Return the expression that Polars serialized."""
    return pl.Expr.deserialize(io.StringIO(json.dumps(node)), format="json")


def _conjuncts(node: Any) -> Iterator[Any]:
    """Yield the conditions that must all hold."""
    match node:
        case {"BinaryExpr": {"left": left, "op": "And", "right": right}}:
            yield from _conjuncts(left)
            yield from _conjuncts(right)
        case _:
            yield node


def _is_of_one_row(node: Any) -> bool:
    """Return whether a condition has known parts only, which see no other row."""
    match node:
        case {"Column": _}:
            return True
        case {"Literal": {**value}}:
            return "Series" not in value
        case {"Cast": {"expr": inner}}:
            return _is_of_one_row(inner)
        case {"BinaryExpr": {"left": left, "op": operator, "right": right}}:
            return operator in _OPERATORS and _is_of_one_row(left) and _is_of_one_row(right)
        case {"Function": {"input": inputs, "function": {"Boolean": kind} | {"StringExpr": kind}}}:
            name = kind if isinstance(kind, str) else next(iter(kind))
            return name in _FUNCTIONS and all(map(_is_of_one_row, inputs))
    return False


def _narrow(limits: RecordLimits, node: Any) -> None:
    """Narrow limits by a condition on offset or timestamp, if it is understood."""
    match node:
        case {"BinaryExpr": {"left": {"Column": str(column)}, "op": operator, "right": value}}:
            comparisons = [(_COMPARISONS.get(operator), value)]
        case {"BinaryExpr": {"left": value, "op": operator, "right": {"Column": str(column)}}}:
            found = _COMPARISONS.get(operator)
            comparisons = [(None if found is None else _EXCHANGED[found], value)]
        case {
            "Function": {
                "input": [{"Column": str(column)}, value],
                "function": {"Boolean": "IsIn" | {"IsIn": _}},
            }
        }:
            comparisons = [("in", value)]
        case {
            "Function": {
                "input": [{"Column": str(column)}, first, last],
                "function": {"Boolean": {"IsBetween": {"closed": str(closed)}}},
            }
        }:
            comparisons = [*zip(_BETWEEN[closed], (first, last), strict=True)]
        case _:
            return
    for comparison, value in comparisons:
        numbers = _numbers(column, value)
        if comparison is not None and numbers is not None:
            limits.narrow(column, comparison, numbers)


def _is_constant(node: Any) -> bool:
    """Return whether an expression has the same value wherever it is computed."""
    match node:
        case {"Literal": _}:
            return True
        case {"Cast": {"expr": inner}}:
            return _is_constant(inner)
        case {"Function": {"input": inputs, "function": {"TemporalExpr": _} | {"StringExpr": _}}}:
            return all(map(_is_constant, inputs))
    return False


def _numbers(column: str, node: Any) -> list[int] | None:
    """Return a constant's numbers, or microseconds since 1970; None if it has others."""
    if column not in ("offset", "timestamp") or not _is_constant(node):
        return None
    values = pl.select(_expression(node)).to_series()
    if values.dtype in (pl.List, pl.Array):
        values = values.explode()
    kind = values.dtype
    is_known = kind.is_integer() if column == "offset" else kind == pl.Datetime("us", "UTC")
    if not is_known or values.null_count():
        return None
    return values.to_physical().to_list()
