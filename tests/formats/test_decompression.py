import contextlib
import gzip
import random
import struct
import subprocess
import sys
import time

import lz4.frame
import pytest
import xxhash
import zstandard
from models.record_format import (
    CODEC_NAMES,
    GZIP,
    LZ4,
    SNAPPY,
    XERIAL_HEADER,
    ZSTD,
    compress,
    raw_snappy,
    with_old_header_checksum,
    xerial_snappy,
)

from kafkastore import CorruptBatchError, UnsupportedFormatError
from kafkastore.errors import DecompressedSizeError, DecompressionError
from kafkastore.formats.records.decompression import (
    decompress,
    with_right_header_checksum,
)

RECORDS = b"hello world " * 50 + random.Random(3).randbytes(200)
ZEROS = bytes(64 * 1024 * 1024)


def sized_blocks(*blocks):
    return XERIAL_HEADER + b"".join(struct.pack(">i", len(block)) + block for block in blocks)


def zstd(data, **options):
    return zstandard.ZstdCompressor(**options).compress(data)


# Data in batches by writers of that codec, and the expected result.
WRITTEN = {
    "gzip": (GZIP, compress(GZIP, RECORDS), RECORDS),
    "gzip with a file name": (GZIP, b"\x1f\x8b\x08\x08" + bytes(6) + b"name\0"
                              + gzip.compress(RECORDS)[10:], RECORDS),
    "gzip of two members": (GZIP, gzip.compress(RECORDS) + gzip.compress(b"x"), RECORDS + b"x"),
    "gzip of nothing": (GZIP, gzip.compress(b""), b""),
    "gzip, stored": (GZIP, gzip.compress(RECORDS, 0), RECORDS),
    "snappy in xerial's framing": (SNAPPY, xerial_snappy(RECORDS), RECORDS),
    "snappy in many blocks": (SNAPPY, xerial_snappy(RECORDS, 64), RECORDS),
    "snappy without a block": (SNAPPY, XERIAL_HEADER, b""),
    "snappy with an empty block": (SNAPPY, sized_blocks(raw_snappy(b""), raw_snappy(b"x")), b"x"),
    "snappy, one raw block": (SNAPPY, raw_snappy(RECORDS), RECORDS),
    "lz4": (LZ4, compress(LZ4, RECORDS), RECORDS),
    "lz4 with checksums and size": (LZ4, lz4.frame.compress(
        RECORDS, content_checksum=True, block_checksum=True, store_size=True), RECORDS),
    "lz4 with linked blocks": (LZ4, lz4.frame.compress(RECORDS * 300, block_linked=True,
                                                       block_size=4), RECORDS * 300),
    "lz4 with separate blocks": (LZ4, lz4.frame.compress(RECORDS * 300, block_linked=False,
                                                         block_size=4), RECORDS * 300),
    "lz4 of two frames": (LZ4, lz4.frame.compress(RECORDS) + lz4.frame.compress(b"x"),
                          RECORDS + b"x"),
    "lz4 of nothing": (LZ4, lz4.frame.compress(b""), b""),
    "zstd": (ZSTD, compress(ZSTD, RECORDS), RECORDS),
    "zstd with size and checksum": (ZSTD, zstd(RECORDS, write_checksum=True), RECORDS),
    "zstd of two frames": (ZSTD, zstd(RECORDS) + zstd(b"x"), RECORDS + b"x"),
    "zstd of nothing": (ZSTD, zstd(b""), b""),
}


@pytest.mark.parametrize(("codec", "data", "records"), WRITTEN.values(), ids=WRITTEN)
def test_data_of_other_writers_is_read(codec, data, records):
    assert decompress(codec, data, magic=2) == records
    assert decompress(codec, memoryview(data), magic=2) == records


@pytest.mark.parametrize(("codec", "data", "records"), WRITTEN.values(), ids=WRITTEN)
def test_the_limit_is_inclusive(codec, data, records):
    assert decompress(codec, data, magic=2, max_decompressed_bytes=len(records)) == records
    if records:
        with pytest.raises(DecompressedSizeError):
            decompress(codec, data, magic=2, max_decompressed_bytes=len(records) - 1)


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4], ids=CODEC_NAMES[1:4])
@pytest.mark.parametrize("is_raw_snappy", [False, True])
def test_every_cut_is_an_error(codec, is_raw_snappy):
    data = compress(codec, RECORDS, is_raw_snappy=is_raw_snappy)
    only_header = range(len(XERIAL_HEADER) - 8, len(XERIAL_HEADER) + 1)
    for size in range(len(data)):
        if codec == SNAPPY and not is_raw_snappy and size in only_header:
            continue
        with pytest.raises(CorruptBatchError):
            decompress(codec, data[:size], magic=2)


@pytest.mark.parametrize("first", [b"", zstd(b"another frame before")])
@pytest.mark.parametrize("has_checksum", [False, True])
def test_every_cut_of_a_zstd_frame_is_an_error(first, has_checksum):
    data = zstd(RECORDS + bytes(300_000), write_checksum=has_checksum)
    for size in range(1 if first else 0, len(data)):
        with pytest.raises(DecompressionError):
            decompress(ZSTD, first + data[:size], magic=2)


