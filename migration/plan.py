"""Plan the time indexes of a migration: a pure function of the survey.

The new time index of a segment whose time index is missing or contains only zeros:

=========  ===========  ================  ===========  ===========  ========
segment    timestamps   ``auto``          ``rebuild``  ``kip-33``   ``empty``
=========  ===========  ================  ===========  ===========  ========
active     some         rebuilt           rebuilt      empty        empty
active     none         empty             empty        empty        empty
inactive   some         rebuilt           rebuilt      mtime entry  empty
inactive   none         mtime entry       empty        mtime entry  empty
=========  ===========  ================  ===========  ===========  ========

- *rebuilt*: the bytes that a recovering broker writes for the same ``index.interval.bytes``.
- *mtime entry*: one entry, (modification time of the ``.log`` -> offset), as in KIP-33. A segment
  without records, as compaction may leave it, gets an empty file.
- *empty*: a file of 0 bytes, as released brokers create it at their first start. It is not
  preallocated: a broker would count the zeros as entries.

An existing empty time index, as in a directory that a newer broker has opened, is rebuilt by
``auto`` and ``rebuild`` if the records have timestamps, and otherwise not changed. A time index
with entries is never changed, and neither is an existing file that the next start of a broker
rebuilds.

``auto`` and ``rebuild`` also create a missing ``.index`` next to the time index. A broker that
finds no ``.index`` recovers the segment and overwrites the time index. Both modes skip a segment
whose log can't be read to its end: an index up to the damage would hide the records after it.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Literal, NamedTuple

from kafkastore.migration.segment_survey import (
    LARGEST_RELATIVE_OFFSET,
    Digest,
    SegmentSurvey,
)
from kafkastore.migration.survey import PartitionSurvey, Survey

from kafkastore.arguments import check_choice, check_kind
from kafkastore.changes.file_state import FileState
from kafkastore.changes.plan import Content, FileChange, Inline, Plan, Rebuilt, Reliance
from kafkastore.errors import KafkaStoreError
from kafkastore.formats.indexes.entries import TimestampOffset
from kafkastore.formats.indexes.index_format import time_index
from kafkastore.formats.state.file_names import OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX

Mode = Literal["auto", "kip-33", "rebuild", "empty"]
EntryOffset = Literal["next", "first"]
MODES: tuple[Mode, ...] = ("auto", "kip-33", "rebuild", "empty")
ENTRY_OFFSETS: tuple[EntryOffset, ...] = ("next", "first")

#: Modes that build indexes from the records, so that logs must be read.
READING_MODES: tuple[Mode, ...] = ("auto", "rebuild")
_EMPTY = Digest.of(b"")
_FOUND = {
    "missing": "it is missing",
    "empty": "it is empty",
    "zeros": "it is all zeros, which a broker takes for the timestamp 0",
}


class LeftReason(StrEnum):
    """Why a segment without a usable time index gets none."""

    UNREAD = "unread"
    REBUILT_BY_BROKER = "rebuilt-by-broker"
    SWAP = "swap"


class LeftSegment(NamedTuple):
    """A segment without a usable time index that gets none, or with a corrupt log.

    Parameters
    ----------
    path : str
        The ``.log``, relative to the plan's root.
    reason : LeftReason
        The log is corrupt (see `kafkastore.plan_repair`), the next start of a broker rebuilds the
        index in any case, or the log is a ``.swap`` file, which then replaces segments.
    """

    path: str
    reason: LeftReason


class NotReadError(KafkaStoreError, ValueError):
    """The plan needs the logs to be read, and the survey did not read them."""


def plan(survey: Survey, mode: Mode = "auto", *, entry_offset: EntryOffset = "next") -> Plan:
    """Plan the migration of a surveyed directory.

    Parameters
    ----------
    survey : Survey
        The survey; it also has the `index_interval_bytes` of rebuilt indexes.
    mode : {"auto", "kip-33", "rebuild", "empty"}
        Which indexes to create; see the table of this module.
    entry_offset : {"next", "first"}
        The offset of an mtime entry. KIP-33 gives two: the base offset of the next segment (as when
        a segment is rolled), or the segment's first offset (migration plan).

    Returns
    -------
    Plan
        For `kafkastore.apply`. Planning reads no files; the same survey gives the same plan.

    Raises
    ------
    ArgumentValueError
        If `mode` or `entry_offset` is unknown.
    NotReadError
        If `mode` needs the logs to be read, and the survey did not read them.

    Notes
    -----
    Source: KIP-33, "Compatibility, Deprecation, and Migration Plan"; Kafka 2.4.0
    ``Log.loadSegmentFiles``, ``LogSegment.recover``.
    """
    check_kind("survey", survey, Survey)
    check_choice("mode", mode, MODES)
    check_choice("entry_offset", entry_offset, ENTRY_OFFSETS)
    changes = tuple(
        change
        for partition in survey.partitions
        for segment in partition.segments
        for change in _changes(partition, segment, mode, entry_offset, survey.index_interval_bytes)
    )
    return Plan(survey.root, f"migrate ({mode})", changes)


def _changes(
    partition: PartitionSurvey,
    segment: SegmentSurvey,
    mode: Mode,
    entry_offset: EntryOffset,
    index_interval_bytes: int,
) -> list[FileChange]:
    """Plan one segment's time index, and the offset index next to it."""
    if segment.time_index == "present":
        return []
    if mode in READING_MODES and segment.scan is None:
        raise NotReadError(f"mode {mode} needs a survey that has read the logs")
    if _why_left(segment, mode) is not None:
        return []
    if segment.time_index == "empty" and not _is_rebuilt(segment, mode):
        return []
    made = _made(segment, mode, entry_offset, index_interval_bytes)
    reliance = Reliance(partition.path(segment), segment.log.size, segment.log.mtime_ns)
    after = _after(segment, made.digest)
    changes = []
    if segment.time_index_state is None or not after.same_bytes(segment.time_index_state):
        changes.append(
            FileChange(
                partition.path(segment, TIME_INDEX_SUFFIX),
                segment.time_index_state,
                after,
                made.content,
                f"{_FOUND[segment.time_index]}; {made.reason}",
                (reliance,),
            )
        )
    if mode in READING_MODES and segment.scan is not None and segment.scan.offset_index is not None:
        changes.append(
            FileChange(
                partition.path(segment, OFFSET_INDEX_SUFFIX),
                None,
                _after(segment, segment.scan.offset_index, is_new=True),
                Rebuilt(index_interval_bytes),
                "it is missing; a broker would recover the segment and overwrite its time index",
                (reliance,),
            )
        )
    return changes


