"""Undo a plan: restore the bytes, modification times and absence of every file.

For each file of the plan, in reverse order: the kept file gets a second name next to the file, and
is renamed over it; a file that the plan created is removed. The kept file is removed last, so that
after a crash at any moment it exists in at least one place. Then directories that the plan created
are removed if they are empty.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Container, Sequence
from contextlib import suppress
from pathlib import Path

from kafkastore.arguments import check_callable, thread_count
from kafkastore.changes import AREA_MARK, list_areas
from kafkastore.changes.copy_file import discard, second_name
from kafkastore.changes.directory_lock import locked_directory
from kafkastore.changes.execution import Execution, by_partition, run_partitions
from kafkastore.changes.file_state import FileState, read_state
from kafkastore.changes.inspection import UndoState, check_directory, raise_refusals
from kafkastore.changes.journal import Journal, JournalWriter, open_trusted, read_steps
from kafkastore.changes.new_directories import inspect_created, remove_created
from kafkastore.changes.no_follow import open_file, opened_directory
from kafkastore.changes.partition_journals import close_partition_journals
from kafkastore.changes.plan import FileChange
from kafkastore.changes.undo_area import KEPT_DIRECTORY, kept_in
from kafkastore.errors import ChangeRefusedError, KafkaStoreError, RefusalReason
from kafkastore.fs import FileSystem
from kafkastore.runner import Progress


def undo(
    journal: Journal | str | os.PathLike[str],
    *,
    root: str | os.PathLike[str] | None = None,
    trust_area: bool = False,
    leave_changed: bool = False,
    threads: int | None = None,
    fs: FileSystem = FileSystem(),
    progress: Progress | None = None,
) -> Journal:
    """Restore the files that a plan replaced, created or removed.

    Directories that the plan created are removed if they are empty then.

    Parameters
    ----------
    journal : Journal or path-like
        The journal, or its undo area. The plan may be partly applied.
    root : path-like, optional
        The log directory, or partition directory, that was changed; required if the undo area is
        not next to it.
    trust_area : bool
        Whether to accept an undo area that users other than this one and root can have written.
    leave_changed : bool
        What to do with files that were changed since, for example by a broker, and files whose kept
        file is missing. True: leave these as they are and restore the others; the next call tries
        them again. False: refuse the whole undo. A file with the plan's bytes counts as unchanged,
        whatever its modification time. A created directory with other files counts as changed.
    threads : int, optional
        How many partitions are restored in parallel. Default: the number of processors.
    fs : FileSystem
        The file system calls that change files; for tests.
    progress : callable, optional
        Called as ``progress(done, total)`` with numbers of changes, by one thread at a time.

    Returns
    -------
    Journal
        Undone; `left` has the files that were not restored.

    Raises
    ------
    ChangeRefusedError
        If a broker has the directory open, a file was changed since, a kept file is missing or
        damaged, other users can have written the undo area, or it is not next to the log directory;
        nothing has been changed.
    """
    threads = thread_count(threads)
    check_callable("progress", progress)
    if isinstance(journal, Journal) and not journal.plan.changes:
        return journal
    journal = open_trusted(journal, root, trust_area=trust_area)
    area = journal.area
    with locked_directory(journal.root) as lock:
        close_partition_journals(area, fs)
        journal = journal.read_again()
        changes, directories = journal.plan.changes, journal.plan.directories
        if journal.phase == "undone":
            # A file that was left may be restorable now: its directory, or the file, may be back.
            changes = tuple(change for change in changes if change.path in journal.left)
            directories = tuple(each for each in directories if each.name in journal.left)
            leave_changed = True
            if not changes and not directories:
                return journal
        states = _inspect_all(journal, changes, leave_changed)
        of_directories = inspect_created(journal, directories, leave_changed)
        with JournalWriter.of(area, fs) as writer:
            writer.phase("undoing")
            execution = Execution(
                journal.root,
                area,
                journal.plan.id,
                writer,
                fs,
                lock.check,
                progress=progress,
                total=len(changes),
            )
            run_partitions(
                by_partition(reversed(changes)),
                lambda change: _undo(execution, change, states[change.path]),
                threads,
            )
            remove_created(execution, of_directories)
            _remove_empty_directories(execution)
            writer.phase("undone")
    return journal.read_again()


def _inspect_all(
    journal: Journal, changes: Sequence[FileChange], leave_changed: bool
) -> dict[str, UndoState]:
    """Return the undo state of each change; refuse before anything is changed."""
    states: dict[str, UndoState] = {}
    refusals = []
    directories: set[str] = set()
    root, later = journal.root, _later_areas(journal)
    created = {each.name for each in journal.plan.directories}
    for change in changes:
        try:
            check_directory(root, change, directories)
            _check_order(journal, root, change, later)
            state = states[change.path] = _inspect(journal, root, change, created)
        except ChangeRefusedError as error:
            refusals.append(error)
            states[change.path] = UndoState.CHANGED_SINCE
            continue
        if state is UndoState.CHANGED_SINCE and not leave_changed:
            refusals.append(
                ChangeRefusedError(
                    f"{change.path} was changed after the plan was applied; --leave-changed "
                    "(leave_changed=True) skips it",
                    RefusalReason.CHANGED,
                    root / change.path,
                )
            )
    if not leave_changed:
        raise_refusals(refusals)
    return states


def _inspect(
    journal: Journal, root: Path, change: FileChange, created: Container[str]
) -> UndoState:
    """Return the undo state of one change; the plan creates `created` directories.

    | the file is                       | recorded as changed | not recorded               |
    | --------------------------------- | ------------------- | -------------------------- |
    | as before                         | as before           | as before                  |
    | of the plan's bytes               | restore             | restore if the old is kept |
    | neither                           | changed since       | not ours                   |
    """
    is_recorded = change.path in journal.changed
    path = root / change.path
    if not path.parent.is_dir():
        if path.parent.name in created and not os.path.lexists(path.parent):
            return UndoState.AS_BEFORE
        raise ChangeRefusedError(
            f"{change.path} can't be restored: {path.parent} is missing",
            RefusalReason.NOT_A_DIRECTORY,
            path.parent,
        )
    state = read_state(path)
    is_as_before = state is None if change.before is None else change.before.same_file(state)
    if is_as_before:
        return UndoState.AS_BEFORE
    is_as_planned = state is None if change.after is None else change.after.same_bytes(state)
    if not is_as_planned:
        return UndoState.CHANGED_SINCE if is_recorded else UndoState.NOT_OURS
    if change.before is None:
        # Without a record, the file is the plan's only if its modification time is too.
        is_ours = is_recorded or (change.after is not None and change.after.same_file(state))
        return UndoState.RESTORE if is_ours else UndoState.NOT_OURS
    kept = kept_in(journal.area, change.path)
    if change.before.same_bytes(read_state(kept)):
        return UndoState.RESTORE
    if not is_recorded:
        return UndoState.NOT_OURS
    raise ChangeRefusedError(
        f"{kept}: the kept copy of {change.path} is missing or corrupt; --leave-changed "
        "(leave_changed=True) restores the other files",
        RefusalReason.KEPT_FILE_LOST,
        kept,
    )


def _check_order(
    journal: Journal, root: Path, change: FileChange, later: Sequence[Path]
) -> None:
    """Refuse to undo a change of a file that a later change keeps."""
    if change.path not in journal.changed:
        return
    for area in later:
        if os.path.lexists(kept_in(area, change.path)):
            raise ChangeRefusedError(
                f"{change.path} was changed again by a later change, which keeps it in {area}: "
                "undo that change first",
                RefusalReason.CHANGED,
                root / change.path,
            )


def _later_areas(journal: Journal) -> list[Path]:
    """Return the undo areas of the same directory that were begun after this one."""
    place = journal.area.parent
    home = place / journal.area.name.rpartition(AREA_MARK)[0]
    began = _begin_ms(journal.area)
    others = (area for _, area in list_areas(home, place, AREA_MARK) if area != journal.area)
    return [area for area in others if began is not None and (_begin_ms(area) or 0) > began]


def _begin_ms(area: Path) -> int | None:
    """Return when an area's change began, in ms since 1970."""
    with suppress(KafkaStoreError, OSError):
        return next((at_ms for step, _, at_ms in read_steps(area) if step == "applying"), None)
    return None


