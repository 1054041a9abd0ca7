"""Format strings as kcat's: ``-f '%t [%p] %o %k %s\\n'``.

Source: kcat 1.7.1 ``format.c``.
"""
from __future__ import annotations

import os
import re

import click

from kafkastore.cli.cat.line_formats import LineFormat, Parts, as_bytes, line_format, visible
from kafkastore.cli.cat.record_lines import Field
from kafkastore.formats.state.file_names import TopicPartition

_FIELDS = {
    b"o": Field.OFFSET,
    b"k": Field.RAW_KEY,
    b"K": Field.KEY_LENGTH,
    b"s": Field.RAW_VALUE,
    b"S": Field.VALUE_LENGTH,
    b"R": Field.VALUE_LENGTH_BYTES,
    b"T": Field.TIMESTAMP,
    b"h": Field.RAW_HEADERS,
}
_TOPIC, _PARTITION = b"t", b"p"
_TOKEN = re.compile(rb"%(.?)|[^%]+", re.DOTALL)
_ESCAPE = re.compile(rb"\\(?:x([0-9a-fA-F]{1,2})|([0-9]{1,3})|(.))", re.DOTALL)
_LETTERS = {b"n": b"\n", b"r": b"\r", b"t": b"\t"}


def format_string(text: str, *, for_terminal: bool) -> LineFormat:
    """Return the format of ``-f``; raise `click.UsageError` for an unknown field."""
    tokens = _tokens(text)

    def parts_of(which: TopicPartition) -> Parts:
        named = {
            _TOPIC: visible(which.topic) if for_terminal else as_bytes(which.topic),
            _PARTITION: b"%d" % which.partition,
        }
        parts: list[bytes | Field] = []
        for letter, literal in tokens:
            part = _FIELDS[letter] if letter in _FIELDS else named.get(letter, literal)
            if isinstance(part, bytes) and parts and isinstance(parts[-1], bytes):
                parts[-1] += part
            else:
                parts.append(part)
        return tuple(parts)

    return line_format(parts_of, for_terminal=for_terminal)


def _tokens(text: str) -> list[tuple[bytes, bytes]]:
    """Return the letter of each field, or a literal."""
    tokens = []
    for found in _TOKEN.finditer(os.fsencode(text)):
        letter = found[1]
        if letter is None:
            tokens.append((b"", _ESCAPE.sub(_unescape, found[0])))
        elif letter == b"%":
            tokens.append((b"", b"%"))
        elif letter in _FIELDS or letter in (_TOPIC, _PARTITION):
            tokens.append((letter, b""))
        else:
            known = ", ".join(f"%{each.decode()}" for each in (*_FIELDS, _TOPIC, _PARTITION, b"%"))
            unknown = os.fsdecode(found[0])
            raise click.UsageError(f"-f: unknown field {unknown!r}; the fields are {known}")
    return tokens


def _unescape(found: re.Match[bytes]) -> bytes:
    hexadecimal, number, letter = found.groups()
    if hexadecimal is not None:
        return bytes([int(hexadecimal, 16)])
    if number is not None:  # as in C, a leading zero means octal
        is_octal = number.startswith(b"0") and number.strip(b"01234567") == b""
        return bytes([int(number, 8 if is_octal else 10) & 0xFF])
    return _LETTERS.get(letter, letter)
