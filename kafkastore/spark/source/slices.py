"""Division of a store into Spark tasks by bytes.

A task costs tens of milliseconds whatever it does. So many small partitions share one task; a large
partition is divided between segments, and a large segment at entries of its offset index. Only
directory listings, file sizes and these indexes are read.
"""
from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

from kafkastore.arguments import INT64_MAX
from kafkastore.errors import CorruptionError
from kafkastore.formats.state.file_names import TopicPartition
from kafkastore.paths import open_path
from kafkastore.segment.index_file import OffsetIndex
from kafkastore.segment.log_segment import LogSegment
from kafkastore.spark.source.options import ReadOptions
from kafkastore.store.partition_log import PartitionLog

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

#: Several tasks for each core, so that a slow one at the end costs little.
TASKS_PER_CORE = 2
# The overhead of a task equals reading tens of MiB.
SMALLEST_TASK_BYTES = 16 << 20
LARGEST_TASK_BYTES = 256 << 20
#: The cost of opening a partition, as bytes that could be read in that time.
OPENING_BYTES = 1 << 20
END = INT64_MAX


@dataclass(frozen=True, slots=True)
class LogSlice:
    """A range of offsets of one partition directory: start inclusive, end exclusive.

    An end of `END` is the end of the log. `bytes` estimates its share of the ``.log`` files;
    `log_end_offset` is the end of the log when this was planned, 0 if unknown.
    """

    path: str
    topic: str
    partition: int
    start_offset: int
    end_offset: int
    bytes: int
    log_end_offset: int = 0

    @property
    def known_end_offset(self) -> int:
        """The end (exclusive) of the records that existed when this was planned."""
        return min(self.end_offset, self.log_end_offset)

    def open_log(self) -> PartitionLog:
        """Open the partition, bounded by the slice and not by a checkpoint."""
        return PartitionLog(open_path(self.path), TopicPartition(self.topic, self.partition))


@dataclass(frozen=True)
class SlicePack(InputPartition):
    """The slices that one task reads, in this order."""

    slices: tuple[LogSlice, ...]


