"""Atomic move of partitions into an existing log directory: all of them, or none.

The file ``committed`` in the staging directory lists the partitions before the move starts. An
interrupted move is finished, or undone, from there.
"""
from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

from kafkastore.errors import ChangeRefusedError, RefusalReason
from kafkastore.formats.primitives.json_text import parse_json
from kafkastore.formats.state.checkpoints import pack_offset_checkpoint
from kafkastore.formats.state.file_names import (
    CLEAN_SHUTDOWN_FILE,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    META_PROPERTIES,
    RECOVERY_POINT_CHECKPOINT,
    TopicPartition,
    is_topic_name,
)
from kafkastore.fs import FileSystem
from kafkastore.log.log_dir import CHECKPOINTS, LogDir
from kafkastore.segment.small_file import read_own_file
from kafkastore.store.partition_log import PartitionLog

LOG_DIR, _COMMITTED = "log-dir", "committed"


class CommittedLogs:
    """The logs that a job moves into its target; the caller holds the target's lock.

    `path` is the staging directory, with the logs in ``log-dir``; `target` is the log directory.
    """

    def __init__(self, path: Path, target: Path) -> None:
        self.path, self.target = path, target
        self._log_dir, self._file, self._fs = path / LOG_DIR, path / _COMMITTED, FileSystem()

    @property
    def is_there(self) -> bool:
        """Return whether a move has begun, and is not yet cleaned up or undone."""
        return self._file.exists()

    def begin(self, ends: Mapping[TopicPartition, int], *, is_new: bool) -> None:
        """Record the partitions to move, with their log end offsets.

        `is_new` says that the target was empty before.
        """
        rows = [[*topic_partition, end] for topic_partition, end in ends.items()]
        committed = json.dumps({"is_new": is_new, "ends": rows})
        self._fs.replace_content(self._file, committed.encode())

    def finish(self) -> None:
        """Move the partitions that are not yet in the target; safe to repeat.

        Raises `ChangeRefusedError` if another file or directory has a partition's name.
        """
        is_new, ends = self._read()
        ends = {each: end for each, end in ends.items() if self._staged(each).exists()}
        for topic_partition in ends:
            check_partition(self.target, topic_partition)
        # Before the move: if this is repeated, a broker may have newer offsets of moved logs.
        write_checkpoints(self.target, ends, self._fs)
        for topic_partition in ends:
            self._fs.rename(self._staged(topic_partition), self._place(topic_partition))
        self._fs.fsync_directory(self.target)
        if is_new and not any(
            (self.target / name).exists() for name in (CLEAN_SHUTDOWN_FILE, META_PROPERTIES)
        ):
            mark_clean(self.target, self._fs)  # unless a broker used it meanwhile

    def undo_move(self) -> None:
        """Undo the move; safe to repeat.

        Raises `ChangeRefusedError` if a broker has appended to one of the partitions since.
        """
        moved = {
            each: end
            for each, end in self._read()[1].items()
            if not self._staged(each).exists() and self._place(each).exists()
        }
        for topic_partition, end in moved.items():
            place = self._place(topic_partition)
            if PartitionLog(place, topic_partition).log_end_offset != end:
                raise ChangeRefusedError(
                    f"{place} is of a write that failed, and has other records now: it is kept; "
                    f"the next write moves the rest, which is in {self.path}",
                    RefusalReason.CHANGED, place,
                )
        for topic_partition in moved:
            self._fs.rename(self._place(topic_partition), self._staged(topic_partition))
        self._file.unlink()

    def _read(self) -> tuple[bool, dict[TopicPartition, int]]:
        try:
            committed = parse_json(read_own_file(self._file))
            ends = {TopicPartition(topic, number): end for topic, number, end in committed["ends"]}
            is_new = committed["is_new"]
        except (ValueError, KeyError, TypeError) as error:
            raise ChangeRefusedError(
                f"{self._file} is not a valid file of a write: {error}",
                RefusalReason.CHANGED, self._file,
            ) from error
        for each, end in ends.items():
            if not is_topic_name(each.topic) or {type(each.partition), type(end)} != {int}:
                raise ChangeRefusedError(
                    f"{self._file} names {each!r}, which is not a partition",
                    RefusalReason.CHANGED, self._file,
                )
        return is_new is True, ends

    def _staged(self, topic_partition: TopicPartition) -> Path:
        return self._log_dir / str(topic_partition)

    def _place(self, topic_partition: TopicPartition) -> Path:
        return self.target / str(topic_partition)


def check_partition(target: Path, topic_partition: TopicPartition) -> None:
    """Raise `ChangeRefusedError` if the log directory has the partition already."""
    if os.path.lexists(target / str(topic_partition)):
        raise ChangeRefusedError(
            f"{target} already has partition {topic_partition}; existing partitions are never "
            f"appended to or overwritten: name another directory",
            RefusalReason.NOT_EMPTY, target,
        )


def write_checkpoints(
    log_dir: Path, ends: Mapping[TopicPartition, int], fs: FileSystem
) -> None:
    """Write end offsets of cleanly closed logs to checkpoints; keep other entries."""
    news: dict[str, Mapping[TopicPartition, int]] = {
        RECOVERY_POINT_CHECKPOINT: ends,
        HIGH_WATERMARK_CHECKPOINT: ends,
        LOG_START_OFFSET_CHECKPOINT: {},
    }
    there = LogDir(log_dir)
    for name in CHECKPOINTS:
        offsets = {
            topic_partition: offset
            for topic_partition, offset in there.checkpoint(name).offsets.items()
            if topic_partition not in ends  # from a deleted partition of the same name
        }
        fs.replace_content(log_dir / name, pack_offset_checkpoint({**offsets, **news[name]}))


def mark_clean(log_dir: Path, fs: FileSystem) -> None:
    """Mark the log directory as cleanly shut down."""
    fs.close(fs.create(log_dir / CLEAN_SHUTDOWN_FILE))
    fs.fsync_directory(log_dir)
