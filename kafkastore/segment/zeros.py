"""Zeros at the end of a log: space that was preallocated, or that a crash left, and no records."""
from __future__ import annotations

from os import PathLike

_CHUNK_BYTES = 1 << 20


def is_zero_from(path: str | PathLike[str], position: int) -> bool:
    """Tell whether a file holds nothing but zeros from a position on.

    Parameters
    ----------
    path : path-like
        The file.
    position : int
        Bytes.

    Returns
    -------
    bool
        True, too, where the file ends before.
    """
    with open(path, "rb", buffering=0) as file:
        file.seek(position)
        while chunk := file.read(_CHUNK_BYTES):
            if chunk.strip(b"\0"):
                return False
    return True
