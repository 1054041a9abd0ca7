"""Check the files of one partition against each other.

Segments are checked in order (`segment_check`). Further checks cover the names in the directory,
the producer snapshots, the leader epochs, the topic id, the checkpoints of the log directory, and
modification times.

Source: Kafka 2.4.0 ``Log.loadSegments``, ``ProducerStateManager``, ``LogManager.loadLog``; 3.9.0
and 4.1 ``LogLoader``, ``PartitionMetadataFile``, ``LogManager.isStrayKraftReplica``.
"""

from __future__ import annotations

import errno
import hashlib
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from kafkastore.checks.bounds_check import check_bounds
from kafkastore.checks.epoch_check import EpochCheck
from kafkastore.checks.findings import Finding, FindingKind, no_file
from kafkastore.checks.name_check import check_names, check_swaps, check_topic_id
from kafkastore.checks.segment_check import SegmentCheck
from kafkastore.checks.snapshot_check import SnapshotCheck
from kafkastore.checks.time_check import TimeCheck
from kafkastore.errors import KafkaStoreError, NotAFileError, SegmentGoneError
from kafkastore.formats.state.file_names import (
    DELETED_SUFFIX,
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    TIME_INDEX_SUFFIX,
    TopicPartition,
    parse_segment_file,
    segment_file_name,
)
from kafkastore.paths import to_path
from kafkastore.segment.log_segment import LogSegment
from kafkastore.store.partition_log import PartitionLog

#: Limit of checks of a segment whose files change during the check.
_MOST_CHECKS = 5
_NO_PERMISSION = (errno.EACCES, errno.EPERM)
_WHOLE = 1 << 64


@dataclass(slots=True)
class CheckedPartition:
    """The result of checking one partition directory.

    `failures` are the errors that kept files from being opened; all other files were checked.
    `topic_partition` is None if the path is not a partition.
    """

    path: Path
    findings: list[Finding] = field(default_factory=list)
    failures: list[OSError | KafkaStoreError] = field(default_factory=list)
    segments: int = 0
    segments_read: int = 0
    topic_id: str | None = None
    topic_partition: TopicPartition | None = None


def check_partition(
    log: PartitionLog,
    *,
    sample: float = 1.0,
    threads: int = 1,
    is_stopped: Callable[[], bool] = lambda: False,
) -> CheckedPartition:
    """Check all files of a partition, also after one that can't be opened.

    `sample`, above 0 and at most 1, is the share of segments whose logs are read, by `threads`; the
    active segment's always is. Before each segment `is_stopped` is called; True ends the check.
    """
    check = _PartitionCheck(log, sample, threads)
    check.run(is_stopped)
    return check.checked


