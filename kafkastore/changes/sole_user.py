"""Making sure that nobody else alters a log directory while a job does."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from kafkastore.errors import ChangeRefusedError
from kafkastore.formats.file_names import LOCK_FILE
from kafkastore.fs import LockFile, kept_from_children, lock_holder
from kafkastore.log.log_store import is_partition_directory
from kafkastore.paths import refuse_remote


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


class SoleUser:
    """Whoever keeps brokers and other jobs off a directory; to be called before each alteration.

    Parameters
    ----------
    root : Path
        The directory.
    locks : dict of Path to int or None
        The lock files that a broker would hold, each with its inode where it is held here.
    """

    def __init__(self, root: Path, locks: dict[Path, int | None]) -> None:
        self.root, self.locks = root, locks
        self._process = os.getpid()

    def __call__(self) -> None:
        """Look whether a broker has come nevertheless.

        Raises
        ------
        ChangeRefusedError
            If one has.
        """
        for path in self.locks:
            holder = lock_holder(path)
            if holder is not None and holder != self._process:
                raise ChangeRefusedError(_held(self.root, path, holder))


def check_still_held(root: Path, locks: Mapping[Path, int | None]) -> None:
    """Look, in another process than the sole user's, whether a broker has come.

    Parameters
    ----------
    root : Path
        The directory.
    locks : mapping of Path to int or None
        As of `SoleUser`, which is known to be at work.

    Raises
    ------
    ChangeRefusedError
        If one has.
    """
    for path, inode in locks.items():
        # One that is held is not asked after: on another machine nobody could tell who holds it.
        if inode is not None and _inode(path) == inode:
            continue
        holder = lock_holder(path)
        if holder is not None:
            raise ChangeRefusedError(_held(root, path, holder))


@contextmanager
def sole_user(root: Path) -> Iterator[SoleUser]:
    """Keep brokers and other jobs of ours off a directory for the length of a `with` block.

    Parameters
    ----------
    root : Path
        A log.dirs root or a partition directory.

    Yields
    ------
    SoleUser
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
    refuse_remote(root)
    with ExitStack() as held:
        paths = lock_files(root)
        held.enter_context(_locked_directory(root, fcntl.LOCK_EX))
        for path in paths[1:]:
            # A job of the whole root keeps out, one of another partition does not.
            with suppress(PermissionError):
                held.enter_context(_locked_directory(path.parent, fcntl.LOCK_SH))
        check_no_broker(root)
        yield SoleUser(root, {path: _take(root, path, held) for path in paths})


def _take(root: Path, path: Path, held: ExitStack) -> int | None:
    """Hold a broker's lock file if there is one that we may write to; return its inode."""
    try:
        lock = LockFile(path)
        held.callback(lock.close)
        return lock.inode
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
    return None


def _inode(path: Path) -> int | None:
    """Return a file's inode; None if it is not there."""
    try:
        return os.stat(path).st_ino
    except FileNotFoundError:
        return None


@contextmanager
def _locked_directory(root: Path, kind: int) -> Iterator[None]:
    """Exclude other jobs of this package by an advisory lock on the directory itself."""
    try:
        descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise ChangeRefusedError(f"{root} is no directory (any more)") from error
    try:
        try:
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ChangeRefusedError(f"another job alters {root} at this moment") from error
        except OSError as error:
            # Network file systems may not lock directories; the journal and the file states still
            # hold.
            if error.errno not in (
                errno.EBADF,
                errno.ENOLCK,
                errno.ENOTSUP,
                errno.ENOSYS,
                errno.EINVAL,
            ):
                raise
        with kept_from_children(descriptor):
            yield
    finally:
        os.close(descriptor)


def _held(root: Path, path: Path, holder: int | None) -> str:
    """Say who has the directory open."""
    who = f"process {holder}" if holder and holder > 0 else "a process elsewhere"
    return f"{who} holds {path}: stop the broker that has {root} open"
