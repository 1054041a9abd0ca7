"""Text that somebody else chose, such as a topic's name, made harmless for a terminal."""
from __future__ import annotations


def visible(text: str) -> str:
    """Write control characters as escapes: a terminal would obey them.

    Parameters
    ----------
    text : str
        May have lines.

    Returns
    -------
    str
        The same lines.

    Examples
    --------
    >>> print(visible("orders\\x1b[2J-0"))
    orders\\x1b[2J-0
    """
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() or each == "\n" else each.encode("unicode_escape").decode()
        for each in text
    )
