"""The system calls that alter files, and the lock of a log directory.

`changes` and the writers alter files only through `FileSystem`, so that a test can inject a fault
at each call. Reading needs no such object, because it cannot lose anything.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

# linux/fs.h: _IOW(0x94, 9, int)
_FICLONE = 0x40049409

# The kernel's errors if a file system has no such call; the caller then copies in another way.
NOT_SUPPORTED = frozenset(
    {
        errno.EXDEV,
        errno.EPERM,
        errno.EACCES,
        errno.EINVAL,
        errno.EMLINK,
        errno.ENOSYS,
        errno.ENOTTY,
        errno.ENOTSUP,
        errno.EOPNOTSUPP,
        errno.EBADF,
        errno.ETXTBSY,
    }
)


class FileSystem:
    """The altering system calls; errors of open files get their paths.

    With a `dir_fd` only the last part of a path is used, within that open directory: no other
    directory is altered, even if the path leads to another one meanwhile.
    """

    def create(self, path: Path, mode: int = 0o644, *, dir_fd: int | None = None) -> int:
        """Create a new file for writing and return its descriptor; fails if it exists."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        with _named(path):
            return os.open(_in(path, dir_fd), flags, mode, dir_fd=dir_fd)

    def open_append(self, path: Path) -> int:
        """Open a file for appending; create it if it is missing, refuse a symbolic link."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        with _named(path):
            return os.open(path, flags, 0o644)

    def open_write(self, path: Path) -> int:
        """Open an existing file for reading and writing at chosen positions."""
        return os.open(path, os.O_RDWR | os.O_CLOEXEC)

    def write(self, descriptor: int, data: bytes | memoryview) -> int:
        """Write some or all of the bytes; return how many."""
        try:
            return os.write(descriptor, data)
        except OSError as error:  # without a context manager: this is called for each append
            error.filename = _path_of(descriptor)
            raise

    def pwrite(self, descriptor: int, data: bytes | memoryview, position: int) -> int:
        """Write some or all of the bytes at a position; return how many."""
        try:
            return os.pwrite(descriptor, data, position)
        except OSError as error:
            error.filename = _path_of(descriptor)
            raise

    def truncate(self, descriptor: int, size: int) -> None:
        """Truncate a file, or extend it with zeros."""
        with _named(descriptor):
            os.ftruncate(descriptor, size)

    def clone(self, descriptor: int, source: int) -> None:
        """Make a new file share the other's blocks, copied on write (reflink).

        Raises OSError with an errno of `NOT_SUPPORTED` where that is not possible.
        """
        if sys.platform != "linux":
            raise OSError(errno.ENOSYS, "no reflinks by descriptor on this platform")
        with _named(descriptor):
            fcntl.ioctl(descriptor, _FICLONE, source)

    def copy_range(self, descriptor: int, source: int, position: int, size: int) -> int:
        """Copy some or all bytes of another file to the same position; return how many."""
        if sys.platform != "linux":
            return os.pwrite(descriptor, os.pread(source, min(size, 1 << 20), position), position)
        with _named(descriptor):
            return os.copy_file_range(source, descriptor, size, position, position)

    def fsync(self, descriptor: int) -> None:
        """Make a file's bytes and times durable."""
        if sys.platform == "darwin":
            # On macOS fsync leaves the bytes in the drive's own cache.
            with suppress(OSError):
                fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
                return
        with _named(descriptor):
            os.fsync(descriptor)

    def close(self, descriptor: int) -> None:
        """Close a descriptor opened here."""
        os.close(descriptor)

    def fsync_directory(self, path: Path, *, dir_fd: int | None = None) -> None:
        """Make a directory's entries durable, if the file system has such a call."""
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
        descriptor = os.open(path, flags) if dir_fd is None else dir_fd
        try:
            os.fsync(descriptor)
        except OSError as error:
            # Some network file systems refuse it for directories.
            if error.errno not in (errno.EINVAL, errno.EBADF, errno.ENOTSUP):
                error.filename = os.fspath(path)
                raise
        finally:
            if dir_fd is None:
                os.close(descriptor)

    def mkdir(self, path: Path, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        """Create one directory; fails if it exists."""
        with _named(path):
            os.mkdir(_in(path, dir_fd), mode, dir_fd=dir_fd)

    def link(
        self,
        source: Path,
        target: Path,
        *,
        src_dir_fd: int | None = None,
        dst_dir_fd: int | None = None,
    ) -> None:
        """Give a file a second name on its file system; do not follow links."""
        with _named(source, target):
            os.link(
                _in(source, src_dir_fd),
                _in(target, dst_dir_fd),
                src_dir_fd=src_dir_fd,
                dst_dir_fd=dst_dir_fd,
                follow_symlinks=False,
            )

    def rename(self, source: Path, target: Path, *, dir_fd: int | None = None) -> None:
        """Rename and replace the target atomically; both are relative to `dir_fd`."""
        with _named(source, target):
            os.replace(
                _in(source, dir_fd), _in(target, dir_fd), src_dir_fd=dir_fd, dst_dir_fd=dir_fd
            )

    def unlink(self, path: Path, *, dir_fd: int | None = None) -> None:
        """Remove a name."""
        with _named(path):
            os.unlink(_in(path, dir_fd), dir_fd=dir_fd)

    def rmdir(self, path: Path, *, dir_fd: int | None = None) -> None:
        """Remove an empty directory."""
        with _named(path):
            os.rmdir(_in(path, dir_fd), dir_fd=dir_fd)

    def chmod(self, path: Path | int, mode: int) -> None:
        """Set permission bits of a path or of an open descriptor."""
        with _named(path):
            os.chmod(path, mode)

    def chown(self, path: Path | int, user: int, group: int) -> None:
        """Set owner and group of a path or of an open descriptor."""
        with _named(path):
            os.chown(path, user, group)

    def utime(self, path: Path | int, modified_ns: int) -> None:
        """Set modification and access time, in ns, of a path or descriptor."""
        with _named(path):
            os.utime(path, ns=(modified_ns, modified_ns))

    def write_all(self, descriptor: int, data: bytes | memoryview) -> None:
        """Write all the bytes, in as many calls as necessary.

        Raises OSError if a call fails for another reason than a signal, or writes nothing.
        """
        left = memoryview(data).cast("B")
        while left:
            try:
                count = self.write(descriptor, left)
            except InterruptedError:
                continue
            if count <= 0:
                raise OSError(errno.EIO, "a write wrote nothing", _path_of(descriptor))
            left = left[count:]

    def pwrite_all(self, descriptor: int, data: bytes | memoryview, position: int) -> None:
        """Write all the bytes at a position, as `write_all` does."""
        left: bytes | memoryview = data
        while True:
            try:
                count = self.pwrite(descriptor, left, position)
            except InterruptedError:
                continue
            if count == len(left):
                return
            if count <= 0:
                raise OSError(errno.EIO, "a write wrote nothing", _path_of(descriptor))
            left, position = memoryview(left)[count:], position + count

    def replace_content(self, path: Path, data: bytes, mode: int = 0o644) -> None:
        """Replace or create a file atomically and durably: write, flush and rename.

        The new content is first in a file with the suffix ``.tmp``, which no broker reads.

        Source: Kafka 2.4.0 ``CheckpointFile.write``.
        """
        temporary = path.with_name(path.name + ".tmp")
        if temporary.exists():
            self.unlink(temporary)
        descriptor = self.create(temporary, mode)
        try:
            self.write_all(descriptor, data)
            self.fsync(descriptor)
        finally:
            self.close(descriptor)
        self.rename(temporary, path)
        self.fsync_directory(path.parent)


def _in(path: Path, dir_fd: int | None) -> str | Path:
    """Return the name of a file in an open directory."""
    return path if dir_fd is None else path.name


@contextmanager
def _named(file: Path | int, target: Path | None = None) -> Iterator[None]:
    """Put full paths into the error of a call that had a name or a descriptor."""
    try:
        yield
    except OSError as error:
        error.filename = _path_of(file) if isinstance(file, int) else os.fspath(file)
        if target is not None:
            error.filename2 = os.fspath(target)
        raise


def _path_of(descriptor: int) -> str | None:
    """Return the path of an open file, which shows which disk is full or defective."""
    with suppress(OSError, ValueError):
        if sys.platform == "linux":
            return os.readlink(f"/proc/self/fd/{descriptor}")
        if sys.platform == "darwin":
            path = fcntl.fcntl(descriptor, fcntl.F_GETPATH, bytes(1024))
            return os.fsdecode(path.rstrip(b"\0"))
    return None


#: Descriptors whose flock(2) forked children must not hold.
_not_for_children: set[int] = set()


@contextmanager
def kept_from_children(descriptor: int) -> Iterator[None]:
    """Prevent processes forked in the `with` block from holding a ``flock``.

    The lock belongs to the open file: a forked child would hold it as long as it lives.
    """
    _not_for_children.add(descriptor)
    try:
        yield
    finally:
        _not_for_children.discard(descriptor)


def _let_go_in_child() -> None:
    """Release the parent's locks; the descriptors stay open for others."""
    global _locking  # noqa: PLW0603
    _locking = threading.Lock()  # a thread of the parent may hold the other one
    if _not_for_children:
        nothing = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        for descriptor in _not_for_children:
            os.dup2(nothing, descriptor, inheritable=False)
        os.close(nothing)
        _not_for_children.clear()


os.register_at_fork(after_in_child=_let_go_in_child)


# A process loses its POSIX locks on a file when it closes *any* descriptor of that file, and the
# kernel does not report a process's own locks. So this process remembers which it holds: (pid,
# device, inode); the pid because a forked child does not inherit locks.
_held_here: set[tuple[int, int, int]] = set()
#: Guards `_held_here` with the calls that lock or close such files.
_locking = threading.Lock()


class LockFile:
    """A POSIX record lock on a log directory's ``.lock``, as a broker takes it.

    With `create` a missing file is created, as brokers do; jobs never do. Raises BlockingIOError if
    any process holds the lock. An existing file means nothing, and ``flock`` does not see the lock.

    Source: Kafka 2.4.0 ``FileLock``; fcntl(2).
    """

    def __init__(self, path: str | os.PathLike[str], *, create: bool = False) -> None:
        self.path = Path(path)
        with _locking:
            self._take(path, os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0))

    def _take(self, path: str | os.PathLike[str], flags: int) -> None:
        # Opening and closing would drop a lock that this process holds, so check before.
        if self.path.exists() and _key(os.stat(self.path)) in _held_here:
            raise BlockingIOError(errno.EAGAIN, "this process holds the lock", str(path))
        self._descriptor = os.open(self.path, flags, 0o644)
        try:
            fcntl.lockf(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._descriptor)
            if error.errno in (errno.EAGAIN, errno.EACCES):
                raise BlockingIOError(
                    errno.EAGAIN, "another process holds the lock", str(path)
                ) from error
            error.filename = os.fspath(path)
            raise
        self._held = _key(os.fstat(self._descriptor))
        _held_here.add(self._held)

    @property
    def inode(self) -> int:
        """The inode number of the locked file; its name may lead to another file by now."""
        return self._held[2]

    def close(self) -> None:
        """Release the lock; the file stays."""
        with _locking:
            if self._descriptor >= 0:
                _held_here.discard(self._held)
                os.close(self._descriptor)
                self._descriptor = -1


