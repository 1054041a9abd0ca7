"""Zig-zag varints, as protocol buffers have them: seven bits a byte, lowest first.

A cursor with a sticky error: read fields straight down, check ``failed`` once.  No byte at or past
``end`` is read.

Source: Kafka 2.4.0 ``ByteUtils.readVarint`` and ``readVarlong``.
"""
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t


cdef struct Cursor:
    const uint8_t* at
    const uint8_t* end
    bint failed


cdef inline int64_t read_varlong(Cursor* cursor) noexcept nogil:
    """Read a zig-zag varint of at most ten bytes."""
    cdef const uint8_t* at = cursor.at
    cdef uint64_t raw = 0
    cdef int shift = 0
    if at < cursor.end and at[0] < 128:
        cursor.at = at + 1
        return <int64_t> (at[0] >> 1) ^ -<int64_t> (at[0] & 1)
    while at < cursor.end and shift <= 63:
        raw |= <uint64_t> (at[0] & 127) << shift
        if at[0] < 128:
            cursor.at = at + 1
            return <int64_t> (raw >> 1) ^ -<int64_t> (raw & 1)
        at += 1
        shift += 7
    cursor.failed = True
    return 0


cdef inline int32_t read_varint(Cursor* cursor) noexcept nogil:
    """Read a zig-zag varint that must fit 32 bits."""
    cdef int64_t value = read_varlong(cursor)
    if value != <int32_t> value:
        cursor.failed = True
        return 0
    return <int32_t> value
