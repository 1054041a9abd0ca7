"""Decompression and errors of single batches and `record_columns`."""
from libc.stdint cimport int64_t, uint8_t

from kafkastore.formats.records.batch_header cimport BatchHeader

cdef Py_ssize_t compressed_part(
    const BatchHeader* header, const uint8_t* batch, const uint8_t** part
) noexcept nogil
cdef int codec_of(const BatchHeader* header) noexcept nogil
cdef object broken(str reason, const BatchHeader* header)
cdef object records_of(const uint8_t[::1] batch, const BatchHeader* header, int64_t limit)
