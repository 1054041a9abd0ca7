"""Decompression of record batches, bounded.

What each codec's bytes look like is not one fact but a small history:

gzip
    One or more members, as Java's ``GZIPInputStream`` reads them.
snappy
    Blocks in the framing of xerial's ``snappy-java`` (a 16-byte header, then lengths and blocks),
    or one raw block, as some clients wrote it.
lz4
    The LZ4 frame format.  In messages of magic 0 the frame header's checksum byte was computed over
    the frame's magic number too; brokers of that time wrote and wanted it so, and later ones
    read these messages without looking at it.
zstd
    One or more frames; record batches of magic 2 only.

Source: Kafka 2.4.0 ``CompressionType``, ``KafkaLZ4BlockInputStream``; KIP-57.
"""
from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Protocol, cast

import cramjam
import lz4.frame
import xxhash
import zstandard
from isal import igzip_lib

from kafkastore.errors import CorruptBatchError, UnsupportedFormatError

#: What one batch may grow to by default; brokers refuse batches above 1 MB unless told otherwise.
MAX_DECOMPRESSED_BYTES = 256 * 1024 * 1024

XERIAL_MAGIC = b"\x82SNAPPY\x00"
XERIAL_HEADER_SIZE = len(XERIAL_MAGIC) + 4 + 4
LZ4_MAGIC_SIZE = 4
LZ4_CONTENT_SIZE_FLAG = 0x08
LZ4_DICTIONARY_FLAG = 0x01
SMALLEST_CHUNK = 64 * 1024

DECOMPRESSION_ERRORS: tuple[type[Exception], ...] = (
    cast("type[Exception]", igzip_lib.error),  # its stubs say that it is an instance
    cramjam.DecompressionError,
    zstandard.ZstdError,
    RuntimeError,  # lz4
    EOFError,
)


