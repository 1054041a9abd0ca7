"""Latencies of records whose batches kept the create times.

`latency` says which batches do.
"""
from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kafkastore.errors import KafkaStoreError
from kafkastore.formats.records.batch_header import (
    CODEC_BITS,
    DELETE_HORIZON_BIT,
    LOG_APPEND_TIME_BIT,
    is_control,
)
from kafkastore.formats.records.record_columns import RecordColumns
from kafkastore.log.damage import CorruptionHandler
from kafkastore.log.parallel.log_pieces import LogPiece, cut_log
from kafkastore.log.parallel.parallel_map import ParallelMap
from kafkastore.log.range_scan import RangeScan, ScannedRun, ScanStart
from kafkastore.segment.log_segment import LogSegment
from kafkastore.store.partition_log import PartitionLog
from kafkastore.use_cases.record_times import Times, new_columns, runs_of, times_of

#: Number of latencies collected before they are sorted and counted.
_MOST_KEPT = 1 << 20
#: Bytes of a log that a thread measures at once.
_PIECE_BYTES = 8 << 20


class LatencyPiece(NamedTuple):
    """The latencies of some batches; without `counts`, one for each record."""

    latencies: NDArray[np.int64]
    unknown_records: int
    create_time_batches: int
    counts: NDArray[np.int64] | None = None


class LatencySum(NamedTuple):
    """A `LatencyPiece` in which each latency occurs once."""

    latencies: NDArray[np.int64]
    unknown_records: int
    create_time_batches: int
    counts: NDArray[np.int64]


def sum_of(pieces: Iterable[LatencyPiece | LatencySum]) -> LatencySum:
    """Add up the records of all pieces."""
    found = LatencyHistogram()
    unknown = batches = 0
    for each in pieces:
        if each.counts is None:
            found.add(each.latencies)
        else:
            found.add_counted(each.latencies, each.counts)
        unknown += each.unknown_records
        batches += each.create_time_batches
    values, counts = found.counted()
    return LatencySum(values, unknown, batches, counts)


def create_times(columns: RecordColumns, scanned: ScannedRun) -> Iterator[Times]:
    """Yield create times kept in batches with LogAppendTime, and offsets.

    A timestamp is -1 if the producer gave none. All headers must satisfy `keeps_create_times`.
    """
    headers = scanned.headers.copy()
    headers["attributes"] &= ~LOG_APPEND_TIME_BIT  # decodes the timestamps of the records
    yield from times_of(columns, scanned.of(headers))


def keeps_create_times(headers: NDArray[Any]) -> NDArray[np.bool_]:
    """Return which batches have LogAppendTime but kept the create times."""
    attributes, magic = headers["attributes"], headers["magic"]
    kept: NDArray[np.bool_] = has_append_time(headers) & np.where(
        magic == 2, attributes & DELETE_HORIZON_BIT == 0, attributes & CODEC_BITS != 0
    )
    return kept


def has_append_time(headers: NDArray[Any]) -> NDArray[np.bool_]:
    """Return which batches have LogAppendTime."""
    found: NDArray[np.bool_] = (headers["magic"] > 0) & (
        headers["attributes"] & LOG_APPEND_TIME_BIT != 0
    )
    return found


def kept_latencies(
    log: PartitionLog, damage: CorruptionHandler, threads: int
) -> Iterator[LatencyPiece | LatencySum]:
    """Yield latencies from the create times kept in a partition's batches.

    Threads read pieces of a log as `to_arrow` does: from the first one that is corrupt, or does not
    begin after those before it, this thread reads on alone.
    """
    start, end = log.log_start_offset, log.end_before(damage)
    scan = RangeScan(log, start, end, damage)
    rest: ScanStart | None = None
    if threads > 1 and not _is_small(log, start, end):
        segments = tuple(log.segments_between(start, end))
        measured = ParallelMap(
            partial(_measure_piece, log, start, end),
            cut_log(segments, start, end, lambda: _PIECE_BYTES),
            threads,
            "kafkastore-latency",
        )
        segment: LogSegment | None = None
        next_offset: int | None = None
        for piece, found in measured:
            if piece.segment is not segment:
                segment, next_offset = piece.segment, None
            if found is None or (next_offset is not None and found.first_offset < next_offset):
                rest = piece.start._replace(next_offset=next_offset)
                break
            yield found.total
            if found.next_offset is not None:
                next_offset = found.next_offset
                scan.pass_to(next_offset)
                following = segment.next_base_offset
                if next_offset >= end and (following is None or following > end):
                    break
        measured.close()
        if rest is None:
            return
    runs = scan.runs(verify_crc=True, start=rest)
    yield from _latencies_of(runs_of(scan, end, runs), new_columns(start, end))


