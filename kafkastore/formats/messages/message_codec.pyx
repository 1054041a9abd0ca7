"""Read and write messages by their descriptions.

Integers are big-endian. Lengths and counts have two forms, depending on the version of the
message; *flexible* versions have tagged fields too::

                     not flexible                    flexible ("compact")

    string           int16 length, UTF-8             varint length + 1, UTF-8
    bytes            int32 length, bytes             varint length + 1, bytes
    array            int32 count, elements           varint count + 1, elements
    null             length or count below 0         0
    struct, or null  int8, below 0 for null; fields  the same; in a tag: varint, 0 for null; fields
    tagged fields                                    varint count, then for each
                                                     varint tag, varint size, bytes

Tagged fields end a message and every structure in it, ascending by tag. A varint here is unsigned:
7 bits a byte, lowest first, at most 5 bytes.

A structure becomes a dict by field names, in the order of its description, an array a tuple, an id
Kafka's 22 characters of URL-safe base64, or None for zeros.

Source: Kafka 4.3.1 ``ByteBufferAccessor``, ``ByteUtils``, ``MessageDataGenerator``; KIP-482.
"""
cimport cython
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_Resize
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.dict cimport PyDict_Copy, PyDict_SetItem
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_New, PyTuple_SET_ITEM
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport (
    int8_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t,
)

from kafkastore.formats.primitives.big_endian cimport load_i16, load_i32, load_i64, load_u32

import base64
import re
import struct

from kafkastore.errors import CorruptionError, FieldValueError
from kafkastore.formats.messages.description import FieldType

FLOAT = struct.Struct(">d")
UUID_TEXT = re.compile("[A-Za-z0-9_-]{22}")
UNKNOWN_TAGGED_FIELDS = "unknown_tagged_fields"

cdef enum:
    MOST_ELEMENTS = 0x7fffffff    # all that fit in a message
    FRAME_VERSION = 1
    VARINT_BYTES = 5
    UUID_BYTES = 16
    UUID_CHARACTERS = 22
    STRING_BYTES = 32767

cdef enum FieldKind:
    BOOL
    INT8
    INT16
    UINT16
    INT32
    UINT32
    INT64
    FLOAT64
    STRING
    BYTES
    UUID
    STRUCT

cdef int[8] SIZES
SIZES[:] = [1, 1, 2, 2, 4, 4, 8, 8]

cdef const char* BASE64 = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"

cdef extern from "Python.h":
    void PyObject_GC_UnTrack(void* thing)
    object PyUnicode_New(Py_ssize_t size, uint32_t largest)
    void* PyUnicode_1BYTE_DATA(object text)
    double PyFloat_Unpack8(const char* at, int is_little_endian) except? -1.0


cdef struct Bytes:
    const uint8_t* start
    const uint8_t* at
    const uint8_t* end
    int64_t elements    # how many more may be read


class Elsewhere:
    """The value of a field of bytes that are not in memory: of `size` bytes."""

    size: int


@cython.final
cdef class FieldCodec:
    """One field of a structure, in one version."""

    cdef readonly object name
    cdef FieldKind kind
    cdef bint is_array, is_nullable, is_compact
    cdef int tag
    cdef object default
    cdef StructCodec fields

    def __init__(self, field, int version, bint is_flexible):
        self.name = field.name
        self.kind = <FieldKind> <int> field.type
        self.is_array = field.is_array
        self.is_nullable = version in field.nullable
        self.is_compact = is_flexible and not field.is_plain
        self.tag = -1 if field.tag is None else field.tag
        self.default = field.default
        self.fields = None
        if field.type == FieldType.STRUCT:
            self.fields = StructCodec(field.fields, version, is_flexible)


