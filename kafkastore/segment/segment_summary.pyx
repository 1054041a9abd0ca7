"""A segment's times from a few reads of its files, without Python objects.

A lookup in a whole store does this for tens of thousands of segments: it opens each file, reads the
few places that matter, and closes it, without the GIL.

Errors are not examined here: the result is None for a missing file, for anything but a regular
file, for an index that is too large to read at once, and for one that can't be read.

Source: Kafka 2.4.0 ``TimeIndex.lastEntry``, ``LogSegment.largestTimestamp``.
"""
from libc.errno cimport ENXIO, errno
from libc.stdint cimport INT32_MAX, int64_t, uint8_t
from libc.stdlib cimport free, malloc
from posix.fcntl cimport O_CLOEXEC, O_NOCTTY, O_NONBLOCK, O_RDONLY, open
from posix.stat cimport S_ISREG, fstat, struct_stat
from posix.types cimport off_t
from posix.unistd cimport close, lseek

import os

from kafkastore.formats.records.batch_header cimport BatchHeader
from kafkastore.formats.indexes.index_format cimport (
    OFFSET_ENTRY_SIZE,
    TIME_ENTRY_SIZE,
    OffsetEntry,
    TimeEntry,
    first_slot_out_of_order,
    load_offset_entry,
    load_time_entry,
    offset_layout,
    time_layout,
    used_time_slots,
)
from kafkastore.formats.primitives.named_pair cimport new_named_pair
from kafkastore.formats.records.record_cursor cimport is_wrapper
from kafkastore.formats.indexes.slot_search cimport search_slots, slots_before_padding
from kafkastore.reads cimport check_fetched, is_remote_file
from kafkastore.segment.log_window cimport (
    IS_FOUND,
    IS_NO_BATCH,
    IS_NONE,
    IS_WRAPPER,
    SearchOutcome,
    Window,
    read_at,
    read_header,
)

from kafkastore.formats.indexes.entries import TimestampOffset


cdef extern from *:
    """
    #include <unistd.h>
    #ifdef SEEK_HOLE
    #define KAFKASTORE_SEEK_HOLE SEEK_HOLE
    #define KAFKASTORE_SEEK_DATA SEEK_DATA
    #else
    #define KAFKASTORE_SEEK_HOLE -1
    #define KAFKASTORE_SEEK_DATA -1
    #endif
    """
    const int SEEK_HOLE "KAFKASTORE_SEEK_HOLE"
    const int SEEK_DATA "KAFKASTORE_SEEK_DATA"


cdef enum:
    TAIL_SIZE = 4092         # whole entries
    HEADER_READ = 4096
    LIKELY_PADDED = 64 * 1024
    DEFAULT_INDEX_SIZE = 10 * 1024 * 1024
    # A message without key and value, with its offset and size.
    SMALLEST_BATCH = 26


