"""Decompression and errors of single batches and `record_columns`."""
from libc.stdint cimport int64_t, uint8_t

from kafkastore.formats.records.batch_header cimport BatchHeader

cdef object broken(str reason, const BatchHeader* header)
cdef object records_of(const uint8_t[::1] batch, const BatchHeader* header, int64_t limit)
