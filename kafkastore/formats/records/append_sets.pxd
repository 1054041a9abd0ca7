"""The C structure of what one append adds to a segment."""
from libc.stdint cimport int64_t

from kafkastore.formats.records.batch_header cimport BatchHeader


cdef struct AppendSet:
    int64_t size             # bytes
    int64_t first_offset     # -1: known only after decompression
    int64_t last_offset
    int64_t largest_timestamp
    int64_t offset_of_max_timestamp


cdef class AppendSets:
    cdef AppendSet* items
    cdef BatchHeader* batches
    cdef readonly Py_ssize_t count, batch_count
    cdef readonly bint has_producers, has_old_messages
    cdef readonly int codecs

    cdef void count_batch(self, const BatchHeader* header) noexcept
    cdef AppendSet* item(self, Py_ssize_t index) except NULL
