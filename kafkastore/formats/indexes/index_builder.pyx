"""Build a segment's indexes from its batch headers, as recovery does.

An entry is due if more than ``index.interval.bytes`` of log lie between a batch and the last one
with an entry; the first batch never gets one. The time index then gets the largest timestamp so
far, with the last offset of the batch that reached it first, if it is larger than that of the entry
before. The last time index entry has the segment's maximum.

Source: Kafka 2.4.0 ``LogSegment.recover``; 3.8 and later write the same bytes. Up to 1.1 an offset
index entry has the first offset of its batch instead of the last.
"""
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_Resize
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t, uint64_t

from kafkastore.formats.records.batch_header cimport CONTROL_FLAG, BatchHeader
from kafkastore.formats.indexes.index_format cimport (
    OFFSET_ENTRY_SIZE,
    TIME_ENTRY_SIZE,
    store_offset_entry,
    store_time_entry,
)
from kafkastore.formats.primitives.varint cimport unlikely

from kafkastore.errors import OffsetOverflowError, OutOfOrderAppendError
from kafkastore.formats.records.batch_header import bytes_of

cdef enum BuildStatus:
    BUILT
    AFTER_MARKER
    WRONG_CRC
    OVERFLOW
    OFFSET_WENT_BACK
    TIME_WENT_BACK

cdef struct Indexes:
    # The state between two runs of headers.
    int64_t base_offset
    int64_t interval
    int64_t last_entry_position
    int64_t largest_timestamp
    int64_t offset_of_max_timestamp
    int64_t last_offset_in_index
    int64_t last_offset_in_time_index
    int64_t last_time_entry
    Py_ssize_t offset_bytes
    Py_ssize_t time_bytes
    int64_t valid_bytes
    int64_t next_offset
    int64_t record_batches_end
    int32_t largest_epoch
    bint has_first_offsets
    bint stops_after_markers
    bint has_producers


cdef bint add_offset_entry(
    Indexes* built, uint8_t* entries, int64_t offset, int64_t position
) noexcept nogil:
    """Append to the offset index; False if the offset is not above the last."""
    if offset <= built.last_offset_in_index:
        return False
    built.last_offset_in_index = offset
    store_offset_entry(entries + built.offset_bytes, <int32_t> (offset - built.base_offset),
                       <int32_t> position)
    built.offset_bytes += OFFSET_ENTRY_SIZE
    return True


cdef bint maybe_add_time_entry(Indexes* built, uint8_t* entries) noexcept nogil:
    """Append to the time index if the maximum rose; False if its offset went back."""
    if built.largest_timestamp <= built.last_time_entry:
        return True
    if built.offset_of_max_timestamp < built.last_offset_in_time_index:
        return False
    built.last_offset_in_time_index = built.offset_of_max_timestamp
    built.last_time_entry = built.largest_timestamp
    store_time_entry(entries + built.time_bytes, built.largest_timestamp,
                     <int32_t> (built.offset_of_max_timestamp - built.base_offset))
    built.time_bytes += TIME_ENTRY_SIZE
    return True


cdef inline BuildStatus add(
    Indexes* built, const BatchHeader* header, uint8_t* offset_entries, uint8_t* time_entries
) noexcept nogil:
    """Add one header; the buffers have room for an entry."""
    cdef int64_t last_offset = header.last_offset
    if header.crc_valid == 0:
        return WRONG_CRC
    if (last_offset < built.base_offset
            or <uint64_t> last_offset - <uint64_t> built.base_offset > INT32_MAX):
        return OVERFLOW
    if header.max_timestamp > built.largest_timestamp:
        built.largest_timestamp = header.max_timestamp
        built.offset_of_max_timestamp = last_offset
    if header.position - built.last_entry_position > built.interval:
        if not add_offset_entry(
            built, offset_entries,
            header.base_offset if built.has_first_offsets else last_offset, header.position
        ):
            return OFFSET_WENT_BACK
        if not maybe_add_time_entry(built, time_entries):
            return TIME_WENT_BACK
        built.last_entry_position = header.position
    if header.magic == 2:
        if header.leader_epoch > built.largest_epoch:
            built.largest_epoch = header.leader_epoch
        if header.producer_id >= 0:
            built.has_producers = True
            if built.stops_after_markers and header.attributes & CONTROL_FLAG != 0:
                return AFTER_MARKER
    return BUILT


cdef BuildStatus build(
    Indexes* built, const BatchHeader* headers, Py_ssize_t count, Py_ssize_t* taken,
    uint8_t* offset_entries, uint8_t* time_entries
) noexcept nogil:
    """Add `count` headers; the buffers have room for an entry of each."""
    cdef BuildStatus status = BUILT
    cdef Py_ssize_t i = 0
    cdef const BatchHeader* header
    cdef int64_t largest = built.largest_timestamp, offset_of_max = built.offset_of_max_timestamp
    cdef bint rose
    while i < count and status == BUILT:
        header = &headers[i]
        # Fast path: most batches need only their timestamp, which stays in registers, without an
        # unpredictable branch.
        if unlikely(
            (header.crc_valid == 0)
            | (<uint64_t> header.last_offset - <uint64_t> built.base_offset > INT32_MAX)
            | (header.position - built.last_entry_position > built.interval)
            | (header.leader_epoch > built.largest_epoch)
            | (header.producer_id >= 0)
        ):
            built.largest_timestamp, built.offset_of_max_timestamp = largest, offset_of_max
            status = add(built, header, offset_entries, time_entries)
            largest, offset_of_max = built.largest_timestamp, built.offset_of_max_timestamp
        else:
            rose = header.max_timestamp > largest
            largest = header.max_timestamp if rose else largest
            offset_of_max = header.last_offset if rose else offset_of_max
        i += 1
    built.largest_timestamp, built.offset_of_max_timestamp = largest, offset_of_max
    if status > AFTER_MARKER:
        i -= 1
    taken[0] = i
    if i > 0:
        built.valid_bytes = headers[i - 1].position + headers[i - 1].size
        built.next_offset = headers[i - 1].last_offset + 1
    while i > 0 and headers[i - 1].magic != 2:
        i -= 1
    if i > 0:
        built.record_batches_end = headers[i - 1].last_offset + 1
    return status


