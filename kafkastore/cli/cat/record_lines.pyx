"""Write records as lines, from Arrow's buffers and without the GIL.

A line is a sequence of literal bytes and fields; all text formats of ``kafkastore cat`` are such
sequences.
"""
from libc.stdint cimport int32_t, uint8_t, uint32_t

cimport cython

from kafkastore.cli.cat.line_buffer cimport QUOTE_ONCE, QUOTE_TWICE, LineBuffer, QuoteStyle
from kafkastore.cli.cat.utf8 cimport is_printable, is_utf8
from kafkastore.formats.records.record_cursor cimport HeaderView
from kafkastore.formats.records.record_rows cimport (
    BinaryRows,
    RecordRows,
    binary_of,
    find_header,
    int32_of,
    int64_of,
    is_present,
)

from kafkastore.errors import ArgumentValueError
from kafkastore.formats.records.record_rows import RecordRows as _RecordRows

cpdef enum Field:
    LITERAL
    OFFSET
    TIMESTAMP              # ms
    TIME                   # ISO 8601
    TIMESTAMP_TYPE
    JSON_EPOCH             # a number, or null
    CSV_EPOCH              # a number, or nothing
    JSON_TOPIC             # with quotes
    JSON_KEY               # with its name
    JSON_VALUE
    JSON_HEADERS           # a list
    CSV_KEY                # two cells: text, base64
    CSV_VALUE
    CSV_HEADERS            # a cell: the list as JSON
    LINE_KEY               # printable, or hexadecimal
    LINE_VALUE
    LINE_HEADERS
    RAW_KEY                # the bytes; on a terminal as `put_visible` writes them
    RAW_VALUE
    RAW_HEADERS
    KEY_LENGTH             # -1: null
    VALUE_LENGTH
    VALUE_LENGTH_BYTES     # four bytes, big-endian; on a terminal as RAW_VALUE

# If the topic or a header name in a line of JSON is not UTF-8, the whole line is ASCII.
cdef frozenset JSON_FIELDS = frozenset({JSON_TOPIC, JSON_HEADERS})

cdef enum:
    MOST_PARTS = 128

cdef struct LinePart:
    int field
    const uint8_t* text      # of a literal, or the topic
    Py_ssize_t size


