"""A directory that keeps what groups commit to a server.

It is a log directory with one partition of ``__consumer_offsets``, which `LogDirWriter` writes. So
a crash, a lock, a torn or corrupt end and a full disk are handled as in every other log, and all
commands read it. A record says what holds now: an offset, or a tombstone, which also hides an
offset in the served directories. `StateDirectory.append` now and then writes all of them again and
deletes the segments before.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Container, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kafkastore.clock import clock
from kafkastore.errors import KafkaStoreError, LogWouldBeCutError
from kafkastore.formats.records.record_batch import Record, TimestampType
from kafkastore.formats.state.file_names import TopicPartition
from kafkastore.formats.topics.consumer_offsets import (
    OffsetAndMetadata,
    OffsetCommitKey,
    pack_offset_commit,
    parse_offset_commit,
)
from kafkastore.fs import FileSystem
from kafkastore.log.log_dir import LogDir
from kafkastore.store.log_store import LogStore
from kafkastore.store.partition_log import PartitionLog
from kafkastore.use_cases.committed_offsets import CONSUMER_OFFSETS
from kafkastore.use_cases.last_records import last_records

if TYPE_CHECKING:
    from kafkastore.writing.log_dir_writer import LogDirWriter
    from kafkastore.writing.log_writer import LogWriter

#: What operators should know of the state.
STATE_LOG = logging.getLogger(__name__)
#: Marks a directory that a server made for its state.
STATE_FILE = "kafkastore-serve-state"
_STATE_VERSION = b"version=1\n"
_PARTITION = 0
_CONFIG = {"retention.ms": -1, "retention.bytes": -1, "cleanup.policy": "delete"}
#: All is written again when that many bytes, and so many times those of what held at the last
#: time, were appended.
_REWRITE_BYTES, _REWRITE_FACTOR = 8 * 1024 * 1024, 4

Changes = Mapping[OffsetCommitKey, OffsetAndMetadata | None]
"""Committed offsets; None is a deleted one."""


class StateDirectoryError(KafkaStoreError, ValueError):
    """A directory that can't be the state of a server.

    Parameters
    ----------
    path : Path
        The directory.
    problem : str
        What is wrong, and what to do.
    """

    def __init__(self, path: Path, problem: str) -> None:
        super().__init__(path, problem)
        self.path, self.problem = path, problem

    def __str__(self) -> str:
        return f"{self.path}: {self.problem}"


class StateDirectory:
    """The state of one server; `close` it.

    Raises `StateDirectoryError` and `DirectoryInUseError`; logs what a crash has cost.
    """

    def __init__(
        self, path: Path, served: LogStore, cluster_id: str, fs: FileSystem | None = None
    ) -> None:
        self.path = path
        _check_place(path, served)
        from kafkastore.writing.log_dir_writer import LogDirWriter  # most servers have no state

        fs = fs or FileSystem()
        _mark(path, fs)
        known = LogDir(path).meta_properties.get("cluster.id")
        if known not in (None, cluster_id):
            raise StateDirectoryError(
                path,
                f"the state of a server of the cluster {known}, not of {cluster_id}; choose "
                "another directory",
            )
        self._log_dir = LogDirWriter(path, cluster_id=cluster_id, fs=fs)
        try:
            self._log = _writer(self._log_dir)
            self.changes: dict[OffsetCommitKey, OffsetAndMetadata | None] = dict(_read(path))
        except BaseException:
            self._log_dir.close()
            raise
        #: Which tombstones hide an offset in the served directories; None: it is not known yet.
        self.hidden: Container[OffsetCommitKey] | None = None
        self._appended = sum(each.stat().st_size for each in self._log.path.glob("*.log"))
        self._limit = self._next_limit()

    def append(self, changes: Sequence[tuple[OffsetCommitKey, OffsetAndMetadata | None]]) -> None:
        """Make changes durable."""
        self._write(changes)
        self._log.flush()
        self.changes.update(changes)
        if self._appended > self._limit:
            self._rewrite()

    def _write(
        self, changes: Iterable[tuple[OffsetCommitKey, OffsetAndMetadata | None]]
    ) -> None:
        before = self._log.log_end_offset
        now = clock()
        self._log.append_records(
            Record(0, now, TimestampType.CREATE_TIME, *pack_offset_commit(key, commit), (), None)
            for key, commit in changes
        )
        assert self._log.log_end_offset > before
        self._appended += _size(changes)

    def _next_limit(self) -> int:
        return _REWRITE_BYTES + _REWRITE_FACTOR * _size(self.changes.items())

    def _rewrite(self) -> None:
        """Write what holds into a new segment, then delete those before it."""
        if self.hidden is not None:
            self.changes = {
                key: commit for key, commit in self.changes.items()
                if commit is not None or key in self.hidden
            }
        start = self._log.roll()
        self._appended, self._limit = 0, self._next_limit()
        if self.changes:
            self._write(self.changes.items())
        self._log.flush()
        self._log.delete_records(start)
        self._log_dir.checkpoint()
        self._log.delete_old_segments()

    def close(self) -> None:
        """Shut down cleanly, and release the lock."""
        self._log_dir.close()


def _check_place(path: Path, served: LogStore) -> None:
    """Refuse a directory in or around what is served, wherever links lead."""
    state = Path(os.path.realpath(path))
    partitions = (
        log.path.parent for place in served.partitions for log in served.partitions.copies(place)
    )
    for each in {*map(Path, served.paths), *partitions}:
        directory = Path(os.path.realpath(each))
        if state.is_relative_to(directory) or directory.is_relative_to(state):
            raise StateDirectoryError(
                path, f"must be outside of what is served ({each}), which is never written"
            )


def _mark(path: Path, fs: FileSystem) -> None:
    """Create the directory, or check that a server made it."""
    if not path.exists():
        fs.mkdir(path)
        fs.fsync_directory(path.parent)
    marker = path / STATE_FILE
    if marker.exists():
        if marker.read_bytes() not in (b"", _STATE_VERSION):
            raise StateDirectoryError(
                path, f"{STATE_FILE} is not that of this kafkastore: a newer one made the state; "
                "upgrade kafkastore"
            )
        return
    others = [each for each in sorted(os.listdir(path)) if not each.startswith(STATE_FILE)]
    if others:
        raise StateDirectoryError(
            path, f"neither empty nor the state of a server: it has {others[0]}"
        )
    fs.replace_content(marker, _STATE_VERSION)


def _writer(log_dir: LogDirWriter) -> LogWriter:
    """Open the log; cut off what can't be read at its end, and say so."""
    try:
        return log_dir.writer(CONSUMER_OFFSETS, _PARTITION, _CONFIG)
    except LogWouldBeCutError as error:
        name, position = next(iter(error.cuts.items()))
        STATE_LOG.warning(
            "%s: cut off at byte %d, where a crash or a disk error left an incomplete or corrupt "
            "record; commits after it are lost, and their bytes are saved next to the directory",
            Path(os.fspath(error.args[0]), name), position,
        )
    return log_dir.writer(CONSUMER_OFFSETS, _PARTITION, _CONFIG, recover=True)


def _read(path: Path) -> Changes:
    place = TopicPartition(CONSUMER_OFFSETS, _PARTITION)
    log = PartitionLog(path / str(place), place)
    found: dict[OffsetCommitKey, OffsetAndMetadata | None] = {}
    for key, last in last_records(log).items():
        parsed = parse_offset_commit(key, last.value)
        if parsed is not None:
            found[parsed[0]] = parsed[1]
    return found


def _size(changes: Iterable[tuple[OffsetCommitKey, OffsetAndMetadata | None]]) -> int:
    """Estimate the bytes of records."""
    return sum(
        50 + len(key.group) + len(key.topic) + (0 if commit is None else len(commit.metadata))
        for key, commit in changes
    )
