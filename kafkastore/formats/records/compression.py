"""Compress record batches as Kafka's own writers do.

gzip
    One member. Without a level, ISA-L compresses: several times as fast as zlib's level 6, which is
    Kafka's default, and about a tenth larger. With a level, zlib compresses.
snappy
    Blocks of 32 KiB in the framing of xerial's ``snappy-java``; it has no levels.
lz4
    A frame of independent blocks of 64 KiB, without checksums and without the content size: brokers
    refuse blocks that refer to earlier ones. For messages of magic 0 the frame header has the wrong
    checksum that brokers before 0.10 expect (KAFKA-3160). Without a level, the fast compressor is
    used; from level 3 on, the high-compression one.
zstd
    One frame with its content size, level 3 by default; only for record batches of magic 2.

Source: Kafka 2.4.0 ``CompressionType``, ``KafkaLZ4BlockOutputStream``; KIP-57, KIP-110; levels as
in KIP-390.
"""
from __future__ import annotations

# The libraries are imported where they are used: reading needs none of them for usual data.
import enum
import zlib

from kafkastore.errors import ArgumentValueError

XERIAL_MAGIC = b"\x82SNAPPY\x00"
#: Two version numbers: of xerial's format, and the oldest that can read it.
XERIAL_HEADER = XERIAL_MAGIC + (1).to_bytes(4, "big") * 2
XERIAL_BLOCK_SIZE = 32 * 1024
LZ4_MAGIC_SIZE = 4


class Codec(enum.IntEnum):
    """Bits 0 to 2 of a batch's attributes: Kafka's ``CompressionType`` ids."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


#: Kafka's ``compression.<codec>.level``, inclusive; codecs without levels are not listed.
COMPRESSION_LEVELS = {Codec.GZIP: (1, 9), Codec.LZ4: (1, 17), Codec.ZSTD: (-131072, 22)}
DEFAULT_ZSTD_LEVEL = 3

_LARGEST_LZ4_LEVEL = 16  # of the library; levels above 12 are all the same
_GZIP_WINDOW = 31  # for zlib: a gzip header and the largest window


def check_codec(codec: int, magic: int, compression_level: int | None) -> None:
    """Raise `ArgumentValueError` for a codec or level that is not supported.

    The magic must allow the codec, and the codec the level.
    """
    try:
        codec = Codec(codec)
    except ValueError:
        raise ArgumentValueError("codec", f"one of {', '.join(map(str, Codec))}", codec) from None
    if codec is Codec.ZSTD and magic < 2:
        raise ArgumentValueError("codec", f"one that magic {magic} supports", codec.name.lower())
    if compression_level is None:
        return
    if codec not in COMPRESSION_LEVELS:
        raise ArgumentValueError(
            "compression_level", f"None for codec {codec.name.lower()}", compression_level
        )
    least, most = COMPRESSION_LEVELS[codec]
    if not least <= compression_level <= most:
        raise ArgumentValueError(
            "compression_level",
            f"from {least} to {most} for codec {codec.name.lower()}",
            compression_level,
        )


def compress(
    codec: int,
    data: bytes | memoryview,
    *,
    magic: int,
    compression_level: int | None = None,
) -> bytes:
    """Compress records: the bytes after a batch's header, or a message set.

    `codec` must not be ``NONE``. Magic 0 gets the old lz4 framing; only magic 2 allows zstd. The
    default level is Kafka's, except for gzip (see above). Raises as `check_codec`.
    """
    check_codec(codec, magic, compression_level)
    if codec == Codec.GZIP:
        return _gzip(data, compression_level)
    if codec == Codec.SNAPPY:
        return _snappy(data)
    if codec == Codec.LZ4:
        frame = _lz4(data, compression_level)
        return with_old_header_checksum(frame) if magic == 0 else frame
    if codec == Codec.ZSTD:
        import zstandard

        level = DEFAULT_ZSTD_LEVEL if compression_level is None else compression_level
        return zstandard.ZstdCompressor(level).compress(data)
    raise ArgumentValueError("codec", "one that compresses", Codec.NONE.name.lower())


def with_old_header_checksum(frame: bytes) -> bytes:
    """Return an lz4 frame with the wrong header checksum of writers before 0.10.

    That checksum also covers the magic number. The frame's header must have neither a content size
    nor a dictionary.
    """
    import xxhash

    checksum_at = LZ4_MAGIC_SIZE + 2
    checksum = xxhash.xxh32_intdigest(frame[:checksum_at]) >> 8 & 0xFF
    return frame[:checksum_at] + bytes([checksum]) + frame[checksum_at + 1 :]


def _gzip(data: bytes | memoryview, level: int | None) -> bytes:
    """Compress into one member without a time: equal records give equal bytes."""
    if level is None:
        from isal import igzip_lib

        return igzip_lib.compress(
            data, igzip_lib.ISAL_BEST_COMPRESSION, flag=igzip_lib.COMP_GZIP
        )
    return zlib.compress(data, level, wbits=_GZIP_WINDOW)


def _snappy(data: bytes | memoryview) -> bytes:
    """Compress block by block, each after its length."""
    import cramjam

    pieces = [XERIAL_HEADER]
    for at in range(0, len(data), XERIAL_BLOCK_SIZE):
        block = bytes(cramjam.snappy.compress_raw(data[at : at + XERIAL_BLOCK_SIZE]))
        pieces += (len(block).to_bytes(4, "big"), block)
    return b"".join(pieces)


def _lz4(data: bytes | memoryview, level: int | None) -> bytes:
    """Compress to the part of the frame format that Kafka's own reader supports."""
    import lz4.frame

    return bytes(
        lz4.frame.compress(
            data,
            compression_level=min(level or 0, _LARGEST_LZ4_LEVEL),
            block_size=lz4.frame.BLOCKSIZE_MAX64KB,
            block_linked=False,
            store_size=False,
        )
    )
