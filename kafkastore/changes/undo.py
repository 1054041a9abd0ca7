"""Go back: every file as it was before the plan, its bytes, its times, its absence.

For each file of the plan, last first: what was kept gets a second name beside the file, and is
renamed over it; a file that the plan created is removed.  The kept file goes last, so that a crash
at any instant leaves it in one place at least.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal

from kafkastore.changes.apply import resume_applying
from kafkastore.changes.copy_file import second_name
from kafkastore.changes.file_state import FileState, read_state
from kafkastore.changes.journal import Journal, JournalWriter, open_trusted
from kafkastore.changes.opened_directory import open_file, opened_directory
from kafkastore.changes.part_journals import close_parts
from kafkastore.changes.plan import FileChange
from kafkastore.changes.run import Progress, Run, by_partition, discard, run_partitions
from kafkastore.changes.sole_user import sole_user
from kafkastore.changes.standing import check_directory, refuse
from kafkastore.changes.undo_area import KEPT_DIRECTORY
from kafkastore.errors import ChangeRefusedError
from kafkastore.fs import FileSystem

Standing = Literal["restore", "as before", "not ours", "changed since"]


def undo(
    journal: Journal | str | os.PathLike[str],
    *,
    root: str | os.PathLike[str] | None = None,
    trust_area: bool = False,
    leave_changed: bool = False,
    fs: FileSystem = FileSystem(),
    progress: Progress | None = None,
    threads: int = 1,
) -> Journal:
    """Restore what a plan replaced, created or removed.

    Parameters
    ----------
    journal : Journal or path-like
        The journal, or its undo area.  The plan may be applied in part.
    root : path-like, optional
        The log directory, or partition directory, that was changed; needed if the undo area does
        not lie beside it.
    trust_area : bool
        Whether an undo area is taken that others than this user and root may have written.
    leave_changed : bool
        Whether files that somebody, such as a broker, has changed since, and those of which what
        was kept is gone, are left as they are, and the others restored; otherwise one such file has
        the whole undo refused.  A file whose bytes are the plan's counts as unchanged, whatever its
        modification time.  What was left is tried again by the next call.
    fs : FileSystem
        The altering calls; for tests.
    progress : callable, optional
        Called with each `FileChange` once it is undone, by one thread at a time.
    threads : int
        How many partitions are worked on at once.

    Returns
    -------
    Journal
        Undone; `left` names what was left.

    Raises
    ------
    ChangeRefusedError
        If a broker has the directory open, a file was changed since, a kept file is missing or
        damaged, the undo area may be of others, or does not lie beside the log directory; nothing
        has been changed then.
    """
    if isinstance(journal, Journal) and not journal.plan.changes:
        return journal
    journal = open_trusted(journal, root, trust_area=trust_area)
    area = journal.area
    with sole_user(journal.root) as check:
        close_parts(area, fs)
        journal = journal.read_again()
        changes = journal.plan.changes
        if journal.phase == "undone":
            # What was left may fit again: a directory was away, or somebody put a file back.
            changes = tuple(change for change in changes if change.path in journal.left)
            leave_changed = True
            if not changes:
                return journal
        standings = _look_at_all(journal, changes, leave_changed)
        writer = JournalWriter.of(area, fs)
        try:
            writer.phase("undoing")
            run = Run(journal.root, area, journal.plan.id, writer, fs, check, progress)
            partitions = by_partition(reversed(changes))
            run_partitions(partitions, lambda each: _undo(run, each, standings[each.path]), threads)
            _remove_empty_directories(run)
            writer.phase("undone")
        finally:
            writer.close()
    return journal.read_again()


def resume(
    journal: Journal | str | os.PathLike[str],
    *,
    root: str | os.PathLike[str] | None = None,
    trust_area: bool = False,
    fs: FileSystem = FileSystem(),
    progress: Progress | None = None,
    threads: int = 1,
) -> Journal:
    """Finish what was interrupted: applying or undoing.

    Parameters
    ----------
    journal : Journal or path-like
        The journal, or its undo area.
    root, trust_area : path-like, bool
        As of `undo`.
    fs : FileSystem
        The altering calls; for tests.
    progress : callable, optional
        Called with each `FileChange` once it is done, by one thread at a time.
    threads : int
        How many partitions are worked on at once.

    Returns
    -------
    Journal
        Applied or undone; a finished one comes back as it is.

    Raises
    ------
    ChangeRefusedError
        As `apply` and `undo` do.
    """
    if isinstance(journal, Journal) and not journal.plan.changes:
        return journal
    journal = open_trusted(journal, root, trust_area=trust_area)
    match journal.phase:
        case "applying":
            return resume_applying(journal, fs=fs, progress=progress, threads=threads)
        case "undoing":
            return undo(
                journal,
                trust_area=trust_area,
                leave_changed=bool(journal.left),
                fs=fs,
                progress=progress,
                threads=threads,
            )
        case _:
            return journal


def _look_at_all(
    journal: Journal, changes: Sequence[FileChange], leave_changed: bool
) -> dict[str, Standing]:
    """Find out where each file stands; refuse before anything is touched."""
    standings: dict[str, Standing] = {}
    refusals = []
    directories: set[str] = set()
    root = journal.root
    for change in changes:
        try:
            check_directory(root, change, directories)
            standing = standings[change.path] = _look_at(journal, root, change)
        except ChangeRefusedError as error:
            refusals.append(str(error))
            standings[change.path] = "changed since"
            continue
        if standing == "changed since" and not leave_changed:
            refusals.append(f"{change.path} was changed after the plan was applied")
    if refusals and not leave_changed:
        refuse(refusals)
    return standings


def _look_at(journal: Journal, root: Path, change: FileChange) -> Standing:
    """Find out where one file stands.

    | the file is                       | recorded as changed | not recorded               |
    | --------------------------------- | ------------------- | -------------------------- |
    | as before                         | as before           | as before                  |
    | of the plan's bytes               | restore             | restore if the old is kept |
    | neither                           | changed since       | not ours                   |
    """
    recorded = change.path in journal.changed
    path = root / change.path
    if not path.parent.is_dir():
        raise ChangeRefusedError(f"{change.path} can't be put back: {path.parent} is gone")
    state = read_state(path)
    as_before = state is None if change.before is None else change.before.same_file(state)
    if as_before:
        return "as before"
    as_planned = state is None if change.after is None else change.after.same_bytes(state)
    if not as_planned:
        return "changed since" if recorded else "not ours"
    if change.before is None:
        # Unrecorded, it is ours only if its time is the planned one too.
        ours = recorded or (change.after is not None and change.after.same_file(state))
        return "restore" if ours else "not ours"
    kept = journal.area / KEPT_DIRECTORY / change.path
    if change.before.same_bytes(read_state(kept)):
        return "restore"
    if not recorded:
        return "not ours"
    raise ChangeRefusedError(f"{kept} is missing or no longer what was kept there")


def _undo(run: Run, change: FileChange, standing: Standing) -> None:
    """Undo one change, and clear away what is no longer needed for it."""
    path = run.path(change)
    if standing == "changed since" and not path.parent.is_dir():
        run.record("left", change)  # its partition is gone
        return
    with run.directory(change) as here:
        run.remove_temporary(change, here)
        match standing:
            case "not ours":
                return
            case "changed since":
                run.record("left", change)
                return
            case "restore":
                run.check_sole_user()
                if change.before is None:
                    run.fs.unlink(path, dir_fd=here)
                else:
                    _restore(run, change, change.before, here)
        run.fs.fsync_directory(path.parent, dir_fd=here)
    run.record("restored", change)
    if os.path.lexists(run.kept(change)):
        with run.kept_directory(change) as there:
            run.fs.unlink(run.kept(change), dir_fd=there)


def _restore(run: Run, change: FileChange, before: FileState, here: int) -> None:
    """Put a kept file back under its name."""
    temporary, kept = run.temporary(change), run.kept(change)

    def dress(descriptor: int) -> None:
        run.dress(descriptor, change, before, here)

    with run.kept_directory(change) as there:
        descriptor = open_file(kept, there)
        try:
            is_same_file = second_name(
                kept,
                temporary,
                run.fs,
                source_directory=there,
                target_directory=here,
                dress=dress,
            )
            # A backup or a copy of the undo area may have touched what is kept there. What has two
            # names is dressed as what is kept: the other name may be anybody's by now.
            if is_same_file and not _looks_as_before(os.fstat(descriptor), before):
                dress(descriptor)
                run.fs.fsync(descriptor)
            run.fs.rename(temporary, run.path(change), dir_fd=here)
        except BaseException:
            discard(temporary, run.fs, here)
            raise
        finally:
            os.close(descriptor)


def _looks_as_before(status: os.stat_result, before: FileState) -> bool:
    """Answer whether a kept file still has the times and the mode of the file that it was."""
    return (status.st_mtime_ns, stat.S_IMODE(status.st_mode)) == (before.mtime_ns, before.mode)


def _remove_empty_directories(run: Run) -> None:
    """Remove the directories that held kept files."""
    with opened_directory(run.area) as area, suppress(FileNotFoundError):
        for inner, names, _, here in os.fwalk(KEPT_DIRECTORY, dir_fd=area, topdown=False):
            for name in names:
                with suppress(OSError):  # not empty: files were left, or a stranger put some there
                    run.fs.rmdir(run.area / inner / name, dir_fd=here)
        with suppress(OSError):
            run.fs.rmdir(run.area / KEPT_DIRECTORY, dir_fd=area)
