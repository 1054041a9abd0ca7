"""Open files of log directories for reading; refuse everything but regular files.

A reader would wait forever on a FIFO named like a segment, and a device may never end.
"""
from __future__ import annotations

import errno
import os
import stat
from os import PathLike

from kafkastore.errors import NotAFileError
from kafkastore.segment.open_file_limit import close_all_logs

# Without O_NONBLOCK, opening a FIFO blocks until there is a writer; the flag does not affect
# regular files. O_NOCTTY: a terminal must not become the controlling terminal.
_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY

#: Errors of the kernel when a socket, or a device without a driver, is opened.
_NOT_OPENED = frozenset({errno.ENXIO, errno.ENODEV, errno.EOPNOTSUPP})

#: What a symbolic link is if opening it fails with this error of the kernel.
_LINKS = {errno.ENOENT: "a link to nothing", errno.ELOOP: "a link that leads back to itself"}

_KINDS = (
    (stat.S_ISDIR, "a directory"),
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


def open_regular(path: str | PathLike[str]) -> int:
    """Open a regular file, or a symbolic link to one, for reading.

    The caller closes the descriptor. Raises `NotAFileError` for anything else, without reading from
    it or blocking on it.
    """
    try:
        descriptor = _opened(path)
    except OSError as error:
        if error.errno in _NOT_OPENED:
            check_regular(path, os.stat(path))
        check_link(path, error)
        raise
    try:
        check_regular(path, os.fstat(descriptor))
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _opened(path: str | PathLike[str]) -> int:
    """Open a file; without free descriptors, first close the logs that are kept open."""
    try:
        return os.open(path, _FLAGS)
    except OSError as error:
        if error.errno != errno.EMFILE or not close_all_logs():
            raise
    return os.open(path, _FLAGS)


def stat_regular(path: str | PathLike[str]) -> os.stat_result:
    """Return the status of a regular file, or of one that a symbolic link leads to.

    Raises `NotAFileError` for anything else, and OSError.
    """
    status = stat_target(path)
    check_regular(path, status)
    return status


def stat_target(path: str | PathLike[str]) -> os.stat_result:
    """Return the status of any path; a link to nothing raises `NotAFileError`."""
    try:
        return os.stat(path)
    except OSError as error:
        check_link(path, error)
        raise


def is_regular(entry: os.DirEntry[str]) -> bool:
    """Return whether an entry is a regular file, or a symbolic link to one."""
    try:
        return entry.is_file()
    except OSError:  # a link that leads back to itself, or through a closed directory
        return False


def check_regular(path: str | PathLike[str], status: os.stat_result) -> None:
    """Raise `NotAFileError` unless `status` is a regular file's."""
    if not stat.S_ISREG(status.st_mode):
        kinds = (name for is_kind, name in _KINDS if is_kind(status.st_mode))
        raise NotAFileError(path, next(kinds, "something else"))


def check_link(path: str | PathLike[str], error: OSError) -> None:
    """Raise `NotAFileError` if `error` is of a link that leads to nothing."""
    kind = link_kind(path, error)
    if kind is not None:
        raise NotAFileError(path, kind) from error


def link_kind(path: str | PathLike[str], error: OSError) -> str | None:
    """Return what a symbolic link is that can't be followed; None for anything else."""
    kind = _LINKS.get(error.errno or 0)
    # The file may have been deleted meanwhile.
    return kind if kind is not None and os.path.islink(path) else None
