"""A writer of record batches and message sets in plain Python, a field a line.

A `Batch` says what is in it; `data` are its bytes, `records` what a reader must get from them. Made
apart from the package's code, from Kafka 2.4.0 ``DefaultRecordBatch``, ``DefaultRecord``,
``LegacyRecord``, ``AbstractLegacyRecordBatch``; only the compression libraries are the same.
"""

from __future__ import annotations

import gzip
import struct
import zlib
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

import cramjam
import lz4.frame
import xxhash
import zstandard

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
CODEC_NAMES = ("none", "gzip", "snappy", "lz4", "zstd")
CODECS_OF = {0: (NONE, GZIP, SNAPPY, LZ4), 1: (NONE, GZIP, SNAPPY, LZ4), 2: range(5)}

FRAME = struct.Struct(">qi")
BATCH_AFTER_CRC = struct.Struct(">hiqqqhii")

LOG_APPEND_TIME, TRANSACTIONAL, CONTROL, DELETE_HORIZON = 0x08, 0x10, 0x20, 0x40
XERIAL_HEADER = b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1)
XERIAL_BLOCK = 32 * 1024


class Row(NamedTuple):
    """One record as its producer gave it; `offset` is absolute."""

    offset: int
    timestamp: int
    key: bytes | None = None
    value: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()


@dataclass(frozen=True)
class Batch:
    """A record batch (magic 2), a message, or a wrapper with its messages (magic 0 and 1).

    What is None takes the value that a broker would give it.
    """

    rows: tuple[Row, ...]
    magic: int = 2
    codec: int = NONE
    append_time: int | None = None
    first_offset: int | None = None
    last_offset_kept: int | None = None
    stated_max_timestamp: int | None = None
    stated_count: int | None = None
    leader_epoch: int = 0
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1
    is_transactional: bool = False
    is_control: bool = False
    delete_horizon: int | None = None
    inner_magic: int | None = None
    wrapper_offset: int | None = None
    inner_base: int | None = None
    is_raw_snappy: bool = False

    @property
    def is_wrapper(self):
        return self.magic < 2 and self.codec != NONE

    @property
    def base_offset(self):
        return self.rows[0].offset if self.first_offset is None else self.first_offset

    @property
    def last_offset(self):
        if self.wrapper_offset is not None:
            return self.wrapper_offset
        return self.rows[-1].offset if self.last_offset_kept is None else self.last_offset_kept

    @property
    def max_timestamp(self):
        if self.magic == 0:
            return -1
        if self.append_time is not None:
            return self.append_time
        if self.stated_max_timestamp is not None:
            return self.stated_max_timestamp
        return max((row.timestamp for row in self.rows), default=-1)

    @property
    def attributes(self):
        flags = self.codec
        flags |= LOG_APPEND_TIME if self.append_time is not None and self.magic else 0
        flags |= TRANSACTIONAL if self.is_transactional else 0
        flags |= CONTROL if self.is_control else 0
        return flags | (DELETE_HORIZON if self.delete_horizon is not None else 0)

    @property
    def records(self):
        """The expected records: tuples as `kafkastore.Record`."""
        kind = -1 if self.magic == 0 else int(self.append_time is not None)
        epoch = self.leader_epoch if self.magic == 2 and self.leader_epoch >= 0 else None
        return [
            (row.offset, self._seen_timestamp(row), kind, row.key, row.value, row.headers, epoch)
            for row in self.rows
        ]

    def _seen_timestamp(self, row):
        inner_magic = self.magic if self.inner_magic is None else self.inner_magic
        if inner_magic == 0:
            return -1
        return row.timestamp if self.append_time is None else self.append_time

    @property
    def data(self):
        if self.magic == 2:
            return self._record_batch()
        if self.is_wrapper:
            return self._wrapper()
        (row,) = self.rows
        kept = row.timestamp if self.append_time is None else self.append_time
        return message(self.magic, row.offset, kept, row.key, row.value, self.attributes)

    def _record_batch(self):
        base_timestamp = self.delete_horizon
        if base_timestamp is None:
            base_timestamp = self.rows[0].timestamp if self.rows else -1
        records = b"".join(
            record(row, row.offset - self.base_offset, wrapped(row.timestamp - base_timestamp))
            for row in self.rows
        )
        if self.codec != NONE and self.rows:
            records = compress(self.codec, records, is_raw_snappy=self.is_raw_snappy)
        count = len(self.rows) if self.stated_count is None else self.stated_count
        guarded = (
            BATCH_AFTER_CRC.pack(
                self.attributes,
                self.last_offset - self.base_offset,
                base_timestamp,
                self.max_timestamp,
                self.producer_id,
                self.producer_epoch,
                self.base_sequence,
                count,
            )
            + records
        )
        after_frame = struct.pack(">ibI", self.leader_epoch, 2, crc32c(guarded)) + guarded
        return FRAME.pack(self.base_offset, len(after_frame)) + after_frame

    def _wrapper(self):
        inner_magic = self.magic if self.inner_magic is None else self.inner_magic
        base = 0
        if self.magic == 1 and self.wrapper_offset != 0:
            base = self.rows[0].offset if self.inner_base is None else self.inner_base
        inner = b"".join(
            message(inner_magic, row.offset - base, row.timestamp, row.key, row.value)
            for row in self.rows
        )
        value = compress(self.codec, inner, magic=self.magic, is_raw_snappy=self.is_raw_snappy)
        return message(
            self.magic, self.last_offset, self.max_timestamp, None, value, self.attributes
        )

    def with_offset(self, offset):
        """The same batch, moved so that it begins at an offset."""
        by = offset - self.base_offset
        moved = {
            name: getattr(self, name) + by
            for name in ("first_offset", "last_offset_kept", "inner_base")
            if getattr(self, name) is not None
        }
        rows = tuple(row._replace(offset=row.offset + by) for row in self.rows)
        return replace(self, rows=rows, **moved)


