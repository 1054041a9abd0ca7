"""Entries of the offset index and the time index, as C knows them."""
from libc.stdint cimport int32_t, int64_t, uint8_t

from kafkastore.formats.primitives.big_endian cimport store_i32, store_i64
from kafkastore.formats.indexes.slot_search cimport Key, key_of, slots_before_padding


cdef enum:
    # An int64 timestamp or an int32 relative offset, then an int32.
    OFFSET_ENTRY_SIZE = 4 + 4
    TIME_ENTRY_SIZE = 8 + 4


cdef struct Layout:
    # The entries of one file. A lookup without an entry answers (no_key, origin of the value).
    Key key                  # rises strictly: an offset, or a timestamp
    Key value                # a position, or an offset
    int64_t no_key
    bint is_time


cdef struct Entry:
    int64_t key
    int64_t value


# One element each of OFFSET_ENTRY and TIME_ENTRY, aligned or not; little-endian like every
# processor this package is built for.
cdef packed struct OffsetEntry:
    int64_t offset
    int32_t position


cdef packed struct TimeEntry:
    int64_t timestamp
    int64_t offset


cdef inline Layout offset_layout(int64_t base_offset) noexcept nogil:
    return Layout(Key(OFFSET_ENTRY_SIZE, 0, True, base_offset),
                  Key(OFFSET_ENTRY_SIZE, 4, True, 0), base_offset, False)


cdef inline Layout time_layout(int64_t base_offset) noexcept nogil:
    return Layout(Key(TIME_ENTRY_SIZE, 0, False, 0),
                  Key(TIME_ENTRY_SIZE, 8, True, base_offset), -1, True)


cdef inline Layout layout_of(bint is_time, int64_t base_offset) noexcept nogil:
    return time_layout(base_offset) if is_time else offset_layout(base_offset)


cdef inline Entry load_entry(
    const uint8_t* entries, Py_ssize_t slot, Layout layout
) noexcept nogil:
    """Load the entry in a slot; slot -1 is that of a lookup without an entry."""
    if slot < 0:
        return Entry(layout.no_key, layout.value.origin)
    return Entry(key_of(entries, slot, layout.key), key_of(entries, slot, layout.value))


cdef inline OffsetEntry load_offset_entry(
    const uint8_t* entries, Py_ssize_t slot, int64_t base_offset
) noexcept nogil:
    cdef Entry entry = load_entry(entries, slot, offset_layout(base_offset))
    return OffsetEntry(entry.key, <int32_t> entry.value)


cdef inline TimeEntry load_time_entry(
    const uint8_t* entries, Py_ssize_t slot, int64_t base_offset
) noexcept nogil:
    cdef Entry entry = load_entry(entries, slot, time_layout(base_offset))
    return TimeEntry(entry.key, entry.value)


cdef inline void store_offset_entry(
    uint8_t* at, int32_t relative_offset, int32_t position
) noexcept nogil:
    store_i32(at, relative_offset)
    store_i32(at + 4, position)


cdef inline void store_time_entry(
    uint8_t* at, int64_t timestamp, int32_t relative_offset
) noexcept nogil:
    store_i64(at, timestamp)
    store_i32(at + 8, relative_offset)


cdef inline Py_ssize_t used_time_slots(
    const uint8_t* entries, Py_ssize_t count, Py_ssize_t slots_of_file
) noexcept nogil:
    """Count the slots before the padding; a trimmed file of one slot has none."""
    return count if slots_of_file == 1 else slots_before_padding(entries, count, TIME_ENTRY_SIZE)


cdef inline Py_ssize_t first_slot_out_of_order(
    const uint8_t* entries, Py_ssize_t count, Layout relative
) noexcept nogil:
    """Find the first slot that breaks the order of true entries; -1: none.

    Keys and positions rise strictly, offsets of a time index do not fall.  Relative offsets are
    compared, by a layout of base offset 0: absolute ones may wrap.
    """
    cdef Py_ssize_t slot
    cdef int64_t key, value, last_key = -1, last_value = 0
    for slot in range(count):
        key, value = key_of(entries, slot, relative.key), key_of(entries, slot, relative.value)
        if key <= last_key or value < last_value + (not relative.is_time):
            return slot
        last_key, last_value = key, value
    return -1


cpdef int32_t relative_offset(int64_t offset, int64_t base_offset) except -1
