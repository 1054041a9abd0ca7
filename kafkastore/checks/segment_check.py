"""Check the files of one segment against each other, in one pass over its log.

The pass continues after corrupt or unreadable bytes, to report what a broker would drop there.
`formats.records.batch_sequence` checks batches and index entries; `index_check` and
`transaction_check` report on the indexes.

Source: Kafka 2.4.0 ``LogSegment``, ``FileLogInputStream``.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from typing import NamedTuple

from kafkastore.checks.batch_faults import TRUE_EPOCH_REMEDY, findings_of_faults
from kafkastore.checks.findings import Finding, FindingKind, command
from kafkastore.checks.index_check import OffsetIndexCheck, TimeIndexCheck
from kafkastore.checks.transaction_check import TransactionCheck
from kafkastore.errors import CorruptionError
from kafkastore.formats.records.batch_sequence import BatchFault, BatchSequence
from kafkastore.formats.state.producer_state import ProducerState
from kafkastore.log.parallel.runs_ahead import runs_ahead
from kafkastore.segment.log_file import LogFile
from kafkastore.segment.log_segment import LogSegment
from kafkastore.segment.salvage import (
    has_false_length,
    is_torn_batch,
    largest_offset,
    next_batch,
)
from kafkastore.segment.zero_tail import is_zero_from
from kafkastore.store.partition_log import PartitionLog

#: Up to this many damaged places in a segment are reported one by one.
_MOST_PLACES = 16
_REPAIR = "repair --on-corrupt skip"


class DamagedBytes(NamedTuple):
    """Bytes that are not batches, with the valid batches before and after them."""

    position: int
    end: int
    kind: FindingKind
    reason: str
    batches_before: int
    batches_after: int = 0
    valid_bytes_after: int = 0


#: Why the last segment gets no offset index after a clean shutdown.
KEPT_BY_AN_INDEX = (
    "a broker that starts removes these bytes, because the offset index is missing; with one it "
    "appends after them"
)


def is_recovered_without_index(log: PartitionLog, segment: LogSegment) -> bool:
    """Return whether a start after a clean shutdown recovers the last segment.

    It does if the offset index is missing. A new one would keep bytes after the last batch.
    """
    return log.is_clean and segment.is_active and not os.path.exists(segment.offset_index_path)


class SegmentCheck:
    """The pass over one segment: its log and its indexes.

    Without `reads_log` only file sizes and indexes are checked. `before` is the previous segment's
    finished check, whose producers are carried over; without it, earlier transactions are unknown.
    `threads` read the log.

    | after `findings`    | value                                                                |
    | ------------------- | -------------------------------------------------------------------- |
    | `next_offset`       | after the last complete batch; before, or unread: the previous one's |
    | `largest_timestamp` | ms; -1 if no batch has one; its position is the first such batch's   |
    | `epochs`            | pairs of a leader epoch and its first offset here, both ascending    |
    | `epochs_fall`       | True if a batch has a smaller epoch than an earlier one              |
    | `damages`           | all corrupt places                                                   |
    """

    def __init__(
        self,
        log: PartitionLog,
        segment: LogSegment,
        next_offset: int,
        *,
        reads_log: bool = True,
        before: SegmentCheck | None = None,
        threads: int = 1,
    ) -> None:
        self.log, self.segment = log, segment
        self.next_offset = next_offset
        self.largest_timestamp = -1
        self.position_of_largest_timestamp = 0
        self.epochs: list[tuple[int, int]] = []
        self.epochs_fall = False
        self._reads_log, self._threads = reads_log, threads
        self._epoch_before: int = -1
        known: TransactionCheck | None = None
        if before is not None and before._reads_log:
            known = before._transactions
            self._epoch_before = before.epochs[-1][0] if before.epochs else before._epoch_before
        self._transactions: TransactionCheck = TransactionCheck(segment, known)
        will_be_recovered = self._will_be_recovered()
        self._offset_index = OffsetIndexCheck(segment, will_be_recovered=will_be_recovered)
        self._time_index = TimeIndexCheck(
            segment, will_be_recovered=will_be_recovered, is_clean=log.is_clean
        )
        self.damages: list[DamagedBytes] = []
        self._tail: tuple[int, int] | None = None
        self._wrong_wrappers: list[BatchFault] = []

    @property
    def producers(self) -> ProducerState | None:
        """The producers at the segment's end; None if no batch so far has a producer id."""
        return self._transactions.producers

    @property
    def begins_in_smaller_epoch(self) -> bool:
        """Whether its first leader epoch is below the previous segment's last."""
        return bool(self.epochs) and self.epochs[0][0] < self._epoch_before

    @property
    def _is_truncated_at_start(self) -> bool:
        """Whether a broker's start normally truncates the bytes after the last batch.

        After a clean shutdown too, if the segment is then recovered.
        """
        return self.segment.is_active and (
            not self.log.is_clean or is_recovered_without_index(self.log, self.segment)
        )

    def _will_be_recovered(self) -> bool:
        """Whether a broker rebuilds the indexes at start; zero padding is normal then."""
        if self.log.log_dir is None:
            return self.segment.is_active
        return self.log.is_recovered_at_start(self.segment)

    def findings(self) -> Iterator[Finding]:
        """Yield the findings about the log by position, then about each index.

        Raises NotAFileError if the log is not a regular file, SegmentGoneError if it was deleted
        meanwhile.
        """
        if not self._reads_log:
            yield from self._offset_index.findings(None)
            yield from self._time_index.findings(None)
            return
        segment = self.segment
        batches = BatchSequence(
            segment.base_offset,
            segment.next_base_offset,
            self.next_offset,
            self._offset_index.entries,
            self._time_index.entries,
        )
        with segment.open_as_broker() as file:
            self._read_log(file, batches)
            faults = self._with_first_wrapper(batches.faults, file)
        self.next_offset, self.epochs = batches.next_offset, batches.epochs
        if segment.next_base_offset is not None:  # a batch beyond it is not the next one's fault
            self.next_offset = min(self.next_offset, segment.next_base_offset)
        self.largest_timestamp = batches.largest_timestamp
        self.position_of_largest_timestamp = batches.position_of_largest_timestamp
        self.epochs_fall = any(fault.kind == "epoch-went-back" for fault in batches.faults)
        yield from self._broken_log(batches)
        yield from findings_of_faults(faults, segment)
        yield from self._decreasing_epochs()
        is_torn = self._tail is not None
        yield from self._offset_index.findings(batches, is_torn=is_torn)
        yield from self._time_index.findings(
            batches, is_torn=is_torn, has_damage=bool(self.damages)
        )
        yield from self._transactions.findings(batches)

    def _read_log(self, file: LogFile, batches: BatchSequence) -> None:
        """Read the log, and continue after unreadable bytes."""
        segment = self.segment
        last_offset = largest_offset(segment.base_offset, segment.next_base_offset)
        while True:
            kind, reason = self._read_good(file, batches)
            position = batches.end_position
            if position >= file.size:
                return
            if (
                reason is None
                and self._is_truncated_at_start
                and is_zero_from(file.descriptor, position)
            ):
                return  # preallocated space
            if reason is None and is_torn_batch(file, position, batches.next_offset, last_offset):
                self._tail = position, file.size
                return
            end = next_batch(file, position, batches.next_offset, last_offset)
            if reason is None and end >= file.size:
                is_whole = has_false_length(file, position)
                reason = (
                    "the length of the last batch is wrong" if is_whole
                    else "no batch begins there"
                )
            self.damages.append(
                DamagedBytes(
                    position,
                    end,
                    kind,
                    reason or "a batch extends beyond the end of the file",
                    batches.batch_count,
                )
            )
            batches.skip_to(end, is_end=end >= file.size)
            if end >= file.size:
                self._transactions.skip(last_offset + 1)
                return
            header = file.header_at(end)
            if header is not None:
                self._transactions.skip(int(header["base_offset"]))

    def _with_first_wrapper(self, faults: list[BatchFault], file: LogFile) -> list[BatchFault]:
        """Add wrappers with a wrong offset, and a first one before the segment."""
        kinds = {each.kind for each in faults}
        if self._wrong_wrappers and "out-of-order" not in kinds:
            first = self._wrong_wrappers[0]._replace(batch_count=len(self._wrong_wrappers))
            faults = [first, *faults]
        if "outside-segment" in kinds:
            return faults
        try:
            header = file.header_at(0)
            if header is None or header["base_offset"] >= 0:
                return faults
            first_offset = file.first_offset_at(0)
        except CorruptionError:
            return faults  # found by the pass over all batches
        if first_offset is None or first_offset >= self.segment.base_offset:
            return faults
        last_offset = int(header["last_offset"])
        return [BatchFault("outside-segment", 0, last_offset, first_offset, 1), *faults]

    def _read_good(self, file: LogFile, batches: BatchSequence) -> tuple[FindingKind, str | None]:
        """Read up to the first unreadable batch, or the end; return the reason."""
        kind = FindingKind.CORRUPT_BATCH
        try:
            # After damage, what threads read ahead of the next one would be read for nothing.
            threads = 1 if self.damages else self._threads
            for run in runs_ahead(self.segment, file, batches.end_position, threads):
                for wrong in run.wrong_wrappers(batches.next_offset):
                    last_offset = int(run.headers["last_offset"][wrong.slot])
                    before = wrong.smallest - 1
                    self._wrong_wrappers.append(
                        BatchFault("out-of-order", wrong.position, last_offset, before, 1)
                    )
                count = batches.append(run.headers)
                if batches.has_producers:
                    self._transactions.append(run, count)
                if count < len(run.headers):
                    last_offset = run.headers["last_offset"][count]
                    what = f"checksum of the batch that ends with offset {last_offset} is wrong"
                    return FindingKind.CHECKSUM_MISMATCH, what
        except CorruptionError as error:
            if isinstance(error.__cause__, OSError):
                kind = FindingKind.UNREADABLE_LOG
            return kind, error.reason
        return kind, None

    def _broken_log(self, batches: BatchSequence) -> Iterator[Finding]:
        """Report each corrupt range, its consequences, and the log's tail."""
        damaged_after = sum(each.end - each.position for each in self.damages)
        for number, damage in enumerate(self.damages):
            damaged_after -= damage.end - damage.position
            self.damages[number] = damage._replace(
                batches_after=batches.batch_count - damage.batches_before,
                valid_bytes_after=batches.end_position - damage.end - damaged_after,
            )
        later = len(self.damages) - _MOST_PLACES
        for number, damage in enumerate(self.damages[:_MOST_PLACES], 1):
            has_rest = number == _MOST_PLACES and later > 0
            rest = f"; {later} later ranges are corrupt too" if has_rest else ""
            yield self._damage_finding(damage, rest)
        if self._tail is not None:
            yield self._torn_tail(*self._tail)

    def _damage_finding(self, damage: DamagedBytes, rest: str) -> Finding:
        lost = f"{damage.end - damage.position:,} bytes are lost"
        valid = "no valid batches"
        if damage.batches_after:
            valid = f"{damage.batches_after:,} valid batches of {damage.valid_bytes_after:,} bytes"
        return Finding(
            damage.kind, self.segment.log_path, damage.position,
            f"{damage.reason}; {lost}, {valid} follow{rest}",
            command(_REPAIR, self.segment.directory),
        )

    def _torn_tail(self, valid_bytes: int, size: int) -> Finding:
        if self._is_truncated_at_start:
            kind = FindingKind.INCOMPLETE_LAST_BATCH
            remedy = "none needed for the last segment of a broker that was killed"
        elif self.segment.is_active:
            kind, remedy = FindingKind.BYTES_AFTER_CLEAN_SHUTDOWN, self._repair_of_log_dir()
        else:
            kind = FindingKind.INCOMPLETE_BATCH
            remedy = command(_REPAIR, self.segment.directory)
        what = f"{size - valid_bytes} bytes after the last complete batch"
        return Finding(kind, self.segment.log_path, valid_bytes, what, remedy)

    def _repair_of_log_dir(self) -> str:
        """Return the command that finds the clean-shutdown marker."""
        log = self.log
        topic, number = log.topic_partition
        if not log.is_clean or log.path.name != str(log.topic_partition):
            return command(_REPAIR, log.path)
        which = f"--topic {shlex.quote(topic)} --partition {number}"
        return f"{command(_REPAIR, log.path.parent)} {which}"

    def _decreasing_epochs(self) -> Iterator[Finding]:
        """Report a segment whose first leader epoch is below the previous segment's last."""
        if self.begins_in_smaller_epoch:
            epoch, offset = self.epochs[0]
            yield Finding(
                FindingKind.DECREASING_LEADER_EPOCH, self.segment.log_path, 0,
                f"the leader epoch decreases from {self._epoch_before} to {epoch} at offset "
                f"{offset}",
                TRUE_EPOCH_REMEDY,
            )
