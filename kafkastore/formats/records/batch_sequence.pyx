"""Check a segment's batches, in log order, against the rules of all writers.

The headers alone show whether offsets rise and stay in the segment, counts and sizes agree, leader
epochs do not decrease, and timestamps are ms. The entries of both indexes are checked at the same
time, by what they promise and not by the bytes of one version, because writers differ: an offset
index entry has the first or the last offset of the appended set, a time index entry the offset of
the record itself or the last offset of its batch.

offset index
    A batch begins at the position; every record before it has a smaller offset.
time index
    The batch that holds the offset has the timestamp as its largest, and is the first to reach it.

``docs/formats/offset_index.md`` and ``time_index.md`` say which version writes what.

Source: Kafka 2.4.0 ``LogSegment``, ``DefaultRecordBatch``, ``LegacyRecord``.
"""
from libc.stdint cimport INT32_MAX, INT64_MAX, int32_t, int64_t, uint8_t

from kafkastore.formats.records.batch_header cimport (
    CODEC_MASK, RECORDS_AT, TIMESTAMP_TYPE_FLAG, BatchHeader,
)
from kafkastore.formats.primitives.varint cimport unlikely

from typing import NamedTuple

import numpy as np

from kafkastore.formats.records.batch_header import bytes_of

cdef enum Kind:  # in the order of FAULTS
    OUT_OF_ORDER
    OUTSIDE_SEGMENT
    BAD_COUNT
    UNKNOWN_CODEC
    UNKNOWN_ATTRIBUTES
    EPOCH_WENT_BACK
    NEGATIVE_EPOCH
    TIME_IN_SECONDS
    TIME_IN_MICROSECONDS
    TIME_IN_NANOSECONDS
    NEGATIVE_TIME
    KINDS

#: The kinds of `BatchSequence.faults`.
FAULTS = (
    "out-of-order", "outside-segment", "bad-count", "unknown-codec", "unknown-attributes",
    "epoch-went-back", "negative-epoch", "seconds", "microseconds", "nanoseconds", "negative-time",
)

cdef enum:
    # Bytes of a record without key, value and headers.
    SMALLEST_RECORD = 7
    LARGEST_CODEC = 4
    LARGEST_MESSAGE_CODEC = 3  # messages have no zstd
    ATTRIBUTES_OF_BATCH = 0x7F
    ATTRIBUTES_OF_MESSAGE = CODEC_MASK | TIMESTAMP_TYPE_FLAG

# The years 1990 to 2100 in seconds; read as ms, these are dates in January and February 1970.
cdef int64_t LEAST_SECONDS = 631_152_000
cdef int64_t END_OF_SECONDS = 4_102_444_800

cdef struct Fault:
    int64_t count
    int64_t position
    int64_t last_offset
    int64_t value

cdef struct Entries:
    # One index; each slot is checked when the scan of the log passes it.
    const int64_t* keys      # offsets, or timestamps
    const int64_t* places    # positions, or offsets
    Py_ssize_t count
    Py_ssize_t judged
    Py_ssize_t first_bad

cdef struct Sequence:
    int64_t base_offset
    int64_t end_offset
    int64_t last_offset
    int64_t end_position
    int64_t largest_timestamp
    int64_t position_of_largest
    int64_t batch_count
    int32_t leader_epoch
    bint has_gaps
    bint has_producers
    bint is_after_damage
    bint begins_at_time_zero
    Entries offset_index
    Entries time_index
    Fault faults[KINDS]


class BatchFault(NamedTuple):
    """One kind of fault (of `FAULTS`) in a number of batches.

    `position` and `last_offset` are of the first such batch; `value` is its timestamp, attributes,
    count or epoch, or for an order fault the offset before it.
    """

    kind: str
    position: int
    last_offset: int
    value: int
    batch_count: int


cdef void note(Sequence* log, Kind kind, const BatchHeader* header, int64_t value) noexcept nogil:
    """Count a fault; keep the position of the first."""
    cdef Fault* fault = &log.faults[<int> kind]
    if fault.count == 0:
        fault.position, fault.last_offset, fault.value = header.position, header.last_offset, value
    fault.count += 1


cdef inline bint is_in(int64_t timestamp, int64_t unit) noexcept nogil:
    """Return whether a timestamp is in those years, at `unit` units per second."""
    return LEAST_SECONDS * unit <= timestamp < END_OF_SECONDS * unit


cdef void judge_time(Sequence* log, const BatchHeader* header) noexcept nogil:
    """Note a timestamp that is probably not in ms."""
    cdef int64_t timestamp = header.max_timestamp
    if is_in(timestamp, 1):
        note(log, TIME_IN_SECONDS, header, timestamp)
    elif is_in(timestamp, 1_000_000):
        note(log, TIME_IN_MICROSECONDS, header, timestamp)
    elif is_in(timestamp, 1_000_000_000):
        note(log, TIME_IN_NANOSECONDS, header, timestamp)
    elif timestamp < -1:
        note(log, NEGATIVE_TIME, header, timestamp)


