"""Append latency of records: LogAppendTime minus CreateTime.

KIP-33 uses it to measure a pipeline, and its maximum as the time that a consumer goes back when it
moves to another cluster. A record has one timestamp, but both times are known if

- a topic has LogAppendTime, and the batch kept what its producer wrote. In message format v2 the
  broker overwrites only the largest timestamp in the batch header, and each record keeps its own.
  In a compressed v1 set it overwrites only the wrapper's. An uncompressed v1 message is
  overwritten; v0 has no timestamp.
- a topic has LogAppendTime, and the producer wrote its time into a record header;
- another cluster has the same records with create times.

When compaction rewrites a batch, it replaces create times by the append time: the records seem to
have no latency. If compaction set a delete horizon (KIP-534), the create times are known to be
lost.

Source: Kafka 2.4.0 ``LogValidator``, ``DefaultRecordBatch.setMaxTimestamp``, ``MemoryRecords``.
"""
from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kafkastore.errors import ArgumentValueError
from kafkastore.formats.records.batch_header import LOG_APPEND_TIME_BIT
from kafkastore.log.damage import CorruptionHandler, OnCorrupt, SkippedBytes
from kafkastore.store.log_store import LogStore
from kafkastore.store.partition_log import PartitionLog
from kafkastore.use_cases.fingerprints import Fingerprints
from kafkastore.use_cases.kept_create_times import (
    LatencyHistogram,
    LatencyPiece,
    LatencySum,
    has_append_time,
    keeps_create_times,
    kept_latencies,
    sum_of,
)
from kafkastore.use_cases.record_times import FAR_FUTURE, runs_between


