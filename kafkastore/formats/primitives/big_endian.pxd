"""Big-endian loads and stores, byte by byte: no alignment is assumed.

Callers have already proved that the bytes are there.  Compilers turn each of these into one load
or store and one byte swap.
"""
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t


cdef inline int16_t load_i16(const uint8_t* at) noexcept nogil:
    return <int16_t> (<uint16_t> at[0] << 8 | at[1])


cdef inline int32_t load_i32(const uint8_t* at) noexcept nogil:
    return <int32_t> load_u32(at)


cdef inline int64_t load_i64(const uint8_t* at) noexcept nogil:
    return <int64_t> (<uint64_t> load_u32(at) << 32 | load_u32(at + 4))


cdef inline uint32_t load_u32(const uint8_t* at) noexcept nogil:
    return (<uint32_t> at[0] << 24 | <uint32_t> at[1] << 16
            | <uint32_t> at[2] << 8 | at[3])


cdef inline int64_t wrapping_sum(int64_t a, int64_t b) noexcept nogil:
    """Add as Java's longs do: what a file says may overflow."""
    return <int64_t> (<uint64_t> a + <uint64_t> b)


cdef inline void store_i16(uint8_t* at, int16_t value) noexcept nogil:
    at[0] = <uint8_t> (<uint16_t> value >> 8)
    at[1] = <uint8_t> value


cdef inline void store_i32(uint8_t* at, int32_t value) noexcept nogil:
    store_u32(at, <uint32_t> value)


cdef inline void store_i64(uint8_t* at, int64_t value) noexcept nogil:
    store_u32(at, <uint32_t> (<uint64_t> value >> 32))
    store_u32(at + 4, <uint32_t> <uint64_t> value)


cdef inline void store_u32(uint8_t* at, uint32_t value) noexcept nogil:
    at[0] = <uint8_t> (value >> 24)
    at[1] = <uint8_t> (value >> 16)
    at[2] = <uint8_t> (value >> 8)
    at[3] = <uint8_t> value
