"""A record batch (magic 2) or a message with the messages it wraps (magic 0, 1).

These are Python values, for single batches and records; `record_columns` reads many into Arrow,
from the same bytes with the same cursor.

Source: Kafka 2.4.0 ``DefaultRecordBatch``, ``AbstractLegacyRecordBatch``, ``ControlRecordType``.
"""
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcpy

from kafkastore.formats.records.batch_header cimport (
    CODEC_MASK,
    CONTROL_FLAG,
    DELETE_HORIZON_FLAG,
    HEADER_BAD_LENGTH,
    HEADER_BAD_MAGIC,
    HEADER_WHOLE,
    MESSAGE_KEY_SIZE_AT_V0,
    MESSAGE_KEY_SIZE_AT_V1,
    RECORDS_AT,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    HeaderStatus,
    compute_crc,
    is_crc_valid,
    parse_header,
)
from kafkastore.formats.primitives.big_endian cimport load_i32, wrapping_sum
from kafkastore.formats.records.decoders cimport LZ4_OF_MAGIC_0
from kafkastore.formats.records.record_cursor cimport (
    HeaderView,
    RecordCursor,
    RecordView,
    headers_in,
    is_wrapper,
    next_record,
    open_cursor,
    read_header,
    timestamp_type,
)
from kafkastore.formats.primitives.varint cimport Cursor

import enum
from collections import namedtuple

import numpy as np

from kafkastore.errors import ChecksumError, CorruptBatchError, UnsupportedFormatError
from kafkastore.formats.records.batch_header import BATCH_HEADER, bytes_of
from kafkastore.formats.records.compression import Codec
from kafkastore.formats.records.decompression import MAX_DECOMPRESSED_BYTES, decompress

cdef int LAST_CODEC = max(Codec), LZ4 = Codec.LZ4, ZSTD = Codec.ZSTD

cdef enum:
    # `compressed_part` found none.
    WRAPPER_HAS_BAD_KEY = -1
    WRAPPER_HAS_BAD_VALUE = -2

Record = namedtuple(
    "Record", "offset timestamp timestamp_type key value headers leader_epoch",
    module="kafkastore.formats.records.record_batch")
Record.__doc__ = """One record: what a consumer is given.

`offset`; `timestamp` in ms since 1970, -1 where the message format has none; `timestamp_type` as in
`TimestampType`; `key` and `value` bytes or None; `headers` a tuple of (name, value or None);
`leader_epoch` or None before magic 2.
"""


class TimestampType(enum.IntEnum):
    """Which clock a record's timestamp is from: Kafka's ``TimestampType`` ids."""

    NO_TIMESTAMP_TYPE = -1
    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


cdef object broken(str reason, const BatchHeader* header):
    """Return the error for a batch whose records can't be read."""
    return CorruptBatchError(
        f"{reason}, in the batch that ends with offset {header.last_offset}",
        position=header.position)


cdef Py_ssize_t compressed_part(
    const BatchHeader* header, const uint8_t* batch, const uint8_t** part
) noexcept nogil:
    """Find the compressed part of a batch; return its size, or why there is none."""
    cdef Py_ssize_t at = RECORDS_AT
    cdef int32_t size
    if header.magic < 2:
        at = MESSAGE_KEY_SIZE_AT_V1 if header.magic == 1 else MESSAGE_KEY_SIZE_AT_V0
        size = load_i32(batch + at)
        if size > header.size - at - 8:
            return WRAPPER_HAS_BAD_KEY
        at += 4 + max(size, 0)
        size = load_i32(batch + at)
        at += 4
        if size < 0 or size > header.size - at:
            return WRAPPER_HAS_BAD_VALUE
    else:
        size = header.size - RECORDS_AT
    part[0] = batch + at
    return size


cdef int codec_of(const BatchHeader* header) noexcept nogil:
    """Return the codec that decodes a batch's records; -1 if its magic has none."""
    cdef int codec = header.attributes & CODEC_MASK
    if codec == LZ4 and header.magic == 0:
        return LZ4_OF_MAGIC_0
    return -1 if codec == ZSTD and header.magic < 2 else codec


