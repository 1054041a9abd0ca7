"""Records straight into columns, the buffers of Arrow arrays, without a Python object a record.

`RecordColumns` is filled batch by batch from the bytes of a log and gives its buffers away when
asked; `log.records_as_arrow` makes Arrow arrays of them without a copy.  Values of columns that
were not asked for are stepped over, never copied.

Layout: https://arrow.apache.org/docs/format/Columnar.html
"""
from cpython.buffer cimport PyBUF_WRITABLE, PyBuffer_FillInfo
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy, memset

from kafkastore.formats.batch_header cimport (
    CODEC_MASK,
    CONTROL_FLAG,
    RECORDS_AT,
    TRANSACTIONAL_FLAG,
    BatchHeader,
)
from kafkastore.formats.record_batch cimport broken, records_of
from kafkastore.formats.record_cursor cimport (
    HeaderView,
    RecordCursor,
    RecordView,
    next_record,
    open_cursor,
    read_header,
    timestamp_type,
)
from kafkastore.formats.varint cimport Cursor

from kafkastore.formats.compression import MAX_DECOMPRESSED_BYTES

#: Columns in the order of Spark's Kafka source, then our own.
KAFKA_COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
HEADERS_COLUMN = "headers"
OTHER_COLUMNS = ("leader_epoch", "producer_id", "producer_epoch", "is_transactional", "is_control")

#: Rows of one Arrow batch: as many as Spark's own Arrow paths use.
BATCH_ROWS = 10_000
#: A set of columns this large is given away before the next batch is decoded.
DEFAULT_MAX_BYTES = 32 * 1024 * 1024

cdef int64_t LARGEST_MILLIS = INT64_MAX // 1000
cdef Py_ssize_t SMALLEST_RECORD = 7     # v2: seven one-byte fields
cdef Py_ssize_t LARGEST_BINARY = 0x7fffffff - 0xffff


cdef class Growing:
    """Memory that grows by doubling; others see it through the buffer protocol."""

    cdef uint8_t* data
    cdef Py_ssize_t size
    cdef Py_ssize_t capacity

    def __dealloc__(self):
        free(self.data)

    def __getbuffer__(self, Py_buffer* view, int flags):
        PyBuffer_FillInfo(view, self, self.data if self.data else <void*> &self.size, self.size, 1,
                          flags & ~PyBUF_WRITABLE)

    cdef bint reserve(self, Py_ssize_t more) noexcept nogil:
        """Make room for `more` bytes; False without memory."""
        cdef Py_ssize_t wanted = self.size + more
        cdef uint8_t* moved
        if wanted <= self.capacity:
            return True
        wanted = max(wanted, 2 * self.capacity)
        moved = <uint8_t*> realloc(self.data, wanted)
        if moved == NULL:
            return False
        self.data = moved
        self.capacity = wanted
        return True


