"""One segment's files against each other, in one pass over its log.

Index entries are judged by what they promise, not by the bytes that one version would write, for
writers differ: an offset index entry may hold the first or the last offset of what was appended, a
time index entry the exact record or the last offset of its batch.

offset index
    Positions and offsets rise; a batch begins at the position; every record before it has a smaller
    offset.
time index
    Timestamps rise, offsets do not fall; the batch that holds the offset is the first that reached
    the timestamp. The last entry of an inactive segment has its maximum. A lone entry in a segment
    without timestamps dates it (KIP-33).

Source: Kafka 2.4.0 ``OffsetIndex``, ``TimeIndex``, ``LogSegment``; `docs/formats/`.
"""
from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from kafkastore.checks.findings import Finding, Severity
from kafkastore.errors import CorruptIndexError, CorruptionError, NotAFileError
from kafkastore.formats import offset_index, time_index
from kafkastore.log.partition_log import PartitionLog
from kafkastore.segment.index_file import TimeIndex
from kafkastore.segment.log_segment import LogSegment
from kafkastore.segment.zeros import is_zero_from

MIGRATE = "kafkastore migrate"
REINDEX = "kafkastore reindex"
#: A log of more bytes than any usual index interval that still has no offset index entry.
LARGE_WITHOUT_ENTRIES = 1 << 20

#: In place of an index of which there is a finding already.
_UNREADABLE = object()


def no_file(error: NotAFileError) -> Finding:
    """Tell of a name that stands for no file."""
    return Finding(
        Severity.DATA_LOSS_RISK,
        Path(error.path),
        None,
        f"it is {error.kind} and not a regular file",
        "a broker fails on it, or goes on as if the file were missing",
        "move it away; look for the true file first",
    )


