"""Opening the files of log directories for reading: what is no regular file is refused.

A FIFO that is named like a segment would let its reader wait for ever, a device may never end.
"""
from __future__ import annotations

import errno
import os
import stat
from os import PathLike

from kafkastore.errors import NotAFileError
from kafkastore.segment.open_logs import let_go_of_all

# Without O_NONBLOCK a FIFO is not even opened before somebody writes to it; regular files are read
# as always. O_NOCTTY: a terminal must not become ours.
_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY

#: What the kernel answers where a socket, or a device without a driver, is opened.
_NOT_OPENED = frozenset({errno.ENXIO, errno.ENODEV, errno.EOPNOTSUPP})

_KINDS = (
    (stat.S_ISDIR, "a directory"),
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


def open_regular(path: str | PathLike[str]) -> int:
    """Open a file for reading.

    Parameters
    ----------
    path : path-like
        The file, or a symbolic link to it.

    Returns
    -------
    int
        The descriptor; the caller closes it.

    Raises
    ------
    NotAFileError
        If it is no regular file. Nothing is read of it, and nothing waited for.
    OSError
        If it can't be opened.
    """
    try:
        descriptor = _opened(path)
    except OSError as error:
        if error.errno in _NOT_OPENED:
            check_regular(path, os.stat(path))
        raise
    try:
        check_regular(path, os.fstat(descriptor))
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _opened(path: str | PathLike[str]) -> int:
    """Open a file, with the descriptors of searches where there is no other left."""
    try:
        return os.open(path, _FLAGS)
    except OSError as error:
        if error.errno != errno.EMFILE or not let_go_of_all():
            raise
    return os.open(path, _FLAGS)


def check_regular(path: str | PathLike[str], status: os.stat_result) -> None:
    """Refuse what is no regular file.

    Parameters
    ----------
    path : path-like
        Its name, for the error.
    status : os.stat_result
        What ``stat`` says of it.

    Raises
    ------
    NotAFileError
        If it is something else.
    """
    if not stat.S_ISREG(status.st_mode):
        kinds = (name for is_kind, name in _KINDS if is_kind(status.st_mode))
        raise NotAFileError(path, next(kinds, "something else"))
