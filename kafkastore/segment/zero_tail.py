"""Zeros at the end of a log: preallocated space, or space that a crash left."""
from __future__ import annotations

import errno
import os
from os import PathLike

from kafkastore.reads import fetch_bytes, is_remote

_CHUNK_BYTES = 1 << 20


def is_zero_from(file: str | PathLike[str] | int, position: int) -> bool:
    """Return whether a file has only zeros from a byte position to its end.

    The result is True for a file that ends before the position. `file` is a path or an open
    descriptor, whose own position moves. Returns False if the file can't be read; raises OSError if
    it can't be opened.
    """
    with open(file, "rb", buffering=0, closefd=not isinstance(file, int)) as opened:
        opened.seek(position)
        try:
            while True:
                position = _skip_hole(opened.fileno(), position)
                fetch_bytes(opened.fileno(), position, position + _CHUNK_BYTES)
                if not (chunk := opened.read(_CHUNK_BYTES)):
                    return True
                if chunk != bytes(len(chunk)):
                    return False
                position += len(chunk)
        except OSError:  # unreadable bytes may be anything
            return False


def _skip_hole(descriptor: int, position: int) -> int:
    """Return the position of the next stored byte: holes are not read."""
    if is_remote(descriptor):
        return position  # holes of a cached remote file are bytes that were not fetched yet
    try:
        return os.lseek(descriptor, position, os.SEEK_DATA)
    except OSError as error:
        if error.errno == errno.ENXIO:
            return os.lseek(descriptor, 0, os.SEEK_END)
        return os.lseek(descriptor, position, os.SEEK_SET)
