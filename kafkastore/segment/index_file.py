"""The index files of one segment: opened read-only, searched in memory.

An index object is a snapshot. Opening it reads only the file's size, and the last entry is read
from the tail. The first lookup reads the used part (2 MiB for the offset index of a 1 GiB segment)
with pread and keeps it, so that later lookups read nothing. Bytes appended after the opening are
not seen. If the file is truncated during a read, the missing bytes are dropped in whole entries.
Threads may share an index; close it when no other thread reads it. See ``docs/threads.md``.

Only `raw` maps the file: a mapping of a file that shrinks kills the process.

By default the zero padding is ignored, and the result is what was written. With
``with_padding=True`` every slot of the file counts, as for a broker that loads the file.
"""

from __future__ import annotations

import mmap
import os
from io import FileIO
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Generic, Protocol, Self

import numpy as np
import numpy.typing as npt

from kafkastore.arguments import INT32_MAX, whole_number
from kafkastore.errors import CorruptIndexError
from kafkastore.formats.indexes.entries import EntryT, OffsetPosition, TimestampOffset
from kafkastore.formats.indexes.index_format import IndexFormat, offset_index, time_index
from kafkastore.formats.state.file_names import (
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    TIME_INDEX_SUFFIX,
    InvalidNameError,
    parse_segment_file,
)
from kafkastore.paths import to_path
from kafkastore.reads import fetch_bytes, is_remote
from kafkastore.segment.regular_file import open_regular
from kafkastore.segment.segment_summary import largest_used_size
from kafkastore.segment.zero_tail import next_extent

# The padding is read backwards in blocks of this size. It is a multiple of both entry sizes, so
# that no entry lies in two blocks.
TAIL_BLOCK_SIZE = 48 * 1024

#: The padding is searched, as a broker does, in files up to this size: 25 times the default.
LARGEST_PADDED_SIZE = 256 * 1024 * 1024


def base_offset_of(path: Path) -> int:
    """Return the base offset in a segment file's name, or raise InvalidNameError."""
    named = parse_segment_file(path.name)
    if named is None:
        raise InvalidNameError(f"{path} has no base offset in its name; give base_offset")
    return named.base_offset


class _OpenIndex(Protocol):
    """An index file of any kind."""

    path: Path
    size: int

    @property
    def entry_size(self) -> int:
        """Size of an entry in bytes."""

    def first_disorder(self) -> int:
        """Return the slot of the first entry that is out of order, or -1."""


def check_order(index: _OpenIndex) -> None:
    """Raise CorruptIndexError for an entry out of order, or a partial one at the end."""
    entry_size = index.entry_size
    slot, odd_bytes = index.first_disorder(), index.size % entry_size
    if slot >= 0:
        raise CorruptIndexError(
            f"entry {slot} is out of order", path=index.path, position=slot * entry_size
        )
    if odd_bytes:
        raise CorruptIndexError(
            f"{odd_bytes} bytes after the last complete entry of {entry_size} bytes",
            path=index.path,
            position=index.size - odd_bytes,
        )


