"""The data source ``kafkastore``: Kafka log directories as frames of records, without a broker.

>>> records = spark.read.format("kafkastore").load("/kafka-logs")      # doctest: +SKIP

Planning lists directories and looks up the offsets that are asked for by time; tasks read slices of
logs (`slices`) into Arrow batches. Everything a read can leave out is told by options; filters are
only understood where the option `pushFilters` asks for it.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from kafkastore.errors import CorruptionError
from kafkastore.formats.file_names import TopicPartition
from kafkastore.formats.record_columns import BATCH_ROWS
from kafkastore.log.log_store import LogStore, open_store
from kafkastore.log.partition_log import PartitionLog
from kafkastore.spark.source.filters import Limits
from kafkastore.spark.source.options import (
    EARLIEST,
    LATEST,
    Bound,
    OptionError,
    ReadOptions,
    parse_options,
)
from kafkastore.spark.source.schema import check_schema, spark_schema
from kafkastore.spark.source.slices import (
    END,
    OPENING_BYTES,
    LogSlice,
    SlicePack,
    cut,
    log_bytes,
    pack,
    task_bytes,
)

FORMAT = "kafkastore"
#: Batches of fewer rows and bytes are put together before they go to the JVM.
ENOUGH_ROWS = BATCH_ROWS // 2
ENOUGH_BYTES = 4 << 20


class KafkaStoreDataSource(DataSource):
    """What `spark.read.format("kafkastore")` makes; its options are those of `options`."""

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return FORMAT

    def schema(self) -> StructType:
        """Return the frame's schema, out of the options; nothing but directory names is read."""
        options = parse_options(self.options)
        open_store(list(options.paths))
        return spark_schema(options.columns, include_headers=options.include_headers)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a reader for a schema, ours or the caller's choice of columns."""
        options = parse_options(self.options)
        kind = PushingReader if options.push_filters else RecordsReader
        return kind(options, check_schema(schema))


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

    def partitions(self) -> list[InputPartition]:
        """Cut what was asked for into pieces of work."""
        store = open_store(list(self.options.paths))
        ranges = list(self._ranges(store))
        total = sum(log_bytes(*each) for each in ranges)
        wanted = self.options.min_partitions
        size = task_bytes(total + OPENING_BYTES * len(ranges), wanted)
        largest = max(min(size, total // wanted), 1)
        return list(pack((each for one in ranges for each in cut(*one, largest)), size))

    def _ranges(self, store: LogStore) -> Iterator[tuple[PartitionLog, int, int]]:
        """Yield the partitions to read, and between which offsets."""
        for topic_partition in _chosen(store, self.options):
            if not self.limits.include(topic_partition):
                continue
            log = store.partitions[topic_partition]
            start, end = _offsets(log, self.options)
            start = max(start, self.limits.start_offset or start)
            if self.limits.end_offset is not None:
                end = min(end, self.limits.end_offset)
            if start < end:
                yield log, start, end

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of one piece of work."""
        if not isinstance(partition, SlicePack):
            return  # Spark asks for one partition where there is none
        batches = (batch for each in partition.slices for batch in self._read(each))
        for batch in _joined(batches):
            yield batch.select(list(self.columns))

    def _read(self, each: LogSlice) -> Iterator[pa.RecordBatch]:
        reader = each.log.to_arrow(
            self.columns,
            start_offset=each.start_offset,
            end_offset=each.end_offset,
            start_timestamp=self.limits.start_timestamp,
            end_timestamp=self.limits.end_timestamp,
        )
        try:
            yield from reader
        except CorruptionError:
            if self.options.fail_on_data_loss:
                raise


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


def _chosen(store: LogStore, options: ReadOptions) -> list[TopicPartition]:
    """Return the partitions that were asked for; all of them must be there."""
    selection = options.selection
    there = ", ".join(sorted({each.topic for each in store.partitions})) or "no topics"
    where = " and ".join(options.paths)
    for topic in sorted(selection.topics or ()):
        if not any(each.topic == topic for each in store.partitions):
            raise OptionError(f"option subscribe: no topic {topic} in {where}; there are {there}")
    for topic_partition in sorted(selection.assigned or ()):
        if topic_partition not in store.partitions:
            raise OptionError(f"option assign: no partition {topic_partition} in {where}")
    return [each for each in store.partitions if selection.includes(each)]


def _offsets(log: PartitionLog, options: ReadOptions) -> tuple[int, int]:
    """Find where to begin, inclusive, and to end, exclusive."""
    start = _offset(log, options.start)
    if start is None:
        if not options.latest_without_match:
            raise OptionError(
                f"option {options.start.option}: no record of {log.topic_partition} is at or after "
                f"{options.start.of(log.topic_partition)}; to read nothing of such partitions, set "
                f"startingOffsetsByTimestampStrategy to latest"
            )
        return END, END
    end = _offset(log, options.end)
    if options.fail_on_data_loss and options.start.each and not options.start.by_timestamp:
        _check_is_there(log, start, options.start)
    return max(start, log.log_start_offset), END if end is None else end


def _offset(log: PartitionLog, bound: Bound) -> int | None:
    """Find the offset that a bound means; None for a time after the last record."""
    number = bound.of(log.topic_partition)
    if bound.by_timestamp:
        found = log.offset_for_timestamp(number)
        return None if found is None else found.offset
    return {EARLIEST: log.log_start_offset, LATEST: END}.get(number, number)


def _check_is_there(log: PartitionLog, offset: int, bound: Bound) -> None:
    if not log.log_start_offset <= offset <= log.log_end_offset:
        raise OptionError(
            f"option {bound.option}: {log.topic_partition} has offsets {log.log_start_offset} to "
            f"{log.log_end_offset}, not {offset}; to begin with what is there, "
            f"set failOnDataLoss to false"
        )


def _joined(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Put small successive batches together, those of small partitions above all."""
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        waiting.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows >= ENOUGH_ROWS or size >= ENOUGH_BYTES:
            yield _one_of(waiting)
            waiting, rows, size = [], 0, 0
    if waiting:
        yield _one_of(waiting)


def _one_of(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    if len(batches) == 1:
        return batches[0]
    whole: pa.RecordBatch = pa.Table.from_batches(batches).combine_chunks().to_batches()[0]
    return whole
