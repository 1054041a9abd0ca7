"""Times asked of partitions, and times that records took to come into them."""
from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from kafkastore.formats.file_names import TopicPartition
from kafkastore.kip_33.latency import Latency, latency_of
from kafkastore.legacy import compare_columns, segment_times
from kafkastore.legacy.comparison import as_timestamps
from kafkastore.legacy.offset_request import clock
from kafkastore.log.damage import OnCorrupt, SkippedBytes
from kafkastore.spark.jobs.places import (
    Copies,
    Paths,
    chosen_copies,
    columns_of,
    copies_of,
    listed,
    open_copies,
    place_fields,
    store_of,
    weight,
)
from kafkastore.spark.spread import table
from kafkastore.store.log_store import AnyPartition, LogStore, open_store
from kafkastore.store.partition_log import PartitionLog
from kafkastore.store.sample_times import sample_times

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray
    from pyspark.sql import DataFrame, SparkSession

#: Columns of `latency`'s table, and the percentiles that they hold.
PERCENTILES = {"p50_ms": 50.0, "p90_ms": 90.0, "p99_ms": 99.0, "p99_9_ms": 99.9}


class ToMeasure(NamedTuple):
    """A partition, and the same partition in another cluster.

    Attributes
    ----------
    copies : tuple of Place
    elsewhere : tuple of Place
        Nothing where the other cluster does not have it, or where there is none.
    """

    copies: Copies
    elsewhere: Copies


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
    asked = as_timestamps(times).tolist()
    how = {
        "now": clock() if now is None else now,
        "mtimes": mtimes,
        "broker_rules": broker_rules,
        "legacy_rules": legacy_rules,
        "whole_seconds": whole_seconds,
    }
    items = chosen_copies(open_store(listed(paths)), partitions)
    job = partial(_compared_rows, times=asked, samples=samples, how=how)
    return table(spark, job, items, comparison_schema(), where=columns_of, weigh=weight)


def compare_partition(
    copies: Copies, *, times: Sequence[int], samples: int, how: Mapping[str, Any]
) -> NDArray[np.void]:
    """Ask one partition for times in three ways.

    Parameters
    ----------
    copies : tuple of Place
        The partition.
    times, samples
        As for `compare`.
    how : mapping
        What else `kafkastore.legacy.compare_columns` is told.

    Returns
    -------
    numpy.ndarray of COMPARISON, shape (n,)
    """
    log = open_copies(copies)
    asked = times_for(log, times, samples, how.get("mtimes"))
    return compare_columns(log, asked, **how)


class ReadableComparison(NamedTuple):
    """What comparing gave, and what was skipped on the way."""

    compared: NDArray[np.void]
    skipped: tuple[SkippedBytes, ...]


def compare_readable(
    copies: Copies,
    *,
    times: Sequence[int],
    samples: int,
    how: Mapping[str, Any],
    on_corrupt: OnCorrupt,
) -> ReadableComparison:
    """Do as `compare_partition`, past corrupt bytes if that is asked for."""
    skipped: list[SkippedBytes] = []
    compared = compare_partition(
        copies,
        times=times,
        samples=samples,
        how={**how, "on_corrupt": on_corrupt, "skipped": skipped},
    )
    return ReadableComparison(compared, tuple(skipped))