cdef void judge_structure(Sequence* log, const BatchHeader* header) noexcept nogil:
    """Note fields that contradict each other, or have no meaning."""
    cdef int64_t most, record_bytes = header.size - RECORDS_AT
    cdef int codec = header.attributes & CODEC_MASK
    if header.magic == 2:
        most = header.last_offset - header.base_offset + 1
        if (header.count < 0 or header.count > most or (header.count == 0) != (record_bytes == 0)
                or (codec == 0 and <int64_t> header.count * SMALLEST_RECORD > record_bytes)):
            note(log, BAD_COUNT, header, header.count)
        if codec > LARGEST_CODEC:
            note(log, UNKNOWN_CODEC, header, codec)
        if header.attributes & ~ATTRIBUTES_OF_BATCH:
            note(log, UNKNOWN_ATTRIBUTES, header, header.attributes)
        return
    if codec > LARGEST_MESSAGE_CODEC:
        note(log, UNKNOWN_CODEC, header, codec)
    if header.attributes & ~ATTRIBUTES_OF_MESSAGE:
        note(log, UNKNOWN_ATTRIBUTES, header, header.attributes)


cdef inline void settle(Entries* index, bint is_true) noexcept nogil:
    """Finish the check of a slot; an entry that can't be checked counts as true."""
    if not is_true and index.first_bad < 0:
        index.first_bad = index.judged
    index.judged += 1


cdef inline void judge_entries(
    Sequence* log, const BatchHeader* header, int64_t first_offset
) noexcept nogil:
    """Check the entries of both indexes that this batch, or an earlier one, decides."""
    cdef Entries* index = &log.offset_index
    cdef int64_t offset
    while index.judged < index.count and index.places[index.judged] <= header.position:
        offset = index.keys[index.judged]
        settle(index, index.places[index.judged] == header.position
               and offset > log.last_offset and offset >= first_offset)
    index = &log.time_index
    while index.judged < index.count and index.places[index.judged] <= header.last_offset:
        offset = index.places[index.judged]
        settle(index, (log.is_after_damage and log.last_offset < offset < first_offset)
               or (offset > log.last_offset and offset >= first_offset
                   and index.keys[index.judged] == header.max_timestamp
                   and index.keys[index.judged] > log.largest_timestamp))


cdef bint add(Sequence* log, const BatchHeader* header) noexcept nogil:
    """Add one batch; return whether its leader epoch is a new one."""
    cdef bint is_wrapper = header.magic < 2 and header.base_offset < 0 <= header.last_offset
    cdef int64_t first = header.last_offset if is_wrapper else header.base_offset
    cdef bint is_new_epoch = False
    # The first offset of a wrapper is unknown; an entry of old writers may have it.
    judge_entries(log, header, log.last_offset + 1 if is_wrapper else first)
    if unlikely(first <= log.last_offset or header.last_offset < first):
        note(log, OUT_OF_ORDER, header, log.last_offset)
    elif unlikely(first < log.base_offset or header.last_offset >= log.end_offset):
        note(log, OUTSIDE_SEGMENT, header, first)
    if unlikely(not END_OF_SECONDS <= header.max_timestamp < LEAST_SECONDS * 1_000_000):
        judge_time(log, header)
    judge_structure(log, header)
    if header.magic == 2:
        log.has_gaps |= (first > log.last_offset + 1 and first > log.base_offset) | (
            header.count != header.last_offset - first + 1)
        log.has_producers |= header.producer_id >= 0
        if unlikely(header.leader_epoch != log.leader_epoch):
            if header.leader_epoch > log.leader_epoch:
                log.leader_epoch = header.leader_epoch
                is_new_epoch = True
            elif header.leader_epoch < -1:
                note(log, NEGATIVE_EPOCH, header, header.leader_epoch)
            elif header.leader_epoch >= 0:
                note(log, EPOCH_WENT_BACK, header, header.leader_epoch)
    if header.max_timestamp > log.largest_timestamp:
        log.largest_timestamp = header.max_timestamp
        log.position_of_largest = header.position
    if log.batch_count == 0:
        log.begins_at_time_zero = first <= log.base_offset and header.max_timestamp == 0
    log.last_offset = header.last_offset
    log.end_position = header.position + header.size
    log.batch_count += 1
    log.is_after_damage = False
    return is_new_epoch


