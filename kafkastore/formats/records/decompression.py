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

from kafkastore.errors import DecompressionError, UnsupportedFormatError
from kafkastore.formats.records.compression import LZ4_MAGIC_SIZE, Codec
from kafkastore.formats.records.decoders import decompress_usual

#: Default size limit of a decompressed batch; brokers refuse batches above 1 MB by default.
MAX_DECOMPRESSED_BYTES = 256 * 1024 * 1024

LZ4_CONTENT_SIZE_FLAG = 0x08
LZ4_DICTIONARY_FLAG = 0x01
_CODECS = frozenset(Codec) - {Codec.NONE}

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
    if codec not in _CODECS or (codec == Codec.ZSTD and magic < 2):
        raise UnsupportedFormatError(f"magic {magic} does not support codec {codec}")
    if codec == Codec.LZ4 and magic == 0:
        data = with_right_header_checksum(bytes(data))
    usual = decompress_usual(codec, data, max_decompressed_bytes)
    if usual is not None:
        return usual
    from kafkastore.formats.records import decompressors  # the libraries: few data need them

    try:
        return decompressors.READERS[codec](memoryview(data), max_decompressed_bytes)
    except decompressors.ERRORS as error:
        name = Codec(codec).name.lower()
        raise DecompressionError(f"{name} records can't be decompressed ({error})") from error


def with_right_header_checksum(frame: bytes) -> bytes:
    """Return an lz4 frame of a message of magic 0 with the standard header checksum.

    Raises `DecompressionError` if the frame ends within its header.
    """
    import xxhash

    if len(frame) < LZ4_MAGIC_SIZE + 3:
        raise DecompressionError(f"lz4 frame ends within its header, after {len(frame)} bytes")
    flags = frame[LZ4_MAGIC_SIZE]
    checksum_at = LZ4_MAGIC_SIZE + 2
    checksum_at += 8 if flags & LZ4_CONTENT_SIZE_FLAG else 0
    checksum_at += 4 if flags & LZ4_DICTIONARY_FLAG else 0
    descriptor = frame[LZ4_MAGIC_SIZE:checksum_at]
    checksum = xxhash.xxh32_intdigest(descriptor) >> 8 & 0xFF
    return frame[:checksum_at] + bytes([checksum]) + frame[checksum_at + 1 :]
