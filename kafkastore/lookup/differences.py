"""Explain why an answer is not the correct one: a kind and one sentence.

A broker with time indexes can fail in three ways: it skips the segment with the correct record, it
stops in a segment without a matching record, or it searches the correct segment and finds another
record. Legacy answers are first offsets of segments, and mostly no matching record.
"""
from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from enum import StrEnum
from operator import attrgetter
from typing import NamedTuple

from kafkastore.errors import CorruptIndexError, CorruptionError
from kafkastore.formats.indexes.entries import TimestampAndOffset
from kafkastore.formats.records.batch_header import is_control
from kafkastore.log.isolation import find_aborted, reads_committed
from kafkastore.log.log_view import LogView
from kafkastore.log.time_text import time_in_text
from kafkastore.lookup.broker import BrokerSegment
from kafkastore.lookup.kip_33 import Kip33Segment
from kafkastore.lookup.prepared import lookup_of
from kafkastore.lookup.rules import LookupChoice
from kafkastore.lookup.segments_by_time import Lookup, SearchStep, SegmentsByTime
from kafkastore.segment.log_segment import LogSegment


class DifferenceKind(StrEnum):
    """Why an answer is not the correct one."""

    CHOSEN_BY_MODIFICATION_TIME = "chosen-by-modification-time"
    """The segment was searched for its file's modification time, and has no matching record."""
    SKIPPED_BY_MODIFICATION_TIME = "skipped-by-modification-time"
    """The segment was not searched, because its file's modification time is too early."""
    NO_TIME_INDEX_ENTRY = "no-time-index-entry"
    """KIP-33 does not search a segment without a time index entry."""
    ZERO_PADDING = "zero-padding"
    """A broker takes the zero padding of an index as entries."""
    UNORDERED_INDEX = "unordered-index"
    """The entries of an index are not in order."""
    UNREADABLE_INDEX = "unreadable-index"
    """An index can't be read."""
    LAST_ENTRY_TOO_EARLY = "last-entry-too-early"
    """The last entry of the time index is earlier than the correct record."""
    LAST_ENTRY_EQUAL = "last-entry-equal"
    """KIP-33 searches only segments whose last entry is after the requested time."""
    LAST_ENTRY_TOO_LATE = "last-entry-too-late"
    """The time index has a later time than any record of the segment."""
    WRONG_INDEX_ENTRY = "wrong-index-entry"
    """An index entry points beyond the correct record."""
    NO_TIMESTAMPS = "no-timestamps"
    """The time index has an entry, but no record of the segment has a timestamp."""
    COMPACTED_BATCH = "compacted-batch"
    """A batch keeps the largest timestamp of a record that compaction removed."""
    DELETED_RECORDS = "deleted-records"
    """The matching records of the segment are below the log start offset."""
    CORRUPT_LOG = "corrupt-log"
    """The segment's log is corrupt."""
    BELOW_LOG_START = "below-log-start"
    """The answer is below the log start offset, which these brokers do not have."""
    TRANSACTION_MARKER = "transaction-marker"
    """The answer is a transaction marker."""
    ABORTED_TRANSACTION = "aborted-transaction"
    """The answer is a record of an aborted transaction."""
    BEYOND_LAST_STABLE_OFFSET = "beyond-last-stable-offset"
    """The record is not below the last stable offset."""
    NEGATIVE_TIMESTAMP = "negative-timestamp"
    """The answer has a negative timestamp."""
    NO_SEGMENT_THAT_OLD = "no-segment-that-old"
    """``legacy``: every segment was last modified after the requested time."""
    LOG_END = "log-end"
    """``legacy``: the time is not before the broker's clock, so the answer is the log end."""
    FIRST_OFFSET = "first-offset"
    """``legacy``: the answer is the first offset of a segment."""


class Difference(NamedTuple):
    """Why an answer is not the correct one; `reason` has no capital and no full stop."""

    kind: DifferenceKind
    reason: str


def find_difference(
    view: LogView,
    target_timestamp: int,
    choice: LookupChoice,
    lookup: Lookup,
    *,
    answer: TimestampAndOffset | None,
    correct: TimestampAndOffset | None,
    step: SearchStep | None,
    trace: Sequence[SearchStep],
) -> Difference:
    """Return why an answer is not the correct one; `step` of `trace` explains most."""
    if not isinstance(lookup, SegmentsByTime):
        return _why_by_modification_times(answer, step)
    case = _Case(view, target_timestamp, choice, lookup)
    raw = case.unbounded()
    if raw is not None and (correct is None or raw.offset < correct.offset):
        return case.why_not_a_right_record(raw)
    if correct is None:
        raise AssertionError("two answers that are none are equal")
    if raw is not None and answer is None and raw.offset == correct.offset:
        return Difference(
            DifferenceKind.BEYOND_LAST_STABLE_OFFSET,
            f"offset {raw.offset} is not below the last stable offset of this broker",
        )
    holder = case.segment_of(correct.offset)
    for each in trace:
        if each.segment.base_offset == holder.base_offset:
            return case.why_missed_in(each, correct)
    if step is None or holder.base_offset < step.segment.base_offset:
        return case.why_skipped(holder)
    return case.why_stopped_in(step)


