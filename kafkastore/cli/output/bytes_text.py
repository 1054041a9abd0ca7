"""Format keys and values, which are bytes, for people and for JSON."""
from __future__ import annotations

import base64
from typing import Any

#: Characters of a key or value on one line, unless the user asks for all.
SHORTENED = 60

_ESCAPES = {ord("\n"): "\\n", ord("\r"): "\\r", ord("\t"): "\\t", ord("\\"): "\\\\"}


def format_bytes(data: bytes | None, limit: int | None = None) -> str:
    """Format a key or value on one line: printable UTF-8 as text, else hex.

    `limit` is the maximum of characters, without the note of the total size. The result has no
    control characters, so that a terminal cannot execute any.

    >>> format_bytes(b"a\\nb"), format_bytes(b"\\x00\\xff"), format_bytes(None), format_bytes(b"")
    ('a\\\\nb', '0x00ff', 'null', '""')
    """
    if data is None:
        return "null"
    if not data:
        return '""'
    # A character has at most 4 bytes in UTF-8; do not decode more than needed.
    head = data if limit is None else data[: 4 * limit + 4]
    text = _printable(head, cut=len(head) < len(data))
    shown = "0x" + head.hex() if text is None else text
    if limit is None or (len(shown) <= limit and len(head) == len(data)):
        return shown
    return f"{shown[: limit - 1]}… ({len(data):,} bytes)"


def _printable(data: bytes, *, cut: bool) -> str | None:
    """Decode printable UTF-8; return None for anything else."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        if not cut or error.start < len(data) - 3:
            return None
        text = data[: error.start].decode("utf-8")
    escaped = text.translate(_ESCAPES)
    return escaped if escaped.isprintable() else None


def json_bytes(name: str, data: bytes | None) -> dict[str, Any]:
    """Return bytes as one JSON field: UTF-8 as text, else base64 under another name.

    The result is ``{name: text or None}`` or ``{name + "_base64": text}``; both can be converted
    back to the same bytes.

    >>> json_bytes("key", b"k"), json_bytes("key", b"\\xff")
    ({'key': 'k'}, {'key_base64': '/w=='})
    """
    if data is None:
        return {name: None}
    try:
        return {name: data.decode("utf-8")}
    except UnicodeDecodeError:
        return {name + "_base64": base64.b64encode(data).decode("ascii")}