def lock_holder(path: str | os.PathLike[str]) -> int | None:
    """Return the id of the process that holds a lock, without taking the lock.

    None if no process holds it, or there is no such file; 0 or less if the kernel does not know the
    process (another container, another machine).
    """
    with _locking:
        try:
            if _key(os.stat(path)) in _held_here:
                return os.getpid()
            # Without O_NONBLOCK this would wait for a FIFO; only the name of the file is known.
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except FileNotFoundError:
            return None
        try:
            return _record_lock_holder(descriptor)
        finally:
            os.close(descriptor)


def _key(status: os.stat_result) -> tuple[int, int, int]:
    """Return the key of a file in the set of locks that this process holds."""
    return os.getpid(), status.st_dev, status.st_ino


def _record_lock_holder(descriptor: int) -> int | None:
    """Ask the kernel which process would block a write lock (F_GETLK)."""
    if sys.platform == "linux":  # struct flock: type, whence, start, length, pid
        asked = struct.pack("@hhqqi0q", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        kind, _, _, _, pid = struct.unpack(
            "@hhqqi0q", fcntl.fcntl(descriptor, fcntl.F_GETLK, asked)
        )
    else:  # struct flock of the BSDs: start, length, pid, type, whence
        asked = struct.pack("@qqihh", 0, 0, 0, fcntl.F_WRLCK, os.SEEK_SET)
        _, _, pid, kind, _ = struct.unpack("@qqihh", fcntl.fcntl(descriptor, fcntl.F_GETLK, asked))
    return None if kind == fcntl.F_UNLCK else int(pid)


def can_change_owners() -> bool:
    """Return whether this process may give files to any user; Linux: CAP_CHOWN."""
    with suppress(OSError), open("/proc/self/status", "rb") as lines:
        for line in lines:
            if line.startswith(b"CapEff:"):
                return bool(int(line.split()[1], 16) & 1)
    return os.geteuid() == 0
