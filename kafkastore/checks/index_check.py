"""Check the offset and the time index of one segment, alone and against the log.

`formats.records.batch_sequence` defines a valid entry, and checks each entry while the log is read.
This module adds the consequences for a broker, and finds zeros in place of entries, entries beyond
the end of the log, and missing files.

Source: Kafka 2.4.0 ``AbstractIndex``, ``OffsetIndex``, ``TimeIndex``, ``LogSegment``.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from kafkastore.caching import cached_property
from kafkastore.checks.findings import Finding, FindingKind, command, no_file
from kafkastore.clock import clock
from kafkastore.errors import CorruptIndexError, NotAFileError
from kafkastore.formats.indexes.index_format import IndexFormat, offset_index, time_index
from kafkastore.formats.records.batch_sequence import BatchSequence
from kafkastore.segment.log_segment import LogSegment
from kafkastore.segment.salvage import begins_batch

#: Above any usual index interval: a larger log should have an offset index entry.
LARGE_WITHOUT_ENTRIES = 1 << 20
#: Clocks differ by less than this.
_DAY_MS = 24 * 60 * 60 * 1000
_MIGRATE = "migrate --in-place"


class _IndexCheck:
    """The common part of both index checks.

    `will_be_recovered`: a broker rebuilds the index at its start, so its padding is not reported.
    """

    _name: ClassVar[Literal["offset_index", "time_index"]]
    _format: ClassVar[IndexFormat[Any]]

    def __init__(self, segment: LogSegment, *, will_be_recovered: bool) -> None:
        self.segment = segment
        self.will_be_recovered = will_be_recovered
        self.path: Path = getattr(segment, f"{self._name}_path")
        self.unreadable: Finding | None = None
        self._index: Any = None
        try:
            self._index = getattr(segment, self._name)
        except NotAFileError as error:
            self.unreadable = no_file(error)
        except CorruptIndexError as error:
            self.unreadable = self._finding(
                FindingKind.UNREADABLE_INDEX if isinstance(error.__cause__, OSError)
                else FindingKind.CORRUPT_INDEX,
                error.position,
                error.reason,
            )

    @cached_property
    def entries(self) -> NDArray[Any]:
        """All entries without zero padding; empty if the file is missing or unreadable."""
        if self._index is None:
            return np.empty(0, self._format.dtype)
        entries: NDArray[Any] = self._index.entries()
        return entries

    def _finding(
        self, kind: FindingKind, position: int | None, what: str, command_name: str = "reindex"
    ) -> Finding:
        """Return a finding about this file."""
        remedy = command(command_name, self.segment.directory)
        return Finding(kind, self.path, position, what, remedy)

    @property
    def _zero_count(self) -> int:
        """The number of zero entries after the last entry."""
        count: int = self._index.entry_count - self._index.used_entry_count
        return count

    def _odd_bytes(self) -> Iterator[Finding]:
        """Report an incomplete entry at the end."""
        size, entry_size = self._index.size, self._format.ENTRY_SIZE
        if size % entry_size:
            yield self._finding(
                FindingKind.INCOMPLETE_INDEX_ENTRY,
                size - size % entry_size,
                f"the size of {size} bytes is not a multiple of the entry size {entry_size}",
            )

    def _first_false(self, slot_by_log: int, beyond_end: NDArray[np.bool_]) -> int:
        """Return the first invalid slot, or -1."""
        slots = [self._index.first_disorder(), slot_by_log]
        if beyond_end.any():
            slots.append(int(np.argmax(beyond_end)))
        return min((slot for slot in slots if slot >= 0), default=-1)

    def _is_left_of_crash(self, *, is_torn: bool) -> bool:
        """Return whether an entry beyond the log's end may be of an incomplete batch."""
        return self.will_be_recovered and is_torn