class _PartitionCheck:
    """The state of a check of one partition."""

    def __init__(self, log: PartitionLog, sample: float, threads: int) -> None:
        self.log = log
        self.sample, self.threads = sample, threads
        self.checked = CheckedPartition(log.path, topic_partition=log.topic_partition)
        self.gaps: list[tuple[int, int]] = []
        self.has_epochs = self.epochs_decrease = False
        self.before: SegmentCheck | None = None
        # Offset after the previous segment; None unless its log was read to its end.
        self.next_offset: int | None = None

    def run(self, is_stopped: Callable[[], bool]) -> None:
        """Run all checks; a check that fails is recorded and the next one runs."""
        try:
            segments = self.log.segments
            self.snapshots = SnapshotCheck(self.log)
        except (OSError, KafkaStoreError) as error:
            self.checked.failures.append(error)
            return
        self._step(check_names(self.log))
        self._step(check_swaps(self.log))
        self._step(self._topic_id())
        self.epochs = EpochCheck(self.log)
        self.times = TimeCheck(self.log, int(time.time() * 1000))
        self.checked.segments = len(segments)
        self._step(self.epochs.read())
        if segments:
            self._step(self.snapshots.below_first_segment(segments[0].base_offset))
        for segment in segments:
            if is_stopped():
                return
            self._step(self._segment(segment))
        self._step(self._whole(segments))

    def _step(self, findings: Iterator[Finding]) -> None:
        """Collect findings until the check ends or fails."""
        try:
            for finding in findings:
                self.checked.findings.append(finding)
        except NotAFileError as error:
            self.checked.findings.append(no_file(error))
        except SegmentGoneError:
            pass  # deleted after it was listed
        except OSError as error:
            if error.errno in _NO_PERMISSION or error.filename is None:
                self.checked.failures.append(error)
            else:
                self.checked.findings.append(_not_opened(error))
        except KafkaStoreError as error:
            self.checked.failures.append(error)

    def _topic_id(self) -> Iterator[Finding]:
        self.checked.topic_id = yield from check_topic_id(self.log)

    def _segment(self, segment: LogSegment) -> Iterator[Finding]:
        """Check one segment, and whether offsets are missing before it."""
        before, expected = self.before, self.next_offset
        self.before = self.next_offset = None  # unknown until this segment is read
        if expected is not None and segment.base_offset > expected:
            self.gaps.append((expected, segment.base_offset))
        reads_log = segment.is_active or _is_chosen(self.log, segment, self.sample)
        check, findings = _check_segment(
            self.log, segment, expected or 0, before if expected is not None else None,
            reads_log=reads_log, threads=self.threads,
        )
        yield from findings
        if check is None:
            return
        self.before = check
        if reads_log:
            self.checked.segments_read += 1
            self.next_offset = max(check.next_offset, segment.base_offset)
            self.has_epochs |= any(epoch >= 0 for epoch, _ in check.epochs)
            self.epochs_decrease |= check.epochs_fall or check.begins_in_smaller_epoch
            if not check.epochs_fall:  # else the checkpoint may be right: keep it
                self.epochs.batches(segment, check.epochs)
        self.times.add(check.segment, check if reads_log else None)
        yield from self.snapshots.after_segment(
            self.next_offset, segment.next_base_offset, check.producers
        )

    def _whole(self, segments: tuple[LogSegment, ...]) -> Iterator[Finding]:
        """Yield the findings that depend on the whole log."""
        yield from self._gaps()
        yield from self.times.findings()
        end = self.next_offset if segments else self.log.start_bound.offset
        yield from self._lost_logs(end)
        yield from self.epochs.mismatch(epochs_decrease=self.epochs_decrease)
        if end is None:
            return
        yield from self.epochs.end(end, has_epochs=self.has_epochs)
        yield from check_bounds(self.log, end)
        producers = None if self.before is None else self.before.producers
        if producers is not None and (transactions := producers.open_transactions):
            producer_id, first_offset = min(transactions.items(), key=lambda each: each[1])
            many = len(transactions)
            yield Finding(
                FindingKind.OPEN_TRANSACTIONS, segments[-1].log_path, None,
                f"{many} {'transactions are' if many > 1 else 'transaction is'} open at the end of "
                f"the log, the oldest of producer {producer_id} since offset {first_offset}",
                "none needed while its producer runs; otherwise kafka-transactions.sh abort",
            )

    def _lost_logs(self, log_end_offset: int | None) -> Iterator[Finding]:
        """Report indexes of segments whose offsets are missing, or follow the log's end.

        Others belong to segments that retention or compaction was deleting.
        """
        files = [parse_segment_file(note.path.name) for note in self.log.leftovers]
        known = [file for file in files if file is not None]
        deleted = {
            file.base_offset
            for file in known
            if file.type_suffix == LOG_SUFFIX and file.temporary == DELETED_SUFFIX
        }
        bases = {
            file.base_offset
            for file in known
            if file.type_suffix in (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX) and not file.temporary
        }
        for base in sorted(bases - deleted):
            is_missing = any(start <= base < end for start, end in self.gaps)
            is_beyond = log_end_offset is not None and base >= log_end_offset
            if is_missing or (is_beyond and self.log.segments):
                yield Finding(
                    FindingKind.LOST_LOG, self.log.path / segment_file_name(base, LOG_SUFFIX), None,
                    f"the segment of offsets from {base} on has an index, and no log",
                    "look for the lost .log, or for another replica, before a broker starts here",
                )

    def _gaps(self) -> Iterator[Finding]:
        """Report offsets missing between segments, in one finding."""
        if not self.gaps:
            return
        start, end = self.gaps[0]
        others = len(self.gaps) - 1
        first = f"offset {start}" if end == start + 1 else f"offsets {start} to {end - 1}"
        more = "" if not others else f" and {others} other range{'s' if others > 1 else ''}"
        verb = "is" if end == start + 1 and not others else "are"
        yield Finding(
            FindingKind.MISSING_OFFSETS, self.log.path, None,
            f"{first}{more} {verb} missing between segments",
            "none needed after compaction or repair; otherwise look for the lost segment",
        )


def _is_chosen(log: PartitionLog, segment: LogSegment, sample: float) -> bool:
    """Return whether a segment is in the sample; the choice is the same in every run.

    It depends on the names of the partition and the segment, not on their location.
    """
    if sample >= 1:
        return True
    name = f"{log.topic_partition}/{segment.log_path.name}".encode()
    digest = hashlib.blake2b(name, digest_size=8).digest()
    return int.from_bytes(digest, "big") < sample * _WHOLE


def _check_segment(
    log: PartitionLog,
    segment: LogSegment,
    next_offset: int,
    before: SegmentCheck | None,
    *,
    reads_log: bool,
    threads: int,
) -> tuple[SegmentCheck | None, list[Finding]]:
    """Check one segment, again if its files changed meanwhile; None if it is gone.

    While a broker rolls, truncates or deletes segments, files contradict each other for a moment.
    """
    for _ in range(_MOST_CHECKS):
        # A new object, so that its index data is released after the check.
        fresh = LogSegment(
            segment.directory, segment.base_offset, segment.next_base_offset, segment.temporary
        )
        states = _states(fresh)
        check = SegmentCheck(
            log, fresh, next_offset, reads_log=reads_log, before=before, threads=threads
        )
        try:
            findings = list(check.findings())
        except SegmentGoneError:
            return None, []
        if not findings or states == _states(fresh):
            break
    return check, findings


def _states(segment: LogSegment) -> list[tuple[int, int] | None]:
    """Return size and modification time of a segment's files; None if unknown."""
    found: list[tuple[int, int] | None] = []
    for path in (
        segment.log_path,
        segment.offset_index_path,
        segment.time_index_path,
        segment.transaction_index_path,
    ):
        try:
            status = path.stat()
            found.append((status.st_size, status.st_mtime_ns))
        except OSError:
            found.append(None)
    return found


def _not_opened(error: OSError) -> Finding:
    """Report a file that the operating system can't open."""
    return Finding(
        FindingKind.UNOPENED_FILE, to_path(os.fsdecode(error.filename)), None,
        f"it can't be opened ({error.strerror})",
        "copy the readable data (ddrescue) and work on the copy",
    )
