"""What callers pass: numbers taken whole, wrong kinds refused by the argument's name."""
from __future__ import annotations

import operator
from typing import SupportsIndex

from kafkastore.formats.java_text import INT64_MAX, INT64_MIN


def whole_number(
    name: str, value: SupportsIndex, smallest: int = INT64_MIN, largest: int = INT64_MAX
) -> int:
    """Return an argument as an int.

    Parameters
    ----------
    name : str
        The argument's name, for the error.
    value : int
        What was passed; integers of numpy are as good. A float is none, whatever its value: offsets
        above 2^53 do not fit one.
    smallest, largest : int
        Both inclusive; by default those of an int64.

    Returns
    -------
    int

    Raises
    ------
    TypeError
        If it is no whole number.
    ValueError
        If it is outside of the range.

    Examples
    --------
    >>> whole_number("start_offset", "7")
    Traceback (most recent call last):
    ...
    TypeError: start_offset is a whole number, not '7'
    """
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} is a whole number, not {value!r}") from None
    if number < smallest and largest == INT64_MAX and smallest > INT64_MIN:
        raise ValueError(f"{name} is at least {smallest}, not {number}")
    if not smallest <= number <= largest:
        raise ValueError(f"{name} is a whole number from {smallest} to {largest}, not {number}")
    return number


def check_kind(name: str, value: object, kind: type[object]) -> None:
    """Refuse an argument of another kind, such as a path in place of what is opened there.

    Parameters
    ----------
    name : str
        The argument's name, for the error.
    value : object
        What was passed.
    kind : type
        What it must be.

    Raises
    ------
    TypeError
        If it is something else.
    """
    if not isinstance(value, kind):
        raise TypeError(f"{name} is a {kind.__name__}, not {value!r}")
