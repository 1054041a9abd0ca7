"""Repair damaged logs as a broker does: each ends where that broker's recovery would end it.

As in a broker, ``.swap`` segments first replace the original ones, and a segment whose offsets do
not fit is split.
"""

from __future__ import annotations

from pathlib import Path

from kafkastore.changes.plan import ByteRange, Content, Inline, Prefix, Rebuilt
from kafkastore.checks.mending import Mending
from kafkastore.errors import CorruptBatchError, CorruptCheckpointError, KafkaStoreError
from kafkastore.formats.file_names import (
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    LOG_SUFFIX,
    PRODUCER_SNAPSHOT_SUFFIX,
    SWAP_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    parse_segment_file,
    segment_file_name,
)
from kafkastore.log.directory_files import INDEX_SUFFIXES, LeftOver
from kafkastore.log.recovery import RecoveredLog, RecoveredSegment, recover_log
from kafkastore.versions import rules_of


class NoRecoveryError(KafkaStoreError):
    """A broker of the version does not recover the partition."""


def cut(mending: Mending, version: str) -> None:
    """End the log where a broker's recovery of all of it would end it.

    Plans nothing if the broker would not change any log. Raises NoRecoveryError if the broker would
    not start with this log, or would delete all of it.
    """
    recovered = _recovered(mending, version)
    if any(name.endswith(LOG_SUFFIX) for name in recovered.written):  # a new, empty log
        reasons = [reason for name, reason in recovered.deleted.items() if _is_log(name)]
        if not reasons:
            return  # there was no log at all
        reason = reasons[-1]  # earlier ones are of segments after the truncation
        raise NoRecoveryError(
            f"a broker of {version} deletes all of {mending.log.path}: {reason}; take its line out "
            f"of {LOG_START_OFFSET_CHECKPOINT}, if that is not meant"
        )
    if recovered.cut or recovered.renamed or recovered.copied:
        _Cut(mending, version, recovered).plan()


def _recovered(mending: Mending, version: str) -> RecoveredLog:
    try:
        return recover_log(
            mending.log,
            version,
            index_interval_bytes=mending.index_interval_bytes,
            clean=False,
            recovery_point=0,
        )
    except CorruptCheckpointError as error:
        raise NoRecoveryError(
            f"a broker of {version} does not start on it: {error}; that file is mended first, then "
            "ask once more"
        ) from error
    except (KafkaStoreError, OSError) as error:
        can_keep = isinstance(error, CorruptBatchError)
        way_on = "; --like keep keeps what can be read on both sides" if can_keep else ""
        raise NoRecoveryError(f"a broker of {version} fails on it: {error}{way_on}") from error


def _is_log(name: str) -> bool:
    """Return whether a file is the log of a segment that counts; a ``.swap`` does."""
    file = parse_segment_file(name)
    return (
        file is not None
        and file.type_suffix == LOG_SUFFIX
        and file.temporary in ("", SWAP_SUFFIX)
    )


class _Cut:
    """The changes to a partition that equal those of a recovery."""

    def __init__(self, mending: Mending, version: str, recovered: RecoveredLog) -> None:
        self.mending, self.version, self.recovered = mending, version, recovered
        self.path = mending.log.path
        #: The original names of logs that get new names.
        self.sources = {new: old for old, new in recovered.renamed.items()}
        self.sources |= {name: copied.source for name, copied in recovered.copied.items()}
        has_first_offsets = not rules_of(version).offset_index_has_last_offset
        self.rebuilt = Rebuilt(mending.index_interval_bytes, has_first_offsets)

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
                self.mending.add(name, like, data, Inline(data), "the log ends elsewhere now")

    def _path(self, segment: RecoveredSegment) -> Path:
        """Return the file that contains a log's bytes."""
        name = _log_name(segment)
        return self.path / self.sources.get(name, name)

    def _plan_log(self, segment: RecoveredSegment) -> None:
        name, path = _log_name(segment), self._path(segment)
        if segment.cut_bytes:
            self.mending.tell(
                path.name, segment.valid_bytes, segment.size, segment.next_offset,
                self.mending.log.log_end_offset, "cut off",
            )
        content: Content
        if (copied := self.recovered.copied.get(name)) is not None:
            content, why = ByteRange(path.name, copied.start, copied.end), f"a part of {path.name}"
        elif path.name != name:
            content = ByteRange(path.name, 0, segment.valid_bytes)
            why = f"{path.name} takes the place of what it replaces"
        else:
            content = Prefix(segment.valid_bytes)
            why = f"a broker of {self.version} cuts it here: {segment.reason}"
        self.mending.write(name, path, content, why)

    def _plan_indexes(self, segment: RecoveredSegment) -> None:
        """Plan the indexes of a changed log."""
        why = f"{_log_name(segment)} is changed"
        for suffix in INDEX_SUFFIXES:
            name = segment_file_name(segment.base_offset, suffix)
            data = self.recovered.written.get(name)
            if data is not None:
                is_rebuilt = segment.is_recovered and suffix != TRANSACTION_INDEX_SUFFIX
                content = self.rebuilt if is_rebuilt else Inline(data)
                self.mending.add(name, self._path(segment), data, content, why)
            elif name in self.sources:
                path = self.path / self.sources[name]
                self.mending.write(name, path, ByteRange(path.name, 0, path.stat().st_size), why)

    def _plan_removals(self) -> None:
        replaced = [
            range(segment.base_offset, segment.next_offset)
            for segment in self.recovered.segments
            if _log_name(segment) in self.sources
        ]
        for name, reason in self.recovered.deleted.items():
            file = parse_segment_file(name)
            if file is None or isinstance(reason, LeftOver):
                continue
            if _is_log(name) and not any(file.base_offset in offsets for offsets in replaced):
                size = (self.path / name).stat().st_size
                self.mending.tell(name, 0, size, file.base_offset, file.base_offset, reason)
            if not self.mending.has(name):
                self.mending.remove(name, reason)
        for old, new in self.recovered.renamed.items():
            self.mending.remove(old, f"it is {new} now")


def _log_name(segment: RecoveredSegment) -> str:
    return segment_file_name(segment.base_offset, LOG_SUFFIX)
