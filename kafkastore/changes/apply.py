"""Carry out a plan, or the rest of one that was interrupted.

1. Refuse when a broker or another job of ours has the directory open, when an earlier plan is
   unfinished, when a file is neither as the plan says it is nor as it says it will be, or when a
   file that the plan relies on has changed.  Nothing is touched until all have been looked at.
2. Write the plan into the undo area.  Then, for each file:
   a. write the new bytes beside it under a name no broker looks at, and compare their digest with
      the plan's; set owners, mode and modification time; fsync;
   b. give the old file a second name in the undo area (a copy where links do not reach); fsync;
   c. look again whether anything moved; rename the new file over the old; fsync the directory;
   d. write a line into the journal; fsync.
3. Write into the journal that the plan is applied.

A crash before the rename leaves the old file, after it the new one, and a rerun tells them apart by
their digests.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from kafkastore.changes.content import chunks_of
from kafkastore.changes.copy_file import second_name
from kafkastore.changes.file_state import FileState, read_state, status_of
from kafkastore.changes.journal import Journal, JournalWriter, each_journal, start_journal
from kafkastore.changes.plan import FileChange, Plan
from kafkastore.changes.run import Progress, Run, by_partition, discard, run_partitions
from kafkastore.changes.sole_user import sole_user
from kafkastore.changes.undo_area import area_of, check_area, kept_in
from kafkastore.errors import ChangeRefusedError
from kafkastore.formats.arguments import check_kind
from kafkastore.fs import FileSystem

# done: as planned, and recorded so.  unrecorded: as planned, but a crash cut the journal's line.
Standing = Literal["done", "unrecorded", "to do"]


def apply(
    plan: Plan,
    undo_dir: str | os.PathLike[str] | None = None,
    *,
    fs: FileSystem = FileSystem(),
    progress: Progress | None = None,
    threads: int = 1,
) -> Journal:
    """Carry out a plan; or the rest of it, when a run was interrupted.

    Parameters
    ----------
    plan : Plan
        What to change.
    undo_dir : path-like, optional
        The directory in which the undo area is made; beside the log.dirs root if left out.
    fs : FileSystem
        The altering calls; for tests.
    progress : callable, optional
        Called with each `FileChange` once it is done, by one thread at a time.
    threads : int
        How many partitions are worked on at once.

    Returns
    -------
    Journal
        Applied; give it to `undo` to go back.  Applying a plan twice is the same as once.

    Raises
    ------
    ChangeRefusedError
        If it is not safe; nothing has been changed then, unless files changed during the run.
    OSError
        If the disk fails or is full; every file is wholly old or wholly new, and calling again, or
        `resume`, finishes.
    """
    check_kind("plan", plan, Plan)
    area = area_of(plan, undo_dir)
    if not plan.changes:
        return Journal(area, plan, "applied")
    root = Path(plan.root)
    with sole_user(root) as check:
        check_area(plan, area, chosen=undo_dir is not None)
        recorded: frozenset[str] = frozenset()
        for journal in each_journal(root, undo_dir):
            if journal.area == area:
                recorded = journal.changed
            elif not journal.is_finished:
                raise ChangeRefusedError(
                    f"an earlier plan is unfinished: resume or undo {journal.area}"
                )
        standings = _look_at_all(plan, recorded)
        _check_space(plan, area, standings, fs)
        return _apply(start_journal(plan, area, fs), standings, fs, check, progress, threads)


def resume_applying(
    journal: Journal, *, fs: FileSystem, progress: Progress | None, threads: int
) -> Journal:
    """Finish a plan that was interrupted."""
    with sole_user(Path(journal.plan.root)) as check:
        journal = journal.read_again()
        standings = _look_at_all(journal.plan, journal.changed)
        _check_space(journal.plan, journal.area, standings, fs)
        return _apply(journal, standings, fs, check, progress, threads)


def _apply(
    journal: Journal,
    standings: dict[str, Standing],
    fs: FileSystem,
    check: Callable[[], None],
    progress: Progress | None,
    threads: int,
) -> Journal:
    """Carry out what is left; the caller is the sole user and has looked at every file."""
    if journal.phase == "undoing":
        raise ChangeRefusedError(f"{journal.area} is being undone: resume that first")
    todo = [change for change in journal.plan.changes if standings[change.path] != "done"]
    if not todo and journal.phase == "applied":
        return journal
    writer = JournalWriter(journal.area, fs)
    try:
        writer.phase("applying")
        run = Run(journal, writer, fs, check, progress)
        run.make_directory(journal.area)

        def step(change: FileChange) -> None:
            if standings[change.path] == "unrecorded":
                fs.fsync_directory(run.path(change).parent)
                run.record("changed", change)
            else:
                _change(run, change)

        run_partitions(by_partition(todo), step, threads)
        writer.phase("applied")
    finally:
        writer.close()
    return journal.read_again()


def _look_at_all(plan: Plan, recorded: frozenset[str]) -> dict[str, Standing]:
    """Find out what is left to do, and refuse the whole plan if any file does not fit it."""
    standings: dict[str, Standing] = {}
    refusals = []
    for change in plan.changes:
        try:
            standings[change.path] = _look_at(Path(plan.root), change, change.path in recorded)
        except ChangeRefusedError as error:
            refusals.append(str(error))
    if refusals:
        more = f"; and {len(refusals) - 3} more" if len(refusals) > 3 else ""
        raise ChangeRefusedError("; ".join(refusals[:3]) + more)
    return standings


def _look_at(root: Path, change: FileChange, recorded: bool) -> Standing:
    """Find out where one file stands.

    | the file is            | recorded as changed        | not recorded              |
    | ---------------------- | -------------------------- | ------------------------- |
    | as planned             | done                       | unrecorded                |
    | as before              | to do (somebody restored)  | to do                     |
    | neither                | done (a broker went on)    | refused                   |
    """
    path = root / change.path
    status = status_of(path)
    if recorded and change.after is not None and change.after.looks_same(status):
        return "done"
    state = read_state(path)
    if _same(change.after, state):
        return "done" if recorded else "unrecorded"
    if _same(change.before, state):
        _check_reliances(root, change)
        return "to do"
    if recorded:
        return "done"
    raise ChangeRefusedError(f"{path} has changed since the plan was made")


def _same(expected: FileState | None, found: FileState | None) -> bool:
    """Answer whether a file is the expected one, or is missing as expected."""
    return found is None if expected is None else expected.same_file(found)


def _check_reliances(root: Path, change: FileChange) -> None:
    """Refuse if a file that the change was computed from has changed."""
    for reliance in change.relies_on:
        status = status_of(root / reliance.path)
        found = None if status is None else (status.st_size, status.st_mtime_ns)
        if found != (reliance.size, reliance.mtime_ns):
            raise ChangeRefusedError(
                f"{root / reliance.path} has changed since the plan was made, "
                f"and {change.path} depends on it"
            )


def _check_space(plan: Plan, area: Path, standings: dict[str, Standing], fs: FileSystem) -> None:
    """Refuse when the new files, or copies of the old ones, surely do not fit on their disks."""
    root = Path(plan.root)
    todo = [change for change in plan.changes if standings[change.path] == "to do"]
    new = sum(change.after.size for change in todo if change.after is not None)
    replaced = {
        change.path: change.before.size
        for change in todo
        if change.before is not None and not os.path.lexists(kept_in(area, change.path))
    }
    copied = 0
    if replaced and not _links_reach(root / next(iter(replaced)), area, fs):
        copied = sum(replaced.values())
    if os.stat(area.parent).st_dev != os.stat(root).st_dev:
        _check_free(area.parent, copied, "copies of the old files need")
        copied = 0
    what = "the new files and copies of the old ones need" if copied else "the new files need"
    _check_free(root, new + copied, what)


def _check_free(place: Path, needed: int, what: str) -> None:
    disk = os.statvfs(place)
    free = disk.f_bavail * disk.f_frsize
    if needed > free:
        raise ChangeRefusedError(f"{place} has {free} bytes left, {what} {needed}")


def _links_reach(path: Path, area: Path, fs: FileSystem) -> bool:
    """Find out whether a file can get a second name where the undo area is."""
    trial = area.with_name(area.name + ".link")
    if os.path.lexists(trial):  # of a run that was killed here
        fs.unlink(trial)
    try:
        fs.link(path, trial)
    except OSError:  # whatever it is: then copies may be needed
        return False
    fs.unlink(trial)
    return True


def _change(run: Run, change: FileChange) -> None:
    """Change one file: new bytes beside it, the old file kept, one rename."""
    path, temporary = run.path(change), run.temporary(change)
    run.check_sole_user()
    _check_unmoved(run, change)
    run.remove_temporary(change)
    try:
        if change.after is not None:
            _write_temporary(run, change, change.after)
        if change.before is not None:
            _keep(run, change, change.before)
        run.check_sole_user()
        _check_unmoved(run, change)
        if change.after is not None:
            run.fs.rename(temporary, path)
        else:
            run.fs.unlink(path)
    except BaseException:
        discard(temporary, run.fs)
        raise
    run.fs.fsync_directory(path.parent)
    run.record("changed", change)


def _check_unmoved(run: Run, change: FileChange) -> None:
    """Refuse if the file, or one the change relies on, moved since it was looked at."""
    status = status_of(run.path(change))
    if (status is not None) if change.before is None else not change.before.looks_same(status):
        raise ChangeRefusedError(f"{run.path(change)} has changed since the plan was made")
    _check_reliances(Path(run.journal.plan.root), change)


def _write_temporary(run: Run, change: FileChange, after: FileState) -> None:
    """Make the new file, durable, under its temporary name."""
    temporary = run.temporary(change)
    assert change.content is not None  # FileChange sees to it
    descriptor = run.fs.create(temporary, 0o600)
    try:
        digest, size = hashlib.sha256(), 0
        for chunk in chunks_of(change.content, run.path(change)):
            run.fs.write_all(descriptor, chunk)
            digest.update(chunk)
            size += len(chunk)
        if (size, digest.hexdigest()) != (after.size, after.sha256):
            raise ChangeRefusedError(
                f"{run.path(change)} would not become what the plan says: what "
                "it is made from has changed"
            )
        run.dress(temporary, after)
        run.fs.fsync(descriptor)
    finally:
        run.fs.close(descriptor)


def _keep(run: Run, change: FileChange, before: FileState) -> None:
    """Give the old file a second name in the undo area, durable before the file is replaced."""
    path, kept = run.path(change), run.kept(change)
    run.make_directory(kept.parent)
    if os.path.lexists(kept) and not before.same_bytes(read_state(kept)):
        run.fs.unlink(kept)
    if not os.path.lexists(kept):
        second_name(path, kept, run.fs)
    run.fs.fsync_directory(kept.parent)
