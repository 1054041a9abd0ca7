"""A log directory, one of ``log.dirs``: its partitions and the small files beside them."""
from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from kafkastore.errors import CorruptCheckpointError
from kafkastore.formats.checkpoints import parse_meta_properties, parse_offset_checkpoint
from kafkastore.formats.file_names import (
    CLEAN_SHUTDOWN_FILE,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    META_PROPERTIES,
    RECOVERY_POINT_CHECKPOINT,
    InvalidNameError,
    PartitionDirectory,
    TopicPartition,
    parse_partition_directory,
)

#: Files by which a directory shows that a broker has used it as a log directory.
MARKS = (
    META_PROPERTIES,
    RECOVERY_POINT_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    CLEAN_SHUTDOWN_FILE,
)


class SkippedName(NamedTuple):
    """A directory in a log directory that is not read as a partition, and why."""

    path: Path
    reason: str


class LogDir:
    """One log directory, listed when first asked.

    Parameters
    ----------
    path : path-like
        The directory.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def __repr__(self) -> str:
        return f"LogDir({str(self.path)!r})"

    @cached_property
    def _listing(self) -> tuple[dict[TopicPartition, Path], list[SkippedName]]:
        partitions: dict[TopicPartition, Path] = {}
        skipped = []
        with os.scandir(self.path) as entries:
            for entry in sorted(entries, key=lambda entry: entry.name):
                path = Path(entry.path)
                try:
                    if not entry.is_dir():
                        continue
                except OSError as error:  # a link to itself, or to what may not be seen
                    skipped.append(SkippedName(path, f"can't be followed: {error.strerror}"))
                    continue
                try:
                    directory: PartitionDirectory = parse_partition_directory(entry.name)
                except InvalidNameError as error:
                    skipped.append(SkippedName(path, str(error)))
                    continue
                if directory.suffix:
                    skipped.append(SkippedName(path, f"a -{directory.suffix} directory"))
                else:
                    partitions[directory.topic_partition] = path
        return partitions, skipped

    @property
    def partition_paths(self) -> Mapping[TopicPartition, Path]:
        """The partition directories, by topic and partition."""
        return self._listing[0]

    @property
    def skipped(self) -> list[SkippedName]:
        """Directories that are not read: being deleted or moved, stray, or none of Kafka's."""
        return self._listing[1]

    @property
    def is_clean(self) -> bool:
        """Whether a broker closed this directory in order: the clean-shutdown marker is there."""
        return (self.path / CLEAN_SHUTDOWN_FILE).exists()

    @cached_property
    def recovery_points(self) -> Mapping[TopicPartition, int]:
        """First offsets not known to be flushed; empty without the file."""
        return self._checkpoint(RECOVERY_POINT_CHECKPOINT)

    @cached_property
    def log_start_offsets(self) -> Mapping[TopicPartition, int]:
        """First offsets a reader may ask for, where they differ from the first segment's base."""
        return self._checkpoint(LOG_START_OFFSET_CHECKPOINT)

    @cached_property
    def high_watermarks(self) -> Mapping[TopicPartition, int]:
        """First offsets not known to be replicated, as last checkpointed (every 5 s)."""
        return self._checkpoint(HIGH_WATERMARK_CHECKPOINT)

    @cached_property
    def meta_properties(self) -> Mapping[str, str]:
        """What ``meta.properties`` says; empty without the file."""
        data = _read_or_none(self.path / META_PROPERTIES)
        return {} if data is None else parse_meta_properties(data)

    def _checkpoint(self, name: str) -> Mapping[TopicPartition, int]:
        path = self.path / name
        data = _read_or_none(path)
        if data is None:
            return {}
        try:
            return parse_offset_checkpoint(data)
        except CorruptCheckpointError as error:
            raise error.located(path) from error


def _read_or_none(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
