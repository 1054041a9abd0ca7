"""The leader epochs of a log that is being written, and their checkpoint.

Source: Kafka 2.4.0 ``LeaderEpochFileCache``.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable
from pathlib import Path

from kafkastore.arguments import INT32_MAX
from kafkastore.errors import InvalidLeaderEpochError
from kafkastore.formats.records.append_sets import AppendSets
from kafkastore.formats.state.checkpoints import EpochStart, pack_leader_epoch_checkpoint
from kafkastore.formats.state.file_names import LEADER_EPOCH_CHECKPOINT
from kafkastore.formats.state.leader_epochs import LeaderEpochs
from kafkastore.fs import FileSystem


class EpochFile:
    """Leader epochs that are checkpointed at every change."""

    def __init__(self, directory: Path, entries: Iterable[EpochStart], fs: FileSystem) -> None:
        self._path, self._fs = directory / LEADER_EPOCH_CHECKPOINT, fs
        self._epochs = LeaderEpochs(entries)

    @property
    def entries(self) -> tuple[EpochStart, ...]:
        """The epochs with their start offsets, ascending."""
        return self._epochs.entries

    def of_leader(self, leader_epoch: int | None) -> int:
        """Return the epoch that a leader writes into batches; default the latest, or 0.

        An epoch below the latest, or not an int of 31 bits, raises `InvalidLeaderEpochError`.
        """
        latest = self._epochs.latest_epoch or 0
        if leader_epoch is None:
            return latest
        if isinstance(leader_epoch, bool) or not hasattr(leader_epoch, "__index__"):
            raise InvalidLeaderEpochError(f"leader epoch must be an int, got {leader_epoch!r}")
        leader_epoch = operator.index(leader_epoch)
        if not latest <= leader_epoch <= INT32_MAX:
            raise InvalidLeaderEpochError(
                f"leader epoch must be from {latest} to {INT32_MAX}, got {leader_epoch}"
            )
        return leader_epoch

    def lead(self, leader_epoch: int, next_offset: int) -> None:
        """Note the epoch of batches that a leader is about to append at `next_offset`."""
        self._write_if(self._epochs.assign(leader_epoch, next_offset))

    def follow(self, sets: AppendSets) -> None:
        """Note the epochs of a follower's batches; messages before magic 2 clear all."""
        if sets.has_old_messages:
            self.clear()
            return
        latest = self._epochs.latest_epoch
        starts = sets.epoch_starts(-1 if latest is None else latest)
        for epoch, start_offset in starts:
            self._epochs.assign(epoch, start_offset)
        self._write_if(bool(starts))

    def truncate_from_end(self, end_offset: int) -> None:
        """Drop the epochs that begin at or after an offset."""
        self._write_if(self._epochs.truncate_from_end(end_offset))

    def truncate_from_start(self, start_offset: int) -> None:
        """Drop the epochs that end at or before an offset."""
        self._write_if(self._epochs.truncate_from_start(start_offset))

    def clear(self) -> None:
        """Drop all epochs."""
        self._write_if(self._epochs.clear())

    def _write_if(self, is_changed: bool) -> None:
        if is_changed:
            self._fs.replace_content(self._path, pack_leader_epoch_checkpoint(self.entries))
