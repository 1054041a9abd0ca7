"""The partition directories that a plan creates before the files in them.

An undo removes those that are empty then. A directory that an interrupted run has created is empty
until it is recorded in the journal: a later run recognizes it by that.
"""

from __future__ import annotations

import errno
import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from kafkastore.changes.execution import Execution
from kafkastore.changes.file_state import PERMISSIONS
from kafkastore.changes.inspection import (
    UndoState,
    changed_since_plan,
    check_owners,
    may_not_own,
    raise_refusals,
)
from kafkastore.changes.journal import Journal, Step
from kafkastore.changes.no_follow import opened_directory
from kafkastore.changes.plan import NewDirectory
from kafkastore.changes.undo_area import temporary_file
from kafkastore.errors import ChangeRefusedError, RefusalReason

#: The mode until it has its owners: no other user can open it.
_FIRST_MODE = 0o700


def inspect_directories(
    root: Path, directories: Sequence[NewDirectory], journal: Journal | None
) -> list[ChangeRefusedError]:
    """Return refusals of directories that can't be created, or that others created.

    `journal` is the plan's own, if it was started before.
    """
    refusals = []
    owners: set[tuple[Path, int, int]] = set()
    for each in directories:
        try:
            if not _is_recorded(root, each, journal):
                _check_absent_or_ours(root, each, journal)
                check_owners(root, each, owners)
                _check_access(root, each)
        except ChangeRefusedError as error:
            refusals.append(error)
    return refusals


def create_directories(
    execution: Execution, directories: Sequence[NewDirectory], journal: Journal
) -> None:
    """Create the missing directories, and record them; `journal` is of earlier runs."""
    root, fs = execution.root, execution.fs
    missing = [each for each in directories if not _is_recorded(root, each, journal)]
    if not missing:
        return
    with opened_directory(root) as above:
        for each in missing:
            execution.check_lock()
            path = root / each.name
            _check_absent_or_ours(root, each, journal)
            if not os.path.lexists(path):
                fs.mkdir(path, _FIRST_MODE, dir_fd=above)
            with opened_directory(path) as here:
                _set_access(execution, each, here)
                fs.fsync_directory(path, dir_fd=here)
        fs.fsync_directory(root, dir_fd=above)
    execution.writer.steps("created", [each.name for each in missing])


def _is_recorded(root: Path, directory: NewDirectory, journal: Journal | None) -> bool:
    """Return whether the journal has a directory as created, and it exists."""
    is_recorded = journal is not None and directory.name in journal.created
    return is_recorded and os.path.isdir(root / directory.name)


def _check_absent_or_ours(root: Path, directory: NewDirectory, journal: Journal | None) -> None:
    """Refuse a directory that exists, unless a run of this plan may have created it."""
    path = root / directory.name
    if not os.path.lexists(path):
        return
    if journal is None or not journal.is_begun:
        raise changed_since_plan(path)
    with opened_directory(path) as here:
        if os.listdir(here):
            raise changed_since_plan(path)


def _check_access(root: Path, directory: NewDirectory) -> None:
    """Refuse owners and a mode that no directory there has, whatever the plan says."""
    wanted = directory.user, directory.group, directory.mode
    if _access_of(os.stat(root)) == wanted:
        return
    with os.scandir(root) as entries:
        if any(
            _access_of(entry.stat(follow_symlinks=False)) == wanted
            for entry in entries
            if entry.is_dir(follow_symlinks=False)
        ):
            return
    raise ChangeRefusedError(
        f"{root / directory.name} must get the owners and the mode of {root} or of a directory in "
        f"it, got user {directory.user}, group {directory.group}, mode {directory.mode:04o}: make "
        "a new plan",
        RefusalReason.FILE_ACCESS,
        root / directory.name,
    )


def _access_of(status: os.stat_result) -> tuple[int, int, int]:
    """Return a directory's owners and permission bits."""
    return status.st_uid, status.st_gid, status.st_mode & PERMISSIONS


def _set_access(execution: Execution, directory: NewDirectory, here: int) -> None:
    """Set the owners and the mode of the open directory."""
    status, fs = os.fstat(here), execution.fs
    if (status.st_uid, status.st_gid) != (directory.user, directory.group):
        try:
            fs.chown(here, directory.user, directory.group)
        except PermissionError:
            raise may_not_own(execution.root, directory) from None
    fs.chmod(here, directory.mode)


def inspect_created(
    journal: Journal, directories: Sequence[NewDirectory], leave_changed: bool
) -> dict[str, UndoState]:
    """Return the undo state of each directory that the plan creates, by name."""
    states: dict[str, UndoState] = {}
    if not directories:
        return states
    refusals = []
    planned = _planned_names(journal)
    for each in directories:
        try:
            state = states[each.name] = _inspect_created(journal, each, planned[each.name])
        except ChangeRefusedError as error:
            refusals.append(error)
            states[each.name] = UndoState.CHANGED_SINCE
            continue
        if state is UndoState.CHANGED_SINCE:
            path = journal.root / each.name
            refusals.append(
                ChangeRefusedError(
                    f"{path} was created by the plan, and has other files now; --leave-changed "
                    "(leave_changed=True) keeps them",
                    RefusalReason.CHANGED,
                    path,
                )
            )
    if not leave_changed:
        raise_refusals(refusals)
    return states


def _planned_names(journal: Journal) -> dict[str, set[str]]:
    """Return the names that the plan uses in each directory, also temporary ones."""
    names: dict[str, set[str]] = defaultdict(set)
    plan_id = journal.plan.id  # a digest of the whole plan
    for change in journal.plan.changes:
        path = journal.root / change.path
        names[path.parent.name] |= {path.name, temporary_file(path, plan_id).name}
    return names


def _inspect_created(
    journal: Journal, directory: NewDirectory, planned: set[str]
) -> UndoState:
    """Return the undo state of a directory that the plan creates.

    Without a record, it is the plan's only if the plan was begun and the directory is empty.
    """
    path = journal.root / directory.name
    try:
        with opened_directory(path) as here:
            names = set(os.listdir(here))
    except FileNotFoundError:
        return UndoState.AS_BEFORE
    if directory.name not in journal.created:
        is_ours = journal.is_begun and not names
        return UndoState.RESTORE if is_ours else UndoState.NOT_OURS
    return UndoState.CHANGED_SINCE if names - planned else UndoState.RESTORE


def remove_created(execution: Execution, states: Mapping[str, UndoState]) -> None:
    """Remove the directories that the plan created if they are empty; record it."""
    steps: dict[Step, list[str]] = {"restored": [], "left": []}
    root = execution.root
    with opened_directory(root) as above:
        for name, state in states.items():
            match state:
                case UndoState.NOT_OURS:
                    continue
                case UndoState.CHANGED_SINCE:
                    steps["left"].append(name)
                    continue
                case UndoState.RESTORE:
                    execution.check_lock()
                    try:
                        execution.fs.rmdir(root / name, dir_fd=above)
                    except OSError as error:
                        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                            raise
                        steps["left"].append(name)  # a file in it was left, or is new
                        continue
            steps["restored"].append(name)
        if steps["restored"]:
            execution.fs.fsync_directory(root, dir_fd=above)
    for step, names in steps.items():
        if names:
            execution.writer.steps(step, names)
