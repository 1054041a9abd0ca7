"""Read a partition's records into columns, by one thread or several.

The rows are buffers in Arrow's layout, without Arrow; `log.records_as_arrow` makes Arrow record
batches of them.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

from kafkastore.arguments import (
    INT64_MAX,
    INT64_MIN,
    check_collection,
    thread_count,
    timestamp_ms,
    whole_number,
)
from kafkastore.errors import CorruptionError, SegmentGoneError
from kafkastore.formats.primitives.record_buffers import RecordBuffers
from kafkastore.formats.records.decompression import MAX_DECOMPRESSED_BYTES
from kafkastore.formats.records.record_columns import (
    BATCH_BYTES,
    BATCH_ROWS,
    RecordColumns,
)
from kafkastore.log.damage import CorruptionHandler, OnCorrupt, SkippedBytes, check_on_corrupt
from kafkastore.log.isolation import Isolation, find_aborted, find_committed, reads_committed
from kafkastore.log.log_view import LogView
from kafkastore.log.parallel.piece_reading import LogReading, read_parallel
from kafkastore.log.range_scan import SMALL_RANGE, RangeScan, first_offset_since
from kafkastore.segment.index_trust import DEFAULT_INDEXES, Indexes, check_indexes

if TYPE_CHECKING:
    from kafkastore.formats.state.aborted_batches import AbortedBatches
    from kafkastore.segment.log_segment import LogSegment

RowsT = TypeVar("RowsT", bound=Any)

#: A limit of fewer rows is read by one thread: others would read more than it.
MANY_ROWS = 1_000_000
#: The smallest value of each number among `ArrowOptions`.
_WHOLE_NUMBERS = {
    "start_offset": INT64_MIN,
    "end_offset": INT64_MIN,
    "known_end_offset": INT64_MIN,
    "limit": 0,
    "batch_rows": 1,
    "batch_bytes": 1,
    "max_decompressed_bytes": 0,
}
#: The times among them, which become ms since 1970.
_TIMESTAMPS = ("start_timestamp", "end_timestamp")
#: Those that are never None.
_NEEDED = ("batch_rows", "batch_bytes", "max_decompressed_bytes")


@dataclass(frozen=True, eq=False, kw_only=True)
class RecordOptions:
    """Which records to read, and how: arguments of `PartitionLog.to_arrow`, checked.

    By these options rows are read as `RecordBuffers`, without the columns that all rows of a log
    have in common.
    """

    columns: Sequence[str] | None = None
    start_offset: int | None = None
    end_offset: int | None = None
    start_timestamp: int | datetime | None = None
    end_timestamp: int | datetime | None = None
    limit: int | None = None
    include_control: bool = False
    isolation: Isolation = "read_uncommitted"
    is_decided: bool = False
    batch_rows: int = BATCH_ROWS
    batch_bytes: int = BATCH_BYTES
    verify: bool = True
    max_decompressed_bytes: int = MAX_DECOMPRESSED_BYTES
    on_corrupt: OnCorrupt = "raise"
    skipped: list[SkippedBytes] | None = None
    known_end_offset: int | None = None
    indexes: Indexes = DEFAULT_INDEXES
    threads: int | None = None

    def __post_init__(self) -> None:
        thread_count(self.threads)
        for name, smallest in _WHOLE_NUMBERS.items():
            if getattr(self, name) is not None or name in _NEEDED:
                object.__setattr__(self, name, whole_number(name, getattr(self, name), smallest))
        for name in _TIMESTAMPS:
            if (time := getattr(self, name)) is not None:
                object.__setattr__(self, name, timestamp_ms(name, time))
        check_on_corrupt(self.on_corrupt, self.skipped)
        reads_committed(self.isolation)
        check_indexes(self.indexes)
        if self.columns is not None:
            check_collection("columns", self.columns)
            object.__setattr__(self, "columns", tuple(self.columns))

    @property
    def has_few_offsets(self) -> bool:
        """Whether the range of offsets is so small that threads would read more than it."""
        start, end = self.start_offset, self.end_offset
        return start is not None and end is not None and end - start < SMALL_RANGE

    @property
    def in_millis(self) -> bool:
        """Whether timestamps are in ms, and none is null."""
        return True

    @property
    def has_views(self) -> bool:
        """Whether keys and values are views of the bytes of a mapped file."""
        return False

    @property
    def names(self) -> Sequence[str]:
        """The columns to decode."""
        return self.columns or ()

    def taker(self, _: LogView) -> Callable[[RecordColumns], list[Any]]:
        """Return what makes rows of columns."""
        return partial(_take, self.batch_rows)


def read(log: LogView, options: RecordOptions) -> Iterator[Any]:
    """Read a log into rows of the options' kind.

    Nothing is read before the first batch is asked for.
    """
    reading = _open(log, options)
    limit, threads = options.limit, thread_count(options.threads)
    if threads == 1 or reading.is_small or _is_small(limit):
        batches = reading.in_order()
    else:
        batches = read_parallel([reading], threads, partial(_columns, options))
    yield from batches if limit is None else first_rows(batches, limit)


def read_many(logs: Iterable[LogView], options: RecordOptions) -> Iterator[Any]:
    """Read several logs, one after the other.

    Each log is taken from `logs` when a thread is free for it, a few before their rows are. The
    limit is that of all of them. An error in one log is raised after the rows before it.
    """
    limit, threads = options.limit, thread_count(options.threads)
    if threads == 1 or _is_small(limit) or options.has_few_offsets:
        batches = _one_by_one(logs, options)
    else:
        batches = read_parallel(_opened(logs, options), threads, partial(_columns, options))
    yield from batches if limit is None else first_rows(batches, limit)


def _is_small(limit: int | None) -> bool:
    """Return whether threads are not worth their start for so many rows."""
    return limit is not None and limit < MANY_ROWS


def _one_by_one(logs: Iterable[LogView], options: RecordOptions) -> Iterator[Any]:
    """Read logs in this thread."""
    left = options.limit
    for log in logs:
        if left == 0:
            return
        reading = _open(log, options if left is None else replace(options, limit=left))
        for batch in reading.in_order():
            left = None if left is None else max(left - batch.num_rows, 0)
            yield batch


def _opened(
    logs: Iterable[LogView], options: RecordOptions
) -> Iterator[LogReading | Exception]:
    """Yield the reading of each log; an error as a value, the last one."""
    try:
        for log in logs:
            yield _open(log, options)
    except Exception as error:  # raised when the rows before it are taken
        yield error


def _open(log: LogView, options: RecordOptions) -> LogReading:
    """Find the bounds of a read."""
    limit, isolation, verify = options.limit, options.isolation, options.verify
    start, end = log.bounds(options.start_offset, options.end_offset)
    damage = CorruptionHandler(options.on_corrupt, options.skipped)
    start_timestamp = cast("int | None", options.start_timestamp)
    may_reach = None
    # The timestamp of a record without one is -1.
    if options.indexes == "trust" and start_timestamp is not None and start_timestamp >= 0:
        may_reach = partial(_may_reach, start_timestamp=start_timestamp)
        if options.on_corrupt == "raise":  # else the bytes that are skipped are reported
            since = partial(_start_since, log, start, end, start_timestamp)
            start = log.retry_if_changed(since)
    aborted = broken = None
    if reads_committed(isolation):
        find = _find_decided if options.is_decided else _find_committed
        end, aborted, broken = find(log, start, end, damage, verify=verify)
    most_records = end - start if limit is None else min(limit, end - start)
    return LogReading(
        log,
        RangeScan(log, start, end, damage, known_end_offset=options.known_end_offset),
        (start, end),
        partial(_columns, options, start, end),
        options.taker(log),
        aborted=aborted,
        broken=broken,
        is_wanted=may_reach,
        few=most_records < SMALL_RANGE,
        reading={
            "verify_crc": verify,
            "decodes": options.on_corrupt == "raise"
            and start_timestamp is None
            and options.end_timestamp is None,
            "mapped": options.has_views,
        },
    )


def _columns(
    options: RecordOptions, start_offset: int = 0, end_offset: int = INT64_MAX
) -> RecordColumns:
    """Make columns for a range of offsets, or one that is set later."""
    settings: dict[str, Any] = {}
    for name in _TIMESTAMPS:
        if (time := getattr(options, name)) is not None:
            settings[name] = time
    rows, limit = options.batch_rows, options.limit
    return RecordColumns(
        options.names,
        start_offset=start_offset,
        end_offset=end_offset,
        include_control=options.include_control,
        binary_view=options.has_views,
        in_millis=options.in_millis,
        max_rows=rows if limit is None else max(min(rows, limit), 1),
        max_bytes=options.batch_bytes,
        max_decompressed_bytes=options.max_decompressed_bytes,
        **settings,
    )


def _find_decided(
    log: LogView, start: int, end: int, damage: CorruptionHandler, *, verify: bool
) -> tuple[int, AbortedBatches, CorruptionError | None]:
    """Do as `_find_committed` for a range before the last stable offset."""
    try:
        aborted = log.retry_if_changed(lambda: find_aborted(log, start, end, verify=verify))
    except CorruptionError:
        stable, aborted, broken = _find_committed(log, start, end, damage, verify=verify)
        if stable < end and damage.on_corrupt == "skip":
            raise  # without a marker that is skipped the range is not decided
        return stable, aborted, broken
    return end, aborted, None


def _find_committed(
    log: LogView, start: int, end: int, damage: CorruptionHandler, *, verify: bool
) -> tuple[int, AbortedBatches, CorruptionError | None]:
    """Find the end of decided offsets, the aborted batches, and what is corrupt."""
    last_stable_offset, aborted, broken = log.retry_if_changed(
        lambda: find_committed(log, start, end, verify=verify, until_broken=True, damage=damage)
    )
    return min(end, last_stable_offset), aborted, broken if end > last_stable_offset else None


def _start_since(log: LogView, start: int, end: int, timestamp: int) -> int:
    """Return a range's first offset that may reach a timestamp, or its end."""
    for segment in log.segments_between(start, end):
        first = first_offset_since(segment, timestamp, start)
        if first is not None:
            return min(first, end)
    return end


def _may_reach(segment: LogSegment, start_timestamp: int) -> bool:
    """Return whether a time index allows records at or after a timestamp.

    The segment is open. Without a valid index the answer is True: finding out would take reading
    the segment.
    """
    try:
        largest = segment.largest_timestamp_by_index
    except SegmentGoneError:
        return True
    return largest is None or largest >= start_timestamp


def first_rows(batches: Iterator[RowsT], limit: int) -> Iterator[RowsT]:
    """Yield at most `limit` rows, and read no batch after them."""
    left = limit
    while left > 0 and (batch := next(batches, None)) is not None:
        yield batch.slice(0, left)
        left -= batch.num_rows


def _take(batch_rows: int, columns: RecordColumns) -> list[RecordBuffers]:
    """Return the decoded rows as they are, in batches of at most `batch_rows`."""
    rows, buffers = columns.take()
    starts = range(0, rows, batch_rows)
    return [RecordBuffers(buffers, first, min(first + batch_rows, rows)) for first in starts]
