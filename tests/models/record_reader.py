"""A reader of record batches and message sets in plain Python: slow, one field after the other.

Any breach of the format raises `Broken`. Made apart from the package's code, from Kafka 2.4.0
``FileLogInputStream``, ``DefaultRecord.readFrom``, and the deep iterator of
``AbstractLegacyRecordBatch``. Decompression is the package's own; it is tested by itself.
"""

from __future__ import annotations

import struct

from kafkastore.errors import KafkaStoreError
from kafkastore.formats.records.decompression import decompress


class Broken(Exception):
    """Bytes that are not a batch to any reader."""


class Fields:
    """Bytes read from their start on."""

    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, size):
        if size < 0 or size > len(self.data) - self.at:
            raise Broken(f"{size} bytes wanted at {self.at} of {len(self.data)}")
        self.at += size
        return self.data[self.at - size : self.at]

    def number(self, kind):
        return struct.unpack(">" + kind, self.take(struct.calcsize(kind)))[0]

    def varint(self, bits=32):
        raw = shift = 0
        while True:
            (byte,) = self.take(1)
            raw |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                break
            if shift >= 70:
                raise Broken("a varint of more than ten bytes")
        value = as_signed((raw & (1 << 64) - 1) >> 1 ^ -(raw & 1), 64)
        if value != as_signed(value, bits):
            raise Broken(f"a varint beyond {bits} bits")
        return value

    def sized(self):
        size = self.number("i")
        return None if size < 0 else self.take(size)

    def varint_sized(self):
        size = self.varint()
        return None if size < 0 else self.take(size)

    @property
    def is_done(self):
        return self.at == len(self.data)


def as_signed(value, bits):
    return (value + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1)


def split(log):
    """[(position, bytes of a complete batch)], and why it ends: "end" or "broken"."""
    batches, at = [], 0
    while at < len(log) - 17:
        size = int.from_bytes(log[at + 8 : at + 12], "big", signed=True)
        if size < 14:
            return batches, "broken"
        if at > len(log) - 12 - size:
            return batches, "end"
        magic = as_signed(log[at + 16], 8)
        if not 0 <= magic <= 2 or size < {0: 14, 1: 22, 2: 49}[magic]:
            return batches, "broken"
        batches.append((at, log[at : at + 12 + size]))
        at += 12 + size
    return batches, "end"


def read_records(batch):
    """The records of a complete batch, as `kafkastore.Record`; the checksum is not verified."""
    return _read_record_batch(batch) if batch[16] == 2 else _read_message(batch)


def _decompressed(codec, data, magic):
    try:
        return decompress(codec, data, magic=magic, max_decompressed_bytes=1 << 24)
    except KafkaStoreError as error:
        raise Broken(str(error)) from error


def _read_record_batch(batch):
    header = Fields(batch)
    base_offset, _, epoch, _, _, attributes = struct.unpack(">qiibIh", header.take(23))
    _, base_timestamp, max_timestamp = struct.unpack(">iqq", header.take(20))
    header.take(14)
    count = header.number("i")
    if count < 0:
        raise Broken("negative count")
    records = batch[61:]
    if attributes & 7:
        records = _decompressed(attributes & 7, records, 2) if count else b""
    fields, found = Fields(records), []
    for _ in range(count):
        body = Fields(fields.take(fields.varint()))
        body.take(1)
        timestamp = as_signed(base_timestamp + body.varint(64), 64)
        offset = as_signed(base_offset + body.varint(), 64)
        key, value = body.varint_sized(), body.varint_sized()
        header_count = body.varint()
        if header_count < 0:
            raise Broken("negative count of headers")
        headers = []
        for _ in range(header_count):
            name = body.varint_sized()
            if name is None:
                raise Broken("a header without name")
            headers.append((name.decode("utf-8", "surrogateescape"), body.varint_sized()))
        if attributes & 8:
            timestamp = max_timestamp
        kind = 1 if attributes & 8 else 0
        if not body.is_done:
            raise Broken("bytes after the last header")
        found.append(
            (offset, timestamp, kind, key, value, tuple(headers), epoch if epoch >= 0 else None)
        )
    if not fields.is_done:
        raise Broken("bytes after the last record")
    return found


def _read_message(batch):
    wrapper_offset, magic, attributes, timestamp, _, value = _message(Fields(batch))
    kind = -1 if magic == 0 else int(bool(attributes & 8))
    if not attributes & 7:
        return [_legacy_record(_message(Fields(batch)), 0, None, kind)]
    if value is None:
        raise Broken("a wrapper without value")
    fields, inner = Fields(_decompressed(attributes & 7, value, magic)), []
    while len(fields.data) - fields.at >= 12:
        size = as_signed(int.from_bytes(fields.data[fields.at + 8 : fields.at + 12], "big"), 32)
        if size < 14:
            raise Broken("a length that can't be")
        if size > len(fields.data) - fields.at - 12:
            break  # torn
        inner.append(_message(fields))
    if not inner:
        raise Broken("an empty message set")
    last_inner, base = inner[-1][0], 0
    if magic == 1 and wrapper_offset != 0:
        if wrapper_offset < last_inner:
            raise Broken("inner offset above the wrapper's")
        base = wrapper_offset - last_inner
    append_time = timestamp if magic == 1 and attributes & 8 else None
    if any(message[2] & 7 for message in inner):
        raise Broken("nested compression")
    return [_legacy_record(message, base, append_time, kind) for message in inner]


def _message(fields):
    offset, size = fields.number("q"), fields.number("i")
    body = Fields(fields.take(size))
    body.take(4)
    magic, attributes = body.number("B"), body.number("B")
    if magic > 1:
        raise Broken(f"magic {magic} in a message set")
    timestamp = body.number("q") if magic == 1 else -1
    return offset, magic, attributes, timestamp, body.sized(), body.sized()


def _legacy_record(message, base, append_time, kind):
    offset, magic, _, timestamp, key, value = message
    if magic and append_time is not None:
        timestamp = append_time
    return as_signed(base + offset, 64), timestamp, kind, key, value, (), None
