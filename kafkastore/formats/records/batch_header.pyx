"""The header of a batch or message of any magic, and the scan over such headers.

Every record batch (magic 2) and every message (magic 0 and 1) begins with the same frame, so that a
log is scanned without decoding its records::

    byte 0             8          12          16      17
         +-------------+----------+-----------+-------+----
         | base offset | length   | see below | magic | ...
         +-------------+----------+-----------+-------+----

``length`` counts the bytes after itself. In a message bytes 12 to 15 hold the CRC-32 of the bytes
after them. In a record batch they hold the partition leader epoch, which brokers change in place:
it lies outside the checksum, a CRC-32C at byte 17 over all bytes from byte 21 on. A message has its
own offset. A wrapper, a message whose value is a compressed set of messages, has the offset of its
last message.

Source: Kafka 2.4.0 ``DefaultRecordBatch``, ``LegacyRecord``, ``FileLogInputStream.nextBatch``.
"""
from libc.stdint cimport (
    INT32_MAX, INT64_MAX, INT64_MIN, int8_t, int32_t, int64_t, uint8_t, uint32_t,
)

from kafkastore.formats.primitives.big_endian cimport load_i16, load_i32, load_i64, wrapping_sum
from kafkastore.formats.primitives.crc cimport Crc, crc_functions

import numpy as np

from kafkastore.errors import ArgumentTypeError

cdef Crc CRC = crc_functions()

# Codec, timestamp type, transactional, control, delete horizon; the other bits have always been 0.
cdef enum:
    ATTRIBUTES_IN_USE = 0x7F

cdef enum:
    # Values that a header alone does not have.
    SCAN_BAD_OFFSETS = <int> HEADER_BAD_MAGIC + 1
    SCAN_BAD_CRC

#: numpy's view of one header; the fields of Kafka's ``RecordBatch``, see
#: `docs/formats/record_batch.md`.
BATCH_HEADER = np.dtype([
    ("position", "i8"), ("base_offset", "i8"), ("last_offset", "i8"), ("base_timestamp", "i8"),
    ("max_timestamp", "i8"), ("producer_id", "i8"), ("size", "i4"), ("leader_epoch", "i4"),
    ("count", "i4"), ("base_sequence", "i4"), ("crc", "u4"), ("producer_epoch", "i2"),
    ("attributes", "i2"), ("magic", "i1"), ("crc_valid", "i1"),
])
assert BATCH_HEADER.itemsize == sizeof(BatchHeader)

#: Bits of the field ``attributes``, for arrays of headers.
CODEC_BITS, LOG_APPEND_TIME_BIT = CODEC_MASK, TIMESTAMP_TYPE_FLAG
TRANSACTIONAL_BIT, CONTROL_BIT = TRANSACTIONAL_FLAG, CONTROL_FLAG
DELETE_HORIZON_BIT = DELETE_HORIZON_FLAG

#: Byte position of each field of a record batch, as in `docs/formats/record_batch.md`.
RECORD_BATCH_FIELDS = {
    "base_offset": BASE_OFFSET_AT, "length": LENGTH_AT,
    "partition_leader_epoch": PARTITION_LEADER_EPOCH_AT, "magic": MAGIC_AT, "crc": CRC_AT,
    "attributes": ATTRIBUTES_AT, "last_offset_delta": LAST_OFFSET_DELTA_AT,
    "base_timestamp": BASE_TIMESTAMP_AT, "max_timestamp": MAX_TIMESTAMP_AT,
    "producer_id": PRODUCER_ID_AT, "producer_epoch": PRODUCER_EPOCH_AT,
    "base_sequence": BASE_SEQUENCE_AT, "records_count": RECORDS_COUNT_AT, "records": RECORDS_AT,
}

#: Byte position of each field of a message that has a fixed one, as in
#: `docs/formats/message_set.md`.
MESSAGE_FIELDS_V0 = {
    "offset": BASE_OFFSET_AT, "length": LENGTH_AT, "crc": MESSAGE_CRC_AT, "magic": MAGIC_AT,
    "attributes": MESSAGE_ATTRIBUTES_AT, "key_size": MESSAGE_KEY_SIZE_AT_V0,
    "key": MESSAGE_KEY_SIZE_AT_V0 + 4,
}
MESSAGE_FIELDS_V1 = {
    **MESSAGE_FIELDS_V0, "timestamp": MESSAGE_TIMESTAMP_AT, "key_size": MESSAGE_KEY_SIZE_AT_V1,
    "key": MESSAGE_KEY_SIZE_AT_V1 + 4,
}

SMALLEST_FRAME = SMALLEST_HEADER
SMALLEST_LENGTH = SMALLEST_MESSAGE_V0 - LOG_OVERHEAD
FRAME_OVERHEAD = LOG_OVERHEAD
LARGEST_HEADER = RECORDS_AT

# Why a scan stopped.
ALL_SCANNED = 0
NEEDS_BYTES = <int> HEADER_NEEDS_BYTES
BAD_LENGTH = <int> HEADER_BAD_LENGTH
BAD_MAGIC = <int> HEADER_BAD_MAGIC
BAD_OFFSETS = <int> SCAN_BAD_OFFSETS
BAD_CRC = <int> SCAN_BAD_CRC


