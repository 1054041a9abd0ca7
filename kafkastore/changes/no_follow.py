"""Open directories and files without following symbolic links.

Between the check of a directory and a change in it, a user who can write to its parent can replace
it by a symbolic link. A change by descriptor and name is made in the directory that was checked.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kafkastore.changes.file_state import not_a_file
from kafkastore.errors import ChangeRefusedError, RefusalReason

# Sufficient to walk through a directory, and allowed if it cannot be listed.
_PATH_ONLY = getattr(os, "O_PATH", os.O_RDONLY)


@contextmanager
def opened_directory(path: Path) -> Iterator[int]:
    """Open a directory by its real path and yield its descriptor, for `dir_fd`.

    Refuses a path if a part of it has become a symbolic link since `os.path.realpath` returned it.
    """
    descriptor = os.open(path.anchor, _PATH_ONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        flags = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        last = len(path.parts) - 1
        for number, part in enumerate(path.parts[1:], 1):
            access = os.O_RDONLY if number == last else _PATH_ONLY
            try:
                inner = os.open(part, flags | access, dir_fd=descriptor)
            except OSError as error:
                error.filename = os.fspath(path)
                if error.errno not in (errno.ELOOP, errno.ENOTDIR):
                    raise
                above = Path(*path.parts[: number + 1])
                raise ChangeRefusedError(
                    f"{above} is a symbolic link, or not a directory; replace it by the directory",
                    RefusalReason.NOT_A_DIRECTORY,
                    above,
                ) from error
            os.close(descriptor)
            descriptor = inner
        yield descriptor
    finally:
        os.close(descriptor)


def open_file(path: Path, dir_fd: int) -> int:
    """Open a regular file in an open directory; refuse links and devices."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(path.name, flags, dir_fd=dir_fd)
    except OSError as error:
        error.filename = os.fspath(path)
        if error.errno != errno.ELOOP:
            raise
        raise not_a_file(path) from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise not_a_file(path)
    return descriptor
