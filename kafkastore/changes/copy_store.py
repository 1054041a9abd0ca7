"""Copy a whole log directory, to work on the copy instead of the original.

Blocks are shared where the file system supports reflinks, else copied; never hard links, because a
broker started on the copy would write into the original too. Every file appears complete under its
name, with its mode and modification time; the copy appears under its name when it is complete.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from kafkastore.changes.copy_file import changed_during_copy, copy_file
from kafkastore.changes.directory_lock import check_no_broker
from kafkastore.errors import ChangeRefusedError, NotAFileError, RefusalReason
from kafkastore.formats.state.file_names import (
    InvalidNameError,
    parse_partition_directory,
    parse_segment_file,
)
from kafkastore.fs import FileSystem
from kafkastore.paths import open_path, refuse_remote, to_path
from kafkastore.runner import Progress
from kafkastore.segment.regular_file import check_regular, stat_target
from kafkastore.store.log_store import is_partition_directory

COPYING_SUFFIX = ".kafkastore-copying"

# Neither is a broker's data; mkfs creates lost+found, which is often unreadable.
_SKIPPED = frozenset({".lock", "lost+found"})


@dataclass(frozen=True, slots=True)
class StoreCopy:
    """The result of a copy; `bytes` is the total size of its files.

    `skipped` has the relative paths that are not part of a log directory (``.lock``, sockets);
    `left_out` the directories not copied, because a file can't be read, and the errors.
    """

    destination: Path
    files: int
    bytes: int
    skipped: tuple[str, ...]
    left_out: Mapping[str, Exception]


def copy_store(
    source: str | os.PathLike[str],
    destination: str | os.PathLike[str],
    *,
    fs: FileSystem = FileSystem(),
    progress: Progress | None = None,
) -> StoreCopy:
    """Copy a log.dirs root or a partition directory; symbolic links are followed.

    Keeps modes and mtimes. Raises `ChangeRefusedError` if the destination is not empty or the
    source is in use, or the first error if no partition can be read. After an OSError, call again.
    """
    source, destination = check_places(source, destination)
    check_no_broker(source)
    working = destination.with_name(destination.name + COPYING_SUFFIX)
    skipped: list[str] = []
    left_out: dict[str, Exception] = {}
    listing = list_files(source, skipped, left_out)
    if not working.is_dir():
        fs.mkdir(working)
    copied = size = 0
    files = sum(stat.S_ISREG(status.st_mode) for _, status in listing)
    for path, status in listing:
        if stat.S_ISDIR(status.st_mode):
            if not (working / path).is_dir():
                fs.mkdir(working / path)
            continue
        if not _is_copied(working / path, status):
            copy_file(source / path, working / path, fs)
        copied, size = copied + 1, size + status.st_size
        if progress is not None:
            progress(copied, files)
    check_unchanged(source, listing)
    check_no_broker(source)
    _remove_outdated(working, {path for path, _ in listing}, fs)
    for path, status in [*reversed(listing), ("", os.stat(source))]:
        if stat.S_ISDIR(status.st_mode):
            fs.chmod(working / path, stat.S_IMODE(status.st_mode))
            fs.utime(working / path, status.st_mtime_ns)
            fs.fsync_directory(working / path)
    fs.rename(working, destination)
    fs.fsync_directory(destination.parent)
    return StoreCopy(destination, copied, size, tuple(skipped), left_out)


def is_complete_copy(source: Path, destination: Path) -> bool:
    """Return whether a directory has the files of another, by size and mtime."""
    if not destination.is_dir():
        return False
    listing = dict(files_of(source))
    return listing.keys() == dict(files_of(destination)).keys() and all(
        stat.S_ISDIR(status.st_mode) or _is_copied(destination / path, status)
        for path, status in listing.items()
    )


def list_files(
    source: Path, skipped: list[str], left_out: dict[str, Exception]
) -> list[tuple[str, os.stat_result]]:
    """List what to copy, as `files_of`; raise if no partition can be read."""
    listing = list(files_of(source, skipped, left_out))
    if left_out and not any(_is_partition(path) for path, _ in listing):
        raise next(iter(left_out.values()))
    return listing


def files_of(
    source: Path, skipped: list[str] | None = None, left_out: dict[str, Exception] | None = None
) -> Iterator[tuple[str, os.stat_result]]:
    """Yield relative paths to copy; directories come before their content.

    Other paths are added to `skipped`; to `left_out`, directories of the source with a file that
    can't be read, which are not copied. A link to a directory that contains it is refused.
    """
    yield from _walk(
        source, "", (), [] if skipped is None else skipped, {} if left_out is None else left_out
    )


def check_places(
    source: str | os.PathLike[str], destination: str | os.PathLike[str]
) -> tuple[Path, Path]:
    """Return both as real paths; refuse a non-empty or overlapping destination.

    The copy of a partition directory must be named as one, or it could not be opened.
    """
    refuse_remote(destination)
    source = to_path(os.path.realpath(open_path(source)))
    destination = Path(os.path.realpath(destination))
    if not source.is_dir():
        raise not_a_directory(source)
    check_copy_name(source, destination.name)
    if destination == source or source in destination.parents or destination in source.parents:
        raise overlapping(source, destination)
    if os.path.lexists(destination) and not (
        destination.is_dir() and not any(destination.iterdir())
    ):
        raise not_empty(destination)
    if destination.is_mount():
        raise ChangeRefusedError(
            f"{destination} is a mount point: name a directory in it",
            RefusalReason.UNSUITABLE_PLACE,
            destination,
        )
    if not destination.parent.is_dir():
        raise not_a_directory(destination.parent)
    return source, destination


def check_copy_name(source: Path, name: str) -> None:
    """Refuse a name under which the copy of one partition could not be opened."""
    if is_partition_directory(source):
        try:
            parse_partition_directory(name)
        except InvalidNameError as error:
            raise ChangeRefusedError(
                f"the copy of a partition directory must have a partition's name: {error}; use "
                f".../{source.name}",
                RefusalReason.UNSUITABLE_PLACE,
                name,
            ) from error


def not_a_directory(path: Path) -> ChangeRefusedError:
    """Return the error for a path that must be a directory."""
    return ChangeRefusedError(f"{path} is not a directory", RefusalReason.NOT_A_DIRECTORY, path)


def overlapping(source: str | Path, destination: str | Path) -> ChangeRefusedError:
    """Return the error for a copy into its source, or around it."""
    return ChangeRefusedError(
        f"{source} cannot be copied to {destination}: one contains the other; name a "
        "directory outside",
        RefusalReason.OVERLAP,
        destination,
    )


def not_empty(destination: str | Path) -> ChangeRefusedError:
    """Return the error for a destination that has files."""
    return ChangeRefusedError(
        f"{destination} exists and is not empty; name an empty or new directory",
        RefusalReason.NOT_EMPTY,
        destination,
    )


def _walk(
    root: Path,
    inner: str,
    above: tuple[tuple[int, int], ...],
    skipped: list[str],
    left_out: dict[str, Exception],
) -> Iterator[tuple[str, os.stat_result]]:
    """Yield regular files, and directories before their content, by relative path."""
    here = os.stat(root / inner)
    if (here.st_dev, here.st_ino) in above:
        raise ChangeRefusedError(
            f"{root / inner} is a symbolic link to a directory that contains it",
            RefusalReason.OVERLAP,
            root / inner,
        )
    for name in sorted(os.listdir(root / inner)):
        path = os.path.join(inner, name)
        if inner == "" and name in _SKIPPED:
            skipped.append(path)
            continue
        try:
            status = _readable_status(root / path)
            found = [(path, status)]
            if stat.S_ISDIR(status.st_mode):
                found += _walk(root, path, (*above, (here.st_dev, here.st_ino)), skipped, left_out)
        except (OSError, NotAFileError) as error:
            # Without one of its files a partition is another one.
            if inner or not (_is_partition(path) or os.path.isdir(root / path)):
                raise
            left_out[path] = error
            continue
        if stat.S_ISDIR(status.st_mode) or stat.S_ISREG(status.st_mode):
            yield from found
        else:
            skipped.append(path)


def _readable_status(path: Path) -> os.stat_result:
    """Return the status of a path; raise if it is a file that can't be copied."""
    status = stat_target(path)
    if not stat.S_ISDIR(status.st_mode) and parse_segment_file(path.name) is not None:
        check_regular(path, status)
    if stat.S_ISREG(status.st_mode) and not os.access(path, os.R_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
    return status


def _is_partition(path: str) -> bool:
    """Return whether a relative path is named as a partition directory."""
    try:
        parse_partition_directory(path)
    except InvalidNameError:
        return False
    return True


def _is_copied(target: Path, status: os.stat_result) -> bool:
    """Return whether an earlier run copied a file."""
    try:
        there = os.lstat(target)
    except FileNotFoundError:
        return False
    return stat.S_ISREG(there.st_mode) and (there.st_size, there.st_mtime_ns) == (
        status.st_size,
        status.st_mtime_ns,
    )


def check_unchanged(source: Path, listing: Sequence[tuple[str, os.stat_result]]) -> None:
    """Refuse a copy if anything in the source has changed since `files_of` listed it."""
    for was, now in zip_longest(listing, files_of(source)):
        if was is None or now is None or _named_state(was) != _named_state(now):
            path = min(each[0] for each in (was, now) if each is not None)
            raise changed_during_copy(source / path)


def _named_state(listed: tuple[str, os.stat_result]) -> tuple[str, int, int]:
    path, status = listed
    return path, status.st_size, status.st_mtime_ns


def _remove_outdated(working: Path, wanted: set[str], fs: FileSystem) -> None:
    """Remove files from an unfinished copy that are no longer in the source."""
    for path, status in reversed(list(files_of(working))):
        if path not in wanted:
            (fs.rmdir if stat.S_ISDIR(status.st_mode) else fs.unlink)(working / path)
