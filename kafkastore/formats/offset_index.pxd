"""Offset index entries, as C knows them, and the relative offset that the time index has too."""
from libc.stdint cimport int32_t, int64_t, uint8_t

from kafkastore.formats.big_endian cimport load_i32
from kafkastore.formats.slot_search cimport Key, wrapping_add


cdef enum:
    _RELATIVE_OFFSET_AT = 0
    _POSITION_AT = _RELATIVE_OFFSET_AT + 4
    _ENTRY_SIZE = _POSITION_AT + 4


cdef packed struct Entry:
    # One element of OFFSET_ENTRY; little-endian like every processor this package is built for.
    int64_t offset
    int32_t position


cdef inline Key offset_key(int64_t base_offset) noexcept nogil:
    return Key(_ENTRY_SIZE, _RELATIVE_OFFSET_AT, True, base_offset)


cdef inline Entry load_entry(
    const uint8_t* entries, Py_ssize_t slot, int64_t base_offset,
) noexcept nogil:
    """Load the entry in a slot; slot -1 is what a look-up without an entry answers."""
    cdef Entry entry
    cdef const uint8_t* at
    if slot < 0:
        entry.offset = base_offset
        entry.position = 0
    else:
        at = entries + slot * _ENTRY_SIZE
        entry.offset = wrapping_add(base_offset, load_i32(at + _RELATIVE_OFFSET_AT))
        entry.position = load_i32(at + _POSITION_AT)
    return entry


cpdef int32_t relative_offset(int64_t offset, int64_t base_offset) except -1
