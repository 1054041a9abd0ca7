"""Checks of arguments, with errors that name the argument; the limits of int32 and int64."""
from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import SupportsIndex, TypeVar

INT32_MAX = 2**31 - 1
INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1

_Choice = TypeVar("_Choice", bound=str)


def whole_number(
    name: str, value: SupportsIndex, smallest: int = INT64_MIN, largest: int = INT64_MAX
) -> int:
    """Return an integer argument of any integer type as an int, within an inclusive range.

    Floats are refused, even 7.0: offsets above 2**53 do not fit one.
    """
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be an int, got {value!r}") from None
    if number < smallest and largest == INT64_MAX and smallest > INT64_MIN:
        raise ValueError(f"{name} must be at least {smallest}, got {number}")
    if not smallest <= number <= largest:
        raise ValueError(f"{name} must be from {smallest} to {largest}, got {number}")
    return number


def check_choice(name: str, value: str, choices: Sequence[_Choice]) -> _Choice:
    """Return the one of the choices that an argument equals."""
    for choice in choices:
        if value == choice:
            return choice
    *others, last = map(repr, choices)
    raise ValueError(f"{name} must be {', '.join(others)} or {last}, got {value!r}")


def check_collection(name: str, value: object) -> None:
    """Refuse one string in place of a collection of strings."""
    if isinstance(value, str):
        raise TypeError(f"{name} must be a collection such as [{value!r}], got {value!r}")


def check_kind(name: str, value: object, kind: type[object]) -> None:
    """Refuse an argument of another class, such as a path in place of an open store."""
    if not isinstance(value, kind):
        raise TypeError(f"{name} must be a {kind.__name__}, got {value!r}")
