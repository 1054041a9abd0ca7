"""Columns of records, as Arrow lays them out, as rows that can be written."""
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcpy

from kafkastore.formats.records.record_cursor cimport HeaderView, RecordView


cdef struct BinaryRows:
    const uint8_t* validity      # NULL: nothing is null
    const uint8_t* offsets       # rows + 1 int32
    const uint8_t* values
    int64_t values_size


cdef enum RowStatus:
    ROW_READ
    ROW_BROKEN                   # its columns' offsets do not lie in their bytes
    ROW_TOO_LARGE                # more headers than a record can have
    ROW_NO_MEMORY


cdef class RecordRows:
    cdef readonly Py_ssize_t rows
    cdef const uint8_t* offsets
    cdef const uint8_t* timestamps           # NULL: no record has one
    cdef BinaryRows key, value
    cdef const uint8_t* headers_validity     # NULL: no row has null for headers
    cdef const uint8_t* headers_offsets      # NULL: no record has headers
    cdef BinaryRows header_name, header_value
    cdef Py_ssize_t header_count
    cdef uint8_t* encoded                    # the headers of one row
    cdef Py_ssize_t capacity
    cdef list held

    cdef RowStatus encode_headers(self, Py_ssize_t row, RecordView* record) noexcept nogil


cdef inline int32_t int32_of(const uint8_t* buffer, Py_ssize_t row) noexcept nogil:
    cdef int32_t value
    memcpy(&value, buffer + 4 * row, 4)
    return value


cdef inline int64_t int64_of(const uint8_t* buffer, Py_ssize_t row) noexcept nogil:
    cdef int64_t value
    memcpy(&value, buffer + 8 * row, 8)
    return value


cdef inline bint is_present(const uint8_t* validity, Py_ssize_t row) noexcept nogil:
    return validity == NULL or validity[row >> 3] >> (row & 7) & 1


cdef inline bint binary_of(const BinaryRows* column, Py_ssize_t row, const uint8_t** at,
                           int32_t* size) noexcept nogil:
    """Point at a value, null with size -1; False if it is not in the bytes."""
    cdef int32_t start = int32_of(column.offsets, row), end = int32_of(column.offsets, row + 1)
    if not 0 <= start <= end <= column.values_size:
        return False
    at[0] = column.values + start
    size[0] = end - start if is_present(column.validity, row) else -1
    return True


cdef inline RowStatus row_of(RecordRows rows, Py_ssize_t row, RecordView* record) noexcept nogil:
    """Point at the fields of a row; its headers are good until the next row."""
    record.offset = int64_of(rows.offsets, row)
    record.timestamp = int64_of(rows.timestamps, row) if rows.timestamps else -1
    record.headers = record.end = NULL
    record.headers_count = 0
    if not (binary_of(&rows.key, row, &record.key, &record.key_size)
            and binary_of(&rows.value, row, &record.value, &record.value_size)):
        return ROW_BROKEN
    if rows.headers_offsets and is_present(rows.headers_validity, row):
        return rows.encode_headers(row, record)
    return ROW_READ


cdef inline int64_t offset_of(RecordRows rows, Py_ssize_t row) noexcept nogil:
    return int64_of(rows.offsets, row)


cdef inline int64_t payload_of_all(const BinaryRows* column, Py_ssize_t rows) noexcept nogil:
    """Count the bytes of all values of rows, at most those of the column."""
    cdef int64_t size = <int64_t> int32_of(column.offsets, rows) - int32_of(column.offsets, 0)
    return max(0, min(size, column.values_size))


cdef inline int64_t bytes_of_all(RecordRows rows) noexcept nogil:
    """About what all rows take when they are written, headers apart."""
    return (payload_of_all(&rows.key, rows.rows) + payload_of_all(&rows.value, rows.rows)
            + 16 * rows.rows)


cdef bint find_header(RecordRows rows, int32_t i, HeaderView* header) noexcept nogil