class Latency(NamedTuple):
    """The latencies of a topic.

    Parameters
    ----------
    topic : str
        The topic.
    partitions : int
        Number of its partitions in the store.
    values, counts : numpy.ndarray of int64
        Each latency in ms that occurs, ascending, and the number of records with it. Negative if a
        producer's clock was ahead of the broker's.
    unknown_records : int
        Records with LogAppendTime whose create time is unknown.
    create_time_batches : int
        Batches with CreateTime, whose append time is unknown.
    skipped : tuple of SkippedBytes
        Corrupt bytes that were skipped.
    """

    topic: str
    partitions: int
    values: NDArray[np.int64]
    counts: NDArray[np.int64]
    unknown_records: int
    create_time_batches: int
    skipped: tuple[SkippedBytes, ...] = ()

    @property
    def records(self) -> int:
        """The number of records with a known latency."""
        return int(self.counts.sum())

    @property
    def negative_records(self) -> int:
        """The number of records created after they were appended, by their clocks."""
        return int(self.counts[self.values < 0].sum())

    @property
    def largest(self) -> int | None:
        """The largest latency in ms; None if none is known."""
        return int(self.values[-1]) if len(self.values) else None

    def percentile(self, percent: float) -> int | None:
        """Return the smallest latency that `percent` of the records do not exceed.

        Parameters
        ----------
        percent : float
            Above 0, at most 100.

        Returns
        -------
        int or None
            ms; None if no latency is known.
        """
        if not 0 < percent <= 100:
            raise ArgumentValueError("percent", "above 0 and at most 100", percent)
        if not len(self.values):
            return None
        # In thousandths of a percent: a product of floats may round past an integer.
        needed = -(-self.records * round(percent * 1000) // 100_000)
        return int(self.values[np.searchsorted(np.cumsum(self.counts), max(needed, 1))])


def latency_of(
    log: PartitionLog,
    *,
    create_time_header: str | None = None,
    created_in: LogStore | None = None,
    on_corrupt: OnCorrupt = "raise",
    threads: int = 1,
) -> Latency:
    """Compute the latencies of one partition; see `kafkastore.latency`.

    `threads` read the log, unless the create times are in another cluster.
    """
    skipped: list[SkippedBytes] = []
    pieces: Iterator[LatencyPiece | LatencySum]
    if created_in is not None:
        pieces = iter([_from_other_cluster(log, created_in, on_corrupt, skipped)])
    elif create_time_header is not None:
        pieces = _in_headers(log, create_time_header, on_corrupt, skipped, threads)
    else:
        pieces = kept_latencies(log, CorruptionHandler(on_corrupt, skipped), threads)
    total = sum_of(pieces)
    return Latency(
        log.topic,
        1,
        total.latencies,
        total.counts,
        total.unknown_records,
        total.create_time_batches,
        tuple(skipped),
    )


def combined(topic: str, found: Iterable[Latency]) -> Latency:
    """Combine the latencies of a topic's partitions."""
    total, unknown, batches, partitions = LatencyHistogram(), 0, 0, 0
    skipped: list[SkippedBytes] = []
    for each in found:
        total.add_counted(each.values, each.counts)
        unknown += each.unknown_records
        batches += each.create_time_batches
        partitions += each.partitions
        skipped += each.skipped
    return Latency(topic, partitions, *total.counted(), unknown, batches, tuple(skipped))


def _in_headers(
    log: PartitionLog,
    name: str,
    on_corrupt: OnCorrupt,
    skipped: list[SkippedBytes],
    threads: int,
) -> Iterator[LatencyPiece]:
    """Yield latencies from the create times in record headers of a name."""
    columns = ["timestamp", "timestampType", "headers"]
    for batch in log.to_arrow(
        columns, on_corrupt=on_corrupt, skipped=skipped, threads=threads
    ):
        appended = batch.column("timestampType").to_numpy() == 1
        micros = batch.column("timestamp").cast("int64")
        stamps = micros.fill_null(FAR_FUTURE * 1000).to_numpy() // 1000
        created = _header_times(batch.column("headers"), name)
        known = appended & (created >= 0)
        yield LatencyPiece(
            stamps[known] - created[known],
            int((appended & ~known).sum()),
            int((~appended).sum()),
        )


def _from_other_cluster(
    log: PartitionLog, created_in: LogStore, on_corrupt: OnCorrupt, skipped: list[SkippedBytes]
) -> LatencyPiece:
    """Find the create times of a partition's records in another cluster."""
    damage = CorruptionHandler(on_corrupt, skipped)
    appended = _fingerprints_and_times(log, damage, of_append_time=True)
    if log.topic_partition not in created_in.partitions:
        return LatencyPiece(np.empty(0, np.int64), len(appended[0]), 0)
    other = created_in.partitions[log.topic_partition]
    damage = CorruptionHandler(on_corrupt, skipped)
    created = _fingerprints_and_times(other, damage, of_append_time=False)
    kinds, numbers = np.unique(np.concatenate([appended[0], created[0]]), return_inverse=True)
    places = _numbered(numbers[: len(appended[0])], len(kinds))
    others = _numbered(numbers[len(appended[0]) :], len(kinds))
    _, ours, theirs = np.intersect1d(places, others, assume_unique=True, return_indices=True)
    latencies = appended[1][ours] - created[1][theirs]
    return LatencyPiece(latencies, len(places) - len(ours), 0)


def _fingerprints_and_times(
    log: PartitionLog, damage: CorruptionHandler, *, of_append_time: bool
) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """Read the records with an append time, or those with a known create time."""
    start, end = log.log_start_offset, log.end_before(damage)
    fingerprints = Fingerprints(start, end, "content")
    hashes: list[NDArray[np.uint64]] = [np.empty(0, np.uint64)]
    times: list[NDArray[np.int64]] = [np.empty(0, np.int64)]
    for located in runs_between(log, start, end, damage=damage):
        headers = located.headers.copy()
        if not of_append_time:
            headers["attributes"][keeps_create_times(headers)] &= ~LOG_APPEND_TIME_BIT
        headers = headers[has_append_time(headers) == of_append_time]
        for stamps, found in fingerprints.of(located.of(headers)):
            hashes.append(found[stamps >= 0])
            times.append(stamps[stamps >= 0])
    return np.concatenate(hashes), np.concatenate(times)


def _numbered(kinds: NDArray[np.int64], kind_count: int) -> NDArray[np.int64]:
    """Make equal values unique by the number of earlier occurrences."""
    order = np.argsort(kinds, kind="stable")
    starts = np.searchsorted(kinds[order], np.arange(kind_count))
    before = np.empty(len(kinds), np.int64)
    before[order] = np.arange(len(kinds)) - starts[kinds[order]]
    return before * kind_count + kinds


def _header_times(headers: Any, name: str) -> NDArray[np.int64]:
    """Parse the time in each record's first header of a name; -1 if missing."""
    import pyarrow as pa
    import pyarrow.compute as pc

    times = np.full(len(headers), -1, np.int64)
    rows = pc.list_parent_indices(headers).to_numpy()
    pairs = pc.list_flatten(headers)
    is_named = pc.equal(pc.struct_field(pairs, "key"), name).to_numpy(zero_copy_only=False)
    values = pc.struct_field(pairs, "value").filter(pa.array(is_named))
    rows, first = np.unique(rows[is_named], return_index=True)
    values = values.take(pa.array(first))
    sizes = pc.binary_length(values).fill_null(0).to_numpy()
    eight = values.filter(pa.array(sizes == 8)).cast(pa.binary(8))
    binary = eight.view(pa.int64()).to_numpy().byteswap()
    digits = pc.match_substring_regex(values, r"^[0-9]{1,18}$").fill_null(False)
    is_text = digits.to_numpy(zero_copy_only=False)
    times[rows[(sizes == 8) & ~is_text]] = binary[~is_text[sizes == 8]]
    texts = values.filter(pa.array(is_text)).cast(pa.string()).cast(pa.int64())
    times[rows[is_text]] = texts.to_numpy()
    return times
