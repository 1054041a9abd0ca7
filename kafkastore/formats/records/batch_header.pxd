"""The header of a record batch (magic 2) or message (0 and 1), as C knows it."""
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint32_t


cdef enum:
    # What all magics share: the frame.
    BASE_OFFSET_AT = 0
    LENGTH_AT = BASE_OFFSET_AT + 8
    LOG_OVERHEAD = LENGTH_AT + 4
    MAGIC_AT = LOG_OVERHEAD + 4
    SMALLEST_HEADER = MAGIC_AT + 1

    # Magic 2: a record batch.
    PARTITION_LEADER_EPOCH_AT = LOG_OVERHEAD
    CRC_AT = MAGIC_AT + 1
    ATTRIBUTES_AT = CRC_AT + 4
    LAST_OFFSET_DELTA_AT = ATTRIBUTES_AT + 2
    BASE_TIMESTAMP_AT = LAST_OFFSET_DELTA_AT + 4
    MAX_TIMESTAMP_AT = BASE_TIMESTAMP_AT + 8
    PRODUCER_ID_AT = MAX_TIMESTAMP_AT + 8
    PRODUCER_EPOCH_AT = PRODUCER_ID_AT + 8
    BASE_SEQUENCE_AT = PRODUCER_EPOCH_AT + 2
    RECORDS_COUNT_AT = BASE_SEQUENCE_AT + 4
    RECORDS_AT = RECORDS_COUNT_AT + 4

    # Magic 0 and 1: a message, or a wrapper of compressed messages.
    MESSAGE_CRC_AT = LOG_OVERHEAD
    MESSAGE_ATTRIBUTES_AT = MAGIC_AT + 1
    MESSAGE_TIMESTAMP_AT = MESSAGE_ATTRIBUTES_AT + 1
    MESSAGE_KEY_SIZE_AT_V0 = MESSAGE_ATTRIBUTES_AT + 1
    MESSAGE_KEY_SIZE_AT_V1 = MESSAGE_TIMESTAMP_AT + 8
    SMALLEST_MESSAGE_V0 = MESSAGE_KEY_SIZE_AT_V0 + 8
    SMALLEST_MESSAGE_V1 = MESSAGE_KEY_SIZE_AT_V1 + 8

    CODEC_MASK = 0x07
    TIMESTAMP_TYPE_FLAG = 0x08
    TRANSACTIONAL_FLAG = 0x10
    CONTROL_FLAG = 0x20
    DELETE_HORIZON_FLAG = 0x40


cdef packed struct BatchHeader:
    int64_t position         # byte position of the batch in its file
    int64_t base_offset      # -1 in a wrapper: known only after decompression
    int64_t last_offset
    int64_t base_timestamp
    int64_t max_timestamp
    int64_t producer_id
    int32_t size             # the whole batch, frame included
    int32_t leader_epoch
    int32_t count            # -1 in a wrapper
    int32_t base_sequence
    uint32_t crc
    int16_t producer_epoch
    int16_t attributes
    int8_t magic
    int8_t crc_valid         # 1 right, 0 wrong, -1 not checked


cdef enum HeaderStatus:
    HEADER_WHOLE             # parsed, and all its bytes are here
    HEADER_NEEDS_BYTES       # more bytes are needed to say
    HEADER_BAD_LENGTH        # a length no batch of this magic can have
    HEADER_BAD_MAGIC


cdef struct HeaderScan:
    Py_ssize_t count         # of headers
    Py_ssize_t size          # bytes of their batches
    Py_ssize_t wanted        # bytes of the next batch, if it is not whole; 0: unknown
    int status               # a HeaderStatus, or one of `batch_header.scan`


cdef HeaderStatus parse_header(
    const uint8_t* at, Py_ssize_t left, BatchHeader* header
) noexcept nogil
cdef HeaderScan scan_headers(
    const uint8_t* start, Py_ssize_t size, int64_t position, BatchHeader* header,
    Py_ssize_t capacity, bint verify_crc, bint is_strict, int64_t smallest, int64_t largest
) noexcept nogil
cdef uint32_t compute_crc(const uint8_t* at, const BatchHeader* header) noexcept nogil
cdef bint is_crc_valid(const uint8_t* at, const BatchHeader* header) noexcept nogil


cdef inline int64_t first_offset_of(const BatchHeader* header) noexcept nogil:
    """The first offset; of a wrapper, whose header does not hold it, the last."""
    if header.magic < 2 and header.attributes & CODEC_MASK:
        return header.last_offset
    return header.base_offset


cdef inline bint has_offsets_within(const BatchHeader* header, int64_t smallest, int64_t largest
                                    ) noexcept nogil:
    """Whether the first and the last offset rise between two, inclusive."""
    return smallest <= first_offset_of(header) <= header.last_offset <= largest
