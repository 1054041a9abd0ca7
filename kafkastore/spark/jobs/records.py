"""All records of partitions as Parquet."""
from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kafkastore.changes.runner import Progress
from kafkastore.errors import ChangeRefusedError
from kafkastore.jobs.inventory import InventoryJob, PartitionInventory
from kafkastore.jobs.places import (
    Copies,
    Paths,
    chosen_copies,
    columns_of,
    listed,
    place_fields,
    weight,
)
from kafkastore.jobs.runner import Failed, attempt
from kafkastore.paths import is_url, to_path
from kafkastore.spark import register
from kafkastore.spark.spread import spread
from kafkastore.spark.watch import watch
from kafkastore.store.log_store import AnyPartition, AnyPath, open_store

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, DataFrameWriter, SparkSession

COLUMNS = "key,value,topic,partition,offset,timestamp,timestampType,headers,leader_epoch"
LATEST = -1
DAY_US = 86_400_000_000

#: More than the partitions that one task reads (see `slices`).
MOST_FILES_AT_ONCE = 300
SETTINGS = {
    # Rows come in the order of their offsets. With a file open for each partition they stay so, and
    # need no sort, which takes longer than everything else.
    "spark.sql.maxConcurrentOutputFileWriters": str(MOST_FILES_AT_ONCE),
    # Timestamps as int64 with statistics instead of the old int96; any that fits is taken as it is.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
}


def records_to_parquet(
    spark: SparkSession,
    paths: Paths,
    out: AnyPath,
    *,
    partitions: Collection[AnyPartition] | None = None,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> DataFrame:
    """Write the records of partitions as Parquet, in folders by topic and date.

    Parameters
    ----------
    spark : SparkSession
    paths : path-like or list of path-like
        Log directories or partition directories, of one broker.
    out : path-like
        The folder to make, as Spark names it: ``topic=orders/date=2017-07-14/*.parquet``.
    partitions : collection, optional
        Only these, each as ``("orders", 3)`` or ``"orders-3"``.
    overwrite : bool
        Whether `out` may be there, and is replaced.
    progress : callable, optional
        Called with the partitions read so far and their number, then with the tasks of writing.

    Returns
    -------
    DataFrame
        A row for each partition, of what was written; see ``docs/jobs.md``.

    Raises
    ------
    ChangeRefusedError
        If `out` lies in a log directory, or is there.
    """
    store = open_store(listed(paths))
    # Spark's own folder may be another one than this process's.
    sources, folder = [_absolute(each) for each in listed(paths)], _absolute(out)
    for log_dir in store.log_dirs:
        _check_outside(folder, log_dir.path)
    if not overwrite and os.path.lexists(folder):
        raise ChangeRefusedError(f"{out} is there already: name another folder, or overwrite it")
    items = chosen_copies(store, partitions)
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
    return spark.createDataFrame(_as_arrow(rows))


def records_of(
    spark: SparkSession,
    paths: Sequence[str],
    surveyed: Sequence[PartitionInventory],
    *,
    assign: bool,
) -> DataFrame:
    """Return the records of partitions that have some, as far as they can be read.

    Without `assign`, all of `paths` is read where no partition is corrupt.
    """
    register(spark)
    reader = spark.read.format("kafkastore").option("columns", COLUMNS)
    is_broken = any(row.readable_end is not None for row in surveyed)
    if assign or is_broken:
        assigned: dict[str, list[int]] = {}
        for row in surveyed:
            assigned.setdefault(row.place.topic, []).append(row.place.partition)
        reader = reader.option("assign", json.dumps(assigned))
    if is_broken:
        ends: dict[str, dict[str, int]] = {}
        for row in surveyed:
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
    """Write records as Parquet, by the columns in `folders`; those of a file rise by offset."""
    with _settings(spark):
        watch(spark, lambda: writer.partitionBy(*folders).parquet(out), progress)


def written_schema() -> pa.Schema:
    """Return the columns of the table that `records_to_parquet` returns."""
    import pyarrow as pa

    numbers = ("log_start_offset", "log_end_offset", "records", "rows")
    return pa.schema(
        [*place_fields(), *((name, pa.int64()) for name in numbers), ("error", pa.string())]
    )


def _reach(copies: Copies) -> PartitionInventory:
    """Find out how far a partition can be read; without what takes memory."""
    return InventoryJob().run(copies)._replace(segments=(), samples=())


def _absolute(path: AnyPath) -> str:
    """Return a path from the root on; a URL as it is."""
    text = path if is_url(path) else str(to_path(path))
    return text if is_url(text) else os.path.abspath(text)


def _check_outside(out: str, log_dir: Path) -> None:
    """Refuse to write into a log directory."""
    target, real = Path(os.path.realpath(out)), Path(os.path.realpath(log_dir))
    if target == real or target in real.parents or real in target.parents:
        raise ChangeRefusedError(
            f"{out} can't be the output for {log_dir}: one contains the other"
        )


def _date() -> Column:
    """Return the UTC date of a record, whatever the session's time zone; null without timestamp."""
    from pyspark.sql import functions as f

    micros = "unix_micros(timestamp)"
    days = f"(({micros} - pmod({micros}, {DAY_US}L)) div {DAY_US}L)"
    return f.expr(
        f"case when {micros} <> -1000 then date_from_unix_date(cast({days} as int)) end"
    )


def _rows_by_partition(spark: SparkSession, out: str) -> dict[tuple[str, int], int]:
    """Count what was written."""
    files = spark.read.schema("partition int, topic string").parquet(out)
    counts = files.groupBy("topic", "partition").count().collect()
    return {(row[0], row[1]): row[2] for row in counts}


def _written_row(
    copies: Copies, found: PartitionInventory | Failed, written: Mapping[tuple[str, int], int]
) -> dict[str, Any]:
    """Return the row of a partition."""
    row = dict(columns_of(copies))
    if isinstance(found, Failed):
        return row | {"rows": 0, "error": str(found.error)}
    rows = written.get((found.place.topic, found.place.partition), 0)
    error = found.error
    if rows != found.records:
        error = error or f"{rows:,} rows were written of {found.records:,} records"
    return row | {
        "log_start_offset": found.log_start_offset,
        "log_end_offset": found.log_end_offset,
        "records": found.records,
        "rows": rows,
        "error": error,
    }


def _as_arrow(rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    import pyarrow as pa

    return pa.Table.from_pylist(list(rows), written_schema())


@contextmanager
def _settings(spark: SparkSession) -> Iterator[None]:
    """Change settings of a session for a while."""
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
