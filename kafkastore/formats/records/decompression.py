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

import contextlib
import struct
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

#: Default size limit of a decompressed batch; brokers refuse batches above 1 MB by default.
MAX_DECOMPRESSED_BYTES = 256 * 1024 * 1024

#: Codecs whose libraries decompress into given memory: see ``Decompressor.room``.
CODECS_WITH_ROOM = frozenset((Codec.SNAPPY, Codec.LZ4))

XERIAL_HEADER_SIZE = len(XERIAL_MAGIC) + 4 + 4
LZ4_CONTENT_SIZE_FLAG = 0x08
LZ4_DICTIONARY_FLAG = 0x01
LZ4_HEADER_SIZE = LZ4_MAGIC_SIZE + 3
#: Version 1, independent blocks, no checksums or sizes: ``KafkaLZ4BlockOutputStream``.
LZ4_KAFKA_FLAGS = 0x60
#: The headers of these frames, and the size of their blocks.
LZ4_KAFKA_HEADERS = {
    struct.pack(
        "<IBBB", 0x184D2204, LZ4_KAFKA_FLAGS, descriptor,
        xxhash.xxh32_intdigest(bytes([LZ4_KAFKA_FLAGS, descriptor])) >> 8 & 0xFF,
    ): size
    for descriptor, size in (
        (0x40, 64 * 1024), (0x50, 256 * 1024), (0x60, 1024 * 1024), (0x70, 4096 * 1024),
    )
}
LITTLE_UINT32 = struct.Struct("<I")
LZ4_STORED_FLAG = 0x80000000
LZ4_LARGEST_RATIO = 255
#: Snappy's best ratio: a copy element of 3 bytes gives at most 64.
SNAPPY_LARGEST_RATIO = 22
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
ZSTD_CHECKSUM_FLAG = 0x04
SMALLEST_CHUNK = 64 * 1024
#: Memory for a frame without a content size.
LARGEST_AT_ONCE = 4 * 1024 * 1024

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
    """Decompress the records of one batch; see `Decompressor.decompress`."""
    return bytes(
        Decompressor().decompress(
            codec, data, magic=magic, max_decompressed_bytes=max_decompressed_bytes
        )
    )