cdef class Validity:
    """An Arrow bitmap: bit `row` is 1 where a value is present."""

    cdef Growing bits
    cdef Py_ssize_t rows
    cdef Py_ssize_t nulls

    def __cinit__(self):
        self.bits = Growing()

    cdef bint reserve(self, Py_ssize_t rows) noexcept nogil:
        return self.bits.reserve(rows // 8 + 1)

    cdef inline void add(self, bint is_present) noexcept nogil:
        cdef Py_ssize_t row = self.rows
        cdef uint8_t* byte = self.bits.data + (row >> 3)
        if row & 7 == 0:
            byte[0] = 0
            self.bits.size += 1
        byte[0] = <uint8_t> (byte[0] | is_present << (row & 7))
        self.nulls += not is_present
        self.rows = row + 1


cdef class Binary:
    """An Arrow binary or string column: validity, int32 offsets, bytes."""

    cdef Validity validity
    cdef Growing offsets
    cdef Growing values

    def __cinit__(self):
        self.validity = Validity()
        self.offsets = Growing()
        self.values = Growing()
        if not self.offsets.reserve(4):
            raise MemoryError
        memset(self.offsets.data, 0, 4)
        self.offsets.size = 4

    cdef bint reserve(self, Py_ssize_t rows, Py_ssize_t size) noexcept nogil:
        return (self.validity.reserve(rows) and self.offsets.reserve(4 * rows)
                and self.values.reserve(size))

    cdef inline void add(self, const uint8_t* at, int32_t size) noexcept nogil:
        """Add a value; size -1 is null. Room was reserved."""
        self.validity.add(size >= 0)
        if size > 0:
            memcpy(self.values.data + self.values.size, at, size)
            self.values.size += size
        (<int32_t*> (self.offsets.data + self.offsets.size))[0] = <int32_t> self.values.size
        self.offsets.size += 4

    cdef tuple parts(self, bint is_broken):
        return (-1 if is_broken else self.validity.nulls, self.validity.bits, self.offsets,
                self.values)


cdef inline void add_i64(Growing column, int64_t value) noexcept nogil:
    (<int64_t*> (column.data + column.size))[0] = value
    column.size += 8


cdef inline void add_i32(Growing column, int32_t value) noexcept nogil:
    (<int32_t*> (column.data + column.size))[0] = value
    column.size += 4


cdef enum Outcome:
    APPENDED
    COMPRESSED      # the caller decompresses, which needs the GIL
    NO_MEMORY
    BROKEN


cdef class RecordColumns:
    """Columns of records, filled from batches.

    Parameters
    ----------
    columns : iterable of str
        Of `KAFKA_COLUMNS`, `HEADERS_COLUMN` and `OTHER_COLUMNS`; `topic` and `partition` are not
        in the bytes and are ignored here.
    start_offset, end_offset : int
        Records with start_offset <= offset < end_offset.
    start_timestamp, end_timestamp : int
        Records with start_timestamp <= timestamp < end_timestamp, in ms; a record without timestamp
        has -1. No end: None, for the largest timestamp of all is a timestamp too.
    include_control : bool
        Whether transaction markers are records.
    max_rows : int
        `append` stops before the next batch once so many rows are there.
    max_bytes : int
        The same for bytes of keys, values and headers.
    max_decompressed_bytes : int
        What a compressed batch may grow to.
    """

    cdef bint want_key, want_value, want_headers, include_control, want_offset, want_timestamp
    cdef bint want_type, has_end_timestamp
    cdef int64_t start_offset, end_offset, start_timestamp, end_timestamp
    cdef int64_t max_decompressed_bytes
    cdef Py_ssize_t max_rows, max_bytes
    cdef readonly Py_ssize_t rows
    cdef Binary key, value, header_name, header_value
    cdef Growing offsets, timestamps, timestamp_types, header_offsets
    cdef Validity timestamp_validity, headers_validity
    cdef Growing epochs, producers, producer_epochs, transactional, control
    cdef bint want_per_batch, is_broken
    cdef const char* error
    cdef object columns

    def __init__(self, columns, *, start_offset=0, end_offset=INT64_MAX,
                 start_timestamp=-INT64_MAX - 1, end_timestamp=None, include_control=False,
                 max_rows=BATCH_ROWS, max_bytes=DEFAULT_MAX_BYTES,
                 max_decompressed_bytes=MAX_DECOMPRESSED_BYTES):
        self.columns = frozenset(columns)
        self.want_key = "key" in self.columns
        self.want_value = "value" in self.columns
        self.want_headers = HEADERS_COLUMN in self.columns
        self.want_offset = "offset" in self.columns
        self.want_timestamp = "timestamp" in self.columns
        self.want_type = "timestampType" in self.columns
        self.want_per_batch = not self.columns.isdisjoint(OTHER_COLUMNS)
        self.start_offset, self.end_offset = start_offset, end_offset
        self.start_timestamp = start_timestamp
        self.has_end_timestamp = end_timestamp is not None
        if self.has_end_timestamp:
            self.end_timestamp = end_timestamp
        self.include_control = include_control
        self.max_rows, self.max_bytes = max_rows, max_bytes
        self.max_decompressed_bytes = max_decompressed_bytes
        self._renew()

    def _renew(self):
        self.rows = 0
        self.key, self.value = Binary(), Binary()
        self.header_name, self.header_value = Binary(), Binary()
        self.offsets, self.timestamps, self.timestamp_types = Growing(), Growing(), Growing()
        self.header_offsets = Growing()
        self.headers_validity, self.timestamp_validity = Validity(), Validity()
        if not self.header_offsets.reserve(4):
            raise MemoryError
        add_i32(self.header_offsets, 0)
        self.epochs, self.producers, self.producer_epochs = Growing(), Growing(), Growing()
        self.transactional, self.control = Growing(), Growing()

    @property
    def is_full(self):
        """Whether `take` should be called before more is appended."""
        return self._is_full()

    cdef bint _is_full(self) noexcept nogil:
        return self.rows >= self.max_rows or self._bytes() >= self.max_bytes

    cdef Py_ssize_t _bytes(self) noexcept nogil:
        return (self.key.values.size + self.value.values.size + self.header_name.values.size
                + self.header_value.values.size)

    def append(self, const uint8_t[::1] data not None, const BatchHeader[::1] headers not None,
               Py_ssize_t first=0):
        """Decode batches until all are decoded or the columns are full.

        Parameters
        ----------
        data : bytes-like
            Bytes of a log; the first header's batch begins at its first byte.
        headers : numpy.ndarray of BATCH_HEADER
            What `batch_header.scan` found in `data`; batches whose `crc_valid` is 0 raise.
        first : int
            The header to begin with.

        Returns
        -------
        int
            The first header not decoded; ``len(headers)`` when all are.

        Raises
        ------
        CorruptBatchError
            If a checksum is wrong or records break their format. Whole batches before are kept.
        """
        cdef Py_ssize_t i = first, count = headers.shape[0], at
        cdef const BatchHeader* header
        cdef const uint8_t* start = NULL
        cdef const uint8_t* records
        cdef const uint8_t[::1] payload
        cdef Outcome outcome = APPENDED
        if data.shape[0]:
            start = &data[0]
        while outcome == APPENDED and i < count and not self._is_full():
            with nogil:
                while i < count and not self._is_full():
                    header = &headers[i]
                    at = header.position - headers[0].position
                    if at < 0 or at > data.shape[0] or header.size > data.shape[0] - at:
                        self.error = "the bytes of the batch were not given"
                        outcome = BROKEN
                        break
                    outcome = self._append_batch(header, start + at)
                    if outcome != APPENDED:
                        break
                    i += 1
            if outcome == COMPRESSED:
                payload = records_of(data[at:at + header.size], header,
                                     self.max_decompressed_bytes)
                records = &payload[0] if payload.shape[0] else NULL
                with nogil:
                    outcome = self._decode(header, records, payload.shape[0])
                i += outcome == APPENDED
        if outcome == NO_MEMORY:
            raise MemoryError
        if outcome == BROKEN:
            raise broken(self.error.decode(), header)
        return i

    cdef bint _is_in_range(self, const BatchHeader* header) noexcept nogil:
        """Whether a batch may hold offsets asked for; not skipped where that is not sure."""
        return (header.last_offset < header.base_offset or header.last_offset < 0
                or (header.last_offset >= self.start_offset
                    and header.base_offset < self.end_offset))

    cdef bint _is_wanted(self, const BatchHeader* header) noexcept nogil:
        """Whether a batch may hold records asked for, by what its checksum covers."""
        if header.attributes & CONTROL_FLAG and header.magic == 2 and not self.include_control:
            return False
        return header.max_timestamp >= self.start_timestamp

    cdef Outcome _append_batch(self, const BatchHeader* header,
                               const uint8_t* batch) noexcept nogil:
        """Decode one batch from the log's bytes, unless it is compressed."""
        if not self._is_in_range(header):
            return APPENDED
        if header.crc_valid == 0:
            self.error = "the checksum is wrong"
            return BROKEN
        if not self._is_wanted(header):
            return APPENDED
        if header.attributes & CODEC_MASK:
            return COMPRESSED
        if header.magic == 2:
            return self._decode(header, batch + RECORDS_AT, header.size - RECORDS_AT)
        return self._decode(header, batch, header.size)

    cdef Outcome _decode(self, const BatchHeader* header, const uint8_t* records,
                         Py_ssize_t size) noexcept nogil:
        """Decode a batch; what a broken one added lies behind `rows` and never shows."""
        cdef RecordCursor cursor
        cdef RecordView record
        cdef int got
        cdef int32_t kind = timestamp_type(header)
        cdef Py_ssize_t rows_before = self.rows, most_rows = size // SMALLEST_RECORD + 1
        if not open_cursor(&cursor, header, records, size):
            self.error = cursor.error
            return BROKEN
        if header.magic == 2:
            if header.count > most_rows:
                self.error = "the record count is larger than the bytes allow"
                return BROKEN
            most_rows = header.count
        if self._bytes() + size > LARGEST_BINARY:
            self.error = "more than 2 GiB of records can't be one Arrow batch"
            return BROKEN
        if not self._reserve(most_rows, size):
            return NO_MEMORY
        while True:
            got = next_record(&cursor, &record)
            if got <= 0:
                break
            if (record.offset < self.start_offset or record.offset >= self.end_offset
                    or record.timestamp < self.start_timestamp
                    or (self.has_end_timestamp and record.timestamp >= self.end_timestamp)):
                continue
            if self.want_headers and not self._add_headers(&record):
                cursor.error = "a record's headers do not end where it ends"
                got = -1
                break
            if self.want_key:
                self.key.add(record.key, record.key_size)
            if self.want_value:
                self.value.add(record.value, record.value_size)
            if self.want_offset:
                add_i64(self.offsets, record.offset)
            if self.want_timestamp:
                self._add_timestamp(record.timestamp)
            if self.want_type:
                add_i32(self.timestamp_types, kind)
            self.rows += 1
        if got < 0:
            self.rows = rows_before
            self.is_broken = True
            self.error = cursor.error
            return BROKEN
        return self._add_per_batch(header, self.rows - rows_before)

    cdef bint _reserve(self, Py_ssize_t rows, Py_ssize_t size) noexcept nogil:
        """Make room for one batch, so that adding a record needs no check."""
        if self.want_key and not self.key.reserve(rows, size):
            return False
        if self.want_value and not self.value.reserve(rows, size):
            return False
        if self.want_headers and not (
                self.headers_validity.reserve(rows) and self.header_offsets.reserve(4 * rows)
                and self.header_name.reserve(size // 2, size)
                and self.header_value.reserve(size // 2, size)):
            return False
        return (self.offsets.reserve(8 * rows) and self.timestamps.reserve(8 * rows)
                and self.timestamp_validity.reserve(rows)
                and self.timestamp_types.reserve(4 * rows))

    cdef inline void _add_timestamp(self, int64_t timestamp) noexcept nogil:
        """Add a timestamp in microseconds; null where that many do not fit 64 bits."""
        cdef bint fits = -LARGEST_MILLIS <= timestamp <= LARGEST_MILLIS
        self.timestamp_validity.add(fits)
        add_i64(self.timestamps, timestamp * 1000 if fits else 0)

    cdef bint _add_headers(self, const RecordView* record) noexcept nogil:
        """Add a record's headers: null, not an empty list, where it has none."""
        cdef Cursor fields
        cdef HeaderView header
        cdef int32_t _
        fields.at = record.headers
        fields.end = record.end
        fields.failed = False
        for _ in range(record.headers_count):
            if not read_header(&fields, &header):
                return False
            self.header_name.add(header.name, header.name_size)
            self.header_value.add(header.value, header.value_size)
        if fields.at != fields.end:
            return False
        self.headers_validity.add(record.headers_count > 0)
        add_i32(self.header_offsets, <int32_t> self.header_name.validity.rows)
        return True

    cdef Outcome _add_per_batch(self, const BatchHeader* header, Py_ssize_t rows) noexcept nogil:
        """Repeat what is the same for all records of a batch."""
        cdef Py_ssize_t i
        cdef bint is_transactional, is_control
        if self.want_per_batch:
            if not (self.epochs.reserve(4 * rows) and self.producers.reserve(8 * rows)
                    and self.producer_epochs.reserve(4 * rows)
                    and self.transactional.reserve(rows) and self.control.reserve(rows)):
                return NO_MEMORY
            is_transactional = header.magic == 2 and header.attributes & TRANSACTIONAL_FLAG != 0
            is_control = header.magic == 2 and header.attributes & CONTROL_FLAG != 0
            for i in range(rows):
                add_i32(self.epochs, header.leader_epoch)
                add_i64(self.producers, header.producer_id)
                add_i32(self.producer_epochs, header.producer_epoch)
                self.transactional.data[self.transactional.size + i] = is_transactional
                self.control.data[self.control.size + i] = is_control
            self.transactional.size += rows
            self.control.size += rows
        return APPENDED

    def take(self):
        """Give the columns away and begin with empty ones.

        Returns
        -------
        rows : int
        columns : dict
            Buffers in Arrow's layout. `key`, `value`: (nulls, validity, offsets, bytes);
            `timestamp`: (nulls, validity, int64 microseconds); `headers`: (nulls, validity,
            offsets, count of names, names, values), the last two as `key` is; `is_transactional`,
            `is_control`: a byte a row; others: plain integers of their column's width. `nulls` is
            -1 where it is not known. After a broken batch buffers may be longer than `rows`.
        """
        cdef Py_ssize_t rows = self.rows
        cdef dict taken = {
            "key": self.key.parts(self.is_broken), "value": self.value.parts(self.is_broken),
            "offset": self.offsets, "timestampType": self.timestamp_types,
            "timestamp": (-1 if self.is_broken else self.timestamp_validity.nulls,
                          self.timestamp_validity.bits, self.timestamps),
            HEADERS_COLUMN: (
                -1 if self.is_broken else self.headers_validity.nulls,
                self.headers_validity.bits, self.header_offsets, self.header_name.validity.rows,
                self.header_name.parts(False), self.header_value.parts(False)),
            "leader_epoch": self.epochs, "producer_id": self.producers,
            "producer_epoch": self.producer_epochs, "is_transactional": self.transactional,
            "is_control": self.control,
        }
        self._renew()
        return rows, {name: buffers for name, buffers in taken.items() if name in self.columns}
