"""Explain in one sentence why an answer is not the correct one.

A broker with time indexes can fail in three ways: it skips the segment with the correct record, it
stops in a segment without a matching record, or it searches the correct segment and finds another
record. Legacy answers are first offsets of segments, and mostly no matching record.
"""
from __future__ import annotations

from bisect import bisect_right
from operator import attrgetter

from kafkastore.errors import CorruptIndexError, CorruptionError
from kafkastore.formats.indexes.entries import TimestampAndOffset
from kafkastore.formats.state.transactions import is_control
from kafkastore.log.isolation import find_aborted, reads_committed
from kafkastore.log.log_view import LogView
from kafkastore.log.time_text import time_in_text
from kafkastore.lookup.broker import BrokerSegment
from kafkastore.lookup.kip_33 import Kip33Segment
from kafkastore.lookup.prepared import lookup_of
from kafkastore.lookup.rules import LookupChoice
from kafkastore.lookup.segments_by_time import Lookup, SearchStep, SegmentsByTime
from kafkastore.segment.log_segment import LogSegment


def why_different(
    view: LogView,
    target_timestamp: int,
    choice: LookupChoice,
    lookup: Lookup,
    *,
    answer: TimestampAndOffset | None,
    correct: TimestampAndOffset | None,
    step: SearchStep | None,
) -> str:
    """Return why an answer is not the correct one, without a capital or a full stop.

    `step` is the search of the last segment.
    """
    if not isinstance(lookup, SegmentsByTime):
        return _why_by_modification_times(answer, step)
    case = _Case(view, target_timestamp, choice, lookup)
    raw = case.unbounded()
    if raw is not None and (correct is None or raw.offset < correct.offset):
        return case.why_not_a_right_record(raw)
    if correct is None:
        raise AssertionError("two answers that are none are equal")
    if raw is not None and answer is None and raw.offset == correct.offset:
        return f"offset {raw.offset} is not below the last stable offset of this broker"
    holder = case.segment_of(correct.offset)
    if step is None or holder.base_offset < step.segment.base_offset:
        return case.why_skipped(holder)
    if holder.base_offset > step.segment.base_offset:
        return case.why_stopped_in(step)
    return case.why_missed_in(step, correct)


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

    def why_not_a_right_record(self, found: TimestampAndOffset) -> str:
        """Return what is wrong with a record that comes before the correct one."""
        segment = self.segment_of(found.offset)
        place = segment.translate_offset(found.offset)
        if found.offset < self._view.log_start_offset:
            return (
                f"offset {found.offset} is below the log start offset "
                f"{self._view.log_start_offset}, which these brokers do not have"
            )
        if place is not None:
            with segment.open_log() as file:
                headers = next(iter(file.runs(place.position))).headers[:1]
            if is_control(headers)[0]:
                return f"offset {found.offset} is a transaction marker, which consumers do not get"
            if reads_committed(self._choice.isolation):
                if find_aborted(self._view, found.offset, found.offset + 1).of(headers)[0]:
                    return f"offset {found.offset} is of an aborted transaction"
                return f"offset {found.offset} is not below the last stable offset"
        return (
            f"offset {found.offset} has the negative timestamp {found.timestamp}, "
            "which these rules treat like any other time"
        )

    def why_skipped(self, holder: LogSegment) -> str:
        """Return why the segment with the correct record was not searched."""
        name = f"segment {holder.base_offset} is skipped"
        seen = next(
            each
            for each in self._lookup.segments
            if each.segment.base_offset == holder.base_offset
        )
        if not isinstance(seen, BrokerSegment):
            return f"{name}: {self._why_kip_33_skipped(holder)}"
        if seen.is_dated_by_file:
            return (
                f"{name}: {_missing(seen)}, so the broker uses the file's modification time, "
                f"{time_in_text(seen.largest_timestamp)}, which is before the requested time"
            )
        if seen.is_padded:
            return (
                f"{name}: after a clean shutdown, the broker takes the zero padding after the "
                "entries of its time index as an entry of time 0"
            )
        if holder.time_index is not None and holder.time_index.first_disorder() >= 0:
            return (
                f"{name}: its time index is not in order, and the last entry, "
                f"{time_in_text(seen.largest_timestamp)}, is before the requested time"
            )
        return (
            f"{name}: the last entry of its time index, {time_in_text(seen.largest_timestamp)}, is "
            "below the segment's largest timestamp, "
            f"{time_in_text(holder.largest_record_timestamp())}"
        )

    def _why_kip_33_skipped(self, holder: LogSegment) -> str:
        entries = Kip33Segment(holder).entries
        if not entries:
            if holder.time_index is None:
                return "it is active and has no time index"
            return "its time index is empty"
        if holder.time_index is None:
            return (
                f"without a time index its largest time is its modification time, "
                f"{time_in_text(entries[-1].timestamp)}, which is not after the requested time"
            )
        if entries[-1].timestamp == self._target:
            return "the last entry of its time index must be after the requested time, and is equal"
        return (
            f"the last entry of its time index, {time_in_text(entries[-1].timestamp)}, is not "
            "after the requested time"
        )

    def why_stopped_in(self, step: SearchStep) -> str:
        """Return why the search of a segment found no record."""
        chosen, segment = step.by, step.segment
        name = (
            f"segment {segment.base_offset} has no matching record, and the broker does not search "
            "the next segment"
        )
        if isinstance(chosen, BrokerSegment) and chosen.is_dated_by_file:
            return (
                f"{name}: {_missing(chosen)}, so it is chosen by the file's modification "
                f"time, {time_in_text(chosen.largest_timestamp)}"
            )
        stated = segment.largest_record_timestamp()
        if stated is None:
            return f"{name}: its time index has an entry, but none of its records has a timestamp"
        if stated < self._target:
            return (
                f"{name}: its time index has {time_in_text(step.largest_timestamp)}, which is "
                f"later than any of its records, {time_in_text(stated)} at most"
            )
        start = self._lookup.starting_offset
        try:
            with segment.open_log() as file:
                before = file.search_for_timestamp(self._target, 0, segment.base_offset)
                after_start = file.search_for_timestamp(self._target, 0, start)
        except CorruptionError as error:
            return f"{name}: {error}"
        if before is None:
            return (
                f"{name}: compaction removed that record, but its batch keeps its old largest "
                f"timestamp, {time_in_text(stated)}"
            )
        if after_start is None:
            return (
                f"{name}: the log start offset {start} is inside the segment, after its matching "
                "records"
            )
        return f"{name}: {_why_positioned_after(step)}"

    def why_missed_in(self, step: SearchStep, correct: TimestampAndOffset) -> str:
        """Return why the correct record was not found in its own segment."""
        return (
            f"segment {step.segment.base_offset} holds the record at offset {correct.offset}, "
            f"and {_why_positioned_after(step)}"
        )


