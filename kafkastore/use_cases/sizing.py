"""Index sizes and lookup costs, by interval and by time bucket.

The first drafts of KIP-33 had one index entry per second or minute, however many records it had.
The accepted and released design has one entry per number of log bytes.
"""
from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Self

import numpy as np
from numpy.typing import NDArray

from kafkastore.errors import CorruptBatchError, OffsetOverflowError, OutOfOrderAppendError
from kafkastore.formats.indexes.index_builder import IndexBuilder
from kafkastore.formats.indexes.index_format import offset_index, time_index
from kafkastore.formats.indexes.index_growth import preallocated_size
from kafkastore.segment.index_file import OffsetIndex, TimeIndex
from kafkastore.segment.log_segment import LogSegment
from kafkastore.store.partition_log import PartitionLog

#: ``index.interval.bytes``: Kafka's default, and some other values.
INTERVALS = (1024, 4096, 16_384, 65_536)
SECOND_MS = 1000
MINUTE_MS = 60_000
BUCKETS_MS = (SECOND_MS, MINUTE_MS)
#: As in KIP-33's table.
PARTITIONS = 3500
#: Kafka's default of ``segment.bytes`` and of ``segment.index.bytes``.
SEGMENT_BYTES = 1 << 30
SEGMENT_INDEX_BYTES = 10 << 20

_DAY_MS = 86_400_000


@dataclass(frozen=True)
class IndexSize:
    """The size of offset and time indexes of all segments, for one interval.

    Parameters
    ----------
    index_interval_bytes : int or None
        Bytes of log between entries; None: the existing index files.
    offset_entries, time_entries : int
        Without zero padding.
    inactive_bytes : int
        Bytes of both indexes of all inactive segments.
    scanned_bytes : float
        Sum, over all bytes of log, of the bytes before them that a lookup scans, in bytes squared.
    largest_scan_bytes : int
        The most bytes that a lookup scans.
    """

    index_interval_bytes: int | None
    offset_entries: int = 0
    time_entries: int = 0
    inactive_bytes: int = 0
    scanned_bytes: float = 0.0
    largest_scan_bytes: int = 0

    @property
    def offset_index_bytes(self) -> int:
        """Bytes of the offset indexes."""
        return self.offset_entries * offset_index.ENTRY_SIZE

    @property
    def time_index_bytes(self) -> int:
        """Bytes of the time indexes."""
        return self.time_entries * time_index.ENTRY_SIZE

    def __add__(self, other: Self) -> Self:
        return type(self)(
            self.index_interval_bytes,
            self.offset_entries + other.offset_entries,
            self.time_entries + other.time_entries,
            self.inactive_bytes + other.inactive_bytes,
            self.scanned_bytes + other.scanned_bytes,
            max(self.largest_scan_bytes, other.largest_scan_bytes),
        )


@dataclass(frozen=True)
class BucketSize:
    """The size of the time indexes of all segments with one entry per time bucket.

    Parameters
    ----------
    bucket_ms : int
        Length of a bucket.
    entries : int
        One for each bucket that the running largest timestamp has reached.
    """

    bucket_ms: int
    entries: int = 0

    @property
    def bytes(self) -> int:
        """Bytes of the entries, each with timestamp and relative offset."""
        return self.entries * time_index.ENTRY_SIZE

    def __add__(self, other: Self) -> Self:
        return type(self)(self.bucket_ms, self.entries + other.entries)


@dataclass(frozen=True)
class Sizing:
    """The size of the indexes of partitions.

    Parameters
    ----------
    partitions, segments : int
        Number of each.
    log_bytes : int
        Bytes of complete batches in the ``.log`` files.
    as_it_is : IndexSize or None
        The existing index files; None without a directory.
    by_interval : tuple of IndexSize
        One for each requested interval.
    by_bucket : tuple of BucketSize
        One for each requested bucket.
    """

    partitions: int
    segments: int
    log_bytes: int
    as_it_is: IndexSize | None
    by_interval: tuple[IndexSize, ...]
    by_bucket: tuple[BucketSize, ...]

    def mean_scan_bytes(self, size: IndexSize) -> float:
        """Return the mean number of bytes that a lookup scans before it finds its batch.

        Parameters
        ----------
        size : IndexSize
            One of this object's.

        Returns
        -------
        float
            For targets spread evenly over the log: half the distance of entries, if that is
            constant.
        """
        return size.scanned_bytes / self.log_bytes if self.log_bytes else 0.0

    def mapped_bytes(self, size: IndexSize, segment_index_bytes: int = SEGMENT_INDEX_BYTES) -> int:
        """Return the bytes of address space that a running broker maps for indexes.

        Parameters
        ----------
        size : IndexSize
            One of this object's.
        segment_index_bytes : int
            ``segment.index.bytes``: the full size of an active segment's index files, which are
            sparse.

        Returns
        -------
        int
            With all indexes mapped. Brokers since 2.3.0 (KAFKA-7283) map the indexes of an inactive
            segment on first use.
        """
        a_partition = sum(
            preallocated_size(segment_index_bytes, entry_size)
            for entry_size in (offset_index.ENTRY_SIZE, time_index.ENTRY_SIZE)
        )
        return size.inactive_bytes + self.partitions * a_partition

    def __add__(self, other: Self) -> Self:
        there = [each for each in (self.as_it_is, other.as_it_is) if each is not None]
        return type(self)(
            self.partitions + other.partitions,
            self.segments + other.segments,
            self.log_bytes + other.log_bytes,
            reduce(add, there) if there else None,
            tuple(map(add, self.by_interval, other.by_interval)),
            tuple(map(add, self.by_bucket, other.by_bucket)),
        )


