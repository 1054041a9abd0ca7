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
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

_LARGEST = INT64_MAX.to_bytes(8, "big")


class WrongWrapper(NamedTuple):
    """A wrapper whose offset does not fit its messages, or those before.

    `slot` is that of its header; `smallest` is the offset after the batch before.
    """

    slot: int
    position: int
    smallest: int
    error: CorruptBatchError


def wrong_offsets(
    first: int, last: int, wrapper_offset: int, smallest: int, position: int
) -> CorruptBatchError | None:
    """Return the error for impossible first or last offsets of a wrapper's messages."""
    if first < smallest:
        what = f"messages begin with offset {first}, but offsets here increase from {smallest} on"
    elif 0 != wrapper_offset < last:
        what = f"messages end with offset {last}, but their wrapper has offset {wrapper_offset}"
    else:
        return None
    return CorruptBatchError(what, position=position)


def decode_error(
    batch: RecordBatch, smallest: int, max_decompressed_bytes: int
) -> CorruptionError | None:
    """Return why a batch's records can't be read; None if they can.

    `smallest` is the offset after the batch before.
    """
    try:
        batch.check_records(max_decompressed_bytes=max_decompressed_bytes)
        if batch.magic == 2 or batch.count is not None:
            return None
        return wrong_offsets(*batch.message_offsets, batch.last_offset, smallest, batch.position)
    except CorruptionError as error:
        return error


def find_wrong_wrappers(
    batch: Callable[[int], memoryview], headers: NDArray[Any], next_offset: int
) -> Iterator[WrongWrapper]:
    """Yield the wrappers with a wrong offset among some successive batches.

    `batch` returns the bytes of one of `headers`; `next_offset` follows the batch before them.
    """
    is_wrapper = (headers["magic"] < 2) & (headers["base_offset"] < 0)
    for index in np.flatnonzero(is_wrapper & (headers["last_offset"] >= 0)).tolist():
        smallest = int(headers["last_offset"][index - 1]) + 1 if index else next_offset
        position = int(headers["position"][index])
        last_offset = int(headers["last_offset"][index])
        if (offsets := _message_offsets(batch(index), last_offset)) is None:
            continue  # who decodes the messages reports it
        error = wrong_offsets(*offsets, last_offset, smallest, position)
        if error is not None:
            yield WrongWrapper(index, position, smallest, error)


def _message_offsets(wrapper: memoryview, last_offset: int) -> tuple[int, int] | None:
    """Return first and last offset, below 0 if the header's is too small; or None."""
    try:
        return RecordBatch(wrapper).message_offsets
    except CorruptionError:
        pass
    try:  # with an offset that is large enough
        first, _ = RecordBatch(_LARGEST + bytes(wrapper[len(_LARGEST) :])).message_offsets
    except CorruptionError:
        return None
    return first - INT64_MAX + last_offset, last_offset
