"""What a repair plans for one partition: its changes, what leaves logs, what is left alone.

`kept_logs` and `cut_logs` mend damaged logs in the two ways there are, `mended_state` the files
that tell of epochs and producers; `repair` says which is needed.
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
from kafkastore.log.partition_log import PartitionLog


class Damage(NamedTuple):
    """Bytes of a log that can't be read, and what becomes of what lies behind them.

    Parameters
    ----------
    path : str
        The ``.log``, relative to the plan's root.
    position, size : int
        Where they begin, and how many they are.
    first_offset, end_offset : int
        Offsets that are missing then: inclusive, exclusive; not each need have had a record.
    what : str
        What is done.
    """

    path: str
    position: int
    size: int
    first_offset: int
    end_offset: int
    what: str


class LeftAlone(NamedTuple):
    """A file, or a whole partition, that a repair does not mend, and why.

    Parameters
    ----------
    path : Path
        Of the file or the partition directory.
    error : Exception
        A `KafkaStoreError` or an `OSError`.
    """

    path: Path
    error: Exception


@dataclass(slots=True)
class Mending:
    """The changes of one partition, in the order in which they are applied.

    Parameters
    ----------
    log : PartitionLog
        The partition.
    index_interval_bytes : int
        The topic's ``index.interval.bytes``.
    """

    log: PartitionLog
    index_interval_bytes: int
    changes: list[FileChange] = field(default_factory=list)
    damages: list[Damage] = field(default_factory=list)
    left_alone: list[LeftAlone] = field(default_factory=list)

    def place(self, name: str) -> str:
        """Return where a file lies below the plan's root."""
        return name if self.log.log_dir is None else f"{self.log.path.name}/{name}"

    def has(self, name: str) -> bool:
        """Tell whether a file is changed already."""
        return any(change.path == self.place(name) for change in self.changes)

    def tell(
        self, name: str, position: int, end: int, first_offset: int, end_offset: int, what: str
    ) -> None:
        """Note bytes of a log that leave it."""
        end_offset = max(end_offset, first_offset)
        self.damages.append(
            Damage(self.place(name), position, end - position, first_offset, end_offset, what)
        )

    def leave(self, name: str, error: Exception) -> None:
        """Note a file that is left alone; the directory for an empty name."""
        self.left_alone.append(LeftAlone(self.log.path / name, error))

    def write(self, name: str, like: Path, content: Content, reason: str) -> None:
        """Plan a log of some bytes, with the modification time, mode and owners of `like`.

        The bytes are read to know their digest.
        """
        path = self.log.path / name
        digest, size = hashlib.sha256(), 0
        for chunk in chunks_of(content, path):
            digest.update(chunk)
            size += len(chunk)
        after = FileState.of_digest(size, digest.hexdigest(), os.stat(like))
        before = read_state(path)
        self.changes.append(FileChange(self.place(name), before, after, content, reason))

    def add(self, name: str, like: Path, data: bytes, content: Content, reason: str) -> None:
        """Plan a small file of some bytes, unless it holds them already.

        A new one gets the modification time, mode and owners of `like`. `content` makes the bytes.
        """
        path = self.log.path / name
        before = read_state(path)
        after = FileState.of_bytes(data, os.stat(like if before is None else path))
        if not after.same_bytes(before):
            self.changes.append(FileChange(self.place(name), before, after, content, reason))

    def remove(self, name: str, reason: str) -> None:
        """Plan that a file goes, if it is there."""
        before = read_state(self.log.path / name)
        if before is not None:
            self.changes.append(FileChange(self.place(name), before, None, None, reason))