class _Case:
    """One time, looked up by one set of rules."""

    def __init__(
        self, view: LogView, target: int, choice: LookupChoice, lookup: SegmentsByTime
    ) -> None:
        self._view = view
        self._target = target
        self._choice = choice
        self._lookup = lookup

    def unbounded(self) -> TimestampAndOffset | None:
        """Return the rules' answer before any offset bound applies."""
        return lookup_of(self._view, LookupChoice(self._choice.rules)).find(self._target)

    def segment_of(self, offset: int) -> LogSegment:
        """Return the segment that contains an offset."""
        segments = self._view.segments
        return segments[bisect_right(segments, offset, key=attrgetter("base_offset")) - 1]

    def why_not_a_right_record(self, found: TimestampAndOffset) -> Difference:
        """Return what is wrong with a record that comes before the correct one."""
        segment = self.segment_of(found.offset)
        place = segment.translate_offset(found.offset)
        if found.offset < self._view.log_start_offset:
            return Difference(
                DifferenceKind.BELOW_LOG_START,
                f"offset {found.offset} is below the log start offset "
                f"{self._view.log_start_offset}, which these brokers do not have",
            )
        if place is not None:
            with segment.open_log() as file:
                headers = next(iter(file.runs(place.position))).headers[:1]
            if is_control(headers)[0]:
                return Difference(
                    DifferenceKind.TRANSACTION_MARKER,
                    f"offset {found.offset} is a transaction marker, which consumers do not get",
                )
            if reads_committed(self._choice.isolation):
                if find_aborted(self._view, found.offset, found.offset + 1).of(headers)[0]:
                    return Difference(
                        DifferenceKind.ABORTED_TRANSACTION,
                        f"offset {found.offset} is of an aborted transaction",
                    )
                return Difference(
                    DifferenceKind.BEYOND_LAST_STABLE_OFFSET,
                    f"offset {found.offset} is not below the last stable offset",
                )
        return Difference(
            DifferenceKind.NEGATIVE_TIMESTAMP,
            f"offset {found.offset} has the negative timestamp {found.timestamp}, "
            "which these rules treat like any other time",
        )

    def why_skipped(self, holder: LogSegment) -> Difference:
        """Return why the segment with the correct record was not searched."""
        kind, reason = self._why_skipped(holder)
        return Difference(kind, f"segment {holder.base_offset} is skipped: {reason}")

    def _why_skipped(self, holder: LogSegment) -> Difference:
        seen = next(
            each
            for each in self._lookup.segments
            if each.segment.base_offset == holder.base_offset
        )
        if not isinstance(seen, BrokerSegment):
            return self._why_kip_33_skipped(holder)
        if seen.is_dated_by_file:
            return Difference(
                DifferenceKind.SKIPPED_BY_MODIFICATION_TIME,
                f"{_missing(seen)}, so the broker uses the file's modification time, "
                f"{time_in_text(seen.largest_timestamp)}, which is before the requested time",
            )
        if seen.is_padded:
            return Difference(
                DifferenceKind.ZERO_PADDING,
                "after a clean shutdown, the broker takes the zero padding after the entries of "
                "its time index as an entry of time 0",
            )
        if holder.time_index is not None and holder.time_index.first_disorder() >= 0:
            return Difference(
                DifferenceKind.UNORDERED_INDEX,
                "its time index is not in order, and the last entry, "
                f"{time_in_text(seen.largest_timestamp)}, is before the requested time",
            )
        return Difference(
            DifferenceKind.LAST_ENTRY_TOO_EARLY,
            f"the last entry of its time index, {time_in_text(seen.largest_timestamp)}, is below "
            f"the segment's largest timestamp, {time_in_text(holder.largest_record_timestamp())}",
        )

    def _why_kip_33_skipped(self, holder: LogSegment) -> Difference:
        entries = Kip33Segment(holder).entries
        if not entries:
            missing = "it is active and has no" if holder.time_index is None else "it has an empty"
            return Difference(DifferenceKind.NO_TIME_INDEX_ENTRY, f"{missing} time index")
        last = time_in_text(entries[-1].timestamp)
        if holder.time_index is None:
            return Difference(
                DifferenceKind.SKIPPED_BY_MODIFICATION_TIME,
                f"without a time index its largest time is its modification time, {last}, which "
                "is not after the requested time",
            )
        if entries[-1].timestamp == self._target:
            return Difference(
                DifferenceKind.LAST_ENTRY_EQUAL,
                "the last entry of its time index must be after the requested time, and is equal",
            )
        return Difference(
            DifferenceKind.LAST_ENTRY_TOO_EARLY,
            f"the last entry of its time index, {last}, is not after the requested time",
        )

    def why_stopped_in(self, step: SearchStep) -> Difference:
        """Return why the search of a segment found no record."""
        kind, reason = self._why_stopped_in(step)
        return Difference(
            kind,
            f"segment {step.segment.base_offset} has no matching record, and the broker does not "
            f"search the next segment: {reason}",
        )

    def _why_stopped_in(self, step: SearchStep) -> Difference:
        chosen, segment = step.by, step.segment
        if isinstance(chosen, BrokerSegment) and chosen.is_dated_by_file:
            return Difference(
                DifferenceKind.CHOSEN_BY_MODIFICATION_TIME,
                f"{_missing(chosen)}, so it is chosen by the file's modification time, "
                f"{time_in_text(chosen.largest_timestamp)}",
            )
        stated = segment.largest_record_timestamp()
        if stated is None:
            return Difference(
                DifferenceKind.NO_TIMESTAMPS,
                "its time index has an entry, but none of its records has a timestamp",
            )
        if stated < self._target:
            return Difference(
                DifferenceKind.LAST_ENTRY_TOO_LATE,
                f"its time index has {time_in_text(step.largest_timestamp)}, which is later than "
                f"any of its records, {time_in_text(stated)} at most",
            )
        start = self._lookup.starting_offset
        try:
            with segment.open_log() as file:
                before = file.search_for_timestamp(self._target, 0, segment.base_offset)
                after_start = file.search_for_timestamp(self._target, 0, start)
        except CorruptionError as error:
            return Difference(DifferenceKind.CORRUPT_LOG, str(error))
        if before is None:
            return Difference(
                DifferenceKind.COMPACTED_BATCH,
                "compaction removed that record, but its batch keeps its old largest timestamp, "
                f"{time_in_text(stated)}",
            )
        if after_start is None:
            return Difference(
                DifferenceKind.DELETED_RECORDS,
                f"the log start offset {start} is inside the segment, after its matching records",
            )
        return _why_positioned_after(step)

    def why_missed_in(self, step: SearchStep, correct: TimestampAndOffset) -> Difference:
        """Return why the correct record was not found in its own segment."""
        kind, reason = _why_positioned_after(step)
        return Difference(
            kind,
            f"segment {step.segment.base_offset} holds the record at offset {correct.offset}, and "
            f"{reason}",
        )


