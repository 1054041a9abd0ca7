"""The offsets within wrappers: compressed messages before magic 2.

A wrapper's header has only the offset of its last message, and no checksum covers it.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from kafkastore.arguments import INT64_MAX
from kafkastore.errors import CorruptBatchError, CorruptionError
from kafkastore.formats.records.record_batch import RecordBatch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

_OFFSET_BYTES = 8
_LARGEST = INT64_MAX.to_bytes(_OFFSET_BYTES, "big")
#: With this offset, the messages' own offsets are taken as they are.
_NONE = bytes(_OFFSET_BYTES)


class WrongWrapper(NamedTuple):
    """A wrapper whose offset does not fit its messages, or those before.

    `slot` is that of its header; `smallest` is the offset after the batch before.
    """

    slot: int
    position: int
    smallest: int
    error: CorruptBatchError


def overlap_error(first_offset: int, smallest: int, position: int) -> CorruptBatchError:
    """Return the error for a batch whose first offset is too small."""
    return CorruptBatchError(
        f"messages begin with offset {first_offset}, but offsets here increase from {smallest} on",
        position=position,
    )


def find_wrong_wrappers(
    data: memoryview, headers: NDArray[Any], next_offset: int
) -> Iterator[WrongWrapper]:
    """Yield the wrappers with a wrong offset among some successive batches.

    `data` has the batches of `headers`; `next_offset` follows the batch before the first one.
    """
    is_wrapper = (headers["magic"] < 2) & (headers["base_offset"] < 0)
    for index in np.flatnonzero(is_wrapper & (headers["last_offset"] >= 0)).tolist():
        smallest = int(headers["last_offset"][index - 1]) + 1 if index else next_offset
        position = int(headers["position"][index])
        at = position - int(headers["position"][0])
        wrapper = data[at : at + int(headers["size"][index])]
        error = _error_of(wrapper, int(headers["magic"][index]), smallest, position)
        if error is not None:
            yield WrongWrapper(index, position, smallest, error)


def _error_of(
    wrapper: memoryview, magic: int, smallest: int, position: int
) -> CorruptBatchError | None:
    """Return why a wrapper's offset is wrong; None for unreadable messages."""
    try:
        first = RecordBatch(wrapper).base_offset
    except CorruptionError as error:
        found = _first_offset(wrapper, magic)
        if found is None:
            return None  # who decodes them reports it
        if magic == 0:
            return CorruptBatchError(error.reason, position=position)
        first = found
    return overlap_error(first, smallest, position) if first < smallest else None


def _first_offset(wrapper: memoryview, magic: int) -> int | None:
    """Return the first offset, with another one in the header; None if unreadable."""
    offset = _NONE if magic == 0 else _LARGEST
    try:
        first = RecordBatch(offset + bytes(wrapper[_OFFSET_BYTES:])).base_offset
    except CorruptionError:
        return None
    if magic == 0:
        return first
    return first - INT64_MAX + int.from_bytes(wrapper[:_OFFSET_BYTES], "big")