@cython.final
cdef class StructCodec:
    """The fields of a structure, in one version."""

    cdef tuple plain, tagged, required
    cdef frozenset tags_of_others
    cdef int version
    cdef bint is_flexible
    cdef dict defaults

    def __init__(self, fields, int version, bint is_flexible):
        present = [
            FieldCodec(field, version, is_flexible)
            for field in fields if version in field.versions
        ]
        self.plain = tuple([field for field in present if (<FieldCodec> field).tag < 0])
        self.tagged = tuple([field for field in present if (<FieldCodec> field).tag >= 0])
        self.required = tuple([
            field for field in fields if version not in field.versions and not field.is_ignorable
        ])
        self.tags_of_others = frozenset([
            field.tag for field in fields if version not in field.versions
        ])
        self.version = version
        self.is_flexible = is_flexible
        self.defaults = {field.name: field.default for field in fields}

    def parse(self, data, Py_ssize_t position=0, int64_t most_elements=MOST_ELEMENTS):
        """Return the structure at `position` of `data`, and the position after it.

        Raises `CorruptionError` (name and position of the field) if a field is incomplete, null
        where it must not be, or of an impossible length; or if all arrays together have more than
        `most_elements`, of which the smallest are 2 bytes, and hundreds as Python objects.
        """
        cdef const uint8_t[::1] view = data
        cdef Bytes left
        cdef const uint8_t* start = &view[0] if len(view) else NULL
        if not 0 <= position <= len(view):
            raise CorruptionError("the bytes end before the message", position=position)
        left.start = start
        left.at = start + position
        left.end = start + len(view)
        left.elements = most_elements
        values = self.read(&left)
        return values, left.at - left.start

    def pack(self, dict values):
        """Return the bytes of a structure; a missing field has its default.

        Raises `FieldValueError` for a value that does not fit its field.
        """
        cdef bytearray packed = bytearray()
        self.write(packed, values, None)
        return bytes(packed)

    def pack_around(self, dict values):
        """Return the bytes of a structure without those of its `Elsewhere` values.

        The second result has the place of each, where its bytes follow, and the value. A tagged
        field can't have one.
        """
        cdef bytearray packed = bytearray()
        cdef list places = []
        self.write(packed, values, places)
        return bytes(packed), places

    cdef int write(self, bytearray packed, dict values, list places) except -1:
        cdef FieldCodec field
        cdef dict tagged
        for absent in self.required:
            if values.get(absent.name, absent.default) != absent.default:
                raise FieldValueError(absent.name, f"is not a field of version {self.version}")
        for field in self.plain:
            write_field(field, packed, values.get(field.name, field.default), places)
        if not self.is_flexible:
            return 0
        tagged = dict(values.get(UNKNOWN_TAGGED_FIELDS, ()))
        for field in self.tagged:
            value = values.get(field.name, field.default)
            if value != field.default:
                content = bytearray()
                write_field(field, content, value, None)
                tagged[field.tag] = content
        write_varint(packed, len(tagged))
        for tag in sorted(tagged):
            write_varint(packed, tag)
            write_varint(packed, len(tagged[tag]))
            packed += tagged[tag]
        return 0

    cdef dict read(self, Bytes* left):
        cdef FieldCodec field
        cdef dict values = PyDict_Copy(self.defaults)
        for field in self.plain:
            PyDict_SetItem(values, field.name, read_field(field, left))
        if self.is_flexible:
            self.read_tagged(left, values)
        return values

    cdef int read_tagged(self, Bytes* left, dict values) except -1:
        cdef int32_t count = read_varint(left, "tagged fields")
        cdef int32_t tag, size
        cdef FieldCodec field
        while count > 0:
            count -= 1
            tag = read_varint(left, "tagged fields")
            size = read_varint(left, "tagged fields")
            for field in self.tagged:
                if field.tag == tag:
                    # As in Kafka, the size of a known field is not compared with what it takes.
                    PyDict_SetItem(values, field.name, read_field(field, left))
                    break
            else:
                if tag in self.tags_of_others:
                    raise CorruptionError(
                        f"tagged field {tag} is not in version {self.version}",
                        position=left.at - left.start,
                    )
                take_elements(left, 1, left.at, "tagged fields")
                values.setdefault(UNKNOWN_TAGGED_FIELDS, {})[tag] = take_bytes(
                    left, left.at, size, f"tagged field {tag}"
                )
        return 0


