"""Which offset is at a time, slowly: over model logs, by the three rules.

A transcription of Kafka 2.4.0 ``Log.fetchOffsetByTimestamp``, ``LogSegment.findOffsetByTimestamp``,
``FileRecords.searchForTimestamp`` and of KIP-33's text, made apart from the package's code.
Answers are (timestamp, offset, leader epoch or None), or None.
"""

from __future__ import annotations

from models.index_model import OffsetIndexModel, TimeIndexModel

FIRST_WITH_WARM_SECTION = (2, 1)


def correct_answer(log, target):
    """The first record that is not a marker, at or after the log start, at or after the time."""
    for record in log.records():
        if record[1] >= max(target, 0):
            return record[1], record[0], record[6]
    return None


def broker_answer(log, target, version):
    """What the log layer of a broker answers, its flaws included."""
    for segment in log.segments:
        seen = _Seen(log, segment, version)
        if seen.largest_timestamp() >= target:
            return seen.find(target)
    return None


def kip_33_answer(log, target):
    """What the proposal's text answers, for indexes that are right."""
    following = [segment.base_offset for segment in log.segments[1:]] + [None]
    for segment, next_base in zip(log.segments, following, strict=True):
        if segment.time_index is not None:
            entries = TimeIndexModel(_cut(segment.time_index, 12), segment.base_offset).slots
        else:
            entries = [] if next_base is None else [(segment.modified_ms, next_base)]
        if not entries or entries[-1][0] <= target:
            continue
        found = _search(segment.placed, target, 0, log.start_offset)
        if found is not None:
            return found
    return None


class _Seen:
    """A segment as the broker has it in memory, after a clean start or while it runs."""

    def __init__(self, log, segment, version):
        self.log, self.segment = log, segment
        self.is_active = segment is log.segments[-1]
        is_rebuilt = segment.offset_index is None or (
            segment.time_index is None and self._was_recovered()
        )
        entries = segment.recovered() if is_rebuilt else segment
        offset_index, time_index = entries.offset_index, entries.time_index or b""
        if not (log.is_clean or is_rebuilt):
            offset_index, time_index = _cut(offset_index, 8), _cut(time_index, 12)
        warm = version >= FIRST_WITH_WARM_SECTION
        self.offset_index = OffsetIndexModel(offset_index, segment.base_offset, warm)
        self.time_index = TimeIndexModel(time_index, segment.base_offset, warm)

    def _was_recovered(self):
        if self.log.is_clean:
            return False
        bases = [segment.base_offset for segment in self.log.segments]
        following = bases[bases.index(self.segment.base_offset) + 1 :]
        return not following or following[0] > (self.log.recovery_point or 0)

    def largest_timestamp(self):
        largest, offset = self.time_index.last_entry
        if self.is_active and not self.log.is_clean:
            # What was appended since the last entry is in memory only.
            _, begin = self.offset_index.lookup(offset)
            appended = [batch.max_timestamp for at, batch in self.segment.placed if at >= begin]
            largest = max([largest, *appended])
        return largest if largest >= 0 else self.segment.modified_ms

    def find(self, target):
        _, offset = self.time_index.lookup(target)
        _, position = self.offset_index.lookup(max(offset, self.log.start_offset))
        return _search(self.segment.placed, target, position, self.log.start_offset)


def _search(placed, target, position, start):
    for at, batch in placed:
        if at < position or batch.max_timestamp < target:
            continue
        for offset, timestamp, *_, epoch in batch.records:
            if timestamp >= target and offset >= start:
                return timestamp, offset, epoch
    return None


def _cut(data, entry_size):
    """The entries without zero padding."""
    data = data[: len(data) // entry_size * entry_size]
    while data and not any(data[-entry_size:]):
        data = data[:-entry_size]
    return data
