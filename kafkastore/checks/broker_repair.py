"""Repair corrupt logs as a broker's recovery would.

As in a broker, ``.swap`` segments first replace the original ones, and a segment whose offsets do
not fit is split.
"""

from __future__ import annotations

from pathlib import Path

from kafkastore.changes.plan import ByteRange, Content, Inline, Prefix, Rebuilt
from kafkastore.checks.partition_repair import PartitionRepair, is_log
from kafkastore.errors import (
    CorruptBatchError,
    CorruptCheckpointError,
    CorruptionError,
    KafkaStoreError,
)
from kafkastore.formats.state.file_names import (
    INDEX_SUFFIXES,
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    LOG_SUFFIX,
    PRODUCER_SNAPSHOT_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    parse_segment_file,
    segment_file_name,
)
from kafkastore.paths import describe_error
from kafkastore.recovery.log_recovery import RecoveredLog, RecoveredSegment, recover_log
from kafkastore.versions import rules_of


class NoRecoveryError(KafkaStoreError):
    """A broker of the version does not recover the partition.

    Parameters
    ----------
    problem : str
        Why, and what to do about it.
    can_salvage : bool
        Whether ``keep`` can repair it.
    """

    def __init__(self, problem: str, *, can_salvage: bool = False) -> None:
        super().__init__(problem)
        self.can_salvage = can_salvage


class LogDeletedError(NoRecoveryError):
    """A broker of the version deletes the whole log, because it ends below its start."""

    @classmethod
    def of(cls, path: Path, version: str, reason: str) -> LogDeletedError:
        """Return the error for a partition; `reason` has both offsets."""
        return cls(
            f"a broker of {version} deletes all of {path}: {reason}; to keep it, remove its line "
            f"from {LOG_START_OFFSET_CHECKPOINT}"
        )


def plan_broker_repair(repair: PartitionRepair, version: str) -> None:
    """Plan to end the log where a broker's recovery of all of it would end it.

    Plans nothing if the broker would not change any log. Raises NoRecoveryError if the broker would
    not start with this log, or would delete all of it.
    """
    recovered = _recovered(repair, version)
    if any(name.endswith(LOG_SUFFIX) for name in recovered.written):  # a new, empty log
        reasons = [each.reason for name, each in recovered.deleted.items() if is_log(name)]
        if not reasons:
            return  # there was no log at all
        # Earlier reasons are of segments after the truncation.
        raise LogDeletedError.of(repair.log.path, version, reasons[-1])
    if recovered.cut or recovered.renamed or recovered.copied:
        _BrokerRepair(repair, version, recovered).plan()


def _recovered(repair: PartitionRepair, version: str) -> RecoveredLog:
    try:
        return recover_log(
            repair.log,
            version,
            index_interval_bytes=repair.index_interval_bytes,
            is_clean=False,
            recovery_point=0,
        )
    except CorruptCheckpointError as error:
        raise NoRecoveryError(
            f"a broker of {version} does not start with it: {error}; repair that file first, then "
            "run the repair again"
        ) from error
    except (KafkaStoreError, OSError) as error:
        can_salvage = isinstance(error, CorruptBatchError)
        hint = "; repair --on-corrupt skip keeps all readable batches" if can_salvage else ""
        raise NoRecoveryError(
            f"a broker of {version} fails to load it: {describe_error(error)}{hint}",
            can_salvage=can_salvage,
        ) from error


