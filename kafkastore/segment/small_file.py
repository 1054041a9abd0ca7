"""Small files, read whole: checkpoints, snapshots, transaction indexes."""
from __future__ import annotations

import os
from os import PathLike

from kafkastore.errors import CorruptionError
from kafkastore.remote import reads
from kafkastore.segment.regular_file import open_regular

READ_SIZE = 1 << 20


def read_if_there(path: str | PathLike[str], kind: type[CorruptionError]) -> bytes | None:
    """Read a file whole; None if there is none. See `read_whole`."""
    try:
        return read_whole(path, kind)
    except FileNotFoundError:
        return None


def read_whole(path: str | PathLike[str], kind: type[CorruptionError]) -> bytes:
    """Read a file whole.

    Parameters
    ----------
    path : path-like
        The file.
    kind : type of CorruptionError
        What to raise where the device gives an error instead of bytes.

    Returns
    -------
    bytes
        Its content.

    Raises
    ------
    CorruptionError
        Of that kind, with path and byte position.
    NotAFileError
        If it is no regular file.
    OSError
        If the file can't be opened.
    """
    descriptor = open_regular(path)
    parts: list[bytes] = []
    position = 0
    try:
        while True:
            reads.need(descriptor, position, position + READ_SIZE)
            try:
                part = os.pread(descriptor, READ_SIZE, position)
            except OSError as error:
                reason = f"the file can't be read ({error.strerror})"
                raise kind(reason, path=path, position=position) from error
            if not part:
                return b"".join(parts)
            parts.append(part)
            position += len(part)
    finally:
        os.close(descriptor)
