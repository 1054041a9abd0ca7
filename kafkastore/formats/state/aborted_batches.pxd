"""Which batches are aborted, without the GIL."""
from libc.stdint cimport int64_t

cimport cython

from kafkastore.formats.records.batch_header cimport BatchHeader


cdef packed struct AbortedTxn:
    int64_t producer_id, first_offset, last_offset, last_stable_offset


cdef struct AbortedTxns:
    const AbortedTxn* first  # sorted by producer id, then by last offset
    Py_ssize_t count

cdef bint is_aborted(const AbortedTxns* txns, const BatchHeader* header) noexcept nogil


@cython.final
cdef class AbortedBatches:
    cdef AbortedTxns txns
    cdef object kept         # the memory of `txns`
