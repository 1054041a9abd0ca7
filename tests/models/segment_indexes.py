"""The indexes of a segment by Kafka's rules, as lists of entries, and their bytes.

A batch here is (position, last offset, max timestamp). Made apart from the package's code, from
Kafka 2.4.0 ``LogSegment.append`` and ``recover``.
"""

from __future__ import annotations

import struct


def recovered_entries(batches, interval):
    """(offset entries, time entries) as recovery makes them: (offset, position), (timestamp, offset)."""
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
