"""Join Parquet files that threads wrote, each with one row group, into one file.

The bytes of the row groups are copied as they are. The footers are changed: the byte positions in
them count from the beginning of the file.

Source: https://github.com/apache/parquet-format ``parquet.thrift``; Thrift's compact protocol.
"""
from __future__ import annotations

from typing import Any, BinaryIO, NamedTuple

MAGIC = b"PAR1"

# The types of Thrift's compact protocol.
_TRUE, _FALSE, _BYTE, _INT16, _INT32, _INT64, _DOUBLE = 1, 2, 3, 4, 5, 6, 7
_BINARY, _LIST, _SET, _STRUCT = 8, 9, 10, 12

# Fields of FileMetaData, RowGroup, ColumnChunk, ColumnMetaData.
_NUM_ROWS, _ROW_GROUPS = 3, 4
_COLUMNS, _GROUP_POSITION, _ORDINAL = 1, 5, 7
_LARGEST_ORDINAL = 2**15 - 1
_CHUNK_POSITION, _CHUNK_METADATA, _INDEX_POSITIONS = 2, 3, (4, 6)
_PAGE_POSITIONS = (9, 10, 11, 14)

#: Fields by number: type and value.
_Struct = dict[int, tuple[int, Any]]


class ThriftList(NamedTuple):
    """A list or set, and the type of its elements."""

    type: int
    elements: list[Any]


class PartsWriter:
    """Joins Parquet files with the same columns; the first may be without rows."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._position = file.write(MAGIC)
        self._footer: _Struct | None = None

    @property
    def is_empty(self) -> bool:
        """Whether nothing was written yet."""
        return self._footer is None

    def write(self, part: memoryview) -> None:
        """Append the row groups of a Parquet file with the same schema."""
        size = int.from_bytes(part[-8:-4], "little")
        content = part[len(MAGIC) : len(part) - 8 - size]
        footer = _Reader(part[len(part) - 8 - size : -8]).struct()
        self._file.write(content)
        self._move(footer)
        self._position += len(content)
        if self._footer is None:
            self._footer = footer
            return
        groups = self._footer[_ROW_GROUPS][1].elements
        for group in footer[_ROW_GROUPS][1].elements:
            if _ORDINAL in group:    # optional, and too small for more row groups
                del group[_ORDINAL]
                if len(groups) <= _LARGEST_ORDINAL:
                    group[_ORDINAL] = (_INT16, len(groups))
            groups.append(group)
        rows = self._footer[_NUM_ROWS][1] + footer[_NUM_ROWS][1]
        self._footer[_NUM_ROWS] = (_INT64, rows)

    def _move(self, footer: _Struct) -> None:
        """Let the positions in a footer count from the beginning of the file."""
        by = self._position - len(MAGIC)
        for group in footer[_ROW_GROUPS][1].elements:
            _add(group, _GROUP_POSITION, by)
            for chunk in group[_COLUMNS][1].elements:
                for number in (_CHUNK_POSITION, *_INDEX_POSITIONS):
                    _add(chunk, number, by)
                for number in _PAGE_POSITIONS:
                    _add(chunk[_CHUNK_METADATA][1], number, by)

    def close(self) -> None:
        """Complete the file."""
        assert self._footer is not None
        footer = bytearray()
        _write_struct(footer, self._footer)
        self._file.write(bytes(footer) + len(footer).to_bytes(4, "little") + MAGIC)


def _add(fields: _Struct, number: int, by: int) -> None:
    """Add to a position; 0 stands for none."""
    if number in fields and fields[number][1]:
        kind, position = fields[number]
        fields[number] = (kind, position + by)


class _Reader:
    """Reads Thrift's compact protocol; bytes that end early raise IndexError."""

    def __init__(self, data: memoryview) -> None:
        self._data, self._at = data, 0

    def struct(self) -> _Struct:
        """Read the fields of a struct."""
        fields: _Struct = {}
        number = 0
        while head := self._byte():
            number = number + (head >> 4) if head >> 4 else self._signed()
            fields[number] = (head & 15, self._value(head & 15))
        return fields

    def _value(self, kind: int) -> Any:
        if kind in (_TRUE, _FALSE):
            return kind == _TRUE
        if kind in (_BYTE, _INT16, _INT32, _INT64):
            return self._byte() if kind == _BYTE else self._signed()
        if kind in (_DOUBLE, _BINARY):
            return self._bytes(8 if kind == _DOUBLE else self._unsigned())
        if kind in (_LIST, _SET):
            head = self._byte()
            count = head >> 4 if head >> 4 < 15 else self._unsigned()
            return ThriftList(head & 15, [self._element(head & 15) for _ in range(count)])
        return self.struct()

    def _element(self, kind: int) -> Any:
        """Read an element of a list, of which a bool is a byte."""
        return self._byte() if kind in (_TRUE, _FALSE) else self._value(kind)

    def _bytes(self, size: int) -> bytes:
        self._at += size
        return bytes(self._data[self._at - size : self._at])

    def _byte(self) -> int:
        self._at += 1
        return self._data[self._at - 1]

    def _unsigned(self) -> int:
        number = shift = 0
        while True:
            byte = self._byte()
            number |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return number

    def _signed(self) -> int:
        number = self._unsigned()
        return number >> 1 ^ -(number & 1)


def _write_struct(to: bytearray, fields: _Struct) -> None:
    """Append a struct, with its fields in ascending order."""
    before = 0
    for number, (kind, value) in sorted(fields.items()):
        if number - before < 16:
            to.append(number - before << 4 | kind)
        else:
            to.append(kind)
            _write_signed(to, number)
        before = number
        if kind not in (_TRUE, _FALSE):
            _write_value(to, kind, value)
    to.append(0)


def _write_value(to: bytearray, kind: int, value: Any) -> None:
    if kind in (_INT16, _INT32, _INT64):
        _write_signed(to, value)
    elif kind in (_TRUE, _FALSE, _BYTE):
        to.append(value)
    elif kind in (_DOUBLE, _BINARY):
        if kind == _BINARY:
            _write_unsigned(to, len(value))
        to += value
    elif kind in (_LIST, _SET):
        count = len(value.elements)
        to.append(min(count, 15) << 4 | value.type)
        if count >= 15:
            _write_unsigned(to, count)
        for each in value.elements:
            _write_value(to, value.type, each)
    else:
        _write_struct(to, value)


def _write_unsigned(to: bytearray, number: int) -> None:
    while number >= 0x80:
        to.append(number & 0x7F | 0x80)
        number >>= 7
    to.append(number)


def _write_signed(to: bytearray, number: int) -> None:
    _write_unsigned(to, number << 1 if number >= 0 else (-number << 1) - 1)
