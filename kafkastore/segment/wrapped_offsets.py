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
    from pathlib import Path

    from numpy.typing import NDArray

_LARGEST = INT64_MAX.to_bytes(8, "big")


class Overlap(NamedTuple):
    """A wrapper whose first message does not follow the batch before.

    `slot` is that of its header; `smallest` is the offset after the batch before.
    """

    slot: int
    position: int
    first_offset: int
    smallest: int

    def error(self, path: Path) -> CorruptBatchError:
        """Return the error for a reader."""
        return CorruptBatchError(
            f"compressed messages begin with offset {self.first_offset}, but offsets here increase "
            f"from {self.smallest} on",
            path=path,
            position=self.position,
        )


def find_overlaps(
    data: memoryview, headers: NDArray[Any], next_offset: int
) -> Iterator[Overlap]:
    """Yield the wrappers among some successive batches that begin too early.

    `data` has the batches of `headers`; `next_offset` follows the batch before the first one.
    """
    is_wrapper = (headers["magic"] < 2) & (headers["base_offset"] < 0)
    for index in np.flatnonzero(is_wrapper & (headers["last_offset"] >= 0)).tolist():
        smallest = int(headers["last_offset"][index - 1]) + 1 if index else next_offset
        position = int(headers["position"][index])
        at = position - int(headers["position"][0])
        first = _first_offset(data[at : at + int(headers["size"][index])])
        if first is not None and first < smallest:
            yield Overlap(index, position, first, smallest)


def _first_offset(wrapper: memoryview) -> int | None:
    """Return the first offset, below 0 if the header's is too small, or None."""
    try:
        return RecordBatch(wrapper).base_offset
    except CorruptionError:
        last = int.from_bytes(wrapper[:8], "big")
    try:  # with an offset that is large enough
        return RecordBatch(_LARGEST + bytes(wrapper[8:])).base_offset - INT64_MAX + last
    except CorruptionError:
        return None  # who decodes it reports it
