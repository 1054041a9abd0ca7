"""A buffer for lines of text, which is written when it is full."""
from libc.stdint cimport int64_t, uint8_t, uint32_t


cdef enum:
    BUFFER_BYTES = 64 * 1024


cdef enum QuoteStyle:
    QUOTE_ONCE          # as JSON writes it
    QUOTE_TWICE         # as CSV writes it in a cell with quotes


cdef class LineBuffer:
    cdef object write
    cdef uint8_t* data
    cdef Py_ssize_t used

    cdef int flush(self) except -1
    cdef int need(self, Py_ssize_t size) except -1 nogil
    cdef int put(self, uint8_t byte) except -1 nogil
    cdef int put_bytes(self, const uint8_t* at, Py_ssize_t size) except -1 nogil
    cdef int put_text(self, const char* text) except -1 nogil
    cdef int put_number(self, int64_t number) except -1 nogil
    cdef void put_digits(self, uint32_t number, int count) noexcept nogil
    cdef int put_time(self, int64_t timestamp) except -1 nogil
    cdef int put_hex(self, const uint8_t* at, Py_ssize_t size) except -1 nogil
    cdef int put_base64(self, const uint8_t* at, Py_ssize_t size) except -1 nogil
    cdef int put_escape(self, uint8_t letter, uint32_t number, int digits) except -1 nogil
    cdef int put_json(self, const uint8_t* at, Py_ssize_t size, bint only_ascii,
                      bint only_printable, QuoteStyle style) except -1 nogil
    cdef int put_one_line(self, const uint8_t* at, Py_ssize_t size) except -1 nogil
    cdef int put_visible(self, const uint8_t* at, Py_ssize_t size, QuoteStyle style
                         ) except -1 nogil
    cdef int put_doubled(self, const uint8_t* at, Py_ssize_t size) except -1 nogil
