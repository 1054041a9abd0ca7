"""How the two indexes grow: the size of a new file, when it is full, what may be appended.

Policy, not bytes: `indexes` encodes the entries that these allow.

Source: Kafka 2.4.0 ``AbstractIndex``, ``OffsetIndex.append``, ``TimeIndex.maybeAppend``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkastore.errors import IndexFullError, OutOfOrderAppendError
from kafkastore.formats.entries import TimestampOffset
from kafkastore.formats.indexes import relative_offset

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


def max_entries(max_index_size: int, entry_size: int) -> int:
    """Return how many entries an index file of at most so many bytes holds.

    Parameters
    ----------
    max_index_size : int
        Kafka's ``segment.index.bytes``.
    entry_size : int
        8 for an offset index, 12 for a time index.

    Returns
    -------
    int
        The size divided by the entry size, rounded down.

    Raises
    ------
    ValueError
        If there is no room for one entry.
    """
    if max_index_size < entry_size:
        raise ValueError(
            f"max index size {max_index_size} is less than one entry of {entry_size} bytes"
        )
    return max_index_size // entry_size


def preallocated_size(max_index_size: int, entry_size: int) -> int:
    """Return the size in bytes that a broker gives a new index file.

    Parameters
    ----------
    max_index_size : int
        Kafka's ``segment.index.bytes``.
    entry_size : int
        8 for an offset index, 12 for a time index.

    Returns
    -------
    int
        As many bytes as whole entries fit in.

    Examples
    --------
    >>> preallocated_size(10485760, 8), preallocated_size(10485760, 12)
    (10485760, 10485756)
    """
    return max_entries(max_index_size, entry_size) * entry_size


def resized(entries: ReadableBuffer, new_size: int, entry_size: int) -> bytes:
    """Return an index file's content as a broker makes it another size.

    Parameters
    ----------
    entries : bytes-like
        The content.
    new_size : int
        Bytes; rounded down to whole entries. 8 bytes for each entry of an offset index that is
        used, 12 for one of a time index, trim a file that is closed.
    entry_size : int
        8 for an offset index, 12 for a time index.

    Returns
    -------
    bytes
        Cut at its end, or filled up with zeros.

    Notes
    -----
    Source: Kafka 2.4.0 ``AbstractIndex.resize``.

    Examples
    --------
    >>> resized(bytes(range(16)), 9, 8), len(resized(b"", 100, 12))
    (b'\\x00\\x01\\x02\\x03\\x04\\x05\\x06\\x07', 96)
    """
    size = new_size // entry_size * entry_size
    return bytes(memoryview(entries)[:size]).ljust(size, b"\0")


def is_offset_index_full(entry_count: int, max_entries: int) -> bool:
    """Tell whether an offset index has no free slot; a broker then rolls the segment."""
    return entry_count >= max_entries


def is_time_index_full(entry_count: int, max_entries: int) -> bool:
    """Tell whether a time index has only the slot kept for rolling; a broker then rolls."""
    return entry_count >= max_entries - 1


def check_offset_append(
    offset: int, *, base_offset: int, last_offset: int, entry_count: int, max_entries: int
) -> None:
    """Check that an offset index entry may be appended, by a broker's rules in their order.

    Parameters
    ----------
    offset : int
        Absolute offset of the new entry.
    base_offset : int
        Base offset of the segment.
    last_offset : int
        Absolute offset of the last entry; of no meaning while there is none.
    entry_count, max_entries : int
        Entries in the index, and how many its file holds.

    Raises
    ------
    IndexFullError
        If no slot is free.
    OutOfOrderAppendError
        If the offset is not greater than the last one.
    OffsetOverflowError
        If the offset is not within the 31 bits above the base offset.

    Notes
    -----
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
    """Decide whether a time index entry is appended, by a broker's rules in their order.

    Parameters
    ----------
    entry : TimestampOffset
        The new entry.
    base_offset : int
        Base offset of the segment.
    last_entry : TimestampOffset
        The last entry; (-1, base offset) of an empty index, as `time_index.last_entry` has it.
    entry_count, max_entries : int
        Entries in the index, and how many its file holds.
    skip_full_check : bool
        Whether the slot kept for it may be used: at roll and close.

    Returns
    -------
    bool
        False if the timestamp is not greater than the last one: nothing is to be appended.

    Raises
    ------
    IndexFullError
        If no slot is free.
    OutOfOrderAppendError
        If the index has entries and the offset or the timestamp is less than that of the last.
    OffsetOverflowError
        If the offset is not within the 31 bits above the base offset.

    Notes
    -----
    Source: Kafka 2.4.0 ``TimeIndex.maybeAppend``. A broker that runs out of slots while it skips
    the check dies of a BufferOverflowException (KAFKA-19200).
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
        raise IndexFullError(f"time index has no slot left, all {max_entries} are used")
    relative_offset(entry.offset, base_offset)
    return True
