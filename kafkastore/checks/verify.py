"""Every file of a store checked against the others.

`segment_check` says what is asked of each segment.
"""
from __future__ import annotations

import os
from collections.abc import Callable, Iterator

from kafkastore.checks.findings import Finding, Severity
from kafkastore.checks.segment_check import SegmentCheck, no_file
from kafkastore.errors import NotAFileError, SegmentGoneError
from kafkastore.formats.file_names import (
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    TopicPartition,
)
from kafkastore.log.log_dir import LogDir
from kafkastore.log.log_store import AnyPath, LogStore, open_store
from kafkastore.log.partition_log import PartitionLog
from kafkastore.segment.log_segment import LogSegment

#: How often a segment is checked whose files change while it is.
_MOST_CHECKS = 5

#: What a broker goes on with whose checkpoint was moved away.
_WITHOUT_CHECKPOINT = {
    RECOVERY_POINT_CHECKPOINT: "move it away: a broker then recovers every segment at its start",
    LOG_START_OFFSET_CHECKPOINT: (
        "move it away: logs then begin with their first segment, and deleted records come back"
    ),
    HIGH_WATERMARK_CHECKPOINT: "move it away: replicas then begin at their log start offsets",
}


def verify(
    path: AnyPath | list[AnyPath],
    *,
    failed: Callable[[TopicPartition, OSError], None] | None = None,
) -> Iterator[Finding]:
    """Check every partition of a store.

    Parameters
    ----------
    path : path-like or list of path-like
        Log directories or partition directories.
    failed : callable, optional
        Called where a file of a partition can't be opened, as without permission; the partitions
        behind it are checked then. By default the error ends the check.

    Yields
    ------
    Finding
        In the order of partitions and segments. Nothing is changed.

    Raises
    ------
    NotALogDirectoryError
        If a path is neither.
    OSError
        If a file can't be opened.
    """
    store = open_store(path)
    for log_dir in store.log_dirs:
        yield from _verify_log_dir(log_dir)
    for topic_partition in store.partitions:
        yield from verify_partition(store, topic_partition, failed=failed)


def verify_partition(
    store: LogStore,
    topic_partition: TopicPartition,
    *,
    failed: Callable[[TopicPartition, OSError], None] | None = None,
) -> Iterator[Finding]:
    """Check one partition of a store, in each directory that it lies in.

    Parameters
    ----------
    store : LogStore
    topic_partition : TopicPartition
    failed : callable, optional
        As for `verify`.

    Yields
    ------
    Finding
    """
    copies = store.partitions.copies(topic_partition)
    for log in copies:
        others = ", ".join(str(other.path) for other in copies if other is not log)
        if others:
            yield Finding(
                Severity.WRONG_ANSWERS,
                log.path,
                None,
                f"partition {topic_partition} is once more in {others}",
                "a broker does not start with a partition in two of its log directories",
                "keep the one with the larger log end offset (kafkastore ls), move the other away",
            )
        try:
            yield from verify_log(log)
        except OSError as error:
            if failed is None:
                raise
            failed(topic_partition, error)


def verify_log(log: PartitionLog) -> Iterator[Finding]:
    """Check one partition.

    Parameters
    ----------
    log : PartitionLog

    Yields
    ------
    Finding
    """
    yield from _verify_names(log)
    next_offset = 0
    for segment in log.segments:
        findings, next_offset = _verify_segment(log, segment, next_offset)
        yield from findings


def _verify_segment(
    log: PartitionLog, segment: LogSegment, next_offset: int
) -> tuple[list[Finding], int]:
    """Check one segment, and once more where its files changed meanwhile; return what follows it.

    A broker that rolls, truncates or deletes lets files contradict each other for a moment.
    """
    for _ in range(_MOST_CHECKS):
        before = _states(segment)
        check = SegmentCheck(log, segment, next_offset)
        try:
            findings = list(check.findings())
        except NotAFileError as error:
            return [no_file(error)], next_offset
        except SegmentGoneError as error:
            if os.path.lexists(error.path):
                return [no_file(NotAFileError(error.path, "a link to nothing"))], next_offset
            return [], next_offset  # deleted after it was listed
        if not findings or before == _states(segment):
            break
        segment = LogSegment(
            segment.directory, segment.base_offset, segment.next_base_offset, segment.temporary
        )
    return findings, check.next_offset


def _states(segment: LogSegment) -> list[tuple[int, int] | None]:
    """Return size and modification time of a segment's files; None where there is none."""
    found: list[tuple[int, int] | None] = []
    for path in (segment.log_path, segment.offset_index_path, segment.time_index_path):
        try:
            status = path.stat()
            found.append((status.st_size, status.st_mtime_ns))
        except FileNotFoundError:
            found.append(None)
    return found


def _verify_log_dir(log_dir: LogDir) -> Iterator[Finding]:
    """Find directories that are no partitions, and checkpoints that no broker could read."""
    for skipped in log_dir.skipped:
        yield Finding(
            Severity.STYLE,
            skipped.path,
            None,
            f"not read as a partition: {skipped.reason}",
            "its records, if any, are not seen",
            "none is needed if that is meant",
        )
    for checkpoint in log_dir.damaged_checkpoints:
        error = checkpoint.error
        yield Finding(
            Severity.WRONG_ANSWERS,
            checkpoint.path,
            None if error is None else error.position,
            "" if error is None else error.reason,
            "a broker gives up this log directory, and stops if it is the only one",
            _WITHOUT_CHECKPOINT[checkpoint.path.name],
        )


def _verify_names(log: PartitionLog) -> Iterator[Finding]:
    """Find leftovers, and index files whose segment is gone."""
    for note in log.leftovers:
        yield Finding(
            Severity.STYLE,
            note.path,
            None,
            note.what,
            f"at a broker's next start: {note.at_next_start}",
            "leave it, or move it away; of an index, look for the lost .log first",
        )
