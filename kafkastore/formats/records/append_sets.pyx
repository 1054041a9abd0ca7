"""Batches to append: a leader assigns their offsets, a follower keeps them.

A broker checks whether an index entry is due once for each set of batches. A leader gets one record
batch at a time; a follower gets all batches of a fetch as one set. Here each batch is a set of its
own for a leader, and all batches are one set for a follower.

Source: Kafka 2.4.0 and 3.9.0 ``LogValidator``, ``Log.analyzeAndValidateRecords``.
"""
cimport cython
from cpython.bytearray cimport PyByteArray_AS_STRING
from libc.stdint cimport INT32_MAX, INT64_MAX, int16_t, int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from kafkastore.formats.records.batch_header cimport (
    ATTRIBUTES_AT,
    BASE_OFFSET_AT,
    CODEC_MASK,
    CONTROL_FLAG,
    CRC_AT,
    HEADER_BAD_MAGIC,
    HEADER_NEEDS_BYTES,
    HEADER_WHOLE,
    LENGTH_AT,
    LOG_OVERHEAD,
    MAX_TIMESTAMP_AT,
    PARTITION_LEADER_EPOCH_AT,
    RECORDS_AT,
    TIMESTAMP_TYPE_FLAG,
    BatchHeader,
    HeaderStatus,
    compute_crc,
    is_crc_valid,
    parse_header,
)
from kafkastore.formats.primitives.big_endian cimport (
    load_i32,
    store_i16,
    store_i32,
    store_i64,
    store_u32,
)
from kafkastore.formats.records.leader_rules cimport (
    KEY_MISSING,
    NOTHING,
    OFFSET_WRONG,
    TIMESTAMP_OUT_OF_RANGE,
    LeaderLimits,
    Walk,
    walk_records,
)
from kafkastore.formats.records.record_batch cimport records_of

import numpy as np

from kafkastore.errors import (
    ChecksumError,
    CorruptBatchError,
    InvalidRecordError,
    InvalidTimestampError,
    OffsetOverflowError,
    OutOfOrderAppendError,
    RecordTooLargeError,
    UnsupportedFormatError,
)
from kafkastore.formats.records.batch_header import BATCH_HEADER, bytes_of
from kafkastore.formats.records.decompression import MAX_DECOMPRESSED_BYTES


@cython.final
cdef class AppendSets:
    """The sets of one append, in the order of the log.

    `assign_offsets` and `keep_offsets` build it. `count` is the number of sets. `has_producers`: a
    batch is of an idempotent producer or ends a transaction. `has_old_messages`: there are messages
    before magic 2. `codecs` has a bit for each codec of the batches except control batches: bit 0
    for none, bit 1 for gzip, and so on.
    """

    def __cinit__(self, Py_ssize_t batch_count):
        cdef Py_ssize_t room = max(batch_count, 1)
        self.items = <AppendSet*> malloc(room * sizeof(AppendSet))
        self.batches = <BatchHeader*> malloc(room * sizeof(BatchHeader))
        if self.items == NULL or self.batches == NULL:
            raise MemoryError

    def __dealloc__(self):
        free(self.items)
        free(self.batches)

    def __len__(self):
        return self.count

    cdef AppendSet* item(self, Py_ssize_t index) except NULL:
        if not 0 <= index < self.count:
            raise IndexError(f"set {index} of {self.count}")
        return &self.items[index]

    @property
    def headers(self):
        """The headers of the batches (BATCH_HEADER); positions are in the appended data."""
        headers = np.empty(self.batch_count, BATCH_HEADER)
        cdef uint8_t[::1] raw = bytes_of(headers)
        if self.batch_count:
            memcpy(&raw[0], self.batches, self.batch_count * sizeof(BatchHeader))
        return headers

    cdef void count_batch(self, const BatchHeader* header) noexcept:
        self.has_producers |= header.producer_id >= 0
        self.has_old_messages |= header.magic < 2
        if not header.attributes & CONTROL_FLAG:
            self.codecs |= 1 << (header.attributes & CODEC_MASK)
        self.batch_count += 1

    def reported_first_offset(self):
        """Return the first offset; before magic 2, the first message's last offset."""
        cdef const BatchHeader* header = self.batches
        return header.base_offset if header.magic == 2 else header.last_offset

    def epoch_starts(self, int32_t latest_epoch):
        """List (epoch, base offset) of each batch that begins another leader epoch.

        `latest_epoch` is the epoch before the batches; -1 for none.
        """
        cdef Py_ssize_t i
        cdef const BatchHeader* header
        cdef list starts = []
        for i in range(self.batch_count):
            header = &self.batches[i]
            if header.leader_epoch >= 0 and header.leader_epoch != latest_epoch:
                latest_epoch = header.leader_epoch
                starts.append((latest_epoch, header.base_offset))
        return starts

    def first_offset(self, Py_ssize_t index):
        """Return the first offset of a set; before magic 2, a lower bound of at least 0."""
        cdef const AppendSet* found = self.item(index)
        return found.first_offset if found.first_offset >= 0 else found.last_offset - INT32_MAX

    def last_offset(self, Py_ssize_t index):
        """Return the last offset of a set, inclusive."""
        return self.item(index).last_offset

    def fields(self):
        """List all sets: size, first offset or -1, last offset, timestamp, offset.

        The timestamp is the largest of the set; the offset is that of its time index entry.
        """
        return [(each.size, each.first_offset, each.last_offset, each.largest_timestamp,
                 each.offset_of_max_timestamp) for each in self.items[:self.count]]


