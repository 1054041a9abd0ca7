"""Data compressed by the package, parsed as the oldest readers would."""

import gzip
import struct
import zlib

import cramjam
import lz4.block
import lz4.frame
import pytest
import xxhash
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from models.record_format import CODECS_OF, with_old_header_checksum
from models.record_strategies import bounded
from models.refused import refused

from kafkastore.formats.records.compression import COMPRESSION_LEVELS, Codec, check_codec, compress
from kafkastore.formats.records.decompression import decompress

CODECS = [codec for codec in Codec if codec is not Codec.NONE]
LOWEST = {Codec.GZIP: 1, Codec.LZ4: 1, Codec.ZSTD: -7}
TEXT = b"".join(b"%d, one more line of %d\n" % (i * i % 977, i) for i in range(8000))
NOISE = b"".join(struct.pack(">Q", i * 0x9E3779B97F4A7C15 % 2**64) for i in range(30_000))
SIZES = (0, 1, 32 * 1024, 32 * 1024 + 1, 64 * 1024, 64 * 1024 + 1, 200_000)


@bounded(100)
@given(
    st.sampled_from([(codec, magic) for magic, codecs in CODECS_OF.items() for codec in codecs]),
    st.binary(max_size=500), st.integers(1, 300),
)
def test_compressed_data_is_decompressed(codec_and_magic, data, times):
    codec, magic = codec_and_magic
    if codec != Codec.NONE:
        records = data * times
        assert decompress(codec, compress(codec, records, magic=magic), magic=magic) == records


@pytest.mark.parametrize("codec", COMPRESSION_LEVELS, ids=lambda codec: codec.name)
@pytest.mark.parametrize("data", [TEXT, NOISE, b""], ids=["text", "noise", "nothing"])
def test_every_level_is_decompressed(codec, data):
    least, most = COMPRESSION_LEVELS[codec]
    for level in sorted({least, max(least, -5), 1, 2, 3, 9, most}):
        compressed = compress(codec, memoryview(data), magic=2, compression_level=level)
        assert decompress(codec, compressed, magic=2) == data


@pytest.mark.parametrize("codec", COMPRESSION_LEVELS, ids=lambda codec: codec.name)
def test_a_higher_level_compresses_more(codec):
    low, high = (
        len(compress(codec, TEXT, magic=2, compression_level=level))
        for level in (LOWEST[codec], COMPRESSION_LEVELS[codec][1])
    )
    assert high < 0.95 * low


@pytest.mark.parametrize("level", [None, 1, 9])
@pytest.mark.parametrize("size", SIZES)
def test_gzip_is_one_member_without_a_time(size, level):
    data = (TEXT + NOISE)[:size]
    compressed = compress(Codec.GZIP, data, magic=2, compression_level=level)
    assert compressed[:8] == b"\x1f\x8b\x08\0\0\0\0\0"
    member = zlib.decompressobj(wbits=31)
    assert member.decompress(compressed) + member.flush() == data
    assert (member.eof, member.unused_data) == (True, b"")
    assert gzip.decompress(compressed) == data


@pytest.mark.parametrize("size", SIZES)
def test_snappy_blocks_are_those_of_xerial(size):
    data = (NOISE + TEXT)[:size]
    compressed = compress(Codec.SNAPPY, data, magic=2)
    assert compressed[:16] == b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1)
    blocks, at = [], 16
    while at < len(compressed):
        (length,) = struct.unpack_from(">i", compressed, at)
        blocks.append(bytes(cramjam.snappy.decompress_raw(compressed[at + 4 : at + 4 + length])))
        at += 4 + length
    assert at == len(compressed)
    assert b"".join(blocks) == data
    assert all(len(block) == 32 * 1024 for block in blocks[:-1])
    assert not blocks or 0 < len(blocks[-1]) <= 32 * 1024


@pytest.mark.parametrize("level", [None, 3, 17])
@pytest.mark.parametrize("size", SIZES)
def test_lz4_blocks_are_independent_as_kafka_s_reader_needs_them(size, level):
    data = (TEXT + NOISE)[:size]
    frame = compress(Codec.LZ4, data, magic=2, compression_level=level)
    magic, flags, block_sizes, checksum = struct.unpack_from("<IBBB", frame)
    # Version 1, independent blocks, no checksums, no size; blocks of at most 64 KiB.
    assert (magic, flags, block_sizes) == (0x184D2204, 0b0110_0000, 4 << 4)
    assert checksum == xxhash.xxh32_intdigest(frame[4:6]) >> 8 & 255
    blocks, at = [], 7
    while length := struct.unpack_from("<I", frame, at)[0]:
        block = frame[at + 4 : at + 4 + (length & 0x7FFFFFFF)]
        is_stored = length >> 31
        blocks.append(
            block if is_stored else lz4.block.decompress(block, uncompressed_size=64 * 1024)
        )
        at += 4 + len(block)
    assert at + 4 == len(frame)
    assert b"".join(blocks) == data
    assert all(len(block) == 64 * 1024 for block in blocks[:-1])


@pytest.mark.parametrize("size", SIZES)
def test_lz4_of_magic_0_has_the_wrong_checksum_that_old_brokers_want(size):
    right, wrong = (compress(Codec.LZ4, TEXT[:size], magic=magic) for magic in (1, 0))
    assert wrong != right
    assert wrong == with_old_header_checksum(right)
    with pytest.raises(RuntimeError, match=r"header_?[cC]hecksum"):
        lz4.frame.decompress(wrong)


def test_a_zstd_frame_is_read_by_its_library():
    assert zstandard.decompress(compress(Codec.ZSTD, TEXT, magic=2)) == TEXT


@pytest.mark.parametrize(
    ("codec", "magic", "level", "argument"),
    [
        (Codec.ZSTD, 1, None, "codec"),
        (Codec.ZSTD, 0, 3, "codec"),
        (Codec.GZIP, 2, 0, "compression_level"),
        (Codec.GZIP, 2, 10, "compression_level"),
        (Codec.LZ4, 2, 18, "compression_level"),
        (Codec.ZSTD, 2, 23, "compression_level"),
        (Codec.SNAPPY, 2, 1, "compression_level"),
        (Codec.NONE, 2, 1, "compression_level"),
        (5, 2, None, "codec"),
    ],
)
def test_unsupported_options_of_a_codec_are_refused(codec, magic, level, argument):
    for refuse in (check_codec, lambda *args: compress(args[0], b"", magic=magic)):
        if refuse is check_codec or level is None:
            with refused(argument):
                refuse(codec, magic, level)


def test_without_a_codec_there_is_nothing_to_compress():
    with refused("codec"):
        compress(Codec.NONE, b"", magic=2)
