"""A partition's files made what loading them makes of them; what is cut off is kept elsewhere.

Interrupted at any point it can be begun again: what is cut is safe before it is cut, and every file
that is written is a whole one.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from kafkastore.formats.file_names import LOG_SUFFIX, SWAP_SUFFIX, parse_segment_file
from kafkastore.fs import FileSystem
from kafkastore.log.recovery import RecoveredLog

_CHUNK_BYTES = 1 << 20


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
    for name in loaded.deleted:
        path = loaded.path / name
        file = parse_segment_file(name)
        if file and file.type_suffix == LOG_SUFFIX and file.temporary in ("", SWAP_SUFFIX):
            kept.copy(path, 0, name)
        fs.unlink(path)
    for name, target in loaded.renamed.items():
        fs.rename(loaded.path / name, loaded.path / target)
    for name, size in loaded.cut.items():
        path = loaded.path / name
        if any(chunk.strip(b"\0") for chunk in _chunks(path, size)):
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


class _Kept:
    """Where what is cut of a partition is kept."""

    def __init__(self, area: Path, partition: str, fs: FileSystem) -> None:
        self._area, self._directory, self._fs = area, area / partition, fs

    def copy(self, path: Path, position: int, name: str) -> None:
        """Copy a file from a position on; the copy may lie on another file system."""
        fs, target = self._fs, self._directory / name
        for directory in (self._area, self._directory):
            if not directory.exists():
                fs.mkdir(directory)
                fs.fsync_directory(directory.parent)
        if target.exists():
            fs.unlink(target)  # of a recovery that was interrupted
        descriptor = fs.create(target)
        try:
            for chunk in _chunks(path, position):
                fs.write_all(descriptor, chunk)
            fs.fsync(descriptor)
        finally:
            fs.close(descriptor)
        fs.fsync_directory(self._directory)


def _chunks(path: Path, position: int) -> Iterator[bytes]:
    """Read a file in pieces, from a position on."""
    with open(path, "rb") as file:
        file.seek(position)
        while chunk := file.read(_CHUNK_BYTES):
            yield chunk
