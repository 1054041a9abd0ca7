"""Build batches of records, one after the other, in one growing piece of memory.

`record_builder` has the functions for most callers. Python records and rows of columns use the same
writer.

Source: Kafka 2.4.0 ``MemoryRecordsBuilder``, ``DefaultRecordBatch.writeEmptyHeader``.
"""
cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy, memset

from kafkastore.formats.records.batch_header cimport (
    CODEC_MASK,
    CONTROL_FLAG,
    DELETE_HORIZON_FLAG,
    RECORDS_AT,
    TIMESTAMP_TYPE_FLAG,
    TRANSACTIONAL_FLAG,
    BatchHeader,
)
from kafkastore.formats.primitives.crc cimport Crc, crc_functions
from kafkastore.formats.records.record_cursor cimport HeaderView, RecordView
from kafkastore.formats.records.record_rows cimport (
    ROW_BROKEN,
    ROW_NO_MEMORY,
    ROW_READ,
    RecordRows,
    RowStatus,
    bytes_of_all,
    offset_of,
    row_of,
)
from kafkastore.formats.records.record_writer cimport (
    body_size,
    header_size,
    message_size,
    write_batch_header,
    write_header,
    write_message,
    write_record,
)
from kafkastore.formats.primitives.varint cimport varint_size

from kafkastore.arguments import whole_number
from kafkastore.errors import (
    ArgumentValueError,
    OffsetOverflowError,
    OutOfOrderAppendError,
    RecordValueError,
)
from kafkastore.formats.records.compression import Codec, check_codec, compress

cdef Crc crc = crc_functions()

cdef int64_t LARGEST_BATCH = INT32_MAX


cdef enum AppendOutcome:
    WRITTEN
    FULL                # the record belongs to the next batch; the values after this one are errors
    OFFSET_TOO_FAR
    TOO_LARGE
    OFFSET_GOES_BACK
    HAS_HEADERS
    HAS_TIMESTAMP
    BROKEN_COLUMN
    NO_MEMORY