def test_zstd_frames_are_read_to_the_last():
    frames = zstd(RECORDS, write_content_size=False) + zstd(b"more", write_content_size=False)
    assert decompress(ZSTD, frames, magic=2) == RECORDS + b"more"


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD], ids=CODEC_NAMES[1:])
def test_damage_gives_bytes_or_one_kind_of_error(codec):
    source = random.Random(codec)
    for magic in (0, 1, 2):
        if codec == ZSTD and magic < 2:
            continue
        data = compress(codec, RECORDS, magic=magic)
        for bit in range(len(data) * 8):
            damaged = bytearray(data)
            damaged[bit // 8] ^= 1 << bit % 8
            try_to_decompress(codec, bytes(damaged), magic)
        for _ in range(300):
            try_to_decompress(codec, source.randbytes(source.randrange(60)), magic)
            at = source.randrange(len(data))
            try_to_decompress(codec, data[:at] + source.randbytes(8) + data[at:], magic)


def try_to_decompress(codec, data, magic):
    start = time.process_time()
    with contextlib.suppress(CorruptBatchError):
        assert len(decompress(codec, data, magic=magic, max_decompressed_bytes=1 << 20)) <= 1 << 20
    assert time.process_time() - start < 5


@pytest.mark.parametrize("data", [b"", b"\0", b"garbage", bytes(100)])
@pytest.mark.parametrize("codec", [GZIP, LZ4], ids=["gzip", "lz4"])
def test_bytes_that_the_codec_did_not_write_are_an_error(codec, data):
    with pytest.raises(DecompressionError):
        decompress(codec, data, magic=2)


@pytest.mark.parametrize(
    ("codec", "magic"), [(0, 2), (5, 2), (6, 1), (7, 0), (ZSTD, 0), (ZSTD, 1)]
)
def test_codecs_that_the_magic_does_not_have_are_not_supported(codec, magic):
    with pytest.raises(UnsupportedFormatError):
        decompress(codec, b"", magic=magic)


@pytest.mark.parametrize("block", ["size", "no size"])
def test_lz4_of_magic_0_is_read_with_any_header_checksum(block):
    frame = lz4.frame.compress(RECORDS, store_size=block == "size")
    checksum_at = 14 if block == "size" else 6
    for checksum in range(256):
        odd = frame[:checksum_at] + bytes([checksum]) + frame[checksum_at + 1 :]
        assert decompress(LZ4, odd, magic=0) == RECORDS
    assert with_right_header_checksum(with_old_header_checksum(frame)) == frame
    assert with_right_header_checksum(frame) == frame


def test_lz4_of_magic_0_without_a_complete_header_is_an_error():
    frame = lz4.frame.compress(RECORDS, store_size=True)
    for size in range(14):
        with pytest.raises(CorruptBatchError):
            decompress(LZ4, frame[:size], magic=0)


def raw_snappy_claiming(size):
    """A raw block that states its decompressed size, but has no data."""
    return unsigned_varint(size) + b"abc"


def unsigned_varint(value):
    encoded = bytearray()
    while value > 127:
        encoded.append(value % 128 + 128)
        value //= 128
    return bytes([*encoded, value])


def lz4_claiming(size):
    """A frame whose header states a size it does not have."""
    frame = bytearray(lz4.frame.compress(RECORDS, store_size=True))
    frame[6:14] = struct.pack("<Q", size)
    frame[14] = xxhash.xxh32_intdigest(bytes(frame[4:14])) >> 8 & 255
    return bytes(frame)


def zstd_with_window(log):
    parameters = zstandard.ZstdCompressionParameters(window_log=log)
    compressor = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    return compressor.compress(RECORDS) + compressor.flush()


BOMBS = {
    "gzip": lambda: (GZIP, gzip.compress(ZEROS * 4)),
    "gzip of many members": lambda: (GZIP, gzip.compress(ZEROS) * 20),
    "snappy in many blocks": lambda: (SNAPPY, sized_blocks(*[raw_snappy(ZEROS[: 1 << 20])] * 300)),
    "snappy, one raw block": lambda: (SNAPPY, raw_snappy(ZEROS)),
    "snappy that claims 4 GiB": lambda: (SNAPPY, raw_snappy_claiming(2**32 - 1)),
    "lz4": lambda: (LZ4, lz4.frame.compress(ZEROS * 4, store_size=False)),
    "lz4 of many frames": lambda: (LZ4, lz4.frame.compress(ZEROS) * 20),
    "lz4 that claims 2**50 bytes": lambda: (LZ4, lz4_claiming(2**50)),
    "zstd": lambda: (ZSTD, zstd(ZEROS * 4)),
    "zstd of many frames": lambda: (ZSTD, zstd(ZEROS) * 20),
    "zstd that needs a window of 2 GiB": lambda: (ZSTD, zstd_with_window(31)),
}


@pytest.mark.parametrize("make", BOMBS.values(), ids=BOMBS)
def test_a_bomb_is_refused_soon(make):
    codec, data = make()
    start = time.process_time()
    with pytest.raises(CorruptBatchError):
        decompress(codec, data, magic=2, max_decompressed_bytes=1 << 20)
    assert time.process_time() - start < 1


BOMB_IN_A_SMALL_PROCESS = """
import resource, sys
from kafkastore import CorruptBatchError
from kafkastore.formats.records.decompression import decompress
data = sys.stdin.buffer.read()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    decompress(int(sys.argv[1]), data, magic=2, max_decompressed_bytes=1 << 20)
except CorruptBatchError:
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD], ids=CODEC_NAMES[1:])
def test_a_bomb_takes_no_memory(codec):
    make = {GZIP: gzip.compress, SNAPPY: raw_snappy, LZ4: lz4.frame.compress, ZSTD: zstd}[codec]
    result = subprocess.run(
        [sys.executable, "-c", BOMB_IN_A_SMALL_PROCESS, str(codec)],
        input=make(ZEROS), capture_output=True, check=True,
    )
    kilobytes = int(result.stdout) / (1024 if sys.platform == "darwin" else 1)
    assert kilobytes < 32 * 1024
