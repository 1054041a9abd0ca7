"""A store cut into pieces of work for Spark's tasks, by bytes.

A task costs tens of milliseconds whatever it does, so many small partitions share one; a large
partition is cut between segments, and a large segment at entries of its offset index. Nothing but
directory listings, file sizes and such indexes is read.
"""
from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql.datasource import InputPartition

from kafkastore.errors import CorruptionError
from kafkastore.formats.file_names import TopicPartition
from kafkastore.log.partition_log import PartitionLog
from kafkastore.segment.log_segment import LogSegment

#: Tasks for each core, so that a slow one at the end costs little.
TASKS_PER_CORE = 4
SMALLEST_TASK_BYTES = 4 << 20
LARGEST_TASK_BYTES = 64 << 20
#: What opening a partition costs, as bytes that could be read meanwhile.
OPENING_BYTES = 1 << 18
END = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class LogSlice:
    """A range of offsets of one partition directory.

    Parameters
    ----------
    path, topic, partition : str, str, int
        The partition directory, and what its name says.
    start_offset, end_offset : int
        Inclusive, exclusive; `END`: to the end of the log.
    bytes : int
        About how much of the ``.log`` files that is.
    """

    path: str
    topic: str
    partition: int
    start_offset: int
    end_offset: int
    bytes: int

    @property
    def log(self) -> PartitionLog:
        """The partition, opened; its bounds are those of the slice, not a checkpoint's."""
        return PartitionLog(Path(self.path), TopicPartition(self.topic, self.partition))


@dataclass(frozen=True)
class SlicePack(InputPartition):
    """What one task reads, in this order."""

    slices: tuple[LogSlice, ...]


def task_bytes(total_bytes: int, min_tasks: int = 1) -> int:
    """Return how many bytes a task should read.

    Parameters
    ----------
    total_bytes : int
        Of everything to read, `OPENING_BYTES` for each partition included.
    min_tasks : int
        How many tasks there should be at least.

    Returns
    -------
    int
        A share that gives this machine's cores `TASKS_PER_CORE` tasks each, within
        `SMALLEST_TASK_BYTES` and `LARGEST_TASK_BYTES`; less where `min_tasks` asks for it.
    """
    share = total_bytes // (TASKS_PER_CORE * (os.cpu_count() or 1))
    size = min(max(share, SMALLEST_TASK_BYTES), LARGEST_TASK_BYTES)
    return max(min(size, total_bytes // min_tasks), 1)


def log_bytes(log: PartitionLog, start_offset: int, end_offset: int) -> int:
    """Return the size of the segments that may hold a range of offsets."""
    return sum(segment.size for segment in log.segments_between(start_offset, end_offset))


def cut(log: PartitionLog, start_offset: int, end_offset: int, size: int) -> Iterator[LogSlice]:
    """Cut a range of a log into slices.

    Parameters
    ----------
    log : PartitionLog
        The partition.
    start_offset, end_offset : int
        Inclusive, exclusive.
    size : int
        Bytes that a slice should have at most; a batch is never parted, nor a segment
        whose offset index is missing or broken.

    Yields
    ------
    LogSlice
        In the order of offsets, without gap or overlap.
    """
    start, waiting = start_offset, 0
    for segment in log.segments_between(start_offset, end_offset):
        if waiting and waiting + segment.size > size:
            yield _slice(log, start, segment.base_offset, waiting)
            start, waiting = segment.base_offset, 0
        position = 0
        for offset, entry_position in _places_to_cut(segment, size):
            if start < offset < end_offset:
                yield _slice(log, start, offset, waiting + entry_position - position)
                start, waiting = offset, 0
            position = entry_position
        waiting += segment.size - position
    if start < end_offset:
        yield _slice(log, start, end_offset, waiting)


def _slice(log: PartitionLog, start_offset: int, end_offset: int, size: int) -> LogSlice:
    return LogSlice(str(log.path), log.topic, log.partition, start_offset, end_offset, size)


def _places_to_cut(segment: LogSegment, size: int) -> Iterator[tuple[int, int]]:
    """Yield first offsets and byte positions of parts of a large segment.

    They are as good as its offset index. A wrong one makes parts uneven and loses nothing, for a
    part is read by its offsets.
    """
    if segment.size < 2 * size:
        return
    try:
        index = segment.offset_index
        if index is None or index.first_disorder() >= 0:
            return
        entries = index.entries()
    except CorruptionError:
        return
    ends = END if segment.next_base_offset is None else segment.next_base_offset
    parts = segment.size // size
    last = segment.base_offset
    for part in range(1, parts):
        slot = int(entries["position"].searchsorted(part * segment.size // parts))
        if slot < len(entries) and last < int(entries["offset"][slot]) < ends:
            last = int(entries["offset"][slot])
            yield last, int(entries["position"][slot])


def pack(slices: Iterable[LogSlice], size: int) -> list[SlicePack]:
    """Put successive slices together.

    Parameters
    ----------
    slices : iterable of LogSlice
    size : int
        Bytes that a pack should have at most, `OPENING_BYTES` counted for each slice.

    Returns
    -------
    list of SlicePack
        All slices, in their order.
    """
    packs: list[SlicePack] = []
    waiting: list[LogSlice] = []
    waiting_bytes = 0
    for each in slices:
        weight = each.bytes + OPENING_BYTES
        if waiting and waiting_bytes + weight > size:
            packs.append(SlicePack(tuple(waiting)))
            waiting, waiting_bytes = [], 0
        waiting.append(each)
        waiting_bytes += weight
    if waiting:
        packs.append(SlicePack(tuple(waiting)))
    return packs