cdef HeaderStatus parse_header(
    const uint8_t* at, Py_ssize_t left, BatchHeader* header
) noexcept nogil:
    """Parse the header at a batch's first byte; the checksum is not checked."""
    cdef int64_t length
    if left < SMALLEST_HEADER:
        return HEADER_NEEDS_BYTES
    length = load_i32(at + LENGTH_AT)
    header.magic = <int8_t> at[MAGIC_AT]
    # Kafka's smallest length, checked before the magic: a zero-filled tail has length 0.
    if length < SMALLEST_MESSAGE_V0 - LOG_OVERHEAD:
        return HEADER_BAD_LENGTH
    if header.magic < 0 or header.magic > 2:
        return HEADER_BAD_MAGIC
    if ((header.magic == 2 and length < RECORDS_AT - LOG_OVERHEAD)
            or (header.magic == 1 and length < SMALLEST_MESSAGE_V1 - LOG_OVERHEAD)
            or length > INT32_MAX - LOG_OVERHEAD):
        return HEADER_BAD_LENGTH
    header.size = <int32_t> (LOG_OVERHEAD + length)
    header.crc_valid = -1
    # Smaller than any header of its magic, by the checks above: a torn frame.
    if left < header.size and left < (RECORDS_AT if header.magic == 2 else SMALLEST_MESSAGE_V1):
        return HEADER_NEEDS_BYTES
    header.base_offset = load_i64(at + BASE_OFFSET_AT)
    if header.magic == 2:
        header.leader_epoch = load_i32(at + PARTITION_LEADER_EPOCH_AT)
        header.crc = <uint32_t> load_i32(at + CRC_AT)
        header.attributes = load_i16(at + ATTRIBUTES_AT)
        header.last_offset = wrapping_sum(header.base_offset, load_i32(at + LAST_OFFSET_DELTA_AT))
        header.base_timestamp = load_i64(at + BASE_TIMESTAMP_AT)
        header.max_timestamp = load_i64(at + MAX_TIMESTAMP_AT)
        header.producer_id = load_i64(at + PRODUCER_ID_AT)
        header.producer_epoch = load_i16(at + PRODUCER_EPOCH_AT)
        header.base_sequence = load_i32(at + BASE_SEQUENCE_AT)
        header.count = load_i32(at + RECORDS_COUNT_AT)
        return HEADER_WHOLE if left >= header.size else HEADER_NEEDS_BYTES
    header.last_offset = header.base_offset
    header.leader_epoch = header.base_sequence = -1
    header.producer_id = header.producer_epoch = -1
    header.crc = <uint32_t> load_i32(at + MESSAGE_CRC_AT)
    header.attributes = at[MESSAGE_ATTRIBUTES_AT]
    header.max_timestamp = load_i64(at + MESSAGE_TIMESTAMP_AT) if header.magic == 1 else -1
    header.base_timestamp = header.max_timestamp
    header.count = 1
    if header.attributes & CODEC_MASK:
        header.base_offset = header.count = -1
    return HEADER_WHOLE if left >= header.size else HEADER_NEEDS_BYTES


cdef uint32_t compute_crc(const uint8_t* at, const BatchHeader* header) noexcept nogil:
    """Compute the checksum of a whole batch."""
    if header.magic == 2:
        return CRC.crc32c(0, at + ATTRIBUTES_AT, header.size - ATTRIBUTES_AT)
    return CRC.crc32(0, at + MAGIC_AT, header.size - MAGIC_AT)


cdef bint is_crc_valid(const uint8_t* at, const BatchHeader* header) noexcept nogil:
    """Compare the computed checksum of a whole batch with the stored one."""
    return compute_crc(at, header) == header.crc


def parse(const uint8_t[::1] data not None, int64_t position):
    """Parse one header; the batch need not be whole.

    `data` is `LARGEST_HEADER` bytes from a batch's first byte on, or all remaining bytes;
    `position` is that byte's position in the file. Returns BATCH_HEADER of shape (1,), or None if
    there can be no header.
    """
    headers = np.zeros(1, BATCH_HEADER)
    cdef BatchHeader[::1] header = headers
    cdef HeaderStatus status
    if data.shape[0] < SMALLEST_MESSAGE_V0:
        return None
    status = parse_header(&data[0], data.shape[0], &header[0])
    if status == HEADER_BAD_LENGTH or status == HEADER_BAD_MAGIC:
        return None
    if data.shape[0] < min(header[0].size, LARGEST_HEADER):
        return None
    header[0].position = position
    return headers


def bytes_of(headers):
    """Return the bytes of a BATCH_HEADER array: a view.

    Cython checks the structure of such an array, field by field, each time it is passed to compiled
    code; a view of its bytes needs no such check.
    """
    if headers.dtype != BATCH_HEADER:
        raise ArgumentTypeError("headers", "an array of BATCH_HEADER", headers.dtype)
    return headers.view(np.uint8)


