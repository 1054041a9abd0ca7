"""The files of a restored log: those of the old log, and what its batches say.

Indexes are those that recovery would build. The broker that gets the log was stopped, and does not
recover it.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from kafkastore.migration.convert import ConvertedPartition

from kafkastore.changes.file_state import FileState, read_state
from kafkastore.changes.new_bytes import chunks_of
from kafkastore.changes.plan import Content, Converted, Copied, FileChange, Inline, Rebuilt
from kafkastore.errors import ChangeRefusedError, RefusalReason
from kafkastore.formats.state import producer_snapshot
from kafkastore.formats.state.file_names import (
    LEADER_EPOCH_CHECKPOINT,
    OFFSET_INDEX_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    snapshot_name,
)
from kafkastore.formats.state.producer_state import ProducerState
from kafkastore.log.isolation import newest_snapshot, without_producers
from kafkastore.segment.log_segment import LogSegment
from kafkastore.segment.recovery import RebuiltIndexes, rebuild_indexes
from kafkastore.store.partition_log import PartitionLog

_NONE = -1


class RestoredFile(NamedTuple):
    """A file that a partition will have, but for its owners and mode."""

    name: str
    state: FileState
    content: Content


class RestoredFiles:
    """The files that a partition will have."""

    def __init__(
        self,
        log: PartitionLog,
        converted: ConvertedPartition,
        leader_epoch: int,
        index_interval_bytes: int,
    ) -> None:
        self.log, self.leader_epoch = log, leader_epoch
        self.index_interval_bytes = index_interval_bytes
        self.old = converted.old
        self.rewritten = {os.path.basename(each.path): each for each in converted.changes}

    def list(self) -> Iterator[RestoredFile]:
        """Yield each segment's log, then what is made of it, then the other files."""
        producers = self._producers_at_start()
        for segment in self.log.segments:
            rebuilt = rebuild_indexes(
                segment.log_path, segment.base_offset,
                index_interval_bytes=self.index_interval_bytes, producers=producers,
            )
            yield from self._log(segment, rebuilt)
            yield from self._indexes(segment, rebuilt)
        yield from self._open_transactions(producers)
        if LEADER_EPOCH_CHECKPOINT in self.rewritten:
            yield self._planned(self.rewritten[LEADER_EPOCH_CHECKPOINT])
        else:
            yield from self._copied(self.log.path / LEADER_EPOCH_CHECKPOINT)

    def _producers_at_start(self) -> ProducerState:
        """Return the producers before the first segment, if a snapshot of there has them."""
        start = self.log.segments[0].base_offset if self.log.segments else 0
        offset, producers = newest_snapshot(self.log, start)
        return producers if offset == start else without_producers()

    def _log(self, segment: LogSegment, rebuilt: RebuiltIndexes) -> Iterator[RestoredFile]:
        """Yield a log: converted, as it is, or without bytes after its last batch.

        The new broker was stopped, so it would keep those, and append after them.
        """
        path = segment.log_path
        left = segment.size - rebuilt.valid_bytes
        if rebuilt.reason is not None or (left and not segment.is_active):
            reason = rebuilt.reason or f"it has {left} bytes after its last batch"
            raise unrestorable(path, reason)
        change = self.rewritten.get(path.name)
        if change is not None:
            if change.after is not None and isinstance(change.content, Converted):
                content = Copied(os.path.abspath(path), change.content)
                yield RestoredFile(path.name, change.after, content)
        elif left:
            batches = Converted(None, None, self.leader_epoch, is_only_epoch=True)
            digest = hashlib.sha256()
            for data in chunks_of(batches, path):
                digest.update(data)
            state = FileState.of_digest(rebuilt.valid_bytes, digest.hexdigest(), os.stat(path))
            yield RestoredFile(path.name, state, Copied(os.path.abspath(path), batches))
        else:
            yield from self._copied(path)

    def _indexes(self, segment: LogSegment, rebuilt: RebuiltIndexes) -> Iterator[RestoredFile]:
        """Yield the indexes that recovery would build."""
        has_old_formats = segment.log_path.name in self.old
        for suffix, data in (
            (OFFSET_INDEX_SUFFIX, rebuilt.offset_index), (TIME_INDEX_SUFFIX, rebuilt.time_index)
        ):
            path = segment.log_path.with_suffix(suffix)
            if path.name in self.rewritten:
                yield self._planned(self.rewritten[path.name])
            elif has_old_formats:  # the conversion found its bytes there
                yield from self._copied(path)
            else:
                content = Rebuilt(self.index_interval_bytes)
                yield RestoredFile(path.name, _state_of(data, segment), content)
        if data := rebuilt.transaction_index:
            name = segment.log_path.with_suffix(TRANSACTION_INDEX_SUFFIX).name
            yield RestoredFile(name, _state_of(data, segment), Inline(data))

    def _open_transactions(self, producers: ProducerState) -> Iterator[RestoredFile]:
        """Yield the producer snapshot of the log end, of open transactions only.

        The new cluster gives the ids of other producers to new ones, and a broker that knows the
        old ones takes batches of the new ones for repeated ones: it drops them.
        """
        end = self.log.log_end_offset
        if end > self.log.log_start_offset:
            entries = producers.entries()
            entries = entries[entries["current_txn_first_offset"] >= 0]
            for name in ("last_sequence", "last_offset"):
                entries[name] = _NONE
            data = producer_snapshot.pack(entries)
            state = _state_of(data, self.log.segments[-1])
            yield RestoredFile(snapshot_name(end), state, Inline(data))

    def _copied(self, path: Path) -> Iterator[RestoredFile]:
        """Yield a file as it is, if it is there."""
        state = read_state(path)
        if state is not None:
            yield RestoredFile(path.name, state, Copied(os.path.abspath(path)))

    def _planned(self, change: FileChange) -> RestoredFile:
        """Return a file as the conversion has planned it."""
        assert change.after is not None  # a conversion removes nothing
        assert change.content is not None
        return RestoredFile(os.path.basename(change.path), change.after, change.content)


def _state_of(data: bytes, segment: LogSegment) -> FileState:
    """Return the state of a file that is made of a segment's log."""
    return FileState.of_bytes(data, os.stat(segment.log_path))


def unrestorable(path: str | os.PathLike[str], reason: str) -> ChangeRefusedError:
    """Return the error for a segment that can't be restored."""
    return ChangeRefusedError(
        f"{path} can't be restored: {reason}; repair a copy first, with kafkastore repair",
        RefusalReason.OTHER,
        path,
    )
