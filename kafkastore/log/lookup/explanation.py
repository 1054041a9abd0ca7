"""The way to an answer: which segment, by what, from where; and why the right answer is another."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from kafkastore.formats.entries import OffsetPosition, TimestampAndOffset, TimestampOffset
from kafkastore.log.lookup.broker_segments import broker_segments
from kafkastore.log.lookup.correct_segments import CorrectSegment, correct_segments
from kafkastore.log.lookup.differences import AnySegment, why_different
from kafkastore.log.lookup.kip_33_segments import Kip33Segment, kip_33_segments
from kafkastore.log.lookup.prepared import LookupChoice, starting_offset_of
from kafkastore.log.lookup.rules import CORRECT, KIP_33, broker_rules
from kafkastore.log.lookup.segments_by_time import SMALLEST_TIMESTAMP, SegmentsByTime

if TYPE_CHECKING:
    from kafkastore.log.partition_log import PartitionLog

BY_TIME_INDEX = "time index"
BY_FILE_TIME = "modification time"
BY_MEMORY = "memory of a running broker"
BY_RECOVERY = "time index as recovered"
BY_BATCHES = "headers of its batches"
BY_FALL_THROUGH = "fall-through"

_WARM_SECTION_BYTES = 8192
_TIME_ENTRY_BYTES, _OFFSET_ENTRY_BYTES = 12, 8


@dataclass(frozen=True, slots=True)
class Explanation:
    """How an answer was found.

    Parameters
    ----------
    target_timestamp : int
        What was asked for, ms since 1970.
    rules, isolation : str
        By which rules.
    answer : TimestampAndOffset or None
        What they answer.
    correct : TimestampAndOffset or None
        The right answer.
    base_offset : int or None
        Of the segment that was searched; None: the time led to none.
    chosen_by : str or None
        Why this segment: its "time index", the same "as recovered" by a starting broker, its file's
        "modification time", the "memory of a running broker", the "headers of its batches", or the
        "fall-through" from a segment before it that had no answer.
    largest_timestamp : int or None
        Up to which time the segment counts, ms.
    time_entry : TimestampOffset or None
        The floor entry of its time index; (-1, base offset) where none is early enough.
    time_slots : tuple of int
        The slots of the time index that were looked at, in order.
    offset_entry : OffsetPosition or None
        The floor entry of its offset index; (base offset, 0) where none is small enough.
    offset_slots : tuple of int
        The slots of the offset index that were looked at, in order.
    starting_position : int or None
        Byte position in the log at which the search began.
    batch_position : int or None
        Of the batch that holds the answer.
    bytes_scanned : int
        From there to the end of that batch, or of the segment.
    reason : str or None
        One sentence where the answer is not the right one.
    """

    target_timestamp: int
    rules: str
    isolation: str
    answer: TimestampAndOffset | None
    correct: TimestampAndOffset | None
    base_offset: int | None = None
    chosen_by: str | None = None
    largest_timestamp: int | None = None
    time_entry: TimestampOffset | None = None
    time_slots: tuple[int, ...] = ()
    offset_entry: OffsetPosition | None = None
    offset_slots: tuple[int, ...] = ()
    starting_position: int | None = None
    batch_position: int | None = None
    bytes_scanned: int = 0
    reason: str | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the fields, with named tuples as objects, for `json.dumps`."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {
            name: value._asdict() if hasattr(value, "_asdict") else value
            for name, value in values.items()
        }

    def __str__(self) -> str:
        """Say it in a few lines."""
        return "\n".join(self.lines())

    def lines(self) -> list[str]:
        """Say it line by line."""
        found = [f"{self.rules}: {_shown(self.answer)}"]
        if self.base_offset is None:
            found.append(f"no segment has a time at or after {self.target_timestamp}")
        else:
            found += self._way()
        if self.reason is not None:
            found.append(f"the right answer is {_shown(self.correct)}: {self.reason}")
        return found

    def _way(self) -> list[str]:
        found = [f"segment {self.base_offset}, up to {self.largest_timestamp}, by {self.chosen_by}"]
        for name, entry, slots in (
            ("time index", self.time_entry, self.time_slots),
            ("offset index", self.offset_entry, self.offset_slots),
        ):
            if entry is not None:
                looked = f", after slots {_listed(slots)}" if slots else ""
                found.append(f"{name}: entry {tuple(entry)}{looked}")
        where = (
            "to its end" if self.batch_position is None
            else f"to the end of the batch at byte {self.batch_position}"
        )
        found.append(
            f"log: from byte {self.starting_position} {where}, {self.bytes_scanned} bytes"
        )
        return found


def _shown(found: TimestampAndOffset | None) -> str:
    if found is None:
        return "none"
    epoch = "" if found.leader_epoch is None else f", leader epoch {found.leader_epoch}"
    return f"offset {found.offset}, timestamp {found.timestamp}{epoch}"


def _listed(slots: Sequence[int]) -> str:
    return ", ".join(map(str, slots))


def explain(log: PartitionLog, target_timestamp: int, choice: LookupChoice) -> Explanation:
    """Find the offset for a time, and say by which way.

    Parameters
    ----------
    log : PartitionLog
        The partition.
    target_timestamp : int
        ms since 1970, inclusive.
    choice : LookupChoice
        The rules.

    Returns
    -------
    Explanation
        Its answer is that of `PartitionLog.offset_for_timestamp`.

    Raises
    ------
    UnknownRulesError
        If the rules are not known.
    CorruptBatchError
        If bytes on the way break the format.
    """
    answer, correct = (
        log.offset_for_timestamp(
            target_timestamp, rules, isolation=choice.isolation, indexes=choice.indexes
        )
        for rules in (choice.rules, CORRECT)
    )
    segments = _segments(log, choice)
    first, number = _ways(log, choice, segments, target_timestamp)
    reason = None
    if (answer and answer.offset) != (correct and correct.offset):
        chosen = None if number is None else segments[number]
        reason = why_different(
            log, target_timestamp, choice, answer=answer, correct=correct, chosen=chosen
        )
    outcome: dict[str, Any] = {
        "target_timestamp": target_timestamp,
        "rules": choice.rules,
        "isolation": choice.isolation,
        "answer": answer,
        "correct": correct,
        "reason": reason,
    }
    if number is None:
        return Explanation(**outcome)
    segment = segments[number]
    return Explanation(
        **outcome,
        base_offset=segment.segment.base_offset,
        chosen_by=BY_FALL_THROUGH if number != first else _chosen_by(segment),
        largest_timestamp=_largest(segment),
        **_way_in(log, segment, target_timestamp, choice),
    )


def _segments(log: PartitionLog, choice: LookupChoice) -> Sequence[AnySegment]:
    broker = broker_rules(choice.rules)
    if broker is not None:
        return broker_segments(log, broker)
    if choice.rules == CORRECT:
        return correct_segments(log, choice.indexes)
    return kip_33_segments(log)


def _ways(
    log: PartitionLog, choice: LookupChoice, segments: Sequence[AnySegment], target: int
) -> tuple[int | None, int | None]:
    """Return which segment the time leads to, and which was searched last."""
    broker = broker_rules(choice.rules)
    if choice.rules == CORRECT:
        target = max(target, 0)
    elif choice.rules == KIP_33:
        # The smallest time itself stands for segments without entries, which are never searched.
        target = max(target, SMALLEST_TIMESTAMP + 1)
    first = SegmentsByTime(segments, 0, falls_through=False).number_for(target)
    if first < 0:
        return None, None
    if broker is not None:
        return first, first
    start = log.log_start_offset
    for number in range(first, len(segments)):
        segment = segments[number]
        if segment.largest_timestamp >= target and segment.search.find(target, start) is not None:
            return first, number
    return first, first


def _chosen_by(segment: AnySegment) -> str:
    if isinstance(segment, CorrectSegment):
        if segment.indexes == "trust" and segment.segment.largest_timestamp_by_index is not None:
            return BY_TIME_INDEX
        return BY_BATCHES
    if isinstance(segment, Kip33Segment):
        return BY_FILE_TIME if segment.segment.time_index is None else BY_TIME_INDEX
    if segment.is_dated_by_file:
        return BY_FILE_TIME
    if segment.state == "recovered":
        return BY_RECOVERY
    return BY_TIME_INDEX if segment.is_dated_by_last_entry else BY_MEMORY


def _largest(segment: AnySegment) -> int:
    if isinstance(segment, Kip33Segment):
        return segment.entries[-1].timestamp
    return segment.largest_timestamp


def _way_in(
    log: PartitionLog, segment: AnySegment, target: int, choice: LookupChoice
) -> dict[str, Any]:
    """Tell how the segment was searched."""
    broker = broker_rules(choice.rules)
    start = log.log_start_offset if broker is None else starting_offset_of(log, broker)
    way: dict[str, Any] = {}
    if isinstance(segment, Kip33Segment):
        floor = segment.floor_entry(target)
        way["time_entry"] = floor
        begin = segment.segment.base_offset if floor is None else floor.offset
        with segment.segment.open_log() as file:
            position = segment.segment.position_before(max(start, begin), file)
        answer = segment.find(target, start)
    elif isinstance(segment, CorrectSegment):
        target = max(target, 0)
        answer, way["time_entry"], way["offset_entry"], position = (
            segment.segment.search_by_time(segment.indexes).trace(target, start)
        )
    else:
        answer = segment.search.find(target, start)
        way["time_entry"], way["offset_entry"] = segment.floor_entries(target, start)
        position = way["offset_entry"].position
        times, offsets = segment.keys
        warm = broker is not None and broker.indexes_have_warm_section
        way["time_slots"] = slots_looked_at(times, target, _warm(warm, _TIME_ENTRY_BYTES))
        way["offset_slots"] = slots_looked_at(
            offsets, max(way["time_entry"].offset, start), _warm(warm, _OFFSET_ENTRY_BYTES)
        )
    way["starting_position"] = position
    way["bytes_scanned"] = max(segment.segment.size - position, 0)
    if answer is not None:
        batch = segment.segment.translate_offset(answer.offset)
        if batch is not None:
            way["batch_position"] = batch.position
            way["bytes_scanned"] = batch.position + batch.size - position
    return way


def _warm(has_warm_section: bool, entry_bytes: int) -> int | None:
    return _WARM_SECTION_BYTES // entry_bytes if has_warm_section else None


def slots_looked_at(
    keys: np.ndarray[Any, np.dtype[np.int64]], target: int, warm_entries: int | None
) -> tuple[int, ...]:
    """Return the slots that a broker's search of an index looks at, in order.

    Parameters
    ----------
    keys : numpy.ndarray of int64
        What is searched: all timestamps, or all offsets.
    target : int
        What for.
    warm_entries : int or None
        How many of the last entries are searched first; None: there is no such section.

    Returns
    -------
    tuple of int
        A slot that is looked at again is there again.

    Notes
    -----
    Source: Kafka 2.4.0 ``AbstractIndex.indexSlotRangeFor``.
    """
    slots: list[int] = []

    def is_below(slot: int, *, or_equal: bool = False) -> bool:
        slots.append(slot)
        return bool(keys[slot] <= target) if or_equal else bool(keys[slot] < target)

    if not len(keys):
        return ()
    low, high = 0, len(keys) - 1
    if warm_entries is not None:
        hot = max(0, high - warm_entries)
        if is_below(hot):
            low = hot
        else:
            high = hot
    if low == 0 and not is_below(0, or_equal=True):
        return tuple(slots)
    while low < high:
        middle = (low + high + 1) // 2
        if is_below(middle, or_equal=True):
            low = middle
            if keys[middle] == target:
                break
        else:
            high = middle - 1
    return tuple(slots)
