"""Checks of arguments, whose errors name them; limits of int32 and int64."""
from __future__ import annotations

import operator
import os
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, SupportsIndex, TypeVar

from kafkastore.clock import EPOCH, MILLISECOND
from kafkastore.errors import ArgumentTypeError, ArgumentValueError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

INT32_MAX = 2**31 - 1
INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
#: The largest offset of a record: the log end offset after it must fit 64 bits.
LARGEST_OFFSET = INT64_MAX - 1

#: From 1970: every ms of these years fits 64 bits.
_MOST_YEARS = 290_000_000

_Choice = TypeVar("_Choice", bound=str)


def whole_number(
    name: str, value: SupportsIndex, smallest: int = INT64_MIN, largest: int = INT64_MAX
) -> int:
    """Return an integer argument within an inclusive range as an int.

    Floats are refused, even 7.0: offsets above 2**53 do not fit one. So are bools: True is not 1.
    """
    if isinstance(value, bool):
        raise ArgumentTypeError(name, "an int", value)
    try:
        number = operator.index(value)
    except TypeError:
        raise ArgumentTypeError(name, "an int", value) from None
    if number < smallest and largest == INT64_MAX and smallest > INT64_MIN:
        raise ArgumentValueError(name, f"at least {smallest}", number)
    if not smallest <= number <= largest:
        raise ArgumentValueError(name, f"from {smallest} to {largest}", number)
    return number


def timestamp_ms(
    name: str, value: SupportsIndex | datetime, smallest: int = INT64_MIN
) -> int:
    """Return a time, an int or a datetime with a time zone, in ms since 1970.

    Rounded up: records have whole ms, so the same ones are before it, and at or after it. A
    `numpy.datetime64` is in UTC.
    """
    if isinstance(value, datetime):
        check_zone(name, value)
        return whole_number(name, -((EPOCH - value) // MILLISECOND), smallest)
    if hasattr(value, "__index__"):
        return whole_number(name, value, smallest)
    times: Any = value
    if getattr(getattr(times, "dtype", None), "kind", "") == "M":
        return whole_number(name, _datetimes_ms(name, times).item(), smallest)
    raise ArgumentTypeError(name, "an int (ms since 1970) or a datetime", value)


def timestamps_ms(name: str, values: ArrayLike) -> ArrayLike:
    """Return times in ms since 1970, as `timestamp_ms` does; numbers are not checked."""
    import numpy as np

    try:
        array = np.asarray(values)
    except ValueError:  # raised for nested lists; the caller refuses them
        return values
    if array.dtype.kind == "M":
        return _datetimes_ms(name, array)
    if array.dtype.kind == "O" and array.ndim == 1:
        return np.array([timestamp_ms(name, each) for each in array.tolist()], np.int64)
    return array


def _datetimes_ms(name: str, times: NDArray[Any]) -> NDArray[Any]:
    """Return `numpy.datetime64` in UTC as ms since 1970, rounded up."""
    import numpy as np

    if np.isnat(times).any():
        raise ArgumentValueError(name, "a time", "NaT")
    years = times.astype("datetime64[Y]").astype(np.int64)
    if (abs(years) > _MOST_YEARS).any():
        raise ArgumentValueError(name, "a time whose ms since 1970 fit 64 bits", times)
    whole = times.astype("datetime64[ms]")
    return np.asarray(whole.astype(np.int64) + (whole < times))


def check_zone(name: str, value: datetime) -> None:
    """Refuse a datetime without a time zone, which is another time on each machine."""
    if value.tzinfo is None or value.utcoffset() is None:  # also `pandas.NaT`
        raise ArgumentValueError(
            name, "a datetime with a time zone, such as datetime(2024, 3, 1, tzinfo=UTC)", value
        )


def thread_count(threads: SupportsIndex | None) -> int:
    """Return a number of threads; None: one for each usable processor."""
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


def check_callable(name: str, value: object) -> None:
    """Refuse an optional argument that can't be called."""
    if value is not None and not callable(value):
        raise ArgumentTypeError(name, "callable", value)


def check_keywords(function: str, options: Mapping[str, Any], known: type) -> None:
    """Refuse options that are not among the arguments of a function, as Python does."""
    for name in options:
        if name not in known.__annotations__:
            raise TypeError(f"{function}() got an unexpected keyword argument {name!r}")


def check_one_dimension(name: str, dimensions: int) -> None:
    """Refuse an array with another number of dimensions."""
    if dimensions != 1:
        raise ArgumentValueError(name, "an array of 1 dimension", dimensions)


def check_kind(name: str, value: object, kind: type[object]) -> None:
    """Refuse an argument of another class, such as a path in place of an open store."""
    if not isinstance(value, kind):
        raise ArgumentTypeError(name, f"a {kind.__name__}", value)
