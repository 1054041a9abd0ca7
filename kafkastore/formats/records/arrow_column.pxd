"""Columns in Arrow's layout while they are being filled, without the GIL.

The caller reserves space first; nothing here checks it.

Layout: https://arrow.apache.org/docs/format/Columnar.html
"""
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcpy, memmove, memset

from kafkastore.formats.records.arrow_memory cimport Block, grow, put


cdef enum:
    VIEW_SIZE = 16
    LARGEST_INLINE = 12      # bytes of a value that an Arrow view holds itself
    QUICK_COPY = 16          # so many bytes are copied for any smaller value: no call, no branch


cdef struct Nulls:
    Block bits               # of an Arrow bitmap: all 1 but for the rows counted here
    Py_ssize_t count


cdef struct Binary:
    Nulls nulls
    Block places             # int32 offsets, one more than rows; or views
    Block bytes
    Py_ssize_t size          # bytes used


cdef inline bint grow_nulls(Nulls* nulls, Py_ssize_t rows) noexcept nogil:
    cdef Py_ssize_t before = nulls.bits.capacity
    if not grow(&nulls.bits, (rows + 7) // 8):
        return False
    memset(nulls.bits.data + before, 0xff, nulls.bits.capacity - before)
    return True


cdef inline void forget_nulls(Nulls* nulls, Py_ssize_t rows) noexcept nogil:
    """Count only the nulls before a row, and set the bits after it to 1 again."""
    cdef Py_ssize_t row
    nulls.count = 0
    for row in range(8 * nulls.bits.capacity):
        if row >= rows:
            nulls.bits.data[row >> 3] |= <uint8_t> (1 << (row & 7))
        elif not nulls.bits.data[row >> 3] >> (row & 7) & 1:
            nulls.count += 1


cdef inline void free_binary(Binary* column) noexcept:
    put(column.nulls.bits)
    put(column.places)
    put(column.bytes)


cdef inline void begin_places(Block* offsets) noexcept:
    (<int32_t*> offsets.data)[0] = 0


cdef inline void add_null(Nulls* nulls, Py_ssize_t row) noexcept nogil:
    nulls.bits.data[row >> 3] &= <uint8_t> ~(1 << (row & 7))
    nulls.count += 1


cdef inline void copy_bytes(uint8_t* to, const uint8_t* at, Py_ssize_t size,
                            const uint8_t* readable_end) noexcept nogil:
    """Copy bytes; at `to`, there is room for `QUICK_COPY` bytes more.

    `to` is in other memory, or at least `QUICK_COPY` bytes before `at`.
    """
    if size <= QUICK_COPY and readable_end - at >= QUICK_COPY:
        memcpy(to, at, QUICK_COPY)
    else:
        memmove(to, at, size)


cdef inline void add_binary(Binary* column, Py_ssize_t row, const uint8_t* at, int32_t size
                            ) noexcept nogil:
    """Add a value; size -1 is null. Room was reserved."""
    if size > 0:
        memcpy(column.bytes.data + column.size, at, size)
        column.size += size
    elif size < 0:
        add_null(&column.nulls, row)
    (<int32_t*> column.places.data)[row + 1] = <int32_t> column.size


cdef inline void write_view(uint8_t* to, const uint8_t* at, int32_t size, int32_t buffer,
                            int64_t place) noexcept nogil:
    """Write an Arrow view of a value in a buffer; a null one (-1) as empty."""
    cdef int32_t* words = <int32_t*> to
    words[0] = max(size, 0)
    if size > LARGEST_INLINE:
        memcpy(to + 4, at, 4)
        words[2] = buffer
        words[3] = <int32_t> place
    else:
        memset(to + 4, 0, LARGEST_INLINE)
        memcpy(to + 4, at, words[0])


cdef inline void fill_i32(Block* column, Py_ssize_t row, Py_ssize_t end, int32_t value
                          ) noexcept nogil:
    """Fill at least one row."""
    cdef Py_ssize_t i
    (<int32_t*> column.data)[row] = value   # for many batches the only one
    for i in range(row + 1, end):
        (<int32_t*> column.data)[i] = value


cdef inline void fill_i64(Block* column, Py_ssize_t row, Py_ssize_t end, int64_t value
                          ) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(row, end):
        (<int64_t*> column.data)[i] = value
