"""The state of a file at one moment, to find out later whether it has changed."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from dataclasses import dataclass
from pathlib import Path

from kafkastore.errors import ChangeRefusedError, RefusalReason
from kafkastore.formats.state.file_names import LOG_SUFFIX
from kafkastore.paths import to_path
from kafkastore.reads import fetch_bytes, is_remote
from kafkastore.segment.salvage import SECTOR_BYTES
from kafkastore.segment.small_file import most_bytes

_CHUNK_BYTES = 1 << 20
#: The unit of `st_blocks`, on every system.
_BLOCK_BYTES = 512

#: The mode bits that a plan can set.
PERMISSIONS = 0o777
#: What to do about a file that changes during a job.
STOP_WRITER = "stop the process that writes to it, and repeat the command"


@dataclass(frozen=True, slots=True)
class FileState:
    """A file's size in bytes, SHA-256 in hexadecimal, mtime, mode and owners.

    In the digest, sectors that the disk cannot read count as zeros, so that such a file can be set
    aside. `mode` has permission bits only: no setuid, setgid or sticky bit.
    """

    size: int
    sha256: str
    mtime_ns: int
    mode: int
    user: int
    group: int

    @classmethod
    def of_bytes(cls, data: bytes, like: os.stat_result) -> FileState:
        """Return the state of a file with these bytes and another file's metadata."""
        return cls.of_digest(len(data), hashlib.sha256(data).hexdigest(), like)

    @classmethod
    def of_digest(cls, size: int, sha256: str, like: os.stat_result) -> FileState:
        """Return the state of a file with this digest and another file's metadata."""
        mode = like.st_mode & PERMISSIONS
        return cls(size, sha256, like.st_mtime_ns, mode, like.st_uid, like.st_gid)

    def same_bytes(self, other: FileState | None) -> bool:
        """Return whether the other file holds the same bytes."""
        return other is not None and (self.size, self.sha256) == (other.size, other.sha256)

    def same_file(self, other: FileState | None) -> bool:
        """Return whether the other file has the same bytes and modification time.

        Mode and owners do not count: a change of owner changes no data.
        """
        return self.same_bytes(other) and other is not None and self.mtime_ns == other.mtime_ns

    def looks_same(self, status: os.stat_result | None) -> bool:
        """Return whether size and modification time are equal; the bytes are not read."""
        return status is not None and (self.size, self.mtime_ns) == (
            status.st_size,
            status.st_mtime_ns,
        )


def status_of(path: Path, dir_fd: int | None = None) -> os.stat_result | None:
    """Return the `lstat` of a regular file; None if it is missing.

    With a `dir_fd` the name is looked up in that open directory. Anything else is refused: a
    symbolic link or a device is never replaced.
    """
    try:
        status = os.lstat(path if dir_fd is None else path.name, dir_fd=dir_fd)
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(status.st_mode):
        raise not_a_file(path)
    return status


def not_a_file(path: Path) -> ChangeRefusedError:
    """Return the error for a path that must be a regular file."""
    return ChangeRefusedError(
        f"{path} is not a regular file; move it away", RefusalReason.NOT_A_FILE, path
    )


def read_state(path: str | os.PathLike[str]) -> FileState | None:
    """Read the state of a file; None if it is missing.

    Refused if it changes while it is read, is not a regular file, or is sparse and larger than any
    valid file: the digest of 1 TiB of zeros takes an hour.
    """
    path = to_path(path)
    if status_of(path) is None:
        return None
    with open(path, "rb", buffering=0) as file:
        before = os.fstat(file.fileno())
        if not is_remote(file.fileno()):
            _check_holes(path, before)
        digest = _digest(file.fileno())
        after = os.fstat(file.fileno())
    if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns):
        raise ChangeRefusedError(
            f"{path} changes while it is read; {STOP_WRITER}", RefusalReason.CHANGED, path
        )
    return FileState.of_digest(after.st_size, digest, after)


def _check_holes(path: Path, status: os.stat_result) -> None:
    """Refuse a sparse file that is larger than any valid one with its name."""
    size, most = status.st_size, most_bytes(path)
    if size <= most or status.st_blocks * _BLOCK_BYTES >= size:
        return
    if LOG_SUFFIX in path.name:
        remedy = "shorten a copy of it (cp --sparse=always, truncate -s) to its valid bytes"
    else:
        remedy = "move it away"
    raise ChangeRefusedError(
        f"{path} is sparse and has {size} bytes; such a file ends at byte {most} at the latest; "
        f"{remedy}",
        RefusalReason.TOO_LARGE,
        path,
    )


def _digest(descriptor: int) -> str:
    """Return the digest of an open file."""
    digest, position = hashlib.sha256(), 0
    while chunk := _read(descriptor, position):
        digest.update(chunk)
        position += len(chunk)
    return digest.hexdigest()


def _read(descriptor: int, position: int) -> bytes:
    """Read from a position; zeros up to the next sector if the disk cannot read it."""
    fetch_bytes(descriptor, position, position + _CHUNK_BYTES)
    try:
        return os.pread(descriptor, _CHUNK_BYTES, position)
    except OSError as error:
        if error.errno != errno.EIO:
            raise
    size = os.fstat(descriptor).st_size
    return bytes(min(SECTOR_BYTES - position % SECTOR_BYTES, max(size - position, 0)))
