"""Tasks of a stream, which check that the logs they read did not change.

Between planning and reading, a log may be truncated, written again or deleted. So a task inspects
each log again after reading: records that exist then existed before.
"""
from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from kafkastore.errors import CorruptionError, NotALogDirectoryError, SegmentGoneError
from kafkastore.formats.state.file_names import TopicPartition
from kafkastore.log.log_dir import LogDir
from kafkastore.spark.source.filters import Limits
from kafkastore.spark.source.options import ReadOptions
from kafkastore.spark.source.planning import LOG
from kafkastore.spark.source.slice_reading import read_slices
from kafkastore.spark.source.slices import (
    END,
    OPENING_BYTES,
    LogSlice,
    SlicePack,
    cut,
    pack_slices,
    task_bytes,
)
from kafkastore.store.data_loss import DataLossError, Loss, LossKind
from kafkastore.store.growing_logs import (
    BatchMark,
    deleted,
    find_loss,
    inspect_log,
)
from kafkastore.store.partition_log import PartitionLog


class RangeEnd(NamedTuple):
    """The end (exclusive) of the range that slices belong to, checked after reading.

    `mark` is the batch before it; `in_log_dir` says whether the partition is in a log directory,
    which has checkpoints.
    """

    offset: int
    mark: BatchMark | None
    in_log_dir: bool


@dataclass(frozen=True)
class StreamPack(SlicePack):
    """A stream task's slices, and the ends of its ranges by partition directory."""

    ends: dict[str, RangeEnd]


def plan_tasks(
    ranges: Sequence[tuple[PartitionLog, int, int]],
    marks: Mapping[TopicPartition, BatchMark],
    options: ReadOptions,
) -> list[StreamPack]:
    """Divide ranges (log, start inclusive, end exclusive) into tasks.

    `marks` are the batches before the ends.
    """
    weights = [each[0].retry_if_changed(partial(_bytes_between, *each)) for each in ranges]
    total, wanted = sum(weights), options.min_partitions
    size = task_bytes(total + OPENING_BYTES * len(ranges), wanted)
    largest = END if options.stops_partitions else max(min(size, total // wanted), 1)
    slices: list[LogSlice] = []
    for (log, begin, stop), weight in zip(ranges, weights, strict=True):
        if weight > largest:
            slices += log.retry_if_changed(partial(_cut, log, begin, stop, largest))
        else:
            where = str(log.path), log.topic, log.partition
            slices.append(LogSlice(*where, begin, stop, weight, stop))
    ends = {
        str(log.path): RangeEnd(stop, marks.get(log.topic_partition), log.log_dir is not None)
        for log, _, stop in ranges
    }
    return [
        StreamPack(each.slices, {one.path: ends[one.path] for one in each.slices})
        for each in pack_slices(slices, size, options)
    ]


def read_task(
    task: StreamPack, columns: Sequence[str], options: ReadOptions
) -> Iterator[pa.RecordBatch]:
    """Yield the records of one task, then check that all of them existed.

    Raises `DataLossError` if records are lost or replaced, and `CorruptionError` at a corrupt
    batch, unless `failOnDataLoss` is false.
    """
    try:
        yield from read_slices(task.slices, columns, options, Limits(), are_decided=True)
    except (CorruptionError, DataLossError, NotALogDirectoryError, SegmentGoneError):
        report(_losses(task), options)  # a range gives a more exact reason than a slice
        raise
    report(_losses(task), options)


def report(losses: Iterable[Loss], options: ReadOptions) -> None:
    """Raise `DataLossError`, or log a warning if `failOnDataLoss` is false."""
    lost = list(losses)
    if lost and options.fail_on_data_loss:
        raise DataLossError(
            ". Records may have been missed; to continue with the existing records, set "
            "failOnDataLoss to false",
            *lost,
        )
    for loss in lost:
        LOG.warning("%s; continuing because failOnDataLoss is false", loss)


def _losses(task: StreamPack) -> Iterator[Loss]:
    """Yield each loss that may affect the records that a task has read."""
    firsts: dict[str, LogSlice] = {}
    for each in task.slices:  # in the order of offsets
        firsts.setdefault(each.path, each)
    log_dirs: dict[Path, LogDir] = {}  # each checkpoint has a line for every partition: read once
    for path, each in firsts.items():
        end, log = task.ends[path], each.open_log()
        which = log.topic_partition
        if end.in_log_dir:
            log_dir = log_dirs.setdefault(log.path.parent, LogDir(log.path.parent))
            log = PartitionLog(log.path, which, log_dir)
        try:
            now = inspect_log(log)
            first = log.segments[0].base_offset if log.segments else now.end_offset
            loss = find_loss(log, now, end.offset, end.mark)
        except NotALogDirectoryError as error:
            yield Loss(LossKind.GONE, which, end.offset, str(error))
            continue
        if first > each.start_offset:
            yield deleted(which, first, f"was to be read from {each.start_offset}")
        elif loss is not None:
            yield loss


def _cut(log: PartitionLog, start_offset: int, end_offset: int, size: int) -> list[LogSlice]:
    return list(cut(log, start_offset, end_offset, size, end_offset))


def _bytes_between(log: PartitionLog, start_offset: int, end_offset: int) -> int:
    """Estimate the bytes of a range: for each segment in proportion to its offsets."""
    total = 0
    for segment in log.segments_between(start_offset, end_offset):
        stop = segment.next_base_offset
        if stop is None:
            stop = max(end_offset, segment.base_offset + 1)
        first, last = max(start_offset, segment.base_offset), min(end_offset, stop)
        total += segment.size * max(last - first, 0) // max(stop - segment.base_offset, 1)
    return total
