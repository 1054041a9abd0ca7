"""Time index entries, as C knows them."""
from libc.stdint cimport int32_t, int64_t, uint8_t

from kafkastore.formats.big_endian cimport load_i32, load_i64
from kafkastore.formats.slot_search cimport Key, slots_before_padding, wrapping_add


cdef enum:
    _TIMESTAMP_AT = 0
    _RELATIVE_OFFSET_AT = _TIMESTAMP_AT + 8
    _ENTRY_SIZE = _RELATIVE_OFFSET_AT + 4
    _NO_TIMESTAMP = -1


cdef packed struct Entry:
    # One element of TIME_ENTRY, be it aligned or not; little-endian like every processor this
    # package is built for.
    int64_t timestamp
    int64_t offset


cdef inline Key timestamp_key() noexcept nogil:
    return Key(_ENTRY_SIZE, _TIMESTAMP_AT, False, 0)


cdef inline Entry load_entry(
    const uint8_t* entries, Py_ssize_t slot, int64_t base_offset,
) noexcept nogil:
    """Load the entry in a slot; slot -1 is what a look-up without an entry answers."""
    cdef Entry entry
    cdef const uint8_t* at
    if slot < 0:
        entry.timestamp = _NO_TIMESTAMP
        entry.offset = base_offset
    else:
        at = entries + slot * _ENTRY_SIZE
        entry.timestamp = load_i64(at + _TIMESTAMP_AT)
        entry.offset = wrapping_add(base_offset, load_i32(at + _RELATIVE_OFFSET_AT))
    return entry


cdef inline Py_ssize_t used_slots(
    const uint8_t* entries, Py_ssize_t count, Py_ssize_t slots_of_file,
) noexcept nogil:
    """Count the slots before the padding; a file of one slot was trimmed and has none."""
    return count if slots_of_file == 1 else slots_before_padding(entries, count, _ENTRY_SIZE)


cdef inline Py_ssize_t first_slot_out_of_order(
    const uint8_t* entries, Py_ssize_t count
) noexcept nogil:
    """Find the first slot that breaks the order of true entries; -1: none."""
    cdef Py_ssize_t slot
    cdef const uint8_t* at = entries
    cdef int64_t last_timestamp = _NO_TIMESTAMP
    cdef int32_t last_relative_offset = 0
    for slot in range(count):
        if (load_i64(at + _TIMESTAMP_AT) <= last_timestamp
                or load_i32(at + _RELATIVE_OFFSET_AT) < last_relative_offset):
            return slot
        last_timestamp = load_i64(at + _TIMESTAMP_AT)
        last_relative_offset = load_i32(at + _RELATIVE_OFFSET_AT)
        at += _ENTRY_SIZE
    return -1