class Decompressor:
    """Decompress batch after batch into the same memory, for one thread at a time.

    `room` is the memory for lz4 and snappy blocks; it is replaced if it is too small. A caller may
    set it to its own memory before a batch.
    """

    def __init__(self) -> None:
        self.room = memoryview(bytearray())
        self._zstd = zstandard.ZstdDecompressor()
        self._zstd_size = SMALLEST_CHUNK

    def decompress(
        self,
        codec: int,
        data: bytes | memoryview,
        *,
        magic: int,
        max_decompressed_bytes: int = MAX_DECOMPRESSED_BYTES,
    ) -> bytes | memoryview:
        """Decompress the records of a batch; the result is valid until the next call.

        Parameters are as for `compress`. Raises `DecompressionError`, `DecompressedSizeError` above
        `max_decompressed_bytes`, or `UnsupportedFormatError` if the magic does not have the codec.
        """
        try:
            if codec == Codec.GZIP:
                return _stream(_open_gzip, data, max_decompressed_bytes)
            if codec == Codec.SNAPPY:
                return self._decompress_snappy(memoryview(data), max_decompressed_bytes)
            if codec == Codec.LZ4:
                return self._decompress_lz4(memoryview(data), magic, max_decompressed_bytes)
            if codec == Codec.ZSTD and magic >= 2:
                return self._decompress_zstd(data, max_decompressed_bytes)
        except DECOMPRESSION_ERRORS as error:
            name = Codec(codec).name.lower()
            raise DecompressionError(f"{name} records can't be decompressed ({error})") from error
        raise UnsupportedFormatError(f"magic {magic} does not support codec {codec}")

    def _reserve(self, size: int, used: int) -> memoryview:
        """Grow the room to at least `size` bytes; the used bytes stay."""
        if len(self.room) < size:
            larger = memoryview(bytearray(max(size, 2 * len(self.room))))
            larger[:used] = self.room[:used]
            self.room = larger
        return self.room

    def _decompress_snappy(self, data: memoryview, limit: int) -> memoryview:
        """Decompress xerial's framing, or one raw block."""
        if data[: len(XERIAL_MAGIC)] != XERIAL_MAGIC:
            size = self._append_snappy_block(data, 0, limit)
            return self.room[:size]
        total, at = 0, XERIAL_HEADER_SIZE
        while at < len(data):
            size = int.from_bytes(data[at : at + 4], "big", signed=True)
            at += 4
            if at > len(data):
                raise EOFError("truncated in the length of a block")
            if not 0 <= size <= len(data) - at:
                raise EOFError(f"impossible length {size} of a snappy block")
            total = self._append_snappy_block(data[at : at + size], total, limit)
            at += size
        return self.room[:total]

    def _append_snappy_block(self, block: memoryview, total: int, limit: int) -> int:
        """Decompress one raw block; its first bytes give the decompressed size."""
        end = total + cramjam.snappy.decompress_raw_len(block)
        if end > limit:
            raise _too_many(limit)
        if end - total > SNAPPY_LARGEST_RATIO * len(block):
            raise EOFError(f"impossible decompressed size {end - total} of a snappy block")
        room = self._reserve(end, total)
        written: int = cramjam.snappy.decompress_raw_into(block, room[total:end])
        return total + written

    def _decompress_lz4(self, data: memoryview, magic: int, limit: int) -> bytes | memoryview:
        """Decompress a frame of Kafka's clients by blocks, any other as a stream."""
        frame = memoryview(with_right_header_checksum(bytes(data))) if magic == 0 else data
        block_size = LZ4_KAFKA_HEADERS.get(bytes(frame[:LZ4_HEADER_SIZE]))
        if block_size is not None:
            size = self._decompress_lz4_blocks(frame, block_size, limit)
            if size is not None:
                return self.room[:size]
        return _stream(lz4.frame.LZ4FrameDecompressor, frame, limit)

    def _decompress_lz4_blocks(self, data: memoryview, block_size: int, limit: int) -> int | None:
        """Decompress the independent blocks of a frame; None for any other frame."""
        total, at = 0, LZ4_HEADER_SIZE
        while at + 4 <= len(data):
            (size,) = LITTLE_UINT32.unpack_from(data, at)
            at += 4
            if size == 0:
                return total if at == len(data) else None
            is_stored, size = size & LZ4_STORED_FLAG, size & ~LZ4_STORED_FLAG
            if size > min(block_size, len(data) - at) or total + block_size > limit:
                return None
            block = data[at : at + size]
            if is_stored:
                self._reserve(total + size, total)[total : total + size] = block
                total += size
            else:
                most = min(block_size, LZ4_LARGEST_RATIO * size)
                into = self._reserve(total + most, total)[total : total + most]
                total += cramjam.lz4.decompress_block_into(block, into, most)
            at += size
        return None

    def _decompress_zstd(self, data: bytes | memoryview, limit: int) -> bytes:
        """Decompress one frame at once if about as large as those before, or in pieces."""
        if _is_one_zstd_frame(memoryview(data)):
            with contextlib.suppress(zstandard.ZstdError):
                if max(zstandard.frame_content_size(data), self._zstd_size) <= limit:
                    return self._zstd.decompress(data, max_output_size=self._zstd_size)
        decompressed = _stream_zstd(data, limit)
        self._zstd_size = max(self._zstd_size, min(2 * len(decompressed), LARGEST_AT_ONCE))
        return decompressed


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


def _open_gzip() -> _Decompressor:
    """Return a decompressor of one gzip member."""
    return igzip_lib.IgzipDecompressor(flag=igzip_lib.DECOMP_GZIP)


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


def _is_one_zstd_frame(data: memoryview) -> bool:
    """Return whether there is exactly one frame; raise if it is truncated.

    No call of the zstd library reports a truncated frame.
    """
    at = 0
    while data[at : at + len(ZSTD_MAGIC)] == ZSTD_MAGIC:
        has_checksum = data[at + len(ZSTD_MAGIC)] & ZSTD_CHECKSUM_FLAG if len(data) > at + 4 else 0
        start, at = at, at + zstandard.frame_header_size(data[at:])
        is_last = False
        while not is_last:
            # Bit 0: last block; bits 1 and 2: type, 1 is a repeated byte; then its size.
            block = int.from_bytes(data[at : at + 3], "little")
            is_last = bool(block & 1) or at >= len(data)
            at += 3 + (1 if block >> 1 & 3 == 1 else block >> 3)
        at += 4 if has_checksum else 0
        if at > len(data):
            raise EOFError("truncated")
        if start == 0 and at == len(data):
            return True
    rest = bytes(data[at : at + len(ZSTD_MAGIC)])
    if len(rest) < len(ZSTD_MAGIC) and ZSTD_MAGIC.startswith(rest) and (rest or at == 0):
        raise EOFError("truncated")
    return False


def _stream_zstd(data: bytes | memoryview, limit: int) -> bytes:
    """Decompress zstd frames in pieces: ``read`` allocates what is requested."""
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


def _too_many(limit: int) -> DecompressedSizeError:
    return DecompressedSizeError(
        f"records decompress to more than {limit} bytes (max_decompressed_bytes)"
    )
