"""What partitions hold: a table of segments, and all records as Parquet."""
from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kafkastore.errors import ChangeRefusedError, DuplicatePartitionError
from kafkastore.paths import is_url, to_path
from kafkastore.spark import register
from kafkastore.spark.jobs.partition_jobs import PartitionRow, survey_partition
from kafkastore.spark.jobs.places import (
    Copies,
    Paths,
    chosen_copies,
    columns_of,
    listed,
    place_fields,
    weight,
)
from kafkastore.spark.spread import Failed, attempt, spread, table
from kafkastore.spark.watch import Tell, watch
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


def survey(
    spark: SparkSession, paths: Paths, *, partitions: Collection[AnyPartition] | None = None
) -> DataFrame:
    """Read each partition once, and tell what its segments hold; a table.

    Parameters
    ----------
    spark : SparkSession
    paths : path-like or list of path-like
        Log directories or partition directories.
    partitions : collection, optional
        Only these, each as ``("orders", 3)`` or ``"orders-3"``.

    Returns
    -------
    DataFrame
        A row for each segment; see ``docs/jobs.md``.
    """
    items = chosen_copies(open_store(listed(paths)), partitions)
    return table(spark, _survey_rows, items, survey_schema(), where=columns_of, weigh=weight)


def survey_copies(copies: Copies) -> PartitionRow:
    """Survey one partition.

    Parameters
    ----------
    copies : tuple of Place

    Returns
    -------
    PartitionRow

    Raises
    ------
    DuplicatePartitionError
        If it is in several places.
    """
    if len(copies) > 1:
        place = copies[0]
        raise DuplicatePartitionError(
            {f"{place.topic}-{place.partition}": [each.path for each in copies]}
        )
    return survey_partition(copies[0])


def survey_schema() -> pa.Schema:
    """Return the columns of `survey`'s table.

    Returns
    -------
    pyarrow.Schema
    """
    import pyarrow as pa

    numbers = (
        "log_start_offset", "log_end_offset", "readable_end", "base_offset", "size",
        "last_modified_ms", "largest_timestamp", "records", "offset_entries", "time_entries",
    )
    return pa.schema(
        [*place_fields(), *((name, pa.int64()) for name in numbers), ("error", pa.string())]
    )


def records_to_parquet(
    spark: SparkSession,
    paths: Paths,
    out: AnyPath,
    *,
    partitions: Collection[AnyPartition] | None = None,
    overwrite: bool = False,
    tell: Tell | None = None,
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
    tell : callable, optional
        Told of tasks done while it goes on: of the survey, then of the writing.

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
    surveyed = list(
        zip(
            items,
            spread(spark, _reach, items, weigh=weight, tell=tell),
            strict=True,
        )
    )
    readable = [row for _, row in surveyed if isinstance(row, PartitionRow) and row.records]
    written: dict[tuple[str, int], int] = {}
    if readable:
        frame = records_of(spark, sources, readable, assign=True)
        days = frame.withColumn("date", _date())
        write(spark, days.write.mode("overwrite"), ("topic", "date"), folder, tell)
        written = _rows_by_partition(spark, folder)
    rows = [_written_row(copies, row, written) for copies, row in surveyed]
    return spark.createDataFrame(_as_arrow(rows))


def records_of(
    spark: SparkSession, paths: Sequence[str], surveyed: Sequence[PartitionRow], *, assign: bool
) -> DataFrame:
    """Return the records of partitions, as far as they can be read.

    Parameters
    ----------
    spark : SparkSession
    paths : sequence of str
        Log directories or partition directories.
    surveyed : sequence of PartitionRow
        Partitions with records, as surveyed.
    assign : bool
        Whether only these are read, if none is broken.

    Returns
    -------
    DataFrame
        Columns `COLUMNS`.
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
    tell: Tell | None,
) -> None:
    """Write records as Parquet, those of a file rising by offset.

    Parameters
    ----------
    spark : SparkSession
    writer : DataFrameWriter
        Of records as `records_of` gives them.
    folders : sequence of str
        Columns that become folders.
    out : str
        The folder around those.
    tell : callable or None
        Told of tasks done.
    """
    with _settings(spark):
        watch(spark, lambda: writer.partitionBy(*folders).parquet(out), tell)


def written_schema() -> pa.Schema:
    """Return the columns of the table that `records_to_parquet` returns.

    Returns
    -------
    pyarrow.Schema
    """
    import pyarrow as pa

    numbers = ("log_start_offset", "log_end_offset", "records", "rows")
    return pa.schema(
        [*place_fields(), *((name, pa.int64()) for name in numbers), ("error", pa.string())]
    )


def _survey_rows(copies: Copies) -> Iterator[Mapping[str, Any]]:
    """Yield a row for each segment; one more for an error, one alone where there is none."""
    found = survey_copies(copies)
    known = {
        "log_start_offset": found.log_start_offset,
        "log_end_offset": found.log_end_offset,
        "readable_end": found.readable_end,
    }
    for segment in found.segments:
        yield known | segment._asdict()
    if found.error is not None or not found.segments:
        yield known | {"error": found.error}


def _reach(copies: Copies) -> PartitionRow | Failed:
    """Find out how far a partition can be read; without what takes memory."""
    found = attempt(survey_copies, copies)
    if isinstance(found, Failed):
        return found
    return found._replace(segments=(), samples=())


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
    copies: Copies, found: PartitionRow | Failed, written: Mapping[tuple[str, int], int]
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
