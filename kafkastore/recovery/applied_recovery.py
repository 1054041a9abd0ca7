"""Apply a recovery to a partition's files, and save the truncated bytes.

An interrupted run can be repeated: bytes are saved before they are cut, and files are replaced
atomically. The parts of a split log are written as a broker does it, so that a broker can also
continue from there.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from kafkastore.formats.state.file_names import (
    CLEANED_SUFFIX,
    INDEX_SUFFIXES,
    LOG_SUFFIX,
    SWAP_SUFFIX,
    parse_segment_file,
)
from kafkastore.fs import FileSystem
from kafkastore.recovery.log_recovery import RecoveredLog
from kafkastore.segment.zero_tail import is_zero_from, next_extent

_CHUNK_BYTES = 1 << 20

# Only the owner may change saved bytes.
_AREA_MODE = 0o755


def cuts_of(loaded: RecoveredLog) -> dict[str, int]:
    """Return the logs of a partition that would lose bytes, and from which byte on.

    Zeros do not count, nor do leftovers of an interrupted compaction. A split log counts as a
    whole, as its bytes move to its parts.
    """
    logs = (
        name
        for name in loaded.deleted
        if (file := parse_segment_file(name)) is not None
        and (file.type_suffix, file.temporary) == (LOG_SUFFIX, "")
    )
    now_called = {target: name for name, target in loaded.renamed.items()}
    cuts = {
        name: size
        for name, size in loaded.cut.items()
        if not is_zero_from(loaded.path / now_called.get(name, name), size)
    }
    return dict.fromkeys(logs, 0) | cuts


def apply_recovery(loaded: RecoveredLog, cut_area: Path, fs: FileSystem) -> None:
    """Change a partition's files as `recover_log` has predicted.

    Deleted logs and cut ends, except zeros, are saved in a directory of `cut_area` that is named
    after the partition and created when needed.
    """
    kept = _SavedBytes(cut_area, loaded.path.name, fs)
    split = {copied.source for copied in loaded.copied.values()}
    for name in loaded.deleted:
        if name in split:
            continue
        path = loaded.path / name
        file = parse_segment_file(name)
        if file and file.type_suffix == LOG_SUFFIX and file.temporary in ("", SWAP_SUFFIX):
            kept.copy(path, 0, name)
        fs.unlink(path)
    for name, target in loaded.renamed.items():
        fs.rename(loaded.path / name, loaded.path / target)
    for name in sorted(split):
        kept.copy(loaded.path / name, 0, name)
        _split(loaded, name, fs)
    for name, size in loaded.cut.items():
        path = loaded.path / name
        if not is_zero_from(path, size):
            kept.copy(path, size, f"{name}.from-{size}")
        descriptor = fs.open_write(path)
        try:
            fs.truncate(descriptor, size)
            fs.fsync(descriptor)
        finally:
            fs.close(descriptor)
    for name, data in loaded.written.items():
        fs.replace_content(loaded.path / name, data)
    if loaded.deleted or loaded.renamed or loaded.cut:
        fs.fsync_directory(loaded.path)


def _split(loaded: RecoveredLog, source: str, fs: FileSystem) -> None:
    """Write the parts of a split log, and remove the old log and its indexes.

    Source: Kafka 2.4.0 ``Log.replaceSegments``.
    """
    path = loaded.path / source
    parts = sorted(name for name, copied in loaded.copied.items() if copied.source == source)
    modified_ns = path.stat().st_mtime_ns
    for name in parts:
        target = loaded.path / (name + CLEANED_SUFFIX)
        if target.exists():
            fs.unlink(target)
        copied = loaded.copied[name]
        _write(target, _chunks(path, copied.start, copied.end), fs)
        if not copied.is_cut:
            fs.utime(target, modified_ns)
    fs.fsync_directory(loaded.path)
    # The last first: while one ``.cleaned`` file remains, a broker drops the ``.swap`` files.
    _rename_all(loaded.path, reversed(parts), CLEANED_SUFFIX, SWAP_SUFFIX, fs)
    for suffix in (*INDEX_SUFFIXES, LOG_SUFFIX):
        old = loaded.path / source.replace(LOG_SUFFIX, suffix)
        if old.exists():
            fs.unlink(old)
    fs.fsync_directory(loaded.path)
    _rename_all(loaded.path, parts, SWAP_SUFFIX, "", fs)


def _rename_all(
    directory: Path, names: Iterable[str], suffix: str, new_suffix: str, fs: FileSystem
) -> None:
    for name in names:
        fs.rename(directory / (name + suffix), directory / (name + new_suffix))
    fs.fsync_directory(directory)


def _write(path: Path, chunks: Iterable[bytes], fs: FileSystem) -> None:
    """Create a file and flush it to disk."""
    descriptor = fs.create(path)
    try:
        for chunk in chunks:
            fs.write_all(descriptor, chunk)
        fs.fsync(descriptor)
    finally:
        fs.close(descriptor)


class _SavedBytes:
    """The directory for saved bytes of a partition."""

    def __init__(self, area: Path, partition: str, fs: FileSystem) -> None:
        self._area, self._directory, self._fs = area, area / partition, fs

    def copy(self, path: Path, position: int, name: str) -> None:
        """Copy a file from a position on; the target may be on another file system.

        Holes stay holes: the disk may be too small for their zeros.
        """
        fs, target = self._fs, self._directory / name
        for directory in (self._area, self._directory):
            if not directory.exists():
                fs.mkdir(directory, _AREA_MODE)
                fs.fsync_directory(directory.parent)
        if target.exists():
            fs.unlink(target)  # left by an interrupted recovery
        descriptor = fs.create(target)
        try:
            _copy_stored(path, position, descriptor, fs)
            fs.fsync(descriptor)
        finally:
            fs.close(descriptor)
        fs.fsync_directory(self._directory)


def _copy_stored(path: Path, start: int, target: int, fs: FileSystem) -> None:
    """Copy a file from a byte position on into an open new file."""
    with open(path, "rb", buffering=0) as file:
        size, position = os.fstat(file.fileno()).st_size, start
        fs.truncate(target, size - start)
        while (extent := next_extent(file.fileno(), position, size)) is not None:
            position, end = extent
            while position < end:
                chunk = os.pread(file.fileno(), min(_CHUNK_BYTES, end - position), position)
                if not chunk:
                    raise OSError(errno.EIO, "the file became shorter", os.fspath(path))
                fs.pwrite_all(target, chunk, position - start)
                position += len(chunk)


def _chunks(path: Path, position: int, end: int) -> Iterator[bytes]:
    """Read a file in chunks, from a position to an exclusive end."""
    left = end - position
    with open(path, "rb") as file:
        file.seek(position)
        while chunk := file.read(min(_CHUNK_BYTES, left)):
            left -= len(chunk)
            yield chunk
