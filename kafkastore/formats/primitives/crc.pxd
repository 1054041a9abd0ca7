"""The checksum functions, for loops without the GIL.

A module that cimports these asks ``crc_functions()`` once, at its import: the constants and the
choice of a kernel live in ``crc`` alone.
"""
from libc.stdint cimport uint8_t, uint32_t

ctypedef uint32_t (*crc_function)(uint32_t, const uint8_t*, size_t) noexcept nogil


cdef struct Crc:
    crc_function crc32c
    crc_function crc32


cdef Crc crc_functions() noexcept
