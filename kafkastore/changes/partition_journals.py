"""The journals of partitions that other processes than the driver change.

The driver, which has locked the directory, creates a folder in the undo area and keeps a file in it
locked while the job runs: the lease. A task that changes the files of a partition keeps that
partition's journal locked, and checks before each change that the lease is still held. At the end,
or before the next job uses the area, the folder is closed:

1. It is renamed: no more tasks start.
2. Each journal is waited for: its task finishes its current file, and finds that the lease is gone.
3. The lines are moved into the area's own journal and flushed; then the folder is removed.

So lines of partitions are newer than those of the area's journal, and a task outlives its driver
only until its current file is finished.
"""

from __future__ import annotations

import errno
import fcntl
import os
import platform
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from kafkastore.changes.journal import JournalWriter, parse_line
from kafkastore.changes.undo_area import AREA_MODE, LINES_SUFFIX, PARTS_MARK
from kafkastore.errors import ChangeRefusedError, RefusalReason
from kafkastore.fs import FileSystem, kept_from_children
from kafkastore.segment.small_file import read_own_file

_CLOSED_SUFFIX = ".closed"
_LEASE = "driver"
_SECONDS_BETWEEN_TRIES = 0.05
_SECONDS_FOR_ANOTHER = 1.0
#: Time that a task without a driver gets for its current file.
SECONDS_TO_END = 60.0


@contextmanager
def open_partition_journals(area: Path, fs: FileSystem) -> Iterator[str]:
    """Create and lease the folder for journals of partitions; yield its name.

    Refused if the file system cannot lock files, or another driver is running.
    """
    folder = area / f"{PARTS_MARK}{uuid.uuid4().hex[:16]}"
    fs.mkdir(folder, AREA_MODE)
    fs.fsync_directory(area)
    lease = fs.open_append(folder / _LEASE)
    try:
        fs.fsync_directory(folder)
        if not _try_lock(lease, fcntl.LOCK_EX, folder / _LEASE):
            raise _in_use_by_job(folder / _LEASE)
        # If directories cannot be locked, another driver may have started at the same time. Each
        # looks for the other while it holds its own lease, so at least one of them finds the
        # other's.
        until = time.monotonic() + _SECONDS_FOR_ANOTHER
        for other in area.glob(f"{PARTS_MARK}*"):
            if other != folder:
                _wait_for(other / _LEASE, until)
        with kept_from_children(lease):
            yield folder.name
    finally:
        fs.close(lease)


@contextmanager
def partition_journal(
    folder: Path, number: int, fs: FileSystem
) -> Iterator[tuple[JournalWriter, frozenset[str], Callable[[], None]]]:
    """Lock the journal of one partition; wait while another task holds it.

    Yields the journal, the paths that it has as changed, and a function that raises if the driver
    is gone.
    """
    path = folder / f"{number:06}{LINES_SUFFIX}"
    try:
        lease = os.open(folder / _LEASE, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        raise _folder_missing(folder) from None
    try:

        def check_driver() -> None:
            if _try_lock(lease, fcntl.LOCK_SH, folder / _LEASE):
                fcntl.flock(lease, fcntl.LOCK_UN)
                raise ChangeRefusedError(
                    f"the driver that created {folder} has ended", RefusalReason.UNFINISHED, folder
                )

        check_driver()
        try:
            lock = fs.open_append(path)
        except FileNotFoundError:
            raise _folder_missing(folder) from None
        try:
            while not _try_lock(lock, fcntl.LOCK_EX, path):
                check_driver()
                time.sleep(_SECONDS_BETWEEN_TRIES)
            # The folder may have been closed before the lock: then no process reads this journal.
            if not _is_still(path, lock):
                raise _folder_missing(folder)
            with JournalWriter(path, fs) as writer:
                yield writer, frozenset(_changed(path)), check_driver
        finally:
            fs.close(lock)
    finally:
        os.close(lease)


def close_partition_journals(
    area: Path, fs: FileSystem, *, patience: float = SECONDS_TO_END
) -> None:
    """Wait for the tasks of an undo area, and move their lines into its journal.

    The caller has locked the directory. Refused if a task does not end within `patience` seconds,
    or another driver is running.
    """
    folders = sorted(area.glob(f"{PARTS_MARK}*"))
    if not folders:
        return
    until = time.monotonic() + patience
    for number, folder in enumerate(folders):
        if not folder.name.endswith(_CLOSED_SUFFIX):
            _wait_for(folder / _LEASE, until)
            folders[number] = folder.with_name(folder.name + _CLOSED_SUFFIX)
            fs.rename(folder, folders[number])
            fs.fsync_directory(area)
    changed: list[str] = []
    for folder in folders:
        for path in sorted(folder.glob(f"*{LINES_SUFFIX}")):
            _wait_for(path, until)
            changed += _changed(path)
    if changed:
        with JournalWriter.of(area, fs) as writer:
            writer.steps("changed", changed)
    for folder in folders:
        for path in sorted(folder.iterdir()):
            fs.unlink(path)
        fs.rmdir(folder)
    fs.fsync_directory(area)


def _changed(path: Path) -> list[str]:
    """Read the paths that a partition's journal has as changed."""
    lines = filter(None, map(parse_line, read_own_file(path).split(b"\n")))
    return [changed for event, changed, _ in lines if event == "changed"]


def _wait_for(path: Path, until: float) -> None:
    """Wait until no process holds a file's lock; a missing file is not locked."""
    with suppress(FileNotFoundError):
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            while not _try_lock(descriptor, fcntl.LOCK_EX, path):
                if time.monotonic() > until:
                    raise _in_use_by_job(path)
                time.sleep(_SECONDS_BETWEEN_TRIES)
        finally:
            os.close(descriptor)


def _try_lock(descriptor: int, kind: int, path: Path) -> bool:
    """Lock a file unless another process holds it; return whether it is locked."""
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS, errno.EINVAL):
            raise
        raise ChangeRefusedError(
            f"{path} can't be locked: several processes can't change files there safely; use "
            "threads of one process",
            RefusalReason.UNSUPPORTED,
            path,
        ) from error
    return True


def _is_still(path: Path, descriptor: int) -> bool:
    """Return whether a path still refers to an open file."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _in_use_by_job(path: Path) -> ChangeRefusedError:
    return ChangeRefusedError(
        f"another job, or a task of an interrupted job, still holds {path}; try again later",
        RefusalReason.OTHER_JOB,
        path,
    )


def _folder_missing(folder: Path) -> ChangeRefusedError:
    return ChangeRefusedError(
        f"{folder} does not exist on {platform.node()}: the job has ended, or this machine does "
        "not have access to the driver's storage",
        RefusalReason.NOT_A_DIRECTORY,
        folder,
    )