def times_for(
    log: PartitionLog, times: Sequence[int], samples: int, mtimes: Mapping[str, int] | None
) -> Sequence[int]:
    """Return the times that were given, or some between a partition's first and its largest.

    Parameters
    ----------
    log : PartitionLog
    times, samples, mtimes
        As for `compare`.

    Returns
    -------
    sequence of int
        ms since 1970.
    """
    if times:
        return times
    modified = [mtime for _, mtime in segment_times(log, mtimes)]
    return sample_times(log, samples - samples // 2, samples // 2, modified)


def comparison_schema() -> pa.Schema:
    """Return the columns of `compare`'s table.

    Returns
    -------
    pyarrow.Schema
    """
    import pyarrow as pa

    numbers = ("asked_timestamp", "legacy", "broker", "correct", "redelivered", "missed")
    return pa.schema(
        [*place_fields(), *((name, pa.int64()) for name in numbers), ("error", pa.string())]
    )


def _compared_rows(
    copies: Copies, *, times: Sequence[int], samples: int, how: Mapping[str, Any]
) -> Iterator[Mapping[str, Any]]:
    """Yield a row for each time."""
    found = compare_partition(copies, times=times, samples=samples, how=how)
    for asked, legacy, broker, correct, redelivered, missed in found.tolist():
        numbers = {
            "legacy": legacy,
            "broker": broker[1],
            "correct": correct[1],
            "redelivered": redelivered,
            "missed": missed,
        }
        known = {name: number for name, number in numbers.items() if number >= 0}
        yield {"asked_timestamp": asked, **known}


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
    if create_time_header is not None and created_in is not None:
        raise ValueError("create times are in a header or in another cluster, not in both")
    store = open_store(listed(paths))
    other = None if created_in is None else open_store(listed(created_in))
    chosen = list(store.partitions) if partitions is None else store.chosen(partitions)
    items = [to_measure(store, each, other) for each in chosen]
    job = partial(
        _latency_rows, create_time_header=create_time_header, is_elsewhere=other is not None
    )
    return table(
        spark,
        job,
        items,
        latency_schema(),
        where=lambda item: columns_of(item.copies),
        weigh=weigh_both,
    )


def to_measure(
    store: LogStore,
    topic_partition: TopicPartition,
    created_in: LogStore | None,
    *,
    is_weighed: bool = True,
) -> ToMeasure:
    """Tell where a partition lies, and where in another cluster.

    Parameters
    ----------
    store : LogStore
    topic_partition : TopicPartition
    created_in : LogStore or None
        The other cluster.
    is_weighed : bool
        As for `copies_of`.

    Returns
    -------
    ToMeasure
    """
    return ToMeasure(
        copies_of(store, topic_partition, is_weighed=is_weighed),
        ()
        if created_in is None
        else copies_of(created_in, topic_partition, is_weighed=is_weighed),
    )


def weigh_both(item: ToMeasure) -> int:
    """Return how many bytes of log there are in both clusters.

    Parameters
    ----------
    item : ToMeasure
    """
    return weight(item.copies) + weight(item.elsewhere)


def measure_latency(
    item: ToMeasure,
    *,
    create_time_header: str | None,
    is_elsewhere: bool,
    on_corrupt: OnCorrupt = "raise",
) -> Latency:
    """Measure the time from creation to append of one partition's records.

    Parameters
    ----------
    item : ToMeasure
    create_time_header : str or None
        As for `latency`.
    is_elsewhere : bool
        Whether create times are those of the other cluster.
    on_corrupt : str
        As for `kafkastore.latency`.

    Returns
    -------
    Latency
    """
    log = open_copies(item.copies)
    return latency_of(
        log.topic,
        [log],
        create_time_header=create_time_header,
        created_in=store_of(item.elsewhere) if is_elsewhere else None,
        on_corrupt=on_corrupt,
    )


def combined(topic: str, found: Sequence[Latency]) -> Latency:
    """Sum up the latencies of a topic's partitions.

    Parameters
    ----------
    topic : str
        Its name.
    found : sequence of Latency
        Of some of its partitions each.

    Returns
    -------
    Latency
    """
    values, places = np.unique(
        np.concatenate([np.empty(0, np.int64), *(each.values for each in found)]),
        return_inverse=True,
    )
    counts = np.zeros(len(values), np.int64)
    each_count = np.concatenate([np.empty(0, np.int64), *(each.counts for each in found)])
    np.add.at(counts, places, each_count)
    return Latency(
        topic,
        sum(each.partitions for each in found),
        values,
        counts,
        sum(each.unknown_records for each in found),
        sum(each.create_time_batches for each in found),
        tuple(skipped for each in found for skipped in each.skipped),
    )


def latency_schema() -> pa.Schema:
    """Return the columns of `latency`'s table.

    Returns
    -------
    pyarrow.Schema
    """
    import pyarrow as pa

    counted = pa.struct([("latency_ms", pa.int64()), ("records", pa.int64())])
    numbers = (
        "records", "unknown_records", "create_time_batches", "negative_records", *PERCENTILES,
        "max_ms",
    )
    return pa.schema(
        [
            *place_fields(),
            *((name, pa.int64()) for name in numbers),
            ("histogram", pa.list_(counted)),
            ("error", pa.string()),
        ]
    )


def _latency_rows(
    item: ToMeasure, *, create_time_header: str | None, is_elsewhere: bool
) -> Iterator[Mapping[str, Any]]:
    """Yield the row of a partition."""
    found = measure_latency(
        item, create_time_header=create_time_header, is_elsewhere=is_elsewhere
    )
    yield {
        "records": found.records,
        "unknown_records": found.unknown_records,
        "create_time_batches": found.create_time_batches,
        "negative_records": found.negative_records,
        **{name: found.percentile(percent) for name, percent in PERCENTILES.items()},
        "max_ms": found.largest,
        "histogram": [
            {"latency_ms": value, "records": count}
            for value, count in zip(found.values.tolist(), found.counts.tolist(), strict=True)
        ],
    }
