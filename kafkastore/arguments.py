"""Checks of arguments, whose errors name them; limits of int32 and int64."""
from __future__ import annotations

import operator
import os
from collections.abc import Iterable, Sequence
from typing import SupportsIndex, TypeVar

from kafkastore.errors import ArgumentTypeError, ArgumentValueError

INT32_MAX = 2**31 - 1
INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
#: The largest offset of a record: the log end offset after it must fit 64 bits.
LARGEST_OFFSET = INT64_MAX - 1

_Choice = TypeVar("_Choice", bound=str)


def whole_number(
    name: str, value: SupportsIndex, smallest: int = INT64_MIN, largest: int = INT64_MAX
) -> int:
    """Return an integer argument within an inclusive range as an int.

    Floats are refused, even 7.0: offsets above 2**53 do not fit one.
    """
    try:
        number = operator.index(value)
    except TypeError:
        raise ArgumentTypeError(name, "an int", value) from None
    if number < smallest and largest == INT64_MAX and smallest > INT64_MIN:
        raise ArgumentValueError(name, f"at least {smallest}", number)
    if not smallest <= number <= largest:
        raise ArgumentValueError(name, f"from {smallest} to {largest}", number)
    return number


def thread_count(threads: SupportsIndex | None) -> int:
    """Return a number of threads; None means one for each processor this process may use."""
    if threads is not None:
        return whole_number("threads", threads, 1)
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def check_choice(name: str, value: str, choices: Sequence[_Choice]) -> _Choice:
    """Return the one of the choices that an argument equals."""
    for choice in choices:
        if value == choice:
            return choice
    *others, last = map(repr, choices)
    raise ArgumentValueError(name, f"{', '.join(others)} or {last}" if others else last, value)


def check_collection(name: str, value: object) -> None:
    """Refuse one string in place of a collection of strings, or no collection."""
    if isinstance(value, str):
        raise ArgumentTypeError(name, f"a collection such as [{value!r}]", value)
    if value is not None and not isinstance(value, Iterable):
        raise ArgumentTypeError(name, "a collection", value)


def check_one_dimension(name: str, dimensions: int) -> None:
    """Refuse an array with another number of dimensions."""
    if dimensions != 1:
        raise ArgumentValueError(name, "an array of 1 dimension", dimensions)


def check_kind(name: str, value: object, kind: type[object]) -> None:
    """Refuse an argument of another class, such as a path in place of an open store."""
    if not isinstance(value, kind):
        raise ArgumentTypeError(name, f"a {kind.__name__}", value)
