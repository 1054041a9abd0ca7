"""Survey one segment, by reading it once."""

from __future__ import annotations

import hashlib
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from kafkastore.arguments import INT32_MAX
from kafkastore.changes.file_state import FileState, read_state
from kafkastore.errors import CorruptionError, KafkaStoreError, NotAFileError, SegmentGoneError
from kafkastore.formats.indexes.index_format import time_index
from kafkastore.segment.log_segment import LogSegment
from kafkastore.segment.recovery import INDEX_INTERVAL_BYTES
from kafkastore.segment.regular_file import stat_regular

# empty: no complete entry. zeros: only zeros, which a broker counts as entries (0, base
# offset); left by a killed broker for the active segment, and by 0.10.1 for old segments.
TimeIndexKind = Literal["missing", "empty", "zeros", "present"]

LARGEST_RELATIVE_OFFSET = INT32_MAX


@dataclass(frozen=True, slots=True)
class LogStatus:
    """The `stat` result of a ``.log``.

    Parameters
    ----------
    size : int
        Bytes.
    mtime_ns : int
        Last modification, ns since 1970; it is data here, and must not change.
    mode : int
        Permission bits.
    user, group : int
        Numeric ids of the owners.
    """

    size: int
    mtime_ns: int
    mode: int
    user: int
    group: int

    @classmethod
    def of(cls, status: os.stat_result) -> LogStatus:
        """Return the status from a `stat` result."""
        mode = stat.S_IMODE(status.st_mode)
        return cls(status.st_size, status.st_mtime_ns, mode, status.st_uid, status.st_gid)


@dataclass(frozen=True, slots=True)
class Digest:
    """The size and digest of bytes that were built and not kept.

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
        """Return the size and digest of some bytes."""
        return cls(len(data), hashlib.sha256(data).hexdigest())


@dataclass(frozen=True, slots=True)
class Scan:
    """The result of reading a segment's log.

    Parameters
    ----------
    magics : tuple of int
        Message formats in the log, ascending.
    batch_count : int
        Number of batches; of messages before format 2.
    valid_bytes : int
        End of the last complete batch, exclusive.
    largest_record_timestamp : int or None
        ms since 1970; None if no record has a timestamp.
    time_index, offset_index : Digest or None
        The files that a recovering broker would write; None if they were not built: without
        timestamps the time index is empty, and an existing offset index is not changed.
    problem : str or None
        Why the log can't be read to its end, without its path; None also for an incomplete last
        batch.
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
        Base offset of the next segment; None for the active one.
    next_offset : int or None
        Offset after the last record, if `next_base_offset` does not fit a relative offset.
    log : LogStatus
        The ``.log`` at the time of the survey.
    mtime_ms : int
        Time of the last append, ms since 1970: the file's modification time, or the one given.
    mtime_is_given : bool
        Whether `mtime_ms` was given.
    time_index : {"missing", "empty", "zeros", "present"}
        State of the time index.
    time_index_state : FileState or None
        The existing file, if it is empty or zeros.
    has_offset_index : bool
        Whether the ``.index`` exists.
    is_recovered_by_broker : bool
        Whether the next start of a broker rebuilds the segment: there was no clean shutdown, and
        the segment is at or above the recovery point.
    scan : Scan or None
        The result of reading the log; None if it was not read, or has a usable time index and no
        damage.
    is_swap : bool
        Whether the log is a ``.swap`` file, which replaces segments at a broker's next start.
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
    is_swap: bool = False

    @property
    def is_active(self) -> bool:
        """Whether this is the last segment of its log."""
        return self.next_base_offset is None

    @property
    def has_records(self) -> bool:
        """Whether the log contains a batch, as far as is known without reading it."""
        if self.scan is None or self.scan.problem is not None:
            return self.log.size > 0
        return self.scan.batch_count > 0


