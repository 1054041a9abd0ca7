"""The index files of a segment that is being written."""

from __future__ import annotations

from pathlib import Path

from kafkastore.formats.index_growth import max_entries, preallocated_size
from kafkastore.formats.transaction_index import ENTRY_SIZE as TRANSACTION_ENTRY_SIZE
from kafkastore.fs import FileSystem


class IndexWriter:
    """An offset or time index: of its full size while it is written, trimmed when it is closed.

    Entries are written by position, never through a mapping: a full disk is then an error and not
    a signal. What lies behind the last entry is always zeros.

    Parameters
    ----------
    descriptor : int
        Of the file, open for writing.
    entry_size : int
        8 of an offset index, 12 of a time index.
    entry_count : int
        Entries in the file.
    fs : FileSystem
        What writes.
    """

    def __init__(
        self, descriptor: int, entry_size: int, entry_count: int, fs: FileSystem
    ) -> None:
        self._descriptor, self._fs = descriptor, fs
        self._entry_size = entry_size
        self._used_bytes = entry_count * entry_size
        self.max_entries = entry_count

    @property
    def entry_count(self) -> int:
        """Entries in the file."""
        return self._used_bytes // self._entry_size

    def resize(self, max_index_size: int) -> None:
        """Give the file its full size, as a broker does for the active segment.

        Parameters
        ----------
        max_index_size : int
            ``segment.index.bytes``; rounded down to whole entries.
        """
        self.truncate_to(self.entry_count)
        size = max(preallocated_size(max_index_size, self._entry_size), self._used_bytes)
        self._fs.truncate(self._descriptor, size)
        self.max_entries = max_entries(size, self._entry_size)

    def append(self, entries: bytes) -> None:
        """Write entries behind the last one; whether there is room has been asked before."""
        self._fs.pwrite_all(self._descriptor, entries, self._used_bytes)
        self._used_bytes += len(entries)

    def truncate_to(self, entry_count: int) -> None:
        """Drop entries from the end, and all padding."""
        self._used_bytes = entry_count * self._entry_size
        self._fs.truncate(self._descriptor, self._used_bytes)
        self.max_entries = entry_count

    def flush(self) -> None:
        """Make the entries durable."""
        self._fs.fsync(self._descriptor)

    def close(self) -> None:
        """Close the file as it is."""
        if self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            self._fs.close(descriptor)


class TransactionIndexWriter:
    """A transaction index: made when the first transaction of a segment is aborted.

    Parameters
    ----------
    path : Path
        The ``.txnindex`` file; it may be missing.
    fs : FileSystem
        What writes.
    """

    def __init__(self, path: Path, fs: FileSystem) -> None:
        self._path, self._fs = path, fs
        self._descriptor = fs.open_write(path) if path.exists() else -1
        size = path.stat().st_size if self._descriptor >= 0 else 0
        self._used_bytes = size // TRANSACTION_ENTRY_SIZE * TRANSACTION_ENTRY_SIZE

    def append(self, entries: bytes) -> None:
        """Write entries behind the last one."""
        if self._descriptor < 0:
            self._descriptor = self._fs.create(self._path)
        self._fs.pwrite_all(self._descriptor, entries, self._used_bytes)
        self._used_bytes += len(entries)

    def truncate_to(self, entry_count: int) -> None:
        """Drop entries from the end."""
        if self._descriptor >= 0:
            self._used_bytes = entry_count * TRANSACTION_ENTRY_SIZE
            self._fs.truncate(self._descriptor, self._used_bytes)

    def flush(self) -> None:
        """Make the entries durable."""
        if self._descriptor >= 0:
            self._fs.fsync(self._descriptor)

    def close(self) -> None:
        """Close the file, if there is one."""
        if self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            self._fs.close(descriptor)
