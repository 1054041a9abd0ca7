"""The changes in one partition directory, for a task in another process.

A task may run twice, even at the same time: the second run finds what the first has done.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar

from kafkastore.changes.change_file import change_file
from kafkastore.changes.directory_lock import check_still_locked
from kafkastore.changes.execution import Execution, by_partition
from kafkastore.changes.inspection import (
    ChangeState,
    SpaceNeeded,
    inspect_changes,
    raise_refusals,
    space_needed,
)
from kafkastore.changes.partition_journals import partition_journal
from kafkastore.changes.plan import FileChange, InvalidPlanError, Plan
from kafkastore.changes.undo_area import KEPT_DIRECTORY
from kafkastore.errors import ChangeRefusedError, KafkaStoreError
from kafkastore.fs import FileSystem
from kafkastore.runner import Runner, read_partitions
from kafkastore.store.partition_path import PartitionPath
from kafkastore.store.unread_partition import UnreadPartition


class _Planned(Protocol):
    """The part of a plan for one partition."""

    @property
    def changes(self) -> Sequence[FileChange]:
        """The changes of its files."""


PlannedT = TypeVar("PlannedT", bound=_Planned)


def plan_partitions(
    work: Callable[[PartitionPath], PlannedT], places: Sequence[PartitionPath], runner: Runner
) -> Iterator[PlannedT | UnreadPartition]:
    """Yield the part of a plan for each partition, or the one that was not read."""
    for place, found in read_partitions(work, places, runner):
        if not isinstance(found, UnreadPartition):
            check_answered_for(place, (os.path.dirname(each.path) for each in found.changes))
        yield found


def check_answered_for(place: PartitionPath, directories: Iterable[str]) -> None:
    """Refuse an executor's result for another partition than it was given."""
    for directory in directories:
        if directory != place.directory:
            raise InvalidPlanError(
                f"an executor returned a result for {directory!r} instead of {place.path}"
            )


class PartitionChanges(NamedTuple):
    """The changes of a plan in one partition directory, in the plan's order.

    `number` counts partitions from 0; `lock_inodes` are as in `DirectoryLock`; `recorded` has the
    paths that the journal has as changed; `folder` is that of the partition journals, or empty;
    `is_new`: the plan creates the directory.
    """

    number: int
    root: str
    area: str
    plan_id: str
    lock_inodes: tuple[tuple[str, int | None], ...]
    changes: tuple[FileChange, ...]
    recorded: frozenset[str]
    folder: str = ""
    is_new: bool = False

    @property
    def directory(self) -> str:
        """The partition directory, relative to the root; empty if it is the root."""
        return os.path.dirname(self.changes[0].path)

    @property
    def bytes(self) -> int:
        """Estimated number of bytes that are read and written."""
        return sum(
            (0 if change.after is None else change.after.size)
            + sum(reliance.size for reliance in change.relies_on)
            for change in self.changes
        )


def split(plan: Plan, like: PartitionChanges) -> Iterator[PartitionChanges]:
    """Split a plan's changes by partition; all other fields are copied from `like`."""
    new = {each.name for each in plan.directories}
    for number, group in enumerate(by_partition(plan.changes)):
        recorded = like.recorded.intersection(change.path for change in group)
        found = like._replace(number=number, changes=tuple(group), recorded=recorded)
        yield found._replace(is_new=found.directory in new)


class InspectedPartition(NamedTuple):
    """The state of each change, before any file is changed.

    `refusals` has an error for each file that does not match the plan; `error` is why a file
    could not be inspected.
    """

    states: dict[str, ChangeState]
    refusals: tuple[ChangeRefusedError, ...]
    needed: SpaceNeeded
    error: OSError | None = None

    @property
    def remaining(self) -> int:
        """Number of changes that are not made, or not recorded."""
        return sum(state is not ChangeState.DONE for state in self.states.values())


def inspect_partition(partition: PartitionChanges) -> InspectedPartition:
    """Inspect the changes of a partition; changes nothing."""
    nothing = SpaceNeeded(0, 0, None)
    try:
        states, refusals = inspect_changes(
            Path(partition.root), partition.changes, partition.recorded, is_new=partition.is_new
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
    """Change the files of a partition; return why it did not finish.

    In that case no file is half changed.
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
            raise_refusals(refusals)
            # The driver has created these, and flushed their names.
            durable = (area, area / KEPT_DIRECTORY)
            execution = Execution(
                root, area, partition.plan_id, writer, fs, check_lock, durable=durable
            )
            for change in partition.changes:
                change_file(execution, change, states[change.path])
    except (KafkaStoreError, OSError) as error:
        return error
    return None