def survey_segment(
    segment: LogSegment,
    *,
    mtime_ms: int | None = None,
    is_recovered_by_broker: bool = False,
    index_interval_bytes: int = INDEX_INTERVAL_BYTES,
    read_log: bool = True,
) -> SegmentSurvey:
    """Survey one segment.

    Parameters
    ----------
    segment : LogSegment
        The segment.
    mtime_ms : int, optional
        Time of the last append, ms since 1970, if the file has lost it.
    is_recovered_by_broker : bool
        As in `SegmentSurvey`; depends on the log directory.
    index_interval_bytes : int
        The topic's ``index.interval.bytes``.
    read_log : bool
        Whether to read the log; with a usable time index, only to find damage.

    Returns
    -------
    SegmentSurvey
        If the log is corrupt, or changes meanwhile, its scan has a `problem`.

    Raises
    ------
    NotAFileError
        If the log or an index is not a regular file.
    SegmentGoneError
        If the log is deleted meanwhile.
    OSError
        If one of them can't be opened.
    """
    status = stat_regular(segment.log_path)
    kind, state = _time_index(segment)
    has_offset_index = _exists(segment.offset_index_path)
    scan = None
    if kind != "present" and read_log:
        scan = _scan(segment, has_offset_index, index_interval_bytes)
        now = os.stat(segment.log_path)
        if (now.st_size, now.st_mtime_ns) != (status.st_size, status.st_mtime_ns):
            scan = Scan(problem="the log changes while it is read")
    elif read_log and (problem := _damage(segment)) is not None:
        scan = Scan(problem=problem)
    if kind == "zeros" and state is not None and state.size == time_index.ENTRY_SIZE:
        # (0, base offset) is a valid entry if the largest timestamp is 0.
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
        bool(segment.temporary),
    )


def _exists(path: Path) -> bool:
    """Return whether a file exists; raise `NotAFileError` if it is not a regular one."""
    try:
        stat_regular(path)
    except FileNotFoundError:
        return False
    return True


def _time_index(segment: LogSegment) -> tuple[TimeIndexKind, FileState | None]:
    """Return the kind of a segment's time index, and the state of an unusable file."""
    index = segment.time_index
    if index is None:
        return "missing", None
    if index.used_entry_count and (
        index.last_entry != (0, segment.base_offset) or _largest_is_zero(segment)
    ):
        return "present", None
    return ("zeros" if index.entry_count else "empty"), read_state(segment.time_index_path)


def _largest_is_zero(segment: LogSegment) -> bool:
    """Return whether 0 is the largest timestamp; False if the log is corrupt."""
    try:
        return segment.largest_record_timestamp() == 0
    except CorruptionError:
        return False


def _damage(segment: LogSegment) -> str | None:
    """Read a log that needs no index, with CRCs; keep nothing of it."""
    try:
        with segment.open_log() as log:
            for _ in log.runs(verify_crc=True):
                pass
    except (NotAFileError, SegmentGoneError):
        raise
    except KafkaStoreError as error:
        return _problem(error)
    return None


def _problem(error: KafkaStoreError) -> str:
    """Return the text of an error in a segment, without the segment's path."""
    if isinstance(error, CorruptionError):
        error = type(error)(error.reason, position=error.position)
    return str(error)


def _scan(segment: LogSegment, has_offset_index: bool, index_interval_bytes: int) -> Scan:
    """Read a log: all headers, and if there is something to index, again with CRCs.

    The second pass reads from the page cache, unless a segment is larger than memory.
    """
    try:
        summary = segment.summary
        largest = summary.largest_record_timestamp
        of_time = of_offset = None
        problem = None if summary.error is None else _problem(summary.error)
        if problem is None and (largest is not None or not has_offset_index):
            rebuilt = segment.rebuilt_indexes(index_interval_bytes)
            problem = rebuilt.reason
            of_time = None if largest is None else Digest.of(rebuilt.time_index)
            of_offset = None if has_offset_index else Digest.of(rebuilt.offset_index)
    except (NotAFileError, SegmentGoneError):
        raise
    except KafkaStoreError as error:
        return Scan(problem=_problem(error))
    return Scan(
        tuple(sorted(summary.magics)),
        summary.batch_count,
        summary.valid_bytes,
        largest,
        of_time,
        of_offset,
        problem,
    )