@cython.final
cdef class BatchBuilder:
    """Build batches of one kind; each starts when the one before is finished.

    `fields` are `record_builder.BatchFields`, the same for all batches; only `base_sequence`
    continues from batch to batch. A batch is full if another record would make it larger than
    `max_batch_bytes` before compression, or would have an offset too far from the base offset;
    without `max_batch_bytes` such a record is an error. Raises ValueError if the magic does not
    have a field, or a broker's builder refuses it.
    """

    cdef BatchHeader header
    cdef uint8_t* data                  # the uncompressed batch, after room for a v2 header
    cdef Py_ssize_t size, capacity
    cdef bint splits                    # into batches of `max_batch_bytes`
    cdef int64_t max_batch_bytes
    cdef bint is_relative, has_append_time, has_delete_horizon, has_base_offset
    cdef int64_t append_time
    cdef object codec, compression_level
    cdef bint is_busy                   # a thread is writing rows without the GIL

    def __cinit__(self, *, magic=2, codec=Codec.NONE, compression_level=None, log_append_time=None,
                  leader_epoch=-1, producer_id=-1, producer_epoch=-1, base_sequence=-1,
                  is_transactional=False, is_control=False, delete_horizon_ms=None,
                  max_batch_bytes=None):
        cdef BatchHeader* header = &self.header
        if magic not in (0, 1, 2):
            raise ArgumentValueError("magic", "0, 1 or 2", magic)
        check_codec(codec, magic, compression_level)
        self.codec, self.compression_level = codec, compression_level
        self.splits = max_batch_bytes is not None
        self.max_batch_bytes = max_batch_bytes if self.splits else LARGEST_BATCH
        if not 0 < self.max_batch_bytes <= LARGEST_BATCH:
            raise ArgumentValueError("max_batch_bytes", f"from 1 to {LARGEST_BATCH}",
                                     max_batch_bytes)
        for name, value, bits in (
                ("leader_epoch", leader_epoch, 31), ("producer_id", producer_id, 63),
                ("producer_epoch", producer_epoch, 15), ("base_sequence", base_sequence, 31),
                ("log_append_time", log_append_time or 0, 63),
                ("delete_horizon_ms", delete_horizon_ms or 0, 63)):
            whole_number(name, value, -(1 << bits), (1 << bits) - 1)
        self.is_relative = magic == 1 and codec != Codec.NONE
        self.has_append_time = log_append_time is not None
        self.has_delete_horizon = delete_horizon_ms is not None
        memset(header, 0, sizeof(BatchHeader))
        header.magic, header.attributes = magic, codec
        header.leader_epoch = leader_epoch
        header.producer_id, header.producer_epoch = producer_id, producer_epoch
        header.base_sequence = base_sequence
        if is_transactional:
            header.attributes |= TRANSACTIONAL_FLAG
        if is_control:
            header.attributes |= CONTROL_FLAG
        if self.has_append_time:
            self.append_time = log_append_time
            header.attributes |= TIMESTAMP_TYPE_FLAG
        if self.has_delete_horizon:
            header.base_timestamp = delete_horizon_ms
            header.attributes |= DELETE_HORIZON_FLAG
        self._check_fields()
        self.start()

    def __dealloc__(self):
        free(self.data)

    cdef int _check_fields(self) except -1:
        """Refuse fields that the magic lacks, or that a broker's builder refuses."""
        cdef BatchHeader* header = &self.header
        cdef int flags = TRANSACTIONAL_FLAG | CONTROL_FLAG | DELETE_HORIZON_FLAG
        if header.magic < 2 and (header.attributes & flags or header.leader_epoch != -1
                                 or header.producer_id != -1 or header.producer_epoch != -1
                                 or header.base_sequence != -1):
            raise ArgumentValueError(
                "magic",
                "2 for a leader epoch, producer, transaction, control flag or delete horizon",
                header.magic)
        if header.magic == 0 and self.has_append_time:
            raise ArgumentValueError("log_append_time", "None for messages of magic 0",
                                     self.append_time)
        if header.producer_id == -1:
            if header.attributes & TRANSACTIONAL_FLAG:
                raise ArgumentValueError("producer_id", "at least 0 for a transactional batch", -1)
        elif header.producer_epoch < 0:
            raise ArgumentValueError("producer_epoch", "at least 0 for a batch with a producer_id",
                                     header.producer_epoch)
        elif header.base_sequence < 0 and not header.attributes & CONTROL_FLAG:
            raise ArgumentValueError("base_sequence", "at least 0 for a batch with a producer_id",
                                     header.base_sequence)
        return 0

    def start(self, base_offset=None):
        """Start a batch; records appended since the last `finish` are dropped.

        Raises ValueError if the base offset is negative, or the magic has none.
        """
        self.has_base_offset = base_offset is not None
        if self.has_base_offset:
            if self.header.magic < 2:
                raise ArgumentValueError(
                    "base_offset", f"None for messages of magic {self.header.magic}", base_offset)
            if base_offset < 0:
                raise ArgumentValueError("base_offset", "at least 0", base_offset)
            self.header.base_offset = base_offset
        self.header.count = 0
        self.header.max_timestamp = -1
        self.size = 0
        if self.header.magic == 2:
            if not self.reserve(RECORDS_AT):
                raise MemoryError
            self.size = RECORDS_AT

    cdef inline bint reserve(self, int64_t more) noexcept nogil:
        """Reserve `more` bytes; False if out of memory."""
        cdef uint8_t* moved
        if more <= self.capacity - self.size:
            return True
        self.capacity = max(self.size + more, 2 * self.capacity)
        moved = <uint8_t*> realloc(self.data, self.capacity)
        if moved == NULL:
            self.capacity = self.size
            return False
        self.data = moved
        return True

    cdef AppendOutcome add(self, RecordView* record) noexcept nogil:
        """Write a record after the others, or return why not; its view may be consumed."""
        cdef BatchHeader* header = &self.header
        cdef int64_t base_offset = header.base_offset, base_timestamp = header.base_timestamp
        cdef int64_t offset_delta, timestamp_delta = 0, body = 0, size
        if header.count == 0:
            if not self.has_base_offset:
                base_offset = record.offset
            if not self.has_delete_horizon:
                base_timestamp = record.timestamp
        elif record.offset <= header.last_offset:
            return OFFSET_GOES_BACK
        if record.offset < base_offset or record.offset < 0:
            return OFFSET_GOES_BACK
        offset_delta = record.offset - base_offset
        if offset_delta > INT32_MAX:
            return FULL if self.splits and header.count else OFFSET_TOO_FAR
        if header.magic == 2:
            timestamp_delta = <int64_t> (<uint64_t> record.timestamp - <uint64_t> base_timestamp)
            body = body_size(record, offset_delta, timestamp_delta)
            size = varint_size(body) + body
        else:
            if record.headers_count:
                return HAS_HEADERS
            if header.magic == 0 and record.timestamp != -1:
                return HAS_TIMESTAMP
            size = message_size(record, header.magic)
            if self.has_append_time:
                record.timestamp = self.append_time
        if self.splits and size > self.max_batch_bytes - self.size and header.count:
            return FULL
        if size > LARGEST_BATCH - self.size:
            return TOO_LARGE
        if not self.reserve(size):
            return NO_MEMORY
        header.base_offset, header.last_offset = base_offset, record.offset
        header.base_timestamp = base_timestamp
        header.max_timestamp = max(header.max_timestamp, record.timestamp)
        header.count += 1
        if header.magic == 2:
            write_record(self.data + self.size, record, offset_delta, timestamp_delta, body)
        else:
            if self.is_relative:
                record.offset = offset_delta
            write_message(self.data + self.size, record, header.magic,
                          header.attributes & TIMESTAMP_TYPE_FLAG, <int32_t> size, crc.crc32)
        self.size += size
        return WRITTEN

    cdef object refusal(self, AppendOutcome outcome, int64_t offset):
        """Return the error for a record that was not written."""
        cdef BatchHeader* header = &self.header
        if outcome == NO_MEMORY:
            return MemoryError()
        if outcome == OFFSET_GOES_BACK and offset < 0:
            return OutOfOrderAppendError(f"offset must be at least 0, got {offset}")
        if outcome == OFFSET_GOES_BACK:
            before = f"the base offset {header.base_offset} of its batch"
            if header.count:
                before = f"offset {header.last_offset}, the record's before it"
            return OutOfOrderAppendError(f"offset {offset} can't follow {before}")
        if outcome == OFFSET_TOO_FAR:
            return OffsetOverflowError(
                f"offset {offset} can't be in the batch with base offset {header.base_offset}: it "
                f"is more than {INT32_MAX} offsets away")
        if outcome == HAS_HEADERS:
            return RecordValueError(
                offset, f"messages of magic {header.magic} do not support headers")
        if outcome == HAS_TIMESTAMP:
            return RecordValueError(offset, "messages of magic 0 do not support timestamps")
        if outcome == BROKEN_COLUMN:
            return RecordValueError(
                offset, "an offset of its columns is outside their bytes, or a header has no name")
        return RecordValueError(offset, f"its batch would be larger than {LARGEST_BATCH} bytes")

    def append(self, record):
        """Write a record after the others; False if the batch is full without it.

        Takes and raises the same as `record_builder.build_batch`; after an error the batch is
        unchanged.
        """
        cdef RecordView view
        cdef AppendOutcome outcome
        cdef bytes key = bytes_of(record.key), value = bytes_of(record.value)
        cdef bytes headers = b""
        try:
            view.offset, view.timestamp = record.offset, record.timestamp
        except OverflowError:
            raise RecordValueError(
                record.offset, "its offset and timestamp must fit 64 bits") from None
        view.headers_count = 0
        if pairs := getattr(record, "headers", ()):
            headers = encoded_headers(pairs)
            view.headers_count = len(pairs)
        view.key = data_of(key, &view.key_size)
        view.value = data_of(value, &view.value_size)
        view.headers = <const uint8_t*> PyBytes_AS_STRING(headers)
        view.end = view.headers + PyBytes_GET_SIZE(headers)
        outcome = self.add(&view)
        if outcome > FULL:
            raise self.refusal(outcome, view.offset)
        return outcome == WRITTEN

    def append_rows(self, RecordRows rows not None, Py_ssize_t first=0):
        """Write rows from `first` until the batch is full; return the first one left.

        Raises as `record_builder.build_batch_from_columns`, after the valid rows before are
        written.
        """
        cdef Py_ssize_t row = first
        cdef AppendOutcome outcome
        if first < 0:
            raise ArgumentValueError("first", "at least 0", first)
        if self.is_busy:
            raise RuntimeError("another thread writes rows with this BatchBuilder")
        if not self.reserve(min(bytes_of_all(rows), self.max_batch_bytes)):
            raise MemoryError
        self.is_busy = True
        with nogil:
            outcome = self.add_rows(rows, &row)
        self.is_busy = False
        if outcome > FULL:
            raise self.refusal(outcome, offset_of(rows, row))
        return row

    cdef AppendOutcome add_rows(self, RecordRows rows, Py_ssize_t* row) noexcept nogil:
        """Write rows until one is not written; `row` is then that row."""
        cdef RecordView view
        cdef RowStatus status
        cdef AppendOutcome outcome
        while row[0] < rows.rows:
            status = row_of(rows, row[0], &view)
            if status != ROW_READ:
                return (BROKEN_COLUMN if status == ROW_BROKEN
                        else NO_MEMORY if status == ROW_NO_MEMORY else TOO_LARGE)
            outcome = self.add(&view)
            if outcome != WRITTEN:
                return outcome
            row[0] += 1
        return WRITTEN

    def finish(self, last_offset=None, max_timestamp=None):
        """Return the batch's bytes and start another; see `build_batch`."""
        cdef BatchHeader* header = &self.header
        cdef bytes batch
        if header.count == 0:
            self._check_empty(last_offset)
            header.last_offset = header.base_offset
            header.max_timestamp = -1 if max_timestamp is None else max_timestamp
            if not self.has_delete_horizon:
                header.base_timestamp = -1
        elif max_timestamp is not None:
            raise ArgumentValueError("max_timestamp", "None for a batch with records",
                                     max_timestamp)
        if last_offset is not None:
            self._check_last_offset(last_offset)
            header.last_offset = last_offset
        if self.has_append_time:
            header.max_timestamp = self.append_time
        batch = self._record_batch() if header.magic == 2 else self._message_set()
        if header.base_sequence >= 0:
            header.base_sequence = (<int64_t> header.base_sequence + header.count) & INT32_MAX
        self.start()
        return batch

    cdef int _check_last_offset(self, last_offset) except -1:
        if self.header.magic < 2:
            raise ArgumentValueError(
                "last_offset", f"None for messages of magic {self.header.magic}", last_offset)
        if last_offset < self.header.last_offset:
            raise OutOfOrderAppendError(
                f"last_offset must be at least {self.header.last_offset}, got {last_offset}")
        if last_offset - self.header.base_offset > INT32_MAX:
            raise self.refusal(OFFSET_TOO_FAR, last_offset)
        return 0

    cdef int _check_empty(self, last_offset) except -1:
        if self.header.magic < 2:
            raise ArgumentValueError("magic", "2 for a batch without records", self.header.magic)
        if not self.has_base_offset:
            raise ArgumentValueError("base_offset", "given for a batch without records", None)
        if last_offset is None:
            raise ArgumentValueError("last_offset", "given for a batch without records", None)
        return 0

    cdef bytes _record_batch(self):
        cdef BatchHeader header = self.header
        cdef bytes batch, records
        cdef uint8_t* at
        if header.count and header.attributes & CODEC_MASK:
            records = self._compressed(RECORDS_AT)
            batch = PyBytes_FromStringAndSize(NULL, RECORDS_AT + PyBytes_GET_SIZE(records))
            at = <uint8_t*> PyBytes_AS_STRING(batch)
            memcpy(at + RECORDS_AT, PyBytes_AS_STRING(records), PyBytes_GET_SIZE(records))
        else:
            header.attributes &= ~CODEC_MASK    # a batch without records has no codec
            batch = PyBytes_FromStringAndSize(<const char*> self.data, self.size)
            at = <uint8_t*> PyBytes_AS_STRING(batch)
        header.size = <int32_t> PyBytes_GET_SIZE(batch)
        with nogil:
            write_batch_header(at, &header, crc.crc32c)
        return batch

    cdef bytes _message_set(self):
        """Return the messages, or the message that wraps them."""
        cdef BatchHeader* header = &self.header
        cdef RecordView wrapper
        cdef bytes message, messages
        cdef int32_t size
        if not header.attributes & CODEC_MASK:
            return PyBytes_FromStringAndSize(<const char*> self.data, self.size)
        messages = self._compressed(0)
        wrapper.offset, wrapper.timestamp = header.last_offset, header.max_timestamp
        wrapper.key = data_of(None, &wrapper.key_size)
        wrapper.value = data_of(messages, &wrapper.value_size)
        size = <int32_t> message_size(&wrapper, header.magic)
        message = PyBytes_FromStringAndSize(NULL, size)
        write_message(<uint8_t*> PyBytes_AS_STRING(message), &wrapper, header.magic,
                      header.attributes, size, crc.crc32)
        return message

    cdef bytes _compressed(self, Py_ssize_t start):
        """Return the records, from a byte of the batch on, compressed."""
        cdef const uint8_t[::1] records = <uint8_t[:self.size - start]> (self.data + start)
        compressed = compress(self.codec, memoryview(records), magic=self.header.magic,
                              compression_level=self.compression_level)
        if len(compressed) > LARGEST_BATCH - RECORDS_AT:
            raise ArgumentValueError("records", f"at most {LARGEST_BATCH} bytes when compressed",
                                     len(compressed))
        return compressed