def emptied(base_offset, last_offset, max_timestamp, **fields):
    """A record batch that compaction left without records."""
    return Batch(
        (),
        first_offset=base_offset,
        last_offset_kept=last_offset,
        stated_max_timestamp=max_timestamp,
        **fields,
    )


def marker(offset, timestamp, *, is_commit=True, producer_id=1, **fields):
    """A transaction marker: a control batch with one record."""
    row = Row(offset, timestamp, struct.pack(">hh", 0, is_commit), struct.pack(">hi", 0, 0))
    return Batch(
        (row,),
        is_control=True,
        is_transactional=True,
        producer_id=producer_id,
        producer_epoch=0,
        **fields,
    )


def message(magic, offset, timestamp, key, value, attributes=0):
    """A message of magic 0 or 1, frame included."""
    guarded = struct.pack(">bb", magic, attributes)
    if magic == 1:
        guarded += struct.pack(">q", timestamp)
    guarded += sized(key) + sized(value)
    return FRAME.pack(offset, 4 + len(guarded)) + struct.pack(">I", zlib.crc32(guarded)) + guarded


def record(row, offset_delta, timestamp_delta):
    """A record of a record batch, its length in front."""
    body = b"\0" + varint(timestamp_delta) + varint(offset_delta)
    body += varint_sized(row.key) + varint_sized(row.value) + varint(len(row.headers))
    for name, value in row.headers:
        body += varint_sized(name.encode("utf-8", "surrogateescape")) + varint_sized(value)
    return varint(len(body)) + body


def wrapped(value):
    """Wrap like Java's long."""
    return (value + 2**63) % 2**64 - 2**63


def sized(data):
    return struct.pack(">i", -1) if data is None else struct.pack(">i", len(data)) + data


def varint_sized(data):
    return varint(-1) if data is None else varint(len(data)) + data


def varint(value):
    """Zig-zag, seven bits a byte, lowest first; for varints and varlongs."""
    raw = value * 2 if value >= 0 else -value * 2 - 1
    encoded = bytearray()
    while raw > 127:
        encoded.append(raw % 128 + 128)
        raw //= 128
    encoded.append(raw)
    return bytes(encoded)


def compress(codec, data, *, magic=2, is_raw_snappy=False):
    """Compress as a producer of that magic does."""
    if codec == GZIP:
        return gzip.compress(data, 6, mtime=0)
    if codec == SNAPPY:
        return raw_snappy(data) if is_raw_snappy else xerial_snappy(data)
    if codec == LZ4:
        frame = lz4.frame.compress(data, store_size=False)
        return with_old_header_checksum(frame) if magic == 0 else frame
    return zstandard.ZstdCompressor(write_content_size=False).compress(data)


def raw_snappy(data):
    return bytes(cramjam.snappy.compress_raw(data))


def xerial_snappy(data, block_size=XERIAL_BLOCK):
    blocks = (raw_snappy(data[at : at + block_size]) for at in range(0, len(data), block_size))
    return XERIAL_HEADER + b"".join(sized(block) for block in blocks)


def with_old_header_checksum(frame):
    """The lz4 frame as Kafka 0.8 and 0.9 wrote it: the magic number was hashed too (KAFKA-3160)."""
    checksum_at = 6 + (8 if frame[4] & 0x08 else 0)
    checksum = xxhash.xxh32_intdigest(frame[:checksum_at]) >> 8 & 0xFF
    return frame[:checksum_at] + bytes([checksum]) + frame[checksum_at + 1 :]


@lru_cache(1024)
def crc32c(data, checksum=0):
    """CRC-32C, bit by bit for the table's 256 entries and byte by byte for the data."""
    checksum ^= 0xFFFFFFFF
    for byte in data:
        checksum = checksum >> 8 ^ _CRC32C_OF_BYTE[(checksum ^ byte) & 255]
    return checksum ^ 0xFFFFFFFF


def _crc32c_of_byte(byte):
    for _ in range(8):
        byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
    return byte


_CRC32C_OF_BYTE = [_crc32c_of_byte(byte) for byte in range(256)]


def with_right_crc(batch):
    """The bytes of one batch with the checksum that fits them."""
    if batch[16] == 2:
        return batch[:17] + struct.pack(">I", crc32c(batch[21:])) + batch[21:]
    return batch[:12] + struct.pack(">I", zlib.crc32(batch[16:])) + batch[16:]
