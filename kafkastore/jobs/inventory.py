"""Contents of segments; each partition is read once, in bounded memory."""
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kafkastore.errors import DuplicatePartitionError
from kafkastore.jobs.error_fields import ErrorFields
from kafkastore.jobs.job import PartitionJob, Row
from kafkastore.store.partition_log import PartitionLog
from kafkastore.store.partition_path import FAILURES, Copies, PartitionPath, open_partition
from kafkastore.store.sample_times import sample_times

if TYPE_CHECKING:
    import pyarrow as pa

#: The maximum number of times to look up in a partition, unless they are given.
MOST_TIMES = 200
#: The maximum number of sampled records of a partition, to draw its times.
MOST_SAMPLED_RECORDS = 256


class SegmentInventory(NamedTuple):
    """The contents of one segment; `modified` and `size` are those of the ``.log``.

    `largest_timestamp` is None if no record has one. `records` excludes transaction markers; index
    entries exclude padding, and are None if the file is missing.
    """

    base_offset: int
    size: int
    modified: int
    largest_timestamp: int | None
    records: int
    offset_index_entries: int | None
    time_index_entries: int | None


class PartitionInventory(NamedTuple):
    """The contents of one partition.

    A corrupt log has an exclusive `readable_end` and an `error`. `samples` are timestamps and
    offsets; `times` to look up are ms since 1970, ascending, empty if it can't be read.
    """

    place: PartitionPath
    segments: tuple[SegmentInventory, ...]
    log_start_offset: int
    log_end_offset: int
    records: int
    readable_end: int | None
    samples: tuple[tuple[int, int], ...]
    error: ErrorFields | None
    times: tuple[int, ...] = ()

    def bounds(self) -> Row:
        """Return the columns of the partition that the rows of its segments share."""
        return {
            "log_start_offset": self.log_start_offset,
            "log_end_offset": self.log_end_offset,
            "readable_end": self.readable_end,
        }


@dataclass(frozen=True)
class InventoryJob(PartitionJob[PartitionInventory]):
    """Read each partition once; report its contents and how far it is readable.

    `spread_times` chooses times to look up: this many spread over the records, and others where
    answers can differ.
    """

    spread_times: int = 0

    @staticmethod
    def columns() -> list[tuple[str, pa.DataType]]:
        """Return the columns of a segment, and those of its partition."""
        import pyarrow as pa

        names = (
            "log_start_offset", "log_end_offset", "readable_end", *SegmentInventory._fields
        )
        return [(name, pa.int64()) for name in names]

    def run(self, item: Copies) -> PartitionInventory:
        """Read a partition; an unreadable one gives a result with its error."""
        if len(item) > 1:
            name = f"{item[0].topic}-{item[0].partition}"
            raise DuplicatePartitionError({name: [each.path for each in item]})
        reading = _Reading()
        times: list[int] = []
        try:
            log = open_partition(item[0])
            reading.read(log)
            log_end_offset, readable_end, error = log.log_end_offset, None, None
            if self.spread_times:
                modified = [segment.last_modified_ms for segment in log.segments]
                others = max(MOST_TIMES - self.spread_times, 0)
                times = sample_times(log, self.spread_times, others, modified)
        except FAILURES as failure:
            log_end_offset = readable_end = reading.next_offset
            error = ErrorFields.of(failure)
        return PartitionInventory(
            item[0],
            reading.segments(),
            reading.log_start_offset,
            log_end_offset,
            int(reading.records.sum()),
            readable_end,
            reading.samples(),
            error,
            tuple(times),
        )

    def rows(self, result: PartitionInventory) -> Iterator[Row]:
        """Yield a row for each segment; one for an error, or if there are no segments."""
        bounds = result.bounds()
        for segment in result.segments:
            yield {**bounds, **segment._asdict()}
        if result.error is not None or not result.segments:
            yield {**bounds, "error": None if result.error is None else result.error.text}


class _Reading:
    """The results so far while a partition is read."""

    def __init__(self) -> None:
        self.log_start_offset = self.next_offset = 0
        self._known: list[tuple[int, int, int, int | None, int | None]] = []
        self._bases: NDArray[np.int64] = np.zeros(0, np.int64)
        self.records: NDArray[np.int64] = np.zeros(0, np.int64)
        self._largest: NDArray[np.int64] = np.zeros(0, np.int64)
        self._stamps: NDArray[np.int64] = np.zeros(0, np.int64)
        self._offsets: NDArray[np.int64] = np.zeros(0, np.int64)
        self._seen, self._stride = 0, 1

    def read(self, log: PartitionLog) -> None:
        """Read all records of a partition, as far as they are readable."""
        self._begin(log)
        for batch in log.to_arrow(["offset", "timestamp"], threads=1):
            # Timestamps outside the range of Arrow's microseconds are null there.
            stamps = batch.column(1).fill_null(-1000).cast("int64").to_numpy() // 1000
            self.add(batch.column(0).to_numpy(), stamps)

    def _begin(self, log: PartitionLog) -> None:
        """Record what is known without reading the log."""
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
        """Count successive records."""
        self.next_offset = int(offsets[-1]) + 1
        segments = np.maximum(np.searchsorted(self._bases, offsets, "right") - 1, 0)
        self.records += np.bincount(segments, minlength=len(self.records))
        np.maximum.at(self._largest, segments, stamps)
        self._sample(offsets[stamps >= 0], stamps[stamps >= 0])

    def _sample(self, offsets: NDArray[np.int64], stamps: NDArray[np.int64]) -> None:
        """Keep every n-th record, and double n whenever there are too many."""
        kept = (self._seen + np.arange(len(offsets))) % self._stride == 0
        self._seen += len(offsets)
        self._offsets = np.concatenate((self._offsets, offsets[kept]))
        self._stamps = np.concatenate((self._stamps, stamps[kept]))
        while len(self._offsets) > MOST_SAMPLED_RECORDS:
            self._offsets, self._stamps = self._offsets[::2], self._stamps[::2]
            self._stride *= 2

    def samples(self) -> tuple[tuple[int, int], ...]:
        """Return timestamps and offsets of the sampled records."""
        return tuple(zip(self._stamps.tolist(), self._offsets.tolist(), strict=True))

    def segments(self) -> tuple[SegmentInventory, ...]:
        """Return the inventory of the segments."""
        return tuple(
            SegmentInventory(
                base, size, modified, largest if largest >= 0 else None, records, offsets, times
            )
            for (base, size, modified, offsets, times), largest, records in zip(
                self._known, self._largest.tolist(), self.records.tolist(), strict=False
            )
        )
