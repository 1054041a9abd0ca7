"""Descriptions of messages: the fields of a structure, by version, as a text.

A message of Kafka's protocol or of an internal topic is described once, by a line for its name and
versions and a line for each field::

    PartitionRecord 3, versions 0-2, flexible 0+
        partition_id int32 = -1
        topic_id uuid
        replicas int32[]
        leader_recovery_state int8 tag 0
        directories uuid[] 1+
        racks struct[]
            name string?

The records of a compacted topic have a key too, flat and not flexible, in the first line::

    OffsetCommit 1, key (group string, topic string, partition int32), versions 0-4, flexible 4+

A first line that ends with a comma goes on in the next.

A field is a name, a type, the versions that have it (all, if none are given), ``tag`` and its
number if it is a tagged field, ``ignorable`` if versions without it may drop its value, ``plain``
if it is never compact, and ``=`` and its default. ``[]`` makes an array, ``?`` a field that
may be null, ``?2+`` one that may be null from that version on. The fields of a ``struct`` follow,
indented.

The default is the value of a field that a version, or a message without that tag, does not have:
0, false, an empty string or array, or a structure of defaults, unless another one or ``null`` is
given.

Source: Kafka 4.3.1 ``MessageSpec``, ``FieldSpec``; KIP-482.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from enum import IntEnum
from typing import NamedTuple

NEWEST = 2**15 - 1


class FieldType(IntEnum):
    """The type of a field or of the elements of its array; the names are Kafka's."""

    BOOL = 0
    INT8 = 1
    INT16 = 2
    UINT16 = 3
    INT32 = 4
    UINT32 = 5
    INT64 = 6
    FLOAT64 = 7
    STRING = 8
    BYTES = 9
    UUID = 10
    STRUCT = 11


class Versions(NamedTuple):
    """Versions from `oldest` to `newest`; none if `newest` is below `oldest`."""

    oldest: int
    newest: int

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.oldest <= version <= self.newest


ALL_VERSIONS = Versions(0, NEWEST)
NO_VERSIONS = Versions(0, -1)


class Field(NamedTuple):
    """A field of a message or of a structure in it."""

    name: str
    type: FieldType
    is_array: bool
    versions: Versions
    nullable: Versions
    tag: int | None
    default: object
    fields: tuple[Field, ...]
    is_ignorable: bool
    is_plain: bool


class Description(NamedTuple):
    """A message: its name, its number, its versions and its fields."""

    name: str
    number: int
    versions: Versions
    flexible: Versions
    fields: tuple[Field, ...]
    key: tuple[Field, ...] = ()


_HEAD = re.compile(
    r"(?P<name>\w+)(?: (?P<number>\d+))?(?:, key \((?P<key>[^)]*)\))?, versions? (?P<versions>\S+?)"
    r"(?:, flexible (?P<flexible>\S+))?"
)
_FIELD = re.compile(
    r"(?P<name>\w+) (?P<type>[a-z]+\d*)(?P<array>\[\])?(?P<nullable>\?(?:\d+\+)?)?"
    r"(?: (?P<versions>\d+(?:-\d+|\+)?))?(?: tag (?P<tag>\d+))?(?P<ignorable> ignorable)?"
    r"(?P<plain> plain)?(?: = (?P<default>\S+))?"
)
_TYPES = {kind.name.lower(): kind for kind in FieldType}
_INDENT = 4
_CONTINUED = re.compile(r",\n +")


def parse_descriptions(text: str) -> Mapping[int, Description]:
    """Return the messages of `text` by their numbers."""
    text = _CONTINUED.sub(", ", text)
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    found: dict[int, Description] = {}
    at = 0
    while at < len(lines):
        head = _HEAD.fullmatch(lines[at])
        assert head is not None, f"not the first line of a message: {lines[at]!r}"
        end = next(
            (i for i in range(at + 1, len(lines)) if not lines[i].startswith(" ")), len(lines)
        )
        fields = tuple(_fields(lines[at + 1 : end], _INDENT))
        number = int(head["number"] or 0)
        flexible = _versions(head["flexible"]) if head["flexible"] else NO_VERSIONS
        key = tuple(_fields((head["key"] or "").split(", "), 0)) if head["key"] else ()
        found[number] = Description(
            head["name"], number, _versions(head["versions"]), flexible, fields, key
        )
        at = end
    return found


def _fields(lines: list[str], indent: int) -> Iterator[Field]:
    """Parse the lines of one structure."""
    at = 0
    while at < len(lines):
        line = _FIELD.fullmatch(lines[at][indent:])
        assert line is not None, f"not a field at this depth: {lines[at]!r}"
        end = next(
            (i for i in range(at + 1, len(lines)) if not lines[i].startswith(" " * (indent + 1))),
            len(lines),
        )
        kind, is_array = _TYPES[line["type"]], line["array"] is not None
        versions = _versions(line["versions"]) if line["versions"] else ALL_VERSIONS
        nullable = _versions(line["nullable"][1:] or "0+") if line["nullable"] else NO_VERSIONS
        fields = tuple(_fields(lines[at + 1 : end], indent + _INDENT))
        yield Field(
            line["name"],
            kind,
            is_array,
            versions,
            nullable,
            int(line["tag"]) if line["tag"] else None,
            _default(kind, is_array, fields, line["default"]),
            fields,
            line["ignorable"] is not None,
            line["plain"] is not None,
        )
        at = end


def _versions(text: str) -> Versions:
    """Parse ``3``, ``0-2`` or ``1+``."""
    oldest, _, newest = text.rstrip("+").partition("-")
    if text.endswith("+"):
        return Versions(int(oldest), NEWEST)
    return Versions(int(oldest), int(newest or oldest))


_ZEROS: Mapping[FieldType, object] = {
    FieldType.BOOL: False,
    FieldType.FLOAT64: 0.0,
    FieldType.STRING: "",
    FieldType.BYTES: b"",
    FieldType.UUID: None,
}


def _default(
    kind: FieldType, is_array: bool, fields: tuple[Field, ...], text: str | None
) -> object:
    """Return the value of a field that is not there."""
    if text == "null":
        return None
    if text is not None:
        return text == "true" if kind is FieldType.BOOL else int(text)
    if is_array:
        return ()
    if kind is FieldType.STRUCT:
        return {field.name: field.default for field in fields}
    return _ZEROS.get(kind, 0)
