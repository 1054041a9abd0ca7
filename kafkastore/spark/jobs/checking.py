"""Partitions checked, and what a broker's next start would do to them."""
from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from kafkastore.checks.findings import Finding, Severity
from kafkastore.checks.name_check import check_topic_id
from kafkastore.checks.partition_check import CheckedPartition, check_partition
from kafkastore.checks.predict import Prediction, logs_to_predict, predict_beside, predict_log
from kafkastore.checks.verify import (
    Failed,
    check_sample,
    differing_topic_id,
    findings_beside,
    findings_of,
    logs_to_check,
)
from kafkastore.formats.file_names import TopicPartition
from kafkastore.paths import to_path
from kafkastore.segment.recovery import INDEX_INTERVAL_BYTES
from kafkastore.spark.jobs.places import (
    FAILURES,
    Paths,
    columns_of,
    listed,
    open_place,
    place_fields,
    place_of,
)
from kafkastore.spark.spread import Place, Run, table
from kafkastore.store.log_store import AnyPartition, LogStore, open_store
from kafkastore.store.partition_log import PartitionLog
from kafkastore.versions import rules_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession


class ToCheck(NamedTuple):
    """A partition directory, and what is known of it by looking at others.

    Attributes
    ----------
    place : Place
    twin : Finding or None
        Where the partition is in another directory, too.
    behind : tuple of Finding
        Told behind everything else.
    """

    place: Place
    twin: Finding | None
    behind: tuple[Finding, ...] = ()


class _Known(NamedTuple):
    """What the driver found beside the partitions: a finding, or a prediction, or an error."""

    path: Path
    store: str | None
    topic_partition: TopicPartition | None
    told: Finding | Prediction | None
    error: str | None = None


def check_place(item: ToCheck, *, sample: float = 1.0) -> CheckedPartition:
    """Check one partition; see `kafkastore.verify`.

    Parameters
    ----------
    item : ToCheck
    sample : float
        As there.

    Returns
    -------
    CheckedPartition
        Its failures are values.
    """
    checked = check_partition(open_place(item.place), sample=sample)
    if item.twin is not None:
        checked.findings.insert(0, item.twin)
    checked.findings.extend(item.behind)
    return checked


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
    check_sample(sample)
    store = open_store(listed(paths))
    chosen = None if partitions is None else set(store.chosen(partitions))
    items: list[ToCheck | _Known] = list(_beside(store)) if chosen is None else []
    topic_ids: dict[str, tuple[str, Path]] = {}
    for log, twin in logs_to_check(store, chosen):
        differing = differing_topic_id(log.topic, log.path, _topic_id(log), topic_ids)
        items.append(ToCheck(place_of(log), twin, tuple(differing)))
    job = partial(_finding_rows, sample=sample)
    return table(spark, job, items, finding_schema(), where=_where_checked, weigh=_weigh)


def findings(
    run: Run,
    paths: Paths,
    *,
    partitions: Collection[AnyPartition] | None = None,
    sample: float = 1.0,
    failed: Failed | None = None,
    progress: Callable[[CheckedPartition], None] | None = None,
) -> Iterator[Finding]:
    """Check as `kafkastore.verify` does, the partitions by Spark.

    Parameters
    ----------
    run : callable
        Does the work on the partitions: `spread` with a session.
    paths, partitions, sample, failed, progress
        As for `kafkastore.verify`.

    Yields
    ------
    Finding
        The same ones in the same order.
    """
    check_sample(sample)
    store = open_store(listed(paths))
    chosen = None if partitions is None else set(store.chosen(partitions))
    if chosen is None:
        yield from findings_beside(store, failed)
    items = [ToCheck(place_of(log), twin) for log, twin in logs_to_check(store, chosen)]
    checked = run(partial(check_place, sample=sample), items, weigh=_weigh)
    named = (TopicPartition(each.place.topic, each.place.partition) for each in items)
    yield from findings_of(zip(named, checked, strict=True), failed, progress)


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