def is_control(headers):
    """Return which batches (BATCH_HEADER) are control batches, such as markers."""
    return (headers["magic"] == 2) & (headers["attributes"] & CONTROL_BIT != 0)


def offsets_rise(headers not None, int64_t smallest):
    """Return whether offsets rise as `scan` wants them, from `smallest` on."""
    cdef const uint8_t[::1] header_bytes = bytes_of(headers)
    cdef Py_ssize_t i, count = len(headers)
    cdef const BatchHeader* header
    if count == 0:
        return True
    header = <const BatchHeader*> &header_bytes[0]
    with nogil:
        for i in range(count):
            if not has_offsets_within(header, smallest, INT64_MAX):
                break
            smallest = header.last_offset + 1
            header += 1
        else:
            i = count
    return i == count


def scan(const uint8_t[::1] data not None, int64_t position, headers not None, *,
         bint verify_crc=False, within=None):
    """Parse the headers of successive batches, without the GIL.

    `data` starts at the first byte of a batch, at byte `position` of its file; the headers have
    positions in the file. `headers` (BATCH_HEADER) is filled from its start, and the scan stops
    when it is full. With `verify_crc`, `crc_valid` is 0 or 1, otherwise -1. `within` is the
    smallest and the largest offset that a batch may have, inclusive: offsets must then also rise,
    and the scan stops before the first batch that violates this or has a wrong checksum. If an
    offset goes back, the batch before is the wrong one if the offsets rise without it.

    Returns the number of headers, the bytes of whole batches before the first that was not parsed,
    a status, and with `NEEDS_BYTES` the bytes of the next batch (0 if its length is incomplete).
    The status is `ALL_SCANNED` (also if `headers` is full), `NEEDS_BYTES` (the next batch is not
    whole in `data`), `BAD_LENGTH` or `BAD_MAGIC`; with `within` also `BAD_OFFSETS` or `BAD_CRC`.
    """
    cdef uint8_t[::1] header_bytes = bytes_of(headers)
    cdef Py_ssize_t size = data.shape[0], capacity = len(headers)
    cdef bint is_strict = within is not None
    cdef int64_t smallest = INT64_MIN, largest = INT64_MAX
    cdef HeaderScan found
    if size == 0 or capacity == 0:
        return 0, 0, ALL_SCANNED, 0
    if is_strict:
        smallest, largest = within
    with nogil:
        found = scan_headers(&data[0], size, position, <BatchHeader*> &header_bytes[0], capacity,
                             verify_crc, is_strict, smallest, largest)
    return found.count, found.size, found.status, found.wanted


cdef HeaderScan scan_headers(
    const uint8_t* start, Py_ssize_t size, int64_t position, BatchHeader* header,
    Py_ssize_t capacity, bint verify_crc, bint is_strict, int64_t smallest, int64_t largest
) noexcept nogil:
    """Parse successive headers as `scan` does; `within` two offsets if `is_strict`."""
    cdef HeaderScan found
    cdef HeaderStatus status = HEADER_WHOLE
    cdef int64_t first, before = smallest
    found.count = found.size = found.wanted = found.status = 0
    while found.size < size and found.count < capacity:
        header.size = 0
        status = parse_header(start + found.size, size - found.size, header)
        if status != HEADER_WHOLE:
            found.wanted = header.size
            found.status = <int> status
            break
        if is_strict:
            first = first_offset_of(header)
            if first < smallest and first >= before and found.count:
                header -= 1
                found.size -= header.size
                found.count -= 1
                found.status = SCAN_BAD_OFFSETS
                break
            if not has_offsets_within(header, smallest, largest):
                found.status = SCAN_BAD_OFFSETS
                break
            before = smallest
            smallest = header.last_offset + 1
        if verify_crc:
            header.crc_valid = is_crc_valid(start + found.size, header)
            if is_strict and not header.crc_valid:
                found.status = SCAN_BAD_CRC
                break
        header.position = position + found.size
        found.size += header.size
        header += 1
        found.count += 1
    return found


def find(const uint8_t[::1] data not None, int64_t min_offset, int64_t max_offset):
    """Find where a batch may begin again after corrupt bytes, without the GIL.

    `data` may start at any byte of a log. The batch's offsets must be from `min_offset` to
    `max_offset`, inclusive, which makes false matches in other data rare. Returns the index of a
    possible header; the checksum is not checked, and the batch need not be whole in `data`. Without
    one, returns the first index at which `data` has too few bytes to decide.
    """
    cdef Py_ssize_t size = data.shape[0], at = 0
    cdef HeaderStatus status
    cdef BatchHeader header
    cdef const uint8_t* start
    if size == 0:
        return 0
    start = &data[0]
    with nogil:
        while at + RECORDS_AT <= size:
            status = parse_header(start + at, size - at, &header)
            if ((status == HEADER_WHOLE or status == HEADER_NEEDS_BYTES)
                    and min_offset <= header.last_offset <= max_offset
                    and (header.magic < 2 or min_offset <= header.base_offset)
                    and header.base_offset <= header.last_offset
                    and (header.attributes & ~ATTRIBUTES_IN_USE) == 0):
                break
            at += 1
    return at