class _IndexFile(Generic[EntryT]):
    """The common part of `OffsetIndex` and `TimeIndex`, without entries' meaning."""

    _format: IndexFormat[EntryT]
    _suffix: ClassVar[str]

    def __init__(self, file: FileIO, path: Path, base_offset: int) -> None:
        self._file = file
        self.path = path
        self.base_offset = base_offset
        self.size = os.fstat(file.fileno()).st_size
        self._used_size: int | None = None
        self._used: bytes | None = None
        self._odd: bytes | None = None
        self._padded: bytes | None = None
        self._raw: npt.NDArray[np.void] | None = None

    @classmethod
    def open(cls, path: str | os.PathLike[str], base_offset: int | None = None) -> Self:
        """Open an index file for reading; read permission is enough.

        Parameters
        ----------
        path : path-like
            The file.
        base_offset : int, optional
            Base offset of the segment; by default the number in the file's name.

        Returns
        -------
        OffsetIndex or TimeIndex
            The index as it is now. Close it, or use it in a ``with`` statement.

        Raises
        ------
        OSError
            If the file cannot be opened.
        NotAFileError
            If it is not a regular file.
        InvalidNameError
            If no base offset is given and the name has none.
        """
        path = to_path(path)
        if base_offset is None:
            base_offset = base_offset_of(path)
        base_offset = whole_number("base_offset", base_offset)
        return cls(FileIO(open_regular(path)), path, base_offset)

    def close(self) -> None:
        """Close the file; entries that were read before, and `raw`, stay available."""
        self._file.close()

    def load(self) -> Self:
        """Read the entries now and close the file; everything but `raw` stays available."""
        with self:
            self._used_bytes()
            self._odd_bytes()
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.path)!r}, base_offset={self.base_offset})"

    @property
    def entry_size(self) -> int:
        """Size of an entry in bytes."""
        return self._format.ENTRY_SIZE

    @property
    def entry_count(self) -> int:
        """Slots in the file, zero padding included: the entries that a broker counts."""
        return self.size // self._format.ENTRY_SIZE

    @property
    def used_entry_count(self) -> int:
        """Entries before the zero padding; reads only the padding."""
        if self._used is not None:
            return len(self._used) // self._format.ENTRY_SIZE
        if self._used_size is None:
            self._used_size = self._find_used_size()
        return self._used_size // self._format.ENTRY_SIZE

    @property
    def last_entry(self) -> EntryT:
        """The last entry before the padding; reads only the padding and this entry."""
        if self._used is None and self.used_entry_count:
            position = (self.used_entry_count - 1) * self._format.ENTRY_SIZE
            last = self._read(position, self._format.ENTRY_SIZE)
            if len(last) == self._format.ENTRY_SIZE:
                return self._last_of(last)
        return self._last_of(self._used_bytes())

    @property
    def last_entry_with_padding(self) -> EntryT:
        """The last slot, padding or not: the last entry for a broker that loads the file."""
        if self.used_entry_count == self.entry_count:
            return self.last_entry
        return self._last_of(bytes(self._format.ENTRY_SIZE))

    @property
    def raw(self) -> npt.NDArray[np.void]:
        """The slots as the file has them, big-endian and relative, without a copy.

        This is a read-only mapping. If the file is truncated while the mapping is used, the process
        dies of SIGBUS. Use it for large indexes that have no writer.
        """
        if self._raw is None:
            size = min(self.size, os.fstat(self._file.fileno()).st_size)
            size -= size % self._format.ENTRY_SIZE
            if size and is_remote(self._file.fileno()):
                self._raw = np.frombuffer(self._read(0, size), self._format.dtype_on_disk)
            elif size:
                mapped = mmap.mmap(self._file.fileno(), size, access=mmap.ACCESS_READ)
                self._raw = np.frombuffer(mapped, self._format.dtype_on_disk)
            else:
                self._raw = np.empty(0, self._format.dtype_on_disk)
        return self._raw

    def entry(self, slot: int) -> EntryT:
        """Decode the entry in one slot, padding or not.

        Parameters
        ----------
        slot : int
            0 to `entry_count` - 1, inclusive.

        Returns
        -------
        OffsetPosition or TimestampOffset
            The entry.

        Raises
        ------
        IndexError
            If the slot does not exist.
        """
        slot = whole_number("slot", slot)
        with_padding = slot >= self.used_entry_count
        return self._format.entry(self._content(with_padding), self.base_offset, slot)

    def entries(self, *, with_padding: bool = False) -> npt.NDArray[np.void]:
        """Decode all entries, with absolute offsets.

        Parameters
        ----------
        with_padding : bool
            Whether zero padding counts as entries.

        Returns
        -------
        numpy.ndarray
            Structured: `offset` and `position`, or `timestamp` and `offset`.
        """
        return self._format.parse(self._content(with_padding), self.base_offset)

    def entry_bytes(self, *, with_padding: bool = False) -> bytes:
        """Return the whole entries as the file has them.

        Parameters
        ----------
        with_padding : bool
            Whether zero padding counts as entries.

        Returns
        -------
        bytes
            Big-endian, relative offsets, as `formats` takes them; without a partial entry at the
            end of the file.
        """
        return self._content(with_padding)[: self.entry_count * self._format.ENTRY_SIZE]

    def lookup(
        self, target: int, *, with_padding: bool = False, warm_section: bool = True
    ) -> EntryT:
        """Find the last entry at or before a target, as a broker's search does.

        Parameters
        ----------
        target : int
            An absolute offset for an `OffsetIndex`, a timestamp in ms for a `TimeIndex`.
        with_padding : bool
            Whether zero padding counts as entries.
        warm_section : bool
            False searches as brokers before 2.1.0; the result differs only for unsorted entries.

        Returns
        -------
        OffsetPosition or TimestampOffset
            The entry; (base offset, 0) or (-1, base offset) if every entry is above the target.
        """
        return self._format.lookup(
            self._content(with_padding),
            self.base_offset,
            whole_number("target", target),
            warm_section=warm_section,
        )

    def lookup_many(
        self, targets: npt.ArrayLike, *, with_padding: bool = False, warm_section: bool = True
    ) -> npt.NDArray[np.void]:
        """Find the last entry at or before each of many targets, as `lookup` does.

        Parameters
        ----------
        targets : array_like of int64, shape (n,)
            Absolute offsets or timestamps, in any order.
        with_padding, warm_section : bool
            As for `lookup`.

        Returns
        -------
        numpy.ndarray, shape (n,)
            Structured, as from `entries`.
        """
        return self._format.lookup_many(
            self._content(with_padding), self.base_offset, targets, warm_section=warm_section
        )

    def truncate_to(self, offset: int) -> int:
        """Count the entries that remain when those at or after an offset are dropped.

        Parameters
        ----------
        offset : int
            First absolute offset to drop.

        Returns
        -------
        int
            The number of entries to keep; the file is not changed.
        """
        offset = whole_number("offset", offset)
        return self._format.truncate_to(self._used_bytes(), self.base_offset, offset)

    def first_disorder(self) -> int:
        """Find the first entry that is out of order.

        Returns
        -------
        int
            Its slot, or -1 if the entries are in order.
        """
        return self._format.first_disorder(self._used_bytes(), self.base_offset)

    def check(self) -> None:
        """Run a broker's sanity check: size, first and last slot.

        Raises
        ------
        CorruptIndexError
            If the check fails; the error has the path and byte position.
        """
        try:
            self._format.check(self._content(with_padding=True), self.base_offset)
        except CorruptIndexError as error:
            raise error.located(self.path) from error

    def _count_used(self, data: bytes, position: int = 0) -> int:
        """Count the entries before the zero padding in these bytes of the file."""
        return self._format.used_entry_count(data)

    def _last_of(self, data: bytes) -> EntryT:
        """Decode the last entry of these bytes."""
        return self._format.last_entry(data, self.base_offset)

    def _content(self, with_padding: bool) -> bytes:
        """Return the bytes to search."""
        return self._padded_bytes() if with_padding else self._used_bytes()

    def _used_bytes(self) -> bytes:
        """Read the used part, once."""
        used = self._used
        if used is None:
            size = self.used_entry_count * self._format.ENTRY_SIZE
            self._check_size(size, 0)
            used = self._read(0, size)
            # The file may have been truncated since its used size was read.
            if len(used) < size:
                used = used[: self._count_used(used) * self._format.ENTRY_SIZE]
            self._used = used
        return used

    def _padded_bytes(self) -> bytes:
        """Return the used part, the padding, and the partial entry at the end."""
        if self._padded is None:
            self._check_size(self.size, LARGEST_PADDED_SIZE)
            whole_entries = self.entry_count * self._format.ENTRY_SIZE
            self._padded = self._used_bytes().ljust(whole_entries, b"\0") + self._odd_bytes()
        return self._padded

    def _check_size(self, size: int, padded_size: int) -> None:
        """Raise CorruptIndexError for a file larger than any index of its log."""
        if size <= max(padded_size, largest_used_size(0, self._format.ENTRY_SIZE)):
            return
        try:
            name = self.path.name.replace(self._suffix, LOG_SUFFIX, 1)
            log_size = self.path.with_name(name).stat().st_size
        except OSError:
            log_size = INT32_MAX  # the largest possible log
        largest = max(padded_size, largest_used_size(log_size, self._format.ENTRY_SIZE))
        if size > largest:
            raise CorruptIndexError(
                f"the index has {size} bytes, and that of a log of {log_size} bytes has at most "
                f"{largest}",
                path=self.path,
                position=largest,
            )

    def _odd_bytes(self) -> bytes:
        """Read the bytes after the last whole entry, once."""
        if self._odd is None:
            whole_entries = self.entry_count * self._format.ENTRY_SIZE
            self._odd = self._read(whole_entries, self.size - whole_entries)
        return self._odd

    def _find_used_size(self) -> int:
        """Read backwards through the padding; return the size in bytes before it."""
        end = self._end_of_data()
        while end > 0:
            start = (end - 1) // TAIL_BLOCK_SIZE * TAIL_BLOCK_SIZE
            used_in_block = self._count_used(self._read(start, end - start), start)
            if used_in_block:
                return start + used_in_block * self._format.ENTRY_SIZE
            end = start
        return 0

    def _end_of_data(self) -> int:
        """Return the end of whole entries, or of the one that the last hole is in.

        Brokers preallocate by setting the length, so that the padding of most files is a hole.
        """
        end = self.entry_count * self._format.ENTRY_SIZE
        if end <= TAIL_BLOCK_SIZE:
            return end
        data_end = 0
        while (extent := next_extent(self._file.fileno(), data_end, end)) is not None:
            data_end = extent[1]
        slots = max(1, -(-data_end // self._format.ENTRY_SIZE))
        return min(slots * self._format.ENTRY_SIZE, end)

    def _read(self, position: int, size: int) -> bytes:
        """Read bytes; fewer only at the end of the file."""
        parts = []
        fetch_bytes(self._file.fileno(), position, position + size)
        while size > 0:
            try:
                part = os.pread(self._file.fileno(), size, position)
            except OSError as error:
                reason = f"the index can't be read ({error.strerror})"
                raise CorruptIndexError(reason, path=self.path, position=position) from error
            if not part:
                break
            parts.append(part)
            position += len(part)
            size -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)


class OffsetIndex(_IndexFile[OffsetPosition]):
    """The offset index file of a segment: positions in the log by offset.

    Examples
    --------
    >>> with OffsetIndex.open(path) as index:    # doctest: +SKIP
    ...     index.lookup(4711)
    OffsetPosition(offset=4703, position=20512)
    """

    _format = offset_index
    _suffix: ClassVar[str] = OFFSET_INDEX_SUFFIX

    def fetch_upper_bound(self, position: int, fetch_size: int) -> OffsetPosition | None:
        """Find the first entry at or after the end of a fetch.

        Parameters
        ----------
        position, fetch_size : int
            Byte position in the log at which the fetch starts, and its size in bytes.

        Returns
        -------
        OffsetPosition or None
            Its offset is after the last offset of the fetch. None if the fetch ends after every
            entry.
        """
        return offset_index.fetch_upper_bound(
            self._used_bytes(),
            self.base_offset,
            whole_number("position", position, 0, INT32_MAX),
            whole_number("fetch_size", fetch_size, 0, INT32_MAX),
        )


class TimeIndex(_IndexFile[TimestampOffset]):
    """The time index file of a segment: offsets by timestamp.

    Examples
    --------
    >>> with TimeIndex.open(path) as index:    # doctest: +SKIP
    ...     index.lookup(1_700_000_000_000)
    TimestampOffset(timestamp=1699999999871, offset=4703)
    """

    _format = time_index
    _suffix: ClassVar[str] = TIME_INDEX_SUFFIX
    _first_timestamp_may_be_zero = False

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        base_offset: int | None = None,
        *,
        first_timestamp_may_be_zero: bool | None = None,
    ) -> Self:
        """Open an index file for reading; read permission is enough.

        Parameters
        ----------
        path : path-like
            The file.
        base_offset : int, optional
            Base offset of the segment; by default the number in the file's name.
        first_timestamp_may_be_zero : bool, optional
            Whether (0, base offset) may be a true entry, which only the log says. That entry is
            all zeros, like padding; see `time_index.used_entry_count`. Default: True for a file of
            one slot.

        Returns
        -------
        TimeIndex
            The index as it is now. Close it, or use it in a ``with`` statement.

        Raises
        ------
        OSError
            If the file cannot be opened.
        NotAFileError
            If it is not a regular file.
        InvalidNameError
            If no base offset is given and the name has none.
        """
        index = super().open(path, base_offset)
        if first_timestamp_may_be_zero is None:  # a trimmed file has no padding
            first_timestamp_may_be_zero = index.entry_count == 1
        index._first_timestamp_may_be_zero = first_timestamp_may_be_zero
        return index

    def _count_used(self, data: bytes, position: int = 0) -> int:
        """Count the entries before the zero padding in these bytes of the file."""
        return time_index.used_entry_count(
            data,
            first_timestamp_may_be_zero=self._first_timestamp_may_be_zero and position == 0,
        )