@cython.final
cdef class RecordLines:
    """Writes the lines of one partition's records.

    Parameters
    ----------
    write : callable
        Takes bytes.
    parts : sequence of bytes or Field
        What a line consists of; at most 128.
    topic : bytes
        For ``Field.JSON_TOPIC``.
    for_terminal : bool
        Whether to escape all characters that a terminal may obey.
    """

    cdef LineBuffer out
    cdef LinePart[MOST_PARTS] parts
    cdef int part_count
    cdef list held
    cdef const uint8_t* topic
    cdef Py_ssize_t topic_size
    cdef bint for_terminal
    cdef bint is_json, is_topic_utf8
    cdef bint only_ascii         # of the line that is being written
    # The rows of one call.
    cdef RecordRows rows
    cdef const int32_t[::1] types, epochs
    cdef const uint8_t[::1] times
    cdef const int32_t[::1] time_ends

    def __cinit__(self, write, parts, bytes topic=b"", bint for_terminal=False):
        cdef bytes text
        if len(parts) > MOST_PARTS:
            raise ArgumentValueError("parts", f"at most {MOST_PARTS}", len(parts))
        self.out = LineBuffer(write)
        self.held = [topic]
        self.topic, self.topic_size = topic, len(topic)
        self.is_topic_utf8 = is_utf8(self.topic, self.topic_size)
        self.for_terminal = for_terminal
        for part in parts:
            if isinstance(part, bytes):
                text = part
                self.held.append(text)
                self.parts[self.part_count] = LinePart(LITERAL, text, len(text))
            else:
                self.parts[self.part_count] = LinePart(part, NULL, 0)
                self.is_json = self.is_json or part in JSON_FIELDS
            self.part_count += 1

    def write_rows(self, Py_ssize_t rows, columns, Py_ssize_t first, *, types=None, epochs=None,
                   times=None, chosen=None):
        """Write the lines of rows from `first` on, or of those that are `chosen`.

        `columns` is as for `record_rows.RecordRows`, with timestamps in ms; `types` and `epochs`
        are int32 of each row. `times` are texts for ``Field.TIME``: their bytes, and where each
        ends (int32); by default they are in UTC. `chosen` has a byte for each row.
        """
        cdef Py_ssize_t row
        cdef const uint8_t[::1] is_chosen = chosen
        self.rows = _RecordRows(rows, columns)
        self.types, self.epochs = types, epochs
        self.times, self.time_ends = (None, None) if times is None else times
        for column, name in ((types, "types"), (epochs, "epochs"), (chosen, "chosen")):
            if column is not None and len(column) < rows:
                raise ArgumentValueError(name, f"at least {rows} rows", len(column))
        with nogil:
            for row in range(first, rows):
                if is_chosen is None or is_chosen[row]:
                    self._write_row(row)
        self.out.flush()
        self.rows = None

    cdef int _write_row(self, Py_ssize_t row) except -1 nogil:
        cdef int i
        cdef LinePart* part
        if self.is_json:
            self.only_ascii = not (self.is_topic_utf8 and self._has_utf8_names(row))
        for i in range(self.part_count):
            part = &self.parts[i]
            if part.field == LITERAL:
                self.out.put_bytes(part.text, part.size)
            else:
                self._write_field(part.field, row)
        return 0

    cdef int _write_field(self, int field, Py_ssize_t row) except -1 nogil:
        cdef const uint8_t* at = NULL
        cdef int32_t size = -1
        if field in (JSON_KEY, CSV_KEY, LINE_KEY, RAW_KEY, KEY_LENGTH):
            self._find(&self.rows.key, row, &at, &size)
        elif field in (JSON_VALUE, CSV_VALUE, LINE_VALUE, RAW_VALUE, VALUE_LENGTH,
                       VALUE_LENGTH_BYTES):
            self._find(&self.rows.value, row, &at, &size)
        if field == OFFSET:
            return self.out.put_number(int64_of(self.rows.offsets, row))
        if field == JSON_KEY or field == JSON_VALUE:
            return self._put_json_bytes("key" if field == JSON_KEY else "value", at, size,
                                        QUOTE_ONCE)
        if field == TIMESTAMP:
            return self.out.put_number(int64_of(self.rows.timestamps, row))
        if field == TIMESTAMP_TYPE:
            return self.out.put_text(type_name(self.types[row]))
        if field == JSON_EPOCH or field == CSV_EPOCH:
            if self.epochs[row] >= 0:
                return self.out.put_number(self.epochs[row])
            return self.out.put_text("null" if field == JSON_EPOCH else "")
        if field == JSON_TOPIC:
            return self._put_json_string(self.topic, self.topic_size, QUOTE_ONCE)
        if field == TIME:
            return self._put_time(row)
        if field == LINE_KEY or field == LINE_VALUE:
            return self._put_line_bytes(at, size)
        if field == RAW_KEY or field == RAW_VALUE:
            return self._put_raw(at, size)
        if field == CSV_KEY or field == CSV_VALUE:
            return self._put_csv_bytes(at, size)
        if field == KEY_LENGTH or field == VALUE_LENGTH:
            return self.out.put_number(size)
        if field == VALUE_LENGTH_BYTES:
            return self._put_length_bytes(size)
        if field == CSV_HEADERS:
            self.out.put(c'"')
            self._put_json_headers(row, QUOTE_TWICE)
            return self.out.put(c'"')
        if field == JSON_HEADERS:
            return self._put_json_headers(row, QUOTE_ONCE)
        return self._put_plain_headers(row, field == RAW_HEADERS)

    cdef int _find(self, const BinaryRows* column, Py_ssize_t row, const uint8_t** at,
                   int32_t* size) except -1 nogil:
        """Point at a value, null with size -1."""
        if not binary_of(column, row, at, size):
            with gil:
                raise ArgumentValueError("columns", "offsets within its bytes", row)
        return 0

    cdef int _headers_of(self, Py_ssize_t row, int32_t* start, int32_t* end) except -1 nogil:
        """Find a row's headers in the columns of all headers."""
        start[0] = end[0] = 0
        if self.rows.headers_offsets and is_present(self.rows.headers_validity, row):
            start[0] = int32_of(self.rows.headers_offsets, row)
            end[0] = int32_of(self.rows.headers_offsets, row + 1)
            if not 0 <= start[0] <= end[0] <= self.rows.header_count:
                with gil:
                    raise ArgumentValueError("headers", "offsets within their columns", row)
        return 0

    cdef int _header(self, int32_t i, HeaderView* header) except -1 nogil:
        if not find_header(self.rows, i, header):
            with gil:
                raise ArgumentValueError("headers", "names and values within their bytes", i)
        return 0

    cdef bint _has_utf8_names(self, Py_ssize_t row) except -1 nogil:
        cdef int32_t start, end, i
        cdef HeaderView header
        self._headers_of(row, &start, &end)
        for i in range(start, end):
            self._header(i, &header)
            if not is_utf8(header.name, header.name_size):
                return False
        return True

    cdef int _put_time(self, Py_ssize_t row) except -1 nogil:
        cdef int32_t start
        if self.time_ends is None:
            return self.out.put_time(int64_of(self.rows.timestamps, row))
        start = self.time_ends[row - 1] if row else 0
        return self.out.put_bytes(&self.times[start], self.time_ends[row] - start)

    cdef int _put_length_bytes(self, int32_t size) except -1 nogil:
        cdef uint8_t[4] length
        cdef int i
        for i in range(4):
            length[i] = <uint8_t> (<uint32_t> size >> (24 - 8 * i))
        return self._put_raw(length, 4)

    cdef int _put_json_string(self, const uint8_t* at, Py_ssize_t size, QuoteStyle style
                              ) except -1 nogil:
        """Write a string with its quotes."""
        self._put_quote(style)
        self.out.put_json(at, size, self.only_ascii, self.for_terminal, style)
        return self._put_quote(style)

    cdef int _put_quote(self, QuoteStyle style) except -1 nogil:
        return self.out.put_text(b'"' if style == QUOTE_ONCE else b'""')

    cdef int _put_json_bytes(self, const char* name, const uint8_t* at, int32_t size,
                             QuoteStyle style) except -1 nogil:
        """Write name and value of bytes: UTF-8 as text, else base64 under another name."""
        cdef bint is_text = size < 0 or is_utf8(at, size)
        self._put_quote(style)
        self.out.put_text(name)
        if not is_text:
            self.out.put_text(b"_base64")
        self._put_quote(style)
        self.out.put_text(b": ")
        if size < 0:
            return self.out.put_text(b"null")
        if is_text:
            return self._put_json_string(at, size, style)
        self._put_quote(style)
        self.out.put_base64(at, size)
        return self._put_quote(style)

    cdef int _put_json_headers(self, Py_ssize_t row, QuoteStyle style) except -1 nogil:
        cdef int32_t start, end, i
        cdef HeaderView header
        self._headers_of(row, &start, &end)
        self.out.put(c"[")
        for i in range(start, end):
            self._header(i, &header)
            self.out.put_text(b"{" if i == start else b", {")
            self._put_quote(style)
            self.out.put_text(b"name")
            self._put_quote(style)
            self.out.put_text(b": ")
            self._put_json_string(header.name, header.name_size, style)
            self.out.put_text(b", ")
            self._put_json_bytes("value", header.value, header.value_size, style)
            self.out.put(c"}")
        return self.out.put(c"]")

    cdef int _put_csv_bytes(self, const uint8_t* at, int32_t size) except -1 nogil:
        """Write two cells: UTF-8 in the first, other bytes as base64 in the second."""
        if size < 0:
            return self.out.put(c",")
        if not is_utf8(at, size):
            self.out.put(c",")
            return self.out.put_base64(at, size)
        if size and not has_csv_marks(at, size) and not self.for_terminal:
            self.out.put_bytes(at, size)
            return self.out.put(c",")
        self.out.put(c'"')
        if self.for_terminal:
            self.out.put_visible(at, size, QUOTE_TWICE)
        else:
            self.out.put_doubled(at, size)
        self.out.put(c'"')
        return self.out.put(c",")

    cdef int _put_line_bytes(self, const uint8_t* at, int32_t size) except -1 nogil:
        """Write bytes as `bytes_text.format_bytes` does."""
        if size < 0:
            return self.out.put_text(b"null")
        if size == 0:
            return self.out.put_text(b'""')
        if is_printable(at, size):
            return self.out.put_one_line(at, size)
        self.out.put_text(b"0x")
        return self.out.put_hex(at, size)

    cdef int _put_raw(self, const uint8_t* at, int32_t size) except -1 nogil:
        if size <= 0:
            return 0
        if self.for_terminal:
            return self.out.put_visible(at, size, QUOTE_ONCE)
        return self.out.put_bytes(at, size)

    cdef int _put_plain_headers(self, Py_ssize_t row, bint is_raw) except -1 nogil:
        """Write pairs of name and value, as kcat does or for a line of text."""
        cdef int32_t start, end, i
        cdef HeaderView header
        self._headers_of(row, &start, &end)
        for i in range(start, end):
            self._header(i, &header)
            if i > start:
                self.out.put_text(b"," if is_raw else b", ")
            if not is_raw:
                self._put_line_bytes(header.name, header.name_size)
                self.out.put(c"=")
                self._put_line_bytes(header.value, header.value_size)
                continue
            self._put_raw(header.name, header.name_size)
            self.out.put(c"=")
            if header.value_size < 0:
                self.out.put_text(b"NULL")
            self._put_raw(header.value, header.value_size)
        return 0


cdef const char* type_name(int32_t kind) noexcept nogil:
    """Return a timestamp type by its name in Kafka."""
    if kind == 0:
        return "CreateTime"
    return "LogAppendTime" if kind == 1 else "NoTimestampType"


cdef bint has_csv_marks(const uint8_t* at, Py_ssize_t size) noexcept nogil:
    """Return whether a cell needs quotes."""
    cdef Py_ssize_t i
    for i in range(size):
        if at[i] == c"," or at[i] == c'"' or at[i] == c"\n" or at[i] == c"\r":
            return True
    return False
