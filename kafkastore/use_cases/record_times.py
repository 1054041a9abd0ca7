"""Offsets and timestamps of records as arrays, where headers lack them."""
from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kafkastore.arguments import INT64_MAX
from kafkastore.formats.records.record_columns import RecordColumns
from kafkastore.log.damage import CorruptionHandler
from kafkastore.log.range_scan import RangeScan, ScannedRun
from kafkastore.store.partition_log import PartitionLog

#: Replaces a timestamp (ms) whose microseconds do not fit 64 bits.
FAR_FUTURE = INT64_MAX // 1000

Times = tuple[NDArray[np.int64], NDArray[np.int64]]


def runs_between(
    log: PartitionLog,
    start_offset: int,
    end_offset: int,
    *,
    verify: bool = True,
    damage: CorruptionHandler | None = None,
) -> Iterator[ScannedRun]:
    """Scan the batches in a range of offsets, one run at a time.

    Each run has at least one header; the first and last batch may extend past the range. Raises
    CorruptionError at the first corrupt batch unless `damage` skips it.
    """
    scan = RangeScan(log, start_offset, end_offset, damage)
    yield from runs_of(scan, end_offset, scan.runs(verify_crc=verify))


def runs_of(
    scan: RangeScan, end_offset: int, runs: Iterator[ScannedRun]
) -> Iterator[ScannedRun]:
    """Yield the runs of a scan with only the headers in its range, at least one."""
    for scanned in runs:
        # A wrapper has only its last offset.
        within = scanned.headers["last_offset"] >= scan.first_offset
        within &= scanned.headers["base_offset"] < end_offset
        if within.any():
            yield scanned.of(scanned.headers[within])


def times_of(columns: RecordColumns, scanned: ScannedRun) -> Iterator[Times]:
    """Yield the offsets and timestamps of batches, without markers.

    A timestamp too large for 64-bit microseconds is `FAR_FUTURE`. Raises CorruptionError for
    corrupt records that are not skipped.
    """
    for rows, taken in scanned.decoded(columns):
        offsets = np.frombuffer(taken["offset"], np.int64, rows)
        yield offsets, timestamps_of(taken["timestamp"], rows)


def timestamps_of(column: tuple[int, Any, Any], rows: int) -> NDArray[np.int64]:
    """Return the timestamps (ms) of a column; `FAR_FUTURE` for those too large."""
    nulls, validity, micros = column
    timestamps = np.frombuffer(micros, np.int64, rows) // 1000
    if nulls:
        bits = np.frombuffer(validity, np.uint8, (rows + 7) // 8)
        timestamps[np.unpackbits(bits, count=rows, bitorder="little") == 0] = FAR_FUTURE
    return timestamps


def new_columns(start_offset: int, end_offset: int) -> RecordColumns:
    """Return the decoder for `times_of`, for a range of offsets."""
    return RecordColumns(("offset", "timestamp"), start_offset=start_offset, end_offset=end_offset)