class Codec(enum.IntEnum):
    """Bits 0 to 2 of a batch's attributes: Kafka's ``CompressionType`` ids."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class _Decompressor(Protocol):
    """What the stream decompressors of isal and lz4 share."""

    @property
    def eof(self) -> bool: ...
    @property
    def needs_input(self) -> bool: ...
    @property
    def unused_data(self) -> bytes | None: ...
    def decompress(self, data: bytes | memoryview, max_length: int = -1) -> bytes: ...


def decompress(
    codec: int,
    data: bytes | memoryview,
    *,
    magic: int,
    max_decompressed_bytes: int = MAX_DECOMPRESSED_BYTES,
) -> bytes:
    """Decompress the records of a batch.

    Parameters
    ----------
    codec : int
        Bits 0 to 2 of the batch's attributes.
    data : bytes-like
        The compressed bytes: behind the header of a record batch, or a wrapper message's value.
    magic : int
        Of the batch; 0 has the old lz4 framing, and only 2 may have zstd.
    max_decompressed_bytes : int
        Stop and raise where the result would be larger.

    Returns
    -------
    bytes
        The records.

    Raises
    ------
    CorruptBatchError
        If the bytes are not what the codec writes, or too many come out.
    UnsupportedFormatError
        If the codec is not known for this magic.
    """
    try:
        if codec == Codec.GZIP:
            return _stream(_open_gzip, data, max_decompressed_bytes)
        if codec == Codec.SNAPPY:
            return _snappy(bytes(data), max_decompressed_bytes)
        if codec == Codec.LZ4:
            frame = with_right_header_checksum(bytes(data)) if magic == 0 else data
            return _stream(lz4.frame.LZ4FrameDecompressor, frame, max_decompressed_bytes)
        if codec == Codec.ZSTD and magic >= 2:
            return _zstd(data, max_decompressed_bytes)
    except DECOMPRESSION_ERRORS as error:
        name = Codec(codec).name.lower()
        raise CorruptBatchError(f"{name} records can't be decompressed ({error})") from error
    raise UnsupportedFormatError(f"codec {codec} is not known for records of magic {magic}")


def with_right_header_checksum(frame: bytes) -> bytes:
    """Return an lz4 frame with the header checksum that its standard asks for.

    Parameters
    ----------
    frame : bytes
        A frame as messages of magic 0 have it.

    Raises
    ------
    CorruptBatchError
        If the frame ends within its header.
    """
    if len(frame) < LZ4_MAGIC_SIZE + 3:
        raise CorruptBatchError(f"an lz4 frame of {len(frame)} bytes has no whole header")
    flags = frame[LZ4_MAGIC_SIZE]
    checksum_at = LZ4_MAGIC_SIZE + 2
    checksum_at += 8 if flags & LZ4_CONTENT_SIZE_FLAG else 0
    checksum_at += 4 if flags & LZ4_DICTIONARY_FLAG else 0
    descriptor = frame[LZ4_MAGIC_SIZE:checksum_at]
    checksum = xxhash.xxh32_intdigest(descriptor) >> 8 & 0xFF
    return frame[:checksum_at] + bytes([checksum]) + frame[checksum_at + 1 :]


def _open_gzip() -> _Decompressor:
    """Open a decompressor of one gzip member."""
    return igzip_lib.IgzipDecompressor(flag=igzip_lib.DECOMP_GZIP)


def _stream(
    open_decompressor: Callable[[], _Decompressor], data: bytes | memoryview, limit: int
) -> bytes:
    """Decompress members or frames to their end, in pieces, so that a bomb is seen early."""
    pieces: list[bytes] = []
    total = 0
    chunk = max(SMALLEST_CHUNK, 4 * len(data))
    left: bytes | memoryview = data
    while len(left) or not pieces:
        decompressor = open_decompressor()
        while not decompressor.eof:
            piece = decompressor.decompress(left, max_length=min(chunk, limit - total + 1))
            left = b""
            total += len(piece)
            if total > limit:
                raise _too_many(limit)
            if not piece and not decompressor.eof and decompressor.needs_input:
                raise EOFError("the compressed bytes end too early")
            pieces.append(piece)
        left = decompressor.unused_data or b""
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _snappy(data: bytes, limit: int) -> bytes:
    """Decompress xerial's framing, or one raw block."""
    if not data.startswith(XERIAL_MAGIC):
        return _snappy_block(data, limit)
    pieces: list[bytes] = []
    total, at = 0, XERIAL_HEADER_SIZE
    while at < len(data):
        size = int.from_bytes(data[at : at + 4], "big", signed=True)
        at += 4
        if at > len(data):
            raise EOFError("the compressed bytes end within the length of a block")
        if not 0 <= size <= len(data) - at:
            raise EOFError(f"a snappy block of {size} bytes runs past the end")
        pieces.append(_snappy_block(data[at : at + size], limit, total))
        total += len(pieces[-1])
        at += size
    return b"".join(pieces)


def _snappy_block(block: bytes, limit: int, before: int = 0) -> bytes:
    """Decompress one raw block, whose first bytes say how much comes out."""
    if before + cramjam.snappy.decompress_raw_len(block) > limit:
        raise _too_many(limit)
    return bytes(cramjam.snappy.decompress_raw(block))


def _zstd(data: bytes | memoryview, limit: int) -> bytes:
    """Decompress zstd frames, in pieces: ``read`` sets aside as much memory as it is asked for."""
    pieces: list[bytes] = []
    total = 0
    chunk = max(SMALLEST_CHUNK, 4 * len(data))
    with zstandard.ZstdDecompressor().stream_reader(data, read_across_frames=True) as reader:
        while piece := reader.read(min(chunk, limit - total + 1)):
            total += len(piece)
            if total > limit:
                raise _too_many(limit)
            pieces.append(piece)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _too_many(limit: int) -> CorruptBatchError:
    return CorruptBatchError(
        f"records decompress to more than {limit} bytes (max_decompressed_bytes)"
    )
