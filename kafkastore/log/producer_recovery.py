"""The state of a partition's producers while its log is loaded, and the snapshots of it.

A broker keeps snapshots so as to read little of the log when it starts; which of them it believes,
drops and takes anew decides what it knows of the producers.

Source: Kafka 2.4.0 ``Log.rebuildProducerState``, ``ProducerStateManager``; 3.9.0
``UnifiedLog.rebuildProducerState``, ``ProducerStateManager.removeStraySnapshots``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from kafkastore.errors import CorruptCheckpointError
from kafkastore.formats import producer_snapshot
from kafkastore.formats.file_names import PRODUCER_SNAPSHOT_SUFFIX, segment_file_name
from kafkastore.formats.producer_state import ProducerState
from kafkastore.log.directory_files import DirectoryFiles
from kafkastore.versions import BrokerRules

_LAST_BATCH = ("last_sequence", "last_offset", "offset_delta", "timestamp")

#: Carries the producers on over the batches of a segment, given by its base offset, from the batch
#: on that holds an offset.
Replay = Callable[[ProducerState, int, int], None]


class ProducerRecovery:
    """Producers up to an offset, and where the last snapshot was taken.

    Parameters
    ----------
    files : DirectoryFiles
        Holds the snapshots.
    rules : BrokerRules
        Of the broker's version.
    now_ms : int or None
        The clock; None: no producer is too old.
    start_offset : int
        Up to where nothing is known.

    Attributes
    ----------
    state : ProducerState
        The producers.
    end_offset : int
        Up to where, exclusive.
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
        """Write down the state, unless that was done already.

        Source: Kafka 2.4.0 ``ProducerStateManager.takeSnapshot``.
        """
        if self.end_offset > self._snapshot_offset:
            data = producer_snapshot.pack(self.state.entries())
            self._files.write(_name(self.end_offset), data)
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
        """Find out the state at an offset from the newest snapshot before it, and the log.

        Parameters
        ----------
        base_offsets : sequence of int
            Of the segments, rising.
        log_start_offset, end_offset : int
            Inclusive, exclusive.
        replay : callable
            See `Replay`.
        is_last : bool
            Whether this is for the log end, and not for a segment to be recovered.
        was_clean : bool
            Whether no snapshot at all means that there is nothing to know: of a broker that had
            none yet.
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
        """Put producers in the place of those known by the same id, but for their last batch.

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
        """Drop the snapshots outside the log, and begin with the newest that is left.

        Source: Kafka 2.4.0 ``ProducerStateManager.truncateAndReload``, ``truncateHead``.
        """
        for offset in self._files.snapshot_offsets():
            if not log_start_offset < offset <= end_offset:
                self._files.delete(_name(offset), "a snapshot of the producers outside the log")
        if end_offset != self.end_offset:
            self._load(log_start_offset)
            return
        self.end_offset = max(self.end_offset, log_start_offset)
        left = self._files.snapshot_offsets()
        self._snapshot_offset = left[-1] if left else log_start_offset

    def _load(self, log_start_offset: int) -> None:
        """Load the newest snapshot that can be read; those that can't go.

        Source: Kafka 2.4.0 ``ProducerStateManager.loadFromSnapshot``.
        """
        for offset in reversed(self._files.snapshot_offsets()):
            try:
                data = self._files.read(_name(offset), CorruptCheckpointError)
                entries = producer_snapshot.parse(data or b"")
            except CorruptCheckpointError as error:
                self._files.delete(_name(offset), str(error))
                continue
            self.state = ProducerState(entries, rules=self._rules)
            if self._now_ms is not None:
                self.state.remove_expired(self._now_ms)
            self.end_offset = self._snapshot_offset = offset
            return
        self.state = ProducerState(rules=self._rules)
        self.end_offset = self._snapshot_offset = log_start_offset


def remove_stray_snapshots(files: DirectoryFiles, base_offsets: Sequence[int]) -> None:
    """Drop the snapshots of no segment, but for the newest if it is above all base offsets.

    Parameters
    ----------
    files : DirectoryFiles
        Holds the snapshots.
    base_offsets : sequence of int
        Of the segments, rising; at least one.

    Notes
    -----
    Source: Kafka 3.9.0 ``ProducerStateManager.removeStraySnapshots``.
    """
    offsets = files.snapshot_offsets()
    stray = [offset for offset in offsets if offset not in set(base_offsets)]
    if stray and stray[-1] >= base_offsets[-1]:
        stray.pop()
    for offset in stray:
        files.delete(_name(offset), "a snapshot of the producers at no segment's base offset")


def delete_snapshot(files: DirectoryFiles, offset: int, reason: str) -> None:
    """Drop the snapshot at an offset, if there is one."""
    files.delete(_name(offset), reason)


def _name(offset: int) -> str:
    """Return a snapshot's file name."""
    return segment_file_name(offset, PRODUCER_SNAPSHOT_SUFFIX)
