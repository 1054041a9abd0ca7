"""A log directory, one of ``log.dirs``: its partitions and its checkpoint files."""
from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

from kafkastore.caching import cached_property
from kafkastore.errors import CorruptCheckpointError, CorruptionError, NotAFileError
from kafkastore.formats.primitives.java_text import parse_int32
from kafkastore.formats.state.checkpoints import parse_meta_properties, parse_offset_checkpoint
from kafkastore.formats.state.file_names import (
    CLEAN_SHUTDOWN_FILE,
    CLEANER_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    META_PROPERTIES,
    RECOVERY_POINT_CHECKPOINT,
    REMOTE_LOG_METADATA_TOPIC,
    InvalidNameError,
    TopicPartition,
    parse_partition_directory,
)
from kafkastore.paths import open_path
from kafkastore.segment.small_file import read_if_there

#: Files that only a broker creates: they mark a log directory.
MARKS = (
    META_PROPERTIES,
    RECOVERY_POINT_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    CLEAN_SHUTDOWN_FILE,
)

CHECKPOINTS = (RECOVERY_POINT_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT, HIGH_WATERMARK_CHECKPOINT)


class SkippedKind(StrEnum):
    """Why a directory is not read as a partition."""

    UNREADABLE = "unreadable"
    NO_PARTITION = "no-partition"
    DELETED = "deleted"
    FUTURE = "future"
    STRAY = "stray"
    DUPLICATE = "duplicate"


_SUFFIXES = {
    "delete": (
        SkippedKind.DELETED, "a -delete directory: a broker deletes it after file.delete.delay.ms"
    ),
    "future": (
        SkippedKind.FUTURE,
        "a -future directory: a copy that was being moved here from another log directory",
    ),
    "stray": (
        SkippedKind.STRAY,
        "a -stray directory: not assigned to its broker, which from 3.6.1 on does not serve it",
    ),
}


class SkippedName(NamedTuple):
    """A directory in a log directory that is not read as a partition, and why."""

    path: Path
    kind: SkippedKind
    reason: str


class Checkpoint(NamedTuple):
    """The content of an offset checkpoint: one offset for each partition.

    `offsets` is empty if the file is missing or corrupt; `error` says why a broker can't read it.
    """

    path: Path
    is_there: bool
    offsets: Mapping[TopicPartition, int]
    error: CorruptCheckpointError | None

    @property
    def why_without_offset(self) -> str:
        """Why the checkpoint has no offset for a partition."""
        if self.error is not None:
            return f"the checkpoint is corrupt ({self.error})"
        if not self.is_there:
            return f"there is no {self.path.name}"
        return f"{self.path.name} has no line for it"


class UnknownLogStartWarning(UserWarning):
    """Warn that log start offsets can't be read: logs begin at their first segments.

    Parameters
    ----------
    error : CorruptionError
        What is wrong with the checkpoint.
    """

    def __init__(self, error: CorruptionError) -> None:
        super().__init__(error)
        self.error = error

    def __str__(self) -> str:
        return (
            f"{self.error}: logs begin at their first segments, and deleted records may reappear; "
            "restore the file if there is a copy"
        )


