"""A log directory, one of ``log.dirs``: its partitions and the small files beside them."""
from __future__ import annotations

import os
from collections.abc import Mapping
from enum import Enum, auto
from pathlib import Path
from typing import NamedTuple

from kafkastore.caching import cached_property
from kafkastore.errors import CorruptCheckpointError, NotAFileError
from kafkastore.formats.checkpoints import parse_meta_properties, parse_offset_checkpoint
from kafkastore.formats.file_names import (
    CLEAN_SHUTDOWN_FILE,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    META_PROPERTIES,
    RECOVERY_POINT_CHECKPOINT,
    InvalidNameError,
    TopicPartition,
    parse_partition_directory,
)
from kafkastore.paths import open_path
from kafkastore.segment.small_file import read_if_there

#: Files by which a directory shows that a broker has used it as a log directory.
MARKS = (
    META_PROPERTIES,
    RECOVERY_POINT_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    CLEAN_SHUTDOWN_FILE,
)

CHECKPOINTS = (RECOVERY_POINT_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT, HIGH_WATERMARK_CHECKPOINT)


class SkippedKind(Enum):
    """Why a directory is not read as a partition."""

    UNREADABLE = auto()
    NO_PARTITION = auto()
    DELETED = auto()
    FUTURE = auto()
    STRAY = auto()
    DUPLICATE = auto()


_SUFFIXES = {
    "delete": (
        SkippedKind.DELETED, "a -delete directory: a broker deletes it a while after its start"
    ),
    "future": (
        SkippedKind.FUTURE,
        "a -future directory: a copy that was being moved here from another log directory",
    ),
    "stray": (
        SkippedKind.STRAY,
        "a -stray directory: not assigned to its broker, which keeps it but does not read it",
    ),
}


class SkippedName(NamedTuple):
    """A directory in a log directory that is not read as a partition, and why."""

    path: Path
    kind: SkippedKind
    reason: str


class Checkpoint(NamedTuple):
    """A file of one offset for each partition, as far as it can be read.

    Parameters
    ----------
    path : path
        The file.
    is_there : bool
        Whether it exists.
    offsets : mapping of TopicPartition to int
        What it says; nothing if it is missing or damaged.
    error : CorruptCheckpointError or None
        Why a broker could not read it.
    """

    path: Path
    is_there: bool
    offsets: Mapping[TopicPartition, int]
    error: CorruptCheckpointError | None


class LogDir:
    """One log directory; its listing and its checkpoints are read when first asked for.

    Threads may share it: see ``docs/threads.md``.

    Parameters
    ----------
    path : path-like
        The directory.
    """

    def __init__(self, path: Path) -> None:
        self.path = open_path(path, with_all_below=False)
        self._checkpoints: dict[str, Checkpoint] = {}

    def __repr__(self) -> str:
        return f"LogDir({str(self.path)!r})"

    @cached_property
    def _listing(self) -> _Listing:
        found = _Listing({}, {}, [])
        skipped = found.skipped
        with os.scandir(self.path) as entries:
            for entry in sorted(entries, key=lambda entry: entry.name):
                path = self.path / entry.name
                try:
                    if not entry.is_dir():
                        continue
                except OSError as error:  # a link to itself, or to what may not be seen
                    reason = f"can't be followed: {error.strerror}"
                    skipped.append(SkippedName(path, SkippedKind.UNREADABLE, reason))
                    continue
                try:
                    directory = parse_partition_directory(entry.name)
                except InvalidNameError as error:
                    skipped.append(SkippedName(path, SkippedKind.NO_PARTITION, str(error)))
                    continue
                if directory.suffix:
                    skipped.append(SkippedName(path, *_SUFFIXES[directory.suffix]))
                if directory.suffix in ("", "future"):
                    place = found.futures if directory.suffix else found.partitions
                    first = place.setdefault(directory.topic_partition, path)
                    if first != path:
                        reason = f"the partition of {first.name} once more: no broker starts so"
                        skipped.append(SkippedName(path, SkippedKind.DUPLICATE, reason))
        return found

    @property
    def partition_paths(self) -> Mapping[TopicPartition, Path]:
        """The partition directories, by topic and partition."""
        return self._listing.partitions

    @property
    def future_paths(self) -> Mapping[TopicPartition, Path]:
        """The ``-future`` directories: partitions that were being moved to this log directory."""
        return self._listing.futures

    @property
    def skipped(self) -> list[SkippedName]:
        """Directories that are no partitions: being deleted or moved, stray, or none of Kafka's."""
        return self._listing.skipped

    def refresh(self) -> None:
        """Forget the checkpoints that were read; a broker writes them every few seconds."""
        # Not cleared: a thread that reads one just now puts it with the others of before.
        self._checkpoints = {}

    @property
    def is_clean(self) -> bool:
        """Whether a broker closed this directory in order: the clean-shutdown marker is there."""
        return (self.path / CLEAN_SHUTDOWN_FILE).exists()

    @property
    def recovery_points(self) -> Mapping[TopicPartition, int]:
        """First offsets not known to be flushed; empty if the file is missing or damaged."""
        return self.checkpoint(RECOVERY_POINT_CHECKPOINT).offsets

    @property
    def log_start_offsets(self) -> Mapping[TopicPartition, int]:
        """First offsets a reader may ask for, where they differ from the first segment's base.

        Empty if the file is missing or damaged.
        """
        return self.checkpoint(LOG_START_OFFSET_CHECKPOINT).offsets

    @property
    def high_watermarks(self) -> Mapping[TopicPartition, int]:
        """First offsets not known to be replicated, as last checkpointed (every 5 s).

        Raises
        ------
        CorruptCheckpointError
            If the file is damaged: brokers take the log directory offline.
        """
        checkpoint = self.checkpoint(HIGH_WATERMARK_CHECKPOINT)
        if checkpoint.error is not None:
            raise checkpoint.error
        return checkpoint.offsets

    @property
    def damaged_checkpoints(self) -> list[Checkpoint]:
        """The checkpoints that a broker could not read."""
        return [found for name in CHECKPOINTS if (found := self.checkpoint(name)).error is not None]

    @cached_property
    def meta_properties(self) -> Mapping[str, str]:
        """What ``meta.properties`` says; empty without the file.

        Raises
        ------
        CorruptCheckpointError
            If it is damaged: brokers do not start.
        """
        path = self.path / META_PROPERTIES
        data = read_if_there(path, CorruptCheckpointError)
        try:
            return {} if data is None else parse_meta_properties(data)
        except CorruptCheckpointError as error:
            raise error.located(path) from error

    def checkpoint(self, name: str) -> Checkpoint:
        """Read a checkpoint of this log directory, once.

        Parameters
        ----------
        name : str
            One of `CHECKPOINTS`.

        Returns
        -------
        Checkpoint
            A damaged one says nothing but its error.
        """
        known = self._checkpoints
        found = known.get(name)
        if found is None:
            found = known[name] = _read_checkpoint(self.path / name)
        return found


class _Listing(NamedTuple):
    partitions: dict[TopicPartition, Path]
    futures: dict[TopicPartition, Path]
    skipped: list[SkippedName]


def _read_checkpoint(path: Path) -> Checkpoint:
    try:
        data = read_if_there(path, CorruptCheckpointError)
        return Checkpoint(path, data is not None, parse_offset_checkpoint(data or b""), None)
    except CorruptCheckpointError as error:
        located = CorruptCheckpointError(error.reason, path=path, position=error.position)
    except NotAFileError as error:
        located = CorruptCheckpointError(f"the checkpoint is {error.kind}, not a file,", path=path)
    return Checkpoint(path, True, {}, located)
