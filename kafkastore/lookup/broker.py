"""Answer lookups as a broker does, with its indexes in memory and its errors.

The log directory determines the state of the broker:

==================================  ==============================================================
with a clean-shutdown marker        a broker that starts on these files: it loads the indexes as
                                    they are; zero padding counts as entries, a missing time index
                                    as empty
without it, up to the recovery      the same
point
without it, from there on, and the  a broker that starts and recovers: both indexes are rebuilt
active segment                      and correct
a partition directory by itself     the broker that was running: no padding; the maximum of the
                                    active segment is correct
==================================  ==============================================================

In every state, a segment without an offset index is recovered; before 2.3, also a segment with an
impossible index.

Source: Kafka 2.4.0 ``Log.fetchOffsetByTimestamp``, ``Log.loadSegmentFiles``, ``Log.recoverLog``,
``LogSegment.findOffsetByTimestamp``, ``LogSegment.largestTimestamp``.
"""
from __future__ import annotations

import os
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kafkastore.caching import cached_property
from kafkastore.formats.indexes.entries import TimestampAndOffset, TimestampOffset
from kafkastore.formats.indexes.index_format import offset_index, time_index
from kafkastore.formats.records.batch_header import CODEC_BITS, LOG_APPEND_TIME_BIT
from kafkastore.formats.records.record_batch import first_record_from
from kafkastore.log.log_view import LogView
from kafkastore.lookup.rules import LookupChoice
from kafkastore.lookup.segments_by_time import (
    NO_END,
    ChosenBy,
    SearchStep,
    SegmentsByTime,
)
from kafkastore.recovery.log_loader import are_indexes_accepted
from kafkastore.segment.index_file import OffsetIndex, TimeIndex
from kafkastore.segment.log_file import BatchRun
from kafkastore.segment.log_segment import LogSegment
from kafkastore.segment.timestamp_search import SegmentSearch
from kafkastore.versions import BrokerRules, rules_of

State = Literal["loaded", "recovered", "running"]

#: Batches whose records a leader does not read: compressed, or with LogAppendTime.
_NOT_ASSIGNED = CODEC_BITS | LOG_APPEND_TIME_BIT


class IndexEntries(NamedTuple):
    """The entries of a segment's indexes in a broker's memory, big-endian."""

    time_index: bytes
    offset_index: bytes
    is_rebuilt: bool = False


