"""Small files that are read whole: checkpoints, snapshots, indexes, our own JSON.

The largest size of each kind of file limits how much is read: a sparse or wrong file of any size
needs no more memory than the largest valid one.
"""
from __future__ import annotations

import errno
import os
from os import PathLike

from kafkastore.arguments import INT32_MAX
from kafkastore.errors import CorruptionError, NotAFileError
from kafkastore.formats.primitives.json_text import MAX_JSON_BYTES
from kafkastore.formats.state.file_names import (
    LOG_SUFFIX,
    META_PROPERTIES,
    OFFSET_INDEX_SUFFIX,
    PARTITION_METADATA,
    PRODUCER_SNAPSHOT_SUFFIX,
    QUORUM_STATE,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
)
from kafkastore.paths import to_path
from kafkastore.reads import fetch_bytes
from kafkastore.segment.regular_file import check_regular, open_regular

READ_SIZE = 1 << 20

_MIB = 1 << 20
#: Such a file has a few lines of some hundred bytes.
_PROPERTIES_BYTES = _MIB
#: Lines of 200,000 partitions with the longest names, or of 2,000,000 leader epochs.
_CHECKPOINT_BYTES = 64 * _MIB
#: Some 4,000,000 producers, of 54 to 70 bytes each.
_SNAPSHOT_BYTES = 256 * _MIB
#: Preallocated with 25 times the default of ``segment.index.bytes``.
_INDEX_BYTES = 256 * _MIB
#: An entry of a transaction index, and the smallest marker that aborts a transaction.
_ABORTED_BYTES, _MARKER_BYTES = 34, 78

_BYTES_BY_NAME = {
    META_PROPERTIES: _PROPERTIES_BYTES,
    PARTITION_METADATA: _PROPERTIES_BYTES,
    QUORUM_STATE: _PROPERTIES_BYTES,
}
_BYTES_BY_SUFFIX = (
    (LOG_SUFFIX, INT32_MAX),
    (PRODUCER_SNAPSHOT_SUFFIX, _SNAPSHOT_BYTES),
    (OFFSET_INDEX_SUFFIX, _INDEX_BYTES),
    (TIME_INDEX_SUFFIX, _INDEX_BYTES),
)


def most_bytes(path: str | PathLike[str]) -> int:
    """Return the largest size in bytes of a valid file, by its name."""
    folder, name = os.path.split(path)
    if TRANSACTION_INDEX_SUFFIX in name:
        log = os.path.join(folder, name.replace(TRANSACTION_INDEX_SUFFIX, LOG_SUFFIX, 1))
        try:
            log_size = min(to_path(log).stat().st_size, INT32_MAX)
        except OSError:
            log_size = INT32_MAX  # the largest possible log
        # A crash may truncate a log and leave its index.
        return max(log_size // _MARKER_BYTES * _ABORTED_BYTES, 10 * _MIB)
    for suffix, size in _BYTES_BY_SUFFIX:
        if suffix in name:  # .deleted and the like may follow
            return size
    return _BYTES_BY_NAME.get(name, _CHECKPOINT_BYTES)


def has_bytes(path: str | PathLike[str], data: bytes, kind: type[CorruptionError]) -> bool:
    """Return whether a file has exactly these bytes; False if it is missing.

    Raises as `read_whole`, except for a missing file.
    """
    try:
        descriptor = open_regular(path)
    except FileNotFoundError:
        return False
    try:
        if os.fstat(descriptor).st_size != len(data):
            return False
        return _read(descriptor, path, kind, len(data)) == data
    finally:
        os.close(descriptor)


def read_if_there(path: str | PathLike[str], kind: type[CorruptionError]) -> bytes | None:
    """Read a whole file; None if it is missing. See `read_whole`."""
    try:
        return read_whole(path, kind)
    except FileNotFoundError:
        return None


def read_whole(path: str | PathLike[str], kind: type[CorruptionError]) -> bytes:
    """Read a whole file; raise OSError if it can't be opened.

    Raises `kind`, with path and byte position, if it can't be read or is larger than any valid file
    of its name; `NotAFileError` if it is not a regular file.
    """
    descriptor = open_regular(path)
    try:
        most = most_bytes(path)
        if (size := os.fstat(descriptor).st_size) > most:
            reason = f"the file has {size} bytes, and such a file has at most {most}"
            raise kind(reason, path=path, position=most)
        return _read(descriptor, path, kind, most)
    finally:
        os.close(descriptor)


def read_own_file(path: str | PathLike[str], *, dir_fd: int | None = None) -> bytes:
    """Read a file that this package wrote; with `dir_fd`, by name in that directory.

    Raises `NotAFileError` for a link or anything but a regular file, ValueError above
    `MAX_JSON_BYTES`, OSError if it can't be read.
    """
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        name = path if dir_fd is None else os.path.basename(path)
        descriptor = os.open(name, flags, dir_fd=dir_fd)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        raise NotAFileError(path, "a symbolic link") from error
    try:
        status = os.fstat(descriptor)
        check_regular(path, status)  # before `open`, which has no name for a directory
    except BaseException:
        os.close(descriptor)
        raise
    with open(descriptor, "rb") as file:
        if status.st_size > MAX_JSON_BYTES:
            raise ValueError(f"{os.fspath(path)} has {status.st_size} bytes, too many")
        return file.read(MAX_JSON_BYTES + 1)


def _read(
    descriptor: int, path: str | PathLike[str], kind: type[CorruptionError], most: int
) -> bytes:
    """Read from the start of the file to its end, at most `most` bytes."""
    content = bytearray()
    while len(content) < most:
        position = len(content)
        fetch_bytes(descriptor, position, position + READ_SIZE)
        try:
            part = os.pread(descriptor, min(READ_SIZE, most - position), position)
        except OSError as error:
            reason = f"the file can't be read ({error.strerror})"
            raise kind(reason, path=path, position=position) from error
        if not part:
            break
        content += part
    return bytes(content)