def task_bytes(total_bytes: int, min_tasks: int = 1) -> int:
    """Return how many bytes a task should read, by `TASKS_PER_CORE`.

    The result is within `SMALLEST_TASK_BYTES` and `LARGEST_TASK_BYTES`, or smaller if `min_tasks`
    requires it. `total_bytes` includes `OPENING_BYTES` for each partition.
    """
    share = total_bytes // (TASKS_PER_CORE * (os.cpu_count() or 1))
    size = min(max(share, SMALLEST_TASK_BYTES), LARGEST_TASK_BYTES)
    return max(min(size, total_bytes // min_tasks), 1)


def log_bytes(log: PartitionLog, start_offset: int, end_offset: int) -> int:
    """Return about how many bytes of segments contain a range of offsets."""
    return sum(
        _position(segment, end_offset) - _position(segment, start_offset)
        for segment in log.segments_between(start_offset, end_offset)
    )


def _position(segment: LogSegment, offset: int) -> int:
    """Return the approximate position of an offset in a segment, by its offset index."""
    if offset <= segment.base_offset:
        return 0
    ends = END if segment.next_base_offset is None else segment.next_base_offset
    if offset < ends and (entries := _entries(segment)) is not None:
        slot = int(entries["offset"].searchsorted(offset))
        if slot < len(entries):
            return min(int(entries["position"][slot]), segment.size)
    return segment.size


def _entries(segment: LogSegment) -> NDArray[np.void] | None:
    """Return the entries of an offset index; None if it is missing or corrupt."""
    try:  # not `segment.offset_index`, which stays in memory: 2 MB for a segment of 1 GiB
        with OffsetIndex.open(segment.offset_index_path, segment.base_offset) as index:
            return None if index.first_disorder() >= 0 else index.entries()
    except (FileNotFoundError, CorruptionError):
        return None


def cut(
    log: PartitionLog, start_offset: int, end_offset: int, size: int, log_end_offset: int = 0
) -> Iterator[LogSlice]:
    """Divide a range of a log into slices of at most `size` bytes, without gaps.

    Slices are in offset order. A batch is never divided, nor is a segment whose offset index is
    missing or corrupt. `log_end_offset` is copied to each `LogSlice`.
    """
    start, waiting = start_offset, 0

    def made(end: int, size: int) -> LogSlice:
        return LogSlice(str(log.path), log.topic, log.partition, start, end, size, log_end_offset)

    for segment in log.segments_between(start_offset, end_offset):
        first, last = _position(segment, start_offset), _position(segment, end_offset)
        if waiting and waiting + last - first > size and start < segment.base_offset:
            yield made(segment.base_offset, waiting)
            start, waiting = segment.base_offset, 0
        for offset, position in _places_to_cut(segment, first, last, size):
            if start < offset < end_offset:
                yield made(offset, waiting + position - first)
                start, waiting, first = offset, 0, position
        waiting += max(last - first, 0)
    if start < end_offset:
        yield made(end_offset, waiting)


def _places_to_cut(
    segment: LogSegment, first: int, end: int, size: int
) -> Iterator[tuple[int, int]]:
    """Yield the first offset and the position of each part of a large segment.

    They come from its offset index. A wrong index makes parts uneven but loses no records, because
    a part is read by its offsets.
    """
    parts = (end - first + size // 2) // size
    if parts < 2 or (entries := _entries(segment)) is None:
        return
    ends = END if segment.next_base_offset is None else segment.next_base_offset
    last = segment.base_offset
    for part in range(1, parts):
        slot = int(entries["position"].searchsorted(first + part * (end - first) // parts))
        if slot < len(entries) and last < int(entries["offset"][slot]) < ends:
            last = int(entries["offset"][slot])
            yield last, int(entries["position"][slot])


def at_most(each: LogSlice, most_records: int) -> Iterator[LogSlice]:
    """Divide a slice evenly into parts of at most `most_records` offsets.

    Parts are in offset order. The log end at planning time counts. Source: Spark 4.2
    ``KafkaOffsetRangeCalculator``, for ``maxRecordsPerPartition``.
    """
    count = max(each.known_end_offset - each.start_offset, 0)
    yield from _in_parts(each, -(-count // most_records))


def _in_parts(each: LogSlice, parts: int) -> Iterator[LogSlice]:
    count = max(each.known_end_offset - each.start_offset, 0)
    start = each.start_offset
    for part in range(1, parts):
        end = each.start_offset + part * count // parts
        if end > start:
            yield replace(each, start_offset=start, end_offset=end, bytes=each.bytes // parts)
            start = end
    yield replace(each, start_offset=start, bytes=each.bytes // max(parts, 1))


def spread(slices: Iterable[LogSlice], count: int) -> list[LogSlice]:
    """Divide slices by offsets into about `count`, in the same order without gaps.

    Source: Spark 4.2 ``KafkaOffsetRangeCalculator.getRanges``, for ``minPartitions``.
    """
    given = list(slices)
    offsets = [max(each.known_end_offset - each.start_offset, 0) for each in given]
    total = max(sum(offsets), 1)
    return [
        part
        for each, here in zip(given, offsets, strict=True)
        for part in _in_parts(each, min(-(-here * count // total), here))
    ]


def pack_slices(slices: list[LogSlice], size: int, options: ReadOptions) -> list[SlicePack]:
    """Combine slices as `maxRecordsPerPartition` and `minPartitions` say."""
    most, wanted = options.max_records, options.min_partitions
    if most is not None:
        slices = [part for each in slices for part in at_most(each, most)]
    packs = pack(slices, size, most)
    if len(packs) < wanted and not options.stops_partitions:
        packs = [SlicePack((each,)) for each in spread(slices, wanted)]
    return packs


def pack(
    slices: Iterable[LogSlice], size: int, most_records: int | None = None
) -> list[SlicePack]:
    """Combine successive slices into packs.

    `size` limits the bytes, `OPENING_BYTES` more for each slice; `most_records` limits the offsets.
    """
    return _pack(((each,) for each in slices), size, most_records)


def pack_topics(slices: Iterable[LogSlice], size: int) -> list[SlicePack]:
    """Combine successive slices into packs of whole topics, as `pack` does."""
    return _pack((tuple(each) for _, each in groupby(slices, key=attrgetter("topic"))), size)


def _pack(
    groups: Iterable[tuple[LogSlice, ...]], size: int, most_records: int | None = None
) -> list[SlicePack]:
    """Combine groups of slices that must stay together."""
    packs: list[SlicePack] = []
    waiting: list[LogSlice] = []
    waiting_bytes = waiting_records = 0
    for group in groups:
        weight = sum(each.bytes + OPENING_BYTES for each in group)
        records = sum(max(each.known_end_offset - each.start_offset, 0) for each in group)
        is_full = most_records is not None and waiting_records + records > most_records
        if waiting and (waiting_bytes + weight > size or is_full):
            packs.append(SlicePack(tuple(waiting)))
            waiting, waiting_bytes, waiting_records = [], 0, 0
        waiting += group
        waiting_bytes, waiting_records = waiting_bytes + weight, waiting_records + records
    if waiting:
        packs.append(SlicePack(tuple(waiting)))
    return packs
