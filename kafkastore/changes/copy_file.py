"""Copy a file: as a reflink where possible, else byte by byte."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from kafkastore.changes.file_state import PERMISSIONS, STOP_WRITER
from kafkastore.changes.no_follow import open_file
from kafkastore.errors import ChangeRefusedError, KafkaStoreError, RefusalReason
from kafkastore.fs import NOT_SUPPORTED, FileSystem
from kafkastore.reads import fetch_bytes, is_remote
from kafkastore.segment.zero_tail import next_extent

_CHUNK_BYTES = 1 << 20


def second_name(
    source: Path,
    target: Path,
    fs: FileSystem,
    *,
    source_directory: int,
    target_directory: int,
    may_link: bool = True,
    set_attributes: Callable[[int], None] = lambda descriptor: None,
) -> bool:
    """Give a file a second name: a hard link if possible and allowed, else a copy.

    No process writes to `source`; `target` is free; both directories are open. `set_attributes` is
    called with the descriptor of a copy. Returns whether the result is a hard link.
    """
    try:
        if may_link:
            fs.link(source, target, src_dir_fd=source_directory, dst_dir_fd=target_directory)
            return True
    except OSError as error:
        if error.errno not in NOT_SUPPORTED:
            raise
    reading = open_file(source, source_directory)
    try:
        _copy_open(source, reading, target, fs, target_directory, set_attributes)
    finally:
        os.close(reading)
    return False


def copy_file(source: Path, target: Path, fs: FileSystem) -> None:
    """Copy bytes, mode, mtime and, if allowed, owners; complete or not at all.

    Replaces an existing target. Refused if the source changes during the copy, or if the target's
    file system cannot store modification times.
    """
    reading = os.open(source, os.O_RDONLY | os.O_CLOEXEC)
    try:
        _copy_open(source, reading, target, fs)
    finally:
        os.close(reading)


def _copy_open(
    source: Path,
    reading: int,
    target: Path,
    fs: FileSystem,
    directory: int | None = None,
    set_attributes: Callable[[int], None] = lambda descriptor: None,
) -> None:
    """Copy an open file; `directory` is the target's open directory, if any."""
    part = target.with_name(target.name + ".part")
    if os.path.lexists(part):
        fs.unlink(part, dir_fd=directory)
    status = os.fstat(reading)
    writing = fs.create(part, 0o600, dir_fd=directory)
    try:
        try:
            _copy_bytes(reading, writing, status.st_size, fs)
            with suppress(PermissionError):  # a copy may belong to the user who makes it
                if (status.st_uid, status.st_gid) != _owners(writing):
                    fs.chown(writing, status.st_uid, status.st_gid)
            fs.chmod(writing, status.st_mode & PERMISSIONS)
            fs.utime(writing, status.st_mtime_ns)
            written = os.fstat(writing)
            set_attributes(writing)
            fs.fsync(writing)
        finally:
            fs.close(writing)
        now = os.fstat(reading)
        if (now.st_size, now.st_mtime_ns) != (status.st_size, status.st_mtime_ns):
            raise changed_during_copy(source)
        if written.st_mtime_ns != status.st_mtime_ns:
            raise ChangeRefusedError(
                f"the file system of {target} rounds modification times, which lookups may need: "
                f"{status.st_mtime_ns} ns became {written.st_mtime_ns}",
                RefusalReason.UNSUPPORTED,
                target,
            )
        fs.rename(part, target, dir_fd=directory)
    except (OSError, KafkaStoreError):
        discard(part, fs, directory)
        raise


def discard(temporary: Path, fs: FileSystem, directory: int | None) -> None:
    """Remove a half-written file after a failure, if that is still possible."""
    with suppress(OSError):
        fs.unlink(temporary, dir_fd=directory)


def changed_during_copy(path: Path) -> ChangeRefusedError:
    """Return the error for a file that was changed while it was copied."""
    return ChangeRefusedError(
        f"{path} changed while it was copied; {STOP_WRITER}", RefusalReason.CHANGED, path
    )


def _owners(descriptor: int) -> tuple[int, int]:
    """Return an open file's user and group."""
    status = os.fstat(descriptor)
    return status.st_uid, status.st_gid


def _copy_bytes(reading: int, writing: int, size: int, fs: FileSystem) -> None:
    """Copy all bytes: as a reflink, else by extents so that holes stay holes."""
    is_sparse = is_remote(reading)  # its holes are bytes that are not fetched yet
    try:
        if not is_sparse:
            fs.clone(writing, reading)
            return
    except OSError as error:
        if error.errno not in NOT_SUPPORTED:
            raise
    fs.truncate(writing, size)
    if is_sparse:
        for start in range(0, size, _CHUNK_BYTES):
            end = min(start + _CHUNK_BYTES, size)
            fetch_bytes(reading, start, end)
            _copy_extent(reading, writing, start, end, fs)
        return
    position = 0
    while (extent := next_extent(reading, position, size)) is not None:
        start, position = extent
        _copy_extent(reading, writing, start, position, fs)


def _copy_extent(reading: int, writing: int, start: int, end: int, fs: FileSystem) -> None:
    """Copy one extent, in the kernel where possible."""
    in_kernel = True
    while start < end:
        if in_kernel:
            try:
                count = fs.copy_range(writing, reading, start, end - start)
            except InterruptedError:
                continue
            except OSError as error:
                if error.errno not in NOT_SUPPORTED:
                    raise
                count = 0
            # Some file systems return 0 for files that they cannot copy; a read shows if it is the
            # end.
            in_kernel = count > 0
        else:
            chunk = os.pread(reading, min(end - start, _CHUNK_BYTES), start)
            if not chunk:
                return  # the file was truncated; the caller compares its size
            count = _write_at(writing, chunk, start, fs)
        start += count


def _write_at(descriptor: int, chunk: bytes, position: int, fs: FileSystem) -> int:
    """Write bytes at a position; return how many were written."""
    try:
        count = fs.pwrite(descriptor, chunk, position)
    except InterruptedError:
        return 0
    if count <= 0:
        raise OSError(errno.EIO, "a write wrote nothing")
    return count
