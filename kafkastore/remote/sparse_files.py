"""Sparse local files whose bytes are fetched when they are read.

A file is fetched in blocks. A sequential reader, forwards or backwards, gets ever larger ranges per
request; a random read gets one block. The disk space is limited: when it is used up, the files that
were not read for the longest time release their blocks.

Brokers preallocate indexes, and truncate them to the used size when they close them: the index of a
killed broker has 10 MiB, nearly all zeros. A read of the end of such an index, or of all of it at
once, fetches the end and, if that is zeros, the beginning up to the first zeros; the rest is a hole
and not fetched. A sequential read from the beginning, as in a copy, fetches every byte.
"""
from __future__ import annotations

import ctypes
import os
import sys
from collections import OrderedDict
from contextlib import suppress
from threading import Lock, RLock, get_ident
from typing import NamedTuple

from kafkastore.errors import InvalidConfigError, RemoteObjectChangedError, RemoteStoreError
from kafkastore.remote.stores import RemoteObject

BLOCK_BYTES = 1 << 16
#: Objects up to this size are fetched whole by the first request.
WHOLE_BLOCKS = 4
#: Maximum of one request.
LARGEST_FETCH_BLOCKS = 128
#: Disk space in bytes for all blocks of one process; exceeded only while more is being read.
DISK_BYTES = 1 << 30
#: Files that brokers preallocate, and the size in bytes from which their zeros are not fetched.
PREALLOCATED = (".index", ".timeindex")
PREALLOCATED_BYTES = 4 << 20
#: This many zeros count as the beginning of the zeros that reach to the end.
_PADDING = bytes(1 << 14)
DISK_BYTES_VARIABLE = "KAFKASTORE_REMOTE_DISK_BYTES"

# linux/falloc.h: FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE
_PUNCH_HOLE = 0x03