cdef object walk_error(const Walk* walk, const BatchHeader* header, const LeaderLimits* limits):
    """Return the error for the result of a walk."""
    where = f"record {walk.record} of the batch at byte {header.position}"
    if walk.wrong == OFFSET_WRONG:
        return InvalidRecordError(
            f"{where} has offset delta {walk.value - header.base_offset}, not its number")
    if walk.wrong == KEY_MISSING:
        return InvalidRecordError(f"{where} has no key, which a compacted topic requires")
    if walk.wrong == TIMESTAMP_OUT_OF_RANGE:
        return InvalidTimestampError(
            f"{where} has timestamp {walk.value}, which is not within {limits.before_max} ms before"
            f" and {limits.after_max} ms after the clock, {limits.now}")
    return CorruptBatchError(walk.error.decode(), position=header.position)


cdef Py_ssize_t count_frames(const uint8_t* at, Py_ssize_t size) noexcept nogil:
    """Return an upper bound of the number of batches, at least 1 if there are bytes."""
    cdef Py_ssize_t count = 0, left = size
    cdef int64_t length
    while left > 0:
        count += 1
        if left < LOG_OVERHEAD:
            break
        length = load_i32(at + LENGTH_AT)
        if length < 0 or length > left - LOG_OVERHEAD:
            break
        at += LOG_OVERHEAD + length
        left -= LOG_OVERHEAD + length
    return count


cdef int check_frame(HeaderStatus status, const BatchHeader* header, Py_ssize_t position) except -1:
    """Raise if no complete batch starts here."""
    if status == HEADER_WHOLE:
        return 0
    if status == HEADER_BAD_MAGIC:
        raise UnsupportedFormatError(
            f"record batch has magic {header.magic}, not 0, 1 or 2", position=position)
    raise CorruptBatchError("no complete record batch starts here", position=position)


cdef int check_size(const char* what, int64_t size, const char* option, int64_t largest) except -1:
    """Raise if a batch or a set is larger than an option allows."""
    if size > largest:
        raise RecordTooLargeError(
            f"{what.decode()} has {size} bytes, more than {option.decode()}, {largest}")
    return 0


cdef int check_crc(const uint8_t* at, const BatchHeader* header) except -1:
    """Raise if the checksum is wrong."""
    cdef bint is_valid
    with nogil:
        is_valid = is_crc_valid(at, header)
    if not is_valid:
        raise ChecksumError("the batch fails its checksum", position=header.position)
    return 0


cdef int check_as_leader(const BatchHeader* header) except -1:
    """Check a batch's header as a leader does."""
    cdef bint is_control = header.attributes & CONTROL_FLAG
    where = f"the batch at byte {header.position}"
    if header.magic != 2:
        raise InvalidRecordError(
            f"{where} has magic {header.magic}; a leader assigns offsets to batches of magic 2: "
            "append older messages with as_follower=True")
    if header.count <= 0 or header.last_offset - header.base_offset != header.count - 1:
        raise InvalidRecordError(
            f"{where} has a count of {header.count} and offsets {header.base_offset} to"
            f" {header.last_offset}")
    if header.attributes & TIMESTAMP_TYPE_FLAG:
        raise InvalidTimestampError(f"{where} has LogAppendTime, which only a leader sets")
    if not is_control and header.producer_id >= 0 and header.base_sequence < 0:
        raise InvalidRecordError(
            f"{where} has producer id {header.producer_id} and sequence {header.base_sequence}")
    return 0


