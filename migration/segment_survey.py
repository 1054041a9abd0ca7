"""What one segment has and lacks, found by reading it once."""

from __future__ import annotations

import hashlib
import os
import stat
from dataclasses import dataclass
from typing import Literal

from kafkastore.arguments import INT32_MAX
from kafkastore.changes.file_state import FileState, read_state
from kafkastore.errors import KafkaStoreError
from kafkastore.formats.indexes import time_index
from kafkastore.segment.log_segment import LogSegment

# empty: no whole entry.  zeros: nothing but zeros, which a broker counts as entries (0, base
# offset); what a killed broker leaves of an active segment's, and 0.10.1 made for old segments.
TimeIndexKind = Literal["missing", "empty", "zeros", "present"]

LARGEST_RELATIVE_OFFSET = INT32_MAX


@dataclass(frozen=True, slots=True)
class LogStatus:
    """What `stat` says of a ``.log``.

    Parameters
    ----------
    size : int
        Bytes.
    mtime_ns : int
        Last modification, ns since 1970: data here, and never touched.
    mode : int
        Permission bits.
    user, group : int
        The owners' numbers.
    """

    size: int
    mtime_ns: int
    mode: int
    user: int
    group: int

    @classmethod
    def of(cls, status: os.stat_result) -> LogStatus:
        """Take over what matters of a `stat` result."""
        mode = stat.S_IMODE(status.st_mode)
        return cls(status.st_size, status.st_mtime_ns, mode, status.st_uid, status.st_gid)


@dataclass(frozen=True, slots=True)
class Digest:
    """Bytes that were made and not kept.

    Parameters
    ----------
    size : int
        Bytes.
    sha256 : str
        Hexadecimal.
    """

    size: int
    sha256: str

    @classmethod
    def of(cls, data: bytes) -> Digest:
        """Digest some bytes."""
        return cls(len(data), hashlib.sha256(data).hexdigest())


@dataclass(frozen=True, slots=True)
class Scan:
    """What reading a segment's log told.

    Parameters
    ----------
    magics : tuple of int
        Message formats seen, rising.
    batch_count : int
        Batches; messages before format 2.
    valid_bytes : int
        Where the last whole batch ends.
    largest_record_timestamp : int or None
        ms since 1970; None when no record has a timestamp.
    time_index, offset_index : Digest or None
        What a recovering broker would write; None where it was not worked out: without timestamps
        the time index is empty, and an existing offset index is left alone.
    problem : str or None
        Why the log cannot be read to its end; a torn last batch is no problem.
    """

    magics: tuple[int, ...] = ()
    batch_count: int = 0
    valid_bytes: int = 0
    largest_record_timestamp: int | None = None
    time_index: Digest | None = None
    offset_index: Digest | None = None
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class SegmentSurvey:
    """One segment before the migration.

    Parameters
    ----------
    base_offset : int
        As in the file names.
    next_base_offset : int or None
        Base offset of the segment behind it; None for the active one.
    next_offset : int or None
        Offset behind the last record, where the one above does not fit a relative offset.
    log : LogStatus
        The ``.log`` file as it was when the survey looked.
    mtime_ms : int
        When the segment was last appended to: the file's own modification time, or the one given.
    mtime_is_given : bool
        Which of the two.
    time_index : {"missing", "empty", "zeros", "present"}
        What there is of a time index.
    time_index_state : FileState or None
        The existing file, if it is empty or zeros.
    has_offset_index : bool
        Whether the ``.index`` is there.
    is_recovered_by_broker : bool
        Whether the next start of a broker rebuilds the segment: the directory was not closed, and
        the segment lies at or above the recovery point.
    scan : Scan or None
        What reading the log told; None where it was not read, or has a time index of use and no
        damage.
    """

    base_offset: int
    next_base_offset: int | None
    next_offset: int | None
    log: LogStatus
    mtime_ms: int
    mtime_is_given: bool
    time_index: TimeIndexKind
    time_index_state: FileState | None
    has_offset_index: bool
    is_recovered_by_broker: bool
    scan: Scan | None

    @property
    def is_active(self) -> bool:
        """Whether this is the last segment of its log."""
        return self.next_base_offset is None

    @property
    def has_records(self) -> bool:
        """Whether the log holds a batch, as far as is known without reading it."""
        if self.scan is None or self.scan.problem is not None:
            return self.log.size > 0
        return self.scan.batch_count > 0


