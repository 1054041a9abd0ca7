"""Decode records into Arrow buffers, without a Python object for each record.

`RecordColumns` is filled batch by batch from the bytes of a log, and hands over its buffers on
request; `log.records_as_arrow` turns them into Arrow arrays without a copy. Values of columns that
were not requested are skipped, never copied.

Layout: https://arrow.apache.org/docs/format/Columnar.html
"""
from libc.stdint cimport INT64_MAX, INT64_MIN, int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memset

from kafkastore.formats.records.arrow_column cimport (
    QUICK_COPY,
    VIEW_SIZE,
    Binary,
    Nulls,
    add_binary,
    add_null,
    begin_places,
    copy_bytes,
    fill_i32,
    fill_i64,
    forget_nulls,
    free_binary,
    grow_nulls,
    write_view,
)
from kafkastore.formats.records.arrow_memory cimport Block, give, grow, put
from kafkastore.formats.records.batch_header cimport (
    CODEC_MASK,
    CONTROL_FLAG,
    RECORDS_AT,
    SMALLEST_MESSAGE_V0,
    SMALLEST_MESSAGE_V1,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    first_offset_of,
)
from kafkastore.formats.records.record_batch cimport broken, codec_of, compressed_part, records_of
from kafkastore.formats.primitives.big_endian cimport wrapping_sum
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
from kafkastore.formats.records.decoders cimport decode, decoded_bound, free_decoder

from kafkastore.errors import ArgumentValueError, ChecksumError
from kafkastore.formats.records.batch_header import bytes_of
from kafkastore.formats.records.decompression import MAX_DECOMPRESSED_BYTES

#: Columns in the order of Spark's Kafka source; our own follow.
KAFKA_COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
HEADERS_COLUMN = "headers"
OTHER_COLUMNS = ("leader_epoch", "producer_id", "producer_epoch", "is_transactional", "is_control")

cdef object KNOWN_COLUMNS = frozenset((*KAFKA_COLUMNS, HEADERS_COLUMN, *OTHER_COLUMNS))

#: Rows of one Arrow batch: as many as Spark's own Arrow paths use.
BATCH_ROWS = 10_000
#: Columns of this size are handed over before the next batch is decoded: data in a core's own cache
#: is copied twice as fast as other data. A little less than four large reads.
BATCH_BYTES = 7 * 256 * 1024

cdef Py_ssize_t LARGEST_BINARY = 0x7fffffff - 0xffff

cdef enum:
    SMALLEST_RECORD = 7      # v2: seven one-byte fields
    MOST_TIMES = 128         # how much larger than needed a new block is, at most
    KEY_SHARE = 8            # of the bytes of values, for keys

cdef enum MessageOffsets:
    ARE_POSSIBLE
    ARE_IMPOSSIBLE
    ARE_UNREADABLE


cdef inline int64_t wrapping_difference(int64_t a, int64_t b) noexcept nogil:
    return <int64_t> (<uint64_t> a - <uint64_t> b)


cdef inline Py_ssize_t smallest_size(int magic) noexcept nogil:
    if magic == 2:
        return RECORDS_AT
    return SMALLEST_MESSAGE_V1 if magic == 1 else SMALLEST_MESSAGE_V0