cdef void stamp(uint8_t* at, BatchHeader* header, int64_t base_offset, int32_t leader_epoch,
                int16_t attributes, int64_t max_timestamp) noexcept nogil:
    """Set the offset, epoch, attributes and timestamp of a batch.

    Of these, its checksum covers only attributes and timestamp.
    """
    header.last_offset = base_offset + header.count - 1
    header.base_offset = base_offset
    header.leader_epoch = leader_epoch
    store_i64(at + BASE_OFFSET_AT, base_offset)
    store_i32(at + PARTITION_LEADER_EPOCH_AT, leader_epoch)
    if attributes == header.attributes and max_timestamp == header.max_timestamp:
        return
    header.attributes = attributes
    header.max_timestamp = max_timestamp
    store_i16(at + ATTRIBUTES_AT, attributes)
    store_i64(at + MAX_TIMESTAMP_AT, max_timestamp)
    header.crc = compute_crc(at, header)
    store_u32(at + CRC_AT, header.crc)


def assign_offsets(
    const uint8_t[::1] data not None,
    int64_t next_offset,
    *,
    int32_t leader_epoch,
    int64_t now,
    bint log_append_time=False,
    int64_t before_max_ms=INT64_MAX,
    int64_t after_max_ms=INT64_MAX,
    int64_t max_batch_bytes=INT64_MAX,
    bint needs_keys=False,
    bint has_record_offset=False,
    int64_t max_set_bytes=INT64_MAX,
    int64_t max_decompressed_bytes=MAX_DECOMPRESSED_BYTES,
):
    """Check whole record batches (magic 2) and assign offsets as a leader does.

    The first record gets `next_offset`, the log end offset, and each batch `leader_epoch`. `now` is
    the clock, ms since 1970: the records' timestamp with `log_append_time`; otherwise each
    CreateTime must be at most `before_max_ms` before and `after_max_ms` after it. With
    `needs_keys`, as in a compacted topic, each record must have a key. With `has_record_offset`,
    the time index offset is that of the first record with the largest timestamp if a batch is not
    compressed (`BrokerRules.time_index_has_record_offset`). `max_set_bytes` is the capacity of a
    segment.

    Returns the batches to write, as a bytearray with the largest timestamps corrected, and
    `AppendSets` with a set for each batch. Raises `CorruptBatchError` if a batch is truncated,
    fails its checksum, or has unreadable records; `InvalidRecordError` for another magic, for a
    count that does not match the offsets, or for a missing key; `InvalidTimestampError` if a
    timestamp is out of range, or a batch has LogAppendTime; `RecordTooLargeError`. A broker refuses
    more than one batch at once. Records without successive offset deltas, which brokers accept
    uncompressed, are refused.

    Source: Kafka 2.4.0 and 3.9.0 ``LogValidator``.
    """
    stamped = bytearray(data)
    cdef uint8_t* start = <uint8_t*> PyByteArray_AS_STRING(stamped)
    cdef Py_ssize_t size = data.shape[0], at = 0, i, count = count_frames(start, size)
    cdef AppendSets sets = AppendSets(count)
    cdef BatchHeader* header = sets.batches
    cdef HeaderStatus status
    cdef LeaderLimits limits
    cdef Walk walk
    cdef const uint8_t[::1] payload
    cdef int64_t max_timestamp
    cdef int16_t attributes
    limits.now, limits.needs_keys = now, needs_keys
    limits.before_max, limits.after_max = <uint64_t> before_max_ms, <uint64_t> after_max_ms
    limits.looks_at_timestamps = not log_append_time
    for i in range(count):
        status = parse_header(start + at, size - at, header)
        check_frame(status, header, at)
        header.position = at
        check_size("a batch", header.size, "max.message.bytes", max_batch_bytes)
        check_size("a batch", header.size, "segment.bytes", max_set_bytes)
        check_crc(start + at, header)
        check_as_leader(header)
        if header.attributes & CODEC_MASK:
            payload = records_of(data[at:at + header.size], header, max_decompressed_bytes)
            walk = walk_records(header, &payload[0] if payload.shape[0] else NULL,
                                payload.shape[0], &limits)
        else:
            with nogil:
                walk = walk_records(header, start + at + RECORDS_AT, header.size - RECORDS_AT,
                                    &limits)
        if walk.wrong != NOTHING:
            raise walk_error(&walk, header, &limits)
        attributes, max_timestamp = header.attributes, walk.largest_timestamp
        if log_append_time:
            attributes, max_timestamp = attributes | TIMESTAMP_TYPE_FLAG, now
        with nogil:
            stamp(start + at, header, next_offset, leader_epoch, attributes, max_timestamp)
        header.crc_valid = 1
        sets.items[i] = AppendSet(
            header.size, next_offset, header.last_offset, max_timestamp, header.last_offset)
        if has_record_offset and not log_append_time and not attributes & CODEC_MASK:
            sets.items[i].offset_of_max_timestamp = next_offset + walk.record_of_max_timestamp
        sets.count_batch(header)
        next_offset = header.last_offset + 1
        at += header.size
        header += 1
    sets.count = count
    return stamped, sets