def _why_by_modification_times(answer: TimestampAndOffset | None, step: SearchStep | None) -> str:
    """Return how modification times lead to an answer."""
    if answer is None:
        return "every segment was last modified after the requested time"
    if step is None:
        return "the requested time is not before the broker's clock, so the answer is the log end"
    return (
        f"segment {step.segment.base_offset} is the newest that was last modified at or before the "
        f"requested time, at {time_in_text(step.largest_timestamp)}, and the answer is its first "
        "offset"
    )


def _why_positioned_after(step: SearchStep) -> str:
    """Return why indexes lead beyond a record."""
    chosen, floor, entry = step.by, step.time_entry, step.offset_entry
    if not isinstance(chosen, BrokerSegment):
        return f"its entry {tuple(floor or ())} points beyond it"
    where = f"the search starts after it, at byte {step.starting_position}"
    if chosen.is_padded:
        return f"{where}: the broker takes zero padding as index entries"
    for name, index in (
        ("time index", chosen.segment.time_index),
        ("offset index", chosen.segment.offset_index),
    ):
        try:
            if index is not None and index.first_disorder() >= 0:
                return f"{where}: its {name} is not in order"
        except CorruptIndexError:
            return f"{where}: its {name} can't be read"
    return (
        f"{where}: the entries {tuple(floor or ())} and {tuple(entry or ())} of its indexes do not "
        "match the log"
    )


def _missing(seen: BrokerSegment) -> str:
    """Return why a time index has no timestamp."""
    index = seen.segment.time_index
    if index is None:
        return "its time index is missing"
    return "its time index has no timestamp" if index.entry_count else "its time index is empty"