class LogDir:
    """A log directory; its listing and its checkpoints are read at the first access.

    Threads may share it: see ``docs/threads.md``.
    """

    def __init__(self, path: Path) -> None:
        self.path = open_path(path, with_all_below=False)
        self._checkpoints: dict[str, Checkpoint] = {}
        #: The log directories that were opened together with this one.
        self.siblings: tuple[LogDir, ...] = ()
        #: What other modules read of the whole directory since `refresh`.
        self.facts: dict[str, Any] = {}

    def __repr__(self) -> str:
        return f"LogDir({str(self.path)!r})"

    @cached_property
    def _listing(self) -> _Listing:
        found = _Listing({}, {}, [])
        skipped = found.skipped
        with os.scandir(self.path) as entries:
            for entry in sorted(entries, key=lambda entry: entry.name):
                path = self.path / entry.name
                failure = _failure(entry)
                if failure is None and not entry.is_dir():
                    continue
                try:
                    directory = parse_partition_directory(entry.name)
                except InvalidNameError as error:
                    if failure is None:
                        skipped.append(SkippedName(path, SkippedKind.NO_PARTITION, str(error)))
                    elif failure.errno != errno.ENOENT:
                        reason = f"can't be followed: {failure.strerror}"
                        skipped.append(SkippedName(path, SkippedKind.UNREADABLE, reason))
                    continue
                if directory.suffix:
                    skipped.append(SkippedName(path, *_SUFFIXES[directory.suffix]))
                if directory.suffix in ("", "future"):
                    place = found.futures if directory.suffix else found.partitions
                    kept, other = place.get(directory.topic_partition, path), path
                    if kept.name != entry.name == str(directory.topic_partition):
                        kept, other = path, kept  # as a broker writes the name
                    place[directory.topic_partition] = kept
                    if kept != other:
                        reason = f"duplicate of {kept.name}: a broker refuses to start"
                        skipped.append(SkippedName(other, SkippedKind.DUPLICATE, reason))
        return found

    @cached_property
    def remote_metadata_paths(self) -> Mapping[int, Path]:
        """The directories of ``__remote_log_metadata``, by partition."""
        return {
            topic_partition.partition: path
            for topic_partition, path in self.partition_paths.items()
            if topic_partition.topic == REMOTE_LOG_METADATA_TOPIC
        }

    @property
    def is_listed(self) -> bool:
        """Whether its names are known already; a remote directory is slow to list."""
        return "_listing" in vars(self)

    @property
    def partition_paths(self) -> Mapping[TopicPartition, Path]:
        """The partition directories, by topic and partition."""
        return self._listing.partitions

    @property
    def future_paths(self) -> Mapping[TopicPartition, Path]:
        """The ``-future`` directories: replicas being moved to this log directory."""
        return self._listing.futures

    @property
    def skipped(self) -> list[SkippedName]:
        """Directories that are not partitions: deleted, future, stray, or not Kafka's."""
        return self._listing.skipped

    def refresh(self) -> None:
        """Drop the cached checkpoints; a broker writes them every few seconds."""
        # Replaced, not cleared: a thread that is reading one stores it in the old dict.
        self._checkpoints = {}
        self.facts = {}

    @property
    def is_clean(self) -> bool:
        """Whether the clean-shutdown marker exists."""
        return (self.path / CLEAN_SHUTDOWN_FILE).exists()

    @property
    def recovery_points(self) -> Mapping[TopicPartition, int]:
        """First offsets that may not be flushed; empty if the file is missing or corrupt."""
        return self.checkpoint(RECOVERY_POINT_CHECKPOINT).offsets

    @property
    def log_start_offsets(self) -> Mapping[TopicPartition, int]:
        """First offsets that can be read, where they differ from the first base offset.

        Empty if the file is missing or corrupt.
        """
        return self.checkpoint(LOG_START_OFFSET_CHECKPOINT).offsets

    @property
    def log_starts_error(self) -> CorruptCheckpointError | None:
        """Why the log start offsets can't be read; None if they can."""
        return self.checkpoint(LOG_START_OFFSET_CHECKPOINT).error

    @property
    def high_watermarks(self) -> Mapping[TopicPartition, int]:
        """First offsets that may not be replicated, as last checkpointed (every 5 s).

        A corrupt file raises `CorruptCheckpointError`: brokers take the log directory offline.
        """
        checkpoint = self.checkpoint(HIGH_WATERMARK_CHECKPOINT)
        if checkpoint.error is not None:
            raise checkpoint.error.again()
        return checkpoint.offsets

    @property
    def corrupt_checkpoints(self) -> list[Checkpoint]:
        """The checkpoints that a broker can't read."""
        names = (*CHECKPOINTS, CLEANER_CHECKPOINT)
        return [found for name in names if (found := self.checkpoint(name)).error is not None]

    @cached_property
    def meta_properties(self) -> Mapping[str, str]:
        """The content of ``meta.properties``; empty without the file.

        A corrupt file raises `CorruptCheckpointError`: brokers do not start.
        """
        path = self.path / META_PROPERTIES
        data = read_if_there(path, CorruptCheckpointError)
        try:
            return {} if data is None else parse_meta_properties(data)
        except CorruptCheckpointError as error:
            raise error.located(path) from error

    @property
    def node_id(self) -> int | None:
        """The broker's id in ``meta.properties``, if it has one."""
        properties = self.meta_properties
        try:
            return parse_int32(properties.get("node.id", properties.get("broker.id", "")))
        except ValueError:
            return None

    def checkpoint(self, name: str) -> Checkpoint:
        """Read a checkpoint of offsets, once; a corrupt one only has its `error`."""
        known = self._checkpoints
        found = known.get(name)
        if found is None:
            found = known[name] = _read_checkpoint(self.path / name)
        return found


def _failure(entry: os.DirEntry[str]) -> OSError | None:
    """Return why a symbolic link can't be followed; None for anything else."""
    if entry.is_symlink():
        try:
            os.stat(entry.path)
        except OSError as error:
            return error
    return None


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