class OffsetIndexCheck(_IndexCheck):
    """The check of an offset index."""

    _name: ClassVar[Literal["offset_index", "time_index"]] = "offset_index"
    _format = offset_index

    def findings(self, log: BatchSequence | None, *, is_torn: bool = False) -> Iterator[Finding]:
        """Yield the findings; `log` is None if the log was not read.

        `is_torn`: the log's last batch is incomplete.
        """
        if self.unreadable is not None:
            yield self.unreadable
        elif self._index is None:
            what = "the offset index is missing"
            yield self._finding(FindingKind.MISSING_OFFSET_INDEX, None, what)
        else:
            yield from self._odd_bytes()
            yield from self._zeros()
            yield from self._false_entry(log, is_torn=is_torn)

    def _zeros(self) -> Iterator[Finding]:
        if self._zero_count and not self.will_be_recovered:
            yield self._finding(
                FindingKind.ZERO_OFFSET_INDEX_ENTRIES,
                self._index.used_entry_count * self._format.ENTRY_SIZE,
                f"{self._zero_count} zero entries after the last entry",
            )
        elif self.segment.size > LARGE_WITHOUT_ENTRIES and not len(self.entries):
            what = "the offset index is empty"
            yield self._finding(FindingKind.EMPTY_OFFSET_INDEX, None, what)

    def _false_entry(self, log: BatchSequence | None, *, is_torn: bool) -> Iterator[Finding]:
        segment, entries = self.segment, self.entries
        if log is None:
            next_offset, size = _next_offset(segment, log), segment.size
            beyond_end = entries["position"] >= size
        else:
            next_offset, size = _next_offset(segment, log), log.end_position
            beyond_end = entries["position"] >= max(size, 1)
        if next_offset is not None:
            beyond_end = beyond_end | (entries["offset"] >= next_offset)
        slot = self._first_false(-1 if log is None else log.false_offset_entry, beyond_end)
        if slot < 0:
            return
        is_loaded, last = segment.is_active and not self.will_be_recovered, len(entries) - 1
        leads_astray = is_loaded and (
            beyond_end[last] or not self._is_batch(int(entries[last]["position"]))
        )
        if leads_astray:
            slot = last  # a broker begins there
        entry = f"offset index entry {slot} (offset {entries[slot]['offset']}, position"
        entry += f" {entries[slot]['position']})"
        if beyond_end[slot]:
            kind = FindingKind.OFFSET_INDEX_BEYOND_LOG_END
            what = f"points beyond the end of the log at offset {next_offset} and byte {size}"
            if self._is_left_of_crash(is_torn=is_torn):
                kind = FindingKind.OFFSET_INDEX_LEFT_BY_CRASH
            elif is_loaded:
                kind = FindingKind.LOADED_OFFSET_INDEX_BEYOND_LOG_END
        else:
            kind, what = FindingKind.OFFSET_INDEX_MISMATCH, "does not point to its batch"
            if leads_astray:
                kind = FindingKind.LOADED_OFFSET_INDEX_MISMATCH
        yield self._finding(kind, slot * self._format.ENTRY_SIZE, f"{entry} {what}")

    def _is_batch(self, position: int) -> bool:
        """Return whether a batch begins at a position."""
        with self.segment.open_as_broker() as log:
            return begins_batch(log, position, self.segment.base_offset)


