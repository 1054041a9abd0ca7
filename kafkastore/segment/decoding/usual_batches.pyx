"""Read the usual batches of a log straight into columns, without Python.

A batch is usual if nothing about it needs a closer look: it is whole, its checksum is right, its
offsets follow those before it, the batch after it begins after it ends, and its records can be
decompressed here. Reading ends before the first batch that is not; `LogFile.runs` then says what it
is.

Each batch is checked and decoded while its bytes are in the core's own cache.
"""
from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memmove

from kafkastore.formats.primitives.big_endian cimport load_i64
from kafkastore.formats.records.arrow_memory cimport Block
from kafkastore.formats.records.batch_header cimport (
    CODEC_MASK,
    HEADER_NEEDS_BYTES,
    HEADER_WHOLE,
    BatchHeader,
    HeaderStatus,
    first_offset_of,
    has_offsets_within,
    is_crc_valid,
    parse_header,
)
from kafkastore.formats.records.record_columns cimport (
    APPENDED,
    NO_MEMORY,
    DecodeOutcome,
    RecordColumns,
)
from kafkastore.formats.state.aborted_batches cimport AbortedBatches, is_aborted
from kafkastore.reads cimport check_fetched
from kafkastore.segment.log_window cimport read_some

# A call ends after so many bytes even if it finds no rows: the reading may have been stopped.
cdef int64_t MOST_BYTES = 16 * 1024 * 1024

cdef enum:
    OFFSET_SIZE = 8          # what is looked at of the batch after the last one

cdef Stop append_batches(
    RecordColumns columns, Progress* progress, const uint8_t* data, Py_ssize_t size, bint is_apart
) noexcept nogil:
    """Append the batches whose bytes were read."""
    cdef const uint8_t* at = data
    cdef Py_ssize_t left = size
    cdef BatchHeader header
    cdef HeaderStatus status
    cdef DecodeOutcome outcome
    cdef int64_t first
    while True:
        header.size = 0
        status = parse_header(at, left, &header)
        progress.next_size = header.size
        if status == HEADER_NEEDS_BYTES:
            return NEEDS_MORE
        if status != HEADER_WHOLE or progress.position + header.size > progress.end:
            return IS_OVER
        if left - header.size < OFFSET_SIZE:
            return NEEDS_MORE
        if (not has_offsets_within(&header, progress.smallest, progress.largest)
                or load_i64(at + header.size) <= header.last_offset):
            return IS_OVER
        first = first_offset_of(&header)
        if header.attributes & CODEC_MASK and not is_apart:
            return IS_COMPRESSED
        if columns.is_full(&header):
            return IS_PAUSED
        if progress.verify_crc and not is_crc_valid(at, &header):
            return IS_OVER
        if not (progress.aborted.count and is_aborted(&progress.aborted, &header)):
            outcome = columns.append_usual(&header, data, at, data + size, progress.smallest,
                                           progress.check_all)
            if outcome != APPENDED:
                return IS_OUT_OF_MEMORY if outcome == NO_MEMORY else IS_OVER
            first = columns.first_offset
        columns.is_compressed = header.attributes & CODEC_MASK != 0
        if not progress.has_batches:
            progress.has_batches = True
            progress.first_offset = first
        progress.smallest = header.last_offset + 1
        progress.position += header.size
        at += header.size
        left -= header.size
        if progress.smallest >= progress.end_offset:
            return IS_OVER


cdef Stop decode_usual(RecordColumns columns, Progress* progress) noexcept nogil:
    """Decode batches until the columns are full or the range ends."""
    cdef int64_t begun = progress.position, before, readable
    cdef Py_ssize_t wanted = progress.read_size, left = 0, got, tail = 0
    cdef uint8_t* data
    cdef Block* block = NULL
    cdef Block* block_before
    cdef Stop stop
    cdef int error
    while progress.position < progress.end:
        before = progress.position
        if before - begun >= MOST_BYTES:
            return IS_PAUSED
        readable = min(progress.end + OFFSET_SIZE, progress.size) - before
        wanted = min(wanted, readable)
        block_before = block
        block = columns.block_for_log()
        data = columns.room_for_log(wanted)
        if data == NULL:
            return IS_OUT_OF_MEMORY
        if block != block_before:
            left = 0
        left = min(left, wanted)
        memmove(data, block.data + tail, left)
        got = left + read_some(progress.descriptor, data + left, wanted - left, before + left,
                               &error)
        stop = append_batches(columns, progress, data, got, block == &columns.compressed)
        left = got - (progress.position - before)
        tail = data + got - left - block.data
        if stop == IS_COMPRESSED:
            columns.is_compressed = True
        elif stop != NEEDS_MORE:
            return stop
        elif progress.position > before:
            wanted = progress.read_size
        elif got < wanted or wanted == readable or progress.next_size + OFFSET_SIZE > readable:
            return IS_OVER
        else:
            wanted = max(progress.next_size, wanted) + OFFSET_SIZE
    return IS_OVER


cdef Progress begin_at(int descriptor, int64_t position, int64_t end, int64_t size,
                       int64_t smallest, int64_t largest, int64_t end_offset,
                       AbortedBatches aborted, bint verify_crc, bint check_all,
                       Py_ssize_t read_size):
    """Return the progress before the first batch; see `read_usual`."""
    cdef Progress progress
    progress.descriptor = descriptor
    progress.position, progress.end, progress.size = position, end, size
    progress.first_offset = progress.smallest = smallest
    progress.largest, progress.end_offset = largest, end_offset
    progress.aborted.first, progress.aborted.count = NULL, 0
    if aborted is not None:
        progress.aborted = aborted.txns
    progress.verify_crc, progress.check_all = verify_crc, check_all
    progress.has_batches = False
    progress.read_size, progress.next_size = read_size, 0
    return progress


def read_usual(
    RecordColumns columns not None, int descriptor, int64_t position, int64_t end, int64_t size, *,
    int64_t smallest, int64_t largest, int64_t end_offset, AbortedBatches aborted, bint verify_crc,
    bint check_all, Py_ssize_t read_size,
):
    """Decode the usual batches from a batch's byte position on.

    They end at byte `end` at most, of a file of `size` bytes, and have offsets from `smallest` to
    `largest`, inclusive; none follows one that reaches `end_offset`, exclusive. Batches that are
    `aborted` give no rows. With `check_all`, offsets of compressed messages are checked even if
    none is wanted. `read_size` bytes are read at once, and more of a larger batch.

    Returns the position after the batches, the offset of the first one, the offset after the last
    one, and whether the caller has its turn: the columns may be full. The position is the same if
    there are none. Raises `RemoteStoreError` if bytes can't be fetched; the columns keep the
    batches before them.
    """
    cdef Progress progress = begin_at(descriptor, position, end, size, smallest, largest,
                                      end_offset, aborted, verify_crc, check_all, read_size)
    cdef Stop stop
    columns.check_idle()
    columns.is_busy = True
    with nogil:
        stop = decode_usual(columns, &progress)
    columns.is_busy = False
    check_fetched()
    if stop == IS_OUT_OF_MEMORY:
        raise MemoryError
    return progress.position, progress.first_offset, progress.smallest, stop == IS_PAUSED
