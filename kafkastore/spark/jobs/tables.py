"""The jobs of `kafkastore.jobs` as Spark tables; see ``docs/jobs.md``."""
from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec

from kafkastore.checks.findings import Severity
from kafkastore.checks.verify import ClusterCheck
from kafkastore.clock import clock
from kafkastore.jobs.best_replicas import best_replicas as best_replicas_results
from kafkastore.jobs.compare import CompareJob
from kafkastore.jobs.failover import failover as failover_results
from kafkastore.jobs.groups import groups as groups_results
from kafkastore.jobs.inventory import InventoryJob
from kafkastore.jobs.job import JobResults
from kafkastore.jobs.lag import lag as lag_results
from kafkastore.jobs.latency import LatencyJob
from kafkastore.jobs.listing import list_logs as listing_results
from kafkastore.jobs.predict import predict_start as predict_results
from kafkastore.jobs.retention import retention as retention_results
from kafkastore.jobs.share_lag import share_lag as share_lag_results
from kafkastore.jobs.sizing import SizingJob
from kafkastore.jobs.transactions import transactions as transactions_results
from kafkastore.jobs.verify import VerifyJob, severity_column
from kafkastore.legacy.comparison import as_timestamps
from kafkastore.log.damage import OnCorrupt
from kafkastore.spark.runner import table
from kafkastore.store.cluster_metadata import Metadata, find_cluster_or_warn
from kafkastore.store.log_store import AnyPartition, Paths, open_paths
from kafkastore.store.sample_times import SAMPLES
from kafkastore.use_cases.sizing import BUCKETS_MS, INTERVALS
from kafkastore.versions import NEWEST_LEGACY_VERSION, NEWEST_VERSION

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

P = ParamSpec("P")


def _table_of(
    ask: Callable[P, JobResults[Any, Any]],
) -> Callable[Concatenate[SparkSession, P], DataFrame]:
    """Return a function that returns a job's table for a session and arguments."""
    def made(spark: SparkSession, /, *args: P.args, **options: P.kwargs) -> DataFrame:
        results = ask(*args, **options)
        return table(spark, results.job, results.items(is_weighed=True))

    first, _, rest = str(ask.__doc__).partition("\n")
    made.__name__ = made.__qualname__ = ask.__name__
    made.__doc__ = f"""{first}

    As `{ask.__module__}.{ask.__name__}` of the arguments after the session, but as a Spark table;
    see ``docs/jobs.md``. The driver reads values that are not given, such as the clock and
    committed offsets, in this call.
{rest.partition("    Returns")[0].rstrip()}

    Returns
    -------
    DataFrame
        Its columns are listed in ``docs/jobs.md``.
"""
    return made


best_replicas = _table_of(best_replicas_results)
failover = _table_of(failover_results)
groups = _table_of(groups_results)
lag = _table_of(lag_results)
list_logs = _table_of(listing_results)
predict_start = _table_of(predict_results)
retention = _table_of(retention_results)
share_lag = _table_of(share_lag_results)
transactions = _table_of(transactions_results)


def inventory(
    spark: SparkSession, path: Paths, *, partitions: Collection[AnyPartition] | None = None
) -> DataFrame:
    """Read each partition once and list its segments, as a Spark table.

    Parameters
    ----------
    spark : SparkSession
        A classic session, or one of Spark Connect.
    path : path-like, LogStore or list of these
        Log directories or partition directories.
    partitions : collection, optional
        Read only these partitions, each as ``("orders", 3)`` or ``"orders-3"``.

    Returns
    -------
    DataFrame
        A row for each segment; see ``docs/jobs.md``.
    """
    job = InventoryJob()
    return table(spark, job, job.items(open_paths(path), partitions))


