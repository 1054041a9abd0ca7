"""Records of many megabytes: written with memory of about twice their size."""
from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
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


def test_a_second_thread_takes_at_most_128_mib_more(tmp_path: Path) -> None:
    root = tmp_path / "log"
    random = os.urandom(1 << 20)
    values = [random[at : at + 1000] for at in range(0, 1_000_000, 1000)]
    table = pa.table({
        "key": pa.array([b"k"] * 1000, pa.binary()), "value": pa.array(values, pa.binary()),
        "timestamp": pa.array(range(1000), pa.int64()),
    })  # fmt: skip
    with kafkastore.LogDirWriter(root) as log_dir:
        writer = log_dir.writer("t", 0)
        for _ in range(300):
            writer.append_columns(table)
    one, two = (
        memory(tmp_path, root, "-o", str(tmp_path / "out.parquet"), "--threads", str(threads))
        for threads in (1, 2)
    )
    assert two - one < 128 * MIB
