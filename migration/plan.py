"""Which time indexes a migration makes, and of what: a pure function of the survey.

What is made where a time index is missing, or holds nothing but zeros:

=========  ===========  ================  ===========  ===========  ========
segment    timestamps   ``auto``          ``rebuild``  ``kip-33``   ``empty``
=========  ===========  ================  ===========  ===========  ========
active     some         rebuilt           rebuilt      empty        empty
active     none         empty             empty        empty        empty
inactive   some         rebuilt           rebuilt      mtime entry  empty
inactive   none         mtime entry       empty        mtime entry  empty
=========  ===========  ================  ===========  ===========  ========

- *rebuilt*: what a recovering broker writes, byte for byte, for the same ``index.interval.bytes``.
- *mtime entry*: one entry, (modification time of the ``.log`` -> offset), as KIP-33 has it; but a
  segment that holds no record at all, which compaction leaves, gets an empty file.
- *empty*: a file of 0 bytes, as shipped brokers make it at their first start.  Never a preallocated
  one: its zeros would count as entries.

A time index that is there but empty, as in a directory that a newer broker has opened, is rebuilt
by ``auto`` and ``rebuild`` if the records have timestamps, and otherwise left alone.  One that has
entries is always left alone, and so is an existing file that the next start of a broker rebuilds.

``auto`` and ``rebuild`` also make a missing ``.index`` beside the time index, for a broker that
finds none recovers the segment and overwrites the time index.  They skip a segment whose log cannot
be read to its end: an index of what lies before the broken place would hide what lies behind it.
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

from kafkastore.arguments import check_kind
from kafkastore.changes.file_state import FileState
from kafkastore.changes.plan import Content, FileChange, Inline, Plan, Rebuilt, Reliance
from kafkastore.errors import KafkaStoreError
from kafkastore.formats.entries import TimestampOffset
from kafkastore.formats.file_names import OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX
from kafkastore.formats.indexes import time_index

Mode = Literal["auto", "kip-33", "rebuild", "empty"]
EntryOffset = Literal["next", "first"]
MODES: tuple[Mode, ...] = ("auto", "kip-33", "rebuild", "empty")
ENTRY_OFFSETS: tuple[EntryOffset, ...] = ("next", "first")

#: Modes that make indexes of the records, so that logs must be read.
READING_MODES: tuple[Mode, ...] = ("auto", "rebuild")
_EMPTY = Digest.of(b"")
_FOUND = {
    "missing": "it is missing",
    "empty": "it is empty",
    "zeros": "it is all zeros, which a broker takes for the timestamp 0",
}


class LeftReason(StrEnum):
    """Why a segment without a time index of use gets none."""

    UNREAD = "the log can't be read to its end"
    REBUILT_BY_BROKER = "the next start of a broker rebuilds it"


class LeftSegment(NamedTuple):
    """A segment that gets no time index although it has none of use, or whose log is damaged.

    Parameters
    ----------
    path : str
        The ``.log``, relative to the plan's root.
    reason : LeftReason
        Why: the log is damaged, which is for `repair`; or the next start of a broker makes the
        index anew, whatever is there.
    """

    path: str
    reason: LeftReason


class UnknownModeError(KafkaStoreError, ValueError):
    """A migration mode, or a choice of entry offset, that does not exist."""


class NotReadError(KafkaStoreError, ValueError):
    """A plan that needs the logs read, from a survey that did not read them."""


def plan(survey: Survey, mode: Mode = "auto", *, entry_offset: EntryOffset = "next") -> Plan:
    """Plan the migration of a surveyed directory.

    Parameters
    ----------
    survey : Survey
        What was found; also the `index_interval_bytes` of rebuilt indexes.
    mode : {"auto", "kip-33", "rebuild", "empty"}
        What is made; see the table of this module.
    entry_offset : {"next", "first"}
        The offset of an mtime entry. KIP-33's two texts disagree: the base offset of the next
        segment (as when a segment is rolled), or the segment's first offset (migration plan).

    Returns
    -------
    Plan
        For `kafkastore.apply`. Planning reads nothing; the same survey gives the same plan.

    Raises
    ------
    UnknownModeError
        If there is no such mode or offset.
    NotReadError
        If `mode` needs the logs read, and the survey did not.

    Notes
    -----
    Source: KIP-33, "Compatibility, Deprecation, and Migration Plan"; Kafka 2.4.0
    ``Log.loadSegmentFiles``, ``LogSegment.recover``.
    """
    check_kind("survey", survey, Survey)
    if mode not in MODES:
        raise UnknownModeError(f"mode {mode!r} is none of {', '.join(MODES)}")
    if entry_offset not in ENTRY_OFFSETS:
        raise UnknownModeError(f"entry offset {entry_offset!r} is neither next nor first")
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
    """Plan one segment: its time index, and the offset index that a broker wants beside it."""
    if segment.time_index == "present":
        return []
    if mode in READING_MODES and segment.scan is None:
        raise NotReadError(f"mode {mode} needs the logs read, and the survey did not read them")
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
    """List the segments that a migration leaves without a time index, or with a damaged log.

    Parameters
    ----------
    survey : Survey
        What was found.
    mode : {"auto", "kip-33", "rebuild", "empty"}
        As for `plan`.

    Returns
    -------
    tuple of LeftSegment
        By partition and base offset. An empty time index is of use where no record has a timestamp.
    """
    found = (
        (partition.path(segment), _why_left(segment, mode))
        for partition in survey.partitions
        for segment in partition.segments
        if segment.time_index != "present" or segment.scan is not None
    )
    return tuple(LeftSegment(path, reason) for path, reason in found if reason is not None)


def _why_left(segment: SegmentSurvey, mode: Mode) -> LeftReason | None:
    """Say why a segment without a time index of use stays so; None if it does not."""
    is_read = mode in READING_MODES and segment.scan is not None
    if is_read and segment.scan is not None and segment.scan.problem is not None:
        return LeftReason.UNREAD
    if segment.time_index not in ("missing", "present") and segment.is_recovered_by_broker:
        return LeftReason.REBUILT_BY_BROKER
    return None


class _Made(NamedTuple):
    """What a time index becomes."""

    content: Content
    digest: Digest
    reason: str


def _made(
    segment: SegmentSurvey, mode: Mode, entry_offset: EntryOffset, index_interval_bytes: int
) -> _Made:
    """Choose what a segment's time index becomes; the table of this module."""
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
        why = f"its modification time {segment.mtime_ms} ms is no timestamp"
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
        The entry's offset: the base offset of the next segment, or, where that does not fit 31
        bits above this one's, the last offset; or this segment's base offset.

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
    """Answer whether the time index is made from the records' timestamps."""
    return (
        mode in READING_MODES
        and segment.scan is not None
        and segment.scan.largest_record_timestamp is not None
    )


def _after(segment: SegmentSurvey, digest: Digest, *, is_new: bool = False) -> FileState:
    """Describe a made file: times, mode and owners are the old file's, or else those of the log."""
    like = segment.log if is_new or segment.time_index_state is None else segment.time_index_state
    return FileState(digest.size, digest.sha256, like.mtime_ns, like.mode, like.user, like.group)
