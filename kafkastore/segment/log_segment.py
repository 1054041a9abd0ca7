"""One segment: a ``.log`` file and the indexes beside it, read lazily, changed never."""
from __future__ import annotations

import os
from contextlib import suppress
from copy import copy
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kafkastore.arguments import INT32_MAX, INT64_MAX, whole_number
from kafkastore.caching import cached_property
from kafkastore.errors import CorruptIndexError, CorruptionError, SegmentGoneError
from kafkastore.formats.entries import LogOffsetPosition, TimestampAndOffset, TimestampOffset
from kafkastore.formats.file_names import TRANSACTION_INDEX_SUFFIX, segment_file_name
from kafkastore.formats.indexes import time_index
from kafkastore.segment import segment_glimpse
from kafkastore.segment.checked_times import (
    DEFAULT_INDEXES,
    CheckedTimes,
    Indexes,
    check_times,
    known_indexes,
)
from kafkastore.segment.index_file import OffsetIndex, TimeIndex
from kafkastore.segment.log_file import SMALLEST_READ, LogFile, Place
from kafkastore.segment.recovery import INDEX_INTERVAL_BYTES, RebuiltIndexes, rebuild_indexes
from kafkastore.segment.regular_file import check_regular
from kafkastore.segment.salvage import stretches
from kafkastore.segment.timestamp_search import SegmentSearch
from kafkastore.segment.transaction_index_file import TransactionIndex

_NO_ENTRIES = time_index.parse(b"", 0)
#: Behind every offset: the floor entry of this one is an index's last.
_LAST_OFFSET = INT64_MAX


class SegmentSummary(NamedTuple):
    """What one pass over a segment's batch headers tells.

    Attributes
    ----------
    valid_bytes : int
        Bytes of whole batches from the start of the file.
    batch_count : int
        Record batches, or messages before magic 2 (a wrapper counts once).
    magics : frozenset of int
        Message formats seen.
    next_offset : int
        Offset behind the last batch; the base offset where there is none.
    largest_record_timestamp : int or None
        Largest timestamp of the batch headers, ms; None where no record has one.
    error : CorruptionError or None
        Why the pass ended before the end of the file, where bytes are broken.
    """

    valid_bytes: int
    batch_count: int
    magics: frozenset[int]
    next_offset: int
    largest_record_timestamp: int | None
    error: CorruptionError | None


