"""The journals of a plan's parts, while other processes than the sole user's carry them out.

The driver, which is the sole user, makes a folder in the undo area and holds a file in it locked
for as long as the job lasts: the lease.  Whoever carries out a part holds that part's journal
locked, and looks before each alteration whether the lease is still held.  At the end, or before
anything else is done with the area by whoever comes next, the folder is closed:

1. It gets another name: no part begins any more.
2. Each part's journal is waited for: who holds one is at a file, and finds the lease gone at the
   next.
3. The lines go into the area's journal, durable; then the folder goes.

So lines of parts are newer than those of the journal, and no part outlives its driver by more than
the file that it is at.
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
from kafkastore.errors import ChangeRefusedError
from kafkastore.fs import FileSystem, kept_from_children
from kafkastore.segment.small_file import read_own_file

_CLOSED_SUFFIX = ".closed"
_LEASE = "driver"
_SECONDS_BETWEEN_TRIES = 0.05
_SECONDS_FOR_ANOTHER = 1.0
#: How long a part that has lost its driver may take for the file that it is at.
SECONDS_TO_END = 60.0


@contextmanager
def open_parts(area: Path, fs: FileSystem) -> Iterator[str]:
    """Make the folder for journals of parts, and hold its lease.

    Parameters
    ----------
    area : Path
        The undo area, whose journal says that the plan is being applied.
    fs : FileSystem
        The altering calls.

    Yields
    ------
    str
        The folder's name.

    Raises
    ------
    ChangeRefusedError
        If the file system can't lock files, or another driver is at work.
    """
    folder = area / f"{PARTS_MARK}{uuid.uuid4().hex[:16]}"
    fs.mkdir(folder, AREA_MODE)
    fs.fsync_directory(area)
    lease = fs.open_append(folder / _LEASE)
    try:
        fs.fsync_directory(folder)
        if not _try_lock(lease, fcntl.LOCK_EX, folder / _LEASE):
            raise ChangeRefusedError(f"another process holds {folder / _LEASE}")
        # Where directories can't be locked another driver may have come just now, too. Each looks
        # for the other when its own lease is held, so at least one finds the other's.
        until = time.monotonic() + _SECONDS_FOR_ANOTHER
        for other in area.glob(f"{PARTS_MARK}*"):
            if other != folder:
                _wait_for(other / _LEASE, until, "another job is at work there")
        with kept_from_children(lease):
            yield folder.name
    finally:
        fs.close(lease)


@contextmanager
def part_journal(
    folder: Path, number: int, fs: FileSystem
) -> Iterator[tuple[JournalWriter, frozenset[str], Callable[[], None]]]:
    """Carry out one part: nobody else does for the length of the `with` block.

    Parameters
    ----------
    folder : Path
        The folder that the driver has made.
    number : int
        The part's.
    fs : FileSystem
        The altering calls.

    Yields
    ------
    tuple of JournalWriter, frozenset of str, callable
        The part's journal; what it has as changed; and what is to be called before each alteration,
        which raises ChangeRefusedError when the driver is gone.

    Raises
    ------
    ChangeRefusedError
        If the folder is not seen here, or its driver is gone. While another carries out the part,
        it is waited for.
    """
    path = folder / f"{number:06}{LINES_SUFFIX}"
    try:
        lease = os.open(folder / _LEASE, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        raise ChangeRefusedError(_not_seen(folder)) from None
    try:

        def check() -> None:
            if _try_lock(lease, fcntl.LOCK_SH, folder / _LEASE):
                fcntl.flock(lease, fcntl.LOCK_UN)
                raise ChangeRefusedError(f"the driver that made {folder} is gone")

        check()
        try:
            lock = fs.open_append(path)
        except FileNotFoundError:
            raise ChangeRefusedError(_not_seen(folder)) from None
        try:
            while not _try_lock(lock, fcntl.LOCK_EX, path):
                check()
                time.sleep(_SECONDS_BETWEEN_TRIES)
            # It may have been closed between the two; what is written to it now nobody reads.
            if not _is_still(path, lock):
                raise ChangeRefusedError(_not_seen(folder))
            writer = JournalWriter(path, fs)
            try:
                yield writer, frozenset(_changed(path)), check
            finally:
                writer.close()
        finally:
            fs.close(lock)
    finally:
        os.close(lease)


def close_parts(area: Path, fs: FileSystem, *, patience: float = SECONDS_TO_END) -> None:
    """End what is at work on parts, and put their lines into the journal; the caller is sole user.

    Parameters
    ----------
    area : Path
        An undo area, there or not.
    fs : FileSystem
        The altering calls.
    patience : float
        How many seconds a part may take to end.

    Raises
    ------
    ChangeRefusedError
        If one does not end, or another driver is at work.
    """
    folders = sorted(area.glob(f"{PARTS_MARK}*"))
    if not folders:
        return
    until = time.monotonic() + patience
    for number, folder in enumerate(folders):
        if not folder.name.endswith(_CLOSED_SUFFIX):
            _wait_for(folder / _LEASE, until, "another job is at work there")
            folders[number] = folder.with_name(folder.name + _CLOSED_SUFFIX)
            fs.rename(folder, folders[number])
            fs.fsync_directory(area)
    changed: list[str] = []
    for folder in folders:
        for path in sorted(folder.glob(f"*{LINES_SUFFIX}")):
            _wait_for(path, until, "a task of an interrupted job is still at work on its files")
            changed += _changed(path)
    if changed:
        writer = JournalWriter.of(area, fs)
        try:
            writer.steps("changed", changed)
        finally:
            writer.close()
    for folder in folders:
        for path in sorted(folder.iterdir()):
            fs.unlink(path)
        fs.rmdir(folder)
    fs.fsync_directory(area)


def _changed(path: Path) -> list[str]:
    """Read what a part's journal has as changed."""
    lines = filter(None, map(parse_line, read_own_file(path).split(b"\n")))
    return [changed for event, changed, _ in lines if event == "changed"]


def _wait_for(path: Path, until: float, otherwise: str) -> None:
    """Wait until nobody holds a file locked; one that is not there nobody holds."""
    with suppress(FileNotFoundError):
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            while not _try_lock(descriptor, fcntl.LOCK_EX, path):
                if time.monotonic() > until:
                    raise ChangeRefusedError(f"{path} is held: {otherwise}; try again later")
                time.sleep(_SECONDS_BETWEEN_TRIES)
        finally:
            os.close(descriptor)


def _try_lock(descriptor: int, kind: int, path: Path) -> bool:
    """Lock a file unless somebody else holds it."""
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS, errno.EINVAL):
            raise
        raise ChangeRefusedError(
            f"{path} can't be locked, and without locks a job is not safe on several machines: "
            "do it in one process"
        ) from error
    return True


def _is_still(path: Path, descriptor: int) -> bool:
    """Answer whether a name still stands for an open file."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _not_seen(folder: Path) -> str:
    return (
        f"{folder} is not there on {platform.node()}: the job has ended, or this machine does not "
        "see the driver's storage"
    )
