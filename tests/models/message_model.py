"""Messages read and written by their descriptions; slow, and knowing nothing of codecs.

Descriptions are compared with Kafka's own definitions by `test_payloads_against_kafka`.
"""

import base64
import re
import struct

from kafkastore.formats.messages.description import FieldType

NUMBERS = {
    FieldType.INT8: ">b",
    FieldType.INT16: ">h",
    FieldType.UINT16: ">H",
    FieldType.INT32: ">i",
    FieldType.UINT32: ">I",
    FieldType.INT64: ">q",
    FieldType.FLOAT64: ">d",
}


class Broken(Exception):
    """Bytes that are not a valid message."""


class Bytes:
    """Bytes taken from their start on."""

    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, size):
        if size < 0 or self.at + size > len(self.data):
            raise Broken(f"{size} bytes wanted at {self.at} of {len(self.data)}")
        self.at += size
        return self.data[self.at - size : self.at]

    def number(self, code):
        return struct.unpack(code, self.take(struct.calcsize(code)))[0]

    def varint(self):
        bits = ""
        for taken in range(5):
            byte = self.take(1)[0]
            bits = f"{byte % 128:07b}" + bits
            if byte < 128:
                return int(bits[-32:], 2)
            if taken == 4:
                raise Broken("long varint")
        return None

    def length(self, is_compact, code):
        if not is_compact:
            return self.number(code)
        number = self.varint() - 1
        return number if number < 2**31 else -1


def read(message, version, data):
    """Read a message; the value, and how many bytes it took."""
    source = Bytes(data)
    return _read_fields(message.fields, version, version in message.flexible, source), source.at


def _read_fields(fields, version, is_flexible, source):
    value = {field.name: field.default for field in fields}
    for field in fields:
        if version in field.versions and field.tag is None:
            value[field.name] = _read(field, version, is_flexible, source)
    if not is_flexible:
        return value
    tagged = {field.tag: field for field in fields if version in field.versions}
    count = source.varint()
    for _ in range(count if count < 2**31 else 0):
        tag, size = source.varint(), source.varint()
        if tag in tagged:
            value[tagged[tag].name] = _read(tagged[tag], version, is_flexible, source)
        elif tag in {field.tag for field in fields}:
            raise Broken("a tag of another version")
        else:
            value.setdefault("unknown_tagged_fields", {})[tag] = source.take(size)
    return value


def _read(field, version, is_flexible, source):
    is_nullable = version in field.nullable
    if not field.is_array:
        return _read_one(field, version, is_flexible, is_nullable, source)
    size = source.length(is_flexible and not field.is_plain, ">i")
    if size < 0:
        return _null(is_nullable)
    if size > len(source.data) - source.at:
        raise Broken("more elements than bytes")
    return tuple(_read_one(field, version, is_flexible, False, source) for _ in range(size))


def _read_one(field, version, is_flexible, is_nullable, source):
    kind = field.type
    if kind in NUMBERS:
        return source.number(NUMBERS[kind])
    if kind == FieldType.BOOL:
        return source.take(1) != b"\0"
    if kind == FieldType.UUID:
        shown = base64.urlsafe_b64encode(source.take(16)).decode()[:22]
        return None if shown == 22 * "A" else shown
    if kind == FieldType.STRUCT:
        if is_nullable and field.tag is None and source.number(">b") < 0:
            return None
        if is_nullable and field.tag is not None and not 0 < source.varint() < 2**31:
            return None
        return _read_fields(field.fields, version, is_flexible, source)
    is_compact = is_flexible and not field.is_plain
    size = source.length(is_compact, ">h" if kind == FieldType.STRING else ">i")
    if size < 0:
        return _null(is_nullable)
    if kind == FieldType.BYTES:
        return source.take(size)
    if size > 32767:
        raise Broken("long string")
    return source.take(size).decode("utf-8", "surrogateescape")


def _null(is_nullable):
    if not is_nullable:
        raise Broken("null")


