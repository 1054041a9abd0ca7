"""Make text from others, such as a topic's name, safe to print on a terminal."""
from __future__ import annotations


def escape_control_characters(text: str) -> str:
    """Escape control characters, which a terminal would execute; line breaks stay.

    >>> print_text("orders\\x1b[2J-0")
    orders\\x1b[2J-0
    """
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() or each == "\n" else each.encode("unicode_escape").decode()
        for each in text
    )


def print_text(text: str) -> None:
    """Print text to stdout with its control characters escaped."""
    print(escape_control_characters(text))