cdef object compressed_records(const uint8_t[::1] batch, const BatchHeader* header):
    """Return the compressed part of a batch: a view."""
    cdef const uint8_t* part = NULL
    cdef Py_ssize_t size = compressed_part(header, &batch[0], &part)
    if size == WRAPPER_HAS_BAD_KEY:
        raise broken("the wrapper's key has an impossible length", header)
    if size == WRAPPER_HAS_BAD_VALUE:
        raise broken("the wrapper's value is null or runs past its end", header)
    return memoryview(batch)[part - &batch[0]:part - &batch[0] + size]


cdef object records_of(const uint8_t[::1] batch, const BatchHeader* header, int64_t limit):
    """Return the bytes of a whole batch's records, decompressed if needed."""
    cdef int codec = header.attributes & CODEC_MASK
    if codec == 0:
        return memoryview(batch)[RECORDS_AT:] if header.magic == 2 else memoryview(batch)
    if header.count == 0:
        return b""   # compaction has removed all records
    try:
        return decompress(codec, compressed_records(batch, header), magic=header.magic,
                          max_decompressed_bytes=limit)
    except (CorruptBatchError, UnsupportedFormatError) as error:
        if error.position is not None:
            raise
        raise type(error)(error.reason, position=header.position) from error


cdef bint has_flag(const BatchHeader* header, int flag) noexcept:
    """Return whether one of the attributes that only magic 2 has is set."""
    return header.magic == 2 and header.attributes & flag != 0


cdef object optional_bytes(const uint8_t* at, int32_t size):
    return None if size < 0 else PyBytes_FromStringAndSize(<const char*> at, size)


cdef tuple headers_of(const RecordView* record, const BatchHeader* batch):
    """Decode a record's headers; bytes of names that are not UTF-8 become surrogates."""
    cdef Cursor fields = headers_in(record)
    cdef HeaderView header
    cdef list headers = []
    cdef int32_t _
    for _ in range(record.headers_count):
        if not read_header(&fields, &header):
            raise broken(f"a header of the record at offset {record.offset} is broken", batch)
        name = PyBytes_FromStringAndSize(<const char*> header.name, header.name_size)
        headers.append((name.decode("utf-8", "surrogateescape"),
                        optional_bytes(header.value, header.value_size)))
    if fields.at != fields.end:
        raise broken(
            f"the record at offset {record.offset} has bytes after its last header", batch)
    return tuple(headers)