def write(message, version, value):
    """Write a value; fields that the version does not have are left out."""
    return _write_fields(message.fields, version, version in message.flexible, value)


def _write_fields(fields, version, is_flexible, value):
    present = [field for field in fields if version in field.versions]
    packed = b"".join(
        _write(field, version, is_flexible, value[field.name])
        for field in present
        if field.tag is None
    )
    if not is_flexible:
        return packed
    tagged = dict(value.get("unknown_tagged_fields", {}))
    for field in present:
        if field.tag is not None and value[field.name] != field.default:
            tagged[field.tag] = _write(field, version, is_flexible, value[field.name])
    packed += varint(len(tagged))
    for tag, content in sorted(tagged.items()):
        packed += varint(tag) + varint(len(content)) + content
    return packed


def _write(field, version, is_flexible, value):
    is_nullable = version in field.nullable
    if not field.is_array:
        return _write_one(field, version, is_flexible, is_nullable, value)
    is_compact = is_flexible and not field.is_plain
    if value is None:
        return _length(is_compact, ">i", -1)
    elements = (_write_one(field, version, is_flexible, False, each) for each in value)
    return _length(is_compact, ">i", len(value)) + b"".join(elements)


def _write_one(field, version, is_flexible, is_nullable, value):
    kind = field.type
    if kind in NUMBERS:
        return struct.pack(NUMBERS[kind], value)
    if kind == FieldType.BOOL:
        return b"\1" if value else b"\0"
    if kind == FieldType.UUID:
        return bytes(16) if value is None else base64.urlsafe_b64decode(value + "==")
    if kind == FieldType.STRUCT:
        if value is None:
            return b"\xff" if field.tag is None else b"\0"
        packed = _write_fields(field.fields, version, is_flexible, value)
        return b"\1" + packed if is_nullable else packed
    is_compact = is_flexible and not field.is_plain
    code = ">h" if kind == FieldType.STRING else ">i"
    if value is None:
        return _length(is_compact, code, -1)
    content = value.encode("utf-8", "surrogateescape") if kind == FieldType.STRING else value
    return _length(is_compact, code, len(content)) + content


def _length(is_compact, code, length):
    return varint(length + 1) if is_compact else struct.pack(code, length)


def varint(number):
    """Seven bits a byte, lowest first."""
    digits = [number >> shift & 127 for shift in range(0, max(number.bit_length(), 1), 7)]
    return bytes([digit | 128 for digit in digits[:-1]] + digits[-1:])


def documented(text):
    """The rows `field | type | versions` of a document's tables."""
    return re.findall(r"^\| ([a-z_.]+) \| ([\w ,]+) \| (\d+\+?) \|", text, re.MULTILINE)


def as_documented(fields, prefix=""):
    """The rows that a document should have for these fields."""
    rows = []
    for field in fields:
        kind = field.type.name.lower()
        if field.is_array:
            kind = "array" if field.fields else f"array of {kind}"
        kind += " or null" if field.nullable.newest >= 0 else ""
        kind += f", tag {field.tag}" if field.tag is not None else ""
        oldest, newest = field.versions
        rows.append((prefix + field.name, kind, str(newest) if newest == oldest else f"{oldest}+"))
        rows += as_documented(field.fields, f"{prefix}{field.name}.")
    return rows


def known(value):
    """A value without the tagged fields that its description does not have."""
    if isinstance(value, dict):
        return {
            name: known(field)
            for name, field in value.items()
            if name != "unknown_tagged_fields"
        }
    return tuple(map(known, value)) if isinstance(value, tuple) else value


def plain(value):
    """A named tuple of the package as a dictionary, and those in it."""
    if hasattr(value, "_asdict"):
        return {name: plain(field) for name, field in value._asdict().items()}
    return tuple(map(plain, value)) if isinstance(value, tuple) else value


def snake_case(name):
    """Kafka's name as it is written here."""
    return re.sub("(?<!^)([A-Z])", r"_\1", name).lower()
