"""One segment: a ``.log`` file and its indexes, read lazily, never written."""
from __future__ import annotations

import os
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kafkastore.arguments import INT32_MAX, INT64_MAX, whole_number
from kafkastore.caching import cached_property
from kafkastore.errors import CorruptIndexError, CorruptionError, SegmentGoneError
from kafkastore.formats.indexes.entries import (
    LogOffsetPosition,
    TimestampAndOffset,
    TimestampOffset,
)
from kafkastore.formats.indexes.index_format import time_index
from kafkastore.formats.state.file_names import TRANSACTION_INDEX_SUFFIX, segment_file_name
from kafkastore.segment import segment_summary
from kafkastore.segment.index_file import OffsetIndex, TimeIndex
from kafkastore.segment.index_trust import (
    DEFAULT_INDEXES,
    IndexCheck,
    Indexes,
    check_indexes,
    check_time_index,
)
from kafkastore.segment.kept_log import KeptLog
from kafkastore.segment.log_file import SMALLEST_READ, LogFile, SegmentBounds
from kafkastore.segment.recovery import INDEX_INTERVAL_BYTES, RebuiltIndexes, rebuild_indexes
from kafkastore.segment.regular_file import stat_regular
from kafkastore.segment.salvage import stretches
from kafkastore.segment.timestamp_search import SegmentSearch
from kafkastore.segment.transaction_index_file import TransactionIndex
from kafkastore.versions import NEWEST, BrokerRules

_NO_ENTRIES = time_index.parse(b"", 0)
#: After every offset: its floor entry is the last entry of an index.
_LAST_OFFSET = INT64_MAX


class SegmentSummary(NamedTuple):
    """The result of one pass over a segment's batch headers."""

    valid_bytes: int  # bytes of complete batches from the start of the file
    batch_count: int  # record batches, or messages before magic 2 (a wrapper counts once)
    magics: frozenset[int]
    next_offset: int  # offset after the last batch, or the base offset
    largest_record_timestamp: int | None  # of the batch headers, ms; None: no record has one
    error: CorruptionError | None  # why the pass ended before the end of the file


#: Why changes leave out a segment whose log is a ``.swap`` file.
REPLACES_SEGMENTS = "it is a .swap file, with which a broker's next start replaces segments"


