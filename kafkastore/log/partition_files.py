"""The file names in a partition directory, with leftovers and missing indexes."""
from __future__ import annotations

import os
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from kafkastore.caching import cached_property
from kafkastore.errors import CorruptCheckpointError, NotALogDirectoryError
from kafkastore.formats.state.checkpoints import parse_partition_metadata
from kafkastore.formats.state.file_names import (
    CLEANED_SUFFIX,
    INDEX_SUFFIXES,
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    PARTITION_METADATA,
    PRODUCER_SNAPSHOT_SUFFIX,
    SWAP_SUFFIX,
    TIME_INDEX_SUFFIX,
    SegmentFile,
    offsets_in_names,
    parse_segment_file,
    segment_file_name,
)
from kafkastore.segment.regular_file import link_kind
from kafkastore.segment.small_file import read_if_there

_LOADED = (LOG_SUFFIX, *INDEX_SUFFIXES, PRODUCER_SNAPSHOT_SUFFIX)
_SWAPPED_LOG = LOG_SUFFIX + SWAP_SUFFIX
_DELETED = "deleted at the next start"
_NO_OFFSET = "its name is not 20 digits, up to 2^63 - 1, and a suffix"
_NOT_STARTED = "a broker does not start, or loads it under another base offset"


class FileNoteKind(StrEnum):
    """An unusual property of a file."""

    DELETED = "deleted"
    CLEANED = "cleaned"
    SWAP = "swap"
    PART = "part"
    INDEX_WITHOUT_LOG = "index-without-log"
    INVALID_NAME = "invalid-name"
    MISSING_OFFSET_INDEX = "missing-offset-index"
    MISSING_TIME_INDEX = "missing-time-index"


class StartAction(StrEnum):
    """A broker's action on a file at its next start.

    `FAIL`: it does not start, or loads the file under another base offset.
    """

    DELETE = "delete"
    RENAME = "rename"
    REPLACE_SEGMENTS = "replace-segments"
    RECOVER_SEGMENT = "recover-segment"
    CREATE_EMPTY = "create-empty"
    FAIL = "fail"


class FileNote(NamedTuple):
    """A leftover or missing file, and what a broker does about it at its next start.

    `what` and `at_next_start` are the texts of `kind` and `start_action`.
    """

    path: Path
    kind: FileNoteKind
    what: str
    start_action: StartAction
    at_next_start: str


