"""Stored bytes and zeros of a file: holes and preallocated space are not read."""
from __future__ import annotations

import errno
import os
from os import PathLike

from kafkastore.reads import fetch_bytes, is_remote

_CHUNK_BYTES = 1 << 20


def next_extent(descriptor: int, position: int, size: int) -> tuple[int, int] | None:
    """Return the next stored bytes at or after a position: start, exclusive end.

    Returns None if only a hole follows. Where the system does not know the holes, all bytes up to
    `size` count as stored. The descriptor's own position moves.
    """
    if position >= size:
        return None
    if is_remote(descriptor):  # holes of a cached remote file are bytes that were not fetched yet
        return position, size
    try:
        start = os.lseek(descriptor, position, os.SEEK_DATA)
        end = os.lseek(descriptor, start, os.SEEK_HOLE)
    except OSError as error:
        return None if error.errno == errno.ENXIO else (position, size)
    return (start, min(end, size)) if start < size else None


def is_zero_from(file: str | PathLike[str] | int, position: int) -> bool:
    """Return whether a file has only zeros from a byte position to its end.

    True if it ends before the position, False if it can't be read. `file` is a path or a
    descriptor, whose position moves. Raises OSError if it can't be opened.
    """
    with open(file, "rb", buffering=0, closefd=not isinstance(file, int)) as opened:
        descriptor = opened.fileno()
        size = os.fstat(descriptor).st_size
        try:
            while (extent := next_extent(descriptor, position, size)) is not None:
                position, end = extent
                while position < end:
                    fetch_bytes(descriptor, position, min(position + _CHUNK_BYTES, end))
                    chunk = os.pread(descriptor, min(_CHUNK_BYTES, end - position), position)
                    if chunk != bytes(len(chunk)):
                        return False
                    if not chunk:  # the file was truncated
                        return True
                    position += len(chunk)
        except OSError:  # unreadable bytes may be anything
            return False
    return True