cdef class RecordBatch:
    """One batch, with the header's fields as attributes and its records on demand.

    Parameters
    ----------
    data : bytes
        Exactly the bytes of the batch, frame included.
    position : int
        Byte position of the batch in its file.

    Raises
    ------
    CorruptBatchError
        If the bytes are not one whole batch.
    UnsupportedFormatError
        If the magic is not 0, 1 or 2.
    """

    cdef BatchHeader _header
    cdef const uint8_t[::1] data

    def __cinit__(self, const uint8_t[::1] data not None, int64_t position=0):
        cdef HeaderStatus status = HEADER_BAD_LENGTH
        if data.shape[0]:
            status = parse_header(&data[0], data.shape[0], &self._header)
        if status == HEADER_BAD_MAGIC:
            raise UnsupportedFormatError(
                f"record batch has magic {self._header.magic}, not 0, 1 or 2", position=position)
        if status != HEADER_WHOLE or self._header.size != data.shape[0]:
            raise CorruptBatchError(f"{data.shape[0]} bytes are not exactly one record batch",
                                    position=position)
        self._header.position = position
        self.data = data

    @property
    def header(self):
        """The whole header: an array of one `batch_header.BATCH_HEADER`."""
        fields = np.empty(1, BATCH_HEADER)
        cdef uint8_t[::1] raw = bytes_of(fields)
        memcpy(&raw[0], &self._header, sizeof(BatchHeader))
        return fields

    @property
    def position(self):
        """Byte position of the batch in its file."""
        return self._header.position

    @property
    def size(self):
        """Bytes of the batch, frame included."""
        return self._header.size

    @property
    def magic(self):
        """The message format: 0, 1 or 2."""
        return self._header.magic

    @property
    def base_offset(self):
        """First offset; compaction keeps it even if it removes that record.

        A wrapper of magic 0 or 1 is decompressed for this.
        """
        if not is_wrapper(&self._header):
            return self._header.base_offset
        return self.message_offsets[0]

    @property
    def message_offsets(self):
        """First and last offset of a wrapper's messages, which are decompressed for this."""
        cdef const uint8_t[::1] payload
        cdef RecordCursor cursor
        cdef RecordView view
        payload = records_of(self.data, &self._header, MAX_DECOMPRESSED_BYTES)
        if not open_cursor(&cursor, &self._header, &payload[0] if payload.shape[0] else NULL,
                           payload.shape[0]) or next_record(&cursor, &view) < 0:
            raise broken(cursor.error.decode(), &self._header)
        return view.offset, wrapping_sum(cursor.base_offset, cursor.last_inner_offset)

    @property
    def last_offset(self):
        """Last offset, inclusive; compaction keeps it even without that record."""
        return self._header.last_offset

    @property
    def max_timestamp(self):
        """Largest timestamp according to the header: ms since 1970, -1 for magic 0."""
        return self._header.max_timestamp

    @property
    def base_timestamp(self):
        """Base of the record timestamps, ms; the delete horizon if that flag is set."""
        return self._header.base_timestamp

    @property
    def timestamp_type(self):
        """Which clock the timestamps are from."""
        return TimestampType(timestamp_type(&self._header))

    @property
    def codec(self):
        """How the records are compressed.

        Raises
        ------
        UnsupportedFormatError
            If Kafka does not have the codec.
        """
        cdef int codec = self._header.attributes & CODEC_MASK
        if codec > LAST_CODEC:
            raise UnsupportedFormatError(f"codec {codec} is not known", position=self.position)
        return Codec(codec)

    @property
    def count(self):
        """Number of records; None for a wrapper, whose header does not have it."""
        return None if is_wrapper(&self._header) else self._header.count

    @property
    def leader_epoch(self):
        """Partition leader epoch; None before magic 2, or if it is -1."""
        return None if self._header.leader_epoch < 0 else self._header.leader_epoch

    @property
    def producer_id(self):
        """Id of an idempotent producer; -1 for none."""
        return self._header.producer_id

    @property
    def producer_epoch(self):
        """Epoch of that producer; -1 for none."""
        return self._header.producer_epoch

    @property
    def base_sequence(self):
        """Sequence number of the first record; -1 for none."""
        return self._header.base_sequence

    @property
    def is_transactional(self):
        """Whether the records belong to a transaction."""
        return has_flag(&self._header, TRANSACTIONAL_FLAG)

    @property
    def is_control(self):
        """Whether this is a control batch, which consumers do not get."""
        return has_flag(&self._header, CONTROL_FLAG)

    @property
    def delete_horizon_ms(self):
        """When a compacted batch's tombstones may be deleted (KIP-534), ms, or None."""
        if has_flag(&self._header, DELETE_HORIZON_FLAG):
            return self._header.base_timestamp
        return None

    @property
    def crc(self):
        """The stored checksum."""
        return self._header.crc

    def is_valid(self):
        """Return whether the stored checksum matches the bytes."""
        return is_crc_valid(&self.data[0], &self._header)

    def verify(self):
        """Check the checksum.

        Raises
        ------
        ChecksumError
            If the stored checksum does not match the bytes.
        """
        if not self.is_valid():
            raise ChecksumError(
                f"the batch that ends with offset {self._header.last_offset} fails its checksum "
                f"(stored {self._header.crc:#010x}, "
                f"computed {compute_crc(&self.data[0], &self._header):#010x})",
                position=self._header.position)

    def records(self, *, max_decompressed_bytes=MAX_DECOMPRESSED_BYTES):
        """Decode the records, also of control batches, without checking the checksum.

        Parameters
        ----------
        max_decompressed_bytes : int
            Size limit of a decompressed batch.

        Returns
        -------
        list of Record
            In offset order; empty if compaction has removed all records.

        Raises
        ------
        CorruptBatchError
            If the records are corrupt.
        """
        cdef list records = []
        self._read(max_decompressed_bytes, records)
        return records

    def check_records(self, *, max_decompressed_bytes=MAX_DECOMPRESSED_BYTES):
        """Check that `records` can decode the records; takes little memory.

        Parameters
        ----------
        max_decompressed_bytes : int
            Size limit of a decompressed batch.

        Raises
        ------
        CorruptBatchError
            If the records are corrupt.
        """
        self._read(max_decompressed_bytes, None)

    cdef object _read(self, int64_t max_decompressed_bytes, list records):
        """Decode the records; append them to `records`, if given."""
        cdef const uint8_t[::1] payload = records_of(self.data, &self._header,
                                                     max_decompressed_bytes)
        cdef RecordCursor cursor
        cdef RecordView view
        cdef int got
        cdef const uint8_t* start = NULL
        if payload.shape[0]:
            start = &payload[0]
        kind = self.timestamp_type
        epoch = self.leader_epoch
        if not open_cursor(&cursor, &self._header, start, payload.shape[0]):
            raise broken(cursor.error.decode(), &self._header)
        while True:
            got = next_record(&cursor, &view)
            if got < 0:
                raise broken(cursor.error.decode(), &self._header)
            if got == 0:
                return
            headers = headers_of(&view, &self._header) if view.headers_count else ()
            if records is not None:
                records.append(Record(
                    view.offset, view.timestamp, kind, optional_bytes(view.key, view.key_size),
                    optional_bytes(view.value, view.value_size), headers, epoch))

    def __reduce__(self):
        return RecordBatch, (bytes(self.data), self.position)

    def __repr__(self):
        cdef int codec = self._header.attributes & CODEC_MASK
        name = codec if codec > LAST_CODEC else Codec(codec).name
        offsets = f"last_offset={self.last_offset}"
        if not is_wrapper(&self._header):  # which would have to be decompressed
            offsets = f"count={self.count}, base_offset={self.base_offset}, {offsets}"
        return (f"RecordBatch(position={self.position}, {offsets}, "
                f"magic={self.magic}, codec={name}, size={self.size})")


