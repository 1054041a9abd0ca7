"""Read and check batches without Python, and keep their headers only.

A batch is checked while its bytes are in the core's own cache. The scan ends before the first bytes
that are not a whole batch; `LogFile.runs` then says what they are.
"""
from libc.stdint cimport INT64_MAX, INT64_MIN, int64_t, uint8_t

from kafkastore.formats.records.batch_header cimport (
    HEADER_NEEDS_BYTES,
    HEADER_WHOLE,
    BatchHeader,
    HeaderScan,
    scan_headers,
)
from kafkastore.reads cimport check_fetched
from kafkastore.segment.log_window cimport read_some

from kafkastore.formats.records.batch_header import bytes_of


def scan_file(
    int descriptor, int64_t position, int64_t end, uint8_t[::1] memory not None, headers not None
):
    """Scan from a batch's byte position up to byte `end`, until `headers` are full.

    `memory` is read into. Returns the number of headers (BATCH_HEADER), the position after their
    batches, and the bytes of a next batch that is larger than `memory`, or 0.
    """
    cdef uint8_t[::1] header_bytes = bytes_of(headers)
    cdef Py_ssize_t count = 0, capacity = len(headers), size, got, wanted = 0
    cdef BatchHeader* header
    cdef HeaderScan found
    cdef int error
    if capacity == 0 or memory.shape[0] == 0:
        return 0, position, 0
    header = <BatchHeader*> &header_bytes[0]
    with nogil:
        while position < end and count < capacity:
            size = min(memory.shape[0], end - position)
            got = read_some(descriptor, &memory[0], size, position, &error)
            found = scan_headers(&memory[0], got, position, header + count, capacity - count,
                                 True, False, INT64_MIN, INT64_MAX)
            count += found.count
            position += found.size
            if found.status == <int> HEADER_WHOLE and got == size:
                continue
            if found.status != <int> HEADER_NEEDS_BYTES or got < size or size == end - position:
                break
            if found.count == 0:
                if found.wanted <= end - position:
                    wanted = found.wanted
                break
    check_fetched()
    return count, position, wanted
