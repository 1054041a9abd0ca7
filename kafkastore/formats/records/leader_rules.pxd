"""A leader's checks of the records of a batch, for inlining into `append_sets`.

Source: Kafka 2.4.0 and 3.9.0 ``LogValidator.validateRecord``.
"""
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from kafkastore.formats.records.batch_header cimport CONTROL_FLAG, BatchHeader
from kafkastore.formats.records.record_cursor cimport (
    RecordCursor,
    RecordView,
    next_record,
    open_cursor,
)


cdef enum Wrong:
    NOTHING
    RECORD_BROKEN
    OFFSET_WRONG
    TIMESTAMP_OUT_OF_RANGE
    KEY_MISSING


cdef struct LeaderLimits:
    int64_t now
    uint64_t before_max      # ms
    uint64_t after_max
    bint looks_at_timestamps
    bint needs_keys


cdef struct Walk:
    Wrong wrong
    const char* error        # of a broken record
    int32_t record           # number of the wrong one
    int64_t value            # its offset or timestamp
    int64_t largest_timestamp
    int32_t record_of_max_timestamp


cdef inline bint is_out_of_range(int64_t timestamp, const LeaderLimits* limits) noexcept nogil:
    """Whether a CreateTime is too far from the clock, without overflow."""
    if timestamp <= limits.now:
        return <uint64_t> limits.now - <uint64_t> timestamp > limits.before_max
    return <uint64_t> timestamp - <uint64_t> limits.now > limits.after_max


cdef inline Walk walk_records(
    const BatchHeader* header, const uint8_t* records, Py_ssize_t size, const LeaderLimits* limits
) noexcept nogil:
    """Read the fields of a batch's records that a leader checks."""
    cdef Walk walk
    cdef RecordCursor cursor
    cdef RecordView record
    cdef int got
    cdef bint is_control = header.attributes & CONTROL_FLAG
    walk.wrong, walk.error, walk.value = NOTHING, NULL, 0
    walk.largest_timestamp = -1
    walk.record = walk.record_of_max_timestamp = 0
    got = open_cursor(&cursor, header, records, size)
    while got:
        got = next_record(&cursor, &record)
        if got <= 0:
            break
        if record.offset - header.base_offset != walk.record:
            walk.wrong, walk.value = OFFSET_WRONG, record.offset
            return walk
        if (limits.looks_at_timestamps and record.timestamp != -1
                and is_out_of_range(record.timestamp, limits)):
            walk.wrong, walk.value = TIMESTAMP_OUT_OF_RANGE, record.timestamp
            return walk
        if limits.needs_keys and record.key_size < 0 and not is_control:
            walk.wrong = KEY_MISSING
            return walk
        if record.timestamp > walk.largest_timestamp:
            walk.largest_timestamp = record.timestamp
            walk.record_of_max_timestamp = walk.record
        walk.record += 1
    if cursor.error != NULL:
        walk.wrong, walk.error = RECORD_BROKEN, cursor.error
    return walk