@cython.final
cdef class Frames:
    """Framed records, which lie in `content` between each of `places` and the next.

    Yields the number, the version and the fields of each; the fields are bytes where
    `find_codec(number, version)` is None.  After an error `index` is that of its record.
    """

    cdef readonly Py_ssize_t index
    cdef const uint8_t[::1] view
    cdef const int32_t[::1] places
    cdef object find_codec
    cdef dict codecs

    def __init__(self, find_codec, content, const int32_t[::1] places):
        self.view, self.places, self.find_codec = content, places, find_codec
        self.codecs = {}
        self.index = -1
        if len(places) and not 0 <= places[0] <= places[len(places) - 1] <= len(self.view):
            raise ValueError("places must rise within content")

    def __iter__(self):
        return self

    def __next__(self):
        cdef int32_t number, version
        if self.index + 2 >= len(self.places):
            raise StopIteration
        fields = self.read(&number, &version)
        return number, version, fields

    def apply(self, int32_t number, function):
        """Give the fields of the next records of a number to `function`; count them.

        Ends before a record of another number, or of an unknown version.
        """
        cdef int32_t found, version
        cdef int64_t count = 0
        while self.index + 2 < len(self.places):
            fields = self.read(&found, &version)
            if found != number or type(fields) is bytes:
                self.index -= 1
                break
            function(fields)
            count += 1
        return count

    cdef object read(self, int32_t* number, int32_t* version):
        """Read the next record."""
        cdef Bytes left
        cdef object fields
        self.index += 1
        cdef const uint8_t* data = &self.view[0] if len(self.view) else NULL
        left.start = left.at = data + self.places[self.index]
        left.end = data + self.places[self.index + 1]
        left.elements = MOST_ELEMENTS
        if read_varint(&left, "frame version") != FRAME_VERSION:
            raise CorruptionError("frame version must be 1", position=0)
        number[0] = read_varint(&left, "record type")
        version[0] = read_varint(&left, "version")
        key = <uint64_t> number[0] << 32 | <uint32_t> version[0]
        codec = self.codecs.get(key, self)
        if codec is self:
            codec = self.codecs[key] = self.find_codec(number[0], version[0])
        if codec is None:
            return PyBytes_FromStringAndSize(<const char*> left.at, left.end - left.at)
        fields = (<StructCodec?> codec).read(&left)
        if left.at != left.end:
            raise CorruptionError(
                f"{left.end - left.at} bytes after the last field", position=left.at - left.start
            )
        return fields


cdef int take_elements(Bytes* left, int64_t count, const uint8_t* start, name) except -1:
    """Count elements of arrays, and fields of unknown tags."""
    left.elements -= count
    if left.elements < 0:
        raise CorruptionError(f"{name}: too many elements", position=start - left.start)
    return 0


cdef object read_field(FieldCodec field, Bytes* left):
    """Read a field or an array; None for null."""
    cdef const uint8_t* start = left.at
    cdef int64_t count, i
    cdef object element
    cdef tuple values
    if not field.is_array:
        return read_value(field, left, field.is_nullable)
    if field.is_compact:
        count = <int32_t> <uint32_t> (read_varint(left, field.name) - <int64_t> 1)
    else:
        count = load_i32(take(left, 4, start, field.name))
    if count < 0:
        return null(field, left, start, field.is_nullable)
    if count > left.end - left.at:
        raise CorruptionError(
            f"{field.name}: impossible count {count}, {left.end - left.at} bytes left",
            position=start - left.start,
        )
    take_elements(left, count, start, field.name)
    values = PyTuple_New(count)
    for i in range(count):
        element = read_value(field, left, False)
        Py_INCREF(element)
        PyTuple_SET_ITEM(values, i, element)
    if field.kind != STRUCT:
        # Nothing in it can refer to it. The collector would find that out for each one by itself.
        PyObject_GC_UnTrack(<void*> values)
    return values


