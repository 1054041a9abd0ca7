"""Write keys and values, which are bytes, as fields of JSON."""
from __future__ import annotations

import base64
from typing import Any


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