def verify(
    spark: SparkSession,
    path: Paths,
    *,
    partitions: Collection[AnyPartition] | None = None,
    sample: float = 1.0,
    metadata: Metadata = None,
) -> DataFrame:
    """Check every file of a store against the others, as `kafkastore.verify` does.

    Parameters
    ----------
    spark : SparkSession
        A classic session, or one of Spark Connect.
    path : path-like, LogStore or list of these
        Log directories or partition directories of one broker.
    partitions : collection, optional
        Check only these partitions, each as ``("orders", 3)`` or ``"orders-3"``, and nothing else.
    sample : float
        The fraction of segments whose logs are read, above 0 and up to 1.
    metadata : Cluster, path-like, LogStore or list of these, optional
        The cluster, or where its metadata is; see `kafkastore.verify`.

    Returns
    -------
    DataFrame
        A row for each finding; see ``docs/jobs.md``. A partition without findings has one row
        without a severity. The driver checks checkpoints, topic ids and directories that are not
        partitions, in this call.
    """
    store = open_paths(path)
    cluster = ClusterCheck.of(find_cluster_or_warn(store, metadata), store)
    job = VerifyJob(sample, cluster=cluster)
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
            f.count(f.when(f.col("severity") == each.value, 1)).alias(severity_column(each))
            for each in Severity
        ),
    )
    is_checked = f.col("topic").isNotNull() & (f.col("failures") == 0)
    names = ["segments", "segments_read", *map(severity_column, reversed(Severity)), "failures"]
    return by_directory.agg(
        f.count(f.when(is_checked, 1)).alias("partitions"),
        *(f.coalesce(f.sum(name), f.lit(0)).alias(name) for name in names),
    )


def compare(
    spark: SparkSession,
    path: Paths,
    timestamps: Sequence[int] = (),
    *,
    samples: int = SAMPLES,
    partitions: Collection[AnyPartition] | None = None,
    now: int | None = None,
    mtimes: Mapping[str, int] | None = None,
    rules: str = NEWEST_VERSION,
    legacy_rules: str = NEWEST_LEGACY_VERSION,
    whole_seconds: bool = False,
    on_corrupt: OnCorrupt = "raise",
) -> DataFrame:
    """Look up times in three ways, as `kafkastore.legacy.compare` does.

    Parameters
    ----------
    spark : SparkSession
        A classic session, or one of Spark Connect.
    path : path-like, LogStore or list of these
        Log directories or partition directories of one broker.
    timestamps : sequence of int
        ms since 1970. If empty: `samples` times, half of them spread over each partition's records,
        the others where answers can differ.
    samples : int
        The maximum number of times to choose if `timestamps` is empty.
    partitions : collection, optional
        Compare only these partitions, each as ``("orders", 3)`` or ``"orders-3"``.
    now, mtimes, rules, legacy_rules, whole_seconds, on_corrupt
        As for `kafkastore.legacy.compare`; `now` defaults to the driver's clock.

    Returns
    -------
    DataFrame
        A row for each partition and time; see ``docs/jobs.md``.
    """
    job = CompareJob(
        as_timestamps(timestamps).tolist(),
        samples,
        clock() if now is None else now,
        mtimes,
        rules,
        legacy_rules,
        whole_seconds,
        on_corrupt,
    )
    return table(spark, job, job.items(open_paths(path), partitions))


def latency(
    spark: SparkSession,
    path: Paths,
    *,
    partitions: Collection[AnyPartition] | None = None,
    create_time_header: str | None = None,
    created_in: Paths | None = None,
    on_corrupt: OnCorrupt = "raise",
) -> DataFrame:
    """Measure the latency from creation to append, as `kafkastore.latency` does.

    Parameters
    ----------
    spark : SparkSession
        A classic session, or one of Spark Connect.
    path : path-like, LogStore or list of these
        Log directories or partition directories of one broker.
    partitions : collection, optional
        Measure only these partitions, each as ``("orders", 3)`` or ``"orders-3"``.
    create_time_header : str, optional
        Name of a record header in which the producer wrote the creation time.
    created_in : path-like, LogStore or list of these, optional
        Log directories of another cluster, whose records have create times.
    on_corrupt : "raise", "skip" or "stop"
        As for `PartitionLog.batches`; ``skipped`` lists what is skipped.

    Returns
    -------
    DataFrame
        A row for each partition; see ``docs/jobs.md``. Percentiles of a topic cannot be computed
        from those of its partitions, but from ``histogram``.
    """
    job = LatencyJob(create_time_header, created_in is not None, on_corrupt)
    other = None if created_in is None else open_paths(created_in)
    return table(spark, job, job.items(open_paths(path), partitions, other))


def sizing(
    spark: SparkSession,
    path: Paths,
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
    path : path-like, LogStore or list of these
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
    return table(spark, job, job.items(open_paths(path), partitions))
