"""The records of a topic that brokers write for themselves.

The bytes of a record name its description in the table of its topic::

    keyed     key: number int16, then the key's fields, not flexible
              value: version int16, then the value's fields; null is a tombstone
    framed    value: frame version varint, 1 | number varint | version varint, then the fields

A record of an unknown number or a newer version keeps its bytes.

Source: Kafka 4.3.1 ``CoordinatorRecordSerde``, ``AbstractApiMessageSerde``.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kafkastore.errors import CorruptionError
from kafkastore.formats.messages.message_codec import Frames
from kafkastore.formats.messages.message_table import MessageTable, Values


class TopicRecord(NamedTuple):
    """A record of an internal topic.

    | field      | value                                                                     |
    | ---------- | ------------------------------------------------------------------------- |
    | `number`   | the record's type                                                         |
    | `name`     | Kafka's name of it; None if the number is unknown                         |
    | `version`  | the value's; None for a tombstone, or if the number is unknown            |
    | `key`      | None if the topic's records have no keys, or the number is unknown        |
    | `value`    | None for a tombstone, or if the number or the version is unknown          |
    | `unparsed` | the bytes whose fields are unknown, and nothing else                      |
    """

    number: int
    name: str | None
    version: int | None
    key: Values | None
    value: Values | None
    unparsed: bytes | None = None


class RecordTable(MessageTable):
    """The records of one topic."""

    def parse_framed(self, value: bytes) -> TopicRecord:
        """Parse a record without a key.

        Raises `CorruptionError`, with the position in the value, if the frame is wrong, a field is
        incomplete, or bytes are left.
        """
        places = np.array([0, len(value)], np.int32)
        ((number, version, fields),) = Frames(self.codec, value, places)
        if isinstance(fields, bytes):
            return TopicRecord(number, self.name(number), version, None, None, fields)
        return TopicRecord(number, self.name(number), version, None, fields)

    def parse_keyed(self, key: bytes, value: bytes | None) -> TopicRecord:
        """Parse a record with a key; bytes after the last field are ignored, as in Kafka.

        Raises `CorruptionError`, with the position in the key or value, if a field is incomplete.
        """
        number = _int16(key, "record type")
        key_codec = self.codec(number, None)
        if key_codec is None:
            return TopicRecord(number, None, None, None, None, key[2:])
        key_fields, _ = key_codec.parse(key, 2)
        name = self.name(number)
        if value is None:
            return TopicRecord(number, name, None, key_fields, None)
        version = _int16(value, "version")
        codec = self.codec(number, version)
        if codec is None:
            return TopicRecord(number, name, version, key_fields, None, value[2:])
        fields, _ = codec.parse(value, 2)
        return TopicRecord(number, name, version, key_fields, fields)


def _int16(data: bytes, name: str) -> int:
    """Load the first two bytes."""
    if len(data) < 2:
        raise CorruptionError(f"the bytes end in {name}", position=0)
    return int.from_bytes(data[:2], "big", signed=True)
