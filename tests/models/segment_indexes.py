"""The indexes of a segment by Kafka's rules, as lists of entries, and their bytes.

A batch here is (position, last offset, max timestamp). Made apart from the package's code, from
Kafka 2.4.0 ``LogSegment.append`` and ``recover``.
"""

from __future__ import annotations

import struct


def recovered_entries(batches, interval):
    """Entries by a recovery: (offset, position) of offsets, (timestamp, offset) of times."""
    offset_entries, time_entries = [], []
    largest, offset_of_largest, last_entry_position = -1, None, 0

    def maybe_append_time():
        if largest > (time_entries[-1][0] if time_entries else -1):
            time_entries.append((largest, offset_of_largest))

    for position, last_offset, max_timestamp in batches:
        if max_timestamp > largest:
            largest, offset_of_largest = max_timestamp, last_offset
        if position - last_entry_position > interval:
            offset_entries.append((last_offset, position))
            maybe_append_time()
            last_entry_position = position
    maybe_append_time()
    return offset_entries, time_entries


def pack_offset_entries(entries, base_offset):
    return b"".join(struct.pack(">ii", offset - base_offset, at) for offset, at in entries)


def pack_time_entries(entries, base_offset):
    return b"".join(struct.pack(">qi", time, offset - base_offset) for time, offset in entries)


def offset_entries_of(data, base_offset):
    return [(base_offset + offset, at) for offset, at in struct.iter_unpack(">ii", data)]


def time_entries_of(data, base_offset):
    return [(time, base_offset + offset) for time, offset in struct.iter_unpack(">qi", data)]


def appended_entries(sets, interval, *, stores_first_offset=False, is_exact=False, is_closed=True):
    """(offset entries, time entries) as a running leader makes them.

    Each set is (position, size, batches); `is_exact` is the time index of a leader up to 3.7,
    `stores_first_offset` the offset index of one up to 1.1. Without `is_closed` the segment was
    neither rolled nor closed: the last time entry is lacking.
    """
    offset_entries, time_entries = [], []
    largest, offset_of_largest, since_last_entry = -1, None, 0

    def maybe_append_time():
        if largest > (time_entries[-1][0] if time_entries else -1):
            time_entries.append((largest, offset_of_largest))

    for position, size, batches in sets:
        for batch in batches:
            if batch.max_timestamp > largest:
                largest = batch.max_timestamp
                offset_of_largest = _offset_of_largest(batch, is_exact)
        if since_last_entry > interval:
            offset = batches[0].base_offset if stores_first_offset else batches[-1].last_offset
            offset_entries.append((offset, position))
            maybe_append_time()
            since_last_entry = 0
        since_last_entry += size
    if is_closed:
        maybe_append_time()
    return offset_entries, time_entries


def _offset_of_largest(batch, is_exact):
    if is_exact and batch.codec == 0 and batch.append_time is None and batch.rows:
        return max(batch.rows, key=lambda row: (row.timestamp, -row.offset)).offset
    return batch.last_offset
