"""The active segment of a log: its files, and appends to them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from numpy.typing import NDArray

from kafkastore.arguments import INT64_MAX
from kafkastore.errors import CorruptBatchError
from kafkastore.formats.indexes import transaction_index
from kafkastore.formats.indexes.entries import TimestampOffset
from kafkastore.formats.indexes.index_format import offset_index, time_index
from kafkastore.formats.indexes.segment_growth import SegmentGrowth
from kafkastore.formats.records.append_sets import AppendSets
from kafkastore.formats.state.file_names import (
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    segment_file_name,
)
from kafkastore.fs import FileSystem
from kafkastore.segment.index_writer import IndexWriter, TransactionIndexWriter
from kafkastore.segment.log_file import SMALLEST_READ
from kafkastore.segment.log_segment import LogSegment
from kafkastore.segment.transaction_index_file import TransactionIndex

#: The files of a segment in the order of their deletion: without a ``.log`` the others are ignored.
SEGMENT_SUFFIXES = (
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
)


#: Index entries are written when this many bytes have gathered (about 25 entries of each index), or
#: at a flush. After a crash, recovery rebuilds the rest; a reader scans on from the last entry.
INDEX_WRITE_BYTES = 512
_FAR_OFFSET = INT64_MAX


class SegmentLimits(NamedTuple):
    """Size and age at which a segment is rolled, and how its indexes are built."""

    segment_bytes: int
    roll_ms: int  # the topic's ``segment.ms`` minus this segment's share of ``segment.jitter.ms``
    segment_index_bytes: int
    index_interval_bytes: int
    preallocate: bool = False  # create the ``.log`` with `segment_bytes`
    each_batch_is_indexed: bool = False  # as in `BrokerRules`


class SegmentWriter:
    """A segment to which sets of batches are appended; see `create` and `open`.

    After an I/O error the state on disk is unknown: the only call allowed then is `close_files`.

    Source: Kafka 2.4.0 and 3.9.0 ``LogSegment``.
    """

    def __init__(
        self, directory: Path, base_offset: int, limits: SegmentLimits, fs: FileSystem
    ) -> None:
        self.directory, self.base_offset, self.limits = directory, base_offset, limits
        self._fs = fs
        self._files: list[Any] = []
        self._log = -1

    @classmethod
    def create(
        cls,
        directory: Path,
        base_offset: int,
        limits: SegmentLimits,
        *,
        now: int,
        fs: FileSystem,
    ) -> SegmentWriter:
        """Create a segment, whose files must not exist; `now` is the wall clock, in ms."""
        writer = cls(directory, base_offset, limits, fs)
        try:
            for suffix in SEGMENT_SUFFIXES[:3]:
                fs.close(fs.create(directory / segment_file_name(base_offset, suffix)))
            writer._open_files(0, 0)
            if limits.preallocate:
                fs.truncate(writer._log, limits.segment_bytes)
        except BaseException:
            writer.close_files()
            raise
        writer._growth = writer._new_growth(now)
        return writer

    @classmethod
    def open(
        cls,
        directory: Path,
        base_offset: int,
        limits: SegmentLimits,
        *,
        now: int,
        fs: FileSystem,
    ) -> SegmentWriter:
        """Open a segment whose log and indexes are valid; `now` is the wall clock, in ms.

        Raises `CorruptBatchError` if the log does not end with a complete batch: batches appended
        there could never be read.
        """
        writer = cls(directory, base_offset, limits, fs)
        segment = LogSegment(directory, base_offset)
        check_end(segment)
        offsets, times = segment.offset_index, segment.time_index
        try:
            writer._open_files(
                0 if offsets is None else offsets.used_entry_count,
                0 if times is None else times.used_entry_count,
            )
            writer._growth = writer._growth_of_files(segment, segment.size, now, None)
        except BaseException:
            writer.close_files()
            raise
        return writer

    @property
    def size(self) -> int:
        """Bytes of the log."""
        return self._growth.size

    @property
    def largest_timestamp(self) -> int:
        """Largest timestamp of the records, ms since 1970; -1 for none."""
        return self._growth.largest_timestamp

    @property
    def log_path(self) -> Path:
        """Path of the ``.log`` file."""
        return self._path(LOG_SUFFIX)

    def append(
        self,
        data: memoryview,
        sets: AppendSets,
        first: int = 0,
        *,
        now: int,
        is_new: bool = False,
    ) -> int:
        """Append sets until the segment must be rolled; return the first one left.

        `data` has the batches of the sets from `first` on. `now` is ms since 1970. `is_new` appends
        the first set in any case, to a segment that was created for it.
        """
        growth = self._growth
        position = growth.size
        end = growth.append(sets, first, now, is_new)
        size = growth.size - position
        if size:
            self._fs.pwrite_all(self._log, data if len(data) == size else data[:size], position)
            if growth.new_bytes >= INDEX_WRITE_BYTES:
                self._write_entries()
        return end

    def append_aborted(self, transactions: NDArray[Any]) -> None:
        """Append ABORTED_TXN entries to their index, in the order of the markers."""
        self._transactions.append(transaction_index.pack(transactions))

    def truncate_to(self, offset: int, now: int) -> None:
        """Drop the batches that hold `offset` or a later one.

        An emptied segment counts as new; `now` is the wall clock, ms since 1970. As in Kafka, the
        time index keeps an entry of a record before the offset even if its batch is dropped.

        Source: Kafka 2.4.0 ``LogSegment.truncateTo``.
        """
        self._write_entries()
        segment = LogSegment(self.directory, self.base_offset)
        found = segment.translate_offset(offset)
        size = self.size
        if found is not None and found.position < size:
            size = found.position
            with segment.open_as_broker() as log:
                first = log.first_offset_at(size)
            # An entry may have an offset within the batch that is dropped.
            offset = offset if first is None else min(offset, first)
        kept = [
            0 if index is None else index.truncate_to(offset)
            for index in (segment.offset_index, segment.time_index)
        ]
        aborted = TransactionIndex.open(self._path(TRANSACTION_INDEX_SUFFIX))
        # Indexes first: an entry must never point beyond the end of the log.
        for index, count in zip((self._offsets, self._times), kept, strict=True):
            index.truncate_to(count)
            index.resize(self.limits.segment_index_bytes)
        self._transactions.truncate_to(aborted.truncate_to(offset))
        self._fs.truncate(self._log, size)
        cut = LogSegment(self.directory, self.base_offset)
        if size == 0:
            self._growth = self._growth_of_files(cut, 0, now, None)
            return
        before = self._growth
        largest = self._largest_in_tail(cut)
        self._growth = self._growth_of_files(cut, size, before.created_ms, largest)

    def trim(self) -> None:
        """Finish the indexes and truncate files to the used part, as at roll and close.

        Source: Kafka 2.4.0 ``LogSegment.onBecomeInactiveSegment``, ``close``.
        """
        self._growth.finish()
        self._write_entries()
        self._offsets.truncate_to(self._offsets.entry_count)
        self._times.truncate_to(self._times.entry_count)
        if self.limits.preallocate:
            self._fs.truncate(self._log, self.size)

    def flush(self) -> None:
        """Make the log and then the indexes durable."""
        self._write_entries()
        self._fs.fsync(self._log)
        self._offsets.flush()
        self._times.flush()
        self._transactions.flush()

    def close_files(self) -> None:
        """Close the open files without writing or raising anything."""
        log, self._log = self._log, -1
        closers = [file.close for file in self._files]
        if log >= 0:
            closers.append(lambda: self._fs.close(log))
        self._files = []
        for close in closers:
            try:
                close()
            except OSError:
                # Data is durable only after an fsync, which reports its own errors.
                continue

    def _path(self, suffix: str) -> Path:
        return self.directory / segment_file_name(self.base_offset, suffix)

    def _write_entries(self) -> None:
        """Write the pending index entries."""
        offset_entries, time_entries = self._growth.take_entries()
        if offset_entries:
            self._offsets.append(offset_entries)
        if time_entries:
            self._times.append(time_entries)

    def _open_files(self, offset_entries: int, time_entries: int) -> None:
        """Open all files, and preallocate the indexes."""
        fs = self._fs
        self._log = fs.open_write(self._path(LOG_SUFFIX))
        self._offsets = IndexWriter(
            fs.open_write(self._path(OFFSET_INDEX_SUFFIX)),
            offset_index.ENTRY_SIZE,
            offset_entries,
            fs,
        )
        self._files.append(self._offsets)
        self._times = IndexWriter(
            fs.open_write(self._path(TIME_INDEX_SUFFIX)), time_index.ENTRY_SIZE, time_entries, fs
        )
        self._files.append(self._times)
        self._transactions = TransactionIndexWriter(self._path(TRANSACTION_INDEX_SUFFIX), fs)
        self._files.append(self._transactions)
        self._offsets.resize(self.limits.segment_index_bytes)
        self._times.resize(self.limits.segment_index_bytes)

    def _largest_in_tail(self, segment: LogSegment) -> TimestampOffset:
        """Find the largest timestamp; after a truncation, the last entry may lack it.

        Source: Kafka 2.4.0 ``LogSegment.loadLargestTimestamp``.
        """
        offsets, times = segment.offset_index, segment.time_index
        largest = TimestampOffset(-1, self.base_offset) if times is None else times.last_entry
        position = 0 if offsets is None else offsets.lookup(largest.offset).position
        with segment.open_as_broker() as log:
            for run in log.runs(position):
                batch = run.headers[int(run.headers["max_timestamp"].argmax())]
                if batch["max_timestamp"] > largest.timestamp:
                    largest = TimestampOffset(
                        int(batch["max_timestamp"]), int(batch["last_offset"])
                    )
        return largest

    def _growth_of_files(
        self,
        segment: LogSegment,
        size: int,
        created_ms: int,
        largest: TimestampOffset | None,
    ) -> SegmentGrowth:
        """Return the state of the segment's growth, as its files give it."""
        offsets, times = segment.offset_index, segment.time_index
        with segment.open_as_broker() as log:
            first = log.header_at(0)
        return self._new_growth(
            created_ms,
            size=size,
            first_timestamp=None if first is None else int(first["max_timestamp"]),
            offset_entries=self._offsets.entry_count,
            time_entries=self._times.entry_count,
            last_indexed_offset=-1 if offsets is None else offsets.last_entry.offset,
            last_time_entry=None if times is None else times.last_entry,
            largest=largest,
        )

    def _new_growth(self, created_ms: int, **known: Any) -> SegmentGrowth:
        return SegmentGrowth(
            self.base_offset,
            index_interval_bytes=self.limits.index_interval_bytes,
            segment_bytes=self.limits.segment_bytes,
            roll_ms=self.limits.roll_ms,
            created_ms=created_ms,
            max_offset_entries=self._offsets.max_entries,
            max_time_entries=self._times.max_entries,
            each_batch=self.limits.each_batch_is_indexed,
            **known,
        )


def check_end(segment: LogSegment) -> None:
    """Raise CorruptBatchError if bytes follow the log's last complete batch."""
    with segment.open_as_broker() as log:
        end = position = segment.position_before(_FAR_OFFSET, log) if log.size else 0
        for run in log.runs(position, first_read=SMALLEST_READ):
            end = run.end_position
        if end != log.size:
            raise CorruptBatchError(
                f"{log.size - end} bytes after the last complete batch",
                position=end,
                path=segment.log_path,
            )
