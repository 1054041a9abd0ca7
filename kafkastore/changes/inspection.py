"""Inspect the files of a plan before any is changed: how much is left to do."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from enum import Enum
from pathlib import Path
from typing import NamedTuple

from kafkastore.changes.file_state import FileState, read_state, status_of
from kafkastore.changes.no_follow import opened_directory
from kafkastore.changes.plan import FileChange, NewDirectory
from kafkastore.changes.undo_area import kept_in
from kafkastore.errors import (
    ChangeRefusedError,
    NoSpaceError,
    PlanRefusedError,
    RefusalReason,
)
from kafkastore.fs import FileSystem, can_change_owners


class ChangeState(Enum):
    """The state of one change of a plan."""

    PENDING = "pending"
    #: The file is as planned, but a crash came before the line in the journal.
    UNRECORDED = "unrecorded"
    DONE = "done"


class UndoState(Enum):
    """The result of inspecting one change before it is undone."""

    RESTORE = "restore"
    AS_BEFORE = "as before"
    NOT_OURS = "not ours"
    CHANGED_SINCE = "changed since"


def inspect_changes(
    root: Path, changes: Iterable[FileChange], recorded: frozenset[str], *, is_new: bool = False
) -> tuple[dict[str, ChangeState], list[ChangeRefusedError]]:
    """Return each change's state, and refusals of files that differ from the plan.

    `recorded` has the paths that the journal has as changed. `is_new`: the plan creates the
    directory of the files, which need not exist yet.
    """
    states: dict[str, ChangeState] = {}
    refusals = []
    directories: set[str] = set()
    owners: set[tuple[Path, int, int]] = set()
    for change in changes:
        try:
            check_directory(root, change, directories)
            state = _inspect(root, change, change.path in recorded)
            if state is ChangeState.PENDING and change.after is not None:
                directory = root / os.path.dirname(change.path)
                is_missing = is_new and not directory.exists()
                check_owners(root if is_missing else directory, change.after, owners)
            states[change.path] = state
        except ChangeRefusedError as error:
            refusals.append(error)
    return states, refusals


def check_directory(root: Path, change: FileChange, known: set[str]) -> None:
    """Refuse a change in a symbolic link; check each directory once."""
    directory = os.path.dirname(change.path)
    if directory not in known:
        with suppress(FileNotFoundError), opened_directory(root / directory):
            known.add(directory)


def raise_refusals(refusals: Sequence[ChangeRefusedError]) -> None:
    """Refuse a plan if one of its files is refused."""
    # A directory's refusal repeats for each file in it.
    different = list({each.args: each for each in refusals}.values())
    if len(different) == 1:
        raise different[0]
    if different:
        raise PlanRefusedError(different)


def _inspect(root: Path, change: FileChange, is_recorded: bool) -> ChangeState:
    """Return the state of one change.

    | the file is            | recorded as changed           | not recorded              |
    | ---------------------- | ----------------------------- | ------------------------- |
    | as planned             | done                          | unrecorded                |
    | as before              | pending (restored meanwhile)  | pending                   |
    | neither                | done (a broker changed it)    | refused                   |
    """
    path = root / change.path
    status = status_of(path)
    if is_recorded and change.after is not None and change.after.looks_same(status):
        return ChangeState.DONE
    state = read_state(path)
    if _is_as(change.after, state):
        return ChangeState.DONE if is_recorded else ChangeState.UNRECORDED
    if _is_as(change.before, state):
        check_reliances(root, change)
        return ChangeState.PENDING
    if is_recorded:
        return ChangeState.DONE
    raise changed_since_plan(path)


def check_owners(
    directory: Path, after: FileState | NewDirectory, known: set[tuple[Path, int, int]]
) -> None:
    """Refuse a new file whose owners this process may not give it; check each once."""
    asked = directory, after.user, after.group
    if asked in known:
        return
    groups = {os.getegid(), *os.getgroups(), os.stat(directory).st_gid}
    if (after.user != os.geteuid() or after.group not in groups) and not can_change_owners():
        raise may_not_own(directory, after)
    known.add(asked)


def may_not_own(directory: Path, after: FileState | NewDirectory) -> ChangeRefusedError:
    """Return the error for owners that this process may not give to files."""
    return ChangeRefusedError(
        f"no permission to give the files of {directory} to user {after.user}, group "
        f"{after.group}: run as that user, or as root",
        RefusalReason.FILE_ACCESS,
        directory,
    )


def changed_since_plan(path: str | Path) -> ChangeRefusedError:
    """Return the error for a file that is no longer as it was when the plan was made."""
    return ChangeRefusedError(
        f"{path} has changed since the plan was made; make a new plan",
        RefusalReason.CHANGED,
        path,
    )


def _is_as(expected: FileState | None, found: FileState | None) -> bool:
    """Return whether a file is the expected one, or is missing as expected."""
    return found is None if expected is None else expected.same_file(found)


def check_reliances(root: Path, change: FileChange) -> None:
    """Refuse a change if a file that it was computed from has changed."""
    for reliance in change.relies_on:
        status = status_of(root / reliance.path)
        found = None if status is None else (status.st_size, status.st_mtime_ns)
        if found != (reliance.size, reliance.mtime_ns):
            path = root / reliance.path
            raise ChangeRefusedError(
                f"{path} has changed since the plan was made, and {change.path} depends on it; "
                "make a new plan",
                RefusalReason.CHANGED,
                path,
            )


class SpaceNeeded(NamedTuple):
    """The disk space in bytes that pending changes need.

    `new` is for new files, `replaced` for old files that are not in the undo area yet; `example` is
    the path of one of these.
    """

    new: int
    replaced: int
    example: str | None


def space_needed(changes: Iterable[FileChange], area: Path) -> SpaceNeeded:
    """Add up the space that pending changes need."""
    new = replaced = 0
    example = None
    for change in changes:
        if change.after is not None:
            new += change.after.size
        if change.before is not None and not os.path.lexists(kept_in(area, change.path)):
            replaced += change.before.size
            example = example or change.path
    return SpaceNeeded(new, replaced, example)


def check_space(root: Path, area: Path, needed: Sequence[SpaceNeeded], fs: FileSystem) -> None:
    """Refuse if the new files, or copies of the old ones, do not fit on their disks."""
    new, copied = sum(each.new for each in needed), sum(each.replaced for each in needed)
    example = next(_examples(needed), None)
    if example is None or _can_link(root / example, area, fs):
        copied = 0
    if os.stat(area.parent).st_dev != os.stat(root).st_dev:
        _check_free(area.parent, copied, "copies of the old files")
        copied = 0
    files = "the new files and copies of the old ones" if copied else "the new files"
    _check_free(root, new + copied, files)


def _examples(needed: Iterable[SpaceNeeded]) -> Iterator[str]:
    return (each.example for each in needed if each.example is not None)


def _check_free(directory: Path, needed: int, files: str) -> None:
    disk = os.statvfs(directory)
    free = disk.f_bavail * disk.f_frsize
    if needed > free:
        raise NoSpaceError(directory, free, needed, files)


def _can_link(path: Path, area: Path, fs: FileSystem) -> bool:
    """Return whether a file can have a hard link next to the undo area."""
    trial = area.with_name(area.name + ".link")
    if os.path.lexists(trial):  # left by a killed run
        fs.unlink(trial)
    try:
        fs.link(path, trial)
    except OSError:  # for any reason: copies may be needed
        return False
    fs.unlink(trial)
    return True