class _BrokerRepair:
    """The changes to a partition that equal those of a recovery."""

    def __init__(self, repair: PartitionRepair, version: str, recovered: RecoveredLog) -> None:
        self.repair, self.version, self.recovered = repair, version, recovered
        self.path = repair.log.path
        #: The original names of logs that get new names.
        self.sources = {new: old for old, new in recovered.renamed.items()}
        self.sources |= {name: copied.source for name, copied in recovered.copied.items()}
        has_first_offsets = not rules_of(version).offset_index_has_last_offset
        self.rebuilt = Rebuilt(repair.index_interval_bytes, has_first_offsets)

    def plan(self) -> None:
        """Plan logs, then files built from them, then deletions."""
        changed = [
            segment
            for segment in self.recovered.segments
            if segment.cut_bytes or _log_name(segment) in self.sources
        ]
        # A log that others are copied from is replaced last.
        for segment in sorted(changed, key=lambda each: self._path(each).name == _log_name(each)):
            self._plan_log(segment)
        for segment in changed:
            self._plan_indexes(segment)
        self._plan_removals()
        like = self._path(self.recovered.segments[0])
        for name, data in self.recovered.written.items():
            if name == LEADER_EPOCH_CHECKPOINT or name.endswith(PRODUCER_SNAPSHOT_SUFFIX):
                self.repair.plan_file(name, like, data, Inline(data), "the log end offset changes")

    def _end_offset(self, base_offset: int) -> int | None:
        """Return where a segment ended before the repair; None if it is unknown."""
        log = self.repair.log
        following = {each.base_offset: each.next_base_offset for each in log.segments}
        try:
            return following.get(base_offset) or log.end_offset()
        except CorruptionError:
            return None

    def _path(self, segment: RecoveredSegment) -> Path:
        """Return the file that contains a log's bytes."""
        name = _log_name(segment)
        return self.path / self.sources.get(name, name)

    def _plan_log(self, segment: RecoveredSegment) -> None:
        name, path = _log_name(segment), self._path(segment)
        if segment.cut_bytes:
            self.repair.record_removed(
                path.name, segment.valid_bytes, segment.size, segment.next_offset,
                self._end_offset(segment.base_offset), "truncated",
            )
        content: Content
        if (copied := self.recovered.copied.get(name)) is not None:
            content, why = ByteRange(path.name, copied.start, copied.end), f"part of {path.name}"
        elif path.name != name:
            content = ByteRange(path.name, 0, segment.valid_bytes)
            why = f"{path.name} replaces the original segments"
        else:
            content = Prefix(segment.valid_bytes)
            why = f"a broker of {self.version} truncates it here: {segment.reason}"
        self.repair.plan_log(name, path, content, why)

    def _plan_indexes(self, segment: RecoveredSegment) -> None:
        """Plan the indexes of a changed log."""
        why = f"{_log_name(segment)} is changed"
        for suffix in INDEX_SUFFIXES:
            name = segment_file_name(segment.base_offset, suffix)
            data = self.recovered.written.get(name)
            if data is not None:
                is_rebuilt = segment.is_recovered and suffix != TRANSACTION_INDEX_SUFFIX
                content = self.rebuilt if is_rebuilt else Inline(data)
                self.repair.plan_file(name, self._path(segment), data, content, why)
            elif name in self.sources:
                path = self.path / self.sources[name]
                self.repair.plan_log(name, path, ByteRange(path.name, 0, path.stat().st_size), why)

    def _plan_removals(self) -> None:
        replaced = [
            range(segment.base_offset, segment.next_offset)
            for segment in self.recovered.segments
            if _log_name(segment) in self.sources
        ]
        for name, (reason, is_leftover) in self.recovered.deleted.items():
            file = parse_segment_file(name)
            if file is None or is_leftover:
                continue
            if is_log(name) and not any(file.base_offset in offsets for offsets in replaced):
                size = (self.path / name).stat().st_size
                end_offset = self._end_offset(file.base_offset)
                self.repair.record_removed(name, 0, size, file.base_offset, end_offset, reason)
            if not self.repair.has_change(name):
                self.repair.plan_removal(name, reason)
        for old, new in self.recovered.renamed.items():
            self.repair.plan_removal(old, f"renamed to {new}")


def _log_name(segment: RecoveredSegment) -> str:
    return segment_file_name(segment.base_offset, LOG_SUFFIX)