class SegmentCheck:
    """The pass over one segment: the log's batches, with both indexes beside them.

    Parameters
    ----------
    log : PartitionLog
        The partition.
    segment : LogSegment
        One of its segments.
    next_offset : int
        Offset behind the segment before; after `findings` behind this one.
    """

    def __init__(self, log: PartitionLog, segment: LogSegment, next_offset: int) -> None:
        self.log, self.segment = log, segment
        self.next_offset = next_offset
        self.largest_timestamp = -1
        self.unreadable: list[Finding] = []
        self.offset_index = self._index("offset_index")
        self.time_index = self._index("time_index")
        self.offset_entries = _entries_of(self.offset_index)
        self.time_entries = _entries_of(self.time_index)
        self.offset_entries_met = np.zeros(len(self.offset_entries), bool)
        self.time_entries_met = np.zeros(len(self.time_entries), bool)

    def _index(self, name: Literal["offset_index", "time_index"]) -> Any:
        """Read an index; of one that can't be read there is a finding, and it says nothing."""
        try:
            return getattr(self.segment, name)
        except NotAFileError as error:
            self.unreadable.append(no_file(error))
        except CorruptIndexError as error:
            path = getattr(self.segment, f"{name}_path")
            self.unreadable.append(
                Finding(
                    Severity.WRONG_ANSWERS,
                    path,
                    error.position,
                    error.reason,
                    "a broker gives up the log directory at the first such error",
                    REINDEX,
                )
            )
        return _UNREADABLE

    def findings(self) -> Iterator[Finding]:
        """Check the log, then what is left to say about each index."""
        segment = self.segment
        yield from self.unreadable
        valid_bytes = 0
        with segment.open_log() as file:
            try:
                for run in file.runs(verify_crc=True):
                    yield from self._check_run(run.headers)
                    valid_bytes = int(run.headers["position"][-1] + run.headers["size"][-1])
            except CorruptionError as error:
                yield self._broken_log(error.reason, error.position)
                return
            if valid_bytes < file.size and not is_zero_from(file.descriptor, valid_bytes):
                yield self._torn_tail(valid_bytes, file.size)
        yield from self._check_offset_index()
        yield from self._check_time_index()

    def _check_run(self, headers: NDArray[Any]) -> Iterator[Finding]:
        for header in headers[headers["crc_valid"] == 0]:
            yield self._broken_log(
                f"checksum of the batch that ends with offset {header['last_offset']} is wrong",
                int(header["position"]),
            )
        last = headers["last_offset"]
        before = np.concatenate(([self.next_offset - 1], last[:-1]))
        first = np.where(headers["base_offset"] >= 0, headers["base_offset"], last)
        ends = self.segment.next_base_offset
        bad = (first <= before) | (last < first) | (first < self.segment.base_offset)
        if ends is not None:
            bad |= last >= ends
        for header in headers[bad][:1]:
            yield Finding(
                Severity.DATA_LOSS_RISK,
                self.segment.log_path,
                int(header["position"]),
                f"the batch that ends with offset {header['last_offset']} does not follow offset "
                f"{int(before[bad][0])} in a segment of {self.segment.base_offset} to {ends}",
                "a broker that recovers this segment may empty it",
                "keep a copy of the file before a broker starts here",
            )
        self._meet_offset_entries(headers, before)
        self._meet_time_entries(headers)
        self.next_offset = int(last[-1]) + 1
        self.largest_timestamp = max(self.largest_timestamp, int(headers["max_timestamp"].max()))

    def _meet_offset_entries(self, headers: NDArray[Any], before: NDArray[Any]) -> None:
        """Mark the entries that lead to a batch of this run and keep their promise."""
        positions = headers["position"]
        entries = self.offset_entries
        inside = (entries["position"] >= positions[0]) & (entries["position"] <= positions[-1])
        at = np.searchsorted(positions, entries["position"][inside])
        batch = np.minimum(at, len(positions) - 1)
        true = (positions[batch] == entries["position"][inside]) & (
            before[batch] < entries["offset"][inside]
        )
        known = headers["base_offset"][batch]
        true &= (known < 0) | (known <= entries["offset"][inside])
        self.offset_entries_met[inside] = true

    def _meet_time_entries(self, headers: NDArray[Any]) -> None:
        """Mark the entries whose batch is in this run and first reached their timestamp."""
        last, timestamps = headers["last_offset"], headers["max_timestamp"]
        entries = self.time_entries
        largest_before = np.maximum.accumulate(
            np.concatenate(([self.largest_timestamp], timestamps))
        )[:-1]
        inside = (entries["offset"] <= last[-1]) & (entries["offset"] >= self.next_offset)
        batch = np.searchsorted(last, entries["offset"][inside])
        wanted = entries["timestamp"][inside]
        self.time_entries_met[inside] = (timestamps[batch] == wanted) & (
            largest_before[batch] < wanted
        )

    def _check_offset_index(self) -> Iterator[Finding]:
        segment, index = self.segment, self.offset_index
        if index is _UNREADABLE:
            return
        path = segment.offset_index_path
        if index is None:
            yield Finding(
                Severity.SLOW,
                path,
                None,
                "the offset index is missing",
                "a broker reads the whole segment at its next start to rebuild it",
                "let the broker do it, or rebuild it before",
            )
            return
        size = offset_index.ENTRY_SIZE
        if index.size % size:
            yield self._partial_entry(path, index.size, size)
        if index.used_entry_count < index.entry_count and not self._may_be_padded():
            yield Finding(
                Severity.WRONG_ANSWERS,
                path,
                index.used_entry_count * size,
                f"{index.entry_count - index.used_entry_count} zero entries behind the last one",
                "a broker that loads this counts them as entries and searches among them",
                REINDEX,
            )
        disorder = index.first_disorder()
        bad = disorder if disorder >= 0 else _first(~self.offset_entries_met)
        if bad >= 0:
            entry = self.offset_entries[bad]
            yield Finding(
                Severity.WRONG_ANSWERS,
                path,
                bad * size,
                f"offset index entry {bad} (offset {entry['offset']}, position "
                f"{entry['position']}) does not lead to its batch",
                "reads and lookups that begin there miss records or fail",
                REINDEX,
            )
        if segment.size > LARGE_WITHOUT_ENTRIES and not len(self.offset_entries):
            yield Finding(
                Severity.SLOW,
                path,
                None,
                "the offset index is empty",
                "each read in this segment begins at its start",
                REINDEX,
            )

    def _check_time_index(self) -> Iterator[Finding]:
        segment, index, path = self.segment, self.time_index, self.segment.time_index_path
        if index is _UNREADABLE:
            return
        if index is None or not index.used_entry_count:
            yield from self._without_time_entries(index is None)
            if index is None or not index.entry_count:
                return
        size = time_index.ENTRY_SIZE
        if index.size % size:
            yield self._partial_entry(path, index.size, size)
        if index.used_entry_count < index.entry_count and not self._may_be_padded():
            yield Finding(
                Severity.WRONG_ANSWERS if segment.is_active else Severity.DATA_LOSS_RISK,
                path,
                index.used_entry_count * size,
                f"{index.entry_count - index.used_entry_count} zero entries behind the last one",
                "a broker that loads this takes 0 (1970) for the segment's largest timestamp: "
                "lookups pass it over"
                + ("" if segment.is_active else ", and time-based retention deletes it"),
                REINDEX,
            )
        if self.largest_timestamp < 0:
            return  # KIP-33 dates a segment without timestamps by one entry
        disorder = index.first_disorder()
        bad = disorder if disorder >= 0 else _first(~self.time_entries_met)
        if bad >= 0:
            entry = self.time_entries[bad]
            yield Finding(
                Severity.WRONG_ANSWERS,
                path,
                bad * size,
                f"time index entry {bad} (timestamp {entry['timestamp']}, offset "
                f"{entry['offset']}) is not what the log says",
                "lookups by time may pass over records or end without an answer",
                REINDEX,
            )
        elif index.last_entry.timestamp < self.largest_timestamp and not self._is_growing(index):
            yield Finding(
                Severity.WRONG_ANSWERS,
                path,
                index.size,
                f"the last time index entry has {index.last_entry.timestamp}, the log goes up to "
                f"{self.largest_timestamp}",
                "lookups between the two pass this segment over",
                REINDEX,
            )

    def _without_time_entries(self, is_missing: bool) -> Iterator[Finding]:
        segment = self.segment
        if self._may_be_padded() and not is_missing:
            return
        what = f"the time index is {'missing' if is_missing else 'empty'}"
        if self.largest_timestamp < 0:
            if segment.size and not segment.is_active:
                yield Finding(
                    Severity.STYLE,
                    segment.time_index_path,
                    None,
                    f"{what}, and no record has a timestamp",
                    "a broker dates the segment by its modification time, which copies may lose",
                    f"{MIGRATE}: an entry keeps the modification time (KIP-33)",
                )
        elif is_missing or not segment.is_active or self.log.is_clean:
            yield Finding(
                Severity.WRONG_ANSWERS,
                segment.time_index_path,
                None,
                f"{what}, although records have timestamps",
                "a broker dates the segment by its modification time: lookups by time go wrong",
                MIGRATE,
            )

    def _is_growing(self, index: TimeIndex) -> bool:
        """Whether an index gets its last entry yet: when its segment is rolled, or rebuilt."""
        is_padded = index.used_entry_count < index.entry_count
        return self.segment.is_active or (is_padded and self._may_be_padded())

    def _may_be_padded(self) -> bool:
        """Whether zero padding is usual: the active segment, or one a broker will rebuild."""
        if self.log.is_clean:
            return False
        ends = self.segment.next_base_offset
        if ends is None or self.log.log_dir is None:
            return ends is None
        return ends > (self.log.recovery_point or 0)  # where no checkpoint says, all is recovered

    def _partial_entry(self, path: Path, size: int, entry_size: int) -> Finding:
        return Finding(
            Severity.WRONG_ANSWERS,
            path,
            size - size % entry_size,
            f"{size} bytes are not a whole number of {entry_size}-byte entries",
            "a broker drops the odd bytes from view, and entries behind the cut are lost",
            REINDEX,
        )

    def _broken_log(self, what: str, position: int | None) -> Finding:
        return Finding(
            Severity.DATA_LOSS_RISK,
            self.segment.log_path,
            position,
            what,
            "a broker that recovers this segment cuts it here and deletes all later segments",
            "keep a copy of the partition before a broker starts here",
        )

    def _torn_tail(self, valid_bytes: int, size: int) -> Finding:
        return Finding(
            Severity.STYLE if self.segment.is_active else Severity.DATA_LOSS_RISK,
            self.segment.log_path,
            valid_bytes,
            f"{size - valid_bytes} bytes behind the last whole batch",
            "a batch was cut short; a broker that recovers this segment cuts the bytes off"
            + ("" if self.segment.is_active else " and deletes all later segments"),
            "none is needed for the last segment of a broker that was killed",
        )


def _entries_of(index: Any) -> NDArray[Any]:
    """Return an index's entries; none where the file is missing."""
    if index is None or index is _UNREADABLE:
        return np.zeros(0, [("timestamp", "i8"), ("offset", "i8"), ("position", "i4")])
    entries: NDArray[Any] = index.entries()
    return entries


def _first(mask: NDArray[np.bool_]) -> int:
    """Return the first slot that is true, or -1."""
    hits = np.flatnonzero(mask)
    return int(hits[0]) if len(hits) else -1
