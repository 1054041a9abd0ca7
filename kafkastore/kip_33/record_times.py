"""Offsets and timestamps of records as arrays, where a batch's header does not tell enough."""
from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kafkastore.arguments import INT64_MAX
from kafkastore.errors import CorruptionError
from kafkastore.formats.record_columns import RecordColumns
from kafkastore.log.batch_reading import SegmentsInTurn
from kafkastore.log.damage import Damage
from kafkastore.log.partition_log import PartitionLog
from kafkastore.segment.log_file import LARGEST_READ, SMALLEST_READ, BatchRun
from kafkastore.segment.log_segment import LogSegment

#: What a timestamp counts as whose microseconds do not fit 64 bits.
FAR_FUTURE = INT64_MAX // 1000

_SMALL_RANGE = 1000

Times = tuple[NDArray[np.int64], NDArray[np.int64]]


class LocatedRun(NamedTuple):
    """Successive batches, where they are, and what is done at corrupt ones.

    `headers` may be some of the run's only.
    """

    segment: LogSegment
    run: BatchRun
    headers: NDArray[Any]
    damage: Damage

    def of(self, headers: NDArray[Any]) -> LocatedRun:
        """Return the same with other headers of the run."""
        return self._replace(headers=headers)

    def readable(self, headers: NDArray[Any]) -> NDArray[Any]:
        """Return the headers of batches before the one at which decoding stopped, if it did."""
        stopped_at = self.damage.stopped_at
        return headers if stopped_at is None else headers[headers["position"] < stopped_at]

    def decoded(self, columns: RecordColumns) -> Iterator[tuple[int, dict[str, Any]]]:
        """Decode the batches; yield rows and buffers.

        Columns must begin empty, and are emptied by each step.

        Raises
        ------
        CorruptionError
            If a batch's records break their format, and that is not skipped.
        """
        done = 0
        while done < len(self.headers):
            try:
                done = columns.append(
                    self.run.data, self.headers, done, position=self.run.position
                )
            except CorruptionError as error:
                done = int(np.searchsorted(self.headers["position"], error.position or 0))
                self.damage.skip_batch(error, self.segment, self.headers[done])
                done = len(self.headers) if self.damage.has_stopped else done + 1
            rows, taken = columns.take()
            if rows:
                yield rows, taken


def runs_between(
    log: PartitionLog,
    start_offset: int,
    end_offset: int,
    *,
    verify: bool = True,
    damage: Damage | None = None,
) -> Iterator[LocatedRun]:
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
    LocatedRun
        With the headers of at least one batch, none wholly below the start or behind the end.

    Raises
    ------
    CorruptionError
        At the first batch that is broken, behind all before it.
    """
    segments = SegmentsInTurn(log, start_offset, end_offset, damage)
    for segment, file in segments:
        position = segment.position_before(segments.first_offset, file)
        is_small = position > 0 or end_offset - start_offset < _SMALL_RANGE
        first_read = SMALLEST_READ if is_small else LARGEST_READ
        for run in segments.runs(
            segment, file, position, verify_crc=verify, first_read=first_read
        ):
            # Of a wrapper only the last offset is known.
            within = run.headers["last_offset"] >= segments.first_offset
            within &= run.headers["base_offset"] < end_offset
            if within.any():
                yield LocatedRun(segment, run, run.headers[within], segments.damage)


def times_of(columns: RecordColumns, located: LocatedRun) -> Iterator[Times]:
    """Decode the offsets and timestamps of batches.

    Parameters
    ----------
    columns : RecordColumns
        As from `new_columns`.
    located : LocatedRun
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
    for rows, taken in located.decoded(columns):
        nulls, validity, micros = taken["timestamp"]
        timestamps = np.frombuffer(micros, np.int64, rows) // 1000
        if nulls:
            bits = np.frombuffer(validity, np.uint8, (rows + 7) // 8)
            timestamps[np.unpackbits(bits, count=rows, bitorder="little") == 0] = FAR_FUTURE
        yield np.frombuffer(taken["offset"], np.int64, rows), timestamps


def new_columns(start_offset: int, end_offset: int) -> RecordColumns:
    """Return what `times_of` decodes into, for offsets from a start, inclusive, to an end."""
    return RecordColumns(("offset", "timestamp"), start_offset=start_offset, end_offset=end_offset)

