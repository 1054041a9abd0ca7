"""Records of many megabytes: written in pieces, with memory of about twice their size."""
from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from cli.running import Run
from hypothesis import given
from hypothesis import strategies as st
from models import measured_command
from models.seed import some

import kafkastore
from kafkastore.cli.commands import cat
from kafkastore.cli.output import bytes_text
from kafkastore.cli.output.bytes_text import (
    format_bytes,
    format_bytes_in_pieces,
    json_bytes,
    json_bytes_in_pieces,
)

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


@pytest.mark.parametrize("size", [3, 4, 768])
@given(data=st.binary(max_size=60) | st.text(max_size=30).map(str.encode))
def test_pieces_join_to_the_complete_text(data: bytes, size: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bytes_text, "PIECE_BYTES", size // 3 * 3)
        if data:
            assert "".join(format_bytes_in_pieces(data)) == format_bytes(data)
        name, pieces = json_bytes_in_pieces("value", data)
        assert {name: "".join(pieces)} == json_bytes("value", data)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("options", [[], ["--headers"], ["--json"], ["--json", "--headers"]])
def test_a_line_written_in_pieces_equals_the_line_written_at_once(
    kind: str, options: list[str], run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = write(tmp_path / "logs", value_of(kind, 5000))
    expected = run("cat", root, *options)
    for module in (cat, bytes_text):
        monkeypatch.setattr(module, "PIECE_BYTES", 30)
    assert run("cat", root, *options) == expected
    assert expected.out.count("\n") == 1
    assert "--json" not in options or json.loads(expected.out)["offset"] == 0


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
