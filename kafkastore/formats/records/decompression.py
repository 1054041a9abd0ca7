"""Decompress record batches, with a limit on the size.

The bytes of each codec have changed over time:

gzip
    One or more members, as Java's ``GZIPInputStream`` reads them.
snappy
    Blocks in the framing of xerial's ``snappy-java`` (a 16-byte header, then lengths and blocks),
    or one raw block, as some clients wrote it.
lz4
    The LZ4 frame format. In messages of magic 0 the checksum byte of the frame header also covers
    the frame's magic number. Brokers of that time wrote and required it; later brokers ignore it in
    these messages.
zstd
    One or more frames; only for record batches of magic 2.

Source: Kafka 2.4.0 ``CompressionType``, ``KafkaLZ4BlockInputStream``; KIP-57.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, cast

import cramjam
import lz4.frame
import xxhash
import zstandard
from isal import igzip_lib

from kafkastore.errors import (
    DecompressedSizeError,
    DecompressionError,
    UnsupportedFormatError,
)
from kafkastore.formats.records.compression import LZ4_MAGIC_SIZE, XERIAL_MAGIC, Codec
from kafkastore.formats.records.decoders import decompress_usual

#: Default size limit of a decompressed batch; brokers refuse batches above 1 MB by default.
MAX_DECOMPRESSED_BYTES = 256 * 1024 * 1024

XERIAL_HEADER_SIZE = len(XERIAL_MAGIC) + 4 + 4
LZ4_CONTENT_SIZE_FLAG = 0x08
LZ4_DICTIONARY_FLAG = 0x01
#: Snappy's best ratio: a copy element of 3 bytes gives at most 64.
SNAPPY_LARGEST_RATIO = 22
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
ZSTD_CHECKSUM_FLAG = 0x04
SMALLEST_CHUNK = 64 * 1024

DECOMPRESSION_ERRORS: tuple[type[Exception], ...] = (
    cast("type[Exception]", igzip_lib.error),  # its stubs declare it as an instance
    cramjam.DecompressionError,
    zstandard.ZstdError,
    RuntimeError,  # lz4
    EOFError,
)


class _Decompressor(Protocol):
    """The common interface of the stream decompressors of isal and lz4."""

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
    """Decompress the records of one batch.

    Parameters are as for `compress`. Raises `DecompressionError`, `DecompressedSizeError` above
    `max_decompressed_bytes`, or `UnsupportedFormatError` if the magic does not have the codec.
    """
    if codec not in _READERS or (codec == Codec.ZSTD and magic < 2):
        raise UnsupportedFormatError(f"magic {magic} does not support codec {codec}")
    if codec == Codec.LZ4 and magic == 0:
        data = with_right_header_checksum(bytes(data))
    usual = decompress_usual(codec, data, max_decompressed_bytes)
    if usual is not None:
        return usual
    try:
        return _READERS[codec](memoryview(data), max_decompressed_bytes)
    except DECOMPRESSION_ERRORS as error:
        name = Codec(codec).name.lower()
        raise DecompressionError(f"{name} records can't be decompressed ({error})") from error


def with_right_header_checksum(frame: bytes) -> bytes:
    """Return an lz4 frame of a message of magic 0 with the standard header checksum.

    Raises `DecompressionError` if the frame ends within its header.
    """
    if len(frame) < LZ4_MAGIC_SIZE + 3:
        raise DecompressionError(f"lz4 frame ends within its header, after {len(frame)} bytes")
    flags = frame[LZ4_MAGIC_SIZE]
    checksum_at = LZ4_MAGIC_SIZE + 2
    checksum_at += 8 if flags & LZ4_CONTENT_SIZE_FLAG else 0
    checksum_at += 4 if flags & LZ4_DICTIONARY_FLAG else 0
    descriptor = frame[LZ4_MAGIC_SIZE:checksum_at]
    checksum = xxhash.xxh32_intdigest(descriptor) >> 8 & 0xFF
    return frame[:checksum_at] + bytes([checksum]) + frame[checksum_at + 1 :]


def _gzip(data: memoryview, limit: int) -> bytes:
    """Decompress one member after the other."""
    return _stream(lambda: igzip_lib.IgzipDecompressor(flag=igzip_lib.DECOMP_GZIP), data, limit)


def _snappy(data: memoryview, limit: int) -> bytes:
    """Decompress xerial's framing, or one raw block."""
    if data[: len(XERIAL_MAGIC)] != XERIAL_MAGIC:
        return _snappy_block(data, limit)
    pieces: list[bytes] = []
    at = XERIAL_HEADER_SIZE
    while at < len(data):
        size = int.from_bytes(data[at : at + 4], "big", signed=True)
        at += 4
        if at > len(data):
            raise EOFError("truncated in the length of a block")
        if not 0 <= size <= len(data) - at:
            raise EOFError(f"impossible length {size} of a snappy block")
        pieces.append(_snappy_block(data[at : at + size], limit))
        limit -= len(pieces[-1])
        at += size
    return b"".join(pieces)


def _snappy_block(block: memoryview, limit: int) -> bytes:
    """Decompress one raw block; its first bytes give the decompressed size."""
    size = cramjam.snappy.decompress_raw_len(block)
    if size > limit:
        raise _too_many(limit)
    if size > SNAPPY_LARGEST_RATIO * len(block):
        raise EOFError(f"impossible decompressed size {size} of a snappy block")
    return bytes(cramjam.snappy.decompress_raw(block))


def _lz4(data: memoryview, limit: int) -> bytes:
    """Decompress one frame after the other."""
    return _stream(lz4.frame.LZ4FrameDecompressor, data, limit)


def _zstd(data: memoryview, limit: int) -> bytes:
    """Decompress one frame after the other; ``read`` allocates what is requested."""
    _check_zstd_end(data)
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


_READERS: dict[int, Callable[[memoryview, int], bytes]] = {
    Codec.GZIP: _gzip,
    Codec.SNAPPY: _snappy,
    Codec.LZ4: _lz4,
    Codec.ZSTD: _zstd,
}


def _stream(
    open_decompressor: Callable[[], _Decompressor], data: bytes | memoryview, limit: int
) -> bytes:
    """Decompress members or frames in pieces, so that a bomb is detected early."""
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
                raise EOFError("truncated")
            pieces.append(piece)
        left = decompressor.unused_data or b""
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _check_zstd_end(data: memoryview) -> None:
    """Raise if the last frame is truncated: no call of the zstd library reports that."""
    at = 0
    while data[at : at + len(ZSTD_MAGIC)] == ZSTD_MAGIC:
        has_checksum = data[at + len(ZSTD_MAGIC)] & ZSTD_CHECKSUM_FLAG if len(data) > at + 4 else 0
        at += zstandard.frame_header_size(data[at:])
        is_last = False
        while not is_last:
            # Bit 0: last block; bits 1 and 2: type, 1 is a repeated byte; then its size.
            block = int.from_bytes(data[at : at + 3], "little")
            is_last = bool(block & 1) or at >= len(data)
            at += 3 + (1 if block >> 1 & 3 == 1 else block >> 3)
        at += 4 if has_checksum else 0
        if at > len(data):
            raise EOFError("truncated")
    rest = bytes(data[at : at + len(ZSTD_MAGIC)])
    if len(rest) < len(ZSTD_MAGIC) and ZSTD_MAGIC.startswith(rest) and (rest or at == 0):
        raise EOFError("truncated")


def _too_many(limit: int) -> DecompressedSizeError:
    return DecompressedSizeError(
        f"records decompress to more than {limit} bytes (max_decompressed_bytes)"
    )
