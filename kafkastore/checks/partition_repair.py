"""The plan of a repair for one partition: changes, removed bytes, failures.

`salvage_repair` and `broker_repair` repair damaged logs in the two ways, `state_repair` repairs
leader epochs and producer snapshots; `repair` decides which are needed.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from kafkastore.changes.file_state import FileState, read_state
from kafkastore.changes.new_bytes import chunks_of
from kafkastore.changes.plan import Content, FileChange
from kafkastore.formats.state.file_names import LOG_SUFFIX, SWAP_SUFFIX, parse_segment_file
from kafkastore.store.partition_log import PartitionLog


class RemovedBytes(NamedTuple):
    """Bytes that a repair removes from a log.

    Parameters
    ----------
    path : str
        The ``.log``, relative to the plan's root.
    position, size : int
        Position of the first byte, and number of bytes.
    first_offset : int
        The first offset that will be missing; not every missing offset had a record.
    end_offset : int or None
        After the last one; None if it is unknown, because no valid batch and no segment follows.
        Equal to `first_offset` if no offset is missing between the batches before and after.
    what : str
        How the repair removes them.
    """

    path: str
    position: int
    size: int
    first_offset: int
    end_offset: int | None
    what: str


class NotRepaired(NamedTuple):
    """A file or partition that can't be repaired, with the error.

    `path` is the file or the partition directory; `error` is a `KafkaStoreError` or an `OSError`;
    `is_partition` is whether nothing of the partition is repaired.
    """

    path: Path
    error: Exception
    is_partition: bool = False


@dataclass(slots=True)
class PartitionRepair:
    """The changes of one partition, in the order in which they are applied."""

    log: PartitionLog
    index_interval_bytes: int
    changes: list[FileChange] = field(default_factory=list)
    removed: list[RemovedBytes] = field(default_factory=list)
    not_repaired: list[NotRepaired] = field(default_factory=list)

    def relative_path(self, name: str) -> str:
        """Return a file's path relative to the plan's root."""
        return name if self.log.log_dir is None else f"{self.log.path.name}/{name}"

    @property
    def changes_logs(self) -> bool:
        """Return whether a change of a log is planned, which also rebuilds its indexes."""
        return any(is_log(os.path.basename(change.path)) for change in self.changes)

    def has_change(self, name: str) -> bool:
        """Return whether a change of this file is planned already."""
        return any(change.path == self.relative_path(name) for change in self.changes)

    def record_removed(
        self,
        name: str,
        position: int,
        end: int,
        first_offset: int,
        end_offset: int | None,
        what: str,
    ) -> None:
        """Record bytes that are removed from a log."""
        if end_offset is not None:
            end_offset = max(end_offset, first_offset)
        path = self.relative_path(name)
        self.removed.append(
            RemovedBytes(path, position, end - position, first_offset, end_offset, what)
        )

    def record_failure(self, name: str, error: Exception) -> None:
        """Record a file that can't be repaired; an empty name is the partition directory."""
        self.not_repaired.append(NotRepaired(self.log.path / name, error, not name))

    def plan_log(self, name: str, like: Path, content: Content, reason: str) -> None:
        """Plan to write a log, with the modification time, mode and owners of `like`.

        Reads the bytes to compute their digest.
        """
        path = self.log.path / name
        digest, size = hashlib.sha256(), 0
        for chunk in chunks_of(content, path):
            digest.update(chunk)
            size += len(chunk)
        after = FileState.of_digest(size, digest.hexdigest(), os.stat(like))
        before = read_state(path)
        self.changes.append(FileChange(self.relative_path(name), before, after, content, reason))

    def plan_file(self, name: str, like: Path, data: bytes, content: Content, reason: str) -> None:
        """Plan to write a small file, unless it has these bytes.

        A new file gets the modification time, mode and owners of `like`.
        """
        path = self.log.path / name
        before = read_state(path)
        after = FileState.of_bytes(data, os.stat(like if before is None else path))
        if not after.same_bytes(before):
            relative = self.relative_path(name)
            self.changes.append(FileChange(relative, before, after, content, reason))

    def plan_removal(self, name: str, reason: str) -> None:
        """Plan to delete a file if it exists."""
        before = read_state(self.log.path / name)
        if before is not None:
            self.changes.append(FileChange(self.relative_path(name), before, None, None, reason))


def is_log(name: str) -> bool:
    """Return whether a file is the log of a segment; a ``.swap`` counts."""
    file = parse_segment_file(name)
    return (
        file is not None
        and file.type_suffix == LOG_SUFFIX
        and file.temporary in ("", SWAP_SUFFIX)
    )
