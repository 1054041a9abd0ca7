"""The active segment of a log: its files, while sets of batches are appended to them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from numpy.typing import NDArray

from kafkastore.arguments import INT64_MAX
from kafkastore.errors import CorruptBatchError
from kafkastore.formats import transaction_index
from kafkastore.formats.append_sets import AppendSets
from kafkastore.formats.entries import TimestampOffset
from kafkastore.formats.file_names import (
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    segment_file_name,
)
from kafkastore.formats.indexes import offset_index, time_index
from kafkastore.formats.segment_growth import SegmentGrowth
from kafkastore.fs import FileSystem
from kafkastore.segment.index_writer import IndexWriter, TransactionIndexWriter
from kafkastore.segment.log_file import SMALLEST_READ
from kafkastore.segment.log_segment import LogSegment
from kafkastore.segment.transaction_index_file import TransactionIndex

#: The files of a segment, in the order in which they go: without a ``.log`` the others are nothing.
SEGMENT_SUFFIXES = (
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
)


#: Index entries are written when they are so many bytes, or at a flush: about 25 of each index. A
#: recovery, which a crash calls for anyway, makes the rest anew; a reader goes on from the last.
INDEX_WRITE_BYTES = 512
_FAR_OFFSET = INT64_MAX


class SegmentLimits(NamedTuple):
    """How large and how old a segment grows, and how its indexes are made.

    Parameters
    ----------
    segment_bytes : int
        The topic's ``segment.bytes``.
    roll_ms : int
        Its ``segment.ms`` without this segment's share of ``segment.jitter.ms``.
    segment_index_bytes, index_interval_bytes : int
        The topic's options of these names.
    preallocate : bool
        Whether a new ``.log`` gets `segment_bytes` at once.
    each_batch_is_indexed : bool
        As in `BrokerRules`.
    """

    segment_bytes: int
    roll_ms: int
    segment_index_bytes: int
    index_interval_bytes: int
    preallocate: bool = False
    each_batch_is_indexed: bool = False


class SegmentWriter:
    """A segment that takes sets of batches; see `create` and `open`.

    After an error of the file system nothing about the files is certain: only `close_files` may
    follow then.

    Notes
    -----
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
        """Make a new segment; files of its name must not be there.

        Parameters
        ----------
        directory : Path
            The partition directory.
        base_offset : int
            Of the segment.
        limits : SegmentLimits
            The topic's.
        now : int
            The wall clock, ms since 1970.
        fs : FileSystem
            What writes.

        Returns
        -------
        SegmentWriter
        """
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
        """Open a segment whose log is whole and whose indexes are right.

        Parameters
        ----------
        directory, base_offset, limits, now, fs
            As of `create`.

        Returns
        -------
        SegmentWriter

        Raises
        ------
        CorruptBatchError
            If something other than whole batches is at the end: what is appended behind it could
            never be read.
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
        """Of its records, ms since 1970; -1 none."""
        return self._growth.largest_timestamp

    @property
    def log_path(self) -> Path:
        """The ``.log`` file."""
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
        """Append sets of batches until the segment must be rolled.

        Parameters
        ----------
        data : memoryview
            The batches of the sets from `first` on.
        sets : AppendSets
            What they are.
        first : int
            The first that is not in the log yet.
        now : int
            The wall clock, ms since 1970.
        is_new : bool
            Whether the segment was just made for the first set, which then is appended anyway.

        Returns
        -------
        int
            The first set that is not appended.
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
        """Write what the transaction index gets.

        Parameters
        ----------
        transactions : numpy.ndarray of ABORTED_TXN
            In the order of their markers.
        """
        self._transactions.append(transaction_index.pack(transactions))

    def truncate_to(self, offset: int, now: int) -> None:
        """Drop the batches that hold an offset or a later one.

        Parameters
        ----------
        offset : int
            First to drop; the whole batch that holds it goes.
        now : int
            The wall clock, ms since 1970: an emptied segment counts as new.

        Notes
        -----
        Source: Kafka 2.4.0 ``LogSegment.truncateTo``, which leaves the time index entry of a record
        before the offset whose batch it cuts.
        """
        self._write_entries()
        segment = LogSegment(self.directory, self.base_offset)
        found = segment.translate_offset(offset)
        size = self.size
        if found is not None and found.position < size:
            size = found.position
            with segment.open_as_broker() as log:
                first = log.first_offset_at(size)
            # An entry may have an offset within the batch that is cut.
            offset = offset if first is None else min(offset, first)
        kept = [
            0 if index is None else index.truncate_to(offset)
            for index in (segment.offset_index, segment.time_index)
        ]
        aborted = TransactionIndex.open(self._path(TRANSACTION_INDEX_SUFFIX))
        # Indexes first: an entry must never lead behind the end of the log.
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
        """Finish the indexes and cut all files to what is used, as at roll and close.

        Notes
        -----
        Source: Kafka 2.4.0 ``LogSegment.onBecomeInactiveSegment``, ``close``.
        """
        self._growth.finish()
        self._write_entries()
        self._offsets.truncate_to(self._offsets.entry_count)
        self._times.truncate_to(self._times.entry_count)
        if self.limits.preallocate:
            self._fs.truncate(self._log, self.size)

    def flush(self) -> None:
        """Make the log and the indexes durable, in this order."""
        self._write_entries()
        self._fs.fsync(self._log)
        self._offsets.flush()
        self._times.flush()
        self._transactions.flush()

    def close_files(self) -> None:
        """Close what is open; nothing is written, nothing is raised."""
        log, self._log = self._log, -1
        closers = [file.close for file in self._files]
        if log >= 0:
            closers.append(lambda: self._fs.close(log))
        self._files = []
        for close in closers:
            try:
                close()
            except OSError:
                # What was written is known to be durable only after an fsync, which said so.
                continue

    def _path(self, suffix: str) -> Path:
        return self.directory / segment_file_name(self.base_offset, suffix)

    def _write_entries(self) -> None:
        """Write the entries that the last sets brought."""
        offset_entries, time_entries = self._growth.take_entries()
        if offset_entries:
            self._offsets.append(offset_entries)
        if time_entries:
            self._times.append(time_entries)

    def _open_files(self, offset_entries: int, time_entries: int) -> None:
        """Open all files, and give the indexes their full size."""
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
        """Find the largest timestamp, which the last time index entry may not have any more.

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
        """Work out how a segment goes on from what its files hold."""
        offsets, times = segment.offset_index, segment.time_index
        first_timestamp = None
        if size:
            with segment.open_as_broker() as log:
                first_run = next(log.runs(first_read=SMALLEST_READ), None)
                if first_run is not None:
                    first_timestamp = int(first_run.headers["max_timestamp"][0])
        return self._new_growth(
            created_ms,
            size=size,
            first_timestamp=first_timestamp,
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
    """Refuse a log with bytes behind its last whole batch."""
    with segment.open_as_broker() as log:
        end = position = segment.position_before(_FAR_OFFSET, log) if log.size else 0
        for run in log.runs(position, first_read=SMALLEST_READ):
            last = run.headers[-1]
            end = int(last["position"]) + int(last["size"])
        if end != log.size:
            raise CorruptBatchError(
                f"{log.size - end} bytes after the last whole batch",
                position=end,
                path=segment.log_path,
            )
