"""Export of all records of partitions as Parquet."""
from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kafkastore.errors import ChangeRefusedError, RefusalReason
from kafkastore.jobs.inventory import InventoryJob, PartitionInventory
from kafkastore.jobs.job import columns_of, table_schema
from kafkastore.paths import describe_error, is_url, to_path
from kafkastore.runner import Failed, Progress, attempt
from kafkastore.spark import register
from kafkastore.spark.runner import frame_of, spread
from kafkastore.spark.watch import watch
from kafkastore.store.log_store import AnyPartition, AnyPath, Paths, listed, open_store
from kafkastore.store.partition_path import Copies, list_copies, weight

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, DataFrameWriter, SparkSession

COLUMNS = "key,value,topic,partition,offset,timestamp,timestampType,headers,leader_epoch"
LATEST = -1
DAY_US = 86_400_000_000

#: Greater than the number of partitions that one task reads (see `slices`).
MOST_FILES_AT_ONCE = 300
SETTINGS = {
    # Rows come in offset order. One open file for each partition keeps that order without a sort,
    # which would take longer than everything else.
    "spark.sql.maxConcurrentOutputFileWriters": str(MOST_FILES_AT_ONCE),
    # int64 timestamps have statistics, the old int96 has none; values are written unchanged.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
}


def records_to_parquet(
    spark: SparkSession,
    path: Paths,
    out: AnyPath,
    *,
    partitions: Collection[AnyPartition] | None = None,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> DataFrame:
    """Write the records of partitions as Parquet, in directories by topic and date.

    Parameters
    ----------
    spark : SparkSession
        A classic session, or one of Spark Connect.
    path : path-like, LogStore or list of these
        Log directories or partition directories of one broker.
    out : path-like
        The directory to write, in Spark's layout: ``topic=orders/date=2017-07-14/*.parquet``.
    partitions : collection, optional
        Export only these partitions, each as ``("orders", 3)`` or ``"orders-3"``.
    overwrite : bool
        Whether to replace `out` if it exists.
    progress : callable, optional
        Called with the number of partitions read and their total number, then with the tasks that
        write.

    Returns
    -------
    DataFrame
        A row for each partition with what was written; see ``docs/jobs.md``.

    Raises
    ------
    ChangeRefusedError
        If `out` is inside a log directory, or exists and `overwrite` is false.
    """
    store = open_store(listed(path))
    # Spark's working directory may differ from this process's.
    sources, folder = [absolute(each) for each in listed(path)], absolute(out)
    for log_dir in store.log_dirs:
        _check_outside(folder, log_dir.path)
    if not overwrite and os.path.lexists(folder):
        raise ChangeRefusedError(
            f"{out} exists; name another directory, or set overwrite=True",
            RefusalReason.NOT_EMPTY, out,
        )
    items = list_copies(store, partitions)
    read = spread(spark, partial(attempt, _reach), items, weigh=weight, progress=progress)
    found = list(zip(items, read, strict=True))
    readable = [each for _, each in found if isinstance(each, PartitionInventory) and each.records]
    written: dict[tuple[str, int], int] = {}
    if readable:
        frame = records_of(spark, sources, readable, assign=True)
        days = frame.withColumn("date", _date())
        write(spark, days.write.mode("overwrite"), ("topic", "date"), folder, progress)
        written = _rows_by_partition(spark, folder)
    rows = [_written_row(copies, row, written) for copies, row in found]
    return frame_of(spark, rows, written_schema())


def records_of(
    spark: SparkSession,
    paths: Sequence[str],
    inventories: Sequence[PartitionInventory],
    *,
    assign: bool,
) -> DataFrame:
    """Return the records of non-empty partitions, as far as they can be read.

    Without `assign`, reads all of `paths` if no partition is corrupt.
    """
    register(spark)
    reader = spark.read.format("kafkastore").option("columns", COLUMNS)
    is_broken = any(row.readable_end is not None for row in inventories)
    if assign or is_broken:
        assigned: dict[str, list[int]] = {}
        for row in inventories:
            assigned.setdefault(row.place.topic, []).append(row.place.partition)
        reader = reader.option("assign", json.dumps(assigned))
    if is_broken:
        ends: dict[str, dict[str, int]] = {}
        for row in inventories:
            end = LATEST if row.readable_end is None else row.readable_end
            ends.setdefault(row.place.topic, {})[str(row.place.partition)] = end
        reader = reader.option("endingOffsets", json.dumps(ends)).option("failOnDataLoss", "false")
    return reader.load(list(paths))


def write(
    spark: SparkSession,
    writer: DataFrameWriter,
    folders: Sequence[str],
    out: str,
    progress: Progress | None,
) -> None:
    """Write records as Parquet by the columns in `folders`, in offset order."""
    with _settings(spark):
        watch(spark, lambda: writer.partitionBy(*folders).parquet(out), progress)


def written_schema() -> pa.Schema:
    """Return the columns of the table that `records_to_parquet` returns."""
    import pyarrow as pa

    numbers = ("log_start_offset", "log_end_offset", "records", "rows")
    return table_schema((name, pa.int64()) for name in numbers)


def _reach(copies: Copies) -> PartitionInventory:
    """Return how far a partition can be read, without the largest fields."""
    return InventoryJob().run(copies)._replace(segments=(), samples=())


def absolute(path: AnyPath) -> str:
    """Return a path as absolute; a URL unchanged."""
    text = path if is_url(path) else str(to_path(path))
    return text if is_url(text) else os.path.abspath(text)


def _check_outside(out: str, log_dir: Path) -> None:
    """Raise an error if `out` is inside a log directory."""
    target, real = Path(os.path.realpath(out)), Path(os.path.realpath(log_dir))
    if target == real or target in real.parents or real in target.parents:
        raise ChangeRefusedError(
            f"{out} can't be the output for {log_dir}: one contains the other",
            RefusalReason.OVERLAP, out,
        )


def _date() -> Column:
    """Return the UTC date of a record; null without a timestamp.

    It does not depend on the session's time zone.
    """
    from pyspark.sql import functions as f

    micros = "unix_micros(timestamp)"
    days = f"(({micros} - pmod({micros}, {DAY_US}L)) div {DAY_US}L)"
    return f.expr(
        f"case when {micros} <> -1000 then date_from_unix_date(cast({days} as int)) end"
    )


def _rows_by_partition(spark: SparkSession, out: str) -> dict[tuple[str, int], int]:
    """Count the written rows of each partition."""
    files = spark.read.schema("partition int, topic string").parquet(out)
    counts = files.groupBy("topic", "partition").count().collect()
    return {(row[0], row[1]): row[2] for row in counts}


def _written_row(
    copies: Copies, found: PartitionInventory | Failed, written: Mapping[tuple[str, int], int]
) -> dict[str, Any]:
    """Return the row of one partition."""
    row = dict(columns_of(copies))
    if isinstance(found, Failed):
        return row | {"rows": 0, "error": describe_error(found.error)}
    rows = written.get(found.place.topic_partition, 0)
    error = None if found.error is None else found.error.text
    if rows != found.records:
        error = error or f"{rows:,} rows were written of {found.records:,} records"
    return row | {
        "log_start_offset": found.log_start_offset,
        "log_end_offset": found.log_end_offset,
        "records": found.records,
        "rows": rows,
        "error": error,
    }


@contextmanager
def _settings(spark: SparkSession) -> Iterator[None]:
    """Change settings of a session in the `with` block."""
    before: dict[str, str | None] = {name: spark.conf.get(name, None) for name in SETTINGS}
    for name, value in SETTINGS.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, old in before.items():
            if old is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, old)
