"""Footers of Parquet files that become one file.

The byte positions in a footer count from the beginning of its file, so they are moved; the rest
stays as it is.

Source: https://github.com/apache/parquet-format ``parquet.thrift``; Thrift's compact protocol.
"""
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memcpy

from kafkastore.formats.primitives.big_endian cimport wrapping_sum
from kafkastore.formats.primitives.varint cimport (
    Cursor,
    read_varlong,
    sign_lowest,
    write_varint,
    zig_zag,
)

from kafkastore.errors import ArgumentValueError

#: A row group's number is optional, and has 16 bits.
LARGEST_ORDINAL = 2**15 - 1

cdef enum Type:
    TRUE = 1
    FALSE = 2
    BYTE = 3
    INT16 = 4
    INT64 = 6
    DOUBLE = 7
    BINARY = 8
    LIST = 9
    SET = 10
    STRUCT = 12

# What a field is, if it or its fields are changed; of a list, what the elements are.
cdef enum Meaning:
    KEPT
    ROW_GROUP
    COLUMN
    COLUMN_METADATA
    POSITION
    ORDINAL

cdef enum:
    NUM_ROWS = 3             # fields of a footer
    ROW_GROUPS = 4
    LONG_LIST = 15
    MOST_DELTA = 15
    LARGEST_NUMBER = 0x7fff  # of a field
    MOST_DEPTH = 16
    MOST_GROWTH = 10         # a byte becomes a varint of ten at most


cdef struct Copy:
    Cursor source
    uint8_t* to              # has room for `MOST_GROWTH` times what the source has
    int64_t by               # is added to positions
    int64_t ordinal          # of the row group; below 0: none


cdef inline Meaning meaning_of(Meaning parent, int64_t number) noexcept nogil:
    """Return what a field of a structure is."""
    if parent == ROW_GROUP:
        return COLUMN if number == 1 else POSITION if number == 5 else (
            ORDINAL if number == 7 else KEPT)
    if parent == COLUMN:
        return COLUMN_METADATA if number == 3 else (
            POSITION if number in (2, 4, 6) else KEPT)
    if parent == COLUMN_METADATA and number in (9, 10, 11, 14):
        return POSITION
    return KEPT


cdef uint8_t read_byte(Cursor* source) noexcept nogil:
    if source.at >= source.end:
        source.failed = True
        return 0
    source.at += 1
    return source.at[-1]


cdef inline uint8_t* write_header(uint8_t* at, int64_t delta, int kind, int64_t number
                                  ) noexcept nogil:
    """Write what precedes the value of a field."""
    if 0 < delta <= MOST_DELTA:
        at[0] = <uint8_t> (delta << 4 | kind)
        return at + 1
    at[0] = <uint8_t> kind
    return write_varint(at + 1, number)


cdef void copy_bytes(Copy* copy, uint64_t size) noexcept nogil:
    if size > <uint64_t> (copy.source.end - copy.source.at):
        copy.source.failed = True
        return
    memcpy(copy.to, copy.source.at, size)
    copy.source.at += size
    copy.to += size


cdef int64_t copy_varint(Copy* copy) noexcept nogil:
    cdef int64_t value = read_varlong(&copy.source)
    copy.to = write_varint(copy.to, value)
    return value


cdef int64_t next_field(Cursor* source, int64_t before, int* kind) noexcept nogil:
    """Read what precedes the value of a field; return its number, and 0 at the end."""
    cdef uint8_t head = read_byte(source)
    cdef int64_t number
    kind[0] = head & 15
    if head == 0:
        return 0
    number = before + (head >> 4) if head >> 4 else read_varlong(source)
    source.failed |= number < 1 or number > LARGEST_NUMBER
    return number


cdef void copy_struct(Copy* copy, Meaning what, int depth) noexcept nogil:
    cdef int64_t number = 0, written = 0
    cdef int kind = 0
    cdef Meaning field
    cdef uint8_t* start
    while True:
        number = next_field(&copy.source, number, &kind)
        if number == 0 or copy.source.failed:
            break
        start = copy.to
        copy.to = write_header(copy.to, number - written, kind, number)
        field = meaning_of(what, number)
        copy_value(copy, kind, field, depth)
        if field == ORDINAL and copy.ordinal < 0:
            copy.to = start
        else:
            written = number
    copy.to[0] = 0
    copy.to += 1


cdef void copy_list(Copy* copy, Meaning what, int depth) noexcept nogil:
    cdef uint8_t head = read_byte(&copy.source)
    cdef uint64_t count = head >> 4, _
    copy.to[0] = head
    copy.to += 1
    if count == LONG_LIST:
        count = sign_lowest(copy_varint(copy))
    for _ in range(count):
        if copy.source.failed:
            break
        copy_element(copy, head & 15, what, depth)