def keep_offsets(const uint8_t[::1] data not None, int64_t next_offset, *,
                 int64_t max_set_bytes=INT64_MAX):
    """Check batches that have their offsets, as a follower does.

    A batch that is truncated at the end of `data`, as in a fetch, is left out. No offset may be
    below `next_offset`, the log end offset; `max_set_bytes` is the capacity of a segment. Returns
    `AppendSets` with one set of all whole batches (no set without a whole batch), and the bytes of
    these batches. Raises `CorruptBatchError` for an impossible length or a wrong checksum,
    `UnsupportedFormatError` for a magic other than 0 to 2, `OutOfOrderAppendError` if offsets go
    back, `OffsetOverflowError` if the first and the last offset do not fit one segment, and
    `RecordTooLargeError` if the batches together do not.

    Source: Kafka 2.4.0 ``Log.analyzeAndValidateRecords``, ``Log.append``.
    """
    cdef Py_ssize_t size = data.shape[0], at = 0
    cdef Py_ssize_t frames = count_frames(&data[0], size) if size else 0
    cdef AppendSets sets = AppendSets(frames)
    cdef BatchHeader* header = sets.batches
    cdef HeaderStatus status
    cdef int64_t first
    cdef AppendSet total
    total.first_offset = total.last_offset = total.largest_timestamp = -1
    total.offset_of_max_timestamp = -1
    while sets.batch_count < frames:
        status = parse_header(&data[at], size - at, header)
        if status == HEADER_NEEDS_BYTES:
            break
        check_frame(status, header, at)
        header.position = at
        check_crc(&data[at], header)
        header.crc_valid = 1
        first = header.base_offset if header.magic == 2 else header.last_offset
        if first < next_offset or header.last_offset < first:
            raise OutOfOrderAppendError(
                f"the batch at byte {at} has offsets {first} to {header.last_offset}; the next is"
                f" {next_offset}")
        if at == 0 and header.magic == 2:
            total.first_offset = first
        if header.max_timestamp > total.largest_timestamp:
            total.largest_timestamp = header.max_timestamp
            total.offset_of_max_timestamp = header.last_offset
        total.last_offset = header.last_offset
        if header.last_offset == INT64_MAX:
            raise OutOfOrderAppendError(
                f"the batch at byte {at} must end before offset {INT64_MAX}")
        sets.count_batch(header)
        next_offset = header.last_offset + 1
        at += header.size
        header += 1
    total.size = at
    # The set may become the first of a new segment, so it only has to fit a segment by itself.
    if total.first_offset >= 0 and total.last_offset - total.first_offset > INT32_MAX:
        raise OffsetOverflowError(
            f"offsets {total.first_offset} to {total.last_offset} do not fit one segment")
    check_size("a set of batches", at, "segment.bytes", max_set_bytes)
    if sets.batch_count:
        sets.items[0] = total
        sets.count = 1
    return sets, at
