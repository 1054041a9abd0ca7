"""One file changed, so that it is wholly old or wholly new at any instant."""

from __future__ import annotations

import hashlib
import os

from kafkastore.changes.content import chunks_of
from kafkastore.changes.copy_file import second_name
from kafkastore.changes.file_state import FileState, read_state, status_of
from kafkastore.changes.plan import FileChange
from kafkastore.changes.run import Run, discard
from kafkastore.changes.standing import check_reliances
from kafkastore.errors import ChangeRefusedError


def change_file(run: Run, change: FileChange) -> None:
    """Change one file: new bytes beside it, the old file kept, one rename.

    Parameters
    ----------
    run : Run
        The run that it is part of.
    change : FileChange
        What becomes of the file, which is as before.

    Raises
    ------
    ChangeRefusedError
        If a broker has come, or the file or one that it is made from has changed.
    """
    path, temporary = run.path(change), run.temporary(change)
    run.check_sole_user()
    with run.directory(change) as here:
        _check_unmoved(run, change, here)
        run.remove_temporary(change, here)
        try:
            if change.after is not None:
                _write_temporary(run, change, change.after, here)
            if change.before is not None:
                _keep(run, change, change.before, here)
            run.check_sole_user()
            _check_unmoved(run, change, here)
            if change.after is not None:
                run.fs.rename(temporary, path, dir_fd=here)
            else:
                run.fs.unlink(path, dir_fd=here)
        except BaseException:
            discard(temporary, run.fs, here)
            raise
        run.fs.fsync_directory(path.parent, dir_fd=here)
    run.record("changed", change)


def _check_unmoved(run: Run, change: FileChange, here: int) -> None:
    """Refuse if the file, or one the change relies on, moved since it was looked at."""
    status = status_of(run.path(change), here)
    if (status is not None) if change.before is None else not change.before.looks_same(status):
        raise ChangeRefusedError(f"{run.path(change)} has changed since the plan was made")
    check_reliances(run.root, change)


def _write_temporary(run: Run, change: FileChange, after: FileState, here: int) -> None:
    """Make the new file, durable, under its temporary name."""
    temporary = run.temporary(change)
    assert change.content is not None  # FileChange sees to it
    descriptor = run.fs.create(temporary, 0o600, dir_fd=here)
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
        run.dress(descriptor, change, after, here)
        run.fs.fsync(descriptor)
    finally:
        run.fs.close(descriptor)


def _keep(run: Run, change: FileChange, before: FileState, here: int) -> None:
    """Give the old file a second name in the undo area, durable before the file is replaced."""
    path, kept = run.path(change), run.kept(change)
    run.make_directory(kept.parent)
    with run.kept_directory(change) as there:
        if os.path.lexists(kept) and not before.same_bytes(read_state(kept)):
            run.fs.unlink(kept, dir_fd=there)
        if not os.path.lexists(kept):
            second_name(path, kept, run.fs, source_directory=here, target_directory=there)
        run.fs.fsync_directory(kept.parent, dir_fd=there)
