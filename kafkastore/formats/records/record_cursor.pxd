"""A forward cursor over the records of one batch or message set, for all magics.

One parser serves Python records, Arrow columns and searches by time.  It works on the *records
bytes* of a batch: of a v2 batch what follows the header, decompressed; of a v0 or v1 message the
message itself, frame included; of a wrapper the decompressed set of messages.

Source: Kafka 2.4.0 ``DefaultRecord.readFrom``, ``AbstractLegacyRecordBatch.DeepRecordsIterator``.
"""
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from kafkastore.formats.records.batch_header cimport (
    BASE_OFFSET_AT,
    CODEC_MASK,
    LENGTH_AT,
    LOG_OVERHEAD,
    MAGIC_AT,
    MESSAGE_ATTRIBUTES_AT,
    MESSAGE_KEY_SIZE_AT_V0,
    MESSAGE_KEY_SIZE_AT_V1,
    MESSAGE_TIMESTAMP_AT,
    SMALLEST_MESSAGE_V0,
    SMALLEST_MESSAGE_V1,
    TIMESTAMP_TYPE_FLAG,
    BatchHeader,
)
from kafkastore.formats.primitives.big_endian cimport load_i32, load_i64, wrapping_sum
from kafkastore.formats.primitives.varint cimport (
    Cursor,
    read_varint,
    read_varlong,
    unlikely,
    zig_zag,
)


cdef enum:
    # Attributes, then two bytes each for both deltas and the key's size.
    LONGEST_USUAL_START = 1 + 2 + 2 + 2
    TOO_LONG = 1 << 16


cdef struct RecordView:
    int64_t offset
    int64_t timestamp
    const uint8_t* key
    const uint8_t* value
    const uint8_t* headers   # names and values, `headers_count` of them
    const uint8_t* end       # first byte after the record
    int32_t key_size         # below 0: null
    int32_t value_size       # below 0: null
    int32_t headers_count


cdef struct RecordRead:
    int got                  # as `next_record` returns
    const char* error
    RecordView record


cdef struct HeaderView:
    const uint8_t* name
    const uint8_t* value
    int32_t name_size
    int32_t value_size       # -1: null


cdef struct RecordCursor:
    const uint8_t* at
    const uint8_t* end
    int64_t base_offset      # what an offset in the bytes is added to
    int64_t base_timestamp
    int64_t append_time      # LogAppendTime of every record, where `has_append_time`
    int64_t last_inner_offset  # of a wrapper, as in the bytes
    int32_t records_left     # of v2; else below 0
    bint has_append_time
    bint is_v2
    const char* error        # NULL: none


cdef inline bint is_wrapper(const BatchHeader* header) noexcept nogil:
    """Whether a message's value is a compressed set of messages."""
    return header.magic < 2 and header.attributes & CODEC_MASK


cdef inline int timestamp_type(const BatchHeader* header) noexcept nogil:
    """Return the ``TimestampType`` id: -1 none, 0 CreateTime, 1 LogAppendTime."""
    if header.magic == 0:
        return -1
    return 1 if header.attributes & TIMESTAMP_TYPE_FLAG else 0


cdef inline bint open_cursor(
    RecordCursor* cursor, const BatchHeader* header, const uint8_t* records, Py_ssize_t size
) noexcept nogil:
    """Set a cursor before the first record; False, with `error` set, if unreadable."""
    cdef const uint8_t* at
    cdef int64_t last_inner = -1, left
    cursor.at = records
    cursor.end = records + size
    cursor.error = NULL
    cursor.is_v2 = header.magic == 2
    cursor.records_left = header.count
    cursor.has_append_time = header.magic > 0 and header.attributes & TIMESTAMP_TYPE_FLAG
    cursor.append_time = header.max_timestamp
    cursor.base_timestamp = header.base_timestamp
    cursor.base_offset = header.base_offset if cursor.is_v2 else 0
    if cursor.is_v2:
        if header.count < 0:
            cursor.error = "the batch has a negative record count"
            return False
        return True
    if not is_wrapper(header):
        return True
    # Inner offsets of a v1 wrapper count from 0: the wrapper has the offset of the last one.
    # A torn message after the last complete one is left out, as by Kafka's DataLogInputStream.
    at = records
    while cursor.end - at >= LOG_OVERHEAD:
        left = cursor.end - at - LOG_OVERHEAD
        if load_i32(at + LENGTH_AT) < SMALLEST_MESSAGE_V0 - LOG_OVERHEAD:
            cursor.error = "an inner message has an impossible length"
            return False
        if load_i32(at + LENGTH_AT) > left:
            break
        last_inner = load_i64(at + BASE_OFFSET_AT)
        at += LOG_OVERHEAD + load_i32(at + LENGTH_AT)
    cursor.end = at
    if at == records:
        cursor.error = "a compressed message set is empty"
        return False
    # Old librdkafka left 0 in the wrapper: inner offsets are then taken as they are.
    cursor.last_inner_offset = last_inner
    if header.magic == 1 and header.last_offset != 0:
        if header.last_offset < last_inner:
            cursor.error = "an inner offset is larger than its wrapper's"
            return False
        cursor.base_offset = <int64_t> (<uint64_t> header.last_offset - <uint64_t> last_inner)
    return True