cdef class BatchSequence:
    """The batches of one segment, run by run, and the entries of its indexes.

    `end_offset` is exclusive, None for the last segment; `next_offset` is the offset after all
    records before the segment. The entries are OFFSET_ENTRY and TIME_ENTRY arrays, empty for a
    missing index.

    The attributes describe the batches so far: `next_offset` and `end_position` are those after the
    last batch (position 0 without one); `largest_timestamp` is in ms, -1 for none, and the first
    batch that has it begins at `position_of_largest_timestamp`; `epochs` lists the rising leader
    epochs, each with its first offset. `has_producers`: a record batch of the last `append` has a
    producer id. `has_gaps`: offsets are missing between or within record batches, as after
    compaction. `begins_at_time_zero`: the first batch has the base offset and timestamp 0, so that
    its time index entry is all zeros. `ends_in_damage`: bytes were skipped and no batch followed.
    """

    cdef Sequence log
    cdef object _arrays
    cdef readonly list epochs

    def __cinit__(self, base_offset, end_offset, next_offset, offset_entries, time_entries):
        self.log.base_offset = base_offset
        relative_end = min(base_offset + INT32_MAX + 1, INT64_MAX)  # after all offsets of an index
        self.log.end_offset = relative_end if end_offset is None else min(end_offset, relative_end)
        self.log.last_offset = next_offset - 1
        self.log.leader_epoch = -1
        self.log.largest_timestamp = -1
        self.log.is_after_damage = False
        self.epochs = []
        self._arrays = []
        self._set_entries(&self.log.offset_index, offset_entries, "offset", "position")
        self._set_entries(&self.log.time_index, time_entries, "timestamp", "offset")

    cdef _set_entries(self, Entries* index, entries, key, place):
        """Copy one index into two columns that live as long as this object."""
        cdef const int64_t[::1] keys = np.array(entries[key], np.int64)
        cdef const int64_t[::1] places = np.array(entries[place], np.int64)
        self._arrays.append((keys, places))
        index.count, index.judged, index.first_bad = len(entries), 0, -1
        if index.count:
            index.keys, index.places = &keys[0], &places[0]

    @property
    def next_offset(self):
        return <object> self.log.last_offset + 1  # may be one more than int64 holds

    @property
    def end_position(self):
        return self.log.end_position

    @property
    def largest_timestamp(self):
        return self.log.largest_timestamp

    @property
    def position_of_largest_timestamp(self):
        return self.log.position_of_largest

    @property
    def batch_count(self):
        return self.log.batch_count

    @property
    def has_producers(self):
        return bool(self.log.has_producers)

    @property
    def has_gaps(self):
        return bool(self.log.has_gaps)

    @property
    def begins_at_time_zero(self):
        return bool(self.log.begins_at_time_zero)

    @property
    def ends_in_damage(self):
        return bool(self.log.is_after_damage)

    @property
    def faults(self):
        """The faults so far: a list of BatchFault, in the order of `FAULTS`."""
        cdef list found = []
        for kind in range(<int> KINDS):
            fault = self.log.faults[kind]
            if fault.count:
                found.append(BatchFault(
                    FAULTS[kind], fault.position, fault.last_offset, fault.value, fault.count))
        return found

    @property
    def false_offset_entry(self):
        """The first wrong slot of the offset index; -1 if there is none.

        Entries after the last batch are wrong too.
        """
        return self._first_false(&self.log.offset_index)

    @property
    def false_time_entry(self):
        """The same for the time index."""
        return self._first_false(&self.log.time_index)

    cdef Py_ssize_t _first_false(self, Entries* index):
        unmet = index.judged if index.judged < index.count else -1
        return unmet if index.first_bad < 0 else index.first_bad

    def append(self, headers not None):
        """Add the headers (BATCH_HEADER) of the next batches, in the order of the log.

        Runs without the GIL. Returns how many were added: all, or those before the first with a
        wrong checksum.
        """
        cdef const uint8_t[::1] header_bytes = bytes_of(headers)
        cdef const BatchHeader* first
        cdef Py_ssize_t count = len(headers), i = 0
        cdef bint is_new_epoch
        self.log.has_producers = False
        first = <const BatchHeader*> (&header_bytes[0] if count else NULL)
        while i < count and first[i].crc_valid != 0:
            with nogil:
                while True:
                    is_new_epoch = add(&self.log, &first[i])
                    i += 1
                    if is_new_epoch or i == count or first[i].crc_valid == 0:
                        break
            if is_new_epoch:
                self.epochs.append((self.log.leader_epoch, first[i - 1].base_offset))
        return i

    def skip_to(self, int64_t position, *, bint is_end=False):
        """Skip bytes that cannot be read as batches, and index entries for them.

        `position` is where the next batch begins or, with `is_end`, the end of the file.
        """
        cdef Entries* index = &self.log.offset_index
        while index.judged < index.count and index.places[index.judged] < position:
            settle(index, index.places[index.judged] >= self.log.end_position)
        self.log.end_position = position
        self.log.is_after_damage = True
        index = &self.log.time_index
        while is_end and index.judged < index.count:
            settle(index, index.places[index.judged] > self.log.last_offset)
