import platform
import random
import re
import subprocess
import sys
import zlib
from pathlib import Path

import pytest
from models.crc_by_bits import CASTAGNOLI, IEEE, crcs_of_beginnings
from models.refused import refused

from kafkastore.formats.primitives import crc

# The published check values, and RFC 3720's vectors (appendix B.4).
CRC32C_VECTORS = {
    "check value": (b"123456789", 0xE3069283),
    "32 zeros": (bytes(32), 0x8A9136AA),
    "32 ones": (b"\xff" * 32, 0x62A8AB43),
    "rising": (bytes(range(32)), 0x46DD794E),
    "falling": (bytes(range(31, -1, -1)), 0x113FDB5C),
    "a read command": (
        bytes.fromhex("01c00000 00000000 00000000 00000000 14000000 00000400 00000014 00000018")
        + bytes.fromhex("28000000 00000000 02000000 00000000"),
        0xD9963A56,
    ),
    "empty": (b"", 0),
}
# Past the last branch: at 6144 bytes three streams have their maximum length.
LONGEST = 7000
ROOT = Path(__file__).parents[2]
DATA = random.Random(7).randbytes(LONGEST + 64)
HUGE = random.Random(8).randbytes(5_000_003)

each_kernel = pytest.mark.parametrize("kernel", crc.KERNELS)
each_checksum = pytest.mark.parametrize(
    ("function", "polynomial"),
    [(crc.crc32c, CASTAGNOLI), (crc.crc32, IEEE)],
    ids=["crc32c", "crc32"],
)


def features_of_this_processor():
    """The processor features that the operating system reports, in small letters and digits."""
    if sys.platform == "darwin":
        keys = ["hw.optional.arm64"] if platform.machine() == "arm64" else [
            "machdep.cpu.features", "machdep.cpu.leaf7_features",
        ]
        said = subprocess.run(["sysctl", "-n", *keys], capture_output=True, text=True).stdout
        if platform.machine() == "arm64":
            said = "pmull crc32"  # every one since the first
    else:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        said = next(line for line in lines if line.lower().startswith(("flags", "features")))
    return set(said.lower().replace("_", "").replace(".", "").split())


def test_the_kernels_are_those_that_this_processor_can_run():
    features = features_of_this_processor()
    wanted = []
    if platform.machine() in ("x86_64", "AMD64"):
        pclmul = {"sse42", "pclmulqdq"}
        if features >= pclmul | {"avx512f", "avx512bw", "avx512vl", "avx512vbmi2", "vpclmulqdq"}:
            wanted.append("avx512")
        if features >= pclmul:
            wanted.append("pclmul")
    elif platform.machine() in ("aarch64", "arm64"):
        wanted += ["pmull"] * ("pmull" in features) + ["crc"] * ("crc32" in features)
    assert (*wanted, "table") == crc.KERNELS


@each_kernel
@pytest.mark.parametrize(("data", "wanted"), CRC32C_VECTORS.values(), ids=CRC32C_VECTORS)
def test_published_vectors_of_crc32c_are_computed(data, wanted, kernel):
    assert crc.crc32c(data, kernel=kernel) == wanted


@each_kernel
def test_the_published_check_value_of_crc32_is_computed(kernel):
    assert crc.crc32(b"123456789", kernel=kernel) == 0xCBF43926


@each_kernel
@each_checksum
@pytest.mark.parametrize("initial", [0, 1, 0xFFFFFFFF, 0x9E3779B9])
def test_every_length_has_the_checksum_of_a_division_bit_by_bit(
    function, polynomial, initial, kernel
):
    wanted = crcs_of_beginnings(polynomial, DATA[:LONGEST], initial)
    view = memoryview(DATA)
    for length in range(LONGEST + 1):
        assert function(view[:length], initial, kernel=kernel) == wanted[length], length


@each_kernel
@each_checksum
def test_bytes_may_begin_anywhere_in_a_cache_line(function, polynomial, kernel):
    view = memoryview(DATA)
    for start in range(64):
        wanted = crcs_of_beginnings(polynomial, DATA[start : start + 600])
        for length in [*range(80), *range(80, 600, 7), 599]:
            checksum = function(view[start : start + length], kernel=kernel)
            assert checksum == wanted[length], (start, length)


@each_kernel
@each_checksum
@pytest.mark.parametrize("kind", [0, 255])
def test_equal_bytes_have_a_checksum_that_reports_their_number(function, polynomial, kind, kernel):
    data = bytes([kind]) * 1300
    wanted = crcs_of_beginnings(polynomial, data)
    assert len(set(wanted)) == len(data) + 1
    for length in range(len(data) + 1):
        assert function(data[:length], kernel=kernel) == wanted[length], length


@each_kernel
@each_checksum
@pytest.mark.parametrize("cut", [0, 1, 7, 150, 768, 12_288, 1_000_000, 5_000_003])
def test_a_checksum_continues_from_earlier_bytes(function, polynomial, cut, kernel):
    first = function(HUGE[:cut], kernel=kernel)
    assert function(HUGE[cut:], first, kernel=kernel) == function(HUGE, kernel=kernel)


@each_kernel
def test_megabytes_have_the_same_checksum_by_every_kernel(kernel):
    assert crc.crc32(HUGE, kernel=kernel) == zlib.crc32(HUGE)
    assert crc.crc32c(HUGE, kernel=kernel) == crc.crc32c(HUGE, kernel="table")


@each_checksum
def test_the_first_kernel_is_used_when_none_is_named(function, polynomial):
    assert function(DATA) == function(DATA, kernel=crc.KERNELS[0])


@each_checksum
def test_a_kernel_that_does_not_exist_is_refused(function, polynomial):
    for data in (DATA, b""):
        with refused("kernel"):
            function(data, kernel="hardware")


@each_checksum
def test_any_buffer_of_bytes_will_do(function, polynomial):
    wanted = crcs_of_beginnings(polynomial, DATA[:100])[100]
    for buffer in (DATA[:100], bytearray(DATA[:100]), memoryview(DATA)[:100]):
        assert function(buffer) == wanted


def test_the_document_has_the_kernels_and_the_polynomials_of_the_code():
    source = Path(crc.__file__).with_name("crc.h").read_text()
    document = (ROOT / "docs/formats/checksums.md").read_text()
    kernels = re.findall(r'\(struct crc_kernel\)\{"(\w+)"', source)
    section = document.partition("## The kernels")[2].partition("\n\n##")[0]
    assert re.findall(r"^\| `(\w+)`", section, re.MULTILINE) == kernels
    assert {*crc.KERNELS} <= {*kernels}
    assert f"| `{IEEE:08x}` | `{CASTAGNOLI:08x}` |" in document
    assert f"| `{crc.crc32(b'123456789'):08x}` | `{crc.crc32c(b'123456789'):08x}` |" in document
