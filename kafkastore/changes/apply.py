"""Apply a plan, or the rest of an interrupted one.

1. Refuse the plan if a broker or another job of this package has the directory open, if an earlier
   plan is unfinished, if a file is neither in its old nor in its planned state, or if a file that
   the plan relies on has changed. No file is changed before all files were inspected.
2. Write the plan into the undo area. Create the plan's directories, fsync the root, and record them
   in the journal. Then, for each file:
   a. write the new bytes next to it under a name that no broker reads, and compare their digest
      with the plan's; set owners, mode and modification time; fsync;
   b. give the old file a second name in the undo area (a hard link, or a copy where links are not
      possible); fsync;
   c. check again that nothing has changed; rename the new file over the old; fsync the directory;
   d. write a line into the journal; fsync.
3. Write into the journal that the plan is applied.

A crash before the rename leaves the old file, a crash after it the new one; a rerun distinguishes
them by their digests.

Threads of this process do step 2, or a runner, whose tasks may be on other machines. Tasks write a
journal for each partition, whose lines are later moved into the plan's; see `partition_journals`.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

from kafkastore.arguments import check_callable, check_kind, thread_count
from kafkastore.changes.areas import each_journal
from kafkastore.changes.change_file import change_file
from kafkastore.changes.directory_lock import DirectoryLock, locked_directory
from kafkastore.changes.execution import Execution, run_partitions
from kafkastore.changes.inspection import check_space, raise_refusals
from kafkastore.changes.journal import FailedPartition, Journal, JournalWriter, start_journal
from kafkastore.changes.new_directories import create_directories, inspect_directories
from kafkastore.changes.partition_changes import (
    InspectedPartition,
    PartitionChanges,
    apply_partition,
    inspect_partition,
    split,
)
from kafkastore.changes.partition_journals import (
    close_partition_journals,
    open_partition_journals,
)
from kafkastore.changes.plan import Plan
from kafkastore.changes.undo_area import KEPT_DIRECTORY, area_of, check_area, check_trusted
from kafkastore.errors import ChangeRefusedError, RefusalReason
from kafkastore.fs import FileSystem
from kafkastore.log.parallel.parallel_map import ParallelMap
from kafkastore.paths import to_path
from kafkastore.runner import Progress, Runner, threads_within

#: Time for tasks to end after an interruption; the next job waits longer for them.
_SECONDS_AFTER_INTERRUPT = 5.0


def apply(
    plan: Plan,
    undo_dir: str | os.PathLike[str] | None = None,
    *,
    threads: int | None = None,
    runner: Runner | None = None,
    fs: FileSystem = FileSystem(),
    progress: Progress | None = None,
) -> Journal:
    """Apply a plan, or the rest of it after an interruption.

    Parameters
    ----------
    plan : Plan
        What to change.
    undo_dir : path-like, optional
        The directory in which the undo area is created; default: next to the log.dirs root.
    threads : int, optional
        How many partitions are changed in parallel; fewer partitions share the threads to convert
        messages. Default: the number of processors. The first error stops all, and is raised.
    runner : callable, optional
        Changes the partitions in other processes instead of threads, on this machine or on others
        that see the same storage under the same paths. If one partition fails, the others continue.
    fs : FileSystem
        The file system calls of this process that change files; for tests.
    progress : callable, optional
        Called as ``progress(done, total)`` with numbers of changes, by one thread at a time.

    Returns
    -------
    Journal
        Applied; pass it to `undo` to restore the old files. Applying a plan twice is the same as
        once. With a runner, it is unfinished if `failures` has partitions.

    Raises
    ------
    ChangeRefusedError
        If applying is not safe; nothing has been changed, unless files changed during the run.
    OSError
        If the disk fails or is full; every file is either old or new as a whole. Call `apply`
        again, or `resume`, to finish the plan.
    """
    check_kind("plan", plan, Plan)
    threads = thread_count(threads)
    check_callable("runner", runner)
    check_callable("progress", progress)
    area = area_of(plan, undo_dir)
    if not plan.changes:
        return Journal(area, plan, "applied")
    with locked_directory(to_path(plan.root)) as lock:
        begun = _check_places(plan, area, undo_dir, fs)
        root = Path(os.path.realpath(plan.root))
        options = _ApplyOptions(lock, fs, threads, runner, progress)
        inspected = _inspect(plan, root, area, begun, options)
        return _apply(start_journal(plan, area, fs), inspected, options)


def resume_applying(
    journal: Journal,
    *,
    threads: int,
    runner: Runner | None,
    fs: FileSystem,
    progress: Progress | None,
) -> Journal:
    """Apply the rest of an interrupted plan."""
    with locked_directory(journal.root) as lock:
        close_partition_journals(journal.area, fs)
        journal = journal.read_again()
        _check_not_undoing(journal)
        options = _ApplyOptions(lock, fs, threads, runner, progress)
        inspected = _inspect(journal.plan, journal.root, journal.area, journal, options)
        return _apply(journal, inspected, options)


class _ApplyOptions(NamedTuple):
    """The arguments that all steps share."""

    lock: DirectoryLock
    fs: FileSystem
    threads: int
    runner: Runner | None
    progress: Progress | None


_Inspected = Sequence[tuple[PartitionChanges, InspectedPartition]]


def _check_places(
    plan: Plan, area: Path, undo_dir: str | os.PathLike[str] | None, fs: FileSystem
) -> Journal | None:
    """Refuse an unsuitable undo area, and a plan before an earlier one is finished.

    Returns the plan's own journal, if it was started before.
    """
    check_area(plan, area, chosen=undo_dir is not None)
    with suppress(FileNotFoundError):
        check_trusted(area)
    close_partition_journals(area, fs)
    own = None
    for journal in each_journal(plan.root, undo_dir):
        if journal.area == area:
            own = journal
        elif not journal.is_finished:
            area_quoted = shlex.quote(str(journal.area))
            raise ChangeRefusedError(
                f"an earlier plan is unfinished: kafkastore changes resume {area_quoted} finishes "
                f"it, kafkastore changes undo {area_quoted} reverts it",
                RefusalReason.UNFINISHED,
                journal.area,
            )
    return own


def _check_not_undoing(journal: Journal) -> None:
    """Refuse to apply a plan whose undo was interrupted."""
    if journal.phase == "undoing":
        raise ChangeRefusedError(
            f"{journal.area} is being undone: finish that first, with kafkastore changes resume",
            RefusalReason.UNFINISHED,
            journal.area,
        )


def _inspect(
    plan: Plan, root: Path, area: Path, begun: Journal | None, options: _ApplyOptions
) -> _Inspected:
    """Inspect all files; refuse the whole plan if a file does not match it."""
    recorded = frozenset() if begun is None else begun.changed
    inodes = tuple((str(path), inode) for path, inode in options.lock.inodes.items())
    like = PartitionChanges(0, str(root), str(area), plan.id, inodes, (), recorded)
    partitions = list(split(plan, like))
    if options.runner is not None:
        found = list(options.runner(inspect_partition, partitions, weigh=attrgetter("bytes")))
    else:
        with ParallelMap(
            inspect_partition, partitions, options.threads, "kafkastore-inspect"
        ) as in_turn:
            found = list(in_turn)
    for each in found:
        if each.error is not None:
            raise each.error
    of_directories = inspect_directories(root, plan.directories, begun)
    raise_refusals([*of_directories, *(refusal for each in found for refusal in each.refusals)])
    options.lock.check()
    check_space(root, area, [each.needed for each in found], options.fs)
    return list(zip(partitions, found, strict=True))


def _apply(journal: Journal, inspected: _Inspected, options: _ApplyOptions) -> Journal:
    """Make the remaining changes, and record that the plan is applied."""
    _check_not_undoing(journal)
    todo = [(partition, found) for partition, found in inspected if found.remaining]
    if not todo and journal.phase == "applied":
        return journal
    failures: tuple[FailedPartition, ...] = ()
    with JournalWriter.of(journal.area, options.fs) as writer:
        writer.phase("applying")
        total = len(journal.plan.changes)
        execution = Execution(
            journal.root,
            journal.area,
            journal.plan.id,
            writer,
            options.fs,
            options.lock.check,
            progress=options.progress,
            done=total - sum(found.remaining for _, found in todo),
            total=total,
            threads=threads_within(options.threads, len(todo)),
        )
        execution.make_directory(journal.area)
        create_directories(execution, journal.plan.directories, journal)
        if options.runner is None:
            _apply_in_threads(execution, todo, options.threads)
        else:
            partitions = [partition for partition, _ in todo]
            failures = _apply_with_runner(execution, partitions, options.runner)
        journal = journal.read_again()
        if all(change.path in journal.changed for change in journal.plan.changes):
            writer.phase("applied")
    return replace(journal.read_again(), failures=failures)


def _apply_in_threads(execution: Execution, todo: _Inspected, threads: int) -> None:
    """Change the files in threads, which all write to the plan's journal."""
    states = {path: state for _, found in todo for path, state in found.states.items()}
    run_partitions(
        [list(partition.changes) for partition, _ in todo],
        lambda change: change_file(execution, change, states[change.path]),
        threads,
    )


def _apply_with_runner(
    execution: Execution, partitions: Sequence[PartitionChanges], runner: Runner
) -> tuple[FailedPartition, ...]:
    """Change the files in a runner's tasks, each of which writes its own journal."""
    area, fs = execution.area, execution.fs
    failures: list[FailedPartition] = []
    if any(change.before is not None for each in partitions for change in each.changes):
        execution.make_directory(area / KEPT_DIRECTORY)
    try:
        with open_partition_journals(area, fs) as folder:
            tasks = [each._replace(folder=folder) for each in partitions]
            for each, error in zip(
                tasks, runner(apply_partition, tasks, weigh=attrgetter("bytes")), strict=True
            ):
                if error is not None:
                    failures.append(FailedPartition(each.directory, error))
                else:
                    execution.advance(len(each.changes))
    except BaseException:
        # Close only the journals of tasks that end in time; the next job closes the others.
        with suppress(ChangeRefusedError, OSError):
            close_partition_journals(area, fs, patience=_SECONDS_AFTER_INTERRUPT)
        raise
    close_partition_journals(area, fs)
    return tuple(failures)