class SparseFile:
    """A local file that represents an object; no other file may have its path."""

    __slots__ = (
        "_ahead", "_blocks", "_end", "_first", "_next", "is_gone", "is_inherited", "lock", "path",
        "source",
    )

    def __init__(self, path: str, source: RemoteObject) -> None:
        self.path, self.source = path, source
        self.lock = RLock()
        self.is_gone = self.is_inherited = False
        self._blocks: bytearray | None = None  # 1 for each block that is here
        self._first = self._next = -1  # blocks of the last fetch
        self._ahead = 0
        is_large = source.size >= PREALLOCATED_BYTES
        #: Exclusive end of the bytes before the zeros at the end; None until it is known.
        self._end = None if is_large and path.endswith(PREALLOCATED) else source.size
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        try:
            os.ftruncate(descriptor, source.size)
            self._keep_time(descriptor)
            status = os.fstat(descriptor)
        finally:
            os.close(descriptor)
        with _files_lock:
            _files[status.st_dev, status.st_ino] = self

    def need(self, start: int, end: int) -> None:
        """Fetch the bytes [start, end) into the file; see `kafkastore.reads.fetch_bytes`."""
        end = min(end, self.source.size)
        if start >= end:
            return
        if self.is_inherited:
            raise RemoteStoreError(
                self.source.url, "it was opened before this process was forked; open it again here"
            )
        with self.lock:
            if self._blocks is None:
                self._blocks = bytearray(-(-self.source.size // BLOCK_BYTES))
            before = _asked.get(get_ident())
            reads_on = before is not None and (before.file, before.end) == (self, start)
            # A read of all bytes at once is a search; a sequential one is a copy.
            if end - start == self.source.size or not (start == 0 or reads_on):
                if self._end is None:
                    self._end = self._find_end(self._blocks)
                end = min(end, self._end)
            if start >= end:
                return
            first, stop = start // BLOCK_BYTES, (end - 1) // BLOCK_BYTES + 1
            # Set before the bytes are fetched: what a thread last asked for is never released.
            _asked[get_ident()] = _Asked(self, first, stop, end)
            while (missing := self._blocks.find(0, first, stop)) >= 0:
                last = self._blocks.rfind(0, first, stop)
                self._fetch(self._blocks, *self._widened(self._blocks, missing, last + 1))

    def remove(self) -> None:
        """Remove the file; readers that have it open get the fetched bytes, but no more."""
        with self.lock:
            self.is_gone = True
            with suppress(FileNotFoundError):
                os.unlink(self.path)
            if self._blocks is not None:
                _note(self, -self._blocks.count(1))
                self._blocks = None

    def drop(self, kept: list[tuple[int, int]]) -> None:
        """Release all blocks except some ranges; the caller holds the lock."""
        if self._blocks is None:
            return
        left = bytearray(len(self._blocks))
        for first, stop in kept:
            left[first:stop] = self._blocks[first:stop]
        descriptor = os.open(self.path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            at = 0
            while (first := self._blocks.find(1, at)) >= 0:
                stop = _end_of(self._blocks, 0, first, len(self._blocks))
                for begin, end in _without(kept, first, stop):
                    with _writing:
                        done = _punch(
                            descriptor, begin * BLOCK_BYTES, (end - begin) * BLOCK_BYTES
                        )
                        self._keep_time(descriptor)
                    if not done:
                        return
                    _note(self, begin - end)
                    self._blocks[begin:end] = bytes(end - begin)
                at = stop
        finally:
            os.close(descriptor)

    def _widened(self, blocks: bytearray, first: int, stop: int) -> tuple[int, int]:
        """Extend a range by missing blocks that a sequential reader needs next."""
        if len(blocks) <= WHOLE_BLOCKS:
            return 0, len(blocks)
        if first == self._next:
            self._ahead = min(max(2 * self._ahead, stop - first), LARGEST_FETCH_BLOCKS)
            stop = _end_of(blocks, 1, stop, min(max(stop, first + self._ahead), len(blocks)))
        elif stop == self._first:
            self._ahead = min(max(2 * self._ahead, stop - first), LARGEST_FETCH_BLOCKS)
            wanted = max(min(first, stop - self._ahead), 0)
            first = max(wanted, blocks.rfind(1, wanted, first) + 1)
        else:
            self._ahead = min(stop - first, LARGEST_FETCH_BLOCKS)
        return first, stop

    def _find_end(self, blocks: bytearray) -> int:
        """Find the start of the zeros at the end, by the last and first blocks."""
        if self._fetch(blocks, len(blocks) - 1, len(blocks)).strip(b"\0"):
            return self.source.size
        first, count = 0, 1
        while first < len(blocks):
            stop = min(first + count, len(blocks))
            if self._fetch(blocks, first, stop).endswith(_PADDING):
                return stop * BLOCK_BYTES
            first, count = stop, min(2 * count, LARGEST_FETCH_BLOCKS)
        return self.source.size

    def _fetch(self, blocks: bytearray, first: int, stop: int) -> bytes:
        """Fetch blocks; return the bytes of the last request."""
        if self.is_gone:
            raise RemoteObjectChangedError(self.source.url, "has changed")
        self._first, self._next = first, stop
        data = b""
        while first < stop:
            end = min(stop, first + LARGEST_FETCH_BLOCKS)
            start_byte, end_byte = first * BLOCK_BYTES, min(end * BLOCK_BYTES, self.source.size)
            data = self.source.read(start_byte, end_byte)
            try:
                self._write(data, start_byte)
            except OSError as error:
                raise RemoteStoreError(
                    self.source.url,
                    f"{self.path} can't be written ({error.strerror}); free some space, or"
                    " set TMPDIR",
                    start_byte,
                    end_byte,
                ) from error
            _note(self, end - first - blocks.count(1, first, end))
            blocks[first:end] = b"\1" * (end - first)
            first = end
            _make_room(self)
        return data

    def _write(self, data: bytes, position: int) -> None:
        view = memoryview(data)
        descriptor = os.open(self.path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            with _writing:
                while view:
                    done = os.pwrite(descriptor, view, position)
                    view, position = view[done:], position + done
                self._keep_time(descriptor)
        finally:
            os.close(descriptor)

    def _keep_time(self, descriptor: int) -> None:
        """Set the modification time to the object's: it is data here."""
        os.utime(descriptor, ns=(self.source.modified_ns, self.source.modified_ns))


class _Asked(NamedTuple):
    """The blocks of a file that a thread asked for, and the exclusive end in bytes."""

    file: SparseFile
    first: int
    stop: int
    end: int


_files: dict[tuple[int, int], SparseFile] = {}
_files_lock = Lock()
#: Held while a file's modification time differs from its object's.
_writing = Lock()
#: The blocks that each thread requested last, and is about to read.
_asked: dict[int, _Asked] = {}
#: Number of present blocks by file; the most recently fetched file is last.
_held: OrderedDict[SparseFile, int] = OrderedDict()
_held_lock = Lock()


def disk_bytes() -> int:
    """Return the limit of disk space in bytes: environment, or `DISK_BYTES`."""
    value = os.environ.get(DISK_BYTES_VARIABLE, str(DISK_BYTES))
    if not value.isdecimal():
        raise InvalidConfigError(DISK_BYTES_VARIABLE, f"must be a number of bytes, got {value!r}")
    return int(value)


def find(descriptor: int) -> SparseFile | None:
    """Return the sparse file that a descriptor refers to; None for any other file."""
    return _find(os.fstat(descriptor))


def status_of(path: os.PathLike[str], *, follow_symlinks: bool = True) -> os.stat_result:
    """Do ``os.stat``, but not while a write has changed the file's modification time."""
    status = os.stat(path, follow_symlinks=follow_symlinks)
    if _find(status) is not None:
        with _writing:
            return os.stat(path, follow_symlinks=follow_symlinks)
    return status


def _find(status: os.stat_result) -> SparseFile | None:
    file = _files.get((status.st_dev, status.st_ino))
    # The inode number of a removed file may be reused by any other.
    if file is None or status.st_size != file.source.size or file.is_gone > (not status.st_nlink):
        return None
    return file


def _note(file: SparseFile, blocks: int) -> None:
    with _held_lock:
        _held[file] = _held.get(file, 0) + blocks
        _held.move_to_end(file)
        if not _held[file]:
            del _held[file]


def _make_room(asking: SparseFile) -> None:
    """Drop blocks of files not fetched lately, to three quarters of the limit.

    Skips files that are being fetched, and keeps what a thread is about to read.
    """
    room = disk_bytes() // BLOCK_BYTES
    with _held_lock:
        held, oldest_first = sum(_held.values()), [*_held]
    if held <= room:
        return
    alive = sys._current_frames().keys()
    for thread in _asked.keys() - alive:
        _asked.pop(thread, None)
    for file in oldest_first:
        if file is not asking and not file.lock.acquire(blocking=False):
            continue
        try:
            before = _held.get(file, 0)
            file.drop([(each.first, each.stop) for each in [*_asked.values()] if each.file is file])
            held -= before - _held.get(file, 0)
        finally:
            if file is not asking:
                file.lock.release()
        if held <= room * 3 // 4:
            return


def _end_of(blocks: bytearray, other: int, first: int, most: int) -> int:
    """Return the first block from `first` with the flag `other`, or `most`."""
    found = blocks.find(other, first, most)
    return most if found < 0 else found


def _without(kept: list[tuple[int, int]], first: int, stop: int) -> list[tuple[int, int]]:
    """Return the range without the ranges in `kept`."""
    ranges = [(first, stop)]
    for begin, end in kept:
        ranges = [
            part
            for low, high in ranges
            for part in ((low, min(high, begin)), (max(low, end), high))
            if part[0] < part[1]
        ]
    return ranges


def _punch(descriptor: int, position: int, size: int) -> bool:
    """Punch a hole; return False if the system cannot, so that files only grow."""
    if sys.platform != "linux":
        return False
    libc = ctypes.CDLL(None, use_errno=True)
    libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
    return bool(libc.fallocate(descriptor, _PUNCH_HOLE, position, size) == 0)


def _after_fork() -> None:
    """Leave the files to the parent process, which knows their blocks."""
    global _files_lock, _held_lock, _writing
    _files_lock, _held_lock, _writing = Lock(), Lock(), Lock()
    _asked.clear()
    _held.clear()
    for file in _files.values():
        file.lock = RLock()
        file.is_inherited = True


os.register_at_fork(after_in_child=_after_fork)