def _why_by_modification_times(
    answer: TimestampAndOffset | None, step: SearchStep | None
) -> Difference:
    """Return how modification times lead to an answer."""
    if answer is None:
        return Difference(
            DifferenceKind.NO_SEGMENT_THAT_OLD,
            "every segment was last modified after the requested time",
        )
    if step is None:
        return Difference(
            DifferenceKind.LOG_END,
            "the requested time is not before the broker's clock, so the answer is the log end",
        )
    return Difference(
        DifferenceKind.FIRST_OFFSET,
        f"segment {step.segment.base_offset} is the newest that was last modified at or before the "
        f"requested time, at {time_in_text(step.largest_timestamp)}, and the answer is its first "
        "offset",
    )


def _why_positioned_after(step: SearchStep) -> Difference:
    """Return why indexes lead beyond a record."""
    chosen, floor = step.by, step.time_entry
    if not isinstance(chosen, BrokerSegment):
        return Difference(
            DifferenceKind.WRONG_INDEX_ENTRY, f"its entry {tuple(floor or ())} points beyond it"
        )
    kind, reason = _why_entries_mislead(step, chosen)
    return Difference(
        kind, f"the search starts after it, at byte {step.starting_position}: {reason}"
    )


def _why_entries_mislead(step: SearchStep, chosen: BrokerSegment) -> Difference:
    if chosen.is_padded:
        return Difference(
            DifferenceKind.ZERO_PADDING, "the broker takes zero padding as index entries"
        )
    for name, index in (
        ("time index", chosen.segment.time_index),
        ("offset index", chosen.segment.offset_index),
    ):
        try:
            if index is not None and index.first_disorder() >= 0:
                return Difference(
                    DifferenceKind.UNORDERED_INDEX, f"its {name} is not in order"
                )
        except CorruptIndexError:
            return Difference(DifferenceKind.UNREADABLE_INDEX, f"its {name} can't be read")
    entries = f"{tuple(step.time_entry or ())} and {tuple(step.offset_entry or ())}"
    return Difference(
        DifferenceKind.WRONG_INDEX_ENTRY,
        f"the entries {entries} of its indexes do not match the log",
    )


def _missing(seen: BrokerSegment) -> str:
    """Return why a time index has no timestamp."""
    index = seen.segment.time_index
    if index is None:
        return "its time index is missing"
    return "its time index has no timestamp" if index.entry_count else "its time index is empty"