class LogSegment:
    """One segment of a partition's log.

    Parameters
    ----------
    directory : path-like
        The partition directory.
    base_offset : int
        As in the file names.
    next_base_offset : int or None
        Base offset of the segment behind; None for the active segment.
    temporary : str
        What stands behind the names of all its files, such as ``.swap``.

    Notes
    -----
    Files are opened for each question and closed again, so that a store of any size fits the limit
    of open files. What was read of an index, a size or a summary is kept: a segment that a broker
    appends to is made anew to see more (`PartitionLog.refresh`). Whatever opens a ``.log`` that was
    deleted meanwhile raises `SegmentGoneError`. Threads may share it: see ``docs/threads.md``.

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
        return f"LogSegment({str(self.log_path)!r})"

    def _path(self, suffix: str) -> Path:
        return self.directory / segment_file_name(self.base_offset, suffix + self.temporary)

    @cached_property
    def log_path(self) -> Path:
        """The ``.log`` file."""
        return self._path(".log")

    @property
    def offset_index_path(self) -> Path:
        """The ``.index`` file, there or not."""
        return self._path(".index")

    @property
    def time_index_path(self) -> Path:
        """The ``.timeindex`` file, there or not."""
        return self._path(".timeindex")

    @property
    def transaction_index_path(self) -> Path:
        """The ``.txnindex`` file, there or not."""
        return self._path(TRANSACTION_INDEX_SUFFIX)

    @property
    def is_active(self) -> bool:
        """Whether this is the last segment of its log."""
        return self.next_base_offset is None

    @cached_property
    def _log_stat(self) -> os.stat_result:
        try:
            status = self.log_path.stat()
        except FileNotFoundError as error:
            raise SegmentGoneError(self.log_path) from error
        check_regular(self.log_path, status)
        return status

    @property
    def size(self) -> int:
        """Bytes of the ``.log`` file, when first asked."""
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
        """The offset index; None where there is no file."""
        try:
            return OffsetIndex.open(self.offset_index_path, self.base_offset).load()
        except FileNotFoundError:
            return None

    @property
    def transaction_index(self) -> TransactionIndex:
        """The transaction index, without an entry where there is no file."""
        return TransactionIndex.open(self.transaction_index_path, self.base_offset)

    @cached_property
    def time_index(self) -> TimeIndex | None:
        """The time index; None where there is no file."""
        try:
            return TimeIndex.open(self.time_index_path, self.base_offset).load()
        except FileNotFoundError:
            return None

    def open_log(self) -> LogFile:
        """Open the ``.log`` file at its place in the log; the caller closes it."""
        return _open_log(self.log_path, self._place)

    def open_as_broker(self) -> LogFile:
        """Open the ``.log`` file as a broker does, which scans up to what is no batch."""
        return _open_log(self.log_path)

    @property
    def _place(self) -> Place:
        return Place(self.base_offset, self.next_base_offset)

    @cached_property
    def summary(self) -> SegmentSummary:
        """What one pass over all batch headers tells; corrupt bytes end it without an error."""
        valid_bytes, count, magics, largest = 0, 0, set(), -1
        next_offset, corrupt = self.base_offset, None
        with self.open_log() as log:
            try:
                for run in log.runs():
                    headers = run.headers
                    count += len(headers)
                    magics.update(np.unique(headers["magic"]).tolist())
                    largest = max(largest, int(headers["max_timestamp"].max()))
                    valid_bytes = int(headers["position"][-1] + headers["size"][-1])
                    next_offset = int(headers["last_offset"][-1]) + 1
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
        self, index_interval_bytes: int = INDEX_INTERVAL_BYTES
    ) -> RebuiltIndexes:
        """Build both indexes from the log, in memory; see `rebuild_indexes`."""
        interval = whole_number("index_interval_bytes", index_interval_bytes, 0, INT32_MAX)
        try:
            return rebuild_indexes(
                self.log_path, self.base_offset, index_interval_bytes=interval
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
            This segment's, open.

        Returns
        -------
        int
            Byte position of a batch; every record before it has a smaller offset. 0 where the index
            is missing, can't be read, or its entry does not fit the log.

        Notes
        -----
        The batch before the one that is asked for is read, too: only next to it an offset shows
        that it is wrong. Where the floor entry leads to just that one, this is of the entry before.
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
            or header["last_offset"] >= target_offset
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
        """Offset after the last batch that can be read; the base offset without any."""
        return self._end[0]

    @property
    def end_error(self) -> CorruptionError | None:
        """Why what is after `next_offset` can't be read; None where the log just ends."""
        return self._end[1]

    @cached_property
    def _end(self) -> tuple[int, CorruptionError | None]:
        return self._find_end(verify_crc=False)

    @cached_property
    def verified_end(self) -> tuple[int, CorruptionError | None]:
        """As `next_offset` and `end_error`, with the checksums of the last batches."""
        return self._find_end(verify_crc=True)

    def _find_end(self, *, verify_crc: bool) -> tuple[int, CorruptionError | None]:
        next_offset, error = self.base_offset, None
        with self.open_log() as log:
            last = self.position_before(_LAST_OFFSET, log) if log.size else 0
            # Again from the first batch where the index may have led astray.
            for position in (last, 0) if last else (0,):
                next_offset, error = self.base_offset, None
                try:
                    for run in log.runs(position, verify_crc=verify_crc, first_read=SMALLEST_READ):
                        next_offset = int(run.headers["last_offset"][-1]) + 1
                    break
                except CorruptionError as corrupt:
                    error = corrupt
        return next_offset, error

    @cached_property
    def salvaged_end(self) -> int:
        """Offset after the last whole batch that can be read, past corrupt bytes."""
        with self.open_as_broker() as log:
            good = list(stretches(log, self.base_offset, self.next_base_offset))
        return good[-1].next_offset if good else self.base_offset

    def translate_offset(
        self, target_offset: int, starting_position: int = 0
    ) -> LogOffsetPosition | None:
        """Find the batch that holds an offset, or the first behind a gap.

        Parameters
        ----------
        target_offset : int
            Absolute.
        starting_position : int
            Byte position from which to search, if that is further on than the index leads.

        Returns
        -------
        LogOffsetPosition or None
            Last offset, position and size of the first batch whose last offset is at least
            `target_offset`; None where the segment ends before.

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
        """The segment's largest timestamp by a time index that is trusted; None where it is not.

        An index is trusted if its entries are in order and the first and the last fit the log:
        the batch that holds their offset has just that maximum, and none before the first is later.
        Batches behind the last are looked at, for an index may lack its last entries (a running or
        killed broker). Where timestamps rise that is one interval. Batches between the first entry
        and the last are not looked at: see `checked_times`.
        """
        try:
            return segment_glimpse.largest_timestamp_by_index(
                self._path_without_suffix, self.base_offset, self.open_log, self.temporary
            )
        except CorruptionError:
            return None

    @cached_property
    def checked_times(self) -> CheckedTimes:
        """What the batches say of times, all of them read once, with their checksums."""
        return check_times(
            self._path_without_suffix,
            self.base_offset,
            self._read_time_entries,
            self.open_log,
            self.temporary,
            is_active=self.is_active,
        )

    def _read_time_entries(self) -> NDArray[np.void]:
        """Read the entries of the time index and keep none of them: most are needed only once."""
        try:
            with TimeIndex.open(self.time_index_path, self.base_offset) as index:
                return index.entries()
        except (FileNotFoundError, CorruptIndexError):
            return _NO_ENTRIES

    @property
    def _path_without_suffix(self) -> str:
        return f"{os.fspath(self.directory)}/{segment_file_name(self.base_offset, '')}"

    def last_time_entry(self, *, with_padding: bool = False) -> TimestampOffset | None:
        """Read the last entry of the time index, and nothing else of it but padding.

        Parameters
        ----------
        with_padding : bool
            Whether zero padding counts as entries.

        Returns
        -------
        TimestampOffset or None
            (-1, base offset) of an index without entries; None where the file is missing, or can't
            be read.
        """
        return segment_glimpse.last_time_entry(
            f"{self._path_without_suffix}.timeindex{self.temporary}",
            self.base_offset,
            with_padding=with_padding,
        )

    def largest_record_timestamp(self, indexes: Indexes = DEFAULT_INDEXES) -> int | None:
        """Return the largest timestamp of the segment's batches, ms; None where no record has one.

        Parameters
        ----------
        indexes : str
            ``"trust"``: by the time index where that is trusted, else by all headers. Otherwise by
            all batches, with their checksums.

        Raises
        ------
        CorruptionError
            If the segment is corrupt, unless a time index is trusted.
        """
        if known_indexes(indexes) == "trust":
            if self.largest_timestamp_by_index is not None:
                return self.largest_timestamp_by_index
            if self.summary.error is not None:
                raise self.summary.error
            return self.summary.largest_record_timestamp
        checked = self.checked_times
        if checked.error is not None:
            raise copy(checked.error)
        return checked.largest_timestamp if checked.largest_timestamp >= 0 else None

    def may_reach(self, target_timestamp: int, indexes: Indexes = DEFAULT_INDEXES) -> bool:
        """Tell whether a record may have at least a timestamp; False only if none has.

        Parameters
        ----------
        target_timestamp : int
            ms since 1970, inclusive; at least 0.
        indexes : str
            As for `largest_record_timestamp`; with ``"ignore"`` every segment may.
        """
        if known_indexes(indexes) == "ignore":
            return True
        if indexes == "trust":
            if self.largest_timestamp_by_index is None and self.summary.error is not None:
                return True
            largest = self.largest_record_timestamp(indexes)
            return largest is not None and largest >= target_timestamp
        checked = self.checked_times
        # What follows corrupt bytes is not known.
        return checked.error is not None or checked.largest_timestamp >= target_timestamp

    def find_offset_by_timestamp(
        self, target_timestamp: int, starting_offset: int, indexes: Indexes = DEFAULT_INDEXES
    ) -> TimestampAndOffset | None:
        """Find the first record with at least a timestamp, at or after an offset; no marker.

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
        """
        return self.search_by_time(indexes).find(
            whole_number("target_timestamp", target_timestamp),
            whole_number("starting_offset", starting_offset),
        )

    def search_by_time(self, indexes: Indexes = DEFAULT_INDEXES) -> SegmentSearch:
        """Return the search for times that begins at the entry of a time index where that is true.

        Parameters
        ----------
        indexes : str
            What makes the entries of the time index true. ``"check"``: all batches, read once,
            with their checksums. ``"trust"``: that the first entry, the last, and the one that a
            search begins at fit the log. ``"ignore"``: nothing; each search begins at the segment's
            first byte, or at the entry of the offset index for the offset to begin at.

        Returns
        -------
        SegmentSearch
            The same one each time, which keeps the log open.
        """
        if known_indexes(indexes) == "trust":
            return self._trusting_search
        return self._checked_search if indexes == "check" else self._scanning_search

    @cached_property
    def _trusting_search(self) -> SegmentSearch:
        return self._search(self.largest_timestamp_by_index is not None, None)

    @cached_property
    def _checked_search(self) -> SegmentSearch:
        checked = self.checked_times
        return self._search(checked.index_holds, checked)

    @cached_property
    def _scanning_search(self) -> SegmentSearch:
        return self._search(False, None)

    def _search(self, has_true_times: bool, checked: CheckedTimes | None) -> SegmentSearch:
        time_entries = offset_entries = b""
        # Without an index the search begins at the segment's first batch.
        with suppress(CorruptIndexError):
            if has_true_times and self.time_index is not None:
                time_entries = self.time_index.entry_bytes()
        with suppress(CorruptIndexError):
            if self.offset_index is not None:
                offset_entries = self.offset_index.entry_bytes()
        return SegmentSearch(
            # No reference back: descriptors go with the segment.
            partial(_open_log, self.log_path, self._place) if checked is None
            else partial(_open_checked, self.log_path, self._place, checked),
            self.base_offset,
            time_entries,
            offset_entries,
            checked=True,
            skip_control=True,
            checks_order=checked is None or checked.error is not None,
        )


def _open_log(path: Path, place: Place | None = None) -> LogFile:
    try:
        return LogFile(path, place)
    except FileNotFoundError as error:
        raise SegmentGoneError(path) from error


def _open_checked(path: Path, place: Place, checked: CheckedTimes) -> LogFile:
    """Open a log if it is the one that was checked, perhaps with more after it."""
    log = _open_log(path, place)
    status = os.fstat(log.descriptor)
    if (status.st_dev, status.st_ino) != checked.identity[:2] or log.size < checked.identity[2]:
        log.close()
        raise SegmentGoneError(path)
    return log
