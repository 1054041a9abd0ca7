"""Choose records by their keys, values and headers."""
from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click
import numpy as np
from numpy.typing import NDArray

from kafkastore.formats.primitives.record_buffers import BinaryColumn, RecordBuffers
from kafkastore.formats.records.record_columns import HEADERS_COLUMN

if TYPE_CHECKING:
    from pyarrow import RecordBatch

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])


class RecordFilter(NamedTuple):
    """What keys, values and headers must match, all of it."""

    key: re.Pattern[bytes] | None = None
    value: re.Pattern[bytes] | None = None
    headers: tuple[bytes, ...] = ()

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that are compared; empty if every record matches."""
        needed = (("key", self.key), ("value", self.value), (HEADERS_COLUMN, self.headers))
        return tuple(name for name, wanted in needed if wanted)

    def kept(self, batch: RecordBatch | RecordBuffers) -> RecordBatch | RecordBuffers:
        """Return the matching rows of a batch, which has the columns and maybe others."""
        if not self.columns:
            return batch
        buffers = _buffers_of(batch)
        keeps = np.ones(buffers.num_rows, np.bool_)
        for wanted in self.headers:
            keeps &= _have_header(buffers, wanted)
        for column, pattern in (("key", self.key), ("value", self.value)):
            if pattern is not None:
                _search(buffers, column, pattern, keeps)
        return batch if keeps.all() else filter_rows(batch, keeps)


def filter_rows(
    batch: RecordBatch | RecordBuffers, keeps: NDArray[np.bool_]
) -> RecordBatch | RecordBuffers:
    """Return the rows for which a value is true."""
    if isinstance(batch, RecordBuffers):
        return batch.filter(keeps)
    import pyarrow as pa

    bits = np.packbits(keeps, bitorder="little")  # `pyarrow.array` would import pandas
    return batch.filter(pa.Array.from_buffers(pa.bool_(), len(keeps), [None, pa.py_buffer(bits)]))


def _buffers_of(batch: RecordBatch | RecordBuffers) -> RecordBuffers:
    if isinstance(batch, RecordBuffers):
        return batch
    from kafkastore.log.records_as_arrow import buffers_of

    return buffers_of(batch)


def filter_options(function: FunctionT) -> FunctionT:
    """Add ``--key``, ``--value`` and ``--header``, for `parse_filter`."""
    options = (
        click.option("--key", "key", metavar="REGEX", help="Only keys in which this is found."),
        click.option(
            "--value", "value", metavar="REGEX", help="Only values in which this is found."
        ),
        click.option(
            "--header", "header", multiple=True, metavar="NAME=VALUE",
            help="Only records with this header; may be repeated: all must be there.",
        ),
    )
    for option in reversed(options):
        function = option(function)
    return function


def parse_filter(key: str | None, value: str | None, headers: Sequence[str]) -> RecordFilter:
    """Return the filter that the options request."""
    for text in headers:
        if "=" not in text:
            raise click.UsageError(f"--header must be NAME=VALUE, got {text!r}")
    wanted = tuple(map(os.fsencode, headers))
    return RecordFilter(_pattern("--key", key), _pattern("--value", value), wanted)


def _pattern(option: str, text: str | None) -> re.Pattern[bytes] | None:
    if text is None:
        return None
    try:
        return re.compile(os.fsencode(text))
    except (re.error, OverflowError, RecursionError) as error:
        raise click.UsageError(
            f"{option} must be a regular expression, got {text!r}: {error}"
        ) from error


def _search(
    batch: RecordBuffers, name: str, pattern: re.Pattern[bytes], keeps: NDArray[np.bool_]
) -> None:
    """Clear what is true for values without a match; null never matches."""
    column, rows = batch.binary(name), batch.rows
    keeps &= column.is_valid()[rows]
    ends = column.ends[rows[0] : rows[-1] + 2].tolist()
    for place in np.flatnonzero(keeps).tolist():
        row = int(rows[place] - rows[0])
        # A view of one value: with positions in the whole, ^ would not match at its start.
        found = pattern.search(column.content[ends[row] : ends[row + 1]])
        keeps[place] = found is not None


def _have_header(batch: RecordBuffers, wanted: bytes) -> NDArray[np.bool_]:
    """Return which rows have this ``name=value``; the name may have ``=`` too."""
    *_, ends, count, names, values = batch.columns[HEADERS_COLUMN]
    found = np.zeros(count, np.bool_)
    for equals in (place for place, byte in enumerate(wanted) if byte == ord("=")):
        name, value = wanted[:equals], wanted[equals + 1 :]
        are_named = _equal(BinaryColumn(names), name, count)
        found |= are_named & _equal(BinaryColumn(values), value, count)
    before = np.concatenate([[0], np.cumsum(found)])
    ends = np.frombuffer(ends, np.int32)
    has: NDArray[np.bool_] = before[ends[batch.rows + 1]] > before[ends[batch.rows]]
    return has


def _equal(column: BinaryColumn, wanted: bytes, count: int) -> NDArray[np.bool_]:
    """Return which of `count` values are equal to one; null never is."""
    ends = column.ends[: count + 1]
    equal: NDArray[np.bool_] = column.is_valid()[:count] & (np.diff(ends) == len(wanted))
    if not wanted:
        return equal
    content = np.frombuffer(column.content, np.uint8)
    alike = np.flatnonzero(equal)
    for at, byte in enumerate(wanted):
        alike = alike[content[ends[alike] + at] == byte]
    equal[:] = False
    equal[alike] = True
    return equal