def finding_schema() -> pa.Schema:
    """Return the columns of `verify`'s table.

    Returns
    -------
    pyarrow.Schema
    """
    import pyarrow as pa

    return pa.schema(
        [
            *place_fields(),
            ("severity", pa.string()),
            ("file", pa.string()),
            ("position", pa.int64()),
            ("what", pa.string()),
            ("consequence", pa.string()),
            ("remedy", pa.string()),
            ("segments", pa.int64()),
            ("segments_read", pa.int64()),
            ("error", pa.string()),
        ]
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
    rules_of(broker)
    store = open_store(listed(paths))
    items: list[Place | _Known] = [
        _Known(each.path, _store_around(each.path, store), each.topic_partition, each)
        for each in predict_beside(store, broker)
    ]
    items += [place_of(log) for log in logs_to_predict(store, partitions)]
    job = partial(_prediction_rows, broker=broker, index_interval_bytes=index_interval_bytes)
    return table(spark, job, items, prediction_schema(), where=_where_checked, weigh=_weigh)


def predict_partition(place: Place, *, broker: str, index_interval_bytes: int) -> Prediction:
    """Work out what the next start of a broker does to one partition.

    Parameters
    ----------
    place : Place
    broker, index_interval_bytes
        As for `predict`.

    Returns
    -------
    Prediction
        What files would hold is left out of it; `made_bytes` has their sizes.
    """
    found = predict_log(open_place(place), broker, index_interval_bytes)
    if found.recovered is None:
        return found
    return replace(found, recovered=replace(found.recovered, written={}))


def prediction_schema() -> pa.Schema:
    """Return the columns of `predict`'s table.

    Returns
    -------
    pyarrow.Schema
    """
    import pyarrow as pa

    cut = pa.struct([("valid_bytes", pa.int64()), ("reason", pa.string())])
    return pa.schema(
        [
            *place_fields(),
            ("outcome", pa.string()),
            ("why", pa.string()),
            ("lost_bytes", pa.int64()),
            ("recovered_from", pa.int64()),
            ("log_start_offset", pa.int64()),
            ("log_end_offset", pa.int64()),
            ("recovered_segments", pa.list_(pa.int64())),
            ("cut", pa.map_(pa.string(), cut)),
            ("deleted", pa.map_(pa.string(), pa.string())),
            ("renamed", pa.map_(pa.string(), pa.string())),
            ("written", pa.map_(pa.string(), pa.int64())),
            ("error", pa.string()),
        ]
    )


def _finding_rows(item: ToCheck | _Known, *, sample: float) -> Iterator[Mapping[str, Any]]:
    """Yield a row for each finding and failure of a partition; one without, where there is none."""
    if isinstance(item, _Known):
        yield _row(item.told) if isinstance(item.told, Finding) else {"error": item.error}
        return
    checked = check_place(item, sample=sample)
    counts = {"segments": checked.segments, "segments_read": checked.segments_read}
    for finding in checked.findings:
        yield counts | _row(finding)
    for failure in checked.failures:
        yield counts | {"error": str(failure)}
    if not checked.findings and not checked.failures:
        yield counts


def _row(finding: Finding) -> dict[str, Any]:
    return {
        "severity": finding.severity.value,
        "file": str(finding.path),
        "position": finding.position,
        "what": finding.what,
        "consequence": finding.consequence,
        "remedy": finding.remedy,
    }


def _prediction_rows(
    item: Place | _Known, *, broker: str, index_interval_bytes: int
) -> Iterator[Mapping[str, Any]]:
    """Yield the row of a directory."""
    if isinstance(item, _Known):
        assert isinstance(item.told, Prediction)
        found = item.told
    else:
        found = predict_partition(item, broker=broker, index_interval_bytes=index_interval_bytes)
    row: dict[str, Any] = {
        "outcome": found.outcome.value,
        "why": found.why,
        "lost_bytes": found.lost_bytes,
        "recovered_from": found.recovered_from,
    }
    if (recovered := found.recovered) is not None:
        reasons = {f"{each.base_offset:020}.log": each.reason for each in recovered.segments}
        row |= {
            "log_start_offset": recovered.log_start_offset,
            "log_end_offset": recovered.log_end_offset,
            "recovered_segments": [
                each.base_offset for each in recovered.segments if each.is_recovered
            ],
            "cut": [
                (name, {"valid_bytes": size, "reason": reasons.get(name)})
                for name, size in recovered.cut.items()
            ],
            "deleted": list(recovered.deleted.items()),
            "renamed": list(recovered.renamed.items()),
            "written": list(found.made_bytes.items()),
        }
    yield row


def _beside(store: LogStore) -> Iterable[_Known]:
    """Yield what is found beside the partitions, and then what could not be looked at."""
    failures: list[_Known] = []

    def failed(_: TopicPartition | None, error: Exception) -> None:
        path = to_path(str(getattr(error, "filename", None) or getattr(error, "path", "")))
        failures.append(_Known(path, _store_around(path, store), None, None, str(error)))

    for finding in findings_beside(store, failed):
        yield _Known(finding.path, _store_around(finding.path, store), None, finding)
    yield from failures


def _store_around(path: Path, store: LogStore) -> str | None:
    """Name the log directory that a file lies in."""
    for log_dir in store.log_dirs:
        if log_dir.path in path.parents:
            return str(log_dir.path)
    return None


def _topic_id(log: PartitionLog) -> str | None:
    """Read a partition's topic id; None where it has none, whatever the reason."""
    checking = check_topic_id(log)
    try:
        while True:
            next(checking)
    except StopIteration as end:
        topic_id: str | None = end.value
        return topic_id
    except FAILURES:
        return None


def _where_checked(item: ToCheck | Place | _Known) -> Mapping[str, Any]:
    """Return the columns that say where something lies."""
    if isinstance(item, _Known):
        named = item.topic_partition
        return {
            "store": item.store,
            "topic": None if named is None else named.topic,
            "partition": None if named is None else named.partition,
            "path": str(item.path),
        }
    return columns_of([item.place if isinstance(item, ToCheck) else item])


def _weigh(item: ToCheck | Place | _Known) -> int:
    if isinstance(item, _Known):
        return 0
    return item.place.bytes if isinstance(item, ToCheck) else item.bytes


def _column(severity: Severity) -> str:
    return severity.value.replace("-", "_")
