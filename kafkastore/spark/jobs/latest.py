"""The last record of each key as a Spark table."""
from __future__ import annotations

import json
from collections.abc import Collection
from typing import TYPE_CHECKING

from kafkastore.spark import register
from kafkastore.spark.jobs.records import absolute
from kafkastore.store.log_store import AnyPartition, Paths, listed, open_paths

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def latest_records(
    spark: SparkSession,
    path: Paths,
    *,
    partitions: Collection[AnyPartition] | None = None,
    include_headers: bool = False,
    include_tombstones: bool = False,
) -> DataFrame:
    """Return the last record of each key of each topic, as compaction would leave it.

    Only committed records count, and records without a key are left out. A key may be in several
    partitions: see `TopicLogs.latest`.

    Parameters
    ----------
    spark : SparkSession
        A classic session, or one of Spark Connect.
    path : path-like, LogStore or list of these
        Log directories or partition directories of one broker.
    partitions : collection, optional
        Read only these partitions, each as ``("orders", 3)`` or ``"orders-3"``.
    include_headers : bool
        Whether to add the column `headers`.
    include_tombstones : bool
        Whether a key whose last value is null, which deletes the key, has a row.

    Returns
    -------
    DataFrame
        The columns of records, see ``docs/spark.md``; in no order. Tasks find the last records of
        each partition's keys, in parallel, and Spark groups these by key.

    Raises
    ------
    KeyError
        If the store does not contain a partition.
    DuplicatePartitionError
        If a partition lies in several directories.
    """
    from pyspark.sql import functions as f

    from kafkastore.spark.source.schema import NEWEST_TIMESTAMP, spark_schema

    store = open_paths(path)
    assigned: dict[str, list[int]] = {}
    chosen = store.chosen(partitions)
    store.logs_of(chosen)  # raises an error if one is missing or duplicate
    for each in chosen:
        assigned.setdefault(each.topic, []).append(each.partition)
    register(spark)
    columns = spark_schema(include_headers=include_headers).names
    in_partition = (
        spark.read.format("kafkastore")
        .option("assign", json.dumps(assigned))
        .option("latest", "partition")
        .option("includeTombstones", True)
        .option("columns", ",".join([*columns, NEWEST_TIMESTAMP]))
        .load([absolute(each) for each in listed(path)])
    )
    last = f.max_by(f.struct(*columns), f.struct(NEWEST_TIMESTAMP, "partition")).alias("last")
    latest = in_partition.groupBy("topic", "key").agg(last).select("last.*")
    return latest if include_tombstones else latest.where("value is not null")
