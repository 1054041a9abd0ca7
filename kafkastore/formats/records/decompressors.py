"""Decompress what the decoders in C do not: by the libraries of each codec.

The data of unusual writers, and corrupt ones; see `formats.records.decompression`.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, cast

import cramjam
import lz4.frame
import zstandard
from isal import igzip_lib

from kafkastore.errors import DecompressedSizeError
from kafkastore.formats.records.compression import XERIAL_MAGIC, Codec

XERIAL_HEADER_SIZE = len(XERIAL_MAGIC) + 4 + 4
#: Snappy's best ratio: a copy element of 3 bytes gives at most 64.
SNAPPY_LARGEST_RATIO = 22
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
ZSTD_CHECKSUM_FLAG = 0x04
SMALLEST_CHUNK = 64 * 1024

#: What the libraries raise.
ERRORS: tuple[type[Exception], ...] = (
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


READERS: dict[int, Callable[[memoryview, int], bytes]] = {
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
