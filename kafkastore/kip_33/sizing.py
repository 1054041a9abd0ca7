"""How large indexes are, and what a lookup costs: by interval as shipped, by bucket as dropped.

The first drafts of KIP-33 had an index entry for each second or minute of time, whatever lay in it;
what was accepted, and shipped, has one for so many bytes of log.
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
from kafkastore.formats.index_builder import IndexBuilder
from kafkastore.formats.index_growth import preallocated_size
from kafkastore.formats.indexes import offset_index, time_index
from kafkastore.segment.index_file import OffsetIndex, TimeIndex
from kafkastore.segment.log_segment import LogSegment
from kafkastore.store.partition_log import PartitionLog

#: ``index.interval.bytes``: Kafka's default, and some beside it.
INTERVALS = (1024, 4096, 16_384, 65_536)
SECOND_MS = 1000
MINUTE_MS = 60_000
BUCKETS_MS = (SECOND_MS, MINUTE_MS)
#: Of KIP-33's table.
PARTITIONS = 3500
#: Kafka's default of ``segment.bytes`` and of ``segment.index.bytes``.
SEGMENT_BYTES = 1 << 30
SEGMENT_INDEX_BYTES = 10 << 20

_DAY_MS = 86_400_000


@dataclass(frozen=True)
class IndexSize:
    """Both indexes of all segments, at one density.

    Parameters
    ----------
    index_interval_bytes : int or None
        Bytes of log between entries; None: the indexes as they are.
    offset_entries, time_entries : int
        Without zero padding.
    inactive_bytes : int
        Bytes of both indexes of all segments but the active ones.
    scanned_bytes : float
        Sum over all bytes of log of those before it that a lookup passes over, in bytes squared.
    largest_scan_bytes : int
        Most bytes that a lookup passes over.
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
    """The time indexes of all segments, with an entry for each bucket of time.

    Parameters
    ----------
    bucket_ms : int
        How long a bucket is.
    entries : int
        One for each bucket that the largest timestamp so far has reached.
    """

    bucket_ms: int
    entries: int = 0

    @property
    def bytes(self) -> int:
        """Bytes of the entries: timestamp and relative offset."""
        return self.entries * time_index.ENTRY_SIZE

    def __add__(self, other: Self) -> Self:
        return type(self)(self.bucket_ms, self.entries + other.entries)


@dataclass(frozen=True)
class Sizing:
    """What the indexes of partitions take.

    Parameters
    ----------
    partitions, segments : int
        How many.
    log_bytes : int
        Bytes of whole batches in their ``.log`` files.
    as_it_is : IndexSize or None
        The index files that are there; None where there is no directory.
    by_interval : tuple of IndexSize
        One for each interval asked for.
    by_bucket : tuple of BucketSize
        One for each bucket asked for.
    """

    partitions: int
    segments: int
    log_bytes: int
    as_it_is: IndexSize | None
    by_interval: tuple[IndexSize, ...]
    by_bucket: tuple[BucketSize, ...]

    def mean_scan_bytes(self, size: IndexSize) -> float:
        """Return the bytes that a lookup passes over before it has its batch, on average.

        Parameters
        ----------
        size : IndexSize
            One of this object's.

        Returns
        -------
        float
            For a target anywhere in the log: half the distance of entries, if that is even.
        """
        return size.scanned_bytes / self.log_bytes if self.log_bytes else 0.0

    def mapped_bytes(self, size: IndexSize, segment_index_bytes: int = SEGMENT_INDEX_BYTES) -> int:
        """Return the bytes of address space a running broker maps for indexes.

        Parameters
        ----------
        size : IndexSize
            One of this object's.
        segment_index_bytes : int
            ``segment.index.bytes``: an active segment's indexes have their full size, mostly hole.

        Returns
        -------
        int
            Brokers since 2.3.0 (KAFKA-7283) map the indexes of an old segment when they need them;
            this is when all are.
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
    """Add sizings up.

    Parameters
    ----------
    sizings : iterable of Sizing
        Of these intervals and buckets.
    intervals, buckets_ms : sequence of int
        As for `sizing`.

    Returns
    -------
    Sizing
    """
    nothing = Sizing(0, 0, 0, IndexSize(None), *_rows(intervals, buckets_ms))
    return reduce(add, sizings, nothing)


def _rows(
    intervals: Sequence[int], buckets_ms: Sequence[int]
) -> tuple[tuple[IndexSize, ...], tuple[BucketSize, ...]]:
    return tuple(map(IndexSize, intervals)), tuple(map(BucketSize, buckets_ms))


def sizing_by_formula(
    intervals: Sequence[int], buckets_ms: Sequence[int], partitions: int
) -> Sizing:
    """Size a broker whose entries come at even distances."""
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
    """Tell what the indexes of one partition take; the headers of all its batches are read.

    Parameters
    ----------
    log : PartitionLog
        The partition.
    intervals, buckets_ms : sequence of int
        As for `sizing`.

    Returns
    -------
    Sizing
        Entries are those of an index that is rebuilt: a broker counts the batches of one produce
        request, or of a follower's fetch, as one.

    Raises
    ------
    CorruptionError
        Where a log breaks its format; checksums are not computed.
    """
    found = log.beside_changes(
        lambda: [_measured(segment, intervals, buckets_ms) for segment in log.segments]
    )
    nothing = Sizing(1, 0, 0, IndexSize(None), *_rows(intervals, buckets_ms))
    return reduce(add, found, nothing)


def _measured(
    segment: LogSegment, intervals: Sequence[int], buckets_ms: Sequence[int]
) -> Sizing:
    """Read a segment's headers once, for all densities."""
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
    """Size the index files that are there; a missing one has no entries."""
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
    """Size the indexes of a segment whose offset index leads to these positions."""
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
    """Counts the entries of a time index by buckets."""

    def __init__(self, bucket_ms: int) -> None:
        self.bucket_ms = bucket_ms
        self.entries = 0
        self._bucket = -1

    def append(self, max_timestamps: NDArray[np.integer]) -> None:
        """Look at the timestamps of successive batches."""
        buckets = np.maximum.accumulate(np.maximum(max_timestamps // self.bucket_ms, self._bucket))
        self.entries += int(np.count_nonzero(np.diff(buckets, prepend=self._bucket)))
        self._bucket = int(buckets[-1])
