"""Choose records by their keys, values and headers."""
from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click
import numpy as np
from numpy.typing import NDArray

from kafkastore.formats.records.record_columns import HEADERS_COLUMN

if TYPE_CHECKING:
    from pyarrow import Array, RecordBatch

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])


class RecordFilter(NamedTuple):
    """What keys, values and headers must match, all of it."""

    key: re.Pattern[bytes] | None = None
    value: re.Pattern[bytes] | None = None
    headers: tuple[tuple[bytes, bytes], ...] = ()

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that are compared; empty if every record matches."""
        needed = (("key", self.key), ("value", self.value), (HEADERS_COLUMN, self.headers))
        return tuple(name for name, wanted in needed if wanted)

    def kept(self, batch: RecordBatch) -> RecordBatch:
        """Return the matching rows of a batch, which has the columns and maybe others."""
        import pyarrow as pa

        if not self.columns:
            return batch
        keeps = np.ones(batch.num_rows, np.bool_)
        for name, value in self.headers:
            keeps &= _have_header(batch[HEADERS_COLUMN], name, value)
        for column, pattern in (("key", self.key), ("value", self.value)):
            if pattern is not None:
                _search(batch[column], pattern, keeps)
        return batch if keeps.all() else batch.filter(pa.array(keeps))


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
    pairs = []
    for text in headers:
        name, equals, wanted = os.fsencode(text).partition(b"=")
        if not equals:
            raise click.UsageError(f"--header must be NAME=VALUE, got {text!r}")
        pairs.append((name, wanted))
    return RecordFilter(_pattern("--key", key), _pattern("--value", value), tuple(pairs))


def _pattern(option: str, text: str | None) -> re.Pattern[bytes] | None:
    if text is None:
        return None
    try:
        return re.compile(os.fsencode(text))
    except (re.error, OverflowError, RecursionError) as error:
        raise click.UsageError(
            f"{option} must be a regular expression, got {text!r}: {error}"
        ) from error


def _search(column: Array, pattern: re.Pattern[bytes], keeps: NDArray[np.bool_]) -> None:
    """Clear what is true for values without a match; null never matches."""
    _, offsets, content = column.buffers()
    ends = np.frombuffer(offsets, np.int32)[column.offset :][: len(column) + 1].tolist()
    values = memoryview(b"" if content is None else content)
    if column.null_count:
        keeps &= np.asarray(column.is_valid())
    for row in np.flatnonzero(keeps).tolist():
        # A view of one value: with positions in the whole, ^ would not match at its start.
        keeps[row] = pattern.search(values[ends[row] : ends[row + 1]]) is not None


def _have_header(headers: Array, name: bytes, value: bytes) -> NDArray[np.bool_]:
    """Return which rows have a header with this name and value."""
    import pyarrow as pa
    import pyarrow.compute as pc

    pairs = headers.values
    names = pairs.field("key").cast(pa.binary())
    equal = pc.fill_null(pc.equal(pairs.field("value"), value), False)
    found = pc.and_(pc.equal(names, name), equal)
    before = np.concatenate([[0], np.cumsum(np.asarray(found))])
    ends = np.frombuffer(headers.buffers()[1], np.int32)[headers.offset :][: len(headers) + 1]
    has: NDArray[np.bool_] = np.diff(before[ends]) > 0
    return has