cpdef int64_t largest_used_size(int64_t log_size, Py_ssize_t entry_size) noexcept nogil:
    """Return an index's largest size in bytes: an entry a batch and one for the roll.

    At least Kafka's default preallocation: a crash may truncate a log and leave its index.
    """
    log_size = min(log_size, <int64_t> INT32_MAX)  # no log is larger, whatever its file's size is
    return max(<int64_t> DEFAULT_INDEX_SIZE, (log_size // SMALLEST_BATCH + 1) * entry_size)


cdef int open_regular(const char* path, int64_t* size) noexcept nogil:
    """Open a regular file for reading; return its descriptor, or a negative number."""
    cdef struct_stat status
    cdef int descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)
    if descriptor < 0:
        return -1
    if fstat(descriptor, &status) or not S_ISREG(status.st_mode):
        close(descriptor)
        return -1
    size[0] = status.st_size
    return descriptor


cdef int64_t end_of_data(int descriptor, int64_t size) noexcept nogil:
    """Return where the hole at the end of a preallocated file begins."""
    cdef off_t hole
    if size < LIKELY_PADDED or SEEK_HOLE < 0 or is_remote_file(descriptor):
        return size
    hole = lseek(descriptor, 0, SEEK_HOLE)
    # ENXIO: no data follows.
    if hole < 0 or hole >= size or lseek(descriptor, hole, SEEK_DATA) >= 0 or errno != ENXIO:
        return size
    return hole


cdef int64_t end_of_entries(int descriptor, int64_t size, Py_ssize_t entry_size) noexcept nogil:
    """Return the end of whole entries, or of the one that the last hole is in."""
    cdef int64_t slots = (end_of_data(descriptor, size) + entry_size - 1) // entry_size
    return min(slots, size // entry_size) * entry_size


cdef bint find_last_entry(
    const char* path, int64_t base_offset, bint with_padding, TimeEntry* last
) noexcept nogil:
    cdef uint8_t tail[TAIL_SIZE]
    cdef int64_t size, end
    cdef Py_ssize_t here, count, slots
    cdef bint is_read = True
    cdef int descriptor = open_regular(path, &size)
    if descriptor < 0:
        return False
    slots = size // TIME_ENTRY_SIZE
    end = slots * TIME_ENTRY_SIZE
    if not with_padding:
        end = end_of_entries(descriptor, size, TIME_ENTRY_SIZE)
    last[0] = load_time_entry(tail, -1, base_offset)
    while end > 0:
        here = min(end, <int64_t> TAIL_SIZE)
        is_read = read_at(descriptor, tail, here, end - here)
        if not is_read:
            break
        count = here // TIME_ENTRY_SIZE
        if not with_padding:
            count = used_time_slots(tail, count, slots)
        if count:
            last[0] = load_time_entry(tail, count - 1, base_offset)
            break
        end -= here
    close(descriptor)
    return is_read


def last_time_entry(path, int64_t base_offset, *, bint with_padding):
    """Read the last entry of a time index file; reads only it and the padding.

    Returns a `TimestampOffset`, as `TimeIndex.last_entry` or, if padding counts as entries,
    `last_entry_with_padding`; None if the file is missing or can't be read.
    """
    cdef bytes name = os.fsencode(path)
    cdef const char* c_name = name
    cdef TimeEntry last
    cdef bint is_read
    with nogil:
        is_read = find_last_entry(c_name, base_offset, with_padding, &last)
    check_fetched()
    return new_named_pair(TimestampOffset, last.timestamp, last.offset) if is_read else None


cdef struct Index:
    uint8_t* bytes           # the caller frees it
    Py_ssize_t count         # entries before the padding


cdef bint read_index(
    const char* path, Py_ssize_t entry_size, int64_t log_size, Index* index
) noexcept nogil:
    cdef int64_t size
    cdef Py_ssize_t slots
    cdef bint is_read = False
    cdef int descriptor = open_regular(path, &size)
    index.bytes = NULL
    index.count = 0
    if descriptor < 0:
        return False
    slots = size // entry_size
    size = end_of_entries(descriptor, size, entry_size)
    if size <= largest_used_size(log_size, entry_size):
        index.bytes = <uint8_t*> malloc(max(size, 1))
        is_read = index.bytes != NULL and read_at(descriptor, index.bytes, size, 0)
    close(descriptor)
    if is_read and entry_size == TIME_ENTRY_SIZE:
        index.count = used_time_slots(index.bytes, size // entry_size, slots)
    elif is_read:
        index.count = slots_before_padding(index.bytes, size // entry_size, entry_size)
    return is_read


cdef struct Known:
    # The results of the checks that need Python.
    int64_t wrapper_position     # -1: none
    int64_t first_offset         # of that wrapper; -1: can't be read
    int64_t end                  # the log ends here; -1: unknown


cdef struct Summary:
    int64_t base_offset
    Index times
    Index offsets
    Window window
    Known known
    int64_t position             # of the batch that was read last
    int64_t largest


cdef SearchOutcome header_at(
    Summary* summary, int64_t position, BatchHeader* header
) noexcept nogil:
    if position == summary.known.end:
        return IS_NONE
    summary.position = position
    return read_header(&summary.window, position, header)


cdef SearchOutcome check_beginning(Summary* summary) noexcept nogil:
    """Return IS_FOUND if the first entry is true for all batches before it.

    If the time index is missing, a broker starts an empty one, whatever the log already holds.
    """
    cdef TimeEntry first = load_time_entry(
        summary.times.bytes, 0, summary.base_offset)
    cdef BatchHeader header
    cdef int64_t position = 0
    cdef SearchOutcome outcome
    while True:
        outcome = header_at(summary, position, &header)
        if outcome != IS_FOUND:
            return outcome
        if header.max_timestamp > first.timestamp:
            return IS_NONE
        if header.last_offset >= first.offset:
            return IS_FOUND if header.max_timestamp == first.timestamp else IS_NONE
        position += header.size


cdef SearchOutcome find_position_before(
    Summary* summary, int64_t offset, int64_t* position
) noexcept nogil:
    """Do `LogSegment.position_before`."""
    cdef OffsetEntry entry
    cdef BatchHeader header
    cdef int64_t first_offset
    position[0] = 0
    if offset <= summary.base_offset:
        return IS_FOUND
    entry = load_offset_entry(
        summary.offsets.bytes,
        search_slots(summary.offsets.bytes, summary.offsets.count,
                     offset_layout(summary.base_offset).key, offset, True).lower,
        summary.base_offset)
    if entry.position <= 0 or header_at(summary, entry.position, &header) != IS_FOUND:
        return IS_FOUND
    first_offset = header.base_offset
    if is_wrapper(&header):
        if summary.known.wrapper_position != entry.position:
            return IS_WRAPPER
        first_offset = summary.known.first_offset
    if summary.base_offset <= first_offset <= entry.offset <= offset:
        position[0] = entry.position
    return IS_FOUND


cdef SearchOutcome find_largest(Summary* summary) noexcept nogil:
    """Find the largest timestamp from the last entry on, if that entry is true."""
    cdef TimeEntry last
    cdef BatchHeader header
    cdef int64_t position
    cdef bint has_begun = False
    cdef SearchOutcome outcome
    if (not summary.times.count
            or first_slot_out_of_order(
                summary.times.bytes, summary.times.count, time_layout(0)) >= 0):
        return IS_NONE
    outcome = check_beginning(summary)
    if outcome != IS_FOUND:
        return outcome
    last = load_time_entry(
        summary.times.bytes, summary.times.count - 1, summary.base_offset)
    outcome = find_position_before(summary, last.offset, &position)
    if outcome != IS_FOUND:
        return outcome
    summary.largest = last.timestamp
    while True:
        outcome = header_at(summary, position, &header)
        if outcome == IS_NONE:
            return IS_FOUND if has_begun else IS_NONE
        if outcome != IS_FOUND:
            return outcome
        if header.last_offset >= last.offset:
            if not has_begun and header.max_timestamp != last.timestamp:
                return IS_NONE
            has_begun = True
            summary.largest = max(summary.largest, header.max_timestamp)
        position += header.size


cdef SearchOutcome read_summary(
    Summary* summary, const char* log, const char* offsets, const char* times
) noexcept nogil:
    cdef SearchOutcome outcome = IS_NONE
    cdef Window* window = &summary.window
    summary.times.bytes = summary.offsets.bytes = NULL
    summary.offsets.count = 0
    window.bytes = NULL
    window.capacity = window.start = window.size = 0
    window.smallest = HEADER_READ
    window.descriptor = open_regular(log, &window.file_size)
    if window.descriptor < 0:
        return IS_NONE
    if read_index(
        times, TIME_ENTRY_SIZE, window.file_size, &summary.times
    ) and summary.times.count:
        # Without an offset index the log is read from its start.
        if not read_index(
            offsets, OFFSET_ENTRY_SIZE, window.file_size, &summary.offsets
        ):
            summary.offsets.count = 0
        outcome = find_largest(summary)
    close(window.descriptor)
    free(window.bytes)
    free(summary.times.bytes)
    free(summary.offsets.bytes)
    return outcome


def largest_timestamp_by_index(path, int64_t base_offset, open_log, temporary=""):
    """Find a segment's largest timestamp (ms) by its time index, if that is right.

    `path` ends with the base offset, and `temporary` follows the suffix, such as ``.swap``.
    `open_log` is called only for a check that needs Python: at a compressed batch of an old format,
    and at zeros after the last batch. Returns None if an entry is out of order, the first or the
    last does not match the log, or a file is missing or can't be read. Raises `CorruptBatchError`
    or `UnsupportedFormatError` at an impossible frame, and `SegmentGoneError`.
    """
    cdef bytes log = os.fsencode(f"{path}.log{temporary}")
    cdef bytes offsets = os.fsencode(f"{path}.index{temporary}")
    cdef bytes times = os.fsencode(f"{path}.timeindex{temporary}")
    cdef const char* log_name = log
    cdef const char* offsets_name = offsets
    cdef const char* times_name = times
    cdef Summary summary
    cdef SearchOutcome outcome
    summary.base_offset = base_offset
    summary.known.wrapper_position = summary.known.end = -1
    while True:
        with nogil:
            outcome = read_summary(&summary, log_name, offsets_name, times_name)
        check_fetched()
        if outcome == IS_FOUND:
            return summary.largest
        if outcome == IS_WRAPPER:
            with open_log() as file:
                first_offset = file.first_offset_at(summary.position)
            if summary.known.wrapper_position == summary.position:
                return None
            summary.known.wrapper_position = summary.position
            summary.known.first_offset = -1 if first_offset is None else first_offset
        elif outcome == IS_NO_BATCH and summary.known.end < 0:
            with open_log() as file:
                file.check_end(summary.position)
            summary.known.end = summary.position
        else:
            return None
