"""The jobs of `kafkastore.jobs` as Spark tables; ``docs/jobs.md`` lists their columns."""
from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from kafkastore.checks.findings import Severity
from kafkastore.formats.group_metadata import OffsetCommitKey
from kafkastore.jobs.compare import CompareJob
from kafkastore.jobs.failover import FailoverJob
from kafkastore.jobs.group_positions import committed_positions, position_items
from kafkastore.jobs.inventory import InventoryJob
from kafkastore.jobs.lag import LagJob
from kafkastore.jobs.latency import LatencyJob
from kafkastore.jobs.places import Paths, open_paths
from kafkastore.jobs.predict import PredictJob
from kafkastore.jobs.retention import RetentionJob
from kafkastore.jobs.sizing import SizingJob
from kafkastore.jobs.verify import VerifyJob
from kafkastore.kip_33.failover import Method
from kafkastore.kip_33.fingerprints import Match
from kafkastore.kip_33.sizing import BUCKETS_MS, INTERVALS
from kafkastore.legacy.comparison import as_timestamps
from kafkastore.legacy.offset_request import clock
from kafkastore.log.isolation import Isolation
from kafkastore.log.log_config import LogConfig
from kafkastore.segment.recovery import INDEX_INTERVAL_BYTES
from kafkastore.spark.spread import table
from kafkastore.store.log_store import AnyPartition
from kafkastore.versions import NEWEST_VERSION

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def inventory(
    spark: SparkSession, paths: Paths, *, partitions: Collection[AnyPartition] | None = None
) -> DataFrame:
    """Read each partition once and list its segments, as a Spark table.

    Parameters
    ----------
    spark : SparkSession
        A classic session, or one of Spark Connect.
    paths : path-like or list of path-like
        Log directories or partition directories.
    partitions : collection, optional
        Read only these partitions, each as ``("orders", 3)`` or ``"orders-3"``.

    Returns
    -------
    DataFrame
        A row for each segment; see ``docs/jobs.md``.
    """
    job = InventoryJob()
    return table(spark, job, job.items(open_paths(paths), partitions))


def verify(
    spark: SparkSession,
    paths: Paths,
    *,
    partitions: Collection[AnyPartition] | None = None,
    sample: float = 1.0,
) -> DataFrame:
    """Check every file of a store against the others, as `kafkastore.verify` does.

    Parameters
    ----------
    spark : SparkSession
        A classic session, or one of Spark Connect.
    paths : path-like or list of path-like
        Log directories or partition directories of one broker.
    partitions : collection, optional
        Check only these partitions, each as ``("orders", 3)`` or ``"orders-3"``, and nothing else.
    sample : float
        The fraction of segments whose logs are read, above 0 and up to 1.

    Returns
    -------
    DataFrame
        A row for each finding; see ``docs/jobs.md``. A partition without findings has one row
        without a severity. The driver checks checkpoints, topic ids and directories that are not
        partitions, in this call.
    """
    job, store = VerifyJob(sample), open_paths(paths)
    chosen = None if partitions is None else set(store.chosen(partitions))
    return table(spark, job, job.items(store, chosen, has_topic_ids=True))


def verify_summary(found: DataFrame) -> DataFrame:
    """Summarize a table of findings.

    Parameters
    ----------
    found : DataFrame
        As returned by `verify`. This call runs it; `persist` it if it is used again.

    Returns
    -------
    DataFrame
        One row: `partitions` that were checked without failure, `segments` and `segments_read` of
        all of them, the number of findings of each severity (`data_loss_risk`, `wrong_answers`,
        `slow`, `style`), and `failures`.
    """
    from pyspark.sql import functions as f

    by_directory = found.groupBy("path", "topic").agg(
        f.max("segments").alias("segments"),
        f.max("segments_read").alias("segments_read"),
        f.count("error").alias("failures"),
        *(
            f.count(f.when(f.col("severity") == each.value, 1)).alias(_column(each))
            for each in Severity
        ),
    )
    is_checked = f.col("topic").isNotNull() & (f.col("failures") == 0)
    names = ["segments", "segments_read", *map(_column, reversed(Severity)), "failures"]
    return by_directory.agg(
        f.count(f.when(is_checked, 1)).alias("partitions"),
        *(f.coalesce(f.sum(name), f.lit(0)).alias(name) for name in names),
    )