def total(
    sizings: Iterable[Sizing],
    intervals: Sequence[int] = INTERVALS,
    buckets_ms: Sequence[int] = BUCKETS_MS,
) -> Sizing:
    """Add sizings of the same `intervals` and `buckets_ms`."""
    nothing = Sizing(0, 0, 0, IndexSize(None), *_rows(intervals, buckets_ms))
    return reduce(add, sizings, nothing)


def _rows(
    intervals: Sequence[int], buckets_ms: Sequence[int]
) -> tuple[tuple[IndexSize, ...], tuple[BucketSize, ...]]:
    return tuple(map(IndexSize, intervals)), tuple(map(BucketSize, buckets_ms))


def sizing_by_formula(
    intervals: Sequence[int], buckets_ms: Sequence[int], partitions: int
) -> Sizing:
    """Compute the sizes for a broker whose entries are evenly spaced."""
    by_interval = []
    for interval in intervals:
        entries = SEGMENT_BYTES // interval * partitions
        size = entries * (offset_index.ENTRY_SIZE + time_index.ENTRY_SIZE)
        scanned = float(partitions * SEGMENT_BYTES * interval) / 2
        by_interval.append(IndexSize(interval, entries, entries, size, scanned, interval))
    by_bucket = (BucketSize(bucket, -(-_DAY_MS // bucket) * partitions) for bucket in buckets_ms)
    return Sizing(
        partitions, partitions, partitions * SEGMENT_BYTES, None, tuple(by_interval),
        tuple(by_bucket),
    )


def sizing_of(
    log: PartitionLog,
    intervals: Sequence[int] = INTERVALS,
    buckets_ms: Sequence[int] = BUCKETS_MS,
) -> Sizing:
    """Measure one partition's indexes as if rebuilt, by the headers of all batches.

    A running broker counts the batches of one request or fetch as one. Raises CorruptionError if a
    log is corrupt; CRCs are not checked.
    """
    found = log.retry_if_changed(
        lambda: [_measured(segment, intervals, buckets_ms) for segment in log.segments]
    )
    nothing = Sizing(1, 0, 0, IndexSize(None), *_rows(intervals, buckets_ms))
    return reduce(add, found, nothing)


def _measured(
    segment: LogSegment, intervals: Sequence[int], buckets_ms: Sequence[int]
) -> Sizing:
    """Read a segment's headers once, for all intervals and buckets."""
    builders = [IndexBuilder(segment.base_offset, interval) for interval in intervals]
    counters = [_BucketCounter(bucket) for bucket in buckets_ms]
    valid_bytes = 0
    try:
        with segment.open_log() as log:
            for run in log.runs():
                for builder in builders:
                    builder.append(run.headers)
                for counter in counters:
                    counter.append(run.headers["max_timestamp"])
                valid_bytes = int(run.headers["position"][-1] + run.headers["size"][-1])
        entries = [builder.finish() for builder in builders]
    except (OffsetOverflowError, OutOfOrderAppendError) as error:
        raise CorruptBatchError(str(error), path=segment.log_path, position=valid_bytes) from error
    is_active = segment.next_base_offset is None
    by_interval = []
    for interval, (offset_entries, time_entries) in zip(intervals, entries, strict=True):
        by_interval.append(
            _size(
                interval,
                offset_index.parse(offset_entries, segment.base_offset)["position"],
                len(time_entries) // time_index.ENTRY_SIZE,
                valid_bytes,
                is_active,
            )
        )
    return Sizing(
        0,
        1,
        valid_bytes,
        _as_it_is(segment, valid_bytes),
        tuple(by_interval),
        tuple(BucketSize(counter.bucket_ms, counter.entries) for counter in counters),
    )


def _as_it_is(segment: LogSegment, valid_bytes: int) -> IndexSize:
    """Measure the existing index files; a missing one has no entries."""
    positions, time_entries = np.empty(0, np.int64), 0
    try:
        with OffsetIndex.open(segment.offset_index_path, segment.base_offset) as offsets:
            positions = offsets.entries()["position"]
    except FileNotFoundError:
        pass
    try:
        with TimeIndex.open(segment.time_index_path, segment.base_offset) as times:
            time_entries = times.used_entry_count
    except FileNotFoundError:
        pass
    is_active = segment.next_base_offset is None
    return _size(None, positions, time_entries, valid_bytes, is_active)


def _size(
    interval: int | None,
    positions: NDArray[np.integer],
    time_entries: int,
    valid_bytes: int,
    is_active: bool,
) -> IndexSize:
    """Compute the size of a segment's indexes from the positions in its offset index."""
    inside = positions[(positions > 0) & (positions < valid_bytes)].astype(np.float64)
    gaps = np.diff(np.sort(inside), prepend=0.0, append=float(valid_bytes))
    size = len(positions) * offset_index.ENTRY_SIZE + time_entries * time_index.ENTRY_SIZE
    return IndexSize(
        interval,
        len(positions),
        time_entries,
        0 if is_active else size,
        float((gaps**2).sum() / 2),
        int(gaps.max()),
    )


class _BucketCounter:
    """Counts the entries of a time index with one entry per bucket."""

    def __init__(self, bucket_ms: int) -> None:
        self.bucket_ms = bucket_ms
        self.entries = 0
        self._bucket = -1

    def append(self, max_timestamps: NDArray[np.integer]) -> None:
        """Count the buckets reached by successive batches."""
        buckets = np.maximum.accumulate(np.maximum(max_timestamps // self.bucket_ms, self._bucket))
        self.entries += int(np.count_nonzero(np.diff(buckets, prepend=self._bucket)))
        self._bucket = int(buckets[-1])
