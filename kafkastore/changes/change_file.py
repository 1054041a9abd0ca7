"""Change one file so that at any moment it is either old or new as a whole."""

from __future__ import annotations

import hashlib
import os

from kafkastore.changes.copy_file import discard, second_name
from kafkastore.changes.execution import Execution
from kafkastore.changes.file_state import FileState, read_state, status_of
from kafkastore.changes.inspection import ChangeState, changed_since_plan, check_reliances
from kafkastore.changes.new_bytes import chunks_of
from kafkastore.changes.plan import FileChange
from kafkastore.errors import ChangeRefusedError, RefusalReason


def change_file(execution: Execution, change: FileChange, state: ChangeState) -> None:
    """Change one file as planned, and record it; `state` is the inspected state."""
    match state:
        case ChangeState.PENDING:
            _change(execution, change)
        case ChangeState.UNRECORDED:
            execution.fs.fsync_directory(execution.path(change).parent)
        case ChangeState.DONE:
            return
    execution.record("changed", change)


def _change(execution: Execution, change: FileChange) -> None:
    """Write the new bytes next to the file, keep the old file, rename once."""
    path, temporary = execution.path(change), execution.temporary(change)
    execution.check_lock()
    with execution.directory(change) as here:
        _check_unchanged(execution, change, here)
        execution.remove_temporary(change, here)
        try:
            if change.after is not None:
                _write_temporary(execution, change, change.after, here)
            if change.before is not None:
                _keep(execution, change, change.before, here)
            execution.check_lock()
            _check_unchanged(execution, change, here)
            if change.after is not None:
                execution.fs.rename(temporary, path, dir_fd=here)
            else:
                execution.fs.unlink(path, dir_fd=here)
        except BaseException:
            discard(temporary, execution.fs, here)
            raise
        execution.fs.fsync_directory(path.parent, dir_fd=here)


def _check_unchanged(execution: Execution, change: FileChange, here: int) -> None:
    """Refuse if the file, or one relied on, has changed since the inspection."""
    status = status_of(execution.path(change), here)
    if (status is not None) if change.before is None else not change.before.looks_same(status):
        raise changed_since_plan(execution.path(change))
    check_reliances(execution.root, change)


def _write_temporary(
    execution: Execution, change: FileChange, after: FileState, here: int
) -> None:
    """Write the new file under its temporary name, and flush it."""
    temporary = execution.temporary(change)
    assert change.content is not None  # FileChange checks it
    descriptor = execution.fs.create(temporary, 0o600, dir_fd=here)
    try:
        digest, size = hashlib.sha256(), 0
        for chunk in chunks_of(change.content, execution.path(change), execution.threads):
            execution.fs.write_all(descriptor, chunk)
            digest.update(chunk)
            size += len(chunk)
        if (size, digest.hexdigest()) != (after.size, after.sha256):
            path = execution.path(change)
            raise ChangeRefusedError(
                f"the new bytes of {path} are not those of the plan: the files that they are "
                "computed from have changed; make a new plan",
                RefusalReason.CHANGED,
                path,
            )
        execution.set_attributes(descriptor, change, after, here)
        execution.fs.fsync(descriptor)
    finally:
        execution.fs.close(descriptor)


def _keep(execution: Execution, change: FileChange, before: FileState, here: int) -> None:
    """Link or copy the old file into the undo area, and flush it."""
    path, kept = execution.path(change), execution.kept(change)
    execution.make_directory(kept.parent)
    with execution.kept_directory(change) as there:
        if os.path.lexists(kept) and not before.same_bytes(read_state(kept)):
            execution.fs.unlink(kept, dir_fd=there)
        if not os.path.lexists(kept):
            second_name(path, kept, execution.fs, source_directory=here, target_directory=there)
        execution.fs.fsync_directory(kept.parent, dir_fd=there)
