"""Format keys and values, which are bytes, for people and for JSON."""
from __future__ import annotations

import base64
import codecs
from collections.abc import Iterator
from typing import Any

#: Characters of a key or value on one line, unless the user asks for all.
SHORTENED = 60
#: Larger keys and values are written in pieces of this size and never copied whole. A multiple of
#: 3, because base64 encodes three bytes at a time.
PIECE_BYTES = 3 * 256 * 1024

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


def format_bytes_in_pieces(data: bytes) -> Iterator[str]:
    """Yield a large key or value, formatted as by `format_bytes`, in pieces."""
    is_text = _is_utf8(data) and all(
        text.translate(_ESCAPES).isprintable() for text in _decoded(data)
    )
    if is_text:
        yield from (text.translate(_ESCAPES) for text in _decoded(data))
    else:
        yield "0x"
        yield from (piece.hex() for piece in _pieces(data))


def json_bytes_in_pieces(name: str, data: bytes) -> tuple[str, Iterator[str]]:
    """Return the field name and the text in pieces of what `json_bytes` returns."""
    if _is_utf8(data):
        return name, _decoded(data)
    return name + "_base64", (base64.b64encode(piece).decode("ascii") for piece in _pieces(data))


def _pieces(data: bytes) -> Iterator[memoryview]:
    view = memoryview(data)
    return (view[at : at + PIECE_BYTES] for at in range(0, len(data), PIECE_BYTES))


def _decoded(data: bytes) -> Iterator[str]:
    """Decode UTF-8 piece by piece; raise `UnicodeDecodeError` for other bytes."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    yield from (decoder.decode(piece) for piece in _pieces(data))
    yield decoder.decode(b"", final=True)


def _is_utf8(data: bytes) -> bool:
    try:
        for _ in _decoded(data):
            pass
    except UnicodeDecodeError:
        return False
    return True


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
