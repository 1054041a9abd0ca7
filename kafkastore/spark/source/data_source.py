"""The data source ``kafkastore``: log directories as frames, without a broker.

>>> records = spark.read.format("kafkastore").load("/kafka-logs")      # doctest: +SKIP

Planning (`planning`) lists directories and looks up offsets for timestamps; tasks read slices of
logs (`slices`) into Arrow batches (`slice_reading`). Options choose what is read; filters only
reduce it if the option `pushFilters` is set.
"""
from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    Filter,
    InputPartition,
)
from pyspark.sql.types import StructType

from kafkastore.spark.by_value import SentByValue
from kafkastore.spark.daemon import hide_closed_connections
from kafkastore.spark.source.filters import COLUMNS, Limits, accept_far_times
from kafkastore.spark.source.latest_reading import read_latest_slices
from kafkastore.spark.source.options import (
    RECORDS,
    OptionError,
    OptionProblem,
    ReadOptions,
    parse_options,
)
from kafkastore.spark.source.planning import plan
from kafkastore.spark.source.schema import check_schema, known_columns, spark_schema
from kafkastore.spark.source.short_errors import short_errors
from kafkastore.spark.source.slice_reading import read_slices
from kafkastore.spark.source.slices import SlicePack
from kafkastore.store.log_store import open_store

FORMAT = "kafkastore"
#: The columns whose filters may leave out records before the last of each key is found: those that
#: are the same for all records of what has one row for each key.
FILTERED_BEFORE = {
    None: COLUMNS,
    "topic": frozenset(("topic",)),
    "partition": frozenset(("topic", "partition")),
}

# Every worker that plans imports this module before anything else of kafkastore.
hide_closed_connections()


class KafkaStoreDataSource(DataSource):
    """The data source of `spark.read.format("kafkastore")`; see `options`."""

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return FORMAT

    @short_errors()
    def schema(self) -> StructType:
        """Return the frame's schema; only options and directory names are needed for it."""
        options = parse_options(self.options, is_stream=None)
        open_store(list(options.paths))
        if options.table != RECORDS:
            from kafkastore.spark.source.tables import table_schema

            return table_schema(options.table, options.columns)
        return spark_schema(
            options.columns, include_headers=options.include_headers, latest_of=options.latest_of
        )

    @short_errors()
    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a reader for a schema: ours, or the caller's choice of columns."""
        options = parse_options(self.options)
        accept_far_times()
        if options.table != RECORDS:
            from kafkastore.spark.source.tables import TableReader, table_schema

            known = table_schema(options.table)
            return TableReader(options, check_schema(schema, options.columns, known))
        kind = PushingReader if options.push_filters else RecordsReader
        known = known_columns(options.latest_of)
        return kind(options, check_schema(schema, options.columns, known))

    @short_errors()
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return a writer that writes a frame as a new log directory."""
        from kafkastore.spark.source.writing.writer import writer_of

        return writer_of(self.options, schema, overwrite=overwrite)

    @short_errors()
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """Raise an error: streams cannot be written."""
        raise OptionError(
            "streams cannot be written, because existing logs are never appended to: write each "
            "batch into a new directory, with foreachBatch and a path that contains the batch id",
            OptionProblem.UNSUITABLE,
        )

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return a reader that follows growing logs."""
        from kafkastore.spark.source.streaming.stream_reader import KafkaStoreStreamReader

        return KafkaStoreStreamReader(self.options, schema)


class RecordsReader(SentByValue, DataSourceReader):
    """Plans a read of `columns`, and executes it in tasks."""

    def __init__(self, options: ReadOptions, columns: tuple[str, ...]) -> None:
        self.options = options
        self.columns = columns
        self.limits = Limits()

    @short_errors()
    def partitions(self) -> list[InputPartition]:
        """Divide the requested offsets into tasks."""
        return list(plan(self.options, self.limits))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of one task."""
        if isinstance(partition, SlicePack):  # Spark reads one partition even if none is planned
            with short_errors():
                if self.options.latest_of is not None:
                    yield from read_latest_slices(partition.slices, self.columns, self.options)
                    return
                yield from read_slices(partition.slices, self.columns, self.options, self.limits)


class PushingReader(RecordsReader):
    """A reader that skips records that filters exclude, for the option `pushFilters`.

    Optional: Spark 4.2 and 4.3 reuse one query's filters for the next on a frame, see
    `docs/spark.md`.

    Source: Spark 4.3 ``PythonScanBuilder.pushFilters``, ``PythonDataSourceV2.setReadInfo``.
    """

    @property
    def pushFilters(self) -> _TakesFilters:
        """The callable to which Spark passes the filters, if the session allows it."""
        return _TakesFilters(self.limits, FILTERED_BEFORE[self.options.latest_of])


class _TakesFilters:
    """A `pushFilters` that Spark does not recognize as overridden.

    It detects that by ``reader.pushFilters.__func__``, and fails every scan of such a reader while
    ``spark.sql.python.filterPushdown.enabled`` is off, which readers can't see.

    Source: Spark 4.3 ``plan_data_source_read.py``, ``data_source_pushdown_filters.py``.
    """

    def __init__(self, limits: Limits, columns: Container[str | None]) -> None:
        self._limits, self._columns = limits, columns
        self.__func__: Callable[..., Iterable[Filter]] = DataSourceReader.pushFilters

    def __call__(self, filters: list[Filter]) -> list[Filter]:
        """Use the filters, and return all of them, so that Spark applies them again."""
        self._limits.add(filters, self._columns)
        return filters