def _undo(execution: Execution, change: FileChange, state: UndoState) -> None:
    """Undo one change, and remove what it no longer needs."""
    path, kept = execution.path(change), execution.kept(change)
    if not path.parent.is_dir():  # the partition directory is missing
        is_as_before = state is UndoState.AS_BEFORE
        execution.record("restored" if is_as_before else "left", change)
        return
    with execution.directory(change) as here:
        execution.remove_temporary(change, here)
        match state:
            case UndoState.NOT_OURS:
                return
            case UndoState.CHANGED_SINCE:
                execution.record("left", change)
                return
            case UndoState.RESTORE:
                execution.check_lock()
                if change.before is None:
                    execution.fs.unlink(path, dir_fd=here)
                else:
                    _restore(execution, change, change.before, here)
        execution.fs.fsync_directory(path.parent, dir_fd=here)
    execution.record("restored", change)
    if os.path.lexists(kept):
        with execution.kept_directory(change) as there:
            execution.fs.unlink(kept, dir_fd=there)


def _restore(
    execution: Execution, change: FileChange, before: FileState, here: int
) -> None:
    """Restore a kept file under its own name."""
    temporary, kept = execution.temporary(change), execution.kept(change)

    def set_attributes(descriptor: int) -> None:
        execution.set_attributes(descriptor, change, before, here)

    with execution.kept_directory(change) as there:
        descriptor = open_file(kept, there)
        try:
            status = os.fstat(descriptor)
            has_attributes = _looks_as_before(status, before)
            is_same_file = second_name(
                kept,
                temporary,
                execution.fs,
                source_directory=there,
                target_directory=here,
                # A file with another name elsewhere, as in a backup by hard links, must not change.
                may_link=has_attributes or status.st_nlink == 1,
                set_attributes=set_attributes,
            )
            # A backup or a copy of the undo area may have changed the kept file's attributes. They
            # are set by descriptor: the other name may refer to another file by now.
            if is_same_file and not has_attributes:
                set_attributes(descriptor)
                execution.fs.fsync(descriptor)
            execution.fs.rename(temporary, execution.path(change), dir_fd=here)
        except BaseException:
            discard(temporary, execution.fs, here)
            raise
        finally:
            os.close(descriptor)


def _looks_as_before(status: os.stat_result, before: FileState) -> bool:
    """Return whether a kept file still has the old file's modification time and mode."""
    return (status.st_mtime_ns, stat.S_IMODE(status.st_mode)) == (before.mtime_ns, before.mode)


def _remove_empty_directories(execution: Execution) -> None:
    """Remove the empty directories of kept files."""
    with opened_directory(execution.area) as area, suppress(FileNotFoundError):
        for inner, names, _, here in os.fwalk(KEPT_DIRECTORY, dir_fd=area, topdown=False):
            for name in names:
                with suppress(OSError):  # not empty: files were left, or are not ours
                    execution.fs.rmdir(execution.area / inner / name, dir_fd=here)
        with suppress(OSError):
            execution.fs.rmdir(execution.area / KEPT_DIRECTORY, dir_fd=area)
