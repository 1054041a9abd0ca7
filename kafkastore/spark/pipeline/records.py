"""The pipeline's records, written to Parquet by the data source and counted."""
from __future__ import annotations

import os
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

from kafkastore.formats.state.file_names import TopicPartition
from kafkastore.fs import FileSystem
from kafkastore.jobs.error_fields import ErrorFields
from kafkastore.spark.jobs.records import records_of, write
from kafkastore.spark.pipeline.results import FailedStep, StoreResult
from kafkastore.spark.pipeline.run import Run

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FOLDERS = ("store", "topic", "partition")


def write_records(run: Run, spark: SparkSession) -> None:
    """Write each store's records to Parquet; compare their number with the inventory.

    Partitions that the inventory could not read completely are written up to that point. The rows
    of a file are in offset order.
    """
    folder = run.working / "records"
    with run.step("records to Parquet", "tasks") as step:

        def make() -> bool:
            frames = [_frame(run, spark, store) for store in run.result.stores if store.records]
            if frames:
                whole = reduce(lambda one, other: one.unionAll(other), frames)
                write(spark, whole.write.mode("overwrite"), FOLDERS, str(folder), step.progress)
                _make_durable(folder)  # before the step is recorded as done
            return bool(frames)

        step.result(make, bool)
        counts = rows_in(folder)
        for store in run.result.stores:
            store.rows_written = {key: n for (name, key), n in counts.items() if name == store.name}
            _compare(run, store)
        step.summary = f"{sum(counts.values()):,} rows"


def _make_durable(folder: Path) -> None:
    """Flush the written files and their directory entries to disk."""
    fs = FileSystem()
    for place, _, names in os.walk(folder, topdown=False):
        for name in names:
            descriptor = os.open(os.path.join(place, name), os.O_RDONLY | os.O_CLOEXEC)
            try:
                fs.fsync(descriptor)
            finally:
                fs.close(descriptor)
        fs.fsync_directory(Path(place))


def _frame(run: Run, spark: SparkSession, store: StoreResult) -> DataFrame:
    """Return a store's records, as far as they can be read."""
    from pyspark.sql import functions

    inventories = [row for row in store.partitions if row.records]
    has_unreadable = any(row.readable_end is not None for row in store.partitions)
    frame = records_of(spark, [str(run.location(store))], inventories, assign=has_unreadable)
    return frame.withColumn("store", functions.lit(store.name))


def rows_in(folder: Path) -> dict[tuple[str, TopicPartition], int]:
    """Count rows by store, topic and partition, from the footers of Parquet files.

    `folder` has ``store=.../topic=.../partition=.../*.parquet``, or is empty.
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
        written = store.rows_written.get(row.place.topic_partition, 0)
        if written != row.records:
            error = ErrorFields("RowCount", f"{written:,} rows of {row.records:,} records")
            run.fail_partition(row.place, error, FailedStep.WRITE)
