"""Kafka's messages read and written by their definitions, as tables; slow, and knowing no message.

The tables are those of Kafka's JSON definitions: name, type, first and last version, and where a
field may be null or is tagged. `test_payloads_against_kafka` compares them with the definitions in
the jars. Values are dictionaries by Kafka's names in snake case.
"""

import base64
import re
import struct
from dataclasses import dataclass

NUMBERS = {"int8": ">b", "int16": ">h", "int32": ">i", "int64": ">q"}


class Broken(Exception):
    """Bytes that are not a valid message."""


@dataclass(frozen=True)
class Field:
    """A field of a message; `type` is a list of fields for an array of structures."""

    name: str
    type: object
    first: int = 0
    last: int = 99
    nullable: bool = False
    tag: int | None = None
    default: object = None

    def is_in(self, version):
        return self.first <= version <= self.last


@dataclass(frozen=True)
class Message:
    """A message: its fields, its versions, the first flexible one."""

    fields: tuple
    newest: int
    flexible: int


OFFSET_COMMIT_VALUE = Message(
    (
        Field("offset", "int64"),
        Field("leader_epoch", "int32", 3, default=-1),
        Field("metadata", "string"),
        Field("commit_timestamp", "int64"),
        Field("expire_timestamp", "int64", 1, 1, default=-1),
        Field("topic_id", "uuid", 4, tag=0),
    ),
    newest=4,
    flexible=4,
)
GROUP_METADATA_VALUE = Message(
    (
        Field("protocol_type", "string"),
        Field("generation", "int32"),
        Field("protocol", "string", nullable=True),
        Field("leader", "string", nullable=True),
        Field("current_state_timestamp", "int64", 2, default=-1),
        Field(
            "members",
            (
                Field("member_id", "string"),
                Field("group_instance_id", "string", 3, nullable=True),
                Field("client_id", "string"),
                Field("client_host", "string"),
                Field("rebalance_timeout", "int32", 1, default=-1),
                Field("session_timeout", "int32"),
                Field("subscription", "bytes"),
                Field("assignment", "bytes"),
            ),
        ),
    ),
    newest=4,
    flexible=4,
)
TRANSACTION_LOG_VALUE = Message(
    (
        Field("producer_id", "int64"),
        Field("previous_producer_id", "int64", 1, tag=0, default=-1),
        Field("next_producer_id", "int64", 1, tag=1, default=-1),
        Field("producer_epoch", "int16"),
        Field("next_producer_epoch", "int16", 1, tag=3, default=-1),
        Field("transaction_timeout_ms", "int32"),
        Field("transaction_status", "int8"),
        Field(
            "transaction_partitions",
            (Field("topic", "string"), Field("partition_ids", "[]int32")),
            nullable=True,
        ),
        Field("transaction_last_update_timestamp_ms", "int64"),
        Field("transaction_start_timestamp_ms", "int64"),
        Field("client_transaction_version", "int16", 1, tag=2, default=0),
    ),
    newest=1,
    flexible=1,
)
LIST_OFFSETS_REQUEST = Message(
    (
        Field("replica_id", "int32"),
        Field("isolation_level", "int8", 2, default=0),
        Field(
            "topics",
            (
                Field("name", "string"),
                Field(
                    "partitions",
                    (
                        Field("partition_index", "int32"),
                        Field("current_leader_epoch", "int32", 4, default=-1),
                        Field("timestamp", "int64"),
                        Field("max_num_offsets", "int32", 0, 0, default=1),
                    ),
                ),
            ),
        ),
        Field("timeout_ms", "int32", 10, default=0),
    ),
    newest=11,
    flexible=6,
)
LIST_OFFSETS_RESPONSE = Message(
    (
        Field("throttle_time_ms", "int32", 2, default=0),
        Field(
            "topics",
            (
                Field("name", "string"),
                Field(
                    "partitions",
                    (
                        Field("partition_index", "int32"),
                        Field("error_code", "int16"),
                        Field("old_style_offsets", "[]int64", 0, 0, default=()),
                        Field("timestamp", "int64", 1, default=-1),
                        Field("offset", "int64", 1, default=-1),
                        Field("leader_epoch", "int32", 4, default=-1),
                    ),
                ),
            ),
        ),
    ),
    newest=11,
    flexible=6,
)