cdef object read_value(FieldCodec field, Bytes* left, bint is_nullable):
    """Read one value, or one element of an array."""
    cdef FieldKind kind = field.kind
    cdef const uint8_t* start = left.at
    cdef const uint8_t* at
    cdef int64_t length
    cdef bint is_null
    if kind == INT32:
        return load_i32(take(left, 4, start, field.name))
    if kind == STRING:
        if field.is_compact:
            length = <int32_t> <uint32_t> (read_varint(left, field.name) - <int64_t> 1)
        else:
            length = load_i16(take(left, 2, start, field.name))
        if length < 0:
            return null(field, left, start, is_nullable)
        if length > STRING_BYTES:
            raise CorruptionError(
                f"{field.name}: impossible string length {length}", position=start - left.start
            )
        at = take(left, length, start, field.name)
        return PyUnicode_DecodeUTF8(<const char*> at, length, "surrogateescape")
    if kind == UUID:
        return uuid_text(take(left, UUID_BYTES, start, field.name))
    if kind == INT64:
        return load_i64(take(left, 8, start, field.name))
    if kind == STRUCT:
        if is_nullable:
            if field.tag >= 0:
                is_null = read_varint(left, field.name) <= 0
            else:
                is_null = <int8_t> take(left, 1, start, field.name)[0] < 0
            if is_null:
                return None
        return field.fields.read(left)
    if kind == INT16:
        return load_i16(take(left, 2, start, field.name))
    if kind == INT8:
        return <int8_t> take(left, 1, start, field.name)[0]
    if kind == BOOL:
        return take(left, 1, start, field.name)[0] != 0
    if kind == UINT16:
        return <uint16_t> load_i16(take(left, 2, start, field.name))
    if kind == BYTES:
        if field.is_compact:
            length = <int32_t> <uint32_t> (read_varint(left, field.name) - <int64_t> 1)
        else:
            length = load_i32(take(left, 4, start, field.name))
        if length < 0:
            return null(field, left, start, is_nullable)
        return take_bytes(left, start, length, field.name)
    if kind == FLOAT64:
        return PyFloat_Unpack8(<const char*> take(left, 8, start, field.name), 0)
    return load_u32(take(left, 4, start, field.name))


cdef int write_field(FieldCodec field, bytearray packed, object value, list places) except -1:
    """Write a field or an array."""
    if not field.is_array:
        write_value(field, packed, value, field.is_nullable, places)
        return 0
    if value is None:
        check_nullable(field)
        write_length(field, packed, -1, 4)
        return 0
    write_length(field, packed, len(value), 4)
    for element in value:
        write_value(field, packed, element, False, places)
    return 0


cdef int write_value(
    FieldCodec field, bytearray packed, object value, bint is_nullable, list places
) except -1:
    """Write one value, or one element of an array."""
    cdef FieldKind kind = field.kind
    if value is None and not is_nullable and kind != UUID:
        raise FieldValueError(field.name, "must not be None")
    if kind == STRUCT:
        if is_nullable:
            packed.append(1 if value is not None else 0 if field.tag >= 0 else 255)
        if value is not None:
            field.fields.write(packed, value, places)
    elif kind == BYTES and places is not None and isinstance(value, Elsewhere):
        write_length(field, packed, value.size, 4)
        places.append((len(packed), value))
    elif kind == STRING or kind == BYTES:
        if value is None:
            if not is_nullable:
                raise FieldValueError(field.name, "must not be None")
            write_length(field, packed, -1, 2 if kind == STRING else 4)
            return 0
        content = value.encode("utf-8", "surrogateescape") if kind == STRING else value
        if kind == STRING and len(content) > STRING_BYTES:
            raise FieldValueError(
                field.name, f"must be at most {STRING_BYTES} bytes, got {len(content)}"
            )
        write_length(field, packed, len(content), 2 if kind == STRING else 4)
        packed += content
    elif kind == UUID:
        packed += bytes(UUID_BYTES) if value is None else uuid_bytes(field.name, value)
    elif kind == BOOL:
        packed.append(bool(value))
    elif kind == FLOAT64:
        packed += FLOAT.pack(value)
    else:
        write_int(
            packed, field.name, value, SIZES[<int> kind], kind != UINT16 and kind != UINT32
        )
    return 0


cdef int write_length(
    FieldCodec field, bytearray packed, int64_t length, int plain_bytes
) except -1:
    """Write a length or count, -1 for null."""
    if field.is_compact:
        write_varint(packed, length + 1)
    else:
        write_int(packed, field.name, length, plain_bytes, True)
    return 0


