"""Log directories as views in DuckDB, of which only what a query needs is read.

Needs the extra ``duckdb``. DuckDB passes a query's columns and filters to pyarrow datasets only, so
a view is one to DuckDB.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Unpack

from kafkastore.arguments import INT64_MAX, INT64_MIN, check_keywords
from kafkastore.errors import ArgumentTypeError, ArgumentValueError, MissingExtraError
from kafkastore.formats.state.file_names import TopicPartition
from kafkastore.log.records_as_arrow import ScanArguments
from kafkastore.store.log_store import AnyPartition, LogStore, Paths, open_paths
from kafkastore.store.log_table import LogTable, without_traceback
from kafkastore.store.record_limits import RecordLimits

try:
    import pyarrow as pa
    import pyarrow.compute as pc
    from pyarrow import dataset
    from pyarrow.fs import LocalFileSystem
except ModuleNotFoundError as missing:
    raise MissingExtraError("pyarrow", "duckdb") from missing

if TYPE_CHECKING:
    import duckdb

    from kafkastore.segment.index_trust import Indexes

_FORMAT = dataset.IpcFileFormat()
_FILES = LocalFileSystem()
#: The table macro: all arguments are optional. DuckDB computes what is constant before it reads.
#: The sentence is that of `UnknownTopicError`: only DuckDB knows the arguments.
_MACRO = """
CREATE OR REPLACE TEMP MACRO {name}(
    topic_name := NULL, start_timestamp := NULL, end_timestamp := NULL,
    start_offset := NULL, end_offset := NULL
) AS TABLE
SELECT {name}.* FROM (
    SELECT CASE
        WHEN topic_name IS NULL OR topic_name::VARCHAR IN ({topics}) THEN true
        ELSE error(concat('no topic ''', topic_name, {paths}, coalesce(
            '; did you mean ' || (
                SELECT string_agg(near, ' or ') FROM (
                    SELECT near FROM (VALUES {rows}) AS known(near)
                    WHERE jaro_winkler_similarity(lower(near), lower(topic_name::VARCHAR)) > 0.8
                    ORDER BY jaro_winkler_similarity(lower(near), lower(topic_name::VARCHAR)) DESC
                    LIMIT 3
                )
            ) || '?',
            {others}
        )))
    END AS is_known
), {name}
WHERE is_known
    AND (topic_name IS NULL OR topic = topic_name::VARCHAR)
    AND (start_timestamp IS NULL OR "timestamp" >= {start_timestamp})
    AND (end_timestamp IS NULL OR "timestamp" < {end_timestamp})
    AND (start_offset IS NULL OR "offset" >= start_offset)
    AND (end_offset IS NULL OR "offset" < end_offset)
"""
#: A time of any of DuckDB's types; an integer is in ms since 1970.
_TIME = """CASE
    WHEN regexp_full_match({0}::VARCHAR, '-?[0-9]+')
    THEN make_timestamptz(1000 * {0}::VARCHAR::BIGINT)
    ELSE {0}::VARCHAR::TIMESTAMPTZ
