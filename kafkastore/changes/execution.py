"""One execution of a plan, by `apply` or `undo`, partition by partition."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from kafkastore.changes.file_state import PERMISSIONS, FileState, status_of
from kafkastore.changes.inspection import may_not_own
from kafkastore.changes.journal import JournalWriter, Step
from kafkastore.changes.no_follow import opened_directory
from kafkastore.changes.plan import NOT_EXECUTABLE, FileChange
from kafkastore.changes.undo_area import AREA_MODE, kept_in, temporary_file
from kafkastore.errors import ChangeRefusedError, RefusalReason
from kafkastore.fs import FileSystem
from kafkastore.runner import Progress


class Execution:
    """The paths of a plan's files, and how each step is made and recorded.

    `check_lock` raises ChangeRefusedError if a broker was started. `done` and `total` are numbers
    of changes, for `progress`. `durable` has directories whose names are already flushed. `threads`
    compute the new bytes of one file.
    """

    def __init__(
        self,
        root: Path,
        area: Path,
        plan_id: str,
        writer: JournalWriter,
        fs: FileSystem,
        check_lock: Callable[[], None],
        *,
        progress: Progress | None = None,
        done: int = 0,
        total: int = 0,
        durable: Iterable[Path] = (),
        threads: int = 1,
    ) -> None:
        self.root, self.area, self.threads = root, area, threads
        self.writer, self.fs = writer, fs
        self.check_lock = check_lock
        self._progress, self._done, self._total = progress, done, total
        self._plan_id = plan_id
        self._one_step, self._one_directory = threading.Lock(), threading.Lock()
        self._durable = set(durable)

    def path(self, change: FileChange) -> Path:
        """Return the file that is changed."""
        return self.root / change.path

    def temporary(self, change: FileChange) -> Path:
        """Return the name next to the file under which the new bytes are written."""
        return temporary_file(self.path(change), self._plan_id)

    def kept(self, change: FileChange) -> Path:
        """Return where the old file is kept."""
        return kept_in(self.area, change.path)

    def make_directory(self, directory: Path) -> None:
        """Create a directory in the undo area, and its parents, and flush their names.

        Existing directories are flushed too: their creator may not have flushed them yet.
        """
        with self._one_directory:
            self._make_directory(directory)

    def _make_directory(self, directory: Path) -> None:
        if directory in self._durable:
            return
        if directory != self.area:
            self._make_directory(directory.parent)
            with suppress(FileExistsError), opened_directory(directory.parent) as above:
                self.fs.mkdir(directory, AREA_MODE, dir_fd=above)
        self.fs.fsync_directory(directory.parent)
        self._durable.add(directory)

    @contextmanager
    def directory(self, change: FileChange) -> Iterator[int]:
        """Open the partition directory of a file that is about to be changed."""
        with opened_directory(self.path(change).parent) as descriptor:
            yield descriptor

    @contextmanager
    def kept_directory(self, change: FileChange) -> Iterator[int]:
        """Open the directory of the undo area in which the old file is, or will be, kept."""
        with opened_directory(self.kept(change).parent) as descriptor:
            yield descriptor

    def record(self, step: Step, change: FileChange) -> None:
        """Record one step in the journal."""
        self.writer.step(step, change.path)
        self.advance(1)

    def advance(self, changes: int) -> None:
        """Report the number of changes that were made since the last call."""
        with self._one_step:
            self._done += changes
            if self._progress is not None:
                self._progress(self._done, self._total)

    def remove_temporary(self, change: FileChange, here: int) -> None:
        """Remove the temporary file of a killed run from the open directory."""
        temporary = self.temporary(change)
        with suppress(FileNotFoundError):
            os.stat(temporary.name, dir_fd=here, follow_symlinks=False)
            self.fs.unlink(temporary, dir_fd=here)

    def set_attributes(
        self, descriptor: int, change: FileChange, state: FileState, here: int
    ) -> None:
        """Set owners, mode and modification time of an open file; the caller flushes it.

        Refused if that fails (a broker must be able to write its index), or if neither the open
        directory `here`, without execution, nor a file in it has these owners and this mode.
        """
        status, directory = os.fstat(descriptor), self.path(change).parent
        access = _Access(state.user, state.group, state.mode)
        if access != _access_of(status) and not self._is_known(change, access, here):
            raise ChangeRefusedError(
                f"{self.path(change)} must get the owners and the mode of a file in its directory, "
                f"got user {state.user}, group {state.group}, mode {state.mode:04o}: make a new "
                "plan, or give the files in it to that user",
                RefusalReason.FILE_ACCESS,
                self.path(change),
            )
        if (status.st_uid, status.st_gid) != (state.user, state.group):
            try:
                self.fs.chown(descriptor, state.user, state.group)
            except PermissionError:
                raise may_not_own(directory, state) from None
        self.fs.chmod(descriptor, state.mode)
        self.fs.utime(descriptor, state.mtime_ns)
        if os.fstat(descriptor).st_mtime_ns != state.mtime_ns:
            raise ChangeRefusedError(
                f"the file system of {directory} cannot store the "
                f"modification time {state.mtime_ns} ns",
                RefusalReason.UNSUPPORTED,
                directory,
            )

    def _is_known(self, change: FileChange, access: _Access, here: int) -> bool:
        """Return whether a file in the directory, or the kept old file, has that access.

        The first candidates are the replaced file and the log that the file is made from.
        """
        near = (self.path(change), *(self.root / each.path for each in change.relies_on))
        if any(_access_of(status_of(path, here)) == access for path in near):
            return True
        if _access_of(status_of(self.kept(change))) == access:
            return True
        if _access_of_new_file(os.fstat(here)) == access:
            return True
        with os.scandir(here) as entries:
            return any(
                _access_of(entry.stat(follow_symlinks=False)) == access
                for entry in entries
                if entry.is_file(follow_symlinks=False)
            )


class _Access(NamedTuple):
    """Owners and permission bits."""

    user: int
    group: int
    mode: int


def _access_of(status: os.stat_result | None) -> _Access | None:
    """Return a file's owners and mode, without setuid, setgid and sticky bits."""
    if status is None:
        return None
    return _Access(status.st_uid, status.st_gid, status.st_mode & PERMISSIONS)


def _access_of_new_file(directory: os.stat_result) -> _Access:
    """Return the owners and the mode of a file in a new directory."""
    mode = directory.st_mode & NOT_EXECUTABLE
    return _Access(directory.st_uid, directory.st_gid, mode)


def by_partition(changes: Iterable[FileChange]) -> list[list[FileChange]]:
    """Group changes by the directory of their files, in order."""
    groups: dict[str, list[FileChange]] = {}
    for change in changes:
        groups.setdefault(os.path.dirname(change.path), []).append(change)
    return list(groups.values())


def run_partitions(
    partitions: list[list[FileChange]], step: Callable[[FileChange], None], threads: int
) -> None:
    """Call `step` for each change: partitions in parallel, the files of one in order.

    The first error stops each partition after its current file, and is raised.
    """
    stop = threading.Event()

    def run_one(changes: list[FileChange]) -> None:
        try:
            for change in changes:
                if stop.is_set():
                    return
                step(change)
        except BaseException:
            stop.set()
            raise

    if threads <= 1 or len(partitions) <= 1:
        for changes in partitions:
            run_one(changes)
        return
    with ThreadPoolExecutor(threads, thread_name_prefix="kafkastore-changes") as pool:
        futures = [pool.submit(run_one, changes) for changes in partitions]
        try:
            for future in futures:
                future.result()
        except BaseException:
            stop.set()
            pool.shutdown(wait=True, cancel_futures=True)
            raise
