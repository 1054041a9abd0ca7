"""Compression of record batches, as Kafka's own writers do it.

gzip
    One member. Without a level by ISA-L: several times as fast as zlib's level 6, which is Kafka's
    default, and about a tenth larger. A level is zlib's.
snappy
    Blocks of 32 KiB in the framing of xerial's ``snappy-java``; it has no levels.
lz4
    A frame of independent blocks of 64 KiB, without checksums and without its content's size:
    brokers refuse blocks that refer to those before. For messages of magic 0 the checksum of the
    frame header is the wrong one that brokers before 0.10 want (KAFKA-3160). Without a level by the
    fast compressor; from level 3 on by the thorough one.
zstd
    One frame, which says how much it holds, of level 3; record batches of magic 2 only.

Source: Kafka 2.4.0 ``CompressionType``, ``KafkaLZ4BlockOutputStream``; KIP-57, KIP-110; levels as
in KIP-390.
"""
from __future__ import annotations

import enum
import zlib

import cramjam
import lz4.frame
import xxhash
import zstandard
from isal import igzip_lib

XERIAL_MAGIC = b"\x82SNAPPY\x00"
#: Two versions: xerial's own, and the oldest that can read it.
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


#: Kafka's ``compression.<codec>.level``, both ends included; a codec without levels is not here.
COMPRESSION_LEVELS = {Codec.GZIP: (1, 9), Codec.LZ4: (1, 17), Codec.ZSTD: (-131072, 22)}
DEFAULT_ZSTD_LEVEL = 3

_LARGEST_LZ4_LEVEL = 16  # of the library; levels above its 12th are all the same
_GZIP_WINDOW = 31  # zlib's way to ask for a gzip header around the largest window


def check_codec(codec: int, magic: int, compression_level: int | None) -> None:
    """Refuse a codec that records of a magic can't have, or a level that a codec does not have.

    Parameters
    ----------
    codec : int
        Of `Codec`.
    magic : int
        0, 1 or 2.
    compression_level : int or None
        As for `compress`.

    Raises
    ------
    ValueError
        If it is refused.
    """
    codec = Codec(codec)
    if codec is Codec.ZSTD and magic < 2:
        raise ValueError(f"messages of magic {magic} can't be compressed by zstd, only magic 2 can")
    if compression_level is None:
        return
    if codec not in COMPRESSION_LEVELS:
        raise ValueError(f"codec {codec.name.lower()} has no compression levels")
    least, most = COMPRESSION_LEVELS[codec]
    if not least <= compression_level <= most:
        raise ValueError(
            f"compression level {compression_level} is not one of {codec.name.lower()}, "
            f"which has {least} to {most}"
        )


def compress(
    codec: int,
    data: bytes | memoryview,
    *,
    magic: int,
    compression_level: int | None = None,
) -> bytes:
    """Compress the records of a batch.

    Parameters
    ----------
    codec : int
        Of `Codec`, but not ``NONE``.
    data : bytes-like
        The records: what stands behind the header of a record batch, or a set of messages.
    magic : int
        Of the batch; 0 has the old lz4 framing, and only 2 may have zstd.
    compression_level : int, optional
        Within `compression_LEVELS`. Not given: Kafka's default, but for gzip (see above).

    Returns
    -------
    bytes
        What `kafkastore.formats.decompression.decompress` gives the records for.

    Raises
    ------
    ValueError
        If records of this magic can't have the codec, or the codec not the level.
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
        level = DEFAULT_ZSTD_LEVEL if compression_level is None else compression_level
        return zstandard.ZstdCompressor(level).compress(data)
    raise ValueError("records without a codec are not compressed")


def with_old_header_checksum(frame: bytes) -> bytes:
    """Return an lz4 frame as writers before 0.10 made it: its magic number is hashed too.

    Parameters
    ----------
    frame : bytes
        A frame whose header has neither the content's size nor a dictionary.
    """
    checksum_at = LZ4_MAGIC_SIZE + 2
    checksum = xxhash.xxh32_intdigest(frame[:checksum_at]) >> 8 & 0xFF
    return frame[:checksum_at] + bytes([checksum]) + frame[checksum_at + 1 :]


def _gzip(data: bytes | memoryview, level: int | None) -> bytes:
    """Compress into one member without a time, so that the same records give the same bytes."""
    if level is None:
        return igzip_lib.compress(
            data, igzip_lib.ISAL_BEST_COMPRESSION, flag=igzip_lib.COMP_GZIP
        )
    return zlib.compress(data, level, wbits=_GZIP_WINDOW)


def _snappy(data: bytes | memoryview) -> bytes:
    """Compress block by block, a length before each."""
    pieces = [XERIAL_HEADER]
    for at in range(0, len(data), XERIAL_BLOCK_SIZE):
        block = bytes(cramjam.snappy.compress_raw(data[at : at + XERIAL_BLOCK_SIZE]))
        pieces += (len(block).to_bytes(4, "big"), block)
    return b"".join(pieces)


def _lz4(data: bytes | memoryview, level: int | None) -> bytes:
    """Compress into a frame that Kafka's own reader takes, which knows a part of the format."""
    return bytes(
        lz4.frame.compress(
            data,
            compression_level=min(level or 0, _LARGEST_LZ4_LEVEL),
            block_size=lz4.frame.BLOCKSIZE_MAX64KB,
            block_linked=False,
            store_size=False,
        )
    )