class PartitionFiles:
    """The names from one listing of a partition directory; no file is opened.

    A directory that can't be listed raises `NotALogDirectoryError`.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._names = frozenset(os.listdir(path))
        except OSError as error:
            kind = link_kind(path, error)
            why = f"can't be listed: {error.strerror}" if kind is None else f"is {kind}"
            raise NotALogDirectoryError(f"{path} {why}") from error
        self.base_offsets = offsets_in_names(self._names, LOG_SUFFIX)

    def __contains__(self, name: object) -> bool:
        return name in self._names

    @property
    def producer_snapshots(self) -> list[int]:
        """The offsets of the producer snapshots, ascending."""
        return offsets_in_names(self._names, PRODUCER_SNAPSHOT_SUFFIX)

    @cached_property
    def swapped_offsets(self) -> list[int]:
        """The base offsets of complete segments that are still named ``.swap``.

        A segment swap renames the old segments from the first on, then the new ones; without the
        first old one, only the new ones have its records.

        Source: Kafka 2.4.0 ``Log.replaceSegments``.
        """
        swapped = offsets_in_names(self._names, _SWAPPED_LOG)
        waiting = [base for base in swapped if base < self._first_cleaned]
        if not waiting or waiting[0] in self.base_offsets:
            return []
        return [base for base in waiting if base not in self.base_offsets]

    @property
    def missing_indexes(self) -> list[FileNote]:
        """The missing offset and time indexes, by segment.

        Brokers before 0.10.1 have no time indexes.
        Source: Kafka 2.4.0 ``Log.loadSegmentFiles``, ``LogSegment.sanityCheck``.
        """
        found = []
        for base_offset in self.base_offsets:
            index, time_index = (
                segment_file_name(base_offset, suffix)
                for suffix in (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX)
            )
            if index not in self:
                what = "the offset index is missing"
                done = "a broker recovers the segment: it checks the log and builds all its indexes"
                kind, action = FileNoteKind.MISSING_OFFSET_INDEX, StartAction.RECOVER_SEGMENT
                found.append(FileNote(self.path / index, kind, what, action, done))
            if time_index not in self:
                what = "the time index is missing"
                done = (
                    "created empty, unless the segment is recovered; from then on the .log's "
                    "modification time is the segment's time"
                )
                kind, action = FileNoteKind.MISSING_TIME_INDEX, StartAction.CREATE_EMPTY
                found.append(FileNote(self.path / time_index, kind, what, action, done))
        return found

    @property
    def leftovers(self) -> list[FileNote]:
        """Temporary files, indexes without a segment, and names of no segment, by name.

        Readers ignore them, except for `swapped_offsets`.
        Source: Kafka 2.4.0 ``Log.removeTempFilesAndCollectSwapFiles``, 3.0.0 ``LogLoader``, 3.9.0
        ``KafkaMetadataLog.recoverSnapshots``.
        """
        found = []
        for name in sorted(self._names):
            file = parse_segment_file(name)
            path = self.path / name
            if file is None:
                if name.endswith(_LOADED):
                    kind = FileNoteKind.INVALID_NAME
                    found.append(FileNote(path, kind, _NO_OFFSET, StartAction.FAIL, _NOT_STARTED))
                continue
            if file.temporary:
                kind = FileNoteKind(file.temporary.removeprefix("."))
                found.append(FileNote(path, kind, _TEMPORARY[kind], *self._start_action(file)))
            elif file.type_suffix in INDEX_SUFFIXES and not self._has(file, LOG_SUFFIX):
                kind = FileNoteKind.INDEX_WITHOUT_LOG
                what = "an index of a segment whose log is missing"
                found.append(FileNote(path, kind, what, StartAction.DELETE, _DELETED))
        return found

    def _has(self, file: SegmentFile, suffix: str) -> bool:
        return segment_file_name(file.base_offset, suffix) in self

    def _start_action(self, file: SegmentFile) -> tuple[StartAction, str]:
        """Return what a broker's start does with a temporary file."""
        if file.temporary != SWAP_SUFFIX:
            return StartAction.DELETE, _DELETED
        if file.base_offset >= self._first_cleaned:
            why = f"the {CLEANED_SUFFIX} files show that a split was not finished"
            return StartAction.DELETE, f"{_DELETED}: {why}"
        if file.type_suffix == LOG_SUFFIX:
            done = "a broker replaces its original segments with it"
            if file.base_offset in self.swapped_offsets:
                done += "; the first of them is already missing, so it is read here"
            return StartAction.REPLACE_SEGMENTS, done
        if self._has(file, _SWAPPED_LOG):
            done = f"renamed with its {LOG_SUFFIX}; brokers before 3.0 rebuild it"
            return StartAction.RENAME, done
        return StartAction.DELETE, f"{_DELETED}; one before 3.0 rebuilds the segment's indexes"

    @cached_property
    def _first_cleaned(self) -> float:
        """The smallest base offset of a ``.cleaned`` file."""
        files = map(parse_segment_file, self._names)
        return min(
            (file.base_offset for file in files if file and file.temporary == CLEANED_SUFFIX),
            default=float("inf"),
        )


_TEMPORARY = {
    FileNoteKind.DELETED: "a deleted file",
    FileNoteKind.CLEANED: "a file of an unfinished compaction or split",
    FileNoteKind.SWAP: (
        "a new segment from compaction or a split that has not replaced its original segments"
    ),
    FileNoteKind.PART: "a snapshot that was being written",
}


def read_topic_id(directory: Path) -> str | None:
    """Return the topic id in ``partition.metadata``; None without the file."""
    path = directory / PARTITION_METADATA
    data = read_if_there(path, CorruptCheckpointError)
    try:
        return None if data is None else parse_partition_metadata(data)
    except CorruptCheckpointError as error:
        raise error.located(path) from error
