"""The lock that excludes brokers and other jobs during a change."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from kafkastore.errors import ChangeRefusedError, DirectoryInUseError, RefusalReason
from kafkastore.formats.state.file_names import LOCK_FILE
from kafkastore.fs import LockFile, kept_from_children, lock_holder
from kafkastore.paths import refuse_remote
from kafkastore.store.log_store import is_partition_directory


def lock_files(root: Path) -> tuple[Path, ...]:
    """Return where a broker's ``.lock`` may be for a root.

    For a symbolic link, both the directory above the link and the one above its target count.
    """
    if not is_partition_directory(root):
        return (root / LOCK_FILE,)
    above = dict.fromkeys((root.parent, Path(os.path.realpath(root)).parent))
    return tuple(directory / LOCK_FILE for directory in (root, *above))


def check_no_broker(root: Path) -> None:
    """Refuse a directory that a broker has open, or may have open."""
    for path in lock_files(root):
        try:
            holder = lock_holder(path)
        except OSError as error:
            raise ChangeRefusedError(
                f"a broker may have {root} open: {path} cannot be read ({error.strerror})",
                RefusalReason.IN_USE,
                path,
            ) from error
        if holder is not None:
            raise DirectoryInUseError(root, path, holder)


class DirectoryLock:
    """A directory that this process has locked.

    `inodes` has a broker's ``.lock`` files, each with its inode if this process holds it.
    """

    def __init__(self, root: Path, inodes: dict[Path, int | None]) -> None:
        self.root, self.inodes = root, inodes
        self._process = os.getpid()

    def check(self) -> None:
        """Refuse to continue if a broker was started anyway; called before each change."""
        for path in self.inodes:
            holder = lock_holder(path)
            if holder is not None and holder != self._process:
                raise DirectoryInUseError(self.root, path, holder)


def check_still_locked(root: Path, inodes: Mapping[Path, int | None]) -> None:
    """Do `DirectoryLock.check` in another process than the one that holds the lock."""
    for path, inode in inodes.items():
        # Do not test a held lock: another machine cannot see which process holds it.
        if inode is not None and _inode(path) == inode:
            continue
        holder = lock_holder(path)
        if holder is not None:
            raise DirectoryInUseError(root, path, holder)


@contextmanager
def locked_directory(root: Path) -> Iterator[DirectoryLock]:
    """Exclude brokers and other jobs from a log.dirs root or a partition directory.

    An existing ``.lock`` is locked as a broker locks it, so that a broker does not start meanwhile.
    It is never created, and only checked if it is not writable.
    """
    refuse_remote(root)
    with ExitStack() as held:
        paths = lock_files(root)
        held.enter_context(_flocked(root, fcntl.LOCK_EX))
        for path in paths[1:]:
            # Excludes a job on the whole root, but not one on another partition.
            with suppress(PermissionError):
                held.enter_context(_flocked(path.parent, fcntl.LOCK_SH))
        check_no_broker(root)
        yield DirectoryLock(root, {path: _take(root, path, held) for path in paths})


def _take(root: Path, path: Path, held: ExitStack) -> int | None:
    """Lock a broker's ``.lock`` if it exists and is writable; return its inode."""
    try:
        lock = LockFile(path)
        held.callback(lock.close)
        return lock.inode
    except BlockingIOError as error:
        raise DirectoryInUseError(root, path, lock_holder(path)) from error
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
    """Return a file's inode; None if it is missing."""
    try:
        return os.stat(path).st_ino
    except FileNotFoundError:
        return None


@contextmanager
def _flocked(root: Path, kind: int) -> Iterator[None]:
    """Exclude other jobs of this package by an advisory lock on the directory."""
    try:
        descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise ChangeRefusedError(
            f"{root} is not a directory, or is missing", RefusalReason.NOT_A_DIRECTORY, root
        ) from error
    try:
        try:
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ChangeRefusedError(
                f"another job changes {root} now; wait until it ends",
                RefusalReason.OTHER_JOB,
                root,
            ) from error
        except OSError as error:
            # Some network file systems cannot lock directories; the journal and the file states
            # still protect them.
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
