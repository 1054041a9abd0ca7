"""Small files, read whole: checkpoints, snapshots, transaction indexes, JSON of our own."""
from __future__ import annotations

import errno
import os
from os import PathLike

from kafkastore.errors import CorruptionError, NotAFileError
from kafkastore.formats.json_text import MAX_JSON_BYTES
from kafkastore.remote import reads
from kafkastore.segment.regular_file import check_regular, open_regular

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


def read_own_file(path: str | PathLike[str], *, dir_fd: int | None = None) -> bytes:
    """Read a file that this package has written: no symbolic link, and no larger than JSON may be.

    With a `dir_fd` it is looked up by its name in that open directory.

    Raises
    ------
    NotAFileError
        If it is a symbolic link, or no regular file.
    ValueError
        If it is larger.
    OSError
        If it can't be read.
    """
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        name = path if dir_fd is None else os.path.basename(path)
        descriptor = os.open(name, flags, dir_fd=dir_fd)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        raise NotAFileError(path, "a symbolic link") from error
    with open(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        check_regular(path, status)
        if status.st_size > MAX_JSON_BYTES:
            raise ValueError(f"{os.fspath(path)} has {status.st_size} bytes, too many to be ours")
        return file.read(MAX_JSON_BYTES + 1)