cdef int write_varint(bytearray packed, int64_t value) except -1:
    while value >= 128:
        packed.append(value & 127 | 128)
        value >>= 7
    packed.append(value)
    return 0


cdef int check_nullable(FieldCodec field) except -1:
    if not field.is_nullable:
        raise FieldValueError(field.name, "must not be None")
    return 0


def uuid_bytes(name, text):
    """Return the 16 bytes of an id from Kafka's text of it."""
    if UUID_TEXT.fullmatch(text) is None:
        raise FieldValueError(name, f"must be 22 characters of URL-safe base64, got {text!r}")
    return base64.urlsafe_b64decode(text + "==")


cdef int write_int(
    bytearray packed, object name, object value, int size, bint is_signed
) except -1:
    cdef int64_t number, largest
    cdef Py_ssize_t at = len(packed)
    cdef int i
    cdef bint fits = size == 8
    try:
        number = value
        if not fits:
            largest = (<int64_t> 1 << (8 * size - is_signed)) - 1
            fits = (-largest - 1 if is_signed else 0) <= number <= largest
    except OverflowError:
        fits = False
    if not fits:
        sign = "a signed" if is_signed else "an unsigned"
        raise FieldValueError(name, f"must be {sign} int of {8 * size} bits, got {value}")
    PyByteArray_Resize(packed, at + size)
    cdef uint8_t* to = <uint8_t*> PyByteArray_AS_STRING(packed) + at
    for i in range(size):
        to[size - 1 - i] = <uint8_t> (<uint64_t> number >> (8 * i))
    return 0


cdef inline const uint8_t* take(
    Bytes* left, int64_t size, const uint8_t* start, object name
) except NULL:
    """Go past `size` bytes of the field that began at `start`, and return the first."""
    cdef const uint8_t* at = left.at
    if not 0 <= size <= left.end - at:
        raise ends(name, left, start)
    left.at = at + size
    return at


cdef object take_bytes(Bytes* left, const uint8_t* start, int64_t size, object name):
    cdef const uint8_t* at = take(left, size, start, name)
    return PyBytes_FromStringAndSize(<const char*> at, size)


cdef int32_t read_varint(Bytes* left, object name) except? -1:
    """Read an unsigned varint as Java does: from 2**31 on it is negative."""
    cdef const uint8_t* at = left.at
    cdef uint32_t number = 0
    cdef int i
    for i in range(VARINT_BYTES):
        if at + i == left.end:
            raise ends(name, left, left.at)
        number |= <uint32_t> (at[i] & 127) << 7 * i
        if at[i] < 128:
            left.at = at + i + 1
            return <int32_t> number
    raise CorruptionError(
        f"{name}: varint longer than {VARINT_BYTES} bytes", position=at - left.start
    )


cdef object null(FieldCodec field, Bytes* left, const uint8_t* start, bint is_nullable):
    """Return None if the value may be null; no element of an array may."""
    if is_nullable:
        return None
    raise CorruptionError(f"{field.name} is null", position=start - left.start)


cdef object ends(object name, Bytes* left, const uint8_t* start):
    return CorruptionError(f"the bytes end in {name}", position=start - left.start)


cdef object uuid_text(const uint8_t* at):
    """Return 16 bytes as Kafka shows an id; None for zeros."""
    if load_i64(at) == 0 and load_i64(at + 8) == 0:
        return None
    cdef object text = PyUnicode_New(UUID_CHARACTERS, 127)
    cdef uint8_t* to = <uint8_t*> PyUnicode_1BYTE_DATA(text)
    cdef uint32_t three
    cdef int _i
    for _i in range(5):
        three = <uint32_t> at[0] << 16 | <uint32_t> at[1] << 8 | at[2]
        to[0] = BASE64[three >> 18]
        to[1] = BASE64[three >> 12 & 63]
        to[2] = BASE64[three >> 6 & 63]
        to[3] = BASE64[three & 63]
        at += 3
        to += 4
    to[0] = BASE64[at[0] >> 2]
    to[1] = BASE64[(at[0] & 3) << 4]
    return text
