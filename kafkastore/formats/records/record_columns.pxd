"""Columns of records that are filled without the GIL."""
from libc.stdint cimport int32_t, int64_t, uint8_t

cimport cython

from kafkastore.formats.records.arrow_column cimport Binary, Nulls
from kafkastore.formats.records.arrow_memory cimport Block
from kafkastore.formats.records.batch_header cimport BatchHeader
from kafkastore.formats.records.decoders cimport Decoder
from kafkastore.formats.records.record_cursor cimport RecordView


cdef enum DecodeOutcome:
    APPENDED
    COMPRESSED
    BROKEN
    NO_MEMORY


@cython.final
cdef class RecordColumns:
    cdef bint want_key, want_value, want_headers, want_offset, want_timestamp, want_type
    cdef bint want_per_batch, include_control, as_views, copy_key, copy_value, in_millis
    cdef bint is_special     # bounds, headers or views are requested: records are not just copied
    cdef int64_t start_offset, end_offset, start_timestamp, end_timestamp
    cdef bint has_end_timestamp
    cdef int64_t max_decompressed_bytes
    cdef Py_ssize_t max_rows, max_bytes
    cdef readonly Py_ssize_t rows
    # The capacity of every column, and an upper bound of the bytes each one holds.
    cdef Py_ssize_t row_capacity, header_capacity
    cdef readonly Py_ssize_t bytes_bound
    cdef Binary key, value, header_name, header_value
    cdef Py_ssize_t header_count
    cdef Nulls timestamp_nulls, headers_nulls
    cdef Block offsets, timestamps, timestamp_types, header_offsets
    cdef Block epochs, producers, producer_epochs, transactional, control
    cdef list view_buffers
    cdef object viewed
    cdef int32_t view_buffer
    cdef const char* error
    cdef object columns
    cdef Decoder decoder
    cdef Block decompressed  # a batch, if its values are not requested
    cdef Block compressed    # bytes of a log, unless they lie after the values
    cdef bint is_compressed  # the next bytes of a log are likely compressed
    cdef int64_t first_offset  # of the batch appended last, as far as that was looked at
    cdef bint is_busy        # a thread decodes into the columns, without the GIL

    cdef uint8_t* room_for_log(self, Py_ssize_t size) noexcept nogil
    cdef Block* block_for_log(self) noexcept nogil
    cdef Py_ssize_t _capacity_for(self, Py_ssize_t size) noexcept nogil
    cdef bint _make_room(self, Py_ssize_t size) noexcept nogil
    cdef bint _reserve_values(self, Py_ssize_t size) noexcept nogil
    cdef bint _lies_in_room(self, const uint8_t* records, Py_ssize_t size) noexcept nogil
    cdef bint is_full(self, const BatchHeader* next_header) noexcept nogil
    cdef int check_idle(self) except -1
    cdef DecodeOutcome _append(
        self, const uint8_t[::1] data, const BatchHeader* headers, int64_t origin,
        Py_ssize_t count, Py_ssize_t* first, int64_t smallest_offset
    ) except *
    cdef DecodeOutcome _append_compressed(
        self, const BatchHeader* header, const uint8_t[::1] batch, int64_t smallest_offset
    ) except *
    cdef void _view(self, object buffer)
    cdef void _unview(self, Py_ssize_t count)
    cdef bint _is_in_range(self, const BatchHeader* header) noexcept nogil
    cdef bint _is_in_time(self, int64_t timestamp) noexcept nogil
    cdef bint _is_wanted(self, const BatchHeader* header) noexcept nogil
    cdef DecodeOutcome append_usual(
        self, const BatchHeader* header, const uint8_t* buffer, const uint8_t* batch,
        const uint8_t* readable_end, int64_t smallest_offset, bint check_all
    ) noexcept nogil
    cdef DecodeOutcome _append_decompressed(
        self, const BatchHeader* header, const uint8_t* batch, int64_t smallest_offset,
        bint is_wanted
    ) noexcept nogil
    cdef DecodeOutcome _decode_decompressed(
        self, const BatchHeader* header, const uint8_t* records, Py_ssize_t size,
        int64_t smallest_offset, bint is_wanted
    ) noexcept nogil
    cdef DecodeOutcome _decode(
        self, const BatchHeader* header, const uint8_t* buffer, const uint8_t* records,
        const uint8_t* end, const uint8_t* readable_end
    ) noexcept nogil
    cdef bint _reserve_rows(self, Py_ssize_t rows) noexcept nogil
    cdef bint _reserve_bytes(self, Binary* column, Py_ssize_t more) noexcept nogil
    cdef bint _reserve_headers(self, Py_ssize_t count) noexcept nogil
    cdef void _add_views(
        self, RecordView record, Py_ssize_t row, const uint8_t* buffer
    ) noexcept nogil
    cdef bint _add_headers(self, RecordView record, Py_ssize_t row) noexcept nogil
    cdef void _fill_per_batch(self, const BatchHeader* header, Py_ssize_t end) noexcept nogil
    cdef DecodeOutcome _forget_rows(self) noexcept nogil
    cdef tuple _take_nulls(self, Nulls* nulls, Py_ssize_t rows)
    cdef tuple _take_copies(self, Binary* column, Py_ssize_t rows)
    cdef tuple _take_binary(self, Binary* column, Py_ssize_t rows)
