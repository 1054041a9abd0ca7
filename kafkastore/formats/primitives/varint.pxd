"""Zig-zag varints: seven bits a byte, lowest first, as in protocol buffers.

They are read by a cursor with a sticky error: read fields straight down, check ``failed`` once.  No
byte at or past ``end`` is read.

Source: Kafka 2.4.0 ``ByteUtils``.
"""
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t


cdef extern from *:
    """
    #define KAFKASTORE_UNLIKELY(condition) __builtin_expect(!!(condition), 0)
    """
    bint unlikely "KAFKASTORE_UNLIKELY" (bint) noexcept nogil
    int __builtin_clzll(unsigned long long) noexcept nogil


cdef struct Cursor:
    const uint8_t* at
    const uint8_t* end
    bint failed


cdef struct Varlong:
    int64_t value
    const uint8_t* end       # first byte after it; NULL: corrupt


cdef inline int64_t zig_zag(uint64_t raw) noexcept nogil:
    return <int64_t> (raw >> 1) ^ -<int64_t> (raw & 1)


cdef inline Varlong long_varlong(const uint8_t* at, const uint8_t* end) noexcept nogil:
    """Read a varint of any length, at most ten bytes."""
    cdef uint64_t raw = 0
    cdef int shift = 0
    while at < end and shift <= 63:
        raw |= <uint64_t> (at[0] & 127) << shift
        if at[0] < 128:
            return Varlong(zig_zag(raw), at + 1)
        at += 1
        shift += 7
    return Varlong(0, NULL)


cdef inline int64_t read_varlong(Cursor* cursor) noexcept nogil:
    """Read a zig-zag varint of at most ten bytes; those of one and two bytes fast."""
    cdef const uint8_t* at = cursor.at
    cdef Varlong read
    if cursor.end - at >= 2:
        if at[0] < 128:
            cursor.at = at + 1
            return zig_zag(at[0])
        if at[1] < 128:
            cursor.at = at + 2
            return zig_zag(<uint64_t> at[1] << 7 | (at[0] & 127))
    # Values, not the cursor's address: it can then stay in registers.
    read = long_varlong(at, cursor.end)
    if read.end == NULL:
        cursor.failed = True
        return 0
    cursor.at = read.end
    return read.value


cdef inline int32_t read_varint(Cursor* cursor) noexcept nogil:
    """Read a zig-zag varint that must fit 32 bits."""
    cdef int64_t value = read_varlong(cursor)
    if value != <int32_t> value:
        cursor.failed = True
        return 0
    return <int32_t> value


cdef inline uint64_t sign_lowest(int64_t value) noexcept nogil:
    """Move the sign to the lowest bit: small numbers of either sign are short."""
    return <uint64_t> value << 1 ^ <uint64_t> (value >> 63)


cdef inline int varint_size(int64_t value) noexcept nogil:
    """Bytes that `write_varint` writes: one for seven bits, at most ten."""
    return (64 - __builtin_clzll(sign_lowest(value) | 1) + 6) // 7


cdef inline uint8_t* write_varint(uint8_t* at, int64_t value) noexcept nogil:
    """Write a varint, the same for 32 and 64 bits; return the place after it."""
    cdef uint64_t raw = sign_lowest(value)
    while raw > 127:
        at[0] = <uint8_t> (raw | 128)
        raw >>= 7
        at += 1
    at[0] = <uint8_t> raw
    return at + 1
