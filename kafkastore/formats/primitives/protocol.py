"""The primitive types of Kafka's protocol, in messages and internal topics.

Integers are big-endian and signed. Lengths and counts have two forms, depending on the version of
the message; *flexible* versions have tagged fields too::

                     not flexible                    flexible ("compact")

    string           int16 length, UTF-8             varint length + 1, UTF-8
    bytes            int32 length, bytes             varint length + 1, bytes
    array            int32 count, elements           varint count + 1, elements
    null             length or count below 0         0
    tagged fields                                    varint count, then for each
                                                     varint tag, varint size, bytes

Tagged fields end a message and every structure in it, ascending by tag; a reader skips those that
it does not know. A varint here is unsigned: 7 bits a byte, lowest first, at most 5 bytes.

Source: Kafka 4.1.1 ``ByteBufferAccessor``, ``ByteUtils``, the generated message classes; KIP-482.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from kafkastore.errors import CorruptionError, KafkaStoreError, UnsupportedFormatError

LONGEST_STRING_BYTES = 2**15 - 1
LONGEST_VARINT_BYTES = 5
UUID_BYTES = 16

T = TypeVar("T")

_INT8, _INT16, _INT32, _INT64 = (struct.Struct(">" + letter) for letter in "bhiq")
_NO_UUID = bytes(UUID_BYTES)
_TWO_TO_31, _TWO_TO_32 = 2**31, 2**32


class FieldValueError(KafkaStoreError, ValueError):
    """A value that a message's field, or this version of the message, cannot hold.

    Parameters
    ----------
    field : str
        The field's name.
    problem : str
        What the value must be, and what it is.
    """

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(field, problem)
        self.field, self.problem = field, problem

    def __str__(self) -> str:
        return f"{self.field} {self.problem}"


def check_version(message: str, version: int, newest: int, *, position: int | None = None) -> None:
    """Raise unless `version` is from 0 to `newest`; `position` is that of its bytes."""
    if not 0 <= version <= newest:
        raise UnsupportedFormatError(
            f"version of {message} must be from 0 to {newest}, got {version}", position=position
        )


class ProtocolReader:
    """Read the fields of a message one after the other; each method takes a name.

    Raises `CorruptionError` (name, position of the field) for an incomplete or wrongly null field.
    `is_flexible` selects compact lengths and counts.
    """

    __slots__ = ("_data", "is_flexible", "position")

    def __init__(self, data: bytes, *, is_flexible: bool = False) -> None:
        self._data, self.position, self.is_flexible = data, 0, is_flexible

    def int8(self, name: str) -> int:
        """Read a signed number of one byte."""
        return self._number(name, _INT8)

    def int16(self, name: str) -> int:
        """Read a signed number of two bytes."""
        return self._number(name, _INT16)

    def int32(self, name: str) -> int:
        """Read a signed number of four bytes."""
        return self._number(name, _INT32)

    def int64(self, name: str) -> int:
        """Read a signed number of eight bytes."""
        return self._number(name, _INT64)

    def version(self, message: str, newest: int) -> int:
        """Read the version, an int16, of a key or value; raise if above `newest`."""
        start = self.position
        version = self.int16("version")
        check_version(message, version, newest, position=start)
        return version

    def unsigned_varint(self, name: str) -> int:
        """Read a varint of 32 bits as Java does: from 2**31 on it is negative."""
        start = position = self.position
        number = shift = 0
        for byte in self._data[start : start + LONGEST_VARINT_BYTES]:
            position += 1
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                self.position = position
                return _int32(number)
            shift += 7
        if position - start == LONGEST_VARINT_BYTES:
            raise CorruptionError(
                f"{name}: varint longer than {LONGEST_VARINT_BYTES} bytes", position=start
            )
        raise self._ends(name, start)

    def string(self, name: str) -> str:
        """Read a string; bytes that are not UTF-8 become surrogates, U+DC80 to U+DCFF."""
        return self._not_null(name, self.nullable_string)

    def nullable_string(self, name: str) -> str | None:
        """Read a string, or None."""
        start = self.position
        length = self._length(name) if self.is_flexible else self._number(name, _INT16)
        if length > LONGEST_STRING_BYTES:
            raise CorruptionError(f"{name}: impossible string length {length}", position=start)
        content = self._content(name, start, length)
        return None if content is None else content.decode("utf-8", "surrogateescape")

    def binary(self, name: str) -> bytes:
        """Read bytes after their length."""
        return self._not_null(name, self._nullable_binary)

    def uuid(self, name: str) -> str | None:
        """Read a 16-byte id as Kafka shows it, in URL-safe base64; None for zeros."""
        content = self._take(name, self.position, UUID_BYTES)
        if content == _NO_UUID:
            return None
        return base64.urlsafe_b64encode(content).rstrip(b"=").decode()

    def array(self, name: str, element: Callable[[], T]) -> tuple[T, ...]:
        """Read an array; `element` reads one element, of at least one byte."""
        return self._not_null(name, lambda name: self.nullable_array(name, element))

    def nullable_array(self, name: str, element: Callable[[], T]) -> tuple[T, ...] | None:
        """Read an array, or None."""
        start = self.position
        count = self._length(name) if self.is_flexible else self._number(name, _INT32)
        if count < 0:
            return None
        left = len(self._data) - self.position
        if count > left:
            raise CorruptionError(
                f"{name}: impossible count {count}, {left} bytes left", position=start
            )
        return tuple([element() for _ in range(count)])

    def tagged_fields(
        self, name: str, known: Mapping[int, Callable[[str], T]] | None = None
    ) -> dict[int, T]:
        """Read the tagged fields; return those with a reading method in `known`, by tag.

        As in Kafka, the size of a known tag is not checked against the bytes read.
        """
        found: dict[int, T] = {}
        if not self.is_flexible:
            return found
        for _ in range(self.unsigned_varint(name)):
            tag = self.unsigned_varint(name)
            size = self.unsigned_varint(name)
            if known is not None and tag in known:
                found[tag] = known[tag](f"{name} {tag}")
            else:
                self._take(f"{name} {tag}", self.position, size)
        return found

    def _nullable_binary(self, name: str) -> bytes | None:
        """Read bytes, or None."""
        start = self.position
        length = self._length(name) if self.is_flexible else self._number(name, _INT32)
        return self._content(name, start, length)

    def _length(self, name: str) -> int:
        """Read a compact length or count; negative for null."""
        return _int32(self.unsigned_varint(name) - 1)

    def _content(self, name: str, start: int, length: int) -> bytes | None:
        """Read the bytes after a length."""
        return None if length < 0 else self._take(name, start, length)

    def _take(self, name: str, start: int, size: int) -> bytes:
        """Read bytes of a field that started at `start`."""
        if not 0 <= size <= len(self._data) - self.position:
            raise self._ends(name, start)
        self.position += size
        return self._data[self.position - size : self.position]

    def _number(self, name: str, packed: struct.Struct) -> int:
        """Read a number."""
        start = self.position
        if packed.size > len(self._data) - start:
            raise self._ends(name, start)
        self.position = start + packed.size
        number: int = packed.unpack_from(self._data, start)[0]
        return number

    def _not_null(self, name: str, take: Callable[[str], T | None]) -> T:
        """Read a field that must not be null."""
        start = self.position
        value = take(name)
        if value is None:
            raise CorruptionError(f"{name} is null", position=start)
        return value

    def _ends(self, name: str, start: int) -> CorruptionError:
        """Return the error for an incomplete field."""
        return CorruptionError(f"the bytes end in {name}", position=start)


class ProtocolWriter:
    """Write the fields of a message; the reverse of `ProtocolReader`.

    Every method takes the field's name, for the error, and raises `FieldValueError` for a value
    that does not fit. `is_flexible` selects compact lengths and counts.
    """

    __slots__ = ("_packed", "is_flexible")

    def __init__(self, *, is_flexible: bool = False) -> None:
        self._packed, self.is_flexible = bytearray(), is_flexible

    def packed(self) -> bytes:
        """Return the bytes written so far."""
        return bytes(self._packed)

    def int8(self, name: str, value: int) -> None:
        """Write a signed number of one byte."""
        self._packed += pack_int(name, value, 1)

    def int16(self, name: str, value: int) -> None:
        """Write a signed number of two bytes."""
        self._packed += pack_int(name, value, 2)

    def int32(self, name: str, value: int) -> None:
        """Write a signed number of four bytes."""
        self._packed += pack_int(name, value, 4)

    def int64(self, name: str, value: int) -> None:
        """Write a signed number of eight bytes."""
        self._packed += pack_int(name, value, 8)

    def unsigned_varint(self, name: str, value: int) -> None:
        """Write a number from 0 to 2**31 - 1, 7 bits a byte."""
        if not 0 <= value < _TWO_TO_31:
            raise FieldValueError(name, f"must be from 0 to {_TWO_TO_31 - 1}, got {value}")
        while value >= 0x80:
            self._packed.append(value & 0x7F | 0x80)
            value >>= 7
        self._packed.append(value)

    def string(self, name: str, value: str) -> None:
        """Write a string."""
        content = value.encode("utf-8", "surrogateescape")
        if len(content) > LONGEST_STRING_BYTES:
            raise FieldValueError(
                name, f"must be at most {LONGEST_STRING_BYTES} bytes, got {len(content)}"
            )
        self._length(name, len(content), 2)
        self._packed += content

    def nullable_string(self, name: str, value: str | None) -> None:
        """Write a string, or null."""
        if value is None:
            self._length(name, -1, 2)
        else:
            self.string(name, value)

    def binary(self, name: str, value: bytes) -> None:
        """Write bytes after their length."""
        self._length(name, len(value), 4)
        self._packed += value

    def array(self, name: str, values: Sequence[T], element: Callable[[T], None]) -> None:
        """Write an array; `element` writes one element."""
        self._length(name, len(values), 4)
        for value in values:
            element(value)

    def nullable_array(
        self, name: str, values: Sequence[T] | None, element: Callable[[T], None]
    ) -> None:
        """Write an array, or null."""
        if values is None:
            self._length(name, -1, 4)
        else:
            self.array(name, values, element)

    def tagged_fields(self, name: str, fields: Mapping[int, bytes] | None = None) -> None:
        """Write packed values by their tags; only a flexible message can have any."""
        values = fields or {}
        if self.is_flexible:
            self.unsigned_varint(name, len(values))
            for tag in sorted(values):
                self.unsigned_varint(name, tag)
                self.unsigned_varint(name, len(values[tag]))
                self._packed += values[tag]
        elif values:
            raise FieldValueError(name, "must be empty in this version of the message")

    def _length(self, name: str, length: int, plain_bytes: int) -> None:
        """Write a length or count, -1 for null."""
        if self.is_flexible:
            self.unsigned_varint(name, length + 1)
        else:
            self._packed += pack_int(name, length, plain_bytes)


def pack_int(name: str, value: int, size: int) -> bytes:
    """Pack a signed big-endian number; `FieldValueError` if it does not fit."""
    try:
        return value.to_bytes(size, "big", signed=True)
    except OverflowError:
        raise FieldValueError(name, f"must be an int of {8 * size} bits, got {value}") from None


def unpack_int(data: bytes, start: int, end: int) -> int:
    """Load a signed number."""
    return int.from_bytes(data[start:end], "big", signed=True)


def _int32(number: int) -> int:
    """Wrap a number as Java's int does."""
    return (number + _TWO_TO_31) % _TWO_TO_32 - _TWO_TO_31
