"""The table of records that `to_arrow` returns."""
from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from itertools import chain
from types import TracebackType
from typing import Any, Self, Unpack
from weakref import WeakSet

from kafkastore.arguments import check_keywords
from kafkastore.errors import KafkaStoreError, MissingExtraError
from kafkastore.formats.state.file_names import TopicPartition
from kafkastore.log.log_view import LogView
from kafkastore.log.record_reading import read_many
from kafkastore.log.records_as_arrow import ArrowArguments, ArrowOptions
from kafkastore.store.latest_records import LatestArguments, read_latest

try:
    import pyarrow as pa
except ModuleNotFoundError as missing:
    raise MissingExtraError("pyarrow", "arrow") from missing


class LogTable:
    """Records as an Arrow table that is read when it is used, each time again.

    Other libraries read it by the Arrow PyCapsule interface: ``duckdb.sql("from table")``,
    ``polars.DataFrame(table)``, ``pyarrow.table(table)``. Not thread-safe.

    Parameters
    ----------
    schema : pyarrow.Schema
        The columns and their types.
    read : callable
        Reads the records from the first on: returns an iterator of `pyarrow.RecordBatch`.
    """

    def __init__(self, schema: pa.Schema, read: Callable[[], Iterator[pa.RecordBatch]]) -> None:
        self.schema = schema
        self._read = read
        #: Iterations that are not finished.
        self._iterations: WeakSet[Generator[pa.RecordBatch, None, None]] = WeakSet()
        self._next: Generator[pa.RecordBatch, None, None] | None = None

    def __repr__(self) -> str:
        return f"LogTable({', '.join(self.schema.names)})"

    def __iter__(self) -> Generator[pa.RecordBatch, None, None]:
        """Read the records from the first on, in batches of at most `batch_rows`."""
        iteration = self._iterate()
        self._iterations.add(iteration)
        return iteration

    def _iterate(self) -> Generator[pa.RecordBatch, None, None]:
        yield from self._read()

    def to_reader(self) -> pa.RecordBatchReader:
        """Return a `pyarrow.RecordBatchReader` that reads the records from the first on."""
        return pa.RecordBatchReader.from_batches(self.schema, self._iterate())

    def read_next_batch(self) -> pa.RecordBatch:
        """Return the next batch of one reading, which the first call begins.

        Raises
        ------
        StopIteration
            After the last batch; the next call begins again.
        """
        if self._next is None:
            self._next = iter(self)
        try:
            return next(self._next)
        except StopIteration:
            self._next = None
            raise

    def read_all(self) -> pa.Table:
        """Read all records into memory."""
        return pa.Table.from_batches(self, self.schema)

    def to_pandas(self, **options: Any) -> Any:
        """Read all records into a `pandas.DataFrame`.

        Parameters
        ----------
        **options
            Those of `pyarrow.Table.to_pandas`.

        Returns
        -------
        pandas.DataFrame
        """
        return self.read_all().to_pandas(**options)

    def close(self) -> None:
        """Stop the iterations that are not finished; the table can be read again."""
        self._next = None
        for iteration in tuple(self._iterations):
            iteration.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close the table."""
        self.close()

    def __arrow_c_schema__(self) -> Any:
        """Return the schema as a PyCapsule; nothing is read."""
        return self.schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """Return the batches as a PyCapsule, read from the first on as they are consumed.

        Columns are cast to the types of `requested_schema`, which has the same names.
        """
        batches = without_traceback(self._iterate())
        reader = pa.RecordBatchReader.from_batches(self.schema, batches)
        return reader.__arrow_c_stream__(requested_schema)


def without_traceback(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Iterate over batches; errors and Ctrl-C have no traceback for Arrow to print.

    Other libraries are given the text of an error, and no error of Python.
    """
    errors: list[BaseException] = []

    def until_error() -> Generator[pa.RecordBatch, None, None]:
        try:
            yield from batches
        except (KafkaStoreError, OSError, KeyboardInterrupt) as error:
            error.__cause__ = error.__context__ = None
            errors.append(error.with_traceback(None))

    ended = until_error()
    ended.close()
    # A generator that has ended raises what is thrown into it, and adds no line of Python.
    return chain(until_error(), map(ended.throw, errors))


def table_of_partitions(
    logs_of: Callable[[Sequence[TopicPartition]], Iterable[LogView]],
    chosen: Sequence[TopicPartition],
    columns: Sequence[str] | None = None,
    *,
    dictionary: bool = False,
    **options: Unpack[ArrowArguments],
) -> LogTable:
    """Return the table of some partitions of a store; see `LogStore.to_arrow`."""
    check_keywords("to_arrow", options, ArrowArguments)
    logs_of(chosen)  # raises an error now if one is missing or duplicate
    topics = tuple(sorted({each.topic for each in chosen})) if dictionary else None
    checked = ArrowOptions(columns=columns, all_topics=topics, **options)
    return LogTable(checked.schema, lambda: read_many(logs_of(chosen), checked))


def latest_of_partitions(
    logs_of: Callable[[Sequence[TopicPartition]], Iterable[LogView]],
    chosen: Sequence[TopicPartition],
    columns: Sequence[str] | None = None,
    *,
    include_tombstones: bool = False,
    dictionary: bool = False,
    **options: Unpack[LatestArguments],
) -> LogTable:
    """Return the last records of some partitions of a topic; see `TopicLogs.latest`."""
    check_keywords("latest", options, LatestArguments)
    logs_of(chosen)  # raises an error now if one is missing or duplicate
    topics = tuple({each.topic for each in chosen}) if dictionary else None
    checked = ArrowOptions(columns=columns, all_topics=topics, **options)
    return LogTable(
        checked.schema,
        lambda: read_latest(logs_of(chosen), checked, include_tombstones=include_tombstones),
    )
