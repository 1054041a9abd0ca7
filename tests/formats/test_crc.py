import random
import zlib

import pytest
from models.record_format import crc32c as slow_crc32c

from kafkastore.formats import crc

# The published check value, RFC 3720's vectors (appendix B.4), and nothing.
CRC32C_VECTORS = {
    "check value": (b"123456789", 0xE3069283),
    "32 zeros": (bytes(32), 0x8A9136AA),
    "32 ones": (b"\xff" * 32, 0x62A8AB43),
    "rising": (bytes(range(32)), 0x46DD794E),
    "falling": (bytes(range(31, -1, -1)), 0x113FDB5C),
    "empty": (b"", 0),
}
# Around every length at which the code takes another way: words, and three streams of 256 and 4096.
LENGTHS = sorted({
    length + by
    for length in (0, 8, 16, 64, 256, 3 * 256, 6 * 256, 4096, 3 * 4096, 3 * 4096 + 3 * 256, 40_000)
    for by in (-9, -8, -7, -1, 0, 1, 7, 8, 9)
    if length + by >= 0
})
DATA = random.Random(7).randbytes(50_000)


@pytest.mark.parametrize(("data", "wanted"), CRC32C_VECTORS.values(), ids=CRC32C_VECTORS)
@pytest.mark.parametrize("function", [crc.crc32c, crc.crc32c_by_table, slow_crc32c])
def test_published_vectors_are_computed(function, data, wanted):
    assert function(data) == wanted


@pytest.mark.parametrize("start", [0, 1, 3])
def test_hardware_and_table_agree_with_the_slow_one_at_every_edge(start):
    for length in LENGTHS:
        data = DATA[start : start + length]
        wanted = slow_crc32c(data)
        assert crc.crc32c(data) == wanted, length
        assert crc.crc32c_by_table(data) == wanted, length


@pytest.mark.parametrize("start", [0, 1, 3])
def test_crc32_is_that_of_zlib_at_every_edge(start):
    for length in LENGTHS:
        data = DATA[start : start + length]
        assert crc.crc32(data) == zlib.crc32(data), length


@pytest.mark.parametrize("function", [crc.crc32c, crc.crc32c_by_table, crc.crc32])
@pytest.mark.parametrize("cut", [0, 1, 7, 768, 12_288, 20_000])
def test_a_checksum_goes_on_from_the_bytes_before(function, cut):
    assert function(DATA[cut:20_000], function(DATA[:cut])) == function(DATA[:20_000])


def test_the_kernel_says_what_it_is():
    assert crc.KERNEL in ("hardware", "portable")