cdef class IndexBuilder:
    """Build both indexes of one segment, run by run.

    `has_first_offsets` writes first offsets into the offset index, as up to 1.1. With
    `stops_after_markers` `append` returns after each control batch of a producer;
    `is_after_marker` says whether the last call did.

    The attributes describe the headers so far: `largest_timestamp` (ms) and `largest_epoch` are -1
    for none, and `offset_of_max_timestamp` is the last offset of the batch that reached that
    timestamp first. `valid_bytes` and `next_offset` are those after the last batch, 0 and the base
    offset without one; `record_batches_end` is the offset after the last batch of magic 2, -1
    without one. `has_producers`: a batch of the last `append` has a producer id.
    """

    cdef Indexes built
    cdef bytearray offset_entries, time_entries
    cdef readonly bint is_after_marker

    def __cinit__(self, int64_t base_offset, int64_t index_interval_bytes, *,
                  bint has_first_offsets=False, bint stops_after_markers=False):
        self.built.base_offset = base_offset
        self.built.interval = index_interval_bytes
        self.built.has_first_offsets = has_first_offsets
        self.built.stops_after_markers = stops_after_markers
        self.built.next_offset = base_offset
        self.built.record_batches_end = -1
        self.built.last_time_entry = self.built.largest_timestamp = -1
        self.built.largest_epoch = -1
        self.built.offset_of_max_timestamp = base_offset
        self.built.last_offset_in_index = self.built.last_offset_in_time_index = -1
        self.offset_entries, self.time_entries = bytearray(), bytearray()

    @property
    def largest_timestamp(self):
        return self.built.largest_timestamp

    @property
    def offset_of_max_timestamp(self):
        return self.built.offset_of_max_timestamp

    @property
    def largest_epoch(self):
        return self.built.largest_epoch

    @property
    def valid_bytes(self):
        return self.built.valid_bytes

    @property
    def next_offset(self):
        return self.built.next_offset

    @property
    def record_batches_end(self):
        return self.built.record_batches_end

    @property
    def has_producers(self):
        return bool(self.built.has_producers)

    def append(self, headers not None):
        """Add the headers of the next batches, in the order of the log, without the GIL.

        Returns how many were added: all, or those before the first with a wrong checksum, or those
        up to a marker. Raises `OffsetOverflowError` if an offset does not fit the 31 bits above the
        base offset, and `OutOfOrderAppendError` if an entry's offset is not above the one before
        it: a broker's recovery fails there.
        """
        cdef const uint8_t[::1] header_bytes = bytes_of(headers)
        cdef const BatchHeader* first
        cdef Py_ssize_t count = len(headers), taken = 0
        cdef uint8_t* offset_entries
        cdef uint8_t* time_entries
        cdef BuildStatus status
        self.built.has_producers = self.is_after_marker = False
        if count == 0:
            return 0
        first = <const BatchHeader*> &header_bytes[0]
        PyByteArray_Resize(self.offset_entries, self.built.offset_bytes + OFFSET_ENTRY_SIZE * count)
        PyByteArray_Resize(self.time_entries, self.built.time_bytes + TIME_ENTRY_SIZE * count)
        offset_entries = <uint8_t*> PyByteArray_AS_STRING(self.offset_entries)
        time_entries = <uint8_t*> PyByteArray_AS_STRING(self.time_entries)
        with nogil:
            status = build(&self.built, first, count, &taken, offset_entries, time_entries)
        self.is_after_marker = status == AFTER_MARKER
        if status > WRONG_CRC:
            self._raise_for(status, &first[taken])
        return taken

    def finish(self):
        """Add the last time index entry; return both indexes, the offset index first."""
        PyByteArray_Resize(self.offset_entries, self.built.offset_bytes)
        PyByteArray_Resize(self.time_entries, self.built.time_bytes + TIME_ENTRY_SIZE)
        if not maybe_add_time_entry(
            &self.built, <uint8_t*> PyByteArray_AS_STRING(self.time_entries)
        ):
            self._raise_for(TIME_WENT_BACK, NULL)
        PyByteArray_Resize(self.time_entries, self.built.time_bytes)
        return bytes(self.offset_entries), bytes(self.time_entries)

    cdef _raise_for(self, BuildStatus status, const BatchHeader* header):
        """Raise the error for an invalid header."""
        if status == OVERFLOW:
            raise OffsetOverflowError(
                f"offset {header.last_offset} can't be in the segment with base offset "
                f"{self.built.base_offset}: the batch at byte {header.position} is more than "
                f"{INT32_MAX} offsets away")
        if status == OFFSET_WENT_BACK:
            offset = header.base_offset if self.built.has_first_offsets else header.last_offset
            raise OutOfOrderAppendError(
                f"offset {offset} of the batch at byte {header.position} is not greater than "
                f"{self.built.last_offset_in_index}, which the offset index has before it")
        raise OutOfOrderAppendError(
            f"offset {self.built.offset_of_max_timestamp} of the timestamp "
            f"{self.built.largest_timestamp} is less than {self.built.last_offset_in_time_index}, "
            "which the time index has before it")
