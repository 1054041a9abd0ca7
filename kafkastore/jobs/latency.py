"""The time that records take from their creation to the broker's log."""
from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from kafkastore.arguments import thread_count
from kafkastore.errors import ArgumentValueError, MissingExtraError
from kafkastore.jobs.job import Job, Row, columns_of, skipped_column, skipped_rows
from kafkastore.log.damage import OnCorrupt
from kafkastore.runner import in_threads, threads_within
from kafkastore.store.log_store import AnyPartition, LogStore, Paths, open_paths
from kafkastore.store.partition_path import Copies, find_copies, open_as_store, open_copies, weight
from kafkastore.use_cases.latency import Latency, combined, latency_of

if TYPE_CHECKING:
    import pyarrow as pa

#: Percentiles by column name.
PERCENTILES = {"p50_ms": 50.0, "p90_ms": 90.0, "p99_ms": 99.0, "p99_9_ms": 99.9}


class MeasuredPartition(NamedTuple):
    """A partition, and the same one in another cluster, if that has it."""

    copies: Copies
    created_in: Copies

    @property
    def topic(self) -> str:
        """The partition's topic."""
        return self.copies[0].topic


@dataclass(frozen=True)
class LatencyJob(Job[MeasuredPartition, Latency]):
    """Measure the latency of each partition's records.

    Create times come from the batches, from a record header, or from another cluster. `threads`
    read each partition.
    """

    create_time_header: str | None = None
    is_created_elsewhere: bool = False
    on_corrupt: OnCorrupt = "raise"
    threads: int = 1

    def __post_init__(self) -> None:
        if self.create_time_header is not None and self.is_created_elsewhere:
            raise ArgumentValueError(
                "create_time_header", "None with created_in", self.create_time_header
            )
        if self.create_time_header is not None:
            MissingExtraError.check("pyarrow", "arrow")

    @staticmethod
    def items(
        store: LogStore,
        partitions: Iterable[AnyPartition] | None = None,
        created_in: LogStore | None = None,
        *,
        is_weighed: bool = True,
    ) -> list[MeasuredPartition]:
        """Return partitions of a store, each with the same one in another cluster."""
        return [
            MeasuredPartition(
                find_copies(store, each, is_weighed=is_weighed),
                ()
                if created_in is None
                else find_copies(created_in, each, is_weighed=is_weighed),
            )
            for each in store.chosen(partitions)
        ]

    @staticmethod
    def columns() -> list[tuple[str, pa.DataType]]:
        """Return the columns of a partition's latency."""
        import pyarrow as pa

        counted = pa.struct([("latency_ms", pa.int64()), ("records", pa.int64())])
        numbers = (
            "records", "unknown_records", "create_time_batches", "negative_records", *PERCENTILES,
            "max_ms",
        )
        return [
            *((name, pa.int64()) for name in numbers),
            ("histogram", pa.list_(counted)),
            skipped_column(),
        ]

    def run(self, item: MeasuredPartition) -> Latency:
        """Measure one partition."""
        return latency_of(
            open_copies(item.copies),
            create_time_header=self.create_time_header,
            created_in=open_as_store(item.created_in) if self.is_created_elsewhere else None,
            on_corrupt=self.on_corrupt,
            threads=self.threads,
        )

    def rows(self, result: Latency) -> Iterator[Row]:
        """Yield the row of a partition."""
        counted = zip(result.values.tolist(), result.counts.tolist(), strict=True)
        yield {
            **latency_row(result),
            "histogram": [{"latency_ms": value, "records": count} for value, count in counted],
        }

    def place(self, item: MeasuredPartition) -> Row:
        """Return the columns that name the partition."""
        return columns_of(item.copies)

    def weigh(self, item: MeasuredPartition) -> int:
        """Return the size of the partition's logs in both clusters."""
        return weight(item.copies) + weight(item.created_in)


def latency_row(found: Latency) -> Row:
    """Return the row of a partition's or of a topic's latency, without the histogram."""
    return {
        "records": found.records,
        "unknown_records": found.unknown_records,
        "create_time_batches": found.create_time_batches,
        "negative_records": found.negative_records,
        **{name: found.percentile(percent) for name, percent in PERCENTILES.items()},
        "max_ms": found.largest,
        "skipped": skipped_rows(found.skipped),
    }


def by_topic(measured: Iterable[tuple[MeasuredPartition, Latency]]) -> Iterator[Latency]:
    """Combine the successive partitions of each topic."""
    for topic, group in groupby(measured, key=lambda pair: pair[0].topic):
        yield combined(topic, (each for _, each in group))


def latency(
    path: Paths,
    *,
    partitions: Collection[AnyPartition] | None = None,
    create_time_header: str | None = None,
    created_in: Paths | None = None,
    on_corrupt: OnCorrupt = "raise",
    threads: int | None = None,
) -> Iterator[Latency]:
    """Measure the time from creation to append of records, by topic.

    Parameters
    ----------
    path : path-like, LogStore or list of these
        Log directories or partition directories of one broker; every batch is read.
    partitions : collection, optional
        Measure only these partitions, each as ``("orders", 3)`` or ``"orders-3"``.
    create_time_header : str, optional
        Name of a record header in which the producer wrote its time, as decimal digits or as 8
        bytes, big-endian; ms since 1970. Default: the create times in the batches.
    created_in : path-like, LogStore or list of these, optional
        Another cluster with the same topics and partitions, whose records have create times.
        Records are matched by key and value, the first of equal ones with the first; this needs 40
        bytes of memory a record.
    on_corrupt : "raise", "skip" or "stop"
        As for `PartitionLog.batches`; each `Latency` lists what is skipped.
    threads : int, optional
        How many threads read partitions, or the segments of few partitions. Default: the number of
        cores that the process may use.

    Yields
    ------
    Latency
        In the order of topics, including topics without any latency.

    Raises
    ------
    KafkaStoreError
        If a partition cannot be read.

    Notes
    -----
    Memory: about 16 bytes for each distinct latency in ms, and a few times that during sorting; it
    does not grow with the number of records.
    """
    other = None if created_in is None else open_paths(created_in)
    threads = thread_count(threads)
    items = LatencyJob.items(open_paths(path), partitions, other, is_weighed=False)
    within = threads_within(threads, len(items))
    job = LatencyJob(create_time_header, other is not None, on_corrupt, within)
    yield from by_topic(zip(items, job.results(items, in_threads(threads)), strict=True))
