"""Which offset is at a time, slowly: over model logs, by the three rules.

A transcription of Kafka 2.4.0 ``Log.fetchOffsetByTimestamp``, ``LogSegment.findOffsetByTimestamp``,
``FileRecords.searchForTimestamp``, ``Partition.fetchOffsetForTimestamp``, of what other versions do
otherwise, and of KIP-33's text, made apart from the package's code.
Answers are (timestamp, offset, leader epoch or None), or None.
"""

from __future__ import annotations

from models.index_model import OffsetIndexModel, TimeIndexModel

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, PENDING_UPLOAD = range(-1, -7, -1)
#: The version of the request that brought each, and the broker.
SPECIAL = {
    LATEST: (1, (0, 10, 1)),
    EARLIEST: (1, (0, 10, 1)),
    MAX_TIMESTAMP: (7, (3, 0)),
    EARLIEST_LOCAL: (8, (3, 5)),
    LATEST_TIERED: (9, (3, 9)),
    PENDING_UPLOAD: (11, (4, 2)),
}
REFUSED = "UNSUPPORTED_VERSION"


def correct_answer(log, target):
    """The first record that is not a marker, at or after the log start, at or after the time."""
    for record in log.records():
        if record[1] >= max(target, 0):
            return record[1], record[0], record[6]
    return None


def committed_answer(log, target):
    """The same without records of aborted transactions, up to the last stable offset."""
    end, aborted = transactions(log)
    for segment in log.segments:
        for batch in segment.batches:
            if batch.is_control or batch in aborted:
                continue
            for offset, timestamp, *_, epoch in batch.records:
                if offset >= log.start_offset and timestamp >= max(target, 0):
                    return (timestamp, offset, epoch) if offset < end else None
    return None


def untimed_answer(log, target):
    """The right answer where a segment without timestamps is one record of its file's time."""
    for segment in log.segments:
        records = [
            record
            for batch in segment.batches
            if not batch.is_control
            for record in batch.records
            if record[0] >= log.start_offset
        ]
        ends = [batch.last_offset + 1 for batch in segment.batches]
        if not ends or ends[-1] <= log.start_offset:
            continue
        if all(batch.max_timestamp < 0 for batch in segment.batches):
            used = _used(TimeIndexModel, segment.time_index or b"")
            said, _ = TimeIndexModel(used, segment.base_offset).last_entry
            # Times of 1970 or earlier are not real: they come from lost bytes.
            if (said if said > 0 else segment.modified_ms) >= max(target, 0):
                return -1, max(segment.base_offset, log.start_offset), None
            continue
        for record in records:
            if record[1] >= max(target, 0):
                return record[1], record[0], record[6]
    return None


def end_offset(log):
    """The offset that the next record will get."""
    last = log.segments[-1]
    ends = [batch.last_offset + 1 for batch in last.batches[-1:]] or [last.base_offset]
    return max(ends[0], log.start_offset)


def transactions(log):
    """(the last stable offset, the batches of aborted transactions)."""
    is_open, aborted = {}, []
    for batch in log.batches:
        if batch.producer_id < 0:
            continue
        if batch.is_control:
            begun = is_open.pop(batch.producer_id, [])
            if batch.rows and batch.rows[0].key[2:4] == b"\0\0":
                aborted += begun
        elif batch.is_transactional:
            is_open.setdefault(batch.producer_id, []).append(batch)
    undecided = [batches[0].base_offset for batches in is_open.values()]
    return max(log.start_offset, min([end_offset(log), *undecided])), aborted


def broker_answer(log, target, version, *, is_alone=False):
    """The answer of a broker's log layer, its flaws included.

    `is_alone`: of the broker that was running, for a partition directory by itself.
    """
    for segment in log.segments:
        seen = _Seen(log, segment, version, is_alone=is_alone)
        if seen.largest_timestamp() >= target:
            return _consumer_answer(seen.find(target), version)
    return None


def broker_list_offset(log, target, version, request, *, message_format=None, end=None):
    """The answer of a sole replica to a consumer, or the name of its error."""
    first_request, first_broker = SPECIAL.get(target, (99, (99,)))
    if version >= (3, 9) and target < 0 and (request < first_request or version < first_broker):
        return REFUSED
    if message_format is not None and message_format < (0, 10) and version < (4,):
        free = {LATEST, EARLIEST} | ({EARLIEST_LOCAL} if (3, 5) <= version < (3, 9) else set())
        if target not in free:
            return "UNSUPPORTED_FOR_MESSAGE_FORMAT"
    end = end_offset(log) if end is None else end
    if target == LATEST:
        found = (-1, end, None)
    elif target == EARLIEST or (target == EARLIEST_LOCAL and version >= (3, 5)):
        return (-1, _start(log, version), None)
    elif target in (LATEST_TIERED, PENDING_UPLOAD) and version >= first_broker:
        return None
    elif target == MAX_TIMESTAMP and version >= (3, 0):
        found = _max_timestamp(log, version)
    else:
        found = broker_answer(log, target, version)
    if target != LATEST and found is not None:
        is_bounded = found[1] <= end if version < (0, 11, 0, 1) else found[1] < end
        found = found if is_bounded else None
    if found is None:
        return None
    return found if request >= 4 else (*found[:2], None)


