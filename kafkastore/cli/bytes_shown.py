"""Keys and values, which are bytes, for people and in JSON."""
from __future__ import annotations

import base64
from typing import Any

#: Characters of a key or value that a line shows unless all are asked for.
SHORTENED = 60

_ESCAPES = {ord("\n"): "\\n", ord("\r"): "\\r", ord("\t"): "\\t", ord("\\"): "\\\\"}


def show_bytes(data: bytes | None, limit: int | None = None) -> str:
    """Write a key or value on one line: as text where it is printable UTF-8, else as hex.

    Parameters
    ----------
    data : bytes or None
        The key or value.
    limit : int, optional
        Characters to show at most, besides the note of how many bytes there are.

    Returns
    -------
    str
        No control characters: nothing that a terminal would obey.

    Examples
    --------
    >>> show_bytes(b"a\\nb"), show_bytes(b"\\x00\\xff"), show_bytes(None), show_bytes(b"")
    ('a\\\\nb', '0x00ff', 'null', '""')
    """
    if data is None:
        return "null"
    if not data:
        return '""'
    # A character is at most 4 bytes; a long value is not decoded to its end.
    head = data if limit is None else data[: 4 * limit + 4]
    text = _printable(head, cut=len(head) < len(data))
    shown = "0x" + head.hex() if text is None else text
    if limit is None or (len(shown) <= limit and len(head) == len(data)):
        return shown
    return f"{shown[: limit - 1]}… ({len(data):,} bytes)"


def _printable(data: bytes, *, cut: bool) -> str | None:
    """Decode printable UTF-8; None for anything else."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        if not cut or error.start < len(data) - 3:
            return None
        text = data[: error.start].decode("utf-8")
    escaped = text.translate(_ESCAPES)
    return escaped if escaped.isprintable() else None


def json_bytes(name: str, data: bytes | None) -> dict[str, Any]:
    """Write bytes as one JSON field: text where they are UTF-8, else base64 under another name.

    Parameters
    ----------
    name : str
        The field, such as ``value``.
    data : bytes or None
        What it holds.

    Returns
    -------
    dict
        Either ``{name: text or None}`` or ``{name + "_base64": text}``; both give back the bytes.

    Examples
    --------
    >>> json_bytes("key", b"k"), json_bytes("key", b"\\xff")
    ({'key': 'k'}, {'key_base64': '/w=='})
    """
    if data is None:
        return {name: None}
    try:
        return {name: data.decode("utf-8")}
    except UnicodeDecodeError:
        return {name + "_base64": base64.b64encode(data).decode("ascii")}
