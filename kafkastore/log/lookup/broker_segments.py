"""A segment as the broker in question has it in memory.

Which state of a broker is meant depends on the log directory:

==================================  ==============================================================
beside a clean-shutdown marker      the one that starts on these files: the indexes are loaded as
                                    they are, zero padding counts as entries, a missing time index
                                    as empty
without it, up to the recovery      the same
point
without it, from there on, and the  the one that starts and recovers: both indexes are made anew,
active segment                      and are right
a partition directory by itself     the one that was running: no padding, of the active segment
                                    the true maximum
==================================  ==============================================================

Without an offset index a segment is recovered in every state; before 2.3, with an index, too, that
can't be right.

Source: Kafka 2.4.0 ``Log.fetchOffsetByTimestamp``, ``Log.loadSegmentFiles``, ``Log.recoverLog``,
``LogSegment.findOffsetByTimestamp``, ``LogSegment.largestTimestamp``.
"""
from __future__ import annotations

import os
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kafkastore.caching import cached_property
from kafkastore.formats.entries import OffsetPosition, TimestampOffset
from kafkastore.formats.indexes import offset_index, time_index
from kafkastore.formats.record_batch import first_record_from
from kafkastore.log.log_loader import are_indexes_accepted
from kafkastore.segment.index_file import OffsetIndex, TimeIndex
from kafkastore.segment.log_file import BatchRun
from kafkastore.segment.log_segment import LogSegment
from kafkastore.segment.timestamp_search import SegmentSearch
from kafkastore.versions import BrokerRules

if TYPE_CHECKING:
    from kafkastore.log.partition_log import PartitionLog

State = Literal["loaded", "recovered", "running"]

#: Batches whose records a leader does not look at: compressed ones, and those of LogAppendTime.
_NOT_ASSIGNED = 0x07 | 0x08


class IndexEntries(NamedTuple):
    """What a broker has as the entries of a segment's indexes, big-endian."""

    time_index: bytes
    offset_index: bytes
    is_rebuilt: bool = False


