"""What one pass over a partition's records tells of its segments, in memory that does not grow."""
from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kafkastore.store.partition_log import PartitionLog

#: Points of a partition's records that are kept, to choose times from and to draw.
MOST_SAMPLES = 256


class SegmentRow(NamedTuple):
    """One segment, surveyed.

    Attributes
    ----------
    base_offset, size : int
        As in the file's name; bytes of the ``.log``.
    last_modified_ms : int
        Modification time of the ``.log``.
    largest_timestamp : int or None
        Of its records, ms; None where none has one.
    records : int
        Transaction markers not among them.
    offset_entries, time_entries : int or None
        Index entries before the padding; None where the file is missing.
    """

    base_offset: int
    size: int
    last_modified_ms: int
    largest_timestamp: int | None
    records: int
    offset_entries: int | None
    time_entries: int | None


class Reading:
    """What is known of a partition while it is read; segments by their number."""

    def __init__(self) -> None:
        self.log_start_offset = self.next_offset = 0
        self._known: list[tuple[int, int, int, int | None, int | None]] = []
        self._bases: NDArray[np.int64] = np.zeros(0, np.int64)
        self.records: NDArray[np.int64] = np.zeros(0, np.int64)
        self._largest: NDArray[np.int64] = np.zeros(0, np.int64)
        self._stamps: NDArray[np.int64] = np.zeros(0, np.int64)
        self._offsets: NDArray[np.int64] = np.zeros(0, np.int64)
        self._seen, self._stride = 0, 1

    def begin(self, log: PartitionLog) -> None:
        """Look at what is known without reading the log."""
        self.log_start_offset = self.next_offset = log.log_start_offset
        bases = [segment.base_offset for segment in log.segments]
        self._bases = np.array(bases, np.int64)
        self.records = np.zeros(len(bases), np.int64)
        self._largest = np.full(len(bases), -1, np.int64)
        for segment in log.segments:
            offset_index, time_index = segment.offset_index, segment.time_index
            self._known.append(
                (
                    segment.base_offset,
                    segment.size,
                    segment.last_modified_ms,
                    None if offset_index is None else offset_index.used_entry_count,
                    None if time_index is None else time_index.used_entry_count,
                )
            )

    def add(self, offsets: NDArray[np.int64], stamps: NDArray[np.int64]) -> None:
        """Take note of successive records."""
        self.next_offset = int(offsets[-1]) + 1
        segments = np.maximum(np.searchsorted(self._bases, offsets, "right") - 1, 0)
        self.records += np.bincount(segments, minlength=len(self.records))
        np.maximum.at(self._largest, segments, stamps)
        self._sample(offsets[stamps >= 0], stamps[stamps >= 0])

    def _sample(self, offsets: NDArray[np.int64], stamps: NDArray[np.int64]) -> None:
        """Keep every so manieth record, half as many whenever there are too many."""
        kept = (self._seen + np.arange(len(offsets))) % self._stride == 0
        self._seen += len(offsets)
        self._offsets = np.concatenate((self._offsets, offsets[kept]))
        self._stamps = np.concatenate((self._stamps, stamps[kept]))
        while len(self._offsets) > MOST_SAMPLES:
            self._offsets, self._stamps = self._offsets[::2], self._stamps[::2]
            self._stride *= 2

    def samples(self) -> tuple[tuple[int, int], ...]:
        """Return what was kept."""
        return tuple(zip(self._stamps.tolist(), self._offsets.tolist(), strict=True))

    def segment_rows(self) -> tuple[SegmentRow, ...]:
        """Return what is known of the segments."""
        return tuple(
            SegmentRow(
                base, size, modified, largest if largest >= 0 else None, records, offsets, times
            )
            for (base, size, modified, offsets, times), largest, records in zip(
                self._known, self._largest.tolist(), self.records.tolist(), strict=False
            )
        )
