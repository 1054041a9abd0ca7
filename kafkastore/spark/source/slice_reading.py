"""Reading of slices in a task into Arrow batches; all planned records must exist."""
from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from kafkastore.errors import CorruptionError, NotALogDirectoryError, SegmentGoneError
from kafkastore.formats.records.record_columns import BATCH_ROWS
from kafkastore.formats.state.file_names import TopicPartition
from kafkastore.log.damage import SkippedBytes
from kafkastore.spark.source.filters import Limits
from kafkastore.spark.source.options import ReadOptions
from kafkastore.spark.source.planning import LOG, warn
from kafkastore.spark.source.slices import END, LogSlice
from kafkastore.store.data_loss import DataLossError, Loss, LossKind
from kafkastore.store.partition_log import PartitionLog

#: Batches with fewer rows and bytes are combined before they are sent to the JVM.
LEAST_ROWS = BATCH_ROWS // 2
LEAST_BYTES = 4 << 20


class Skipped:
    """The bytes that reading a slice skips, and which of them were reported.

    Readers add to `found`. Bytes skipped on the way to the slice's start are reported by the task
    that reads them.
    """

    def __init__(self, each: LogSlice) -> None:
        self.found: list[SkippedBytes] = []
        self._slice = each
        self._reported = 0

    def report(self) -> None:
        """Log a warning for each skipped range found since the last call."""
        for corrupt in self.found[self._reported :]:
            end = corrupt.end_offset
            if end is None or end > self._slice.start_offset:
                warn(self._slice.path, corrupt)
        self._reported = len(self.found)


def read_slices(
    slices: Iterable[LogSlice],
    columns: Sequence[str],
    options: ReadOptions,
    limits: Limits,
    *,
    are_decided: bool = False,
) -> Iterator[pa.RecordBatch]:
    """Yield the records of slices in batches of about `BATCH_ROWS` rows.

    `are_decided`: all slices end by the last stable offset. Raises `DataLossError` for missing
    records (`failOnDataLoss`), and `CorruptionError` at corrupt bytes (`onCorrupt`).
    """
    batches = (
        batch
        for each in slices
        for batch in _read(each, columns, options, limits, are_decided)
    )
    for batch in joined(batches):
        yield batch.select(list(columns))


def _read(
    each: LogSlice,
    columns: Sequence[str],
    options: ReadOptions,
    limits: Limits,
    is_decided: bool,
) -> Iterator[pa.RecordBatch]:
    def scan(log: PartitionLog, skipped: list[SkippedBytes]) -> Iterable[pa.RecordBatch]:
        return log.to_arrow(
            columns,
            start_timestamp=limits.start_timestamp,
            end_timestamp=limits.end_timestamp,
            isolation=options.isolation,
            is_decided=is_decided,
            skipped=skipped,
            **scan_arguments(each, options),
        )

    return scan_checked(each, options, scan)


def scan_arguments(each: LogSlice, options: ReadOptions) -> dict[str, Any]:
    """Return the arguments by which a slice's records are read, whichever are wanted."""
    is_known = each.start_offset < each.known_end_offset
    return {
        "start_offset": each.start_offset,
        "end_offset": each.end_offset,
        "indexes": options.indexes,
        "on_corrupt": options.on_corrupt,
        "known_end_offset": each.known_end_offset if is_known else None,
        "threads": 1,  # each task has one core
    }


def scan_checked(
    each: LogSlice,
    options: ReadOptions,
    scan: Callable[[PartitionLog, list[SkippedBytes]], Iterable[pa.RecordBatch]],
) -> Iterator[pa.RecordBatch]:
    """Yield what `scan` makes of a slice's log; find missing records.

    Skipped bytes are reported: `scan` adds them to its second argument.
    """
    is_known = each.start_offset < each.known_end_offset
    checks = options.fail_on_data_loss and is_known
    skipped = Skipped(each)
    try:
        log = each.open_log()
        listed = log.segments
        if checks:
            _check_start(each, log)
        for batch in scan(log, skipped.found):
            skipped.report()  # before the rows: the caller may stop after them
            yield batch
        skipped.report()
        if checks and log.segments is not listed:  # a segment was deleted before it was read
            _check_start(each, log)
        if checks:
            _check_end(each)
    except (CorruptionError, SegmentGoneError, NotALogDirectoryError) as error:
        if checks and isinstance(error, CorruptionError):
            _check_end(each)  # reports truncation as data loss, not as corruption
        if options.fail_on_data_loss:
            raise
        skipped.report()
        until = "" if each.end_offset == END else f" up to offset {each.end_offset}"
        LOG.warning(
            "%s; the rest of %s%s is skipped because failOnDataLoss is false",
            error, each.path, until,
        )


def _check_start(each: LogSlice, log: PartitionLog) -> None:
    """Raise an error if segments were deleted; Kafka deletes the first ones first."""
    first = log.segments[0].base_offset if log.segments else None
    if first is None or first > each.start_offset:
        gone = each.known_end_offset if first is None else min(first, each.known_end_offset)
        raise _loss(each, LossKind.DELETED, each.start_offset, gone)


def _check_end(each: LogSlice) -> None:
    """Raise an error if the log was truncated.

    Corrupt bytes before other batches do not count.
    """
    log = each.open_log()
    end = log.end_bound.offset
    if end < each.known_end_offset and (end := log.end_offset("skip", [])) < each.known_end_offset:
        start = max(end, each.start_offset)
        raise _loss(each, LossKind.TRUNCATED, start, each.known_end_offset)


def _loss(each: LogSlice, kind: LossKind, start: int, end: int) -> DataLossError:
    return DataLossError(
        "; load again to read the existing records, or set failOnDataLoss to false",
        Loss(
            kind,
            TopicPartition(each.topic, each.partition),
            end,
            f"offsets {start} to {end - 1} in {each.path} were removed after the read was planned",
        ),
    )


def joined(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Combine small successive batches, mostly those of small partitions."""
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        waiting.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows >= LEAST_ROWS or size >= LEAST_BYTES:
            yield _one_of(waiting)
            waiting, rows, size = [], 0, 0
    if waiting:
        yield _one_of(waiting)


def _one_of(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    if len(batches) == 1:
        return batches[0]
    whole: pa.RecordBatch = pa.Table.from_batches(batches).combine_chunks().to_batches()[0]
    return whole