END"""
#: How many of a store's topics an error names.
_SHOWN_TOPICS = 3


def register(
    connection: duckdb.DuckDBPyConnection,
    path: Paths,
    topics: str | Iterable[str] | None = None,
    columns: Sequence[str] | None = None,
    *,
    partitions: Iterable[AnyPartition] | None = None,
    name: str = "kafkastore",
    indexes: Indexes = "trust",
    **options: Unpack[ScanArguments],
) -> None:
    """Make a view of each topic of log directories, and one of all topics.

    Parameters
    ----------
    connection : duckdb.DuckDBPyConnection
        The connection; views are temporary, and end with it.
    path : path-like, LogStore or list of these
        As for `kafkastore.open`.
    topics, columns, partitions
        As for `LogStore.to_arrow`. Of all columns only those that a query uses are read.
    name : str
        Of the view of all topics, and of the table macro with the optional arguments `topic_name`,
        `start_timestamp`, `end_timestamp`, `start_offset` and `end_offset`. An integer as a time is
        in ms since 1970. Without the columns of these arguments there is no macro.
    indexes : str
        As for `PartitionLog.to_arrow`. By default time indexes are trusted, so that a filter on
        `timestamp` need not read all of the log.
    **options
        As for `PartitionLog.to_arrow`, without `limit`; bounds narrow those of filters.

    Raises
    ------
    NotALogDirectoryError
        If a path is not a log directory.
    UnknownTopicError, KeyError, DuplicatePartitionError, ArgumentTypeError
        As `LogStore.to_arrow`.
    ArgumentValueError
        If two names differ in case only, which DuckDB ignores; or as `LogStore.to_arrow`.
    """
    if not all(callable(getattr(connection, each, None)) for each in ("register", "execute")):
        raise ArgumentTypeError(
            "connection", "a DuckDB connection such as duckdb.connect()", connection
        )
    if columns is not None and not isinstance(columns, str) and not [*columns]:
        raise ArgumentValueError("columns", "at least one column of a view", columns)
    if not isinstance(name, str) or not name:
        raise ArgumentTypeError("name", "a name such as 'kafkastore'", name)
    if "limit" in options:
        raise TypeError("register() takes no limit; write LIMIT in the query")
    check_keywords("register", options, ScanArguments)
    store = open_paths(path)
    chosen = store.chosen_of(topics, partitions)
    by_topic: dict[str, list[TopicPartition]] = {}
    for each in chosen:
        by_topic.setdefault(each.topic, []).append(each)
    _check_distinct([name, *by_topic])

    def view_of(some: Sequence[TopicPartition]) -> _View:
        return _View(store, tuple(some), columns, indexes, options)

    every = view_of(chosen)
    connection.register(name, every)
    for topic, some in by_topic.items():
        connection.register(topic, view_of(some))
    if {"topic", "timestamp", "offset"} <= {*every.schema.names}:
        connection.execute(_macro(name, list(by_topic), store.paths))


def _macro(name: str, topics: Sequence[str], paths: Iterable[Path]) -> str:
    """Return the statement that makes the table macro."""
    literals = [*map(_literal, topics)] or ["NULL"]
    shown = ", ".join(topics[:_SHOWN_TOPICS])
    others = f"among its topics are {shown}" if topics else "it has none"
    return _MACRO.format(
        name='"' + name.replace('"', '""') + '"',
        topics=", ".join(literals),
        rows=", ".join(f"({each})" for each in literals),
        paths=_literal(f"' in {' and '.join(map(str, paths))}"),
        others=_literal(f"; {others}"),
        start_timestamp=_TIME.format("start_timestamp"),
        end_timestamp=_TIME.format("end_timestamp"),
    )


def _literal(text: str) -> str:
    """Return a text as a string of SQL."""
    return "'" + text.replace("'", "''") + "'"


def _check_distinct(names: Sequence[str]) -> None:
    """Refuse names that are the same to DuckDB."""
    seen: dict[str, str] = {}
    for each in names:
        other = seen.setdefault(each.lower(), each)
        if other is not each:
            if other is names[0]:
                raise ArgumentValueError("name", "another name than that of a topic", names[0])
            raise ArgumentValueError(
                "topics", "names that differ in more than case: choose some", (other, each)
            )


class _Scanner(NamedTuple):
    """What DuckDB needs of a `pyarrow.dataset.Scanner`.

    A real one would read far ahead of a query that ends early.
    """

    schema: pa.Schema
    read: Callable[[], Iterator[pa.RecordBatch]]

    def to_reader(self) -> pa.RecordBatchReader:
        """Return a reader of the rows."""
        return pa.RecordBatchReader.from_batches(self.schema, without_traceback(self.read()))


def _passing(
    table: LogTable, condition: pc.Expression, names: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Yield the rows for which a condition holds, with some columns."""
    for batch in table:  # `RecordBatch.filter` fails in pyarrow 18 if no row passes
        yield from pa.Table.from_batches([batch]).filter(condition).select(names).to_batches()


