"""Columns of records in Arrow's layout, as rows that can be written.

The reverse of ``record_columns``: `record_builder` writes the columns of such a result through
these rows, without a Python object for each record.

Layout: https://arrow.apache.org/docs/format/Columnar.html
"""
cimport cython
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t
from libc.stdlib cimport free, realloc

from kafkastore.formats.records.record_cursor cimport HeaderView, RecordView
from kafkastore.formats.records.record_writer cimport header_size, write_header

from kafkastore.errors import ArgumentValueError

cdef uint8_t NOTHING = 0

cdef frozenset NEEDED_COLUMNS = frozenset({"offset", "timestamp", "key", "value"})


@cython.final
cdef class RecordRows:
    """The rows of columns, after a check that the buffers are large enough for them.

    `columns` is as for `record_builder.build_batch_from_columns`. Raises ValueError if a column is
    missing, or a buffer is shorter than its rows.
    """

    def __cinit__(self, Py_ssize_t rows, columns):
        if missing := NEEDED_COLUMNS - columns.keys():
            raise ArgumentValueError("columns", f"a mapping with {sorted(missing)}",
                                     sorted(columns))
        if not 0 <= rows <= INT32_MAX:
            raise ArgumentValueError("rows", f"from 0 to {INT32_MAX}", rows)
        self.rows, self.held = rows, []
        self.offsets = data_of(self, "offset", columns["offset"], 8 * rows)
        if columns["timestamp"] is not None:
            self.timestamps = data_of(self, "timestamp", columns["timestamp"], 8 * rows)
        self.key = binary_rows(self, "key", columns["key"], rows)
        self.value = binary_rows(self, "value", columns["value"], rows)
        if "headers" in columns:
            _, validity, offsets, count, names, values = columns["headers"]
            if not 0 <= count <= INT32_MAX:
                raise ArgumentValueError("headers", f"from 0 to {INT32_MAX} in number", count)
            self.header_count = count
            self.headers_validity = validity_of(self, "headers", validity, rows)
            self.headers_offsets = data_of(self, "headers", offsets, 4 * (rows + 1))
            self.header_name = binary_rows(self, "headers", names, count)
            self.header_value = binary_rows(self, "headers", values, count)

    def __dealloc__(self):
        free(self.encoded)

    cdef RowStatus encode_headers(self, Py_ssize_t row, RecordView* record) noexcept nogil:
        """Encode names and values of a row's headers, and let the record point at them."""
        cdef int32_t start = int32_of(self.headers_offsets, row)
        cdef int32_t end = int32_of(self.headers_offsets, row + 1), i
        cdef HeaderView header
        cdef int64_t size = 0
        cdef uint8_t* at
        if not 0 <= start <= end <= self.header_count:
            return ROW_BROKEN
        for i in range(start, end):
            if not find_header(self, i, &header):
                return ROW_BROKEN
            size += header_size(&header)
            if size > INT32_MAX:
                return ROW_TOO_LARGE
        if size > self.capacity:
            at = <uint8_t*> realloc(self.encoded, 2 * size)
            if at == NULL:
                return ROW_NO_MEMORY
            self.encoded = at
            self.capacity = 2 * size
        at = self.encoded
        for i in range(start, end):
            find_header(self, i, &header)
            at = write_header(at, &header)
        record.headers_count = end - start
        record.headers = self.encoded
        record.end = at
        return ROW_READ


cdef bint find_header(RecordRows rows, int32_t i, HeaderView* header) noexcept nogil:
    """Point at a header; False if it is corrupt or its name is null."""
    return (binary_of(&rows.header_name, i, &header.name, &header.name_size)
            and header.name_size >= 0
            and binary_of(&rows.header_value, i, &header.value, &header.value_size))


cdef const uint8_t* data_of(RecordRows rows, str column, buffer, Py_ssize_t least) except NULL:
    """Return the bytes of a buffer, kept alive; raise if fewer than `least`."""
    cdef const uint8_t[::1] data = memoryview(buffer).cast("B")
    if data.shape[0] < least:
        raise ArgumentValueError(column, f"a buffer of at least {least} bytes", data.shape[0])
    rows.held.append(data)
    return &data[0] if data.shape[0] else &NOTHING


cdef const uint8_t* validity_of(RecordRows rows, str column, buffer,
                                Py_ssize_t count) except? NULL:
    """Return a validity bitmap; as in Arrow, None means that nothing is null."""
    if buffer is None:
        return NULL
    return data_of(rows, column, buffer, (count + 7) // 8)


cdef BinaryRows binary_rows(RecordRows rows, str column, parts, Py_ssize_t count) except *:
    """Return a binary column; Arrow omits the bytes if all values are empty or null."""
    cdef BinaryRows binary
    _, validity, offsets, values = parts
    values = b"" if values is None else values
    binary.validity = validity_of(rows, column, validity, count)
    binary.offsets = data_of(rows, column, offsets, 4 * (count + 1))
    binary.values = data_of(rows, column, values, 0)
    binary.values_size = memoryview(values).nbytes
    return binary
