"""A ``.log`` file, read by ``pread`` in pieces into reused memory.

An error of the system is reported where the bytes are needed, and not before: a header before a bad
sector is read like any other.
"""
from libc.errno cimport EINTR, EIO, errno
from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport realloc
from posix.unistd cimport pread

from kafkastore.formats.primitives.big_endian cimport load_i64
from kafkastore.formats.records.batch_header cimport (
    HEADER_BAD_LENGTH,
    HEADER_BAD_MAGIC,
    RECORDS_AT,
    SMALLEST_HEADER,
    BatchHeader,
    HeaderStatus,
    parse_header,
)

from kafkastore.reads cimport have


cdef enum SearchOutcome:
    IS_FOUND
    IS_NONE
    IS_WRAPPER               # its first offset is known only after decompression
    IS_COMPRESSED
    IS_BROKEN_RECORDS
    IS_NO_BATCH              # the file continues, and no whole batch begins here
    IS_OUT_OF_ORDER          # offsets that go back, or leave the segment
    IS_CONTRADICTED          # found, but the next batch begins before the one found ends
    IS_UNREADABLE            # an error of the system
    IS_OUT_OF_MEMORY


cdef struct Window:
    # Bytes of the file from `start` on.
    int descriptor
    int64_t file_size
    uint8_t* bytes
    Py_ssize_t capacity
    Py_ssize_t smallest      # is read at least
    int64_t start
    Py_ssize_t size
    int error                # why there are not more; 0: the file ends


cdef inline Py_ssize_t read_some(
    int descriptor, uint8_t* buffer, Py_ssize_t size, int64_t position, int* error
) noexcept nogil:
    """Read so many bytes, or those before an error of the system (0: the end of the file)."""
    cdef Py_ssize_t got, done = 0
    error[0] = 0
    if not have(descriptor, position, position + size):
        error[0] = EIO
        return 0
    while done < size:
        got = pread(descriptor, buffer + done, size - done, position + done)
        if got < 0:
            if errno == EINTR:
                continue
            error[0] = errno
            break
        if got == 0:
            break
        done += got
    return done


cdef inline bint read_at(
    int descriptor, uint8_t* buffer, Py_ssize_t size, int64_t position
) noexcept nogil:
    """Read just so many bytes; False where they are not there, or can't be read."""
    cdef int error
    return read_some(descriptor, buffer, size, position, &error) == size


cdef inline SearchOutcome fill(Window* window, int64_t position, int64_t wanted) noexcept nogil:
    """Have so many bytes from a position in the window, or all that there are."""
    cdef int64_t left = window.file_size - position
    cdef uint8_t* larger
    wanted = min(wanted, left)
    if window.start <= position and position + wanted <= window.start + window.size:
        return IS_FOUND
    wanted = min(max(wanted, window.smallest), left)
    if wanted > window.capacity:
        larger = <uint8_t*> realloc(window.bytes, wanted)
        if larger == NULL:
            return IS_OUT_OF_MEMORY
        window.bytes = larger
        window.capacity = wanted
    window.start = position
    # An error is reported only if more is needed than could be read.
    window.size = read_some(window.descriptor, window.bytes, wanted, position, &window.error)
    return IS_FOUND


cdef inline SearchOutcome cut_short(const Window* window) noexcept nogil:
    """Bytes that should be there are not: lost by an error, or cut off meanwhile."""
    return IS_UNREADABLE if window.error else IS_NONE


cdef inline SearchOutcome read_header(
    Window* window, int64_t position, BatchHeader* header
) noexcept nogil:
    """Read the header of a whole batch; IS_NONE at the end of the file."""
    cdef int64_t left = window.file_size - position, here
    cdef SearchOutcome outcome
    cdef HeaderStatus status
    if left <= 0:
        return IS_NONE
    # A frame that ends with the file is not read, as in Kafka's FileLogInputStream.
    if left <= SMALLEST_HEADER:
        return IS_NO_BATCH
    outcome = fill(window, position, RECORDS_AT)
    if outcome != IS_FOUND:
        return outcome
    here = window.start + window.size - position
    header.size = 0
    header.position = position
    status = parse_header(window.bytes + (position - window.start), here, header)
    if status == HEADER_BAD_LENGTH or status == HEADER_BAD_MAGIC:
        # A batch that extends beyond the end is torn, whatever its magic.
        return IS_NO_BATCH
    if header.size > left:
        return IS_NO_BATCH
    if header.size == 0 or here < min(header.size, <int64_t> RECORDS_AT):
        return cut_short(window)
    return IS_FOUND


cdef inline bint peek_offset(
    const Window* window, int64_t position, int64_t* offset
) noexcept nogil:
    """Read the offset that a batch begins with; False if it can't be read."""
    cdef uint8_t bytes[8]
    if window.start <= position and position + 8 <= window.start + window.size:
        offset[0] = load_i64(window.bytes + (position - window.start))
        return True
    if position + 8 > window.file_size:
        return False
    if not read_at(window.descriptor, bytes, 8, position):
        return False
    offset[0] = load_i64(bytes)
    return True
