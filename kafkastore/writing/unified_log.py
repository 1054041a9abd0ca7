"""Change the parts of a partition's log together.

Each change applies to the segments, the leader epochs, the producers and the log start offset.
`log_writer.LogWriter` checks beforehand whether the change is allowed.

Source: Kafka 2.4.0 ``Log``, 3.9.0 ``UnifiedLog``.
"""

from __future__ import annotations

from kafkastore.formats.records.append_sets import AppendSets
from kafkastore.formats.state.producer_state import ProducerAppend
from kafkastore.fs import FileSystem
from kafkastore.recovery.log_recovery import RecoveredLog
from kafkastore.versions import BrokerRules
from kafkastore.writing import retention
from kafkastore.writing.epoch_file import EpochFile
from kafkastore.writing.local_log import LocalLog
from kafkastore.writing.log_config import LogConfig
from kafkastore.writing.producer_snapshots import ProducerSnapshots


class UnifiedLog:
    """A partition's log; after an I/O error its state on disk is unknown."""

    def __init__(
        self,
        loaded: RecoveredLog,
        config: LogConfig,
        rules: BrokerRules,
        *,
        now: int,
        fs: FileSystem,
    ) -> None:
        self.log_start_offset = loaded.log_start_offset
        self.epochs = EpochFile(loaded.path, loaded.leader_epochs, fs)
        self.producers = ProducerSnapshots(loaded.path, loaded.producers, fs)
        self.producers.on_high_watermark(loaded.log_end_offset)
        self.local = LocalLog(
            loaded.path,
            [segment.base_offset for segment in loaded.segments],
            config,
            rules,
            log_end_offset=loaded.log_end_offset,
            recovery_point=loaded.recovery_point,
            now=now,
            fs=fs,
        )
        self._config, self._rules = config, rules

    @property
    def last_stable_offset(self) -> int:
        """First offset of the oldest open transaction, or the log end offset."""
        unstable = self.producers.first_unstable_offset
        if unstable is None:
            return self.local.log_end_offset
        return max(unstable, self.log_start_offset)

    def append(
        self,
        data: memoryview,
        sets: AppendSets,
        prepared: ProducerAppend | None,
        *,
        leader_epoch: int | None,
        now: int,
    ) -> None:
        """Append one or more checked batches; `prepared` changes the producers' state.

        `leader_epoch` is None on a follower, which uses the epochs in the batches.
        """
        local = self.local
        if leader_epoch is None:
            self.epochs.follow(sets)
        else:
            self.epochs.lead(leader_epoch, local.log_end_offset)
        for base_offset in local.append(data, sets, now):
            self._take_snapshot(base_offset)
        if prepared is not None:
            aborted = self.producers.update(prepared)
            if len(aborted):
                local.active.append_aborted(aborted)
        self.producers.on_high_watermark(local.log_end_offset)

    def roll(self, now: int) -> None:
        """Start a new segment at the log end; `now` is in ms since 1970."""
        for base_offset in self.local.roll(self.local.log_end_offset, now):
            self._take_snapshot(base_offset)

    def truncate_to(self, offset: int, now: int) -> bool:
        """Delete everything at or after `offset`; return whether there was anything.

        The caller reloads the producers. An offset below the first segment empties the log and
        starts it there.
        Source: Kafka 2.4.0 ``Log.truncateTo``.
        """
        local = self.local
        if offset >= local.log_end_offset:
            self.epochs.truncate_from_end(local.log_end_offset)
            return False
        if offset < local.base_offsets[0]:
            local.truncate_fully(offset, now)
            self.epochs.clear()
        else:
            local.truncate_to(offset, now)
            self.epochs.truncate_from_end(offset)
        self.log_start_offset = min(offset, self.log_start_offset)
        return True

    def move_start(self, offset: int) -> None:
        """Raise the log start offset; a lower value than the current one has no effect.

        Source: Kafka 2.4.0 ``Log.maybeIncrementLogStartOffset``.
        """
        if offset <= self.log_start_offset:
            return
        self.log_start_offset = offset
        self.local.recovery_point = max(self.local.recovery_point, offset)
        self.epochs.truncate_from_start(offset)
        if not self._rules.snapshots_follow_segments:
            self.producers.drop_below(offset)

    def find_old_segments(self, now: int) -> retention.Retention:
        """Find the segments that retention no longer keeps at `now`, ms since 1970."""
        return retention.find_deletable(
            self.local.segment_facts(),
            high_watermark=self.local.log_end_offset,
            log_start_offset=self.log_start_offset,
            config=self._config,
            now=now,
            rules=self._rules,
        )

    def delete_segments(self, found: retention.Retention, clock_now: int) -> None:
        """Delete what `find_old_segments` found.

        Source: Kafka 2.4.0 ``Log.deleteOldSegments``.
        """
        if not found.deletions:
            return
        if found.rolls:
            self.roll(clock_now)
        base_offsets = [each.segment.base_offset for each in found.deletions]
        self.move_start(found.log_start_offset)
        self.local.delete_segments(base_offsets)
        if self._rules.snapshots_follow_segments:
            self.producers.drop_with(base_offsets)

    def drop_old_snapshots(self) -> None:
        """Delete the producer snapshots that a broker before 2.8 deletes at a checkpoint.

        Snapshots at or above either of the last two segments, or the segment of the recovery point,
        are kept.
        Source: Kafka 2.4.0 ``Log.deleteSnapshotsAfterRecoveryPointCheckpoint``.
        """
        if self._rules.snapshots_follow_segments:
            return
        bases, recovery_point = self.local.base_offsets, self.local.recovery_point
        unflushed = max((base for base in bases if base < recovery_point), default=recovery_point)
        self.producers.drop_below(min(unflushed, *bases[-2:]))

    def close(self) -> None:
        """Shut down cleanly: write a producer snapshot, trim indexes, flush all files."""
        self._take_snapshot(self.local.log_end_offset)
        self.local.close()

    def _take_snapshot(self, offset: int) -> None:
        self.producers.take(offset, self.log_start_offset)