class _MeasuredPiece(NamedTuple):
    """The latencies of successive batches, and their offsets."""

    total: LatencySum
    first_offset: int
    next_offset: int | None  # None: there is no batch


def _measure_piece(
    log: PartitionLog, start: int, end: int, piece: LogPiece
) -> tuple[LogPiece, _MeasuredPiece | None]:
    """Measure a piece of a range; None if it must be read after those before it."""
    file, position = piece.start.file, piece.start.position
    if file is None:
        return piece, None
    scan = RangeScan(log, start, end)
    try:
        runs = scan.runs(verify_crc=True, start=piece.start, stop=piece.end_position)
        total = sum_of(_latencies_of(runs_of(scan, end, runs), new_columns(start, end)))
        first_offset = file.first_offset_at(position)
    except (KafkaStoreError, OSError):
        return piece, None
    is_whole = scan.is_at_stop or piece.end_position in (None, position)
    if not is_whole or (first_offset is None and scan.next_offset is not None):
        return piece, None
    return piece, _MeasuredPiece(total, first_offset or 0, scan.next_offset)


def _is_small(log: PartitionLog, start: int, end: int) -> bool:
    """Return whether a range is less than two pieces."""
    try:
        sizes = [each.size for each in log.segments_between(start, end)]
    except (KafkaStoreError, OSError):
        return True
    return sum(sizes) < 2 * _PIECE_BYTES


def _latencies_of(runs: Iterable[ScannedRun], columns: RecordColumns) -> Iterator[LatencyPiece]:
    """Yield the latencies of scanned batches."""
    for located in runs:
        headers = located.headers[~is_control(located.headers)]
        appended = has_append_time(headers)
        kept = keeps_create_times(headers)
        chosen = located.of(headers[kept])
        for offsets, timestamps in create_times(columns, chosen):
            timed = timestamps >= 0
            batches = np.searchsorted(chosen.headers["last_offset"], offsets[timed])
            latencies = chosen.headers["max_timestamp"][batches] - timestamps[timed]
            yield LatencyPiece(latencies, int((~timed).sum()), 0)
        # Other batches: each v1 message is one record, and a v2 header has the count.
        counts = located.readable(headers[appended & ~kept])["count"]
        unknown = int(np.maximum(counts, 0).sum())
        created = len(located.readable(headers[~appended]))
        yield LatencyPiece(np.empty(0, np.int64), unknown, created)


class LatencyHistogram:
    """Latencies with the number of records of each."""

    def __init__(self) -> None:
        self._values = np.empty(0, np.int64)
        self._counts = np.empty(0, np.int64)
        self._kept: list[NDArray[np.int64]] = []
        self._size = 0

    def add(self, latencies: NDArray[np.int64]) -> None:
        """Add one record for each latency."""
        self._kept.append(latencies)
        self._size += len(latencies)
        # At least as many as already counted, so that each is sorted only a few times.
        if self._size >= max(_MOST_KEPT, len(self._values)):
            self.counted()

    def counted(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the latencies that occur, ascending, with their counts."""
        more, more_counts = np.unique(
            np.concatenate([self._values[:0], *self._kept]), return_counts=True
        )
        self._kept, self._size = [], 0
        self.add_counted(more, more_counts)
        return self._values, self._counts

    def add_counted(self, more: NDArray[np.int64], more_counts: NDArray[np.int64]) -> None:
        """Add latencies, each with its number of records."""
        values, places = np.unique(np.concatenate([self._values, more]), return_inverse=True)
        counts = np.zeros(len(values), np.int64)
        np.add.at(counts, places, np.concatenate([self._counts, more_counts]))
        self._values, self._counts = values, counts
