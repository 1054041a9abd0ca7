"""Rows of the columns of records, as buffers in Arrow's layout, without Arrow."""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

#: The columns of numbers, as NumPy's types.
_NUMBERS = {
    "offset": np.int64,
    "timestamp": np.int64,
    "timestampType": np.int32,
    "leader_epoch": np.int32,
    "producer_id": np.int64,
    "producer_epoch": np.int32,
    "is_transactional": np.bool_,
    "is_control": np.bool_,
}


class BinaryColumn:
    """The values of a column of bytes, by row; None for null."""

    def __init__(self, parts: tuple[int, Any, Any, Any]) -> None:
        _, validity, ends, content = parts
        self._validity, self.ends = validity, np.frombuffer(ends, np.int32)
        self.content = memoryview(b"" if content is None else content)
        self._copy: bytes | None = None

    def is_valid(self) -> NDArray[np.bool_]:
        """Return which values are not null."""
        if self._validity is None:
            return np.ones(len(self.ends) - 1, np.bool_)
        bits = np.unpackbits(np.frombuffer(self._validity, np.uint8), bitorder="little")
        return bits[: len(self.ends) - 1].view(np.bool_)

    def __getitem__(self, row: int) -> bytes | None:
        """Return one value."""
        if self._validity is not None and not self._validity_bit(row):
            return None
        return bytes(self.content[self.ends[row] : self.ends[row + 1]])

    def take(self, rows: NDArray[np.intp]) -> list[bytes | None]:
        """Return several values; of many, this is faster than one by one."""
        if self._copy is None:
            self._copy = bytes(self.content)
        copy, starts, ends = self._copy, self.ends[rows].tolist(), self.ends[rows + 1].tolist()
        places = zip(starts, ends, strict=True)
        if self._validity is None:
            return [copy[start:end] for start, end in places]
        return [
            copy[start:end] if is_valid else None
            for is_valid, (start, end) in zip(self.is_valid()[rows].tolist(), places, strict=True)
        ]

    def _validity_bit(self, row: int) -> int:
        return memoryview(self._validity)[row >> 3] >> (row & 7) & 1


class RecordBuffers(NamedTuple):
    """Some rows of columns that `RecordColumns.take` returned.

    They are those from `first` up to `end`; with `chosen`, which has a value for each row from 0
    on, only those for which it is true. Timestamps are in ms.
    """

    columns: Mapping[str, Any]
    first: int
    end: int
    chosen: NDArray[np.bool_] | None = None

    @property
    def rows(self) -> NDArray[np.intp]:
        """The numbers of the rows within the columns."""
        if self.chosen is None:
            return np.arange(self.first, self.end)
        return np.flatnonzero(self.chosen[self.first : self.end]) + self.first

    @property
    def num_rows(self) -> int:
        """How many rows there are."""
        if self.chosen is None:
            return self.end - self.first
        return int(np.count_nonzero(self.chosen[self.first : self.end]))

    @property
    def nbytes(self) -> int:
        """How many bytes the columns occupy."""
        return sum(map(_size, self.columns.values()))

    def slice(self, start: int, count: int) -> Self:
        """Return some rows, at most `count`."""
        if self.chosen is None:
            first = min(self.first + start, self.end)
            return self._replace(first=first, end=min(first + count, self.end))
        rows = self.rows[start : start + count]
        if not len(rows):
            return self._replace(end=self.first)
        return self._replace(first=int(rows[0]), end=int(rows[-1]) + 1)

    def filter(self, keeps: NDArray[np.bool_]) -> Self:
        """Return the rows for which a value is true."""
        chosen = np.zeros(self.end, np.bool_)
        chosen[self.rows[keeps]] = True
        return self._replace(chosen=chosen)

    def numbers(self, name: str) -> NDArray[Any]:
        """Return a column of numbers."""
        column = self.columns[name]
        buffer = column[2] if name == "timestamp" else column
        values: NDArray[Any] = np.frombuffer(buffer, _NUMBERS[name])
        found = values[self.first : self.end]
        return found if self.chosen is None else values[self.rows]

    def binary(self, name: str) -> BinaryColumn:
        """Return the keys or the values, by `rows`."""
        return BinaryColumn(self.columns[name])


def _size(part: Any) -> int:
    """Return the bytes of a column's buffers."""
    if part is None or isinstance(part, int):
        return 0
    return sum(map(_size, part)) if isinstance(part, tuple) else memoryview(part).nbytes
