"""A buffer for lines of text, which is written when it is full.

Text goes into it without the GIL, and without a Python object for each value. A value of any size
passes through the same few KiB.
"""
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, strlen

cimport cython

from kafkastore.cli.cat.utf8 cimport (
    Py_UNICODE_ISPRINTABLE,
    count_plain,
    decode_character,
    short_escape,
)

cdef const char* HEX = b"0123456789abcdef"
cdef const char* BASE64 = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"

cdef int64_t DAY = 86_400_000
cdef int64_t FIRST_OF_CALENDAR = -62_135_596_800_000  # 0001-01-01, ms
cdef int64_t AFTER_CALENDAR = 253_402_300_800_000     # 10000-01-01, ms


@cython.final
cdef class LineBuffer:
    """Collect text; `write` takes the bytes of a full buffer, and of each `flush`."""

    def __cinit__(self, write):
        self.write = write
        self.data = <uint8_t*> malloc(BUFFER_BYTES)
        if self.data == NULL:
            raise MemoryError

    def __dealloc__(self):
        free(self.data)

    cdef int flush(self) except -1:
        cdef Py_ssize_t used = self.used
        self.used = 0
        if used:
            self.write(PyBytes_FromStringAndSize(<char*> self.data, used))
        return 0

    cdef int need(self, Py_ssize_t size) except -1 nogil:
        """Make room for `size` bytes, at most BUFFER_BYTES."""
        if size > BUFFER_BYTES - self.used:
            with gil:
                self.flush()
        return 0

    cdef int put(self, uint8_t byte) except -1 nogil:
        self.need(1)
        self.data[self.used] = byte
        self.used += 1
        return 0

    cdef int put_bytes(self, const uint8_t* at, Py_ssize_t size) except -1 nogil:
        cdef Py_ssize_t part
        while True:
            part = min(size, BUFFER_BYTES - self.used)
            memcpy(self.data + self.used, at, part)
            self.used += part
            if part == size:
                return 0
            at += part
            size -= part
            self.need(BUFFER_BYTES)

    cdef int put_text(self, const char* text) except -1 nogil:
        return self.put_bytes(<const uint8_t*> text, strlen(text))

    cdef int put_number(self, int64_t number) except -1 nogil:
        cdef uint8_t[20] digits
        cdef int i = 20
        cdef uint64_t rest = <uint64_t> number
        self.need(20)
        if number < 0:
            self.put(c"-")
            rest = 0 - rest
        while True:
            i -= 1
            digits[i] = <uint8_t> (c"0" + rest % 10)
            rest //= 10
            if rest == 0:
                break
        return self.put_bytes(digits + i, 20 - i)

    cdef void put_digits(self, uint32_t number, int count) noexcept nogil:
        """Write a number with leading zeros; there is room."""
        cdef int i
        for i in range(count - 1, -1, -1):
            self.data[self.used + i] = <uint8_t> (c"0" + number % 10)
            number //= 10
        self.used += count

    cdef int put_time(self, int64_t timestamp) except -1 nogil:
        """Write a timestamp as `log.time_text.format_time` does, in UTC."""
        cdef int64_t days
        cdef uint32_t ms, era, day_of_era, year_of_era, day_of_year, month
        if timestamp == -1:
            return self.put(c"-")
        if timestamp < FIRST_OF_CALENDAR or timestamp >= AFTER_CALENDAR:
            self.put_number(timestamp)
            return self.put_text(b" ms")
        self.need(32)
        # Of a calendar that begins on 0000-03-01, so that leap days end its years.
        timestamp += 719468 * DAY
        days = timestamp // DAY
        ms = <uint32_t> (timestamp % DAY)
        era = <uint32_t> (days // 146097)
        day_of_era = <uint32_t> (days % 146097)
        year_of_era = (day_of_era - day_of_era // 1460 + day_of_era // 36524
                       - day_of_era // 146096) // 365
        day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
        month = (5 * day_of_year + 2) // 153
        self.put_digits(era * 400 + year_of_era + (1 if month >= 10 else 0), 4)
        self.put(c"-")
        self.put_digits(month + 3 if month < 10 else month - 9, 2)
        self.put(c"-")
        self.put_digits(day_of_year - (153 * month + 2) // 5 + 1, 2)
        self.put(c"T")
        self.put_digits(ms // 3_600_000, 2)
        self.put(c":")
        self.put_digits(ms // 60_000 % 60, 2)
        self.put(c":")
        self.put_digits(ms // 1000 % 60, 2)
        self.put(c".")
        self.put_digits(ms % 1000, 3)
        return self.put(c"Z")

    cdef int put_hex(self, const uint8_t* at, Py_ssize_t size) except -1 nogil:
        cdef Py_ssize_t i
        for i in range(size):
            self.need(2)
            self.data[self.used] = HEX[at[i] >> 4]
            self.data[self.used + 1] = HEX[at[i] & 15]
            self.used += 2
        return 0

    cdef int put_base64(self, const uint8_t* at, Py_ssize_t size) except -1 nogil:
        cdef uint32_t three
        cdef uint8_t* to
        cdef int count
        while size > 0:
            self.need(4)
            count = <int> min(size, 3)
            three = at[0] << 16
            if count > 1:
                three |= at[1] << 8
            if count > 2:
                three |= at[2]
            to = self.data + self.used
            to[0] = BASE64[three >> 18]
            to[1] = BASE64[three >> 12 & 63]
            to[2] = BASE64[three >> 6 & 63] if count > 1 else c"="
            to[3] = BASE64[three & 63] if count > 2 else c"="
            self.used += 4
            at += count
            size -= count
        return 0

    cdef int put_escape(self, uint8_t letter, uint32_t number, int digits) except -1 nogil:
        """Write a backslash, a letter and hexadecimal digits."""
        cdef int i
        self.need(16)
        self.put(c"\\")
        self.put(letter)
        for i in range(digits - 1, -1, -1):
            self.put(HEX[number >> (4 * i) & 15])
        return 0

    cdef int put_json(self, const uint8_t* at, Py_ssize_t size, bint only_ascii,
                      bint only_printable, QuoteStyle style) except -1 nogil:
        """Write the inside of a JSON string.

        `only_ascii` escapes all other characters, `only_printable` those that a terminal may obey.
        A byte that is not UTF-8 becomes the surrogate that Python reads it as.
        """
        cdef Py_ssize_t plain
        cdef uint32_t character
        cdef int length
        while True:
            plain = count_plain(at, size)
            self.put_bytes(at, plain)
            at += plain
            size -= plain
            if size == 0:
                return 0
            length = decode_character(at, size, &character)
            if length == 0:
                length = 1
                self.put_escape(c"u", 0xdc00 + at[0], 4)
            elif character == 0x22:
                self.put_text(b'\\"' if style == QUOTE_ONCE else b'\\""')
            elif short_escape(character):
                self.put_escape(short_escape(character), 0, 0)
            elif character == 0x08 or character == 0x0c:
                self.put_escape(c"b" if character == 0x08 else c"f", 0, 0)
            elif (character < 0x20 or (only_ascii and character > 0x7e)
                  or (only_printable and not Py_UNICODE_ISPRINTABLE(character))):
                if character >= 0x10000:
                    self.put_escape(c"u", 0xd800 + ((character - 0x10000) >> 10), 4)
                    character = 0xdc00 + (character - 0x10000 & 0x3ff)
                self.put_escape(c"u", character, 4)
            else:
                self.put_bytes(at, length)
            at += length
            size -= length

    cdef int put_one_line(self, const uint8_t* at, Py_ssize_t size) except -1 nogil:
        """Write printable UTF-8 with newlines, tabs and backslashes escaped."""
        cdef Py_ssize_t i = 0, start = 0
        while True:
            i += count_plain(at + i, size - i)
            if i < size and not short_escape(at[i]):
                i += 1
                continue
            self.put_bytes(at + start, i - start)
            if i >= size:
                return 0
            self.put_escape(short_escape(at[i]), 0, 0)
            i += 1
            start = i

    cdef int put_visible(self, const uint8_t* at, Py_ssize_t size, QuoteStyle style
                         ) except -1 nogil:
        """Write any bytes so that a terminal obeys none of them."""
        cdef Py_ssize_t plain
        cdef uint32_t character
        cdef int length
        while True:
            plain = count_plain(at, size)
            self.put_bytes(at, plain)
            at += plain
            size -= plain
            if size == 0:
                return 0
            length = decode_character(at, size, &character)
            if length == 0:
                length = 1
                self.put_escape(c"x", at[0], 2)
            elif character == 0x22 and style == QUOTE_TWICE:
                self.put_text(b'""')
            elif Py_UNICODE_ISPRINTABLE(character):
                self.put_bytes(at, length)
            elif short_escape(character):
                self.put_escape(short_escape(character), 0, 0)
            elif character < 0x100:
                self.put_escape(c"x", character, 2)
            elif character < 0x10000:
                self.put_escape(c"u", character, 4)
            else:
                self.put_escape(c"U", character, 8)
            at += length
            size -= length

    cdef int put_doubled(self, const uint8_t* at, Py_ssize_t size) except -1 nogil:
        """Write bytes with their quotes doubled."""
        cdef Py_ssize_t i, start = 0
        for i in range(size):
            if at[i] == 0x22:
                self.put_bytes(at + start, i + 1 - start)
                start = i
        return self.put_bytes(at + start, size - start)