def predict(
    spark: SparkSession,
    paths: Paths,
    broker: str = "2.4",
    *,
    index_interval_bytes: int = INDEX_INTERVAL_BYTES,
    partitions: Collection[AnyPartition] | None = None,
) -> DataFrame:
    """Predict what a broker's next start does, as `kafkastore.predict_start` does.

    Parameters
    ----------
    spark : SparkSession
        A classic session, or one of Spark Connect.
    paths : path-like or list of path-like
        Log directories or partition directories of one broker.
    broker : str
        The broker's version.
    index_interval_bytes : int
        The topics' ``index.interval.bytes``.
    partitions : collection, optional
        Predict only for these partitions; directories that are not partitions are always listed.

    Returns
    -------
    DataFrame
        A row for each directory; see ``docs/jobs.md``.
    """
    job = PredictJob(broker, index_interval_bytes)
    return table(spark, job, job.items(open_paths(paths), partitions))


def compare(
    spark: SparkSession,
    paths: Paths,
    times: Sequence[int] = (),
    *,
    samples: int = 10,
    partitions: Collection[AnyPartition] | None = None,
    now: int | None = None,
    mtimes: Mapping[str, int] | None = None,
    broker_rules: str = "2.4",
    legacy_rules: str = "2.4",
    whole_seconds: bool = False,
) -> DataFrame:
    """Look up times in three ways, as `kafkastore.legacy.compare` does.

    Parameters
    ----------
    spark : SparkSession
        A classic session, or one of Spark Connect.
    paths : path-like or list of path-like
        Log directories or partition directories of one broker.
    times : sequence of int
        ms since 1970. If empty: `samples` times, half of them spread over each partition's records,
        the others where answers can differ.
    samples : int
        The maximum number of times to choose if `times` is empty.
    partitions : collection, optional
        Compare only these partitions, each as ``("orders", 3)`` or ``"orders-3"``.
    now, mtimes, broker_rules, legacy_rules, whole_seconds
        As for `kafkastore.legacy.compare`; `now` defaults to the driver's clock.

    Returns
    -------
    DataFrame
        A row for each partition and time; see ``docs/jobs.md``.
    """
    job = CompareJob(
        as_timestamps(times).tolist(),
        samples,
        clock() if now is None else now,
        mtimes,
        broker_rules,
        legacy_rules,
        whole_seconds,
    )
    return table(spark, job, job.items(open_paths(paths), partitions))


def lag(
    spark: SparkSession,
    paths: Paths,
    groups: Sequence[str] = (),
    *,
    partitions: Collection[AnyPartition] | None = None,
    offsets: Mapping[OffsetCommitKey, int] | None = None,
    now: int | None = None,
    isolation: Isolation = "read_uncommitted",
) -> DataFrame:
    """Compute the lag of consumer groups, as `kafkastore.lag` does.

    Parameters
    ----------
    spark : SparkSession
        A classic session, or one of Spark Connect.
    paths : path-like or list of path-like
        Log directories or partition directories of one broker.
    groups : sequence of str
        Report only these groups; all if empty.
    partitions : collection, optional
        Only offsets committed for these, each as ``("orders", 3)`` or ``"orders-3"``.
    offsets, now, isolation
        As for `kafkastore.lag`. Without `offsets` the driver reads ``__consumer_offsets`` in this
        call.

    Returns
    -------
    DataFrame
        A row for each group and partition; see ``docs/jobs.md``.
    """
    job, store = LagJob(now, isolation), open_paths(paths)
    committed = committed_positions(store, groups, partitions=partitions, offsets=offsets)
    return table(spark, job, position_items(committed, store))


def latency(
    spark: SparkSession,
    paths: Paths,
    *,
    partitions: Collection[AnyPartition] | None = None,
    create_time_header: str | None = None,
    created_in: Paths | None = None,
) -> DataFrame:
    """Measure the latency from creation to append, as `kafkastore.latency` does.

    Parameters
    ----------
    spark : SparkSession
        A classic session, or one of Spark Connect.
    paths : path-like or list of path-like
        Log directories or partition directories of one broker.
    partitions : collection, optional
        Measure only these partitions, each as ``("orders", 3)`` or ``"orders-3"``.
    create_time_header : str, optional
        Name of a record header in which the producer wrote the creation time.
    created_in : path-like or list of path-like, optional
        Log directories of another cluster, whose records have create times.

    Returns
    -------
    DataFrame
        A row for each partition; see ``docs/jobs.md``. Percentiles of a topic cannot be computed
        from those of its partitions, but from ``histogram``.
    """
    job = LatencyJob(create_time_header, created_in is not None)
    store = open_paths(paths)
    other = None if created_in is None else open_paths(created_in)
    return table(spark, job, job.items(store, store.chosen(partitions), other))


