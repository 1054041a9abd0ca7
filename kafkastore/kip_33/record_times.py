"""Offsets and timestamps of records as arrays, where a batch's header does not tell enough."""
from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from kafkastore.arguments import INT64_MAX
from kafkastore.formats.record_columns import RecordColumns
from kafkastore.log.damage import Damage
from kafkastore.log.partition_log import PartitionLog
from kafkastore.log.range_scan import RangeScan, ScannedRun

#: What a timestamp counts as whose microseconds do not fit 64 bits.
FAR_FUTURE = INT64_MAX // 1000

Times = tuple[NDArray[np.int64], NDArray[np.int64]]


def runs_between(
    log: PartitionLog,
    start_offset: int,
    end_offset: int,
    *,
    verify: bool = True,
    damage: Damage | None = None,
) -> Iterator[ScannedRun]:
    """Scan the batches between two offsets, a run at a time.

    Parameters
    ----------
    log : PartitionLog
        The partition.
    start_offset, end_offset : int
        Inclusive, exclusive; the first and the last batch may reach over them.
    verify : bool
        Check the checksums.
    damage : Damage, optional
        What to do at corrupt bytes.

    Yields
    ------
    ScannedRun
        With the headers of at least one batch, none wholly below the start or behind the end.

    Raises
    ------
    CorruptionError
        At the first batch that is broken, behind all before it.
    """
    scan = RangeScan(log, start_offset, end_offset, damage)
    for scanned in scan.runs(verify_crc=verify):
        # Of a wrapper only the last offset is known.
        within = scanned.headers["last_offset"] >= scan.first_offset
        within &= scanned.headers["base_offset"] < end_offset
        if within.any():
            yield scanned.of(scanned.headers[within])


def times_of(columns: RecordColumns, scanned: ScannedRun) -> Iterator[Times]:
    """Decode the offsets and timestamps of batches.

    Parameters
    ----------
    columns : RecordColumns
        As from `new_columns`.
    scanned : ScannedRun
        What its headers say of timestamps counts.

    Yields
    ------
    offsets, timestamps : numpy.ndarray of int64
        A timestamp too large for microseconds in 64 bits is `FAR_FUTURE`. No row is of a marker.

    Raises
    ------
    CorruptionError
        If a batch's records break their format, and that is not skipped.
    """
    for rows, taken in scanned.decoded(columns):
        nulls, validity, micros = taken["timestamp"]
        timestamps = np.frombuffer(micros, np.int64, rows) // 1000
        if nulls:
            bits = np.frombuffer(validity, np.uint8, (rows + 7) // 8)
            timestamps[np.unpackbits(bits, count=rows, bitorder="little") == 0] = FAR_FUTURE
        yield np.frombuffer(taken["offset"], np.int64, rows), timestamps


def new_columns(start_offset: int, end_offset: int) -> RecordColumns:
    """Return what `times_of` decodes into, for offsets from a start, inclusive, to an end."""
    return RecordColumns(("offset", "timestamp"), start_offset=start_offset, end_offset=end_offset)

