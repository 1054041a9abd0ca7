"""Write records, messages and headers of batches, for all magics.

A record to write is a `RecordView`: what the cursor gives can be written again.  Callers have made
room for as many bytes as the functions named `*_size` say.

Source: Kafka 2.4.0 ``DefaultRecord.writeTo``, ``LegacyRecord.write``,
``DefaultRecordBatch.writeHeader``.
"""
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcpy

from kafkastore.formats.records.batch_header cimport (
    ATTRIBUTES_AT,
    BASE_OFFSET_AT,
    BASE_SEQUENCE_AT,
    BASE_TIMESTAMP_AT,
    CRC_AT,
    LAST_OFFSET_DELTA_AT,
    LENGTH_AT,
    LOG_OVERHEAD,
    MAGIC_AT,
    MAX_TIMESTAMP_AT,
    MESSAGE_ATTRIBUTES_AT,
    MESSAGE_CRC_AT,
    MESSAGE_KEY_SIZE_AT_V0,
    MESSAGE_KEY_SIZE_AT_V1,
    MESSAGE_TIMESTAMP_AT,
    PARTITION_LEADER_EPOCH_AT,
    PRODUCER_EPOCH_AT,
    PRODUCER_ID_AT,
    RECORDS_COUNT_AT,
    SMALLEST_MESSAGE_V0,
    SMALLEST_MESSAGE_V1,
    BatchHeader,
)
from kafkastore.formats.primitives.big_endian cimport store_i16, store_i32, store_i64, store_u32
from kafkastore.formats.primitives.crc cimport crc_function
from kafkastore.formats.records.record_cursor cimport HeaderView, RecordView
from kafkastore.formats.primitives.varint cimport varint_size, write_varint


cdef inline uint8_t* write_bytes(uint8_t* at, const uint8_t* data, int64_t size) noexcept nogil:
    """Copy bytes, none for a size of null, and return the place after them."""
    if size <= 0:
        return at
    memcpy(at, data, size)
    return at + size


cdef inline int64_t payload_size(int32_t size) noexcept nogil:
    """Bytes of a key or a value: null has none."""
    return size if size > 0 else 0


cdef inline int64_t header_size(const HeaderView* header) noexcept nogil:
    """Bytes of one header of a record."""
    return (varint_size(header.name_size) + <int64_t> header.name_size
            + varint_size(header.value_size) + payload_size(header.value_size))


cdef inline uint8_t* write_header(uint8_t* at, const HeaderView* header) noexcept nogil:
    """Write one header of a record and return the place after it."""
    at = write_varint(at, header.name_size)
    at = write_bytes(at, header.name, header.name_size)
    at = write_varint(at, header.value_size)
    return write_bytes(at, header.value, header.value_size)


cdef inline int64_t body_size(const RecordView* record, int64_t offset_delta,
                              int64_t timestamp_delta) noexcept nogil:
    """Return the size of a record of magic 2 without its length."""
    return (1 + varint_size(timestamp_delta) + varint_size(offset_delta)
            + varint_size(record.key_size) + payload_size(record.key_size)
            + varint_size(record.value_size) + payload_size(record.value_size)
            + varint_size(record.headers_count) + (record.end - record.headers))


cdef inline void write_record(uint8_t* at, const RecordView* record, int64_t offset_delta,
                              int64_t timestamp_delta, int64_t body_size) noexcept nogil:
    """Write a record of magic 2."""
    at = write_varint(at, body_size)
    at[0] = 0   # attributes: unused
    at = write_varint(at + 1, timestamp_delta)
    at = write_varint(at, offset_delta)
    at = write_varint(at, record.key_size)
    at = write_bytes(at, record.key, record.key_size)
    at = write_varint(at, record.value_size)
    at = write_bytes(at, record.value, record.value_size)
    at = write_varint(at, record.headers_count)
    write_bytes(at, record.headers, record.end - record.headers)


cdef inline void write_batch_header(uint8_t* at, const BatchHeader* header,
                                    crc_function crc32c) noexcept nogil:
    """Write the header of a batch of magic 2 whose records are there already."""
    store_i64(at + BASE_OFFSET_AT, header.base_offset)
    store_i32(at + LENGTH_AT, header.size - LOG_OVERHEAD)
    store_i32(at + PARTITION_LEADER_EPOCH_AT, header.leader_epoch)
    at[MAGIC_AT] = header.magic
    store_i16(at + ATTRIBUTES_AT, header.attributes)
    store_i32(at + LAST_OFFSET_DELTA_AT, <int32_t> (header.last_offset - header.base_offset))
    store_i64(at + BASE_TIMESTAMP_AT, header.base_timestamp)
    store_i64(at + MAX_TIMESTAMP_AT, header.max_timestamp)
    store_i64(at + PRODUCER_ID_AT, header.producer_id)
    store_i16(at + PRODUCER_EPOCH_AT, header.producer_epoch)
    store_i32(at + BASE_SEQUENCE_AT, header.base_sequence)
    store_i32(at + RECORDS_COUNT_AT, header.count)
    store_u32(at + CRC_AT, crc32c(0, at + ATTRIBUTES_AT, header.size - ATTRIBUTES_AT))


cdef inline int64_t message_size(const RecordView* record, int magic) noexcept nogil:
    """Bytes of a message of magic 0 or 1, frame included."""
    return ((SMALLEST_MESSAGE_V1 if magic else SMALLEST_MESSAGE_V0)
            + payload_size(record.key_size) + payload_size(record.value_size))


cdef inline void write_message(uint8_t* at, const RecordView* record, int magic, int attributes,
                               int32_t size, crc_function crc32) noexcept nogil:
    """Write a message of magic 0 or 1, or a wrapper: the record's offset as it is."""
    cdef uint8_t* field = at + (MESSAGE_KEY_SIZE_AT_V1 if magic else MESSAGE_KEY_SIZE_AT_V0)
    store_i64(at + BASE_OFFSET_AT, record.offset)
    store_i32(at + LENGTH_AT, size - LOG_OVERHEAD)
    at[MAGIC_AT] = <uint8_t> magic
    at[MESSAGE_ATTRIBUTES_AT] = <uint8_t> attributes
    if magic:
        store_i64(at + MESSAGE_TIMESTAMP_AT, record.timestamp)
    store_i32(field, record.key_size)
    field = write_bytes(field + 4, record.key, record.key_size)
    store_i32(field, record.value_size)
    write_bytes(field + 4, record.value, record.value_size)
    store_u32(at + MESSAGE_CRC_AT, crc32(0, at + MAGIC_AT, size - MAGIC_AT))