cdef bytes bytes_of(value):
    """Return the bytes of a bytes-like object; None stays None."""
    if value is None or type(value) is bytes:
        return value
    return bytes(memoryview(value))


cdef const uint8_t* data_of(bytes value, int32_t* size) except? NULL:
    """Return the address of bytes and their size: -1 for None."""
    size[0] = -1
    if value is None:
        return NULL
    if PyBytes_GET_SIZE(value) > INT32_MAX:
        raise ArgumentValueError("record", f"at most {INT32_MAX} bytes", len(value))
    size[0] = <int32_t> PyBytes_GET_SIZE(value)
    return <const uint8_t*> PyBytes_AS_STRING(value)


cdef bytes encoded_headers(pairs):
    """Encode names and values of a record's headers."""
    cdef HeaderView header
    cdef bytes name, value, encoded
    cdef list pieces = []
    for key, content in pairs:
        name = key.encode("utf-8", "surrogateescape") if type(key) is str else bytes_of(key)
        if name is None:
            raise ArgumentValueError("headers", "pairs whose name is not None", None)
        value = bytes_of(content)
        header.name = data_of(name, &header.name_size)
        header.value = data_of(value, &header.value_size)
        encoded = PyBytes_FromStringAndSize(NULL, header_size(&header))
        write_header(<uint8_t*> PyBytes_AS_STRING(encoded), &header)
        pieces.append(encoded)
    return b"".join(pieces)
