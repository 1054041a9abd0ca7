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

import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from kafkastore.changes.change_file import change_file
from kafkastore.changes.journal import Journal, JournalWriter, each_journal, start_journal
from kafkastore.changes.part_journals import close_parts
from kafkastore.changes.plan import FileChange, Plan
from kafkastore.changes.run import Progress, Run, by_partition, run_partitions
from kafkastore.changes.sole_user import sole_user
from kafkastore.changes.standing import Standing, look_at_all, refuse
from kafkastore.changes.undo_area import area_of, check_area, check_trusted, kept_in
from kafkastore.errors import ChangeRefusedError
from kafkastore.formats.arguments import check_kind
from kafkastore.fs import FileSystem
from kafkastore.paths import to_path


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
    with sole_user(to_path(plan.root)) as check:
        recorded = check_places(plan, area, undo_dir, fs)
        standings = _look_at(plan, Path(os.path.realpath(plan.root)), area, recorded, fs)
        return _apply(start_journal(plan, area, fs), standings, fs, check, progress, threads)


def resume_applying(
    journal: Journal, *, fs: FileSystem, progress: Progress | None, threads: int
) -> Journal:
    """Finish a plan that was interrupted."""
    root = journal.root
    with sole_user(root) as check:
        close_parts(journal.area, fs)
        journal = journal.read_again()
        standings = _look_at(journal.plan, root, journal.area, journal.changed, fs)
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
    check_not_undoing(journal)
    todo = [change for change in journal.plan.changes if standings[change.path] != "done"]
    if not todo and journal.phase == "applied":
        return journal
    writer = JournalWriter.of(journal.area, fs)
    try:
        writer.phase("applying")
        area, plan_id = journal.area, journal.plan.id
        run = Run(journal.root, area, plan_id, writer, fs, check, progress)
        run.make_directory(journal.area)

        def step(change: FileChange) -> None:
            if standings[change.path] == "unrecorded":
                fs.fsync_directory(run.path(change).parent)
                run.record("changed", change)
            else:
                change_file(run, change)

        run_partitions(by_partition(todo), step, threads)
        writer.phase("applied")
    finally:
        writer.close()
    return journal.read_again()


def check_places(
    plan: Plan, area: Path, undo_dir: str | os.PathLike[str] | None, fs: FileSystem
) -> frozenset[str]:
    """Refuse a plan that has no place for what is replaced, or comes before another is finished.

    Parameters
    ----------
    plan : Plan
        What is going to be applied; the caller is the sole user of its root.
    area : Path
        Its undo area.
    undo_dir : path-like or None
        The directory that was chosen for it.
    fs : FileSystem
        The altering calls.

    Returns
    -------
    frozenset of str
        The paths that the plan's own journal has as changed, if it was begun before.

    Raises
    ------
    ChangeRefusedError
        If that is not safe.
    """
    check_area(plan, area, chosen=undo_dir is not None)
    with suppress(FileNotFoundError):
        check_trusted(area)
    close_parts(area, fs)
    recorded: frozenset[str] = frozenset()
    for journal in each_journal(plan.root, undo_dir):
        if journal.area == area:
            recorded = journal.changed
        elif not journal.is_finished:
            raise ChangeRefusedError(
                f"an earlier plan is unfinished: resume or undo {journal.area}"
            )
    return recorded


def check_not_undoing(journal: Journal) -> None:
    """Refuse to apply a plan whose undoing was interrupted."""
    if journal.phase == "undoing":
        raise ChangeRefusedError(f"{journal.area} is being undone: resume that first")


def _look_at(
    plan: Plan, root: Path, area: Path, recorded: frozenset[str], fs: FileSystem
) -> dict[str, Standing]:
    """Find out what is left to do, and refuse the whole plan if any file does not fit it."""
    standings, refusals = look_at_all(root, plan.changes, recorded)
    if refusals:
        refuse(refusals)
    needs = needs_of(plan.changes, area, standings)
    check_space(root, area, [needs], fs)
    return standings


class Needs(NamedTuple):
    """What some changes need of their disks.

    Parameters
    ----------
    new : int
        Bytes of the new files.
    replaced : int
        Bytes of the old files that are not yet kept.
    example : str or None
        The path of one of those.
    """

    new: int
    replaced: int
    example: str | None


def needs_of(
    changes: Iterable[FileChange], area: Path, standings: Mapping[str, Standing]
) -> Needs:
    """Add up what the changes need that are still to do."""
    new = replaced = 0
    example = None
    for change in changes:
        if standings[change.path] != "to do":
            continue
        if change.after is not None:
            new += change.after.size
        if change.before is not None and not os.path.lexists(kept_in(area, change.path)):
            replaced += change.before.size
            example = example or change.path
    return Needs(new, replaced, example)


def check_space(root: Path, area: Path, needs: Iterable[Needs], fs: FileSystem) -> None:
    """Refuse when the new files, or copies of the old ones, surely do not fit on their disks.

    Parameters
    ----------
    root, area : Path
        Where the files are, and where the old ones go.
    needs : iterable of Needs
        Of parts of the plan, or of all of it.
    fs : FileSystem
        The altering calls.

    Raises
    ------
    ChangeRefusedError
        If they do not.
    """
    needs = list(needs)
    new, copied = sum(each.new for each in needs), sum(each.replaced for each in needs)
    example = next((each.example for each in needs if each.example is not None), None)
    if example is None or _links_reach(root / example, area, fs):
        copied = 0
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
