"""A partition's files made what loading them makes of them; what is cut off is kept elsewhere.

Interrupted at any point it can be begun again: what is cut is safe before it is cut, and every file
that is written is a whole one. The logs that take a split one's place are written as a broker
writes them, so that a broker, too, can go on from there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from kafkastore.formats.file_names import (
    CLEANED_SUFFIX,
    LOG_SUFFIX,
    SWAP_SUFFIX,
    parse_segment_file,
)
from kafkastore.fs import FileSystem
from kafkastore.log.directory_files import INDEX_SUFFIXES
from kafkastore.log.recovery import RecoveredLog
from kafkastore.segment.zeros import is_zero_from

_CHUNK_BYTES = 1 << 20

# Nobody but its owner says what a recovery has cut.
_AREA_MODE = 0o755


def cuts_of(loaded: RecoveredLog) -> dict[str, int]:
    """Say where bytes would leave the logs of a partition: file, and from which byte on.

    Zeros do not count, nor does what is left of an interrupted compaction; of a log that is split
    all bytes go, to the logs that take its place.
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
    """Alter a partition's files as `recover_log` has worked it out.

    Parameters
    ----------
    loaded : RecoveredLog
        What is to be deleted, renamed, cut and written.
    cut_area : Path
        Gets, in a directory named as the partition, the logs that are deleted and the ends that are
        cut off, but for zeros; made when it is needed.
    fs : FileSystem
        What alters files.
    """
    kept = _Kept(cut_area, loaded.path.name, fs)
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
    """Make the logs that take the place of one, and drop that with its indexes.

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
    # From the last on: as long as one is left, a loading broker drops what has become a swap.
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
    """Make a new file durable."""
    descriptor = fs.create(path)
    try:
        for chunk in chunks:
            fs.write_all(descriptor, chunk)
        fs.fsync(descriptor)
    finally:
        fs.close(descriptor)


class _Kept:
    """Where what is cut of a partition is kept."""

    def __init__(self, area: Path, partition: str, fs: FileSystem) -> None:
        self._area, self._directory, self._fs = area, area / partition, fs

    def copy(self, path: Path, position: int, name: str) -> None:
        """Copy a file from a position on; the copy may lie on another file system."""
        fs, target = self._fs, self._directory / name
        for directory in (self._area, self._directory):
            if not directory.exists():
                fs.mkdir(directory, _AREA_MODE)
                fs.fsync_directory(directory.parent)
        if target.exists():
            fs.unlink(target)  # of a recovery that was interrupted
        _write(target, _chunks(path, position), fs)
        fs.fsync_directory(self._directory)


def _chunks(path: Path, position: int, end: int | None = None) -> Iterator[bytes]:
    """Read a file in pieces, from a position on."""
    left = path.stat().st_size - position if end is None else end - position
    with open(path, "rb") as file:
        file.seek(position)
        while chunk := file.read(min(_CHUNK_BYTES, left)):
            left -= len(chunk)
            yield chunk
