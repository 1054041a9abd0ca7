"""Read the usual batches of a log straight into columns, without Python."""
from libc.stdint cimport int64_t

from kafkastore.formats.records.record_columns cimport RecordColumns
from kafkastore.formats.state.aborted_batches cimport AbortedBatches, AbortedTxns


cdef enum Stop:
    NEEDS_MORE               # the next batch, or the offset after it, is not here
    IS_COMPRESSED            # and its bytes lie where its records will
    IS_PAUSED                # the columns are full, or much was read
    IS_OVER                  # the range ends, or the next batch is unusual
    IS_OUT_OF_MEMORY


cdef struct Progress:
    int descriptor
    int64_t position, end    # of the batches
    int64_t size             # of the file: the offset after the last batch is looked at
    int64_t first_offset     # of the first batch
    int64_t smallest, largest, end_offset
    bint verify_crc, has_batches
    bint check_all           # offsets of wrappers whose messages are not wanted
    AbortedTxns aborted      # their batches give no rows
    Py_ssize_t read_size     # is read at once; more of a larger batch
    Py_ssize_t next_size     # with NEEDS_MORE; 0: unknown


cdef Progress begin_at(int descriptor, int64_t position, int64_t end, int64_t size,
                       int64_t smallest, int64_t largest, int64_t end_offset,
                       AbortedBatches aborted, bint verify_crc, bint check_all,
                       Py_ssize_t read_size)
cdef Stop decode_usual(RecordColumns columns, Progress* progress) noexcept nogil