def survey_segment(
    segment: LogSegment,
    *,
    mtime_ms: int | None = None,
    is_recovered_by_broker: bool = False,
    index_interval_bytes: int = 4096,
    read_log: bool = True,
) -> SegmentSurvey:
    """Look at one segment.

    Parameters
    ----------
    segment : LogSegment
        The segment.
    mtime_ms : int, optional
        When it was last appended to, where the file no longer tells.
    is_recovered_by_broker : bool
        What the directory around it says.
    index_interval_bytes : int
        The topic's ``index.interval.bytes``.
    read_log : bool
        Whether the log is read; one with a time index of use for damage only.

    Returns
    -------
    SegmentSurvey
        A log that cannot be read, or that changes meanwhile, is a `problem` in its scan.
    """
    status = os.stat(segment.log_path)
    kind, state = _time_index(segment)
    has_offset_index = segment.offset_index_path.exists()
    scan = None
    if kind != "present" and read_log:
        scan = _scan(segment, has_offset_index, index_interval_bytes)
        now = os.stat(segment.log_path)
        if (now.st_size, now.st_mtime_ns) != (status.st_size, status.st_mtime_ns):
            scan = Scan(problem=f"{segment.log_path} changes while it is read")
    elif read_log and (problem := _damage(segment)) is not None:
        scan = Scan(problem=problem)
    if kind == "zeros" and state is not None and state.size == time_index.ENTRY_SIZE:
        # (0, base offset) is a true entry where the largest timestamp is 0.
        kind = "present" if scan is not None and scan.largest_record_timestamp == 0 else kind
    following = segment.next_base_offset
    too_far = following is not None and following - segment.base_offset > LARGEST_RELATIVE_OFFSET
    return SegmentSurvey(
        segment.base_offset,
        following,
        segment.next_offset if too_far else None,
        LogStatus.of(status),
        status.st_mtime_ns // 1_000_000 if mtime_ms is None else mtime_ms,
        mtime_ms is not None,
        kind,
        state,
        has_offset_index,
        is_recovered_by_broker,
        scan,
    )


def _time_index(segment: LogSegment) -> tuple[TimeIndexKind, FileState | None]:
    """Look at a segment's time index; the state of a file that is of no use."""
    index = segment.time_index
    if index is None:
        return "missing", None
    if index.used_entry_count and not (
        index.last_entry == (0, segment.base_offset) and segment.largest_record_timestamp() != 0
    ):
        return "present", None
    return ("zeros" if index.entry_count else "empty"), read_state(segment.time_index_path)


def _damage(segment: LogSegment) -> str | None:
    """Read a log that needs no index, with checksums; remembering each would fill the memory."""
    try:
        with segment.open_log() as log:
            for _ in log.runs(verify_crc=True):
                pass
    except (OSError, KafkaStoreError) as error:
        return str(error)
    return None


def _scan(segment: LogSegment, has_offset_index: bool, index_interval_bytes: int) -> Scan:
    """Read a log: all headers, then, if there is something to index, again with checksums.

    The second pass finds the log in the page cache, unless a segment is larger than the memory.
    """
    try:
        summary = segment.summary
        largest = summary.largest_record_timestamp
        of_time = of_offset = None
        problem = None if summary.error is None else str(summary.error)
        if problem is None and (largest is not None or not has_offset_index):
            rebuilt = segment.rebuilt_indexes(index_interval_bytes)
            problem = rebuilt.reason
            of_time = None if largest is None else Digest.of(rebuilt.time_index)
            of_offset = None if has_offset_index else Digest.of(rebuilt.offset_index)
    except (OSError, KafkaStoreError) as error:
        return Scan(problem=str(error))
    return Scan(
        tuple(sorted(summary.magics)),
        summary.batch_count,
        summary.valid_bytes,
        largest,
        of_time,
        of_offset,
        None if problem is None else f"{segment.log_path}: {problem}",
    )
