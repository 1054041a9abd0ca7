"""The pipeline's records: every store through the data source to Parquet, and counted."""
from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

from kafkastore.formats.file_names import TopicPartition
from kafkastore.spark.pipeline.results import StoreResult
from kafkastore.spark.pipeline.run import Run
from kafkastore.spark.spread import tasks_done, watch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COLUMNS = "key,value,topic,partition,offset,timestamp,timestampType,headers,leader_epoch"
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
FOLDERS = ("store", "topic", "partition")
LATEST = -1


def write_records(run: Run, spark: SparkSession) -> None:
    """Write the records of every store to Parquet, and compare their number with the survey's.

    Partitions that the survey could not read to their end are written as far as it came. Rows of a
    file rise by offset.

    Parameters
    ----------
    run : Run
    spark : SparkSession
    """
    folder = run.working / "records"
    with run.step("records to Parquet", "tasks") as step:
        frames = [
            _frame(run, spark, store) for store in run.result.stores if store.records
        ]
        if frames:
            whole = reduce(lambda one, other: one.unionAll(other), frames)
            writer = whole.write.mode("overwrite").partitionBy(*FOLDERS)
            context = spark.sparkContext
            with _settings(spark):
                watch(
                    context,
                    lambda: writer.parquet(str(folder)),
                    lambda group: step.tell(*tasks_done(context, group)),
                )
        counts = rows_in(folder)
        for store in run.result.stores:
            store.rows_written = {key: n for (name, key), n in counts.items() if name == store.name}
            _compare(run, store)
        step.summary = f"{sum(counts.values()):,} rows"


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


def _frame(run: Run, spark: SparkSession, store: StoreResult) -> DataFrame:
    """Return a store's records, as far as they can be read."""
    from pyspark.sql import functions

    reader = spark.read.format("kafkastore").option("columns", COLUMNS)
    if any(row.readable_end is not None for row in store.partitions):
        assigned: dict[str, list[int]] = {}
        ends: dict[str, dict[str, int]] = {}
        for row in store.partitions:
            if row.records:
                end = LATEST if row.readable_end is None else row.readable_end
                assigned.setdefault(row.place.topic, []).append(row.place.partition)
                ends.setdefault(row.place.topic, {})[str(row.place.partition)] = end
        reader = (
            reader.option("assign", json.dumps(assigned))
            .option("endingOffsets", json.dumps(ends))
            .option("failOnDataLoss", "false")
        )
    frame = reader.load(str(run.location(store)))
    return frame.withColumn("store", functions.lit(store.name))


def rows_in(folder: Path) -> dict[tuple[str, TopicPartition], int]:
    """Count the rows of Parquet files by store, topic and partition, from their footers.

    Parameters
    ----------
    folder : Path
        Holds ``store=.../topic=.../partition=.../*.parquet``, or nothing.

    Returns
    -------
    dict of (str, TopicPartition) to int
    """
    from pyarrow import parquet

    counts: dict[tuple[str, TopicPartition], int] = {}
    for path in sorted(folder.glob("store=*/topic=*/partition=*/*.parquet")):
        parts = path.relative_to(folder).parts[:3]
        store, topic, partition = (unquote(part.partition("=")[2]) for part in parts)
        key = store, TopicPartition(topic, int(partition))
        counts[key] = counts.get(key, 0) + parquet.read_metadata(path).num_rows
    return counts


def _compare(run: Run, store: StoreResult) -> None:
    for row in store.partitions:
        written = store.rows_written.get(TopicPartition(row.place.topic, row.place.partition), 0)
        if written != row.records:
            what = "written as it was read"
            run.fail(row.place, f"{written:,} rows of {row.records:,} records", what)
