"""Make text from others, such as a topic's name, safe to print on a terminal."""
from __future__ import annotations


def escape_control_characters(text: str) -> str:
    """Escape control characters: orders to a terminal, and forged lines.

    >>> print_text("orders\\x1b[2J-0")
    orders\\x1b[2J-0
    """
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode() for each in text
    )


def print_text(*lines: str) -> None:
    """Print lines to stdout with their control characters escaped."""
    for line in lines:
        print(escape_control_characters(line))