class Bytes:
    """Bytes taken from their start on."""

    def __init__(self, data, flexible):
        self.data, self.at, self.flexible = data, 0, flexible

    def take(self, size):
        if size < 0 or self.at + size > len(self.data):
            raise Broken(f"{size} bytes wanted at {self.at} of {len(self.data)}")
        self.at += size
        return self.data[self.at - size : self.at]

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

    def length(self, plain):
        if self.flexible:
            number = self.varint() - 1
            return number if number < 2**31 else -1
        return struct.unpack(NUMBERS[plain], self.take(struct.calcsize(NUMBERS[plain])))[0]


def read(message, version, data):
    """Read a message; the value, and how many bytes it took."""
    source = Bytes(data, version >= message.flexible)
    return _read_fields(message.fields, version, source), source.at


def _read_fields(fields, version, source):
    value = {field.name: field.default for field in fields if not field.is_in(version)}
    for field in fields:
        if field.is_in(version) and field.tag is None:
            value[field.name] = _read(field.type, version, source)
            if value[field.name] is None and not field.nullable:
                raise Broken(f"{field.name} is null")
    if source.flexible:
        _read_tagged(fields, version, source, value)
    return value


def _read_tagged(fields, version, source, value):
    tagged = {field.tag: field for field in fields if field.tag is not None}
    value.update({field.name: field.default for field in tagged.values()})
    count = source.varint()
    for _ in range(count if count < 2**31 else 0):
        tag, size = source.varint(), source.varint()
        if tag in tagged:
            value[tagged[tag].name] = _read(tagged[tag].type, version, source)
        else:
            source.take(size)


def _read(kind, version, source):
    if kind in NUMBERS:
        return struct.unpack(NUMBERS[kind], source.take(struct.calcsize(NUMBERS[kind])))[0]
    if kind == "uuid":
        shown = base64.urlsafe_b64encode(source.take(16)).decode()[:22]
        return None if shown == 22 * "A" else shown
    size = source.length("int16" if kind == "string" else "int32")
    if size < 0:
        return None
    if kind == "string":
        if size > 32767:
            raise Broken("long string")
        return source.take(size).decode("utf-8", "surrogateescape")
    if kind == "bytes":
        return source.take(size)
    if size > len(source.data) - source.at:
        raise Broken("more elements than bytes")
    if isinstance(kind, str):
        return tuple(_read(kind.removeprefix("[]"), version, source) for _ in range(size))
    return tuple(_read_fields(kind, version, source) for _ in range(size))


def write(message, version, value):
    """Write a value; fields that the version does not have are left out."""
    return _write_fields(message.fields, version, version >= message.flexible, value)


def _write_fields(fields, version, flexible, value):
    packed = b""
    for field in fields:
        if field.is_in(version) and field.tag is None:
            packed += _write(field.type, version, flexible, value[field.name])
    if not flexible:
        return packed
    tagged = sorted(
        (field.tag, _write(field.type, version, flexible, value[field.name]))
        for field in fields
        if field.tag is not None and value[field.name] != field.default
    )
    packed += varint(len(tagged))
    for tag, content in tagged:
        packed += varint(tag) + varint(len(content)) + content
    return packed


def _write(kind, version, flexible, value):
    if kind in NUMBERS:
        return struct.pack(NUMBERS[kind], value)
    if kind == "uuid":
        return base64.urlsafe_b64decode(value + "==")
    plain = NUMBERS["int16" if kind == "string" else "int32"]
    if value is None:
        return b"\0" if flexible else struct.pack(plain, -1)
    if kind == "string":
        value = value.encode("utf-8", "surrogateescape")
    size = varint(len(value) + 1) if flexible else struct.pack(plain, len(value))
    if isinstance(value, bytes):
        return size + value
    if isinstance(kind, str):
        elements = (_write(kind.removeprefix("[]"), version, flexible, one) for one in value)
    else:
        elements = (_write_fields(kind, version, flexible, one) for one in value)
    return size + b"".join(elements)


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
        is_structure = isinstance(field.type, tuple)
        kind = "array" if is_structure else field.type.replace("[]", "array of ")
        kind += " or null" if field.nullable else ""
        kind += f", tag {field.tag}" if field.tag is not None else ""
        span = f"{field.first}+" if field.last == 99 else str(field.last)
        rows.append((prefix + field.name, kind, span))
        if is_structure:
            rows += as_documented(field.type, f"{prefix}{field.name}.")
    return rows


def plain(value):
    """A named tuple of the package as a dictionary, and those in it."""
    if hasattr(value, "_asdict"):
        return {name: plain(field) for name, field in value._asdict().items()}
    return tuple(map(plain, value)) if isinstance(value, tuple) else value


def snake_case(name):
    """Kafka's name as it is written here."""
    return re.sub("(?<!^)([A-Z])", r"_\1", name).lower()