cdef inline bint fits_micros(int64_t millis) noexcept nogil:
    return -(INT64_MAX // 1000) <= millis <= INT64_MAX // 1000


cdef MessageOffsets look_at_messages(const BatchHeader* header, const uint8_t* records,
                                     Py_ssize_t size, int64_t smallest_offset, int64_t* first_offset
                                     ) noexcept nogil:
    """Return whether a wrapper's messages have possible offsets, and the first one."""
    cdef RecordCursor cursor
    cdef RecordView first
    if not open_cursor(&cursor, header, records, size) or next_record(&cursor, &first) <= 0:
        return ARE_UNREADABLE
    first_offset[0] = first.offset
    if first.offset >= smallest_offset and (
            header.last_offset == 0
            or wrapping_sum(cursor.base_offset, cursor.last_inner_offset) <= header.last_offset):
        return ARE_POSSIBLE
    return ARE_IMPOSSIBLE


cdef const char* BROKEN_HEADERS = "a record's headers do not end where it ends"


cdef bint has_whole_headers(RecordView record) noexcept nogil:
    """Return whether a record's headers end where it ends."""
    cdef Cursor fields = headers_in(&record)
    cdef HeaderView header
    cdef int32_t _
    for _ in range(record.headers_count):
        if not read_header(&fields, &header):
            return False
    return fields.at == fields.end


cdef class RecordColumns:
    """Columns of records, for one thread at a time.

    `columns` is a subset of `KAFKA_COLUMNS`, `HEADERS_COLUMN`, `OTHER_COLUMNS`; the caller adds
    `topic` and `partition`. Start offset and timestamp (ms) are inclusive, end offset and timestamp
    exclusive; timestamps may be None. `include_control` includes transaction markers. With
    `binary_view` keys and values are Arrow views of the bytes they were decoded from, which are
    kept alive and must not change; otherwise copies. With `in_millis` timestamps are ms, and none
    is null. Columns are full before a batch that, by its header, would make them longer than
    `max_rows`, unless they are empty, and after a batch that made them hold `max_bytes`.
    `max_decompressed_bytes` is the size limit of a decompressed batch.
    """

    def __cinit__(self, columns, *, start_offset=0, end_offset=INT64_MAX,
                  start_timestamp=-INT64_MAX - 1, end_timestamp=None, include_control=False,
                  binary_view=False, in_millis=False, max_rows=BATCH_ROWS, max_bytes=BATCH_BYTES,
                  max_decompressed_bytes=MAX_DECOMPRESSED_BYTES):
        self.view_buffers = []
        self.columns = frozenset(columns)
        if unknown := self.columns - KNOWN_COLUMNS:
            raise ArgumentValueError("columns", "known names", sorted(unknown))
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
        self.as_views = binary_view
        self.in_millis = in_millis
        self.copy_key = self.want_key and not binary_view
        self.copy_value = self.want_value and not binary_view
        self.is_special = (self.want_headers or self.as_views or self.has_end_timestamp
                           or self.start_timestamp > -INT64_MAX - 1)
        self.max_rows, self.max_bytes = max_rows, max_bytes
        self.max_decompressed_bytes = max_decompressed_bytes
        if not (self._reserve_rows(1) and self._reserve_headers(1)
                and grow(&self.key.bytes, QUICK_COPY) and grow(&self.value.bytes, QUICK_COPY)):
            raise MemoryError
        begin_places(&self.key.places)
        begin_places(&self.value.places)
        begin_places(&self.header_name.places)
        begin_places(&self.header_value.places)
        begin_places(&self.header_offsets)

    def __dealloc__(self):
        free_decoder(&self.decoder)
        put(self.decompressed)
        put(self.compressed)
        free_binary(&self.key)
        free_binary(&self.value)
        free_binary(&self.header_name)
        free_binary(&self.header_value)
        put(self.timestamp_nulls.bits)
        put(self.headers_nulls.bits)
        put(self.offsets)
        put(self.timestamps)
        put(self.timestamp_types)
        put(self.header_offsets)
        put(self.epochs)
        put(self.producers)
        put(self.producer_epochs)
        put(self.transactional)
        put(self.control)

    cdef uint8_t* room_for_log(self, Py_ssize_t size) noexcept nogil:
        """Return memory for the next bytes of a log; NULL if there is none.

        `append_usual` moves values from there instead of copying them.
        """
        if self.block_for_log() == &self.compressed:
            return self.compressed.data if grow(&self.compressed, size) else NULL
        if not self._make_room(size):
            return NULL
        return self.value.bytes.data + self.value.size + QUICK_COPY

    cdef Block* block_for_log(self) noexcept nogil:
        """Return the block that they lie in."""
        if self.is_compressed or not self.copy_value:
            return &self.compressed
        return &self.value.bytes

    cdef Py_ssize_t _capacity_for(self, Py_ssize_t size) noexcept nogil:
        """Return the capacity of the values with room after them.

        A new block is for as many values as will come: memory that is never touched costs nothing.
        """
        cdef Py_ssize_t at = self.value.size + QUICK_COPY
        if size <= self.value.bytes.capacity - at - QUICK_COPY:
            return self.value.bytes.capacity
        return (at + size + max(min(max(MOST_TIMES * size, at), self.max_bytes - at), 0)
                + QUICK_COPY)

    cdef bint _make_room(self, Py_ssize_t size) noexcept nogil:
        """Reserve room after the values."""
        return grow(&self.value.bytes, self._capacity_for(size))

    cdef bint _reserve_values(self, Py_ssize_t size) noexcept nogil:
        """Reserve `size` bytes in all for values that lie elsewhere."""
        if size <= self.value.bytes.capacity - QUICK_COPY:
            return True
        return grow(&self.value.bytes, max(size + QUICK_COPY,
                                           min(2 * self.value.bytes.capacity, self.max_bytes)))

    cdef bint _lies_in_room(self, const uint8_t* records, Py_ssize_t size) noexcept nogil:
        """Return whether the values can never overtake the records they come from."""
        cdef size_t start = <size_t> self.value.bytes.data
        return (<size_t> records >= start + self.value.size + QUICK_COPY
                and <size_t> records + size <= start + self.value.bytes.capacity)

    cdef bint is_full(self, const BatchHeader* next_header) noexcept nogil:
        """Return whether to hand over the columns before the next batch."""
        return self.rows > 0 and (self.rows + max(next_header.count, 1) > self.max_rows
                                  or self.bytes_bound >= self.max_bytes)

    def append(self, const uint8_t[::1] data not None, headers not None, Py_ssize_t first=0, *,
               position=None, int64_t smallest_offset=INT64_MIN):
        """Decode batches until all are decoded or the columns are full.

        `headers` (BATCH_HEADER) are results of `batch_header.scan` for `data`; decoding starts with
        header `first`. `position` is the byte position of `data` in its file, by default that of
        the first header, and `smallest_offset` the least that its offsets can be. Returns the first
        header not decoded: ``len(headers)`` if all are; otherwise call `take` before the next
        `append`. Raises `CorruptBatchError` for a wrong checksum (`crc_valid` 0), corrupt records,
        or a wrapper that begins before the end of the batch before it; whole batches before are
        kept.
        """
        cdef const uint8_t[::1] header_bytes = bytes_of(headers)
        cdef Py_ssize_t i = first, count = len(headers), rows, viewed
        cdef int64_t origin
        cdef const BatchHeader* first_header
        cdef DecodeOutcome outcome
        if first < 0:
            raise ArgumentValueError("first", "at least 0", first)
        self.check_idle()
        if count == 0:
            return 0
        first_header = <const BatchHeader*> &header_bytes[0]
        origin = first_header.position if position is None else position
        rows, viewed = self.rows, len(self.view_buffers)
        if self.as_views:
            self._view(data.base)
        self.is_busy = True
        try:
            outcome = self._append(data, first_header, origin, count, &i, smallest_offset)
        finally:
            self.is_busy = False
        if self.rows == rows:
            self._unview(viewed)
        if outcome == NO_MEMORY:
            raise MemoryError
        if outcome == BROKEN and self.error == NULL:
            raise ChecksumError("the checksum is wrong", position=first_header[i].position)
        if outcome == BROKEN:
            raise broken(self.error.decode(), first_header + i)
        return i

    cdef int check_idle(self) except -1:
        if self.is_busy:
            raise RuntimeError("another thread uses these RecordColumns")
        return 0

    cdef DecodeOutcome _append(
        self, const uint8_t[::1] data, const BatchHeader* headers, int64_t origin,
        Py_ssize_t count, Py_ssize_t* first, int64_t smallest_offset
    ) except *:
        """Decode batches; `first` becomes the first header that was not decoded."""
        cdef Py_ssize_t i = first[0], at = 0, size = data.shape[0]
        cdef const uint8_t* start = &data[0] if size else NULL
        cdef const BatchHeader* header = NULL
        cdef DecodeOutcome outcome = APPENDED
        while True:
            with nogil:
                while i < count:
                    header = headers + i
                    if self.is_full(header):
                        break
                    at = wrapping_difference(header.position, origin)
                    if (header.position < origin or at < 0 or at > size or header.size > size - at
                            or header.size < smallest_size(header.magic)):
                        self.error = "the bytes of the batch were not given"
                        outcome = BROKEN
                        break
                    outcome = self.append_usual(
                        header, start, start + at, start + size,
                        headers[i - 1].last_offset + 1 if i else smallest_offset, False)
                    if outcome != APPENDED:
                        break
                    i += 1
            if outcome != COMPRESSED:
                break
            outcome = self._append_compressed(
                header, data[at:at + header.size],
                headers[i - 1].last_offset + 1 if i else smallest_offset)
            if outcome != APPENDED:
                break
            i += 1
        first[0] = i
        return outcome

    cdef DecodeOutcome _append_compressed(
        self, const BatchHeader* header, const uint8_t[::1] batch, int64_t smallest_offset
    ) except *:
        cdef const uint8_t[::1] records
        cdef const uint8_t* start
        cdef int32_t view_buffer = self.view_buffer
        cdef Py_ssize_t rows = self.rows, viewed = len(self.view_buffers)
        cdef DecodeOutcome outcome
        records = records_of(batch, header, self.max_decompressed_bytes)
        start = &records[0] if records.shape[0] else NULL
        if self.as_views:
            self._view(records.base)
        with nogil:
            outcome = self._decode_decompressed(header, start, records.shape[0], smallest_offset,
                                                True)
        self.view_buffer = view_buffer
        if self.rows == rows:
            self._unview(viewed)
        return outcome

    cdef void _view(self, object buffer):
        """Let the following views refer to a buffer."""
        if not self.view_buffers or self.viewed is not buffer:
            self.viewed = buffer
            self.view_buffers.append(buffer)
        self.view_buffer = <int32_t> len(self.view_buffers) - 1

    cdef void _unview(self, Py_ssize_t count):
        """Drop all buffers after the first `count`, to which no row refers."""
        if len(self.view_buffers) > count:
            del self.view_buffers[count:]
            self.viewed = None

    cdef bint _is_in_range(self, const BatchHeader* header) noexcept nogil:
        """Return whether a batch may hold requested offsets; True if that is unknown."""
        return (header.last_offset < header.base_offset or header.last_offset < 0
                or (header.last_offset >= self.start_offset
                    and header.base_offset < self.end_offset))

    cdef bint _is_in_time(self, int64_t timestamp) noexcept nogil:
        return timestamp >= self.start_timestamp and not (
            self.has_end_timestamp and timestamp >= self.end_timestamp)

    cdef bint _is_wanted(self, const BatchHeader* header) noexcept nogil:
        """Return whether a batch may hold requested records, by checksummed fields."""
        if header.attributes & CONTROL_FLAG and header.magic == 2 and not self.include_control:
            return False
        # A record without a timestamp has -1, whatever its wrapper says.
        return self.start_timestamp < 0 or header.max_timestamp >= self.start_timestamp

    cdef DecodeOutcome append_usual(
        self, const BatchHeader* header, const uint8_t* buffer, const uint8_t* batch,
        const uint8_t* readable_end, int64_t smallest_offset, bint check_all
    ) noexcept nogil:
        """Append one batch; COMPRESSED if only Python can decompress it.

        With `check_all` the offsets of a wrapper's messages are looked at even if none is wanted.
        """
        cdef bint is_wanted = self._is_in_range(header)
        if is_wanted and header.crc_valid == 0:
            self.error = NULL
            return BROKEN
        self.first_offset = first_offset_of(header)
        is_wanted = is_wanted and self._is_wanted(header)
        if not is_wanted and not (check_all and is_wrapper(header)):
            return APPENDED
        if header.attributes & CODEC_MASK:
            return self._append_decompressed(header, batch, smallest_offset, is_wanted)
        return self._decode(header, buffer, batch + RECORDS_AT if header.magic == 2 else batch,
                            batch + header.size, readable_end)

    cdef DecodeOutcome _append_decompressed(
        self, const BatchHeader* header, const uint8_t* batch, int64_t smallest_offset,
        bint is_wanted
    ) noexcept nogil:
        """Decompress a batch to where its values will be, and decode it."""
        cdef const uint8_t* compressed = NULL
        cdef Py_ssize_t size = compressed_part(header, batch, &compressed), bound, got
        cdef int codec = codec_of(header)
        cdef uint8_t* to
        # Views keep the memory that they refer to: each batch then needs memory of its own.
        if size < 0 or header.count == 0 or self.as_views:
            return COMPRESSED
        bound = decoded_bound(codec, compressed, size)
        if bound < 0 or bound > self.max_decompressed_bytes:
            return COMPRESSED
        if self.copy_value:
            if not self._make_room(bound):
                return NO_MEMORY
            to = self.value.bytes.data + self.value.size + QUICK_COPY
        else:
            if not grow(&self.decompressed, bound):
                return NO_MEMORY
            to = self.decompressed.data
        got = decode(&self.decoder, codec, compressed, size, to, bound)
        if got < 0:
            return COMPRESSED
        return self._decode_decompressed(header, to, got, smallest_offset, is_wanted)

    cdef DecodeOutcome _decode_decompressed(
        self, const BatchHeader* header, const uint8_t* records, Py_ssize_t size,
        int64_t smallest_offset, bint is_wanted
    ) noexcept nogil:
        """Decode decompressed records; of a wrapper, look at the offsets first."""
        cdef MessageOffsets offsets
        if is_wrapper(header) and smallest_offset != INT64_MIN:
            offsets = look_at_messages(header, records, size, smallest_offset, &self.first_offset)
            if offsets == ARE_IMPOSSIBLE or (offsets == ARE_UNREADABLE and not is_wanted):
                self.error = "the offsets of its messages do not fit it, or the batch before it"
                return BROKEN
        if not is_wanted:
            return APPENDED
        return self._decode(header, records, records, records + size, records + size)

    cdef DecodeOutcome _decode(
        self, const BatchHeader* header, const uint8_t* buffer, const uint8_t* records,
        const uint8_t* end, const uint8_t* readable_end
    ) noexcept nogil:
        """Decode a batch's records in `buffer`; keep no rows of a corrupt batch."""
        cdef RecordCursor cursor
        cdef RecordView record
        cdef int got
        cdef Py_ssize_t row = self.rows, size = end - records, most_rows
        # Local copies of fields that every record needs: the compiler keeps them in registers.
        cdef int64_t start_offset = self.start_offset, end_offset = self.end_offset
        cdef bint copy_key = self.copy_key, copy_value = self.copy_value
        cdef bint is_special = self.is_special, in_millis = self.in_millis
        cdef bint in_room = self._lies_in_room(records, size)
        cdef uint8_t* key_to
        cdef uint8_t* value_to
        cdef uint8_t* key_bytes
        cdef uint8_t* value_bytes
        cdef int32_t* key_places
        cdef int32_t* value_places
        cdef int64_t* offsets
        cdef int64_t* timestamps
        if not open_cursor(&cursor, header, records, size):
            self.error = cursor.error
            return BROKEN
        if header.magic == 2:
            most_rows = header.count
            if most_rows * SMALLEST_RECORD > size:
                self.error = "the record count is larger than the bytes allow"
                return BROKEN
        else:
            most_rows = size // SMALLEST_MESSAGE_V0
        if self.bytes_bound + size > LARGEST_BINARY:
            self.error = "more than 2 GiB of records can't be one Arrow batch"
            return BROKEN
        if row + most_rows > self.row_capacity and not self._reserve_rows(row + most_rows):
            return NO_MEMORY
        if copy_key and not self._reserve_bytes(&self.key, size):
            return NO_MEMORY
        if self.want_headers and not (self._reserve_headers(self.header_count + size // 2)
                                      and self._reserve_bytes(&self.header_name, size)
                                      and self._reserve_bytes(&self.header_value, size)):
            return NO_MEMORY
        if copy_value and not in_room and not self._reserve_values(self.bytes_bound + size):
            return NO_MEMORY
        key_bytes, value_bytes = self.key.bytes.data, self.value.bytes.data
        key_places = <int32_t*> self.key.places.data
        value_places = <int32_t*> self.value.places.data
        offsets = <int64_t*> self.offsets.data
        timestamps = <int64_t*> self.timestamps.data
        key_to, value_to = key_bytes + self.key.size, value_bytes + self.value.size
        while True:
            got = next_record(&cursor, &record)
            if got <= 0:
                break
            if record.offset < start_offset or record.offset >= end_offset or (
                    is_special and not self._is_in_time(record.timestamp)):
                # A batch with any broken headers gives no rows, whichever of its rows are wanted.
                if self.want_headers and not has_whole_headers(record):
                    cursor.error = BROKEN_HEADERS
                    got = -1
                    break
                continue
            if is_special:
                if self.want_headers and not self._add_headers(record, row):
                    cursor.error = BROKEN_HEADERS
                    got = -1
                    break
                if self.as_views:
                    self._add_views(record, row, buffer)
            if copy_key:
                if record.key_size > 0:
                    copy_bytes(key_to, record.key, record.key_size, readable_end)
                    key_to += record.key_size
                elif record.key_size < 0:
                    add_null(&self.key.nulls, row)
                key_places[row + 1] = <int32_t> (key_to - key_bytes)
            if copy_value:
                if record.value_size > 0:
                    copy_bytes(value_to, record.value, record.value_size, readable_end)
                    value_to += record.value_size
                elif record.value_size < 0:
                    add_null(&self.value.nulls, row)
                value_places[row + 1] = <int32_t> (value_to - value_bytes)
            offsets[row] = record.offset
            if in_millis:
                timestamps[row] = record.timestamp
            elif fits_micros(record.timestamp):
                timestamps[row] = record.timestamp * 1000
            else:
                timestamps[row] = 0
                add_null(&self.timestamp_nulls, row)
            row += 1
        if got < 0:
            self.error = cursor.error
            return self._forget_rows()
        if row > self.rows:
            self.bytes_bound += size
            self.key.size, self.value.size = key_to - key_bytes, value_to - value_bytes
            self._fill_per_batch(header, row)
            self.rows = row
        return APPENDED

    cdef bint _reserve_rows(self, Py_ssize_t rows) noexcept nogil:
        """Reserve rows in all, so that adding a record needs no check.

        New blocks are for as many as will come: one that grows leaves spare ones unused.
        """
        cdef Py_ssize_t place = VIEW_SIZE if self.as_views else 4
        rows = max(rows + min(MOST_TIMES * rows, self.max_rows), 2 * self.row_capacity)
        if not (grow_nulls(&self.key.nulls, rows) and grow_nulls(&self.value.nulls, rows)
                and grow(&self.key.places, place * (rows + 1))
                and grow(&self.value.places, place * (rows + 1))
                and grow_nulls(&self.timestamp_nulls, rows)
                and grow(&self.offsets, 8 * rows) and grow(&self.timestamps, 8 * rows)
                and grow(&self.timestamp_types, 4 * rows)):
            return False
        if not (grow_nulls(&self.headers_nulls, rows)
                and grow(&self.header_offsets, 4 * (rows + 1))):
            return False
        if self.want_per_batch and not (
                grow(&self.epochs, 4 * rows) and grow(&self.producers, 8 * rows)
                and grow(&self.producer_epochs, 4 * rows)
                and grow(&self.transactional, rows) and grow(&self.control, rows)):
            return False
        self.row_capacity = rows
        return True

    cdef bint _reserve_bytes(self, Binary* column, Py_ssize_t more) noexcept nogil:
        """Reserve bytes of keys or of headers; most are much smaller than values.

        A new block is smaller than one for values, and so never one that values were in: all of
        those were touched.
        """
        cdef Py_ssize_t size = column.size + more + QUICK_COPY
        if size <= column.bytes.capacity:
            return True
        return grow(&column.bytes, max(size + min(MOST_TIMES * more, self.max_bytes // KEY_SHARE),
                                       2 * column.bytes.capacity))

    cdef bint _reserve_headers(self, Py_ssize_t count) noexcept nogil:
        """Reserve `count` headers in all."""
        if count <= self.header_capacity:
            return True
        count = max(count, 2 * self.header_capacity)
        if not (grow_nulls(&self.header_value.nulls, count)
                and grow(&self.header_name.places, 4 * (count + 1))
                and grow(&self.header_value.places, 4 * (count + 1))):
            return False
        self.header_capacity = count
        return True

    cdef void _add_views(self, RecordView record, Py_ssize_t row, const uint8_t* buffer
                         ) noexcept nogil:
        if self.want_key:
            write_view(self.key.places.data + VIEW_SIZE * row, record.key, record.key_size,
                       self.view_buffer, record.key - buffer)
            if record.key_size < 0:
                add_null(&self.key.nulls, row)
        if self.want_value:
            write_view(self.value.places.data + VIEW_SIZE * row, record.value, record.value_size,
                       self.view_buffer, record.value - buffer)
            if record.value_size < 0:
                add_null(&self.value.nulls, row)

    cdef bint _add_headers(self, RecordView record, Py_ssize_t row) noexcept nogil:
        """Add a record's headers: null, not an empty list, if it has none."""
        cdef Cursor fields = headers_in(&record)
        cdef HeaderView header
        cdef int32_t _
        for _ in range(record.headers_count):
            if not read_header(&fields, &header):
                return False
            add_binary(&self.header_name, self.header_count, header.name, header.name_size)
            add_binary(&self.header_value, self.header_count, header.value, header.value_size)
            self.header_count += 1
        if fields.at != fields.end:
            return False
        if record.headers_count == 0:
            add_null(&self.headers_nulls, row)
        (<int32_t*> self.header_offsets.data)[row + 1] = <int32_t> self.header_count
        return True

    cdef void _fill_per_batch(self, const BatchHeader* header, Py_ssize_t end) noexcept nogil:
        """Repeat the values that all records of a batch share."""
        cdef bint is_v2 = header.magic == 2
        if self.want_type:
            fill_i32(&self.timestamp_types, self.rows, end, timestamp_type(header))
        if self.want_per_batch:
            fill_i32(&self.epochs, self.rows, end, header.leader_epoch)
            fill_i64(&self.producers, self.rows, end, header.producer_id)
            fill_i32(&self.producer_epochs, self.rows, end, header.producer_epoch)
            memset(self.transactional.data + self.rows,
                   is_v2 and header.attributes & TRANSACTIONAL_FLAG != 0, end - self.rows)
            memset(self.control.data + self.rows,
                   is_v2 and header.attributes & CONTROL_FLAG != 0, end - self.rows)

    cdef DecodeOutcome _forget_rows(self) noexcept nogil:
        """Remove what a corrupt batch wrote after the rows."""
        forget_nulls(&self.key.nulls, self.rows)
        forget_nulls(&self.value.nulls, self.rows)
        forget_nulls(&self.timestamp_nulls, self.rows)
        if self.want_headers:
            forget_nulls(&self.headers_nulls, self.rows)
            self.header_count = (<int32_t*> self.header_offsets.data)[self.rows]
            forget_nulls(&self.header_value.nulls, self.header_count)
            self.header_name.size = (<int32_t*> self.header_name.places.data)[self.header_count]
            self.header_value.size = (<int32_t*> self.header_value.places.data)[self.header_count]
        return BROKEN

    def take(self):
        """Hand over the columns and start new ones; return row count and buffers.

        The buffers have Arrow's layout. `key`, `value`: (nulls, validity, offsets, bytes), or
        (nulls, validity, views, list of the buffers they refer to); `timestamp`: (nulls, validity,
        int64 microseconds, or ms); `headers`: (nulls, validity, offsets, count of names, names,
        values), the last two like `key`; `is_transactional`, `is_control`: one byte per row;
        others: integers of their column's width. `validity` is None if nothing is null.
        """
        cdef Py_ssize_t rows = self.rows
        cdef dict taken = {}
        self.check_idle()
        if self.want_key:
            taken["key"] = self._take_binary(&self.key, rows)
        if self.want_value:
            taken["value"] = self._take_binary(&self.value, rows)
        if self.want_offset:
            taken["offset"] = give(&self.offsets, 8 * rows)
        if self.want_timestamp:
            taken["timestamp"] = (*self._take_nulls(&self.timestamp_nulls, rows),
                                  give(&self.timestamps, 8 * rows))
        if self.want_type:
            taken["timestampType"] = give(&self.timestamp_types, 4 * rows)
        if self.want_headers:
            taken[HEADERS_COLUMN] = (
                *self._take_nulls(&self.headers_nulls, rows),
                give(&self.header_offsets, 4 * (rows + 1)), self.header_count,
                self._take_copies(&self.header_name, self.header_count),
                self._take_copies(&self.header_value, self.header_count))
            begin_places(&self.header_offsets)
        if self.want_per_batch:
            taken["leader_epoch"] = give(&self.epochs, 4 * rows)
            taken["producer_id"] = give(&self.producers, 8 * rows)
            taken["producer_epoch"] = give(&self.producer_epochs, 4 * rows)
            taken["is_transactional"] = give(&self.transactional, rows)
            taken["is_control"] = give(&self.control, rows)
        self.rows = self.bytes_bound = self.header_count = 0
        self.view_buffers = []
        return rows, {name: buffers for name, buffers in taken.items() if name in self.columns}

    cdef tuple _take_nulls(self, Nulls* nulls, Py_ssize_t rows):
        cdef Py_ssize_t count = nulls.count
        if count == 0:
            return 0, None
        validity = give(&nulls.bits, (rows + 7) // 8)
        memset(nulls.bits.data, 0xff, nulls.bits.capacity)
        nulls.count = 0
        return count, validity

    cdef tuple _take_copies(self, Binary* column, Py_ssize_t rows):
        taken = (*self._take_nulls(&column.nulls, rows),
                 give(&column.places, 4 * (rows + 1)),
                 give(&column.bytes, column.size))
        begin_places(&column.places)
        column.size = 0
        return taken

    cdef tuple _take_binary(self, Binary* column, Py_ssize_t rows):
        if not self.as_views:
            return self._take_copies(column, rows)
        return (*self._take_nulls(&column.nulls, rows),
                give(&column.places, VIEW_SIZE * rows), self.view_buffers)
