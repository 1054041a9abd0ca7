"""The answers files: JSON that diffs and reads well, and values in it kept short."""
from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path
from typing import Any

# Longer values are kept as their checksum; five cases would be larger than all others otherwise.
LONGEST_VALUE_BYTES = 4096


def to_base64(data: bytes | None) -> str | None:
    """Write bytes as JSON can hold them."""
    return None if data is None else base64.b64encode(data).decode()


def shorten(value: str | None) -> str | None:
    """Put ``sha256:<hex>:<length>`` in the place of a long value in base64."""
    if value is None or value.startswith("sha256:"):
        return value
    data = base64.b64decode(value)
    if len(data) <= LONGEST_VALUE_BYTES:
        return value
    return f"sha256:{hashlib.sha256(data).hexdigest()}:{len(data)}"


def modified_ms(root: Path) -> dict[str, int]:
    """Return the mtime of every file below a directory, in ms (floor), by relative path."""
    files = sorted(path for path in root.rglob("*") if path.is_file())
    return {path.relative_to(root).as_posix(): modified_ms_of(path) for path in files}


def modified_ms_of(path: Path) -> int:
    """Return the mtime of a file in ms (floor), as a broker sees it."""
    return path.stat().st_mtime_ns // 1_000_000


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write JSON with one line per row of a list and per short value."""
    path.write_text(_laid_out(content, 0) + "\n")


def _laid_out(value: Any, depth: int) -> str:
    """Spread dicts and lists over lines, unless they are deep down and short."""
    flat = json.dumps(value)
    if not isinstance(value, (dict, list)) or not value or (len(flat) <= 200 and depth > 2):
        return flat
    if isinstance(value, dict):
        indent = " " * depth
        lines = (
            f"{indent} {json.dumps(name)}: {_laid_out(item, depth + 1)}"
            for name, item in value.items()
        )
        return "{\n" + ",\n".join(lines) + f"\n{indent}}}"
    if not any(isinstance(item, (dict, list)) for item in value):
        return flat
    return "[\n" + ",\n".join(json.dumps(item, separators=(",", ":")) for item in value) + "]"
