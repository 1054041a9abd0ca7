"""The changes in one partition directory: what a task of another process gets, and what it does.

A task may run twice, also at the same time: the second finds what the first has done.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from kafkastore.changes.change_file import change_file
from kafkastore.changes.directory_lock import check_still_locked
from kafkastore.changes.execution import Execution, by_partition
from kafkastore.changes.inspection import (
    ChangeState,
    SpaceNeeded,
    inspect_changes,
    refuse,
    space_needed,
)
from kafkastore.changes.partition_journals import partition_journal
from kafkastore.changes.plan import FileChange
from kafkastore.changes.undo_area import KEPT_DIRECTORY
from kafkastore.errors import KafkaStoreError
from kafkastore.fs import FileSystem


class PartitionChanges(NamedTuple):
    """The changes in one partition directory, and where they are made.

    Attributes
    ----------
    number : int
        Counted from 0, in the plan's order.
    root, area : str
        The plan's root and its undo area.
    plan_id : str
        The plan's id.
    lock_inodes : tuple of (str, int or None)
        As of `DirectoryLock`.
    changes : tuple of FileChange
        Those of the plan that are in this directory, in its order.
    recorded : frozenset of str
        Which of them the journal has as changed.
    folder : str
        The folder of the journals of partitions; empty while there is none.
    """

    number: int
    root: str
    area: str
    plan_id: str
    lock_inodes: tuple[tuple[str, int | None], ...]
    changes: tuple[FileChange, ...]
    recorded: frozenset[str]
    folder: str = ""

    @property
    def directory(self) -> str:
        """The partition directory, relative to the root; empty if it is the root."""
        return os.path.dirname(self.changes[0].path)

    @property
    def bytes(self) -> int:
        """About how many bytes are read and written."""
        return sum(
            (0 if change.after is None else change.after.size)
            + sum(reliance.size for reliance in change.relies_on)
            for change in self.changes
        )


def split(
    changes: Iterable[FileChange], like: PartitionChanges
) -> Iterator[PartitionChanges]:
    """Split changes by partition; `like` says the rest."""
    for number, group in enumerate(by_partition(changes)):
        recorded = like.recorded.intersection(change.path for change in group)
        yield like._replace(number=number, changes=tuple(group), recorded=recorded)


class InspectedPartition(NamedTuple):
    """What an inspection found, before anything is altered.

    Attributes
    ----------
    states : dict of str to ChangeState
        How far each change is.
    refusals : tuple of str
        A sentence for each file that does not fit the plan.
    needed : SpaceNeeded
        Of the disks.
    error : OSError or None
        Why a file could not be inspected.
    """

    states: dict[str, ChangeState]
    refusals: tuple[str, ...]
    needed: SpaceNeeded
    error: OSError | None = None

    @property
    def left(self) -> int:
        """How many changes are not done, or not recorded."""
        return sum(state is not ChangeState.DONE for state in self.states.values())


def inspect_partition(partition: PartitionChanges) -> InspectedPartition:
    """Find out what is left to do of a partition; alters nothing."""
    nothing = SpaceNeeded(0, 0, None)
    try:
        states, refusals = inspect_changes(
            Path(partition.root), partition.changes, partition.recorded
        )
        if refusals:
            return InspectedPartition({}, tuple(refusals), nothing)
        pending = (each for each in partition.changes if states[each.path] is ChangeState.PENDING)
        return InspectedPartition(states, (), space_needed(pending, Path(partition.area)))
    except OSError as error:
        return InspectedPartition({}, (), nothing, error)


def apply_partition(
    partition: PartitionChanges, fs: FileSystem = FileSystem()
) -> KafkaStoreError | OSError | None:
    """Change the files of a partition while the driver is at work; return why it did not finish.

    No file is half changed then.
    """
    root, area = Path(partition.root), Path(partition.area)
    inodes = {Path(path): inode for path, inode in partition.lock_inodes}
    try:
        with partition_journal(area / partition.folder, partition.number, fs) as (
            writer,
            changed,
            check_driver,
        ):

            def check_lock() -> None:
                check_driver()
                check_still_locked(root, inodes)

            states, refusals = inspect_changes(
                root, partition.changes, partition.recorded | changed
            )
            if refusals:
                refuse(refusals)
            # The driver has made these, and flushed their names.
            durable = (area, area / KEPT_DIRECTORY)
            execution = Execution(
                root, area, partition.plan_id, writer, fs, check_lock, durable=durable
            )
            for change in partition.changes:
                change_file(execution, change, states[change.path])
    except (KafkaStoreError, OSError) as error:
        return error
    return None
