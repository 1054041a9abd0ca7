"""Explain how an answer was found, and why it is not the correct one."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

from kafkastore.formats.indexes.entries import (
    NO_TIMESTAMP,
    OffsetPosition,
    TimestampAndOffset,
    TimestampOffset,
)
from kafkastore.log.log_view import LogView
from kafkastore.log.time_text import time_in_text
from kafkastore.lookup.differences import DifferenceKind, find_difference
from kafkastore.lookup.prepared import lookup_of
from kafkastore.lookup.remote import RemoteLookup
from kafkastore.lookup.rules import CORRECT, LEGACY, LookupChoice
from kafkastore.lookup.segments_by_time import ChosenBy, Lookup, SearchStep

_CHOSEN_BY = {
    ChosenBy.TIME_INDEX: "time index",
    ChosenBy.MODIFICATION_TIME: "modification time",
    ChosenBy.MEMORY: "memory of a running broker",
    ChosenBy.RECOVERY: "time index as recovered",
    ChosenBy.BATCHES: "headers of its batches",
    ChosenBy.FALL_THROUGH: "fall-through",
}


@dataclass(frozen=True, slots=True)
class Explanation:
    """Explain how an answer was found.

    Parameters
    ----------
    target_timestamp : int
        The requested time, ms since 1970.
    rules, isolation : str
        The rules and the isolation level of the lookup.
    answer : TimestampAndOffset or None
        The answer by these rules.
    correct : TimestampAndOffset or None
        The correct answer.
    base_offset : int or None
        Base offset of the segment that was searched; None if no segment was.
    chosen_by : ChosenBy or None
        Why this segment was searched.
    largest_timestamp : int or None
        The largest time for which the segment is searched, ms since 1970; under ``legacy`` its
        modification time.
    time_entry : TimestampOffset or None
        The floor entry of its time index; (-1, base offset) if no entry is early enough.
    time_slots : tuple of int
        The slots of the time index that were read, in order.
    offset_entry : OffsetPosition or None
        The floor entry of its offset index; (base offset, 0) if no entry is small enough.
    offset_slots : tuple of int
        The slots of the offset index that were read, in order.
    starting_position : int or None
        Byte position in the log at which the search began; None if no record was read.
    batch_position : int or None
        Byte position of the batch that contains the answer.
    bytes_scanned : int
        Bytes from the starting position to the end of that batch, or of the segment.
    difference : DifferenceKind or None
        Why the answer is not the correct one; None if it is.
    reason : str or None
        The same in one sentence, with offsets and times.
    """

    target_timestamp: int
    rules: str
    isolation: str
    answer: TimestampAndOffset | None
    correct: TimestampAndOffset | None
    base_offset: int | None = None
    chosen_by: ChosenBy | None = None
    largest_timestamp: int | None = None
    time_entry: TimestampOffset | None = None
    time_slots: tuple[int, ...] = ()
    offset_entry: OffsetPosition | None = None
    offset_slots: tuple[int, ...] = ()
    starting_position: int | None = None
    batch_position: int | None = None
    bytes_scanned: int = 0
    difference: DifferenceKind | None = None
    reason: str | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the fields as a dict for `json.dumps`, with named tuples as dicts."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {
            name: value._asdict() if hasattr(value, "_asdict") else value
            for name, value in values.items()
        }

    def __str__(self) -> str:
        """Return a text of a few lines."""
        return "\n".join(self.lines())

    def lines(self) -> list[str]:
        """Return the text line by line."""
        found = [f"{self.rules}: {_shown(self.answer)}"]
        if self.base_offset is not None:
            found += self._search_lines()
        elif self.rules != LEGACY:
            found.append(f"no segment has a time at or after {time_in_text(self.target_timestamp)}")
        if self.reason is not None:
            found.append(f"the correct answer is {_shown(self.correct)}: {self.reason}")
        return found

    def _search_lines(self) -> list[str]:
        time = time_in_text(self.largest_timestamp)
        if self.starting_position is None:
            return [f"segment {self.base_offset}, last modified at {time}"]
        by = "" if self.chosen_by is None else f", by {_CHOSEN_BY[self.chosen_by]}"
        found = [f"segment {self.base_offset}, up to {time}{by}"]
        if self.time_entry is None and self.chosen_by == ChosenBy.MODIFICATION_TIME:
            found.append("time index: missing")
        for name, entry, slots in (
            ("time index", self.time_entry, self.time_slots),
            ("offset index", self.offset_entry, self.offset_slots),
        ):
            if entry is not None:
                looked = f", after slots {_listed(slots)}" if slots else ""
                shown = "no earlier entry" if entry[0] == NO_TIMESTAMP else f"entry {tuple(entry)}"
                found.append(f"{name}: {shown}{looked}")
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
    if found.timestamp == NO_TIMESTAMP:
        return f"offset {found.offset}"
    epoch = "" if found.leader_epoch is None else f", leader epoch {found.leader_epoch}"
    return f"offset {found.offset}, {time_in_text(found.timestamp)}{epoch}"


def _listed(slots: Sequence[int]) -> str:
    return ", ".join(map(str, slots))


def explain(
    view: LogView, target_timestamp: int, choice: LookupChoice, lookup: Lookup | None = None
) -> Explanation:
    """Find the offset for a time, and explain how; `lookup` may be prepared."""
    lookup = lookup_of(view, choice) if lookup is None else lookup
    trace: list[SearchStep] = []
    answer = lookup.find(target_timestamp, trace)
    correct = lookup_of(view, choice._replace(rules=CORRECT)).find(target_timestamp)
    # If no searched segment has an answer, the first one explains most.
    step = None
    if trace:
        step = trace[0] if trace[-1].found is None else trace[-1]
    difference = reason = None
    if isinstance(lookup, RemoteLookup):
        lookup = lookup.local
    if (answer and answer.offset) != (correct and correct.offset):
        difference, reason = find_difference(
            view, target_timestamp, choice, lookup,
            answer=answer, correct=correct, step=step, trace=trace,
        )
    outcome: dict[str, Any] = {
        "target_timestamp": target_timestamp,
        "rules": choice.rules,
        "isolation": choice.isolation,
        "answer": answer,
        "correct": correct,
        "difference": difference,
        "reason": reason,
    }
    if step is None:
        return Explanation(**outcome)
    segment = step.segment
    outcome |= {
        "base_offset": segment.base_offset,
        "chosen_by": step.chosen_by,
        "largest_timestamp": step.largest_timestamp,
    }
    if step.starting_position is None:
        return Explanation(**outcome)
    batch = None if step.found is None else segment.translate_offset(step.found.offset)
    end = segment.size if batch is None else batch.position + batch.size
    return Explanation(
        **outcome,
        time_entry=step.time_entry,
        time_slots=step.time_slots,
        offset_entry=step.offset_entry,
        offset_slots=step.offset_slots,
        starting_position=step.starting_position,
        batch_position=None if batch is None else batch.position,
        bytes_scanned=max(end - step.starting_position, 0),
    )
