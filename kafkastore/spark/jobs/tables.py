"""The jobs of `kafkastore.jobs` as tables of Spark; their columns are in ``docs/jobs.md``."""
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
    """Read each partition once and list what its segments hold; a table.

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
    job = InventoryJob()
    return table(spark, job, job.items(open_paths(paths), partitions))


def verify(
    spark: SparkSession,
    paths: Paths,
    *,
    partitions: Collection[AnyPartition] | None = None,
    sample: float = 1.0,
) -> DataFrame:
    """Check every file of a store against the others, as `kafkastore.verify`; a table of findings.

    Parameters
    ----------
    spark : SparkSession
    paths : path-like or list of path-like
        Log directories or partition directories, of one broker.
    partitions : collection, optional
        Only these, each as ``("orders", 3)`` or ``"orders-3"``, and nothing beside them.
    sample : float
        Of how many segments the logs are read, above 0 and up to 1.

    Returns
    -------
    DataFrame
        See ``docs/jobs.md``. A partition in which nothing is found has one row without severity.
        Checkpoints, topic ids and what is no partition are looked at now, by the driver.
    """
    job, store = VerifyJob(sample), open_paths(paths)
    chosen = None if partitions is None else set(store.chosen(partitions))
    return table(spark, job, job.items(store, chosen, has_topic_ids=True))


def verify_summary(found: DataFrame) -> DataFrame:
    """Sum up a table of findings.

    Parameters
    ----------
    found : DataFrame
        As from `verify`. It is run; `persist` it if it is used again.

    Returns
    -------
    DataFrame
        One row: `partitions` that were checked without failure, `segments` and `segments_read` of
        them all, the findings of each severity (`data_loss_risk`, `wrong_answers`, `slow`,
        `style`), and `failures`.
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
    """Work out what a broker's next start does, as `kafkastore.predict_start`; a table.

    Parameters
    ----------
    spark : SparkSession
    paths : path-like or list of path-like
        Log directories or partition directories, of one broker.
    broker : str
        Its version.
    index_interval_bytes : int
        The topics' ``index.interval.bytes``.
    partitions : collection, optional
        Only these; what is no partition is told all the same.

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
    """Ask for times in three ways, as `kafkastore.legacy.compare`; a table.

    Parameters
    ----------
    spark : SparkSession
    paths : path-like or list of path-like
        Log directories or partition directories, of one broker.
    times : sequence of int
        ms since 1970. None: `samples` times, half of them spread over each partition's records,
        the others where answers can differ.
    samples : int
        How many at most.
    partitions : collection, optional
        Only these, each as ``("orders", 3)`` or ``"orders-3"``.
    now, mtimes, broker_rules, legacy_rules, whole_seconds
        As for `kafkastore.legacy.compare`; `now` is the driver's clock if left out.

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
    """Tell how far groups are behind, as `kafkastore.lag`; a table.

    Parameters
    ----------
    spark : SparkSession
    paths : path-like or list of path-like
        Log directories or partition directories, of one broker.
    groups : sequence of str
        Only these; none: all.
    partitions : collection, optional
        Only what is committed for these, each as ``("orders", 3)`` or ``"orders-3"``.
    offsets, now, isolation
        As for `kafkastore.lag`. Without `offsets` the driver reads ``__consumer_offsets``, now.

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
    """Measure the time from creation to append of records, as `kafkastore.latency`; a table.

    Parameters
    ----------
    spark : SparkSession
    paths : path-like or list of path-like
        Log directories or partition directories, of one broker.
    partitions : collection, optional
        Only these, each as ``("orders", 3)`` or ``"orders-3"``.
    create_time_header : str, optional
        Name of a record header in which the producer wrote its time.
    created_in : path-like or list of path-like, optional
        Log directories of another cluster, whose records have create times.

    Returns
    -------
    DataFrame
        A row for each partition; see ``docs/jobs.md``. Percentiles of topics can't be made from
        those of partitions, but from ``histogram``.
    """
    job = LatencyJob(create_time_header, created_in is not None)
    store = open_paths(paths)
    other = None if created_in is None else open_paths(created_in)
    chosen = list(store.partitions) if partitions is None else store.chosen(partitions)
    return table(spark, job, job.items(store, chosen, other))


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
    """Find where groups go on in another cluster, as `kafkastore.failover`; a table.

    Parameters
    ----------
    spark : SparkSession
    paths, target : path-like or list of path-like
        Log directories of cluster 1 and of cluster 2.
    groups : sequence of str
        Only these; none: all.
    partitions : collection, optional
        Only what is committed for these, each as ``("orders", 3)`` or ``"orders-3"``.
    offsets : mapping, optional
        Positions by group, topic and partition. Default: those committed in cluster 1, which the
        driver reads, now.
    by, largest_latency_ms, clock_skew_ms, topic_prefix, check, match
        As for `kafkastore.failover`.

    Returns
    -------
    DataFrame
        A row for each group and partition; see ``docs/jobs.md``. A position that can't be carried
        over has an ``error``.
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
    """Judge which segments a broker would delete, as `kafkastore.retention`; a table.

    Parameters
    ----------
    spark : SparkSession
    paths : path-like or list of path-like
        Log directories or partition directories, of one broker.
    partitions : collection, optional
        Only these, each as ``("orders", 3)`` or ``"orders-3"``.
    config, now, version
        As for `kafkastore.retention`; `now` is the driver's clock if left out.

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
    """Size the indexes of partitions, as `kafkastore.sizing`; a table.

    Parameters
    ----------
    spark : SparkSession
    paths : path-like or list of path-like
        Log directories or partition directories, of one broker.
    partitions : collection, optional
        Only these, each as ``("orders", 3)`` or ``"orders-3"``.
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
