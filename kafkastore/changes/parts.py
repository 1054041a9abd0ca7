"""A plan carried out by many processes, a part for each partition directory; see `part_journals`.

The caller's process, the driver, does what is done once: it is the sole user of the root, refuses
what is not safe, writes the plan, and records that it is applied.  What is done with files is done
by functions of one part each, which are given to whatever runs them, on this machine or on others
that see the same storage.  A part may be run twice, also at the same time: the second finds what
the first has done.  Once interrupted, it is a plan like any other: `resume` and `undo` finish it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar

from kafkastore.changes.apply import (
    Needs,
    check_not_undoing,
    check_places,
    check_space,
    needs_of,
)
from kafkastore.changes.change_file import change_file
from kafkastore.changes.journal import Journal, JournalWriter, open_trusted, start_journal
from kafkastore.changes.part_journals import close_parts, open_parts, part_journal
from kafkastore.changes.plan import FileChange, Plan
from kafkastore.changes.run import Run, by_partition
from kafkastore.changes.sole_user import SoleUser, check_still_held, sole_user
from kafkastore.changes.standing import look_at_all, refuse
from kafkastore.changes.undo_area import AREA_MODE, KEPT_DIRECTORY, area_of
from kafkastore.errors import ChangeRefusedError, KafkaStoreError
from kafkastore.formats.arguments import check_kind
from kafkastore.fs import FileSystem
from kafkastore.paths import to_path

Result = TypeVar("Result")

#: How long tasks may take to end after an interruption; who comes next waits longer for them.
_SECONDS_AFTER_INTERRUPT = 5.0


class Part(NamedTuple):
    """The changes in one partition directory, and what a process needs to know to make them.

    Parameters
    ----------
    number : int
        Counted from 0, in the plan's order.
    root, area : str
        The plan's root and its undo area.
    plan_id : str
        The plan's id.
    locks : tuple of (str, int or None)
        As of `SoleUser`.
    changes : tuple of FileChange
        Those of the plan that are in this directory, in its order.
    recorded : frozenset of str
        Which of them the journal has as changed.
    folder : str
        The name of the folder that holds the journals of parts; empty while there is none.
    """

    number: int
    root: str
    area: str
    plan_id: str
    locks: tuple[tuple[str, int | None], ...]
    changes: tuple[FileChange, ...]
    recorded: frozenset[str]
    folder: str = ""

    @property
    def directory(self) -> str:
        """The partition directory, relative to the root; empty where it is the root."""
        return os.path.dirname(self.changes[0].path)


class DonePart(NamedTuple):
    """What came of a part.

    Parameters
    ----------
    directory : str
        The partition directory, relative to the root.
    files, bytes : int
        How many of its files are as planned now, and the size of those that were made.
    error : KafkaStoreError, OSError or None
        Why the others are not.
    """

    directory: str
    files: int
    bytes: int
    error: KafkaStoreError | OSError | None


class LookedAt(NamedTuple):
    """What was found of a part before anything is touched.

    Parameters
    ----------
    refusals : tuple of str
        A sentence for each file that does not fit the plan.
    needs : Needs
        Of the disks.
    is_done : bool
        Whether all files are as planned, and recorded so.
    error : OSError or None
        What kept a file from being looked at.
    """

    refusals: tuple[str, ...]
    needs: Needs
    is_done: bool
    error: OSError | None = None


class Spread(Protocol):
    """Runs a function for each part, anywhere; yields the results in the order of the parts."""

    def __call__(
        self, work: Callable[[Part], Result], parts: Sequence[Part]
    ) -> Iterable[Result]:
        """Run it."""


def apply_in_parts(
    plan: Plan,
    spread: Spread,
    undo_dir: str | os.PathLike[str] | None = None,
    *,
    fs: FileSystem = FileSystem(),
) -> tuple[Journal, tuple[DonePart, ...]]:
    """Carry out a plan, or the rest of it, as `apply` does, by other processes.

    Parameters
    ----------
    plan : Plan
        What to change.
    spread : Spread
        Runs functions of parts.
    undo_dir : path-like, optional
        The directory in which the undo area is made; beside the log.dirs root if left out.
    fs : FileSystem
        The altering calls of this process; for tests.

    Returns
    -------
    Journal, tuple of DonePart
        Applied; or, where a part has an error, unfinished, for `resume`, `undo`, or this function
        again. Other parts are not kept from going on by one that fails.

    Raises
    ------
    ChangeRefusedError
        If it is not safe; nothing has been changed then.
    OSError
        If the disk fails or is full; calling again, or `resume`, finishes.
    """
    check_kind("plan", plan, Plan)
    area = area_of(plan, undo_dir)
    if not plan.changes:
        return Journal(area, plan, "applied"), ()
    with sole_user(to_path(plan.root)) as user:
        recorded = check_places(plan, area, undo_dir, fs)
        root = Path(os.path.realpath(plan.root))
        parts = _look_at(plan, root, area, recorded, user, spread, fs)
        return _carry_out(start_journal(plan, area, fs), parts, spread, fs)


def resume_in_parts(
    journal: Journal | str | os.PathLike[str],
    spread: Spread,
    *,
    root: str | os.PathLike[str] | None = None,
    trust_area: bool = False,
    fs: FileSystem = FileSystem(),
) -> tuple[Journal, tuple[DonePart, ...]]:
    """Finish a plan that was interrupted while it was applied, by other processes.

    Parameters
    ----------
    journal : Journal or path-like
        The journal, or its undo area.
    spread : Spread
        Runs functions of parts.
    root, trust_area : path-like, bool
        As of `undo`.
    fs : FileSystem
        The altering calls of this process; for tests.

    Returns
    -------
    Journal, tuple of DonePart
        As of `apply_in_parts`.

    Raises
    ------
    ChangeRefusedError
        As `apply_in_parts` does; and if the plan is being undone.
    """
    journal = open_trusted(journal, root, trust_area=trust_area)
    plan, area = journal.plan, journal.area
    with sole_user(journal.root) as user:
        close_parts(area, fs)
        journal = journal.read_again()
        check_not_undoing(journal)
        if journal.is_finished:
            return journal, ()
        parts = _look_at(plan, journal.root, area, journal.changed, user, spread, fs)
        return _carry_out(journal, parts, spread, fs)


def _look_at(
    plan: Plan,
    root: Path,
    area: Path,
    recorded: frozenset[str],
    user: SoleUser,
    spread: Spread,
    fs: FileSystem,
) -> list[Part]:
    """Have all files looked at, refuse the whole plan if one does not fit; return what is left."""
    parts = list(_parts_of(plan, root, area, recorded, user))
    looked = list(spread(look_at_part, parts))
    for each in looked:
        if each.error is not None:
            raise each.error
    refusals = [refusal for each in looked for refusal in each.refusals]
    if refusals:
        refuse(refusals)
    user()
    check_space(root, area, [each.needs for each in looked], fs)
    return [part for part, each in zip(parts, looked, strict=True) if not each.is_done]


def _parts_of(
    plan: Plan, root: Path, area: Path, recorded: frozenset[str], user: SoleUser
) -> Iterator[Part]:
    """Cut a plan into parts."""
    plan_id = plan.id
    locks = tuple((str(path), inode) for path, inode in user.locks.items())
    for number, changes in enumerate(by_partition(plan.changes)):
        of_part = recorded.intersection(change.path for change in changes)
        yield Part(number, str(root), str(area), plan_id, locks, tuple(changes), of_part)


def _carry_out(
    journal: Journal, parts: Sequence[Part], spread: Spread, fs: FileSystem
) -> tuple[Journal, tuple[DonePart, ...]]:
    """Carry out what is left; the caller is the sole user, and all files were looked at."""
    check_not_undoing(journal)
    if not parts and journal.phase == "applied":
        return journal, ()
    area = journal.area
    writer = JournalWriter.of(area, fs)
    try:
        writer.phase("applying")
        fs.fsync_directory(area.parent)
        if any(change.before is not None for part in parts for change in part.changes):
            with suppress(FileExistsError):
                fs.mkdir(area / KEPT_DIRECTORY, AREA_MODE)
            fs.fsync_directory(area)
        try:
            with open_parts(area, fs) as folder:
                done = tuple(spread(apply_part, [each._replace(folder=folder) for each in parts]))
        except BaseException:
            # As far as tasks end in time: whoever comes next does it in any case, and waits.
            with suppress(ChangeRefusedError, OSError):
                close_parts(area, fs, patience=_SECONDS_AFTER_INTERRUPT)
            raise
        close_parts(area, fs)
        journal = journal.read_again()
        if all(change.path in journal.changed for change in journal.plan.changes):
            writer.phase("applied")
    finally:
        writer.close()
    return journal.read_again(), done


def look_at_part(part: Part) -> LookedAt:
    """Find out what is left to do of a part; alters nothing.

    Parameters
    ----------
    part : Part
        The part.

    Returns
    -------
    LookedAt
        With a refusal for each file that does not fit the plan.
    """
    try:
        standings, refusals = look_at_all(Path(part.root), part.changes, part.recorded)
        if refusals:
            return LookedAt(tuple(refusals), Needs(0, 0, None), is_done=False)
        is_done = all(standing == "done" for standing in standings.values())
        return LookedAt((), needs_of(part.changes, Path(part.area), standings), is_done)
    except OSError as error:
        return LookedAt((), Needs(0, 0, None), is_done=False, error=error)


def apply_part(part: Part, fs: FileSystem = FileSystem()) -> DonePart:
    """Carry out a part; safe to be called again, and side by side.

    Parameters
    ----------
    part : Part
        The part; its driver is at work.
    fs : FileSystem
        The altering calls; for tests.

    Returns
    -------
    DonePart
        With an error where it could not be finished; no file is half done then.
    """
    done = 0
    try:
        root, area = Path(part.root), Path(part.area)
        locks = {Path(path): inode for path, inode in part.locks}
        with part_journal(area / part.folder, part.number, fs) as (writer, changed, check_driver):

            def check() -> None:
                check_driver()
                check_still_held(root, locks)

            standings, refusals = look_at_all(root, part.changes, part.recorded | changed)
            if refusals:
                refuse(refusals)
            # The driver has made them, and their names durable.
            durable = (area, area / KEPT_DIRECTORY)
            run = Run(root, area, part.plan_id, writer, fs, check, None, durable)
            for change in part.changes:
                match standings[change.path]:
                    case "to do":
                        change_file(run, change)
                    case "unrecorded":
                        fs.fsync_directory(run.path(change).parent)
                        run.record("changed", change)
                done += 1
    except (KafkaStoreError, OSError) as error:
        return _done(part, done, error)
    return _done(part, done, None)


def _done(part: Part, files: int, error: KafkaStoreError | OSError | None) -> DonePart:
    """Sum up a part, of which the first so many files are as planned."""
    made = (change.after.size for change in part.changes[:files] if change.after is not None)
    return DonePart(part.directory, files, sum(made), error)
