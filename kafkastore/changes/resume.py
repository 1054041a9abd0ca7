"""Resume an interrupted apply or undo."""
from __future__ import annotations

import os

from kafkastore.arguments import check_callable, thread_count
from kafkastore.changes.apply import resume_applying
from kafkastore.changes.journal import Journal, open_trusted
from kafkastore.changes.undo import undo
from kafkastore.fs import FileSystem
from kafkastore.runner import Progress, Runner


def resume(
    journal: Journal | str | os.PathLike[str],
    *,
    root: str | os.PathLike[str] | None = None,
    trust_area: bool = False,
    threads: int | None = None,
    runner: Runner | None = None,
    fs: FileSystem = FileSystem(),
    progress: Progress | None = None,
) -> Journal:
    """Finish an interrupted apply or undo.

    Parameters
    ----------
    journal : Journal or path-like
        The journal, or its undo area.
    root, trust_area : path-like, bool
        As in `undo`.
    threads, runner : int, callable
        As in `apply`; threads always finish an undo.
    fs : FileSystem
        The file system calls that change files; for tests.
    progress : callable, optional
        Called as ``progress(done, total)`` with numbers of changes, by one thread at a time.

    Returns
    -------
    Journal
        Applied or undone; a finished journal is returned unchanged.

    Raises
    ------
    ChangeRefusedError
        As in `apply` and `undo`.
    """
    threads = thread_count(threads)
    check_callable("runner", runner)
    check_callable("progress", progress)
    if isinstance(journal, Journal) and not journal.plan.changes:
        return journal
    journal = open_trusted(journal, root, trust_area=trust_area)
    match journal.phase:
        case "applying":
            return resume_applying(
                journal, threads=threads, runner=runner, fs=fs, progress=progress
            )
        case "undoing":
            return undo(
                journal,
                trust_area=trust_area,
                leave_changed=bool(journal.left),
                threads=threads,
                fs=fs,
                progress=progress,
            )
        case _:
            return journal