cdef inline RecordRead read_message(RecordCursor cursor) noexcept nogil:
    """Read a v0 or v1 message of a set."""
    cdef RecordRead read
    cdef RecordView* record = &read.record
    cdef const uint8_t* at = cursor.at
    cdef const uint8_t* key_at
    cdef int64_t left = cursor.end - at, length
    cdef uint8_t magic
    read.got = -1
    read.error = NULL
    if left == 0:
        read.got = 0
        return read
    if left < SMALLEST_MESSAGE_V0:
        read.error = "a message is truncated"
        return read
    length = LOG_OVERHEAD + <int64_t> load_i32(at + LENGTH_AT)
    magic = at[MAGIC_AT]
    if length > left or length < (SMALLEST_MESSAGE_V1 if magic else SMALLEST_MESSAGE_V0):
        read.error = "a message has an impossible length"
        return read
    if magic > 1:
        read.error = "a message in a set has a magic above 1"
        return read
    if at[MESSAGE_ATTRIBUTES_AT] & CODEC_MASK:
        read.error = "compressed messages are nested"
        return read
    record.offset = wrapping_sum(cursor.base_offset, load_i64(at + BASE_OFFSET_AT))
    record.timestamp = -1
    key_at = at + MESSAGE_KEY_SIZE_AT_V0
    if magic == 1:
        key_at = at + MESSAGE_KEY_SIZE_AT_V1
        record.timestamp = (cursor.append_time if cursor.has_append_time
                            else load_i64(at + MESSAGE_TIMESTAMP_AT))
    record.end = at + length
    record.headers = record.end
    record.headers_count = 0
    record.key_size = load_i32(key_at)
    record.key = key_at + 4
    left = record.end - record.key - 4
    if record.key_size > left:
        read.error = "a message's key runs past its end"
        return read
    key_at = record.key + (record.key_size if record.key_size > 0 else 0)
    record.value_size = load_i32(key_at)
    record.value = key_at + 4
    if record.value_size > record.end - record.value:
        read.error = "a message's value runs past its end"
        return read
    read.got = 1
    return read


