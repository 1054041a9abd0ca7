"""Zeros at the end of a log: space that was preallocated, or that a crash left, and no records."""
from __future__ import annotations

import errno
import os
from os import PathLike

from kafkastore.reads import fetch_bytes, is_remote

_CHUNK_BYTES = 1 << 20


def is_zero_from(file: str | PathLike[str] | int, position: int) -> bool:
    """Tell whether a file holds nothing but zeros from a position on.

    Parameters
    ----------
    file : path-like or int
        The file, or the descriptor of an open one, whose own position moves.
    position : int
        Bytes.

    Returns
    -------
    bool
        True, too, where the file ends before; False where it can't be read.

    Raises
    ------
    OSError
        If the file can't be opened.
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
        except OSError:  # bytes that the device does not give are not known to be zeros
            return False


def _skip_hole(descriptor: int, position: int) -> int:
    """Go to the next byte that the file system stores, so that preallocated space is not read."""
    if is_remote(descriptor):
        return position  # its holes are bytes that were not fetched yet
    try:
        return os.lseek(descriptor, position, os.SEEK_DATA)
    except OSError as error:
        if error.errno == errno.ENXIO:
            return os.lseek(descriptor, 0, os.SEEK_END)
        return os.lseek(descriptor, position, os.SEEK_SET)