def left_segments(survey: Survey, mode: Mode = "auto") -> tuple[LeftSegment, ...]:
    """List the segments left without a time index, or with a corrupt log.

    Parameters
    ----------
    survey : Survey
        The survey.
    mode : {"auto", "kip-33", "rebuild", "empty"}
        As for `plan`.

    Returns
    -------
    tuple of LeftSegment
        By partition and base offset. An empty time index is usable if no record has a timestamp.
    """
    found = (
        (partition.path(segment), _why_left(segment, mode))
        for partition in survey.partitions
        for segment in partition.segments
        if segment.time_index != "present" or segment.scan is not None
    )
    return tuple(LeftSegment(path, reason) for path, reason in found if reason is not None)


def _why_left(segment: SegmentSurvey, mode: Mode) -> LeftReason | None:
    """Return why a segment gets no time index; None if it gets or has one."""
    is_read = mode in READING_MODES and segment.scan is not None
    if is_read and segment.scan is not None and segment.scan.problem is not None:
        return LeftReason.UNREAD
    if segment.is_swap:
        return LeftReason.SWAP
    if segment.time_index not in ("missing", "present") and segment.is_recovered_by_broker:
        return LeftReason.REBUILT_BY_BROKER
    return None


class _Made(NamedTuple):
    """The new time index of a segment."""

    content: Content
    digest: Digest
    reason: str


def _made(
    segment: SegmentSurvey, mode: Mode, entry_offset: EntryOffset, index_interval_bytes: int
) -> _Made:
    """Choose a segment's new time index; see the table of this module."""
    if _is_rebuilt(segment, mode):
        assert segment.scan is not None
        assert segment.scan.time_index is not None
        return _Made(
            Rebuilt(index_interval_bytes), segment.scan.time_index, "the records have timestamps"
        )
    if segment.is_active or mode in ("rebuild", "empty"):
        which = "an active segment without timestamps" if mode == "auto" else f"mode {mode}"
        return _Made(Inline(b""), _EMPTY, f"{which}: empty until a broker appends")
    entry = mtime_entry(segment, entry_offset)
    if entry is None:
        why = f"its modification time {segment.mtime_ms} ms is not a timestamp"
        return _Made(Inline(b""), _EMPTY, why if segment.has_records else "it holds no record")
    data = time_index.pack([entry], segment.base_offset)
    why = "no record has a timestamp" if mode == "auto" else f"mode {mode}"
    return _Made(
        Inline(data),
        Digest.of(data),
        f"{why}: one entry, modification time {entry.timestamp} -> offset {entry.offset}",
    )


def mtime_entry(
    segment: SegmentSurvey, entry_offset: EntryOffset = "next"
) -> TimestampOffset | None:
    """Return the one time index entry that KIP-33 gives an inactive segment.

    Parameters
    ----------
    segment : SegmentSurvey
        An inactive segment.
    entry_offset : {"next", "first"}
        The entry's offset: the base offset of the next segment (the last offset of this one if the
        distance exceeds 31 bits), or this segment's base offset.

    Returns
    -------
    TimestampOffset or None
        None if the modification time is not after 1970: such an entry would date the segment no
        better than the file itself, and at 0 would look like padding. None for a segment without
        records: an entry there looks as if a log had been lost.
    """
    if segment.mtime_ms <= 0 or not segment.has_records:
        return None
    offset = segment.base_offset
    if entry_offset == "next":
        candidates = (segment.next_base_offset, (segment.next_offset or 0) - 1)
        fitting = (
            each
            for each in candidates
            if each is not None and 0 <= each - segment.base_offset <= LARGEST_RELATIVE_OFFSET
        )
        offset = next(fitting, segment.base_offset)
    return TimestampOffset(segment.mtime_ms, offset)


def _is_rebuilt(segment: SegmentSurvey, mode: Mode) -> bool:
    """Return whether the time index is built from the records' timestamps."""
    return (
        mode in READING_MODES
        and segment.scan is not None
        and segment.scan.largest_record_timestamp is not None
    )


def _after(segment: SegmentSurvey, digest: Digest, *, is_new: bool = False) -> FileState:
    """Describe a new file, with metadata of the old file or the log."""
    like = segment.log if is_new or segment.time_index_state is None else segment.time_index_state
    return FileState(digest.size, digest.sha256, like.mtime_ns, like.mode, like.user, like.group)
