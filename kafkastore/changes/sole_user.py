"""Making sure that nobody else alters a log directory while a job does."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from kafkastore.errors import ChangeRefusedError
from kafkastore.formats.file_names import LOCK_FILE
from kafkastore.fs import LockFile, lock_holder
from kafkastore.log.log_store import is_partition_directory


def lock_files(root: Path) -> tuple[Path, ...]:
    """Return where a broker's lock would be: in the root, and above a partition directory.

    Above by its name, and, if that is a symbolic link, where it really is.
    """
    if not is_partition_directory(root):
        return (root / LOCK_FILE,)
    above = dict.fromkeys((root.parent, Path(os.path.realpath(root)).parent))
    return tuple(directory / LOCK_FILE for directory in (root, *above))


def check_no_broker(root: Path) -> None:
    """Refuse a directory that a broker has open.

    Parameters
    ----------
    root : Path
        A log.dirs root or a partition directory.

    Raises
    ------
    ChangeRefusedError
        If a process holds the lock, or nobody can tell.
    """
    for path in lock_files(root):
        try:
            holder = lock_holder(path)
        except OSError as error:
            raise ChangeRefusedError(
                f"cannot tell whether a broker has {root} open: "
                f"{path} cannot be read ({error.strerror})"
            ) from error
        if holder is not None:
            raise ChangeRefusedError(_held(root, path, holder))


@contextmanager
def sole_user(root: Path) -> Iterator[Callable[[], None]]:
    """Keep brokers and other jobs of ours off a directory for the length of a `with` block.

    Parameters
    ----------
    root : Path
        A log.dirs root or a partition directory.

    Yields
    ------
    callable
        To be called before each alteration; raises ChangeRefusedError once a broker has come
        nevertheless.

    Raises
    ------
    ChangeRefusedError
        If a broker or another job is there.

    Notes
    -----
    An existing ``.lock`` that may be written to is locked as a broker would, so that a broker
    started meanwhile refuses to start instead of opening files that are being replaced.  The file
    is never created, and otherwise the lock is only asked after.
    """
    with ExitStack() as held:
        paths = lock_files(root)
        held.callback(os.close, _lock_directory(root, fcntl.LOCK_EX))
        for path in paths[1:]:
            # A job of the whole root keeps out, one of another partition does not.
            with suppress(PermissionError):
                held.callback(os.close, _lock_directory(path.parent, fcntl.LOCK_SH))
        check_no_broker(root)
        for path in paths:
            _take(root, path, held)
        ours = os.getpid()

        def check() -> None:
            for path in paths:
                holder = lock_holder(path)
                if holder is not None and holder != ours:
                    raise ChangeRefusedError(_held(root, path, holder))

        yield check


def _take(root: Path, path: Path, held: ExitStack) -> None:
    """Hold a broker's lock file if there is one that we may write to."""
    try:
        held.callback(LockFile(path).close)
    except BlockingIOError as error:
        raise ChangeRefusedError(_held(root, path, lock_holder(path))) from error
    except OSError as error:
        if error.errno not in (
            errno.ENOENT,
            errno.EACCES,
            errno.EPERM,
            errno.EROFS,
            errno.ENOLCK,
            errno.ENOTSUP,
            errno.ENOSYS,
        ):
            raise


def _lock_directory(root: Path, kind: int) -> int:
    """Exclude other jobs of this package by an advisory lock on the directory itself."""
    try:
        descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise ChangeRefusedError(f"{root} is no directory (any more)") from error
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(descriptor)
        raise ChangeRefusedError(f"another job alters {root} at this moment") from error
    except OSError as error:
        # Network file systems may not lock directories; the journal and the file states still hold.
        if error.errno not in (
            errno.EBADF,
            errno.ENOLCK,
            errno.ENOTSUP,
            errno.ENOSYS,
            errno.EINVAL,
        ):
            os.close(descriptor)
            raise
    return descriptor


def _held(root: Path, path: Path, holder: int | None) -> str:
    """Say who has the directory open."""
    who = f"process {holder}" if holder and holder > 0 else "a process elsewhere"
    return f"{who} holds {path}: stop the broker that has {root} open"
