"""The producers' state while a log is loaded, and its snapshots.

With snapshots a broker reads less of the log when it starts. Its state depends on the snapshots
that it accepts, drops and writes.

Source: Kafka 2.4.0 ``Log.rebuildProducerState``, ``ProducerStateManager``; 3.9.0
``UnifiedLog.rebuildProducerState``, ``ProducerStateManager.removeStraySnapshots``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from kafkastore.errors import CorruptCheckpointError
from kafkastore.formats.state import producer_snapshot
from kafkastore.formats.state.file_names import snapshot_name
from kafkastore.formats.state.producer_state import ProducerState
from kafkastore.recovery.directory_files import DirectoryFiles
from kafkastore.versions import BrokerRules

_LAST_BATCH = ("last_sequence", "last_offset", "offset_delta", "timestamp")

#: Applies the batches of a segment, given by its base offset, to the state, from the batch with an
#: offset on.
Replay = Callable[[ProducerState, int, int], None]


class ProducerRecovery:
    """The producers' state up to `end_offset`, and the last snapshot's offset.

    Before `start_offset` nothing is known. If `now_ms` is None, no producer expires.
    """

    def __init__(
        self,
        files: DirectoryFiles,
        rules: BrokerRules,
        now_ms: int | None = None,
        start_offset: int = 0,
    ) -> None:
        self.state = ProducerState(rules=rules)
        self.end_offset = start_offset
        self._snapshot_offset = 0
        self._files, self._rules, self._now_ms = files, rules, now_ms

    def take_snapshot(self) -> None:
        """Write a snapshot of the state, unless there already is one at this offset.

        Source: Kafka 2.4.0 ``ProducerStateManager.takeSnapshot``.
        """
        if self.end_offset > self._snapshot_offset:
            data = producer_snapshot.pack(self.state.entries())
            self._files.write(snapshot_name(self.end_offset), data)
            self._snapshot_offset = self.end_offset

    def rebuild(
        self,
        base_offsets: Sequence[int],
        log_start_offset: int,
        end_offset: int,
        replay: Replay,
        *,
        is_last: bool,
        was_clean: bool = False,
    ) -> None:
        """Rebuild the state at `end_offset` from the newest snapshot and the log.

        `base_offsets` ascend. `is_last`: the state is the log end's, not a segment's to recover.
        `was_clean`: without snapshots the state is empty, as after a broker that wrote none.
        """
        to_snapshot = set(base_offsets[-2:])
        if not self._rules.snapshots_at_last_segments:
            to_snapshot = set(base_offsets if is_last else ())
        if was_clean and not self._files.snapshot_offsets():
            for offset in (*base_offsets[-2:], end_offset):
                self.end_offset = offset
                self.take_snapshot()
            return
        was_empty = self.state.is_empty and self.end_offset >= end_offset
        self._truncate_and_reload(log_start_offset, end_offset)
        if end_offset > self.end_offset and not was_empty:
            first = max((base for base in base_offsets if base <= self.end_offset), default=0)
            for base_offset in base_offsets:
                if not first <= base_offset < end_offset:
                    continue
                self.end_offset = max(base_offset, self.end_offset, log_start_offset)
                if base_offset in to_snapshot:
                    self.take_snapshot()
                if is_last or self._rules.segments_know_earlier_producers:
                    replay(self.state, base_offset, self.end_offset)
                else:
                    by_itself = ProducerState(rules=self._rules)
                    replay(by_itself, base_offset, self.end_offset)
                    self.state = self._with_overwritten(by_itself)
        self.end_offset = end_offset
        self.take_snapshot()

    def _with_overwritten(self, later: ProducerState) -> ProducerState:
        """Replace producers by id; keep the last batch if the new entry has none.

        Source: Kafka 2.4.0 ``Log.updateProducers``, ``ProducerStateEntry.update``.
        """
        entries = {int(entry["producer_id"]): entry for entry in self.state.entries()}
        for entry in later.entries():
            known = entries.get(int(entry["producer_id"]))
            if (
                known is not None
                and entry["last_offset"] < 0
                and entry["producer_epoch"] == known["producer_epoch"]
            ):
                for field in _LAST_BATCH:
                    entry[field] = known[field]
            entries[int(entry["producer_id"])] = entry
        found = np.array(list(entries.values()), producer_snapshot.PRODUCER_ENTRY)
        return ProducerState(found, rules=self._rules)

    def _truncate_and_reload(self, log_start_offset: int, end_offset: int) -> None:
        """Drop the snapshots outside the log, and load the newest one that remains.

        Source: Kafka 2.4.0 ``ProducerStateManager.truncateAndReload``, ``truncateHead``.
        """
        for offset in self._files.snapshot_offsets():
            if not log_start_offset < offset <= end_offset:
                self._files.delete(
                    snapshot_name(offset), "a snapshot of the producers outside the log"
                )
        if end_offset != self.end_offset:
            self._load(log_start_offset)
            return
        self.end_offset = max(self.end_offset, log_start_offset)
        left = self._files.snapshot_offsets()
        self._snapshot_offset = left[-1] if left else log_start_offset

    def _load(self, log_start_offset: int) -> None:
        """Load the newest valid snapshot; delete invalid ones.

        Source: Kafka 2.4.0 ``ProducerStateManager.loadFromSnapshot``.
        """
        for offset in reversed(self._files.snapshot_offsets()):
            try:
                data = self._files.read(snapshot_name(offset), CorruptCheckpointError)
                entries = producer_snapshot.parse(data or b"")
            except CorruptCheckpointError as error:
                self._files.delete(snapshot_name(offset), str(error))
                continue
            self.state = ProducerState(entries, rules=self._rules)
            if self._now_ms is not None:
                self.state.remove_expired(self._now_ms)
            self.end_offset = self._snapshot_offset = offset
            return
        self.state = ProducerState(rules=self._rules)
        self.end_offset = self._snapshot_offset = log_start_offset


def remove_stray_snapshots(files: DirectoryFiles, base_offsets: Sequence[int]) -> None:
    """Drop snapshots at no segment's base offset, except one above all base offsets.

    `base_offsets` are ascending, at least one.
    Source: Kafka 3.9.0 ``ProducerStateManager.removeStraySnapshots``.
    """
    offsets = files.snapshot_offsets()
    stray = [offset for offset in offsets if offset not in set(base_offsets)]
    if stray and stray[-1] >= base_offsets[-1]:
        stray.pop()
    for offset in stray:
        files.delete(
            snapshot_name(offset), "a snapshot of the producers at no segment's base offset"
        )


def delete_snapshot(files: DirectoryFiles, offset: int, reason: str) -> None:
    """Delete the snapshot at an offset, if it exists."""
    files.delete(snapshot_name(offset), reason)
