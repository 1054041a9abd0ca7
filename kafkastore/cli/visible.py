"""Make text from others, such as a topic's name, safe to print on a terminal."""
from __future__ import annotations


def visible(text: str) -> str:
    """Escape control characters, which a terminal would execute; line breaks stay.

    >>> print(visible("orders\\x1b[2J-0"))
    orders\\x1b[2J-0
    """
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() or each == "\n" else each.encode("unicode_escape").decode()
        for each in text
    )