def failover(
    spark: SparkSession,
    paths: Paths,
    target: Paths,
    groups: Sequence[str] = (),
    *,
    partitions: Collection[AnyPartition] | None = None,
    offsets: Mapping[OffsetCommitKey, int] | None = None,
    by: Method = "create-time",
    largest_latency_ms: int | None = None,
    clock_skew_ms: int = 0,
    topic_prefix: str = "",
    check: bool = True,
    match: Match = "timestamp",
) -> DataFrame:
    """Find where groups continue in another cluster, as `kafkastore.failover` does.

    Parameters
    ----------
    spark : SparkSession
        A classic session, or one of Spark Connect.
    paths, target : path-like or list of path-like
        Log directories of cluster 1 and of cluster 2.
    groups : sequence of str
        Report only these groups; all if empty.
    partitions : collection, optional
        Only offsets committed for these, each as ``("orders", 3)`` or ``"orders-3"``.
    offsets : mapping, optional
        Committed offsets by group, topic and partition. Default: those committed in cluster 1,
        which the driver reads in this call.
    by, largest_latency_ms, clock_skew_ms, topic_prefix, check, match
        As for `kafkastore.failover`.

    Returns
    -------
    DataFrame
        A row for each group and partition; see ``docs/jobs.md``. The row of an offset that cannot
        be translated has an ``error``.
    """
    job = FailoverJob(by, largest_latency_ms, clock_skew_ms, topic_prefix, check, match)
    store, other = open_paths(paths), open_paths(target)
    committed = committed_positions(store, groups, partitions=partitions, offsets=offsets)
    return table(
        spark, job, position_items(committed, store, other, topic_prefix=topic_prefix)
    )


def retention(
    spark: SparkSession,
    paths: Paths,
    *,
    partitions: Collection[AnyPartition] | None = None,
    config: Mapping[str, object] | LogConfig | None = None,
    now: int | None = None,
    version: str = NEWEST_VERSION,
) -> DataFrame:
    """Find the segments that a broker would delete, as `kafkastore.retention` does.

    Parameters
    ----------
    spark : SparkSession
        A classic session, or one of Spark Connect.
    paths : path-like or list of path-like
        Log directories or partition directories of one broker.
    partitions : collection, optional
        Check only these partitions, each as ``("orders", 3)`` or ``"orders-3"``.
    config, now, version
        As for `kafkastore.retention`; `now` defaults to the driver's clock.

    Returns
    -------
    DataFrame
        A row for each segment; see ``docs/jobs.md``.
    """
    job = RetentionJob(config, clock() if now is None else now, version)
    return table(spark, job, job.items(open_paths(paths), partitions))


def sizing(
    spark: SparkSession,
    paths: Paths,
    *,
    partitions: Collection[AnyPartition] | None = None,
    intervals: Sequence[int] = INTERVALS,
    buckets_ms: Sequence[int] = BUCKETS_MS,
) -> DataFrame:
    """Compute the index sizes of partitions, as `kafkastore.sizing` does.

    Parameters
    ----------
    spark : SparkSession
        A classic session, or one of Spark Connect.
    paths : path-like or list of path-like
        Log directories or partition directories of one broker.
    partitions : collection, optional
        Measure only these partitions, each as ``("orders", 3)`` or ``"orders-3"``.
    intervals, buckets_ms : sequence of int
        As for `kafkastore.sizing`.

    Returns
    -------
    DataFrame
        A row for each partition and density; see ``docs/jobs.md``.
    """
    job = SizingJob(tuple(intervals), tuple(buckets_ms))
    return table(spark, job, job.items(open_paths(paths), partitions))


def _column(severity: Severity) -> str:
    return severity.value.replace("-", "_")