class BrokerSegment:
    """A segment with the indexes that the broker has in memory.

    `past_damage`: corrupt bytes end the segment, as in the broker, and do not raise.
    """

    def __init__(
        self, segment: LogSegment, rules: BrokerRules, state: State, *, past_damage: bool = False
    ) -> None:
        self.segment = segment
        self.state = state
        self._rules = rules
        self._open_log = segment.open_as_broker if past_damage else segment.open_log

    @cached_property
    def entries(self) -> IndexEntries:
        """The bytes of both indexes."""
        segment = self.segment
        if self.state == "recovered" or segment.offset_index is None or self._are_refused():
            rebuilt = segment.rebuilt_indexes(rules=self._rules)
            return IndexEntries(rebuilt.time_index, rebuilt.offset_index, is_rebuilt=True)
        return IndexEntries(
            self._entry_bytes(segment.time_index), self._entry_bytes(segment.offset_index)
        )

    def _entry_bytes(self, index: OffsetIndex | TimeIndex | None) -> bytes:
        """Return the bytes that count as entries: in a loaded file also the padding."""
        return b"" if index is None else index.entry_bytes(with_padding=self.state == "loaded")

    def _are_refused(self) -> bool:
        """Return whether a broker that checks indexes when it loads them rebuilds these."""
        if self.state == "running" or not self._rules.indexes_checked_on_load:
            return False
        segment = self.segment
        offset_data, time_data = (
            # Extra bytes at the end only count by their number.
            b"" if index is None else index.entry_bytes(with_padding=True).ljust(index.size)
            for index in (segment.offset_index, segment.time_index)
        )
        return not are_indexes_accepted(offset_data, time_data, segment.base_offset, self._rules)

    @property
    def _last_entry(self) -> TimestampOffset:
        # In most segments only this entry is needed: avoid loading the whole indexes.
        if (
            "entries" not in self.__dict__
            and self.state != "recovered"
            and not self._rules.indexes_checked_on_load
            and os.path.exists(self.segment.offset_index_path)
        ):
            last = self.segment.last_time_entry(with_padding=self.state == "loaded")
            if last is not None:
                return last
        return time_index.last_entry(self.entries.time_index, self.segment.base_offset)

    @cached_property
    def largest(self) -> TimestampOffset:
        """``maxTimestampSoFar``, ``offsetOfMaxTimestampSoFar``; (-1, base offset): none."""
        largest = last = self._last_entry
        if self.state != "running" or not self.segment.is_active:
            return last
        # A running broker also knows the batches appended since the last index entry.
        with self._open_log() as file:
            for run in file.runs(self.position_of(last.offset)):
                highest = int(run.headers["max_timestamp"].argmax())
                timestamp = int(run.headers["max_timestamp"][highest])
                if timestamp > largest.timestamp:
                    largest = TimestampOffset(timestamp, self._offset_of_max(run, highest))
        return largest

    def _offset_of_max(self, run: BatchRun, number: int) -> int:
        """Return the offset that a leader notes for a batch with the largest timestamp."""
        header = run.headers[number]
        if self._rules.time_index_has_record_offset and not header["attributes"] & _NOT_ASSIGNED:
            found = first_record_from(
                run.batch(number), int(header["position"]), int(header["max_timestamp"]), 0
            )
            if found is not None:
                return found[1]
        return int(header["last_offset"])

    @cached_property
    def _largest_if_no_rebuild(self) -> int | None:
        """The largest timestamp, if a recovery would not change the answers; else None.

        It avoids a rebuild. A running broker has not checked checksums.
        """
        if self.state != "recovered":
            return None
        checked = self.segment.index_check
        if checked.error is not None:
            return self.segment.largest_timestamp_by_index
        return checked.largest_timestamp if checked.index_holds else None

    @cached_property
    def _largest_timestamp(self) -> int:
        known = self._largest_if_no_rebuild
        return self.largest.timestamp if known is None else known

    @property
    def is_dated_by_file(self) -> bool:
        """Whether the ``.log``'s modification time replaces the largest timestamp."""
        return self._largest_timestamp < 0

    @cached_property
    def largest_timestamp(self) -> int:
        """The broker's ``largestTimestamp``, ms since 1970."""
        return self.segment.last_modified_ms if self.is_dated_by_file else self._largest_timestamp

    @property
    def is_padded(self) -> bool:
        """Whether zero padding counts as entries of an index."""
        indexes = (self.segment.time_index, self.segment.offset_index)
        return self.state == "loaded" and not self.entries.is_rebuilt and any(
            index is not None and index.used_entry_count < index.entry_count for index in indexes
        )

    def position_of(self, target_offset: int) -> int:
        """Return the byte position in the floor entry, correct or not."""
        return offset_index.lookup(
            self.entries.offset_index,
            self.segment.base_offset,
            target_offset,
            warm_section=self._rules.indexes_have_warm_section,
        ).position

    @cached_property
    def search(self) -> SegmentSearch:
        """The search with the indexes' entries; a valid segment needs no rebuild."""
        segment = self.segment
        times, offsets = segment.time_index, segment.offset_index
        if self._largest_if_no_rebuild is None or times is None or offsets is None:
            return self._search_by_entries
        return SegmentSearch(
            self._open_log,
            segment.base_offset,
            times.entry_bytes(),
            offsets.entry_bytes(),
            checks_entries=True,
        )

    @cached_property
    def _search_by_entries(self) -> SegmentSearch:
        return SegmentSearch(
            self._open_log,
            self.segment.base_offset,
            self.entries.time_index,
            self.entries.offset_index,
            warm_section=self._rules.indexes_have_warm_section,
        )

    def trace(self, target_timestamp: int, starting_offset: int) -> SearchStep:
        """Search with the broker's own entries, and return the steps."""
        traced = self._search_by_entries.trace(target_timestamp, starting_offset)
        return SearchStep(
            self.segment,
            traced.answer,
            self._chosen_by,
            self.largest_timestamp,
            traced.starting_position,
            None if self.segment.time_index is None else traced.time_entry,
            traced.offset_entry,
            traced.time_slots,
            traced.offset_slots,
            by=self,
        )

    @property
    def _chosen_by(self) -> ChosenBy:
        if self.is_dated_by_file:
            return ChosenBy.MODIFICATION_TIME
        if self.state == "recovered":
            return ChosenBy.RECOVERY
        has_last_entry = self.largest == self._last_entry
        return ChosenBy.TIME_INDEX if has_last_entry else ChosenBy.MEMORY


class _SegmentsWithoutEpochs(SegmentsByTime):
    """The segments of brokers whose answers have no leader epoch."""

    def find(
        self, target_timestamp: int, trace: list[SearchStep] | None = None
    ) -> TimestampAndOffset | None:
        """Find the offset for a time."""
        found = super().find(target_timestamp, trace)
        return None if found is None else TimestampAndOffset(found.timestamp, found.offset)

    def find_many(self, target_timestamps: ArrayLike) -> NDArray[np.void]:
        """Find the offsets for many times."""
        answers = super().find_many(target_timestamps)
        answers["leader_epoch"] = -1
        return answers


def prepare(view: LogView, choice: LookupChoice, end_offset: int) -> SegmentsByTime:
    """Prepare a broker's search; no segment is read yet.

    Only some broker versions limit found offsets to `end_offset`.
    """
    rules = rules_of(choice.rules)
    kind = SegmentsByTime if rules.lookups_return_leader_epochs else _SegmentsWithoutEpochs
    return kind(
        broker_segments(view, rules, past_damage=choice.past_damage),
        starting_offset_of(view, rules),
        falls_through=False,
        end_offset=end_offset if rules.found_offsets_are_below_the_bound else NO_END,
    )


def starting_offset_of(view: LogView, rules: BrokerRules) -> int:
    """Return the first offset that a broker can find: its log start offset, if any."""
    if rules.log_may_start_in_remote_storage:
        return view.log_start_offset
    if rules.has_log_start_offset:
        return view.local_log_start_offset
    return view.segments[0].base_offset if view.segments else 0


def broker_segments(
    view: LogView, rules: BrokerRules, *, past_damage: bool = False
) -> list[BrokerSegment]:
    """Return the segments of a log as a broker has them."""

    def state_of(segment: LogSegment) -> State:
        if view.log_dir is None:
            return "running"
        return "recovered" if view.is_recovered_at_start(segment) else "loaded"

    return [
        BrokerSegment(segment, rules, state_of(segment), past_damage=past_damage)
        for segment in view.segments
    ]
