"""Values that several layers share: index entries, and the results of lookups.

The named tuples are for one entry, the numpy dtypes for many. Offsets are absolute in both; only
the dtypes that end in ``_ON_DISK`` have the bytes of the files.
"""

from __future__ import annotations

from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from kafkastore.errors import ArgumentTypeError, ArgumentValueError


class OffsetPosition(NamedTuple):
    """An offset index entry: records at or after `offset` lie at or after `position`."""

    offset: int
    position: int


class TimestampOffset(NamedTuple):
    """A time index entry: no record up to `offset` is later than `timestamp` (ms)."""

    timestamp: int
    offset: int


EntryT = TypeVar("EntryT", OffsetPosition, TimestampOffset)


class LogOffsetPosition(NamedTuple):
    """Byte position and size of the batch in a ``.log`` file that holds an offset."""

    offset: int
    position: int
    size: int


class TimestampAndOffset(NamedTuple):
    """A record found by timestamp (ms); `leader_epoch` is None if the batch has none."""

    timestamp: int
    offset: int
    leader_epoch: int | None = None


NO_TIMESTAMP = -1

OFFSET_ENTRY = np.dtype([("offset", "<i8"), ("position", "<i4")])
"""One decoded offset index entry; 12 bytes, packed."""

TIME_ENTRY = np.dtype([("timestamp", "<i8"), ("offset", "<i8")])
"""One decoded time index entry; 16 bytes."""

OFFSET_ENTRY_ON_DISK = np.dtype([("relative_offset", ">i4"), ("position", ">i4")])
"""One offset index entry as the file has it; 8 bytes."""

TIME_ENTRY_ON_DISK = np.dtype([("timestamp", ">i8"), ("relative_offset", ">i4")])
"""One time index entry as the file has it; 12 bytes."""

TIMESTAMP_AND_OFFSET = np.dtype(
    [("timestamp", "<i8"), ("offset", "<i8"), ("leader_epoch", "<i4")]
)
"""One `TimestampAndOffset`; 20 bytes, packed. -1 each where nothing was found."""

IN_REMOTE_STORAGE = -2
"""The offset in one `TIMESTAMP_AND_OFFSET` whose record is in remote storage."""


def as_targets(values: npt.ArrayLike) -> npt.NDArray[np.int64]:
    """Return lookup targets as a contiguous int64 array, without a copy if possible.

    Raises `ArgumentTypeError` if a value would change, as floats and unsigned 64-bit integers
    might, and `ArgumentValueError` for more than one dimension.
    """
    try:
        array = np.asarray(values)
    except ValueError:  # raised by numpy for nested lists of different lengths
        raise ArgumentValueError("targets", "an array of 1 dimension", values) from None
    if array.ndim > 1:
        raise ArgumentValueError("targets", "an array of 1 dimension", array.ndim)
    if array.size and not np.can_cast(array.dtype, np.int64):
        raise ArgumentTypeError("targets", "an array of int64 (times: ms since 1970)", array.dtype)
    targets = array.astype(np.int64, copy=False)
    return np.require(targets, requirements=("C_CONTIGUOUS", "ALIGNED"))
