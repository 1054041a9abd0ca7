"""Index sizes, by interval and by time bucket."""
from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kafkastore.arguments import INT32_MAX, whole_number
from kafkastore.errors import ArgumentValueError
from kafkastore.jobs.job import PartitionJob, Row
from kafkastore.runner import run_here
from kafkastore.store.log_store import AnyPartition, Paths, open_paths
from kafkastore.store.partition_path import Copies, open_copies
from kafkastore.use_cases.sizing import (
    BUCKETS_MS,
    INTERVALS,
    PARTITIONS,
    BucketSize,
    IndexSize,
    Sizing,
    sizing_by_formula,
    sizing_of,
    total,
)

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class SizingJob(PartitionJob[Sizing]):
    """Compute the index sizes of each partition; options as for `sizing`."""

    intervals: Sequence[int] = INTERVALS
    buckets_ms: Sequence[int] = BUCKETS_MS

    @staticmethod
    def columns() -> list[tuple[str, pa.DataType]]:
        """Return the columns of a density, of an interval or of a time bucket."""
        import pyarrow as pa

        numbers = (
            "index_interval_bytes", "offset_index_entries", "time_index_entries",
            "offset_index_bytes", "time_index_bytes", "mapped_bytes", "mean_scan_bytes",
            "largest_scan_bytes", "bucket_ms",
        )
        return [("kind", pa.string()), *((name, pa.int64()) for name in numbers)]

    def run(self, item: Copies) -> Sizing:
        """Compute the index sizes of one partition."""
        return sizing_of(open_copies(item), self.intervals, self.buckets_ms)

    def rows(self, result: Sizing) -> Iterator[Row]:
        """Yield a row for each density: existing indexes, by interval, by bucket."""
        return sizing_rows(result)


def sizing_rows(found: Sizing) -> Iterator[Row]:
    """Yield a row for each density of a partition, or of a sum of partitions."""
    for size in densities(found):
        yield {
            "kind": "interval",
            "index_interval_bytes": size.index_interval_bytes,
            "offset_index_entries": size.offset_entries,
            "time_index_entries": size.time_entries,
            "offset_index_bytes": size.offset_index_bytes,
            "time_index_bytes": size.time_index_bytes,
            "mapped_bytes": found.mapped_bytes(size),
            "mean_scan_bytes": round(found.mean_scan_bytes(size)),
            "largest_scan_bytes": size.largest_scan_bytes,
        }
    yield from map(_bucket_row, found.by_bucket)


def densities(found: Sizing) -> list[IndexSize]:
    """Return the sizes of the existing indexes, if any, and those by interval."""
    there = [] if found.as_it_is is None else [found.as_it_is]
    return [*there, *found.by_interval]


def _bucket_row(bucket: BucketSize) -> Row:
    return {
        "kind": "bucket",
        "bucket_ms": bucket.bucket_ms,
        "time_index_entries": bucket.entries,
        "time_index_bytes": bucket.bytes,
    }


def sizing(
    path: Paths | None = None,
    *,
    partitions: Collection[AnyPartition] | None = None,
    intervals: Sequence[int] = INTERVALS,
    buckets_ms: Sequence[int] = BUCKETS_MS,
    broker_partitions: int = PARTITIONS,
) -> Sizing:
    """Compute index sizes: of partitions, or by formula for a number of them.

    Parameters
    ----------
    path : path-like, LogStore or list of these, optional
        Log directories or partition directories; the headers of all batches are read. Without it,
        each partition has 1 GiB of log, in one closed segment, with records in every second of one
        day.
    partitions : collection, optional
        Measure only these partitions of `path`, each as ``("orders", 3)`` or ``"orders-3"``.
    intervals : sequence of int
        Values of ``index.interval.bytes``.
    buckets_ms : sequence of int
        Lengths of time buckets in ms.
    broker_partitions : int
        The number of partitions, if `path` is not given.

    Returns
    -------
    Sizing
        The sizes by interval and by time bucket.

    Raises
    ------
    TypeError, ValueError
        If an interval or a bucket is not an int, or less than 1; if `partitions` is given without
        `path`.
    KeyError
        If `path` does not contain a partition.
    CorruptionError
        As from `sizing_of`.

    Notes
    -----
    Source: KIP-33, its first versions ("time.index.interval", the table for 3500 partitions) and
    the accepted one ("3 MB for 1GB segment, 4KB index interval").

    Examples
    --------
    >>> second, minute = sizing().by_bucket
    >>> round(second.bytes / 2**30, 1), minute.bytes // 2**20
    (3.4, 57)
    """
    intervals = [whole_number("intervals", each, 1, INT32_MAX) for each in intervals]
    buckets_ms = [whole_number("buckets_ms", each, 1) for each in buckets_ms]
    if path is None:
        if partitions is not None:
            raise ArgumentValueError("partitions", "None without a path", partitions)
        count = whole_number("broker_partitions", broker_partitions, 1, INT32_MAX)
        return sizing_by_formula(intervals, buckets_ms, count)
    job = SizingJob(tuple(intervals), tuple(buckets_ms))
    items = job.items(open_paths(path), partitions, is_weighed=False)
    return total(job.results(items, run_here), intervals, buckets_ms)
