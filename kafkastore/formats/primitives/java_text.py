"""Text parsed as Java does in brokers: integers, lines, blanks, properties.

Python's own functions accept more (``int("1_0")``, ``int(" 1 ")``, ``str.split`` at other blanks):
with them, files that a broker refuses would pass.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from kafkastore.arguments import INT32_MAX, INT64_MAX

# Character.digit accepts every decimal digit, but parseInt reads single UTF-16 units, so that
# digits beyond U+FFFF are not accepted.
_INT = re.compile(r"[+-]?\d+")
_BLANKS = re.compile(r"[ \t\n\x0b\f\r]+")
_LINE_END = re.compile(rb"\r\n|\r|\n")
_PROPERTY_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


class JavaTextError(ValueError):
    """Text that Java would refuse."""


def parse_int32(text: str) -> int:
    """Parse an int32 as ``Integer.parseInt`` does.

    The text is an optional sign and decimal digits of any script. Raises `JavaTextError` if
    Java would throw a NumberFormatException.

    >>> parse_int32("+007")
    7
    """
    return _parse_int(text, INT32_MAX)


def parse_int64(text: str) -> int:
    """Parse a number as ``Long.parseLong`` does; see `parse_int32`."""
    return _parse_int(text, INT64_MAX)


def _parse_int(text: str, largest: int) -> int:
    """Parse an integer from -largest - 1 to largest."""
    if _INT.fullmatch(text) is None or max(text) > "\uffff":
        raise JavaTextError(f"not an int: {text!r}")
    number = int(text)
    if not -largest - 1 <= number <= largest:
        raise JavaTextError(f"not an int of {largest.bit_length() + 1} bits: {text!r}")
    return number


def split_at_blanks(line: str) -> list[str]:
    r"""Split a line at ASCII blanks, as ``Pattern.compile("\\s+").split`` does.

    A blank at the start gives an empty first part; blanks at the end give none.

    >>> split_at_blanks(" t  0 ")
    ['', 't', '0']
    """
    parts = _BLANKS.split(line)
    while parts and not parts[-1]:
        parts.pop()
    return parts or ([""] if line == "" else [])


def lines_with_positions(data: bytes) -> Iterator[tuple[int, bytes]]:
    r"""Yield position and bytes of the lines that ``BufferedReader.readLine`` returns.

    Lines end in LF, CR or CR LF, which are left out; the last line may lack its end.

    >>> list(lines_with_positions(b"0\n1\r\n"))
    [(0, b'0'), (2, b'1')]
    """
    start = 0
    for end in _LINE_END.finditer(data):
        yield start, data[start : end.start()]
        start = end.end()
    if start < len(data):
        yield start, data[start:]


def parse_properties(data: bytes) -> dict[str, str]:
    r"""Parse ISO 8859-1 bytes as ``java.util.Properties.load`` does, in file order.

    A repeated key has its last value. Raises `JavaTextError` (reason, byte position) for a ``\u``
    without four hexadecimal digits.

    >>> parse_properties(b"# made by hand\nbroker.id=0\ncluster.id : a\\u002db\n")
    {'broker.id': '0', 'cluster.id': 'a-b'}
    """
    properties = {}
    for position, line in _logical_lines(data):
        key_end = 0
        while key_end < len(line) and line[key_end] not in "=: \t\f":
            key_end += 2 if line[key_end] == "\\" else 1
        value = line[key_end:].lstrip(" \t\f")
        if value[:1] in ("=", ":"):
            value = value[1:].lstrip(" \t\f")
        properties[_unescaped(line[:key_end], position)] = _unescaped(value, position)
    return properties


def _logical_lines(data: bytes) -> Iterator[tuple[int, str]]:
    """Yield properties lines: continued ones joined, no comments or blank ones."""
    pieces: list[str] = []
    first_position = -1
    for position, raw in lines_with_positions(data):
        line = raw.decode("latin-1").lstrip(" \t\f")
        if first_position < 0:
            if not line or line[0] in "#!":
                continue
            first_position = position
        backslashes = len(line) - len(line.rstrip("\\"))
        continues = backslashes % 2 == 1
        pieces.append(line[:-1] if continues else line)
        at_end = position + len(raw) >= len(data)
        if continues and not at_end:
            continue
        whole = "".join(pieces)
        if whole or continues:  # if the file ends in a backslash, even "" is a line
            yield first_position, whole
        pieces, first_position = [], -1
    if any(pieces):
        yield first_position, "".join(pieces)


def _unescaped(text: str, position: int) -> str:
    r"""Replace ``\n``, ``\u0041`` and the like; otherwise drop the backslash."""
    if "\\" not in text:
        return text
    out = []
    at = 0
    while at < len(text):
        character = text[at]
        at += 1
        if character == "\\" and at < len(text):
            character = text[at]
            at += 1
            if character == "u":
                digits = text[at : at + 4]
                if re.fullmatch(r"[0-9A-Fa-f]{4}", digits) is None:
                    raise JavaTextError(r"a \u escape needs four hexadecimal digits", position)
                character = chr(int(digits, 16))
                at += 4
            else:
                character = _PROPERTY_ESCAPES.get(character, character)
        out.append(character)
    return "".join(out)
