# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Wrong on purpose, and compiled as the package is: sanitizers and fuzzer must notice."""
from libc.stdint cimport int32_t, uint8_t


def read_past_end(const uint8_t[::1] data not None):
    """Read the byte after the last."""
    cdef const uint8_t* at = &data[0]
    return at[data.shape[0]]


def overflow(int32_t number):
    """Add 1 to a number, be it the largest."""
    return number + <int32_t> 1


def is_magic(const uint8_t[::1] data not None):
    """Compare byte by byte: only who sees how far compiled code came finds all eight."""
    if data.shape[0] < 8 or data[0] != 0x6b:
        return False
    if data[1] != 0x61:
        return False
    if data[2] != 0x66:
        return False
    if data[3] != 0x6b:
        return False
    if data[4] != 0x61:
        return False
    if data[5] != 0xfe:
        return False
    if data[6] != 0x00:
        return False
    return data[7] == 0x2a


cdef long _written_by_all = 0


def race(long count):
    """Write to the same place as other threads, without the GIL."""
    global _written_by_all
    cdef long each
    with nogil:
        for each in range(count):
            _written_by_all += 1 + each % 2
    return _written_by_all
