"""The data source ``kafkastore``: Kafka log directories as frames of records, without a broker.

>>> records = spark.read.format("kafkastore").load("/kafka-logs")      # doctest: +SKIP

Planning (`planning`) lists directories and looks up the offsets that are asked for by time; tasks
read slices of logs (`slices`) into Arrow batches (`slice_reading`). Everything a read can leave out
is told by options; filters are only understood where the option `pushFilters` asks for it.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa
from pyspark.sql import SparkSession
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

from kafkastore.spark.source.filters import Limits, accept_far_times
from kafkastore.spark.source.options import RECORDS, OptionError, ReadOptions, parse_options
from kafkastore.spark.source.planning import plan
from kafkastore.spark.source.schema import check_schema, spark_schema
from kafkastore.spark.source.short_errors import short_errors
from kafkastore.spark.source.slice_reading import read_slices
from kafkastore.spark.source.slices import SlicePack
from kafkastore.store.log_store import open_store

FORMAT = "kafkastore"


class KafkaStoreDataSource(DataSource):
    """What `spark.read.format("kafkastore")` makes; its options are those of `options`."""

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return FORMAT

    @short_errors()
    def schema(self) -> StructType:
        """Return the frame's schema, out of the options; nothing but directory names is read."""
        options = parse_options(self.options, is_stream=None)
        open_store(list(options.paths))
        if options.table != RECORDS:
            from kafkastore.spark.source.tables import table_schema

            return table_schema(options.table, options.columns)
        return spark_schema(options.columns, include_headers=options.include_headers)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a reader for a schema, ours or the caller's choice of columns."""
        options = parse_options(self.options)
        accept_far_times()
        if options.table != RECORDS:
            from kafkastore.spark.source.tables import TableReader, table_schema

            known = table_schema(options.table)
            return TableReader(options, check_schema(schema, options.columns, known))
        kind = PushingReader if options.push_filters else RecordsReader
        return kind(options, check_schema(schema, options.columns))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return what writes a frame as a new log directory."""
        from kafkastore.spark.source.writing.writer import writer_of

        return writer_of(self.options, schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """Refuse to be the sink of a stream."""
        raise OptionError(
            "kafkastore is no sink of streams, for no log is appended to: write each batch into a "
            "directory of its own, with foreachBatch and a path that has the batch's number"
        )

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return a reader that follows logs as they grow."""
        from kafkastore.spark.source.streaming.stream_reader import KafkaStoreStreamReader

        return KafkaStoreStreamReader(self.options, schema)


class RecordsReader(DataSourceReader):
    """Plans a read, and carries it out in tasks.

    Parameters
    ----------
    options : ReadOptions
    columns : tuple of str
        The columns to yield, in order.
    """

    def __init__(self, options: ReadOptions, columns: tuple[str, ...]) -> None:
        self.options = options
        self.columns = columns
        self.limits = Limits()

    @short_errors()
    def partitions(self) -> list[InputPartition]:
        """Cut what was asked for into pieces of work."""
        return list(plan(self.options, self.limits))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of one piece of work."""
        if isinstance(partition, SlicePack):  # Spark asks for one partition where there is none
            with short_errors():
                yield from read_slices(partition.slices, self.columns, self.options, self.limits)


class PushingReader(RecordsReader):
    """A reader that leaves out what filters exclude, for the option `pushFilters`.

    Only for that, because Spark 4.2 and 4.3 keep what was planned for one query's filters and use
    it for whatever is asked of the same frame next, without filters or with others; and so do two
    uses within one query. `docs/spark.md` shows it.

    Source: Spark 4.3 ``PythonScanBuilder.pushFilters``, ``PythonDataSourceV2.setReadInfo``.
    """

    @property
    def pushFilters(self) -> _TakesFilters:
        """What Spark calls with the filters, where the session lets it."""
        return _TakesFilters(self.limits)


class _TakesFilters:
    """`pushFilters`, as something Spark takes for not overridden.

    With ``spark.sql.python.filterPushdown.enabled`` off, its default, Spark fails every scan of a
    reader that overrides `pushFilters`, and a reader is not told the setting. Spark finds out by
    comparing ``reader.pushFilters.__func__`` with the base class's; so this has the base class's
    there, is never called with the setting off, and is called with it on.

    Source: Spark 4.3 ``plan_data_source_read.py``, ``data_source_pushdown_filters.py``.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self.__func__: Callable[..., Iterable[Filter]] = DataSourceReader.pushFilters

    def __call__(self, filters: list[Filter]) -> list[Filter]:
        """Take in the filters; all are returned, for Spark to apply once more."""
        self._limits.add(filters)
        return filters


def register(spark: SparkSession) -> None:
    """Make the format ``kafkastore`` known to a session.

    Parameters
    ----------
    spark : SparkSession

    Notes
    -----
    Where the package is installed, Spark finds the format by itself, through the module
    `pyspark_kafkastore`.
    """
    spark.dataSource.register(KafkaStoreDataSource)
