"""Why an answer is not the right one: the one sentence, found by looking.

A broker goes wrong in one of three ways: it passes over the segment that holds the right record, it
stops in a segment that holds none, or it searches the right segment and finds another record.
"""
from __future__ import annotations

from bisect import bisect_right
from operator import attrgetter
from typing import TYPE_CHECKING

from kafkastore.errors import CorruptIndexError, CorruptionError
from kafkastore.formats.entries import TimestampAndOffset
from kafkastore.formats.transactions import is_control
from kafkastore.log.isolation import find_committed, reads_committed
from kafkastore.log.lookup.broker_segments import BrokerSegment, broker_segments
from kafkastore.log.lookup.correct_segments import CorrectSegment
from kafkastore.log.lookup.kip_33_segments import Kip33Segment
from kafkastore.log.lookup.prepared import LookupChoice, starting_offset_of
from kafkastore.log.lookup.rules import broker_rules
from kafkastore.versions import BrokerRules

if TYPE_CHECKING:
    from kafkastore.log.partition_log import PartitionLog
    from kafkastore.segment.log_segment import LogSegment

AnySegment = BrokerSegment | CorrectSegment | Kip33Segment


def why_different(
    log: PartitionLog,
    target_timestamp: int,
    choice: LookupChoice,
    *,
    answer: TimestampAndOffset | None,
    correct: TimestampAndOffset | None,
    chosen: AnySegment | None,
) -> str:
    """Say why an answer is not the right one.

    Parameters
    ----------
    log : PartitionLog
        The partition.
    target_timestamp : int
        What was asked for.
    choice : LookupChoice
        By which rules.
    answer, correct : TimestampAndOffset or None
        Their answer, and the right one; they differ.
    chosen : BrokerSegment or Kip33Segment or None
        The segment that was searched last.

    Returns
    -------
    str
        A sentence without a capital and a full stop.
    """
    case = _Case(log, target_timestamp, choice)
    raw = case.unbounded()
    if raw is not None and (correct is None or raw.offset < correct.offset):
        return case.why_not_a_right_record(raw)
    if correct is None:
        raise AssertionError("two answers that are none are equal")
    if raw is not None and answer is None and raw.offset == correct.offset:
        return f"offset {raw.offset} is not below what is the last stable offset to this broker"
    holder = case.segment_of(correct.offset)
    if chosen is None or holder.base_offset < chosen.segment.base_offset:
        return case.why_passed_over(holder)
    if holder.base_offset > chosen.segment.base_offset:
        return case.why_stopped_in(chosen)
    return case.why_missed_in(chosen, correct)


