"""Plan of a read: partitions and offsets by options and pushed filters.

Options are exact, as in the Kafka source; filters only reduce the work. If time indexes are
trusted, planning finds the first offset in a segment that can reach a filter's start time, as
lookups do; otherwise each task checks the headers of whole segments. No index gives a minimum
timestamp, so only the batches themselves show which records are past a filter's end time.
"""
from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from kafkastore.formats.state.file_names import TopicPartition
from kafkastore.log.range_scan import first_offset_since
from kafkastore.log.timestamp_warnings import find_timestamp_warning
from kafkastore.segment.index_trust import Indexes
from kafkastore.segment.log_segment import LogSegment
from kafkastore.spark.source.filters import Limits
from kafkastore.spark.source.options import OptionError, OptionProblem, ReadOptions
from kafkastore.spark.source.selection import EARLIEST, LATEST, Bound
from kafkastore.spark.source.slices import (
    END,
    OPENING_BYTES,
    LogSlice,
    SlicePack,
    cut,
    log_bytes,
    pack_slices,
    pack_topics,
    task_bytes,
)
from kafkastore.store.log_store import LogStore, open_store
from kafkastore.store.partition_log import PartitionLog

LOG = logging.getLogger("kafkastore.spark")
#: Set in Spark's workers if Spark collects their logs.
GATHERED = "PYSPARK_SPARK_SESSION_UUID"


def warn(path: str | Path, what: object) -> None:
    """Log a warning about a file or a partition."""
    LOG.warning("%s: %s", path, what)


class Range(NamedTuple):
    """Offsets of one partition to read: start inclusive, end exclusive.

    `END` means the end of the log when it is read; `log_end_offset` is its end at planning time.
    """

    log: PartitionLog
    start_offset: int
    end_offset: int
    log_end_offset: int

    def log_bytes(self) -> int:
        """Return about how many bytes of segments contain the range."""
        return log_bytes(self.log, self.start_offset, self.end_offset)


