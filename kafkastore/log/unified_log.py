"""All that a partition's log is while it is written, kept in step.

The segments, the leader epochs, the producers and the log start offset change together: here each
change is made to all of them.  Whether it may be made is asked before, by `log_writer.LogWriter`.

Source: Kafka 2.4.0 ``Log``, 3.9.0 ``UnifiedLog``.
"""

from __future__ import annotations

from kafkastore.formats.append_sets import AppendSets
from kafkastore.formats.producer_state import ProducerAppend
from kafkastore.fs import FileSystem
from kafkastore.log import retention
from kafkastore.log.epoch_file import EpochFile
from kafkastore.log.local_log import LocalLog
from kafkastore.log.log_config import LogConfig
from kafkastore.log.producer_snapshots import ProducerSnapshots
from kafkastore.log.recovery import RecoveredLog
from kafkastore.versions import BrokerRules


class UnifiedLog:
    """A partition's log; after an error of the file system nothing about its files is certain.

    Parameters
    ----------
    loaded : RecoveredLog
        What the directory holds.
    config : LogConfig
        The topic's.
    rules : BrokerRules
        What brokers of the version do.
    now : int
        The wall clock, ms since 1970.
    fs : FileSystem
        What alters files.

    Attributes
    ----------
    local : LocalLog
        The segments.
    epochs : EpochFile
        The leader epochs.
    producers : ProducerSnapshots
        The producers at the log end.
    log_start_offset : int
        First offset a reader may ask for.
    """

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
        """First offset that is not decided: of the oldest open transaction, or the log end."""
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
        """Append batches that were checked.

        Parameters
        ----------
        data : memoryview
            The batches.
        sets : AppendSets
            What they are; at least one.
        prepared : ProducerAppend or None
            What they mean for their producers, if they have any.
        leader_epoch : int or None
            The leader's; None of a follower, which takes the batches' own.
        now : int
            The wall clock, ms since 1970.
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
        """Begin a new segment at the log end.

        Parameters
        ----------
        now : int
            The wall clock, ms since 1970.
        """
        for base_offset in self.local.roll(self.local.log_end_offset, now):
            self._take_snapshot(base_offset)

    def truncate_to(self, offset: int, now: int) -> bool:
        """Drop what is at and after an offset; the producers are then to be loaded anew.

        Parameters
        ----------
        offset : int
            The new log end offset; below the first segment the log begins there, empty.
        now : int
            The wall clock, ms since 1970.

        Returns
        -------
        bool
            Whether there was something.

        Notes
        -----
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
        """Move the log start offset up.

        Parameters
        ----------
        offset : int
            The new one; a lower one than now changes nothing.

        Notes
        -----
        Source: Kafka 2.4.0 ``Log.maybeIncrementLogStartOffset``.
        """
        if offset <= self.log_start_offset:
            return
        self.log_start_offset = offset
        self.local.recovery_point = max(self.local.recovery_point, offset)
        self.epochs.truncate_from_start(offset)
        if not self._rules.snapshots_follow_segments:
            self.producers.drop_below(offset)

    def delete_old_segments(self, now: int, clock_now: int) -> retention.Retention:
        """Delete the segments that retention no longer keeps.

        Parameters
        ----------
        now : int
            The time by which segments are too old, ms since 1970.
        clock_now : int
            The wall clock, ms since 1970.

        Returns
        -------
        Retention
            What went, and where each rule stopped.

        Notes
        -----
        Source: Kafka 2.4.0 ``Log.deleteOldSegments``.
        """
        found = retention.find_deletable(
            self.local.segment_facts(),
            high_watermark=self.local.log_end_offset,
            log_start_offset=self.log_start_offset,
            config=self._config,
            now=now,
            rules=self._rules,
        )
        if found.deletions:
            if found.rolls:
                self.roll(clock_now)
            doomed = [each.segment.base_offset for each in found.deletions]
            self.move_start(found.log_start_offset)
            self.local.delete_segments(doomed)
            if self._rules.snapshots_follow_segments:
                self.producers.drop_with(doomed)
        return found

    def drop_old_snapshots(self) -> None:
        """Drop the producer snapshots that a broker before 2.8 drops at a checkpoint.

        Those stay that are at or above the last two segments, or the one of the recovery point.

        Notes
        -----
        Source: Kafka 2.4.0 ``Log.deleteSnapshotsAfterRecoveryPointCheckpoint``.
        """
        if self._rules.snapshots_follow_segments:
            return
        bases, recovery_point = self.local.base_offsets, self.local.recovery_point
        unflushed = max((base for base in bases if base < recovery_point), default=recovery_point)
        self.producers.drop_below(min(unflushed, *bases[-2:]))

    def close(self) -> None:
        """Write what a clean shutdown leaves: a producer snapshot, trimmed indexes, all durable."""
        self._take_snapshot(self.local.log_end_offset)
        self.local.close()

    def _take_snapshot(self, offset: int) -> None:
        self.producers.take(offset, self.log_start_offset)
