"""Look at bytes that may be UTF-8, without the GIL."""
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

cdef extern from "Python.h":
    bint Py_UNICODE_ISPRINTABLE(uint32_t) noexcept nogil


cdef enum:
    EVERY_BYTE = 0x0101010101010101
    EVERY_TOP_BIT = -0x7f7f7f7f7f7f7f80


cdef inline uint64_t bytes_equal(uint64_t word, uint8_t byte) noexcept nogil:
    """Return a word that is not 0 if one of eight bytes equals `byte`."""
    cdef uint64_t changed = word ^ (<uint64_t> EVERY_BYTE * byte)
    return (changed - <uint64_t> EVERY_BYTE) & ~changed


cdef inline bint has_plain_bytes(const uint8_t* at) noexcept nogil:
    """Return whether eight bytes are printable ASCII without quotes and backslashes."""
    cdef uint64_t word
    memcpy(&word, at, 8)
    return not ((word | (word - <uint64_t> EVERY_BYTE * 0x20)
                 | bytes_equal(word, 0x22) | bytes_equal(word, 0x5c) | bytes_equal(word, 0x7f))
                & <uint64_t> EVERY_TOP_BIT)


cdef inline bint is_plain(uint8_t byte) noexcept nogil:
    return 0x20 <= byte < 0x7f and byte != 0x22 and byte != 0x5c


cdef inline Py_ssize_t count_plain(const uint8_t* at, Py_ssize_t size) noexcept nogil:
    """Count the bytes before the first that is not plain."""
    cdef Py_ssize_t i = 0
    while size - i >= 8 and has_plain_bytes(at + i):
        i += 8
    while i < size and is_plain(at[i]):
        i += 1
    return i


cdef inline bint continues(uint8_t byte) noexcept nogil:
    return byte & 0xc0 == 0x80


cdef inline int decode_character(const uint8_t* at, Py_ssize_t size, uint32_t* character
                                 ) noexcept nogil:
    """Decode one character; return its size, or 0 if the bytes are not UTF-8.

    As Python does, refuse surrogates, more bytes than needed, and what is above U+10FFFF.
    """
    cdef uint8_t first = at[0]
    if first < 0x80:
        character[0] = first
        return 1
    if first < 0xc2 or size < 2 or not continues(at[1]):
        return 0
    if first < 0xe0:
        character[0] = (first & 0x1f) << 6 | at[1] & 0x3f
        return 2
    if size < 3 or not continues(at[2]):
        return 0
    if first < 0xf0:
        character[0] = (first & 0x0f) << 12 | (at[1] & 0x3f) << 6 | at[2] & 0x3f
        return 3 if character[0] >= 0x800 and not 0xd800 <= character[0] <= 0xdfff else 0
    if first > 0xf4 or size < 4 or not continues(at[3]):
        return 0
    character[0] = ((first & 0x07) << 18 | (at[1] & 0x3f) << 12 | (at[2] & 0x3f) << 6
                    | at[3] & 0x3f)
    return 4 if 0x10000 <= character[0] <= 0x10ffff else 0


cdef inline bint is_utf8(const uint8_t* at, Py_ssize_t size) noexcept nogil:
    cdef Py_ssize_t i = 0
    cdef uint32_t character
    cdef uint64_t word
    cdef int length
    while i < size:
        if size - i >= 8:
            memcpy(&word, at + i, 8)
            if not word & <uint64_t> EVERY_TOP_BIT:
                i += 8
                continue
        length = decode_character(at + i, size - i, &character)
        if length == 0:
            return False
        i += length
    return True


cdef inline uint8_t short_escape(uint32_t character) noexcept nogil:
    """Return the letter after the backslash for a character of a line; 0 for others."""
    if character == 0x0a:
        return c"n"
    if character == 0x0d:
        return c"r"
    if character == 0x09:
        return c"t"
    return c"\\" if character == 0x5c else 0


cdef inline bint is_printable(const uint8_t* at, Py_ssize_t size) noexcept nogil:
    """Return whether bytes are UTF-8, each character printable or with an escape."""
    cdef Py_ssize_t i = 0
    cdef uint32_t character
    cdef int length
    while True:
        i += count_plain(at + i, size - i)
        if i >= size:
            return True
        length = decode_character(at + i, size - i, &character)
        if length == 0 or not (short_escape(character) or Py_UNICODE_ISPRINTABLE(character)):
            return False
        i += length
