"""Text that is shown to people: keys and values, sizes, and names from others."""
from __future__ import annotations

from collections.abc import Iterable

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


def escape_control_characters(text: str) -> str:
    """Escape control characters: orders to a terminal, and forged lines.

    >>> print(escape_control_characters("orders\\x1b[2J-0"))
    orders\\x1b[2J-0
    """
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode() for each in text
    )


def similar_names(
    name: str, known: Iterable[str], most: int = 1, cutoff: float = 0.6
) -> list[str]:
    """Return the known names that a misspelled one may mean, most similar first.

    Case is ignored, and `cutoff` is that of `difflib.get_close_matches`.

    >>> similar_names("ORDRES", ["users", "orders", "Orders"], 3)
    ['orders', 'Orders']
    """
    from difflib import get_close_matches  # commands without a misspelled name do not need it

    by_lower_case: dict[str, list[str]] = {}
    for each in known:
        by_lower_case.setdefault(each.lower(), []).append(each)
    similar = get_close_matches(name.lower(), by_lower_case, most, cutoff)
    return [each for lower in similar for each in by_lower_case[lower]][:most]


def format_size(size: int) -> str:
    """Format a number of bytes with three significant digits.

    >>> format_size(0), format_size(1023), format_size(2048), format_size(5 * 1024**3)
    ('0 B', '1023 B', '2.00 KiB', '5.00 GiB')
    """
    amount, units = float(size), iter(("KiB", "MiB", "GiB", "TiB", "PiB"))
    unit = "B"
    while amount >= 1024 and unit != "PiB":
        amount, unit = amount / 1024, next(units)
    if unit == "B":
        return f"{size} B"
    return f"{amount:.{2 if amount < 10 else 1 if amount < 100 else 0}f} {unit}"
