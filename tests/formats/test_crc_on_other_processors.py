"""The kernels that this machine does not have, on a machine that QEMU emulates."""

import platform
import sys
from pathlib import Path

import pytest
from models import crc_by_bits, emulator

from kafkastore.formats.primitives import crc

HEADERS = Path(__file__).parents[2] / "kafkastore/formats/primitives"
CHECK = Path(crc_by_bits.__file__).with_name("crc_check.c")
STRICT = "-Wall", "-Wextra", "-Werror"

pytestmark = pytest.mark.sanitizer


def test_every_kernel_of_arm64_divides_and_stays_within_its_bytes(tmp_path):
    program = emulator.compile_for("aarch64", CHECK, tmp_path / "check", *STRICT, f"-I{HEADERS}")
    assert emulator.run_as("aarch64", None, program) == (["pmull", "crc", "table"], 0)


@pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() != "x86_64",
    reason="QEMU runs older x86-64 processors on x86-64 Linux",
)
@pytest.mark.parametrize(
    ("model", "kernels"),
    [
        ("core2duo", ["table"]),
        ("Nehalem", ["table"]),  # a CRC instruction, but no carry-less product
        ("Westmere", ["pclmul", "table"]),
        ("Haswell", ["pclmul", "table"]),
    ],
)
def test_an_older_x86_processor_uses_the_kernels_it_has(model, kernels, tmp_path):
    program = emulator.compile_for("x86_64", CHECK, tmp_path / "check", *STRICT, f"-I{HEADERS}")
    assert emulator.run_as("x86_64", model, program) == (kernels, 0)


def test_sanitizers_find_nothing_in_the_kernels_of_this_machine(tmp_path):
    flags = "-fsanitize=address,undefined", "-fno-sanitize-recover", "-g"
    processor = platform.machine()
    program = emulator.compile_for(
        processor, CHECK, tmp_path / "check", *STRICT, *flags, f"-I{HEADERS}"
    )
    kernels, code = emulator.run_as(processor, None, program)
    assert code == 0
    assert kernels == list(crc.KERNELS)
