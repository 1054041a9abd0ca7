"""Records of many megabytes: written with memory of about twice their size."""
from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from models import measured_command
from models.seed import some

import kafkastore

MIB = 1 << 20
SIZE = 32 * MIB
KINDS = {
    "text": "läßt\t", "with a control character": "a\x1bb", "bytes": None,
}


def value_of(kind: str, size: int) -> bytes:
    text = KINDS[kind]
    unit = bytes(range(256)) if text is None else text.encode()
    return unit * (size // len(unit))


def write(root: Path, value: bytes | None, codec: str = "uncompressed") -> Path:
    settings = {
        "max.message.bytes": 1 << 30, "segment.bytes": (1 << 31) - 1, "compression.type": codec,
    }
    record = SimpleNamespace(timestamp=1, key=b"k\"", value=value, headers=(("h", b"v"),))
    with kafkastore.LogDirWriter(root) as log_dir:
        log_dir.writer("t", 0, settings).append_records([record])
    return root


def memory(tmp_path: Path, root: Path, *options: str) -> int:
    """Return the peak memory of `cat`."""
    figures = tmp_path / "figures"
    subprocess.run(
        [sys.executable, measured_command.__file__, figures, "128", "cat", root, *options],
        check=True, stdout=subprocess.DEVNULL,
    )
    found = json.loads(figures.read_text())
    assert found["code"] == 0
    return int(found["memory"])


@pytest.mark.parametrize(
    ("kind", "codec", "option"),
    some([
        ("text", "uncompressed", []), ("bytes", "uncompressed", ["--json"]), ("text", "zstd", []),
    ], 2, __name__),
)
def test_a_large_record_is_in_memory_at_most_twice(
    kind: str, codec: str, option: list[str], tmp_path: Path
) -> None:
    small = memory(tmp_path, write(tmp_path / "small", b"v"), *option)
    large = memory(tmp_path, write(tmp_path / "large", value_of(kind, SIZE), codec), *option)
    assert large - small < 2.3 * SIZE