class _Case:
    """One time, by one set of rules."""

    def __init__(self, log: PartitionLog, target: int, choice: LookupChoice) -> None:
        self._log = log
        self._target = target
        self._choice = choice
        self._broker: BrokerRules | None = broker_rules(choice.rules)

    def unbounded(self) -> TimestampAndOffset | None:
        """Return the rules' answer before any bound."""
        return self._log.offset_for_timestamp(self._target, self._choice.rules)

    def segment_of(self, offset: int) -> LogSegment:
        """Return the segment that holds an offset."""
        segments = self._log.segments
        return segments[bisect_right(segments, offset, key=attrgetter("base_offset")) - 1]

    def why_not_a_right_record(self, found: TimestampAndOffset) -> str:
        """Say what is wrong with a record that comes before the right one."""
        segment = self.segment_of(found.offset)
        place = segment.translate_offset(found.offset)
        if found.offset < self._log.log_start_offset:
            return (
                f"offset {found.offset} lies before the log start offset "
                f"{self._log.log_start_offset}, of which these brokers know nothing"
            )
        if place is not None:
            with segment.open_log() as file:
                headers = next(iter(file.runs(place.position))).headers[:1]
            if is_control(headers)[0]:
                return f"offset {found.offset} is a transaction's marker, which no consumer gets"
            if reads_committed(self._choice.isolation):
                end = self._log.log_end_offset
                aborted = find_committed(self._log, self._log.log_start_offset, end).aborted
                if aborted.of(headers)[0]:
                    return f"offset {found.offset} is of an aborted transaction"
                return f"offset {found.offset} is not below the last stable offset"
        return (
            f"offset {found.offset} has the negative timestamp {found.timestamp}, "
            "which is a time like any other to these rules"
        )

    def why_passed_over(self, holder: LogSegment) -> str:
        """Say why the segment with the right record was not searched."""
        name = f"segment {holder.base_offset} is passed over"
        if self._broker is None:
            return f"{name}: {self._why_kip_33_passed_over(holder)}"
        seen = next(
            each
            for each in broker_segments(self._log, self._broker)
            if each.segment.base_offset == holder.base_offset
        )
        if seen.is_dated_by_file:
            return (
                f"{name}: {_missing(seen)}, so that the file's modification time counts, "
                f"{seen.largest_timestamp}, which is before the time"
            )
        if seen.is_padded:
            return (
                f"{name}: the zero padding behind its time index counts as an entry of time 0 "
                "to a broker that closed the log in order"
            )
        if holder.time_index is not None and holder.time_index.first_disorder() >= 0:
            return (
                f"{name}: its time index is not in order, and the last entry, "
                f"{seen.largest_timestamp}, is before the time"
            )
        return (
            f"{name}: the last entry of its time index, {seen.largest_timestamp}, is below the "
            f"segment's largest timestamp, {holder.largest_record_timestamp()}"
        )

    def _why_kip_33_passed_over(self, holder: LogSegment) -> str:
        entries = Kip33Segment(holder).entries
        if not entries:
            if holder.time_index is None:
                return "it is active and has no time index"
            return "its time index is empty"
        if holder.time_index is None:
            return (
                f"without a time index it counts up to its modification time, "
                f"{entries[-1].timestamp}, which is not later than the time"
            )
        if entries[-1].timestamp == self._target:
            return "the last entry of its time index is the time itself, and must be later"
        return (
            f"the last entry of its time index, {entries[-1].timestamp}, is not later than the time"
        )

    def why_stopped_in(self, chosen: AnySegment) -> str:
        """Say why a segment was searched in vain."""
        segment = chosen.segment
        name = f"segment {segment.base_offset} is searched in vain and no other is tried"
        if isinstance(chosen, BrokerSegment) and chosen.is_dated_by_file:
            return (
                f"{name}: {_missing(chosen)}, so that it is chosen by the file's modification "
                f"time, {chosen.largest_timestamp}"
            )
        stated = segment.largest_record_timestamp()
        if stated is None:
            return f"{name}: its time index has an entry, but no record of it has a timestamp"
        if stated < self._target:
            return (
                f"{name}: its time index says {chosen.largest_timestamp}, which is later than any "
                f"of its records, {stated} at most"
            )
        start = self._start
        try:
            with segment.open_log() as file:
                before = file.search_for_timestamp(self._target, 0, segment.base_offset)
                behind = file.search_for_timestamp(self._target, 0, start)
        except CorruptionError as error:
            return f"{name}: {error}"
        if before is None:
            return (
                f"{name}: a batch that compaction left without that record keeps its old largest "
                f"timestamp, {stated}"
            )
        if behind is None:
            return (
                f"{name}: the log start offset {start} lies inside it, behind its records of that "
                "time"
            )
        return f"{name}: {self._astray(chosen)}"

    def why_missed_in(self, chosen: AnySegment, correct: TimestampAndOffset) -> str:
        """Say why the right segment's right record was not found."""
        return (
            f"segment {chosen.segment.base_offset} holds the record at offset {correct.offset}, "
            f"and {self._astray(chosen)}"
        )

    @property
    def _start(self) -> int:
        if self._broker is None:
            return self._log.log_start_offset
        return starting_offset_of(self._log, self._broker)

    def _astray(self, chosen: AnySegment) -> str:
        """Say that indexes lead behind a record, and what is wrong with them."""
        if isinstance(chosen, Kip33Segment):
            return f"its entry {tuple(chosen.floor_entry(self._target) or ())} leads behind it"
        if isinstance(chosen, CorrectSegment):
            raise AssertionError("the right answer differs from no other")
        floor, entry = chosen.floor_entries(self._target, self._start)
        where = f"the search begins behind it, at byte {entry.position}"
        if chosen.is_padded:
            return f"{where}: zero padding counts as entries of its indexes"
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
            f"{where}: the entries {tuple(floor)} and {tuple(entry)} of its indexes do not fit "
            "the log"
        )


def _missing(seen: BrokerSegment) -> str:
    """Say why a segment has no timestamp in its time index."""
    index = seen.segment.time_index
    if index is None:
        return "its time index is missing"
    return "its time index has no timestamp" if index.entry_count else "its time index is empty"