cdef inline RecordRead read_record(RecordCursor cursor) noexcept nogil:
    """Read a record of a batch, whatever it is."""
    cdef RecordRead read
    cdef RecordView* record = &read.record
    cdef Cursor fields
    cdef int32_t length
    read.got = -1
    fields.at = cursor.at
    fields.end = cursor.end
    fields.failed = False
    length = read_varint(&fields)
    if fields.failed or length < 1 or length > cursor.end - fields.at:
        read.error = "a record runs past the end of its batch"
        return read
    record.end = fields.end = fields.at + length
    fields.at += 1   # attributes: unused
    record.timestamp = wrapping_sum(cursor.base_timestamp, read_varlong(&fields))
    record.offset = wrapping_sum(cursor.base_offset, read_varint(&fields))
    record.key_size = read_varint(&fields)
    record.key = fields.at
    if fields.failed or record.key_size > fields.end - fields.at:
        read.error = "a record's key runs past its end"
        return read
    fields.at += max(record.key_size, 0)
    record.value_size = read_varint(&fields)
    record.value = fields.at
    if fields.failed or record.value_size > fields.end - fields.at:
        read.error = "a record's value runs past its end"
        return read
    fields.at += max(record.value_size, 0)
    record.headers_count = read_varint(&fields)
    record.headers = fields.at
    # A header has at least its two lengths.
    if (fields.failed or record.headers_count < 0
            or record.headers_count > (fields.end - fields.at) // 2):
        read.error = "a record has more headers than bytes for them"
        return read
    if record.headers_count == 0 and fields.at != fields.end:
        read.error = "a record has bytes after its last header"
        return read
    read.got = 1
    read.error = NULL
    return read


cdef inline uint64_t read_short(const uint8_t** at) noexcept nogil:
    """Read a varint of one or two bytes, without zig-zag; else `TOO_LONG`."""
    cdef uint64_t raw = at[0][0]
    if raw < 128:
        at[0] += 1
        return raw
    if unlikely(at[0][1] >= 128):
        return TOO_LONG
    raw = raw & 127 | <uint64_t> at[0][1] << 7
    at[0] += 2
    return raw


cdef inline bint read_usual_record(RecordCursor* cursor, RecordView* record) noexcept nogil:
    """Read a record without headers whose varints take one or two bytes each.

    Nearly all records are like that; of others nothing is read, and False returned. The first look
    at the bytes left serves all fields before the key, the second the value's size.
    """
    cdef const uint8_t* at = cursor.at
    cdef const uint8_t* end
    cdef Py_ssize_t key_bytes, value_bytes
    cdef uint64_t length, timestamp_delta, offset_delta, key_size, value_size, two
    if unlikely(cursor.end - at < 2):
        return False
    length = read_short(&at)
    # Odd ones are negative.
    if unlikely(length == TOO_LONG or length & 1 or length < 2 * LONGEST_USUAL_START
                or <Py_ssize_t> (length >> 1) > cursor.end - at):
        return False
    end = at + (length >> 1)
    at += 1   # attributes: unused
    # Timestamps are not in order, so that their size can't be foretold: no branch for it.
    if unlikely(at[0] & at[1] & 128):
        return False
    two = at[0] >> 7
    timestamp_delta = (at[0] & 127) | (<uint64_t> at[1] << 7 & -two)
    at += 1 + two
    offset_delta = read_short(&at)
    if unlikely(offset_delta == TOO_LONG):
        return False
    key_size = read_short(&at)
    if unlikely(key_size == TOO_LONG):
        return False
    record.key = at
    record.key_size = <int32_t> zig_zag(key_size)
    key_bytes = max(record.key_size, 0)
    if unlikely(key_bytes + 2 > end - at):
        return False
    at += key_bytes
    value_size = read_short(&at)
    if unlikely(value_size == TOO_LONG):
        return False
    record.value = at
    record.value_size = <int32_t> zig_zag(value_size)
    value_bytes = max(record.value_size, 0)
    # After the value one byte: no headers.
    if unlikely(end - at != value_bytes + 1 or (end - 1)[0] != 0):
        return False
    record.offset = wrapping_sum(cursor.base_offset, zig_zag(offset_delta))
    record.timestamp = wrapping_sum(cursor.base_timestamp, zig_zag(timestamp_delta))
    record.headers = record.end = end
    record.headers_count = 0
    return True


cdef inline int next_record(RecordCursor* cursor, RecordView* record) noexcept nogil:
    """Read the next record: 1 read, 0 at the end, -1 broken, with `error` set."""
    cdef RecordRead read
    if unlikely(cursor.records_left == 0 and cursor.is_v2):
        if cursor.at != cursor.end:
            cursor.error = "bytes follow the last record"
            return -1
        return 0
    if unlikely(not cursor.is_v2 or not read_usual_record(cursor, record)):
        # By value: the cursor's fields can stay in registers where no address is taken.
        read = read_record(cursor[0]) if cursor.is_v2 else read_message(cursor[0])
        if read.got <= 0:
            cursor.error = read.error
            return read.got
        record[0] = read.record
    if cursor.has_append_time and cursor.is_v2:
        record.timestamp = cursor.append_time
    cursor.at = record.end
    cursor.records_left -= 1
    return 1


cdef inline Cursor headers_in(const RecordView* record) noexcept nogil:
    """Return a cursor before a record's first header."""
    return Cursor(record.headers, record.end, False)


cdef inline bint read_header(Cursor* fields, HeaderView* header) noexcept nogil:
    """Read one header; False if it is broken.

    `fields` begins at ``RecordView.headers``.
    """
    header.name_size = read_varint(fields)
    header.name = fields.at
    if fields.failed or header.name_size < 0 or header.name_size > fields.end - fields.at:
        return False
    fields.at += header.name_size
    header.value_size = read_varint(fields)
    header.value = fields.at
    if fields.failed or header.value_size > fields.end - fields.at:
        return False
    if header.value_size > 0:
        fields.at += header.value_size
    elif header.value_size < 0:
        header.value_size = -1
    return True
