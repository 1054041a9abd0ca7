"""The codecs' C code: what clients write needs nothing else, and nobody else's view differs."""
import gzip
import random
import struct

import cramjam
import lz4.block
import lz4.frame
import pytest
import zstandard
from hypothesis import example, given, settings
from hypothesis import strategies as st
from models.record_format import GZIP, LZ4, SNAPPY, XERIAL_HEADER, ZSTD, Batch, Row, compress

from kafkastore.errors import CorruptBatchError
from kafkastore.formats.records.decoders import decompress_usual
from kafkastore.formats.records.decompression import decompress

LIMIT = 1 << 20


def texts():
    """Give data with literals and copies of all lengths, near and far."""
    piece = st.binary(min_size=1, max_size=80)
    parts = st.tuples(piece, st.integers(1, 200), st.integers(0, 70_000))

    def build(pieces):
        data = bytearray()
        for new, times, back in pieces:
            data += new * (times if len(new) * times < 20_000 else 1)
            data += data[max(len(data) - back, 0) :][: times + 3]
        return bytes(data[:200_000])

    return st.lists(parts, max_size=12).map(build)


@settings(deadline=None)
@given(texts())
@example(b"")
def test_what_clients_write_is_usual(data):
    assert decompress_usual(SNAPPY, bytes(cramjam.snappy.compress_raw(data)), LIMIT) == data
    assert decompress_usual(SNAPPY, compress(SNAPPY, data), LIMIT) == data
    assert decompress_usual(GZIP, compress(GZIP, data), LIMIT) == data
    assert decompress_usual(GZIP, gzip.compress(data, mtime=0), LIMIT) == data
    assert decompress_usual(LZ4, compress(LZ4, data), LIMIT) == data
    assert decompress_usual(ZSTD, compress(ZSTD, data), LIMIT) == data
    streamed = zstandard.ZstdCompressor().compressobj()
    assert decompress_usual(ZSTD, streamed.compress(data) + streamed.flush(), LIMIT) == data


@pytest.mark.parametrize(
    ("codec", "data"),
    [
        (GZIP, compress(GZIP, b"x") * 2),
        (GZIP, gzip.compress(b"x", mtime=0)[:3] + b"\x08" + gzip.compress(b"x", mtime=0)[4:]),
        (GZIP, b""),
        (LZ4, lz4.frame.compress(b"x" * 1000, content_checksum=True)),
        (LZ4, lz4.frame.compress(b"x", block_linked=False, store_size=False) * 2),
        (ZSTD, zstandard.compress(b"x") * 2),
        (ZSTD, b""),
        (SNAPPY, b""),
        (LZ4, b""),
    ],
)
def test_anything_else_is_left_to_others(codec, data):
    assert decompress_usual(codec, data, LIMIT) is None


def tags(*parts):
    """Return a raw snappy block of these tags, and its stated size."""
    return b"".join(parts)


def literal(data):
    size = len(data) - 1
    if size < 60:
        return bytes([size << 2]) + data
    extra = (size.bit_length() + 7) // 8
    return bytes([59 + extra << 2]) + size.to_bytes(extra, "little") + data


def copy(length, offset, kind):
    if kind == 1:
        return bytes([offset >> 8 << 5 | length - 4 << 2 | 1, offset & 255])
    return bytes([length - 1 << 2 | kind]) + offset.to_bytes(2 if kind == 2 else 4, "little")


def varint(value):
    encoded = bytearray()
    while value > 127:
        encoded.append(value % 128 + 128)
        value //= 128
    return bytes([*encoded, value])


@st.composite
def snappy_blocks(draw):
    """Give blocks of any tags, some impossible."""
    size, parts = 0, []
    for _ in range(draw(st.integers(0, 150))):
        if size == 0 or draw(st.integers(0, 2)) == 0:
            data = draw(st.binary(min_size=1, max_size=4)) * draw(st.sampled_from([1, 5, 16, 70]))
            parts.append(literal(data))
            size += len(data)
            continue
        kind = draw(st.sampled_from([1, 2, 3]))
        length = draw(st.integers(4, 11) if kind == 1 else st.integers(1, 64))
        most = {1: 2047, 2: 65535, 3: 1 << 20}[kind]
        offset = draw(st.integers(1, max(min(most, size), 1)) | st.integers(0, most))
        parts.append(copy(length, offset, kind))
        size += length
    stated = size + draw(st.sampled_from([0, 0, 0, 0, 1, -1]))
    return varint(max(stated, 0)) + tags(*parts)


@settings(deadline=None, max_examples=300)
@given(snappy_blocks(), st.integers(0, 3))
def test_snappy_blocks_are_read_as_by_the_library(block, cut):
    block = block[: len(block) - cut]
    try:
        expected = bytes(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError:
        expected = None
    found = decompress_usual(SNAPPY, block, LIMIT)
    if expected is not None and len(expected) > 22 * len(block):
        expected = None
    assert found == expected


def raw_lz4(data):
    return lz4.block.compress(data, store_size=False)


@pytest.mark.parametrize("codec", [SNAPPY, LZ4, ZSTD])
def test_flipped_bits_never_write_past_the_room(codec):
    """Sanitizers run this too: memory is as large as the bound."""
    source = random.Random(codec)
    data = compress(codec, bytes(source.choices(b"abcd", k=3000)) + bytes(3000))
    for _ in range(3000):
        damaged = bytearray(data)
        for _ in range(source.randrange(1, 4)):
            damaged[source.randrange(len(data))] = source.randrange(256)
        found = decompress_usual(codec, damaged, LIMIT)
        try:
            assert found is None or found == decompress(codec, bytes(damaged), magic=2)
        except CorruptBatchError:
            pytest.fail("usual data is not damaged")


@pytest.mark.parametrize(("descriptor", "size"), [(4, 1 << 16), (5, 1 << 18), (6, 1 << 20)])
def test_lz4_frames_of_every_block_size_are_usual(descriptor, size):
    data = random.Random(5).randbytes(50_000) * 30
    frame = lz4.frame.compress(
        data, block_size=descriptor, block_linked=False, store_size=False
    )
    assert decompress_usual(LZ4, frame, 4 * len(data)) == data
    stored = frame[:7] + struct.pack("<I", 0x80000000 | 100) + data[:100] + bytes(4)
    assert decompress_usual(LZ4, stored, 100) == data[:100]
    block = raw_lz4(bytes(size + 1))
    too_large = frame[:7] + struct.pack("<I", len(block)) + block + bytes(4)
    assert decompress_usual(LZ4, too_large, 1 << 24) is None


def test_the_limit_is_that_of_memory_reserved_before():
    data = compress(ZSTD, bytes(100_000))
    assert decompress_usual(ZSTD, data, 200_000) == bytes(100_000)
    assert decompress_usual(ZSTD, data, 99_999) is None
    block = bytes(cramjam.snappy.compress_raw(bytes(1000)))
    framed = XERIAL_HEADER + struct.pack(">i", len(block)) + block
    assert decompress_usual(SNAPPY, framed, 1000) == bytes(1000)
    assert decompress_usual(SNAPPY, framed, 999) is None


def test_a_batch_of_each_codec_is_read():
    rows = tuple(Row(offset, offset, b"k", b"value %d" % offset * 9) for offset in range(50))
    for codec in (SNAPPY, LZ4, ZSTD):
        compressed = Batch(rows, codec=codec).data[61:]
        plain = decompress_usual(codec, compressed, LIMIT)
        assert plain is not None
        assert plain == decompress(codec, compressed, magic=2)
