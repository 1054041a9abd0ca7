"""Zig-zag varints, written: the other half of ``varint``.

Source: Kafka 2.4.0 ``ByteUtils.writeVarint``, ``writeVarlong`` and ``sizeOfVarlong``.
"""
from libc.stdint cimport int64_t, uint8_t, uint64_t


cdef extern from *:
    int __builtin_clzll(unsigned long long) noexcept nogil


cdef inline uint64_t sign_lowest(int64_t value) noexcept nogil:
    """Move the sign to the lowest bit, so that small numbers of either sign are short."""
    return <uint64_t> value << 1 ^ <uint64_t> (value >> 63)


cdef inline int varint_size(int64_t value) noexcept nogil:
    """Bytes that `write_varint` writes: one for seven bits, at most ten."""
    return (64 - __builtin_clzll(sign_lowest(value) | 1) + 6) // 7


cdef inline uint8_t* write_varint(uint8_t* at, int64_t value) noexcept nogil:
    """Write a varint of 32 bits or 64, which look the same, and return the place behind it."""
    cdef uint64_t raw = sign_lowest(value)
    while raw > 127:
        at[0] = <uint8_t> (raw | 128)
        raw >>= 7
        at += 1
    at[0] = <uint8_t> raw
    return at + 1