def plan(options: ReadOptions, limits: Limits) -> list[SlicePack]:
    """Divide the requested records into tasks.

    The tasks read every requested record, and few others. Raises `OptionError` if a partition or an
    offset that the options name does not exist.
    """
    warn_of_doubtful_units(options)
    store = open_store(list(options.paths))
    asked = chosen(store, options)
    passing = [each for each in asked if limits.include(each)]
    ranges = [
        narrowed
        for each in passing
        for narrowed in _narrowed(_range(store.partitions[each], options), limits, options.indexes)
    ]
    total = sum(each.log.retry_if_changed(each.log_bytes) for each in ranges)
    size = task_bytes(total + OPENING_BYTES * len(ranges), options.min_partitions)
    largest = max(min(size, total // options.min_partitions), 1)
    # Each slice has to find the aborted transactions, perhaps by reading the whole log; and nothing
    # after corrupt bytes may be read, however many cores there are.
    if options.isolation == "read_committed" or options.stops_partitions:
        largest = END
    slices = [part for each in ranges for part in _cut(each, largest)]
    is_by_topic = options.latest_of == "topic"
    packs = pack_topics(slices, size) if is_by_topic else pack_slices(slices, size, options)
    if GATHERED in os.environ:
        LOG.setLevel(logging.INFO)
    if LOG.isEnabledFor(logging.INFO):
        LOG.info(_describe_read(store, asked, ranges, len(packs)))
    return packs


def warn_of_doubtful_units(options: ReadOptions) -> None:
    """Warn of times that look like another unit than ms; they are still read as ms."""
    for bound in (options.start, options.end):
        numbers = {bound.everywhere, *bound.each.values()} if bound.by_timestamp else ()
        for number in numbers:
            unit = None if number is None else find_timestamp_warning(number, now=number)
            if unit is not None:
                LOG.warning(
                    "option %s: %d is taken as ms since 1970, and looks like %s",
                    bound.option, number, unit.value,
                )


def chosen(store: LogStore, options: ReadOptions) -> list[TopicPartition]:
    """Return the chosen partitions.

    Raises `OptionError` if one does not exist (one of `assign` is skipped if `failOnDataLoss` is
    false), or if an option names a partition that is not read.
    """
    selection = options.selection
    there = ", ".join(sorted({each.topic for each in store.partitions})) or "no topics"
    where = " and ".join(options.paths)
    for topic in sorted(selection.topics or ()):
        if not any(each.topic == topic for each in store.partitions):
            raise OptionError(
                f"option subscribe: no topic {topic} in {where}; there are {there}",
                OptionProblem.NOT_FOUND, "subscribe",
            )
    missing = sorted((selection.assigned or frozenset()).difference(store.partitions))
    if missing and options.fail_on_data_loss:
        raise OptionError(
            f"option assign: no partition {missing[0]} in {where}; to read the existing "
            "partitions, set failOnDataLoss to false",
            OptionProblem.NOT_FOUND, "assign",
        )
    for topic_partition in missing:
        LOG.warning(
            "option assign: no partition %s in %s; skipped because failOnDataLoss is false",
            topic_partition, where,
        )
    found = [each for each in store.partitions if selection.includes(each)]
    for bound in (options.start, options.end):
        if more := sorted(set(bound.each).difference(found, missing)):
            raise OptionError(
                f"option {bound.option} names {more[0]}, which is not among the partitions read",
                OptionProblem.NOT_FOUND, bound.option,
            )
    return found


def starting_offset(log: PartitionLog, options: ReadOptions) -> int:
    """Return the first offset to read, or `END` to read nothing that exists now.

    Raises `OptionError` if there is no such offset, or it is not in the log.
    """
    start = _offset(log, options.start, options)
    if start is None:
        if not options.latest_without_match:
            raise OptionError(
                f"option {options.start.option}: no record of {log.topic_partition} is at or after "
                f"{options.start.of(log.topic_partition)}; to read nothing of such partitions, set "
                f"startingOffsetsByTimestampStrategy to latest",
                OptionProblem.NOT_FOUND, options.start.option,
            )
        return END
    if start != END and start != log.log_start_offset:
        _check_is_there(log, options.start, start, options)
    return max(start, log.log_start_offset)


def _range(log: PartitionLog, options: ReadOptions) -> Range:
    """Find the start (inclusive) and the end (exclusive) of a partition."""
    start, end = starting_offset(log, options), _offset(log, options.end, options)
    if end is None:
        end = END
    elif end > log.log_start_offset and end != END:
        _check_is_there(log, options.end, end, options)
    # Corrupt bytes are reported by the tasks that read there.
    return Range(log, start, end, log.end_offset(options.on_corrupt, skipped=[]))


def _offset(log: PartitionLog, bound: Bound, options: ReadOptions) -> int | None:
    """Return the offset that a bound means; None for a time after the last record."""
    number = bound.of(log.topic_partition)
    if bound.by_timestamp:
        found = log.list_offset(
            number,
            options.rules,
            options.isolation,
            indexes=options.indexes,
            on_corrupt=options.on_corrupt,
            skipped=[],
        )
        return None if found is None else found.offset
    return {EARLIEST: log.log_start_offset, LATEST: END}.get(number, number)


def _check_is_there(log: PartitionLog, bound: Bound, offset: int, options: ReadOptions) -> None:
    """Raise an error if a named offset is not in the log.

    The Kafka source does so in its tasks.
    """
    if bound.by_timestamp or not options.fail_on_data_loss:
        return
    # Past corrupt bytes, the last stable offset may be unknown: the tasks find how far it is.
    committed = options.isolation == "read_committed" and options.on_corrupt == "raise"
    latest = log.last_stable_offset if committed else log.end_offset(options.on_corrupt, [])
    if not log.log_start_offset <= offset <= latest:
        raise OptionError(
            f"option {bound.option}: {log.topic_partition} has offsets {log.log_start_offset} to "
            f"{latest}{' that are decided' if committed else ''}, not {offset}; to read the "
            f"existing records, set failOnDataLoss to false",
            OptionProblem.NOT_FOUND, bound.option,
        )


def _cut(each: Range, largest: int) -> list[LogSlice]:
    """Divide a range into slices; tasks report records deleted meanwhile."""
    return each.log.retry_if_changed(
        lambda: list(
            cut(each.log, each.start_offset, each.end_offset, largest, each.log_end_offset)
        )
    )


def _narrowed(asked: Range, limits: Limits, indexes: Indexes) -> Iterator[Range]:
    """Yield the parts of a range that filters do not exclude."""
    start, end = asked.start_offset, asked.end_offset
    if limits.start_offset is not None:
        start = max(start, limits.start_offset)
    if limits.end_offset is not None:
        end = min(end, limits.end_offset)
    if start >= end:
        return
    since, until = limits.start_timestamp, limits.end_timestamp
    if since is not None and until is not None and since >= until:
        return
    parts = [(start, end)]
    # The timestamp of a record without one is -1.
    if indexes == "trust" and since is not None and since >= 0:
        parts = asked.log.retry_if_changed(lambda: list(_since(asked.log, start, end, since)))
    for part in parts:
        yield asked._replace(start_offset=part[0], end_offset=part[1])


def _since(log: PartitionLog, start: int, end: int, since: int) -> Iterator[tuple[int, int]]:
    """Yield ranges of offsets that together contain every record at or after a time."""
    begun = None
    for segment in log.segments_between(start, end):
        first = first_offset_since(segment, since, start)
        if begun is not None and (first is None or _is_far(segment, first)):
            yield begun, segment.base_offset
            begun = None
        if begun is None and first is not None and first < end:
            begun = first
    if begun is not None:
        yield begun, end


def _is_far(segment: LogSegment, offset: int) -> bool:
    """Return whether skipping a segment's start saves more than a second open costs."""
    last = segment.next_base_offset or segment.next_offset
    count = max(last - segment.base_offset, 1)
    return segment.size * (offset - segment.base_offset) // count > OPENING_BYTES


def _describe_read(
    store: LogStore, asked: list[TopicPartition], ranges: list[Range], task_count: int
) -> str:
    """Return a description of what is read and what is skipped."""
    logs = {each.log.topic_partition: each.log for each in ranges}
    all_logs = [logs.get(each) or store.partitions[each] for each in asked]
    segments = {segment.log_path: segment.size for log in all_logs for segment in log.segments}
    read = {
        segment.log_path
        for each in ranges
        for segment in each.log.segments_between(each.start_offset, each.end_offset)
    }
    size = sum(each.log_bytes() for each in ranges)
    return (
        f"reads {len(logs)} of {len(asked)} partitions, {len(read)} of {len(segments)} segments, "
        f"{size:,} of {sum(segments.values()):,} bytes, in {task_count} tasks"
    )
