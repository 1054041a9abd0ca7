"""What the tasks of a stream do: slices of logs, and whether the logs were still those planned for.

Between planning and reading a log may be cut, written anew, or deleted. So a task looks at each log
once more when it has read: what was there then, was there before.
"""
from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from kafkastore.errors import CorruptionError, NotALogDirectoryError, SegmentGoneError
from kafkastore.formats.file_names import TopicPartition
from kafkastore.log.log_dir import LogDir
from kafkastore.spark.source.filters import Limits
from kafkastore.spark.source.options import ReadOptions
from kafkastore.spark.source.planning import LOG
from kafkastore.spark.source.slice_reading import DataLossError, read_slices
from kafkastore.spark.source.slices import (
    END,
    OPENING_BYTES,
    LogSlice,
    SlicePack,
    at_most,
    cut,
    pack,
    spread,
    task_bytes,
)
from kafkastore.spark.source.streaming.growing_logs import BatchMark, find_loss, look
from kafkastore.store.partition_log import PartitionLog


class RangeEnd(NamedTuple):
    """Where the range ends that slices are part of, to see behind a read that it was still there.

    Attributes
    ----------
    offset : int
        Exclusive.
    mark : BatchMark or None
        Of the batch before.
    in_log_dir : bool
        Whether the partition lies in a log directory, with its checkpoints.
    """

    offset: int
    mark: BatchMark | None
    in_log_dir: bool


@dataclass(frozen=True)
class StreamPack(SlicePack):
    """What one task of a stream reads, and the end of each range by partition directory."""

    ends: dict[str, RangeEnd]


def plan_tasks(
    ranges: Sequence[tuple[PartitionLog, int, int]],
    marks: Mapping[TopicPartition, BatchMark],
    options: ReadOptions,
) -> list[StreamPack]:
    """Cut ranges of offsets into pieces of work.

    Parameters
    ----------
    ranges : sequence of (PartitionLog, int, int)
        Logs, and what to read of each: start inclusive, end exclusive.
    marks : mapping of TopicPartition to BatchMark
        Of the batches before the ends.
    options : ReadOptions
        Of the stream.

    Returns
    -------
    list of StreamPack
    """
    weights = [each[0].beside_changes(partial(_bytes_between, *each)) for each in ranges]
    total, wanted = sum(weights), options.min_partitions
    size = task_bytes(total + OPENING_BYTES * len(ranges), wanted)
    largest = END if options.stops_partitions else max(min(size, total // wanted), 1)
    slices: list[LogSlice] = []
    for (log, begin, stop), weight in zip(ranges, weights, strict=True):
        if weight > largest:
            slices += log.beside_changes(partial(_cut, log, begin, stop, largest))
        else:
            where = str(log.path), log.topic, log.partition
            slices.append(LogSlice(*where, begin, stop, weight, stop))
    if options.max_records is not None:
        slices = [part for each in slices for part in at_most(each, options.max_records)]
    packs = pack(slices, size, options.max_records)
    if len(packs) < wanted and not options.stops_partitions:
        packs = [SlicePack((each,)) for each in spread(slices, wanted)]
    ends = {
        str(log.path): RangeEnd(stop, marks.get(log.topic_partition), log.log_dir is not None)
        for log, _, stop in ranges
    }
    return [
        StreamPack(each.slices, {one.path: ends[one.path] for one in each.slices})
        for each in packs
    ]


def read_task(
    task: StreamPack, columns: Sequence[str], options: ReadOptions
) -> Iterator[pa.RecordBatch]:
    """Read what one task reads, then see whether all of it was there.

    Parameters
    ----------
    task : StreamPack
        As planned.
    columns : sequence of str
        The columns to yield, in order.
    options : ReadOptions
        Of the stream.

    Yields
    ------
    pyarrow.RecordBatch

    Raises
    ------
    DataLossError
        If records are gone or others, unless `failOnDataLoss` is false.
    CorruptionError
        At a broken batch, unless `failOnDataLoss` is false.
    """
    try:
        yield from read_slices(task.slices, columns, options, Limits(), are_decided=True)
    except NotALogDirectoryError as error:
        report([str(error)], options)
    except (CorruptionError, DataLossError, SegmentGoneError):
        report(_losses(task), options)  # more is known of a range than of a slice
        raise
    report(_losses(task), options)


def report(sentences: Iterable[str], options: ReadOptions) -> None:
    """Fail for what is lost, or warn, as `failOnDataLoss` says.

    Parameters
    ----------
    sentences : iterable of str
        What is lost; may be empty.
    options : ReadOptions
        Of the stream.

    Raises
    ------
    DataLossError
        If it is true and something is lost.
    """
    lost = list(sentences)
    if lost and options.fail_on_data_loss:
        raise DataLossError(
            f"{'; '.join(lost)}. Records may have been missed; to go on with what is there, "
            f"set failOnDataLoss to false"
        )
    for sentence in lost:
        LOG.warning("%s; going on, for failOnDataLoss is false", sentence)


def _losses(task: StreamPack) -> Iterator[str]:
    """Tell what may have been missing from what a task has read."""
    firsts: dict[str, LogSlice] = {}
    for each in task.slices:  # in the order of offsets
        firsts.setdefault(each.path, each)
    log_dirs: dict[Path, LogDir] = {}  # each checkpoint has a line for every partition: read once
    for path, each in firsts.items():
        end, log = task.ends[path], each.log
        which = log.topic_partition
        if end.in_log_dir:
            log_dir = log_dirs.setdefault(log.path.parent, LogDir(log.path.parent))
            log = PartitionLog(log.path, which, log_dir)
        try:
            now = look(log)
            first = log.segments[0].base_offset if log.segments else now.end_offset
            loss = find_loss(log, now, end.offset, end.mark)
        except NotALogDirectoryError as error:
            yield str(error)
            continue
        if first > each.start_offset:
            yield (
                f"{which} begins at offset {first}, and was to be read from {each.start_offset}: "
                f"retention has deleted what is between"
            )
        elif loss is not None:
            yield loss.sentence


def _cut(log: PartitionLog, start_offset: int, end_offset: int, size: int) -> list[LogSlice]:
    return list(cut(log, start_offset, end_offset, size, end_offset))


def _bytes_between(log: PartitionLog, start_offset: int, end_offset: int) -> int:
    """Estimate the bytes of a range: of each segment in proportion to its offsets."""
    total = 0
    for segment in log.segments_between(start_offset, end_offset):
        stop = segment.next_base_offset
        if stop is None:
            stop = max(end_offset, segment.base_offset + 1)
        first, last = max(start_offset, segment.base_offset), min(end_offset, stop)
        total += segment.size * max(last - first, 0) // max(stop - segment.base_offset, 1)
    return total