class TimeIndexCheck(_IndexCheck):
    """The check of a time index.

    `is_clean`: the log's broker was shut down cleanly.
    """

    _name: ClassVar[Literal["offset_index", "time_index"]] = "time_index"
    _format = time_index

    def __init__(self, segment: LogSegment, *, will_be_recovered: bool, is_clean: bool) -> None:
        super().__init__(segment, will_be_recovered=will_be_recovered)
        self.is_clean = is_clean

    def findings(
        self, log: BatchSequence | None, *, is_torn: bool = False, has_damage: bool = False
    ) -> Iterator[Finding]:
        """Yield the findings; `log` is None if the log was not read.

        `is_torn`: the log's last batch is incomplete. `has_damage`: part of the log is unreadable,
        so it may contain later timestamps.
        """
        if self.unreadable is not None:
            yield self.unreadable
            return
        if self._index is None:
            yield from self._without_entries(log)
            return
        yield from self._odd_bytes()
        zero_count, slots = self._zero_count, self._index.entry_count
        has_only_zeros = slots > 0 and self._index.last_entry in (
            (-1, self.segment.base_offset), (0, self.segment.base_offset)
        )
        if has_only_zeros:  # slot 0 may be a valid entry: the log decides
            zero_count = slots - self._begins_at_zero(log)
        if zero_count and not self.will_be_recovered:
            yield self._zeros(zero_count)
        if not slots:
            if not self.will_be_recovered:
                yield from self._without_entries(log)
        elif has_only_zeros and zero_count:
            return
        elif log is not None and log.largest_timestamp < 0:
            if not has_damage:
                yield from self._entries_without_timestamps(log)
        else:
            yield from self._false_entry(log, is_torn=is_torn)

    def _begins_at_zero(self, log: BatchSequence | None) -> bool:
        """Return whether (0, base offset) may be a valid entry."""
        return log is None or log.begins_at_time_zero

    def _zeros(self, count: int) -> Finding:
        return self._finding(
            FindingKind.ZERO_TIME_INDEX_ENTRIES_IN_ACTIVE_SEGMENT if self.segment.is_active
            else FindingKind.ZERO_TIME_INDEX_ENTRIES,
            (self._index.entry_count - count) * self._format.ENTRY_SIZE,
            f"{count} zero entries after the last entry",
        )

    def _without_entries(self, log: BatchSequence | None) -> Iterator[Finding]:
        """Report an index without entries if it should have some."""
        segment, is_missing = self.segment, self._index is None
        what = f"the time index is {'missing' if is_missing else 'empty'}"
        if log is None:
            if is_missing and not segment.is_active:
                kind = FindingKind.MISSING_TIME_INDEX_OF_UNREAD_LOG
                yield self._finding(
                    kind, None, f"{what}; its log was not read for timestamps", _MIGRATE
                )
        elif log.largest_timestamp < 0:
            if segment.size and not segment.is_active:
                what += ", and no record has a timestamp"
                if is_missing:
                    kind = FindingKind.MISSING_TIME_INDEX_WITHOUT_TIMESTAMPS
                    yield self._finding(kind, None, what, _MIGRATE)
                else:  # brokers from 0.10.1 on leave it empty
                    kind = FindingKind.EMPTY_TIME_INDEX_WITHOUT_TIMESTAMPS
                    remedy = "none needed; cp -a and rsync -a keep times"
                    yield Finding(kind, self.path, None, what, remedy)
        elif is_missing or not segment.is_active or self.is_clean:
            kind = FindingKind.MISSING_TIME_INDEX if is_missing else FindingKind.EMPTY_TIME_INDEX
            yield self._finding(kind, None, f"{what}, although records have timestamps", _MIGRATE)

    def _entries_without_timestamps(self, log: BatchSequence) -> Iterator[Finding]:
        """Report entries if no record has a timestamp.

        One entry is valid: one made from the modification time, which is not in the future.
        """
        entries, segment = self.entries, self.segment
        dated_up_to = segment.next_base_offset
        if dated_up_to is None:
            dated_up_to = log.next_offset
        if (
            log.batch_count
            and len(entries) == 1
            and 0 <= entries["timestamp"][0] <= clock() + _DAY_MS
            and segment.base_offset <= entries["offset"][0] <= dated_up_to
        ):
            return
        yield self._finding(
            FindingKind.TIME_INDEX_WITHOUT_TIMESTAMPS,
            0,
            f"{len(entries)} time index entries, up to timestamp {entries['timestamp'][-1]} at "
            f"offset {entries['offset'][-1]}, although no record has a timestamp",
        )

    def _false_entry(self, log: BatchSequence | None, *, is_torn: bool) -> Iterator[Finding]:
        entries = self.entries
        next_offset = _next_offset(self.segment, log)
        beyond_end = np.zeros(len(entries), bool)
        if next_offset is not None:
            # Without the log: an entry made from a modification time has the end offset (KIP-33).
            beyond_end = entries["offset"] >= next_offset + (log is None)
        slot = self._first_false(-1 if log is None else log.false_time_entry, beyond_end)
        if slot >= 0:
            entry = f"time index entry {slot} (timestamp {entries[slot]['timestamp']}, offset"
            entry += f" {entries[slot]['offset']})"
            is_beyond_end = bool(beyond_end[slot])
            is_left = is_beyond_end and self._is_left_of_crash(is_torn=is_torn)
            yield self._finding(
                FindingKind.TIME_INDEX_LEFT_BY_CRASH if is_left
                else FindingKind.TIME_INDEX_MISMATCH,
                slot * self._format.ENTRY_SIZE,
                f"{entry} does not match the log"
                + (f", which ends at offset {next_offset}" if is_beyond_end else ""),
            )
        elif log is not None and not self._is_growing:
            last_timestamp = self._index.last_entry.timestamp
            if last_timestamp < log.largest_timestamp:
                yield self._finding(
                    FindingKind.TIME_INDEX_ENDS_EARLY,
                    self._index.size,
                    f"the last time index entry has {last_timestamp}, the largest timestamp in the "
                    f"log is {log.largest_timestamp}",
                )

    @property
    def _is_growing(self) -> bool:
        """Whether the last entry is added later, by a roll, a shutdown or a rebuild."""
        is_open = self.segment.is_active and not self.is_clean
        return is_open or bool(self._zero_count and self.will_be_recovered)


def _next_offset(segment: LogSegment, log: BatchSequence | None) -> int | None:
    """Return the end of the segment's possible offsets, exclusive; None if unknown."""
    if log is None or log.ends_in_damage:
        return segment.next_base_offset
    return log.next_offset