class BrokerSegment:
    """A segment with the indexes that the broker has in memory.

    Parameters
    ----------
    segment : LogSegment
        Its files.
    rules : BrokerRules
        Of the broker.
    state : "loaded", "recovered" or "running"
        How the broker came by it.
    past_damage : bool
        Take corrupt bytes for the end of the segment, as the broker does, instead of raising.
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
            rebuilt = segment.rebuilt_indexes()
            return IndexEntries(rebuilt.time_index, rebuilt.offset_index, is_rebuilt=True)
        return IndexEntries(
            self._entry_bytes(segment.time_index), self._entry_bytes(segment.offset_index)
        )

    def _entry_bytes(self, index: OffsetIndex | TimeIndex | None) -> bytes:
        """Return what counts as entries: of a loaded file the padding, too."""
        return b"" if index is None else index.entry_bytes(with_padding=self.state == "loaded")

    def _are_refused(self) -> bool:
        """Whether a broker that looks at indexes when it loads them makes these anew."""
        if self.state == "running" or not self._rules.indexes_checked_on_load:
            return False
        segment = self.segment
        offset_data, time_data = (
            # Odd bytes at the end count by their number.
            b"" if index is None else index.entry_bytes(with_padding=True).ljust(index.size)
            for index in (segment.offset_index, segment.time_index)
        )
        return not are_indexes_accepted(offset_data, time_data, segment.base_offset, self._rules)

    @property
    def _last_entry(self) -> TimestampOffset:
        # Most segments of a store are asked for nothing but this: their indexes are not loaded.
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
        """What ``maxTimestampSoFar`` and ``offsetOfMaxTimestampSoFar`` are; (-1, base): none."""
        largest = last = self._last_entry
        if self.state != "running" or not self.segment.is_active:
            return last
        # A running broker knows more than its index: what was appended since the last entry.
        with self._open_log() as file:
            for run in file.runs(self.position_of(last.offset)):
                highest = int(run.headers["max_timestamp"].argmax())
                timestamp = int(run.headers["max_timestamp"][highest])
                if timestamp > largest.timestamp:
                    largest = TimestampOffset(timestamp, self._offset_of_max(run, highest))
        return largest

    def _offset_of_max(self, run: BatchRun, number: int) -> int:
        """Return the offset that a leader remembers of a batch with the largest timestamp."""
        header = run.headers[number]
        if self._rules.time_index_has_record_offset and not header["attributes"] & _NOT_ASSIGNED:
            found = first_record_from(
                run.batch(number), int(header["position"]), int(header["max_timestamp"]), 0
            )
            if found is not None:
                return found[1]
        return int(header["last_offset"])

    @cached_property
    def _right_largest(self) -> int | None:
        """The largest timestamp, where a recovery would change nothing that matters: none is made.

        A broker that was running has not looked at checksums.
        """
        if self.state != "recovered":
            return None
        checked = self.segment.checked_times
        if checked.error is not None:
            return self.segment.largest_timestamp_by_index
        return checked.largest_timestamp if checked.index_holds else None

    @cached_property
    def _largest_timestamp(self) -> int:
        return self.largest.timestamp if self._right_largest is None else self._right_largest

    @property
    def is_dated_by_file(self) -> bool:
        """Whether the ``.log``'s modification time stands for the largest timestamp."""
        return self._largest_timestamp < 0

    @property
    def is_dated_by_last_entry(self) -> bool:
        """Whether the last entry of the time index has the largest timestamp."""
        return self.largest == self._last_entry

    @cached_property
    def largest_timestamp(self) -> int:
        """What ``largestTimestamp`` says, ms."""
        return self.segment.last_modified_ms if self.is_dated_by_file else self._largest_timestamp

    @property
    def is_padded(self) -> bool:
        """Whether zero padding counts as entries of an index."""
        indexes = (self.segment.time_index, self.segment.offset_index)
        return self.state == "loaded" and not self.entries.is_rebuilt and any(
            index is not None and index.used_entry_count < index.entry_count for index in indexes
        )

    @property
    def keys(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """What the searches compare: the timestamps and the offsets of all slots."""
        base_offset = self.segment.base_offset
        times = time_index.parse(self.entries.time_index, base_offset)
        offsets = offset_index.parse(self.entries.offset_index, base_offset)
        return times["timestamp"], offsets["offset"]

    def floor_entries(
        self, target_timestamp: int, starting_offset: int
    ) -> tuple[TimestampOffset, OffsetPosition]:
        """Return the entries from which the search goes on, right or wrong."""
        warm_section = self._rules.indexes_have_warm_section
        floor = time_index.lookup(
            self.entries.time_index,
            self.segment.base_offset,
            target_timestamp,
            warm_section=warm_section,
        )
        return floor, self._floor_of(max(floor.offset, starting_offset))

    def position_of(self, target_offset: int) -> int:
        """Return the floor entry's byte position, right or wrong."""
        return self._floor_of(target_offset).position

    def _floor_of(self, target_offset: int) -> OffsetPosition:
        return offset_index.lookup(
            self.entries.offset_index,
            self.segment.base_offset,
            target_offset,
            warm_section=self._rules.indexes_have_warm_section,
        )

    @cached_property
    def search(self) -> SegmentSearch:
        """The search from the indexes' entries on."""
        segment = self.segment
        times, offsets = segment.time_index, segment.offset_index
        if self._right_largest is not None and times is not None and offsets is not None:
            return SegmentSearch(
                self._open_log,
                segment.base_offset,
                times.entry_bytes(),
                offsets.entry_bytes(),
                checked=True,
            )
        return SegmentSearch(
            self._open_log,
            segment.base_offset,
            self.entries.time_index,
            self.entries.offset_index,
            warm_section=self._rules.indexes_have_warm_section,
        )


def broker_segments(
    log: PartitionLog, rules: BrokerRules, *, past_damage: bool = False
) -> list[BrokerSegment]:
    """Return the segments of a log as a broker has them.

    Parameters
    ----------
    log : PartitionLog
        The partition.
    rules : BrokerRules
        Of the broker.
    past_damage : bool
        See `BrokerSegment`.
    """
    recovery_point = log.recovery_point or 0

    def state_of(segment: LogSegment) -> State:
        if log.log_dir is None:
            return "running"
        # The segment that holds the recovery point is the first to be recovered.
        ends = segment.next_base_offset
        return "loaded" if log.is_clean or (ends and ends <= recovery_point) else "recovered"

    return [
        BrokerSegment(segment, rules, state_of(segment), past_damage=past_damage)
        for segment in log.segments
    ]