def first_record_from(const uint8_t[::1] batch not None, int64_t position,
                      int64_t target_timestamp, int64_t starting_offset, *,
                      int64_t max_decompressed_bytes=MAX_DECOMPRESSED_BYTES):
    """Find a batch's first record with at least a timestamp (ms) and offset.

    `position` is the batch's byte position in its file, for errors. Returns (timestamp, offset) or
    None; control records count as records. Raises `CorruptBatchError` if the records are corrupt.

    Source: Kafka 2.4.0 ``FileRecords.searchForTimestamp``, inner loop.
    """
    cdef RecordBatch found = RecordBatch(batch, position)
    cdef const uint8_t[::1] payload = records_of(batch, &found._header, max_decompressed_bytes)
    cdef RecordCursor cursor
    cdef RecordView view
    cdef int got = 0
    cdef const uint8_t* start = NULL
    if payload.shape[0]:
        start = &payload[0]
    if not open_cursor(&cursor, &found._header, start, payload.shape[0]):
        raise broken(cursor.error.decode(), &found._header)
    while True:
        got = next_record(&cursor, &view)
        if got < 0:
            raise broken(cursor.error.decode(), &found._header)
        if got == 0:
            return None
        if view.timestamp >= target_timestamp and view.offset >= starting_offset:
            return view.timestamp, view.offset