class LogSegment:
    """One segment of a partition's log.

    Parameters
    ----------
    directory : path-like
        The partition directory.
    base_offset : int
        As in the file names.
    next_base_offset : int or None
        Base offset of the next segment; None for the active segment.
    temporary : str
        Suffix after the names of all its files, such as ``.swap``.

    Notes
    -----
    Each call opens the files it needs and closes them again, but for `kept_log`, so that a store of
    any size fits the limit of open files. Indexes, sizes and summaries are cached: to see what a
    broker appended, use a new object (`PartitionLog.refresh`). A method that opens a ``.log`` that
    was deleted in the meantime raises `SegmentGoneError`. Threads may share a segment: see
    ``docs/threads.md``.

    Source: Kafka 2.4.0 ``LogSegment``.
    """

    def __init__(
        self,
        directory: Path,
        base_offset: int,
        next_base_offset: int | None = None,
        temporary: str = "",
    ) -> None:
        self.directory = directory
        self.temporary = temporary
        self.base_offset = base_offset
        self.next_base_offset = next_base_offset

    def __repr__(self) -> str:
        following = self.next_base_offset
        end = "is_active=True" if following is None else f"next_base_offset={following}"
        return f"LogSegment({str(self.log_path)!r}, {end})"

    def _path(self, suffix: str) -> Path:
        return self.directory / segment_file_name(self.base_offset, suffix + self.temporary)

    @cached_property
    def log_path(self) -> Path:
        """Path of the ``.log`` file."""
        return self._path(".log")

    @property
    def offset_index_path(self) -> Path:
        """Path of the ``.index`` file, which may be missing."""
        return self._path(".index")

    @property
    def time_index_path(self) -> Path:
        """Path of the ``.timeindex`` file, which may be missing."""
        return self._path(".timeindex")

    @property
    def transaction_index_path(self) -> Path:
        """Path of the ``.txnindex`` file, which may be missing."""
        return self._path(TRANSACTION_INDEX_SUFFIX)

    @property
    def is_active(self) -> bool:
        """Whether this is the last segment of its log."""
        return self.next_base_offset is None

    @cached_property
    def _log_stat(self) -> os.stat_result:
        try:
            return stat_regular(self.log_path)
        except FileNotFoundError as error:
            raise SegmentGoneError(self.log_path) from error

    @property
    def size(self) -> int:
        """Size of the ``.log`` file in bytes, as of the first call."""
        return self._log_stat.st_size

    @property
    def last_modified_ns(self) -> int:
        """Modification time of the ``.log`` file, ns since 1970."""
        return self._log_stat.st_mtime_ns

    @property
    def last_modified_ms(self) -> int:
        """Modification time of the ``.log`` file as a broker sees it: ms since 1970."""
        return self._log_stat.st_mtime_ns // 1_000_000

    @cached_property
    def offset_index(self) -> OffsetIndex | None:
        """The offset index; None if the file is missing."""
        try:
            return OffsetIndex.open(self.offset_index_path, self.base_offset).load()
        except FileNotFoundError:
            return None

    @property
    def transaction_index(self) -> TransactionIndex:
        """The transaction index; empty if the file is missing."""
        return TransactionIndex.open(self.transaction_index_path, self.base_offset)

    @cached_property
    def time_index(self) -> TimeIndex | None:
        """The time index; None if the file is missing."""
        try:
            return TimeIndex.open(self.time_index_path, self.base_offset).load()
        except FileNotFoundError:
            return None

    def open_log(self) -> LogFile:
        """Open the ``.log`` file at its place in the log; the caller closes it."""
        return _open_log(self.log_path, self._bounds)

    @cached_property
    def kept_log(self) -> KeptLog:
        """The ``.log`` file at its place in the log, which stays open for a while."""
        return KeptLog(partial(_open_log, self.log_path, self._bounds))

    def open_as_broker(self) -> LogFile:
        """Open the ``.log`` file as a broker does, without checking its place in the log.

        Scans then end at the first bytes that are not a batch.
        """
        return _open_log(self.log_path)

    @property
    def _bounds(self) -> SegmentBounds:
        return SegmentBounds(self.base_offset, self.next_base_offset)

    @cached_property
    def summary(self) -> SegmentSummary:
        """The result of one pass over all batch headers; it ends early at corrupt bytes."""
        valid_bytes, count, magics, largest = 0, 0, set[int](), -1
        next_offset, corrupt = self.base_offset, None
        with self.open_log() as log:
            try:
                for run in log.runs():
                    headers = run.headers
                    count += len(headers)
                    magics.update(np.flatnonzero(np.bincount(headers["magic"])).tolist())
                    largest = max(largest, int(headers["max_timestamp"].max()))
                    valid_bytes, next_offset = run.end_position, run.next_offset
            except CorruptionError as error:
                corrupt = error
        return SegmentSummary(
            valid_bytes,
            count,
            frozenset(magics),
            next_offset,
            largest if largest >= 0 else None,
            corrupt,
        )

    def rebuilt_indexes(
        self, index_interval_bytes: int = INDEX_INTERVAL_BYTES, *, rules: BrokerRules = NEWEST
    ) -> RebuiltIndexes:
        """Build both indexes from the log, in memory; see `rebuild_indexes`."""
        interval = whole_number("index_interval_bytes", index_interval_bytes, 0, INT32_MAX)
        try:
            return rebuild_indexes(
                self.log_path, self.base_offset, index_interval_bytes=interval, rules=rules
            )
        except FileNotFoundError as error:
            raise SegmentGoneError(self.log_path) from error

    def position_before(self, target_offset: int, log: LogFile) -> int:
        """Find a batch at or before the one that holds an offset.

        Parameters
        ----------
        target_offset : int
            Absolute.
        log : LogFile
            The open log of this segment.

        Returns
        -------
        int
            Byte position of a batch; every record before it has a smaller offset. 0 if the index is
            missing, can't be read, or its entry does not match the log.

        Notes
        -----
        The position is before the requested batch, because a scan finds a wrong offset only by
        comparing it with the batch before. If the floor entry points at the requested batch itself,
        or at one that ends before the entry's offset, the entry before it is used.
        """
        if target_offset <= self.base_offset:
            return 0
        try:
            index = self.offset_index
        except CorruptIndexError:
            return 0
        if index is None or (floor := index.lookup(target_offset)).position <= 0:
            return 0
        entry, header = floor, log.header_at(floor.position)
        if (
            header is None
            or not floor.offset <= header["last_offset"] < target_offset
            or floor.position + int(header["size"]) >= log.size
        ):
            entry = index.lookup(floor.offset - 1)
        if entry.position <= 0:
            return 0
        first_offset = log.first_offset_at(entry.position)
        fits = first_offset is not None and self.base_offset <= first_offset <= entry.offset
        return entry.position if fits and entry.offset <= target_offset else 0

    @property
    def next_offset(self) -> int:
        """Offset after the last readable batch; the base offset if there is none."""
        return self._end[0]

    @property
    def end_error(self) -> CorruptionError | None:
        """Why the bytes after `next_offset` can't be read; None at the end of the log."""
        return self._end[1]

    @cached_property
    def _end(self) -> tuple[int, CorruptionError | None]:
        return self._find_end(verify_crc=False)

    @cached_property
    def verified_end(self) -> tuple[int, CorruptionError | None]:
        """`next_offset` and `end_error`, with the checksums of the last batches checked."""
        return self._find_end(verify_crc=True)

    def _find_end(self, *, verify_crc: bool) -> tuple[int, CorruptionError | None]:
        next_offset, error = self.base_offset, None
        with self.open_log() as log:
            last = self.position_before(_LAST_OFFSET, log) if log.size else 0
            # The index may point at a wrong position: then scan again from the first batch.
            for position in (last, 0) if last else (0,):
                next_offset, error = self.base_offset, None
                try:
                    for run in log.runs(position, verify_crc=verify_crc, first_read=SMALLEST_READ):
                        next_offset = run.next_offset
                    break
                except CorruptionError as corrupt:
                    error = corrupt
        return next_offset, error

    @cached_property
    def salvaged_end(self) -> tuple[int, int]:
        """Byte position and offset after the last readable batch of all."""
        position, next_offset = 0, self.base_offset
        with self.open_as_broker() as log:
            for good in stretches(log, self.base_offset, self.next_base_offset):
                position, next_offset = good.end, good.next_offset
        return position, next_offset

    def translate_offset(
        self, target_offset: int, starting_position: int = 0
    ) -> LogOffsetPosition | None:
        """Find the batch that holds an offset, or the first batch after it.

        Parameters
        ----------
        target_offset : int
            Absolute.
        starting_position : int
            Byte position to search from, if it is after the position that the index gives.

        Returns
        -------
        LogOffsetPosition or None
            Last offset, position and size of the first batch whose last offset is at least
            `target_offset`; None if there is no such batch.

        Notes
        -----
        Source: Kafka 2.4.0 ``LogSegment.translateOffset``.
        """
        target_offset = whole_number("target_offset", target_offset)
        starting_position = whole_number("starting_position", starting_position)
        with self.open_log() as log:
            position = max(self.position_before(target_offset, log), starting_position)
            return log.search_for_offset(target_offset, position)

    @cached_property
    def largest_timestamp_by_index(self) -> int | None:
        """The largest timestamp (ms) by the time index; None if the index is not trusted.

        An index is trusted if its entries are in order and the first and the last match the log:
        the batch that holds the entry's offset has exactly that maximum timestamp, and no batch
        before the first entry is later. The batches after the last entry are read, because an index
        may lack its last entries (a running or killed broker); if timestamps rise, that is one
        interval. The batches between the first entry and the last are not read: see
        `index_check`.
        """
        try:
            return segment_summary.largest_timestamp_by_index(
                self._path_without_suffix, self.base_offset, self.open_log, self.temporary
            )
        except CorruptionError:
            return None

    @cached_property
    def index_check(self) -> IndexCheck:
        """The times according to all batches, read once with their checksums."""
        return check_time_index(
            self._path_without_suffix,
            self.base_offset,
            self._read_time_entries,
            self.open_log,
            self.temporary,
            is_active=self.is_active,
        )

    def _read_time_entries(self) -> NDArray[np.void]:
        """Read the time index's entries uncached: most are needed only once."""
        try:
            with TimeIndex.open(self.time_index_path, self.base_offset) as index:
                return index.entries()
        except (FileNotFoundError, CorruptIndexError):
            return _NO_ENTRIES

    @property
    def _path_without_suffix(self) -> str:
        return f"{os.fspath(self.directory)}/{segment_file_name(self.base_offset, '')}"

    def last_time_entry(self, *, with_padding: bool = False) -> TimestampOffset | None:
        """Read the last entry of the time index; reads only it and the padding.

        Parameters
        ----------
        with_padding : bool
            Whether zero padding counts as entries.

        Returns
        -------
        TimestampOffset or None
            (-1, base offset) for an empty index; None if the file is missing or can't be read.
        """
        return segment_summary.last_time_entry(
            f"{self._path_without_suffix}.timeindex{self.temporary}",
            self.base_offset,
            with_padding=with_padding,
        )

    def largest_record_timestamp(self, indexes: Indexes = DEFAULT_INDEXES) -> int | None:
        """Return the largest timestamp of the segment's batches.

        Parameters
        ----------
        indexes : str
            ``"trust"``: use the time index if it is trusted, else all headers. Otherwise use all
            batches, read once with their checksums.

        Returns
        -------
        int or None
            ms since 1970; None if no record has a timestamp.

        Raises
        ------
        CorruptionError
            If the segment is corrupt and no time index is trusted.
        """
        if check_indexes(indexes) == "trust":
            if self.largest_timestamp_by_index is not None:
                return self.largest_timestamp_by_index
            if self.summary.error is not None:
                raise self.summary.error.again()
            return self.summary.largest_record_timestamp
        checked = self.index_check
        if checked.error is not None:
            raise checked.error.again()
        return checked.largest_timestamp if checked.largest_timestamp >= 0 else None

    def may_reach(self, target_timestamp: int, indexes: Indexes = DEFAULT_INDEXES) -> bool:
        """Return whether a record may have at least a timestamp; False if none has.

        Parameters
        ----------
        target_timestamp : int
            ms since 1970, inclusive; at least 0.
        indexes : str
            As for `largest_record_timestamp`.

        Returns
        -------
        bool
            True also if it is unknown, because the segment is corrupt.
        """
        if check_indexes(indexes) == "trust":
            if self.largest_timestamp_by_index is None and self.summary.error is not None:
                return True
            largest = self.largest_record_timestamp(indexes)
            return largest is not None and largest >= target_timestamp
        checked = self.index_check
        # Records after corrupt bytes are unknown.
        return checked.error is not None or checked.largest_timestamp >= target_timestamp

    def find_offset_by_timestamp(
        self, target_timestamp: int, starting_offset: int, indexes: Indexes = DEFAULT_INDEXES
    ) -> TimestampAndOffset | None:
        """Find the first record with at least a timestamp, at or after an offset.

        Parameters
        ----------
        target_timestamp : int
            ms since 1970, inclusive.
        starting_offset : int
            Inclusive.
        indexes : str
            See `search_by_time`.

        Returns
        -------
        TimestampAndOffset or None
            Transaction markers are skipped.
        """
        return self.search_by_time(indexes).find(
            whole_number("target_timestamp", target_timestamp),
            whole_number("starting_offset", starting_offset),
        )

    def search_by_time(self, indexes: Indexes = DEFAULT_INDEXES) -> SegmentSearch:
        """Return the search by time, which starts at a time index entry if it is true.

        Parameters
        ----------
        indexes : str
            How the entries of the time index are checked. ``"check"``: against all batches, read
            once with their checksums. ``"trust"``: the first entry, the last, and the one that a
            search starts at must match the log, whose checksums are not verified. ``"ignore"``: as
            ``"check"``, but time index entries are not used; each search starts at the segment's
            first byte, or at the offset index entry for its starting offset.

        Returns
        -------
        SegmentSearch
            The same object each time, which keeps the log open.
        """
        if check_indexes(indexes) == "trust":
            return self._trusting_search
        return self._checked_search if indexes == "check" else self._scanning_search

    @cached_property
    def _trusting_search(self) -> SegmentSearch:
        is_trusted = self.largest_timestamp_by_index is not None
        return self._search(None, with_time_entries=is_trusted)

    @cached_property
    def _checked_search(self) -> SegmentSearch:
        checked = self.index_check
        return self._search(checked, with_time_entries=checked.index_holds)

    @cached_property
    def _scanning_search(self) -> SegmentSearch:
        return self._search(self.index_check, with_time_entries=False)

    def _search(self, checked: IndexCheck | None, *, with_time_entries: bool) -> SegmentSearch:
        time_entries = offset_entries = b""
        # Without an index the search starts at the segment's first batch.
        with suppress(CorruptIndexError):
            if with_time_entries and self.time_index is not None:
                time_entries = self.time_index.entry_bytes()
        with suppress(CorruptIndexError):
            if self.offset_index is not None:
                offset_entries = self.offset_index.entry_bytes()
        return SegmentSearch(
            # No reference to the segment: descriptors are closed when the segment goes.
            partial(_open_log, self.log_path, self._bounds) if checked is None
            else partial(_open_checked, self.log_path, self._bounds, checked),
            self.base_offset,
            time_entries,
            offset_entries,
            checks_entries=True,
            skip_control=True,
            checks_order=checked is None or checked.error is not None,
        )


def _open_log(path: Path, bounds: SegmentBounds | None = None) -> LogFile:
    try:
        return LogFile(path, bounds)
    except FileNotFoundError as error:
        raise SegmentGoneError(path) from error


def _open_checked(path: Path, bounds: SegmentBounds, checked: IndexCheck) -> LogFile:
    """Open a log if it is the checked file; bytes may have been appended."""
    log = _open_log(path, bounds)
    status = os.fstat(log.descriptor)
    if (status.st_dev, status.st_ino) != checked.identity[:2] or log.size < checked.identity[2]:
        log.close()
        raise SegmentGoneError(path)
    return log
