"""The pipeline's records: every store through the data source to Parquet, and counted."""
from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

from kafkastore.formats.file_names import TopicPartition
from kafkastore.spark.results import StoreResult
from kafkastore.spark.run import Run
from kafkastore.spark.spread import tasks_done, watch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Topic and partition are directories of the Parquet files.
COLUMNS = "key,value,topic,partition,offset,timestamp,timestampType,headers,leader_epoch"
LATEST = -1


def write_records(run: Run, spark: SparkSession) -> None:
    """Write the records of every store to Parquet, and compare their number with the survey's.

    Partitions that the survey could not read to their end are written as far as it came.
    """
    with run.step("records to Parquet", "tasks") as step:
        for store in run.result.stores:
            if not store.records:
                continue
            folder = run.working / "records" / f"store={store.name}"
            write = _writer(spark, store, str(run.location(store)), str(folder))
            context = spark.sparkContext
            watch(context, write, lambda group: step.tell(*tasks_done(spark.sparkContext, group)))
            store.rows_written = rows_in(folder)
        _compare(run)
        rows = sum(sum(store.rows_written.values()) for store in run.result.stores)
        step.summary = f"{rows:,} rows"


def _writer(
    spark: SparkSession, store: StoreResult, source: str, folder: str
) -> Callable[[], None]:
    """Return what reads a store and writes it."""
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
    frame = reader.load(source).sortWithinPartitions("topic", "partition", "offset")
    writer = frame.write.mode("overwrite").partitionBy("topic", "partition")
    return lambda: writer.parquet(folder)


def rows_in(folder: Path) -> dict[TopicPartition, int]:
    """Count the rows of Parquet files by topic and partition, from their footers.

    Parameters
    ----------
    folder : Path
        Holds ``topic=.../partition=.../*.parquet``.

    Returns
    -------
    dict of TopicPartition to int
    """
    from pyarrow import parquet

    counts: dict[TopicPartition, int] = {}
    for path in sorted(folder.glob("topic=*/partition=*/*.parquet")):
        topic, partition = (unquote(part.partition("=")[2]) for part in path.parts[-3:-1])
        key = TopicPartition(topic, int(partition))
        counts[key] = counts.get(key, 0) + parquet.read_metadata(path).num_rows
    return counts


def _compare(run: Run) -> None:
    for row in run.surveyed():
        key = TopicPartition(row.place.topic, row.place.partition)
        written = run.store(row.place).rows_written.get(key, 0)
        if written != row.records:
            run.fail(
                row.place, f"{written:,} rows, {row.records:,} records", "written as it was read"
            )