cdef inline void copy_element(Copy* copy, int kind, Meaning what, int depth) noexcept nogil:
    """Copy an element of a list, of which a bool is a byte."""
    copy_value(copy, BYTE if kind in (TRUE, FALSE) else kind, what, depth)


cdef void copy_value(Copy* copy, int kind, Meaning what, int depth) noexcept nogil:
    cdef int64_t value
    if kind in (TRUE, FALSE):
        return                           # the type is the value
    if INT16 <= kind <= INT64:
        value = read_varlong(&copy.source)
        if what == ORDINAL:
            value = copy.ordinal
        elif what == POSITION and value != 0:      # 0 stands for none
            value = wrapping_sum(value, copy.by)
        copy.to = write_varint(copy.to, value)
    elif kind == BYTE or kind == DOUBLE:
        copy_bytes(copy, 1 if kind == BYTE else 8)
    elif kind == BINARY:
        copy_bytes(copy, sign_lowest(copy_varint(copy)))
    elif depth == MOST_DEPTH:
        copy.source.failed = True
    elif kind == LIST or kind == SET:
        copy_list(copy, what, depth + 1)
    elif kind == STRUCT:
        copy_struct(copy, what, depth + 1)
    else:
        copy.source.failed = True


cdef class JoinedFooter:
    """The footer of a file that parts with the same columns were copied into."""

    cdef bytes before, after     # what stands before and after the row groups of the first part
    cdef list groups
    cdef int64_t rows, last_before
    cdef Py_ssize_t count

    def __cinit__(self):
        self.groups = []

    @property
    def is_empty(self):
        """Whether there is no part yet."""
        return self.before is None

    def add(self, const uint8_t[::1] footer not None, int64_t by):
        """Add the row groups of a part, which are `by` bytes further back than in it."""
        cdef bytearray room = bytearray(MOST_GROWTH * (footer.shape[0] + 1))
        cdef uint8_t[::1] copied = room
        cdef Copy copy
        cdef int64_t number = 0, written = 0
        cdef uint64_t count = 0, _
        cdef int kind = 0
        cdef uint8_t head
        cdef bint has_rows = False, has_groups = False
        cdef uint8_t* groups = &copied[0]
        cdef uint8_t* after = groups
        if footer.shape[0] == 0:
            raise ArgumentValueError("footer", "one of a Parquet file", b"")
        copy.source = Cursor(&footer[0], &footer[0] + footer.shape[0], False)
        copy.to, copy.by = groups, by
        while True:
            number = next_field(&copy.source, number, &kind)
            if number == 0 or copy.source.failed:
                break
            if number == NUM_ROWS:
                self.rows = wrapping_sum(self.rows, read_varlong(&copy.source))
                groups, self.last_before = copy.to, written
                has_rows = True
            elif number == ROW_GROUPS:
                head = read_byte(&copy.source)
                count = head >> 4
                if count == LONG_LIST:
                    count = sign_lowest(read_varlong(&copy.source))
                for _ in range(count):
                    if copy.source.failed:
                        break
                    copy.ordinal = self.count if self.count <= LARGEST_ORDINAL else -1
                    self.count += 1
                    copy_element(&copy, head & 15, ROW_GROUP, 0)
                after = copy.to
                has_groups = has_rows
                written = number
            else:
                copy.to = write_header(copy.to, number - written, kind, number)
                copy_value(&copy, kind, KEPT, 0)
                written = number
        if copy.source.failed or not has_groups:
            raise ArgumentValueError("footer", "one of a Parquet file", bytes(footer))
        self.groups.append(bytes(copied[groups - &copied[0]:after - &copied[0]]))
        if self.before is None:
            self.before = bytes(copied[:groups - &copied[0]])
            self.after = bytes(copied[after - &copied[0]:copy.to - &copied[0]]) + b"\0"

    def finish(self):
        """Return the bytes of the footer."""
        cdef uint8_t[4 * MOST_GROWTH] numbers
        cdef uint8_t* to = numbers
        to = write_header(to, NUM_ROWS - self.last_before, INT64, NUM_ROWS)
        to = write_varint(to, self.rows)
        to = write_header(to, ROW_GROUPS - NUM_ROWS, LIST, ROW_GROUPS)
        if self.count < LONG_LIST:
            to[0] = <uint8_t> (self.count << 4 | STRUCT)
            to += 1
        else:
            to[0] = LONG_LIST << 4 | STRUCT
            to = write_varint(to + 1, zig_zag(self.count))
        return b"".join([self.before, (<char*> numbers)[:to - numbers], *self.groups, self.after])