def _max_timestamp(log, version):
    segments = [_Seen(log, segment, version) for segment in log.segments]
    best = max(segments, key=lambda seen: seen.max_timestamp()[0])    # the first of equal ones
    timestamp, offset = best.max_timestamp()
    if version < (3, 8):
        return timestamp, offset, None
    _, begin = best.offset_index.lookup(offset)
    for at, batch in best.segment.placed:
        if at >= begin and batch.max_timestamp == timestamp:
            for offset, its_own, *_, epoch in batch.records:
                if its_own == timestamp and batch.magic:
                    return timestamp, offset, epoch
            return None
    return None


def _start(log, version):
    return log.start_offset if version >= (0, 11) else log.segments[0].base_offset


def _consumer_answer(found, version):
    """Answers name the leader epoch since 2.2."""
    return found if found is None or version >= (2, 2) else (*found[:2], None)


def kip_33_answer(log, target):
    """The answer by the proposal's text, for indexes that are right."""
    following = [segment.base_offset for segment in log.segments[1:]] + [None]
    for segment, next_base in zip(log.segments, following, strict=True):
        if segment.time_index is not None:
            used = _used(TimeIndexModel, segment.time_index)
            entries = TimeIndexModel(used, segment.base_offset).slots
        else:
            entries = [] if next_base is None else [(segment.modified_ms, next_base)]
        if not entries or entries[-1][0] <= target:
            continue
        found = _search(segment.placed, target, 0, log.start_offset)
        if found is not None:
            return found
    return None


class _Seen:
    """A segment as the broker has it in memory, after a start or while it runs."""

    def __init__(self, log, segment, version, *, is_alone=False):
        self.log, self.segment, self.version = log, segment, version
        self.is_active = segment is log.segments[-1]
        self.is_running = is_alone
        is_rebuilt = segment.offset_index is None or (
            not is_alone and (self._was_recovered() or self._is_refused())
        )
        entries = segment.recovered() if is_rebuilt else segment
        offset_index, time_index = entries.offset_index, entries.time_index or b""
        if is_alone and not is_rebuilt:
            offset_index = _used(OffsetIndexModel, offset_index)
            time_index = _used(TimeIndexModel, time_index)
        warm = version >= (2, 1)
        self.offset_index = OffsetIndexModel(offset_index, segment.base_offset, warm)
        self.time_index = TimeIndexModel(time_index, segment.base_offset, warm)

    def _was_recovered(self):
        if self.log.is_clean:
            return False
        bases = [segment.base_offset for segment in self.log.segments]
        following = bases[bases.index(self.segment.base_offset) + 1 :]
        return not following or following[0] > (self.log.recovery_point or 0)

    def _is_refused(self):
        if self.version >= (2, 3):
            return False
        offsets = OffsetIndexModel(self.segment.offset_index, self.segment.base_offset)
        times = TimeIndexModel(self.segment.time_index or b"", self.segment.base_offset)
        is_strict = self.version < (2, 0) and self.segment.offset_index
        ends_at_base = offsets.last_entry[0] == self.segment.base_offset
        return not (offsets.is_sane() and times.is_sane()) or (is_strict and ends_at_base)

    def max_timestamp(self):
        """(maxTimestampSoFar, offsetOfMaxTimestampSoFar) of a leader."""
        largest, offset = self.time_index.last_entry
        if self.is_active and self.is_running:
            # Appends since the last entry are in memory only.
            _, begin = self.offset_index.lookup(offset)
            for at, batch in self.segment.placed:
                if at >= begin and batch.max_timestamp > largest:
                    largest, offset = batch.max_timestamp, self._offset_of_max(batch)
        return largest, offset

    def _offset_of_max(self, batch):
        is_searched = batch.codec == 0 and batch.append_time is None and self.version < (3, 8)
        if is_searched:
            for offset, timestamp, *_ in batch.records:
                if timestamp >= batch.max_timestamp:
                    return offset
        return batch.last_offset

    def largest_timestamp(self):
        largest, _ = self.max_timestamp()
        return largest if largest >= 0 else self.segment.modified_ms

    def find(self, target):
        start = _start(self.log, self.version)
        _, offset = self.time_index.lookup(target)
        _, position = self.offset_index.lookup(max(offset, start))
        return _search(self.segment.placed, target, position, start)


def _search(placed, target, position, start):
    for at, batch in placed:
        if at < position or batch.max_timestamp < target:
            continue
        for offset, timestamp, *_, epoch in batch.records:
            if timestamp >= target and offset >= start:
                return timestamp, offset, epoch
    return None


def _used(model, data):
    """The entries of an index without zero padding."""
    index = model(data, 0)
    return data[: index.used_slots * index.entry_size]
