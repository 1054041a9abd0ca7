"""Simulate the files of a partition directory while a broker loads it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from kafkastore.errors import CorruptionError, NotALogDirectoryError
from kafkastore.formats.primitives.java_text import JavaTextError, parse_int64
from kafkastore.formats.state.file_names import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    INDEX_SUFFIXES,
    KRAFT_SNAPSHOT_SUFFIX,
    LOG_SUFFIX,
    PRODUCER_SNAPSHOT_SUFFIX,
    SWAP_SUFFIX,
    InvalidNameError,
    parse_segment_file,
    segment_file_name,
)
from kafkastore.recovery.segment_split import CopiedRange
from kafkastore.segment.regular_file import is_regular, stat_regular
from kafkastore.segment.small_file import read_if_there
from kafkastore.versions import BrokerRules


class DeletedFile(NamedTuple):
    """A file that is deleted, and why; leftovers remain of an unfinished operation."""

    reason: str
    is_leftover: bool = False


class DirectoryFiles:
    """The files there would be after loading, by name; nothing on disk changes.

    Raises `NotALogDirectoryError` if it can't be listed, `InvalidNameError` for a log without an
    offset, `NotAFileError` for a segment's file (a broker fails to create it) that is not regular.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.deleted: dict[str, DeletedFile] = {}
        self.renamed: dict[str, str] = {}
        self.written: dict[str, bytes] = {}
        self.copied: dict[str, CopiedRange] = {}
        try:
            with os.scandir(path) as entries:
                listed = list(entries)
        except OSError as error:
            raise NotALogDirectoryError(f"{path} can't be listed: {error.strerror}") from error
        self._on_disk = {}
        for entry in listed:
            if is_regular(entry):
                self._on_disk[entry.name] = entry.name
                _check_offset(entry)
            elif parse_segment_file(entry.name) is not None:
                stat_regular(entry.path)
        # Cached, as it is needed for each segment that is recovered.
        offsets = map(_snapshot_offset, self._on_disk)
        self._snapshots = {offset for offset in offsets if offset is not None}

    def __contains__(self, name: str) -> bool:
        return name in self._on_disk or name in self.written or name in self.copied

    def __iter__(self) -> Iterator[str]:
        return iter(sorted({*self._on_disk, *self.written, *self.copied}))

    def snapshot_offsets(self) -> list[int]:
        """Return the offsets of the producer snapshots, ascending."""
        return sorted(self._snapshots)

    def path_of(self, name: str) -> Path:
        """Return the path of a file on disk, before any renaming."""
        return self.path / self._on_disk[name]

    def read(self, name: str, kind: type[CorruptionError]) -> bytes | None:
        """Return a file's content, or None if it does not exist."""
        if name in self.written:
            return self.written[name]
        return read_if_there(self.path_of(name), kind) if name in self._on_disk else None

    def write(self, name: str, data: bytes) -> None:
        """Create or replace a file; a deleted log is still reported as deleted."""
        self.written[name] = data
        if (offset := _snapshot_offset(name)) is not None:
            self._snapshots.add(offset)
        if not name.endswith(LOG_SUFFIX):
            self.deleted.pop(name, None)

    def delete(self, name: str, reason: str, *, is_leftover: bool = False) -> None:
        """Delete a file if it exists."""
        self.written.pop(name, None)
        self.copied.pop(name, None)
        source = self._on_disk.pop(name, None)
        if (offset := _snapshot_offset(name)) is not None:
            self._snapshots.discard(offset)
        if source is not None:
            self.renamed.pop(source, None)
            self.deleted[source] = DeletedFile(reason, is_leftover)

    def rename(self, name: str, new_name: str, reason: str) -> None:
        """Rename a file; an existing file with the new name is deleted."""
        self.delete(new_name, reason)
        if (offset := _snapshot_offset(new_name)) is not None:
            self._snapshots.add(offset)
        if name in self.written:
            self.written[new_name] = self.written.pop(name)
        if name in self._on_disk:
            source = self._on_disk.pop(name)
            self._on_disk[new_name] = source
            self.renamed[source] = new_name

    def drop_temporary(self, rules: BrokerRules) -> list[str]:
        """Delete ``.deleted`` and ``.cleaned`` files; return the valid ``.swap`` files.

        Source: Kafka 2.4.0 ``Log.removeTempFilesAndCollectSwapFiles``.
        """
        swaps, first_cleaned = [], None
        for name in list(self):
            file = parse_segment_file(name)
            if name.endswith(DELETED_SUFFIX) and (
                file is None or file.type_suffix != KRAFT_SNAPSHOT_SUFFIX
            ):
                self.delete(name, "remains of a deletion", is_leftover=True)
            elif file is not None and file.temporary == CLEANED_SUFFIX:
                if first_cleaned is None or file.base_offset < first_cleaned:
                    first_cleaned = file.base_offset
                why = "remains of an unfinished compaction or split"
                self.delete(name, why, is_leftover=True)
            elif file is not None and file.temporary == SWAP_SUFFIX:
                swaps.append((file.base_offset, name))
                if not rules.swaps_are_renamed:
                    for suffix in INDEX_SUFFIXES:
                        index_name = segment_file_name(file.base_offset, suffix)
                        self.delete(index_name, "rebuilt for a .swap segment")
        if first_cleaned is None or not rules.cleaned_files_void_swaps:
            return [name for _, name in swaps]
        for base_offset, name in swaps:
            if base_offset >= first_cleaned:
                self.delete(name, "remains of an unfinished split", is_leftover=True)
        return [name for base_offset, name in swaps if base_offset < first_cleaned]


def _check_offset(entry: os.DirEntry[str]) -> None:
    """Raise `InvalidNameError` for a log whose offset a broker can't parse.

    Source: Kafka 2.4.0 ``Log.offsetFromFileName``.
    """
    if entry.name.endswith(LOG_SUFFIX):
        try:
            parse_int64(entry.name.partition(".")[0])
        except JavaTextError as error:
            raise InvalidNameError(
                f"{entry.path} has no offset in its name ({error}); move it away"
            ) from error


def _snapshot_offset(name: str) -> int | None:
    """Return the offset of a producer snapshot, or None for another file."""
    if not name.endswith(PRODUCER_SNAPSHOT_SUFFIX):
        return None
    file = parse_segment_file(name)
    return None if file is None else file.base_offset
