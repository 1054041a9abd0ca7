"""How the two indexes grow: size of a new file, when it is full, allowed entries.

This module has only the rules; `index_format` encodes the entries.

Source: Kafka 2.4.0 ``AbstractIndex``, ``OffsetIndex.append``, ``TimeIndex.maybeAppend``.
"""

from __future__ import annotations

from kafkastore.errors import ArgumentValueError, IndexFullError, OutOfOrderAppendError
from kafkastore.formats.indexes.entries import TimestampOffset
from kafkastore.formats.indexes.index_format import relative_offset


def max_entries(max_index_size: int, entry_size: int) -> int:
    """Return how many entries an index file of ``segment.index.bytes`` holds.

    Raises `ArgumentValueError` if it is smaller than one entry.
    """
    if max_index_size < entry_size:
        raise ArgumentValueError(
            "max_index_size", f"at least {entry_size} bytes, one entry", max_index_size
        )
    return max_index_size // entry_size


def preallocated_size(max_index_size: int, entry_size: int) -> int:
    """Return the size in bytes that a broker gives a new index file: whole entries.

    >>> preallocated_size(10485760, 8), preallocated_size(10485760, 12)
    (10485760, 10485756)
    """
    return max_entries(max_index_size, entry_size) * entry_size


def is_offset_index_full(entry_count: int, max_entries: int) -> bool:
    """Return whether an offset index is full; a broker then rolls the segment."""
    return entry_count >= max_entries


def is_time_index_full(entry_count: int, max_entries: int) -> bool:
    """Return whether only the slot for rolling is free; a broker then rolls."""
    return entry_count >= max_entries - 1


def check_offset_append(
    offset: int, *, base_offset: int, last_offset: int, entry_count: int, max_entries: int
) -> None:
    """Check that an offset index entry may be appended, as a broker does.

    `last_offset` is the offset of the last entry, or None. Raises `IndexFullError`,
    `OutOfOrderAppendError` or `OffsetOverflowError`.

    Source: Kafka 2.4.0 ``OffsetIndex.append``.
    """
    if is_offset_index_full(entry_count, max_entries):
        raise IndexFullError(f"offset index is full with {entry_count} of {max_entries} entries")
    if entry_count and offset <= last_offset:
        raise OutOfOrderAppendError(
            f"offset {offset} of offset index entry {entry_count} is not greater than {last_offset}"
            " before it"
        )
    relative_offset(offset, base_offset)


def may_append_timestamp(
    entry: TimestampOffset,
    *,
    base_offset: int,
    last_entry: TimestampOffset,
    entry_count: int,
    max_entries: int,
    skip_full_check: bool = False,
) -> bool:
    """Return whether a broker appends an entry: its timestamp exceeds `last_entry`'s.

    `last_entry` of an empty index is (-1, base offset); `skip_full_check` allows the last slot
    (KAFKA-19200). Raises `IndexFullError`, `OutOfOrderAppendError` or `OffsetOverflowError`.

    Source: Kafka 2.4.0 ``TimeIndex.maybeAppend``.
    """
    if is_time_index_full(entry_count, max_entries) and not skip_full_check:
        raise IndexFullError(f"time index is full with {entry_count} of {max_entries} entries")
    for name, value, last in zip(entry._fields, entry, last_entry, strict=True):
        if entry_count and value < last:
            raise OutOfOrderAppendError(
                f"{name} {value} of time index entry {entry_count} is less than {last} before it"
            )
    if entry.timestamp <= last_entry.timestamp:
        return False
    if entry_count >= max_entries:
        raise IndexFullError(f"time index is full with {entry_count} of {max_entries} entries")
    relative_offset(entry.offset, base_offset)
    return True