class _View(dataset.Dataset):  # type: ignore[misc]
    """What DuckDB scans: a dataset for which only `schema` and `scanner` work.

    Source: DuckDB ``tools/pythonpkg/src/arrow/arrow_array_stream.cpp``.
    """

    def __init__(
        self,
        store: LogStore,
        partitions: tuple[TopicPartition, ...],
        columns: Sequence[str] | None,
        indexes: Indexes,
        options: ScanArguments,
    ) -> None:
        self._store, self._partitions = store, partitions
        self._limits = RecordLimits.of_options(options)
        self._options: dict[str, Any] = {**options, "indexes": indexes}
        self._schema = self._table(partitions, columns, self._limits).schema

    @property
    def schema(self) -> pa.Schema:
        """The columns of the view."""
        return self._schema

    def _table(
        self,
        partitions: Iterable[TopicPartition],
        columns: Sequence[str] | None,
        limits: RecordLimits,
    ) -> LogTable:
        bounds = vars(limits)
        return self._store.to_arrow(
            partitions=partitions, columns=columns, **{**self._options, **bounds}
        )

    def scanner(
        self,
        columns: list[str] | None = None,
        filter: pc.Expression | None = None,  # noqa: A002
        **_: Any,
    ) -> _Scanner:
        """Return the rows that pass a filter, with some columns."""
        names = self._schema.names if columns is None else columns
        schema = pa.schema([self._schema.field(name) for name in names])
        if filter is None:
            table = self._table(self._partitions, names, self._limits)
            return _Scanner(schema, lambda: (batch.select(names) for batch in table))
        partitions, limits = self._narrowed(filter)
        table = self._table(partitions, [*names, *self._used(filter, names)], limits)
        return _Scanner(schema, lambda: _passing(table, filter, names))

    def _used(self, condition: pc.Expression, names: Sequence[str]) -> list[str]:
        """Return the other columns of which a condition can't be computed without."""
        found = []
        empty = self._schema.empty_table()
        for name in self._schema.names:
            if name not in names:
                try:
                    empty.drop_columns([name]).filter(condition)
                except pa.ArrowInvalid:
                    found.append(name)
        return found

    def _narrowed(
        self, condition: pc.Expression
    ) -> tuple[tuple[TopicPartition, ...], RecordLimits]:
        """Return the partitions and bounds that contain every row that passes."""
        limits = replace(self._limits)
        names = self._schema.names
        if "offset" in names:
            self._narrow(limits, condition, "offset", 0)
        if "timestamp" in names and not self._may_pass(
            condition, [pc.field("timestamp").is_null()]
        ):
            self._narrow(limits, condition, "timestamp", INT64_MIN)
        if limits.is_empty:
            return (), limits
        if "topic" not in names and "partition" not in names:
            return self._partitions, limits
        passing = self._may_pass(condition, map(self._is_of, self._partitions))
        return tuple(self._partitions[number] for number in passing), limits

    def _is_of(self, topic_partition: TopicPartition) -> pc.Expression:
        """Return what is true of every record of a partition, as far as it is in columns."""
        parts = [
            pc.field(name) == pa.scalar(value, self._schema.field(name).type)
            for name, value in zip(("topic", "partition"), topic_partition, strict=True)
            if name in self._schema.names
        ]
        return parts[0] if len(parts) == 1 else parts[0] & parts[1]

    def _narrow(
        self, limits: RecordLimits, condition: pc.Expression, name: str, smallest: int
    ) -> None:
        """Narrow limits to the numbers of a column that may pass, by bisection."""
        column, kind = pc.field(name), self._schema.field(name).type

        def may_pass(guarantee: pc.Expression) -> bool:
            return bool(self._may_pass(condition, [guarantee]))

        start, above = smallest, INT64_MAX
        while above - start > 1:  # no number below `start` passes
            middle = (start + above) // 2
            if may_pass(column < pa.scalar(middle, kind)):
                above = middle
            else:
                start = middle
        end, below = INT64_MAX, smallest
        while end - below > 1:  # no number from `end` on passes
            middle = (end + below) // 2
            if may_pass(column >= pa.scalar(middle, kind)):
                below = middle
            else:
                end = middle
        if start > smallest:
            limits.narrow(name, ">=", [start])
        if end < INT64_MAX:
            limits.narrow(name, "<", [end])

    def _may_pass(
        self, condition: pc.Expression, guarantees: Iterable[pc.Expression]
    ) -> list[int]:
        """Return the numbers of the guarantees under which a row may pass.

        Arrow decides, as it does for the files of a partitioned dataset; no file exists.
        """
        files = [
            _FORMAT.make_fragment(str(number), _FILES, partition_expression=each)
            for number, each in enumerate(guarantees)
        ]
        known = dataset.FileSystemDataset(files, self._schema, _FORMAT, _FILES)
        return [int(each.path) for each in known.get_fragments(filter=condition)]
