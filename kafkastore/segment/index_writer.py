"""Writers for the index files of the active segment."""

from __future__ import annotations

from pathlib import Path

from kafkastore.formats.indexes.index_growth import max_entries, preallocated_size
from kafkastore.formats.indexes.transaction_index import ENTRY_SIZE as TRANSACTION_ENTRY_SIZE
from kafkastore.fs import FileSystem


class IndexWriter:
    """Write an offset or time index, preallocated while it grows, trimmed at close.

    `entry_size` is 8 for an offset index and 12 for a time index. The bytes after the last entry
    are always zero.
    """

    # pwrite, never a mapping: a full disk then raises an error and not a signal.

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
        """Preallocate the file, as a broker does for the active segment.

        `max_index_size` is ``segment.index.bytes``, rounded down to whole entries.
        """
        self.truncate_to(self.entry_count)
        size = max(preallocated_size(max_index_size, self._entry_size), self._used_bytes)
        self._fs.truncate(self._descriptor, size)
        self.max_entries = max_entries(size, self._entry_size)

    def append(self, entries: bytes) -> None:
        """Write entries after the last one; the caller has checked that there is room."""
        self._fs.pwrite_all(self._descriptor, entries, self._used_bytes)
        self._used_bytes += len(entries)

    def truncate_to(self, entry_count: int) -> None:
        """Keep the first `entry_count` entries, and drop the others and all padding."""
        self._used_bytes = entry_count * self._entry_size
        self._fs.truncate(self._descriptor, self._used_bytes)
        self.max_entries = entry_count

    def flush(self) -> None:
        """Make the entries durable."""
        self._fs.fsync(self._descriptor)

    def close(self) -> None:
        """Close the file without trimming it."""
        if self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            self._fs.close(descriptor)


class TransactionIndexWriter:
    """Write a transaction index, whose file is created for the first entry."""

    def __init__(self, path: Path, fs: FileSystem) -> None:
        self._path, self._fs = path, fs
        self._descriptor = fs.open_write(path) if path.exists() else -1
        size = path.stat().st_size if self._descriptor >= 0 else 0
        self._used_bytes = size // TRANSACTION_ENTRY_SIZE * TRANSACTION_ENTRY_SIZE

    def append(self, entries: bytes) -> None:
        """Write entries after the last one."""
        if self._descriptor < 0:
            self._descriptor = self._fs.create(self._path)
        self._fs.pwrite_all(self._descriptor, entries, self._used_bytes)
        self._used_bytes += len(entries)

    def truncate_to(self, entry_count: int) -> None:
        """Keep the first `entry_count` entries."""
        if self._descriptor >= 0:
            self._used_bytes = entry_count * TRANSACTION_ENTRY_SIZE
            self._fs.truncate(self._descriptor, self._used_bytes)

    def flush(self) -> None:
        """Make the entries durable."""
        if self._descriptor >= 0:
            self._fs.fsync(self._descriptor)

    def close(self) -> None:
        """Close the file, if it is open."""
        if self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            self._fs.close(descriptor)
