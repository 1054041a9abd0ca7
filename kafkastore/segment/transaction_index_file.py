"""The transaction index file of a segment: read whole, never changed.

It has 34 bytes for each aborted transaction and no padding. Most segments have none.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from kafkastore.arguments import whole_number
from kafkastore.caching import cached_property
from kafkastore.errors import CorruptIndexError
from kafkastore.formats.indexes import transaction_index
from kafkastore.formats.indexes.transaction_index import TxnIndexSearchResult
from kafkastore.paths import to_path
from kafkastore.segment.index_file import base_offset_of
from kafkastore.segment.small_file import read_if_there


class TransactionIndex:
    """The transaction index file of a segment: the transactions aborted in it.

    Parameters
    ----------
    path : path
        The file.
    base_offset : int
        Base offset of the segment.
    data : bytes
        The file's content.

    Notes
    -----
    Source: Kafka 2.4.0 ``TransactionIndex``.

    Examples
    --------
    >>> index = TransactionIndex.open(path)    # doctest: +SKIP
    >>> index.collect_aborted_txns(4700, 4800).aborted_txns    # doctest: +SKIP
    array([(3000, 4711, 4719, 4720)], dtype=[('producer_id', ...
    """

    def __init__(self, path: Path, base_offset: int, data: bytes) -> None:
        self.path = path
        self.base_offset = base_offset
        self.size = len(data)
        self._data = data

    @classmethod
    def open(cls, path: str | os.PathLike[str], base_offset: int | None = None) -> Self:
        """Read an index file; nothing is left open.

        Parameters
        ----------
        path : path-like
            The file. A missing file has no entries: brokers create it for the first abort.
        base_offset : int, optional
            Base offset of the segment; by default the number in the file's name.

        Returns
        -------
        TransactionIndex
            The index as it is now.

        Raises
        ------
        OSError
            If the file cannot be opened.
        NotAFileError
            If it is not a regular file.
        InvalidNameError
            If no base offset is given and the name has none.
        """
        path = to_path(path)
        if base_offset is None:
            base_offset = base_offset_of(path)
        base_offset = whole_number("base_offset", base_offset)
        return cls(path, base_offset, read_if_there(path, CorruptIndexError) or b"")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        """Do nothing: the file is already closed."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.path)!r}, base_offset={self.base_offset})"

    @property
    def entry_size(self) -> int:
        """Size of an entry in bytes."""
        return transaction_index.ENTRY_SIZE

    @property
    def entry_count(self) -> int:
        """Whole entries in the file."""
        return transaction_index.entry_count(self._data)

    @cached_property
    def _entries(self) -> NDArray[np.void]:
        try:
            entries = transaction_index.parse(self._data)
        except CorruptIndexError as error:
            raise error.located(self.path) from error
        entries.flags.writeable = False
        return entries

    def entries(self) -> NDArray[np.void]:
        """Decode all entries.

        Returns
        -------
        numpy.ndarray
            Of dtype `transaction_index.ABORTED_TXN`, read-only.

        Raises
        ------
        CorruptIndexError
            If an entry has an unknown version; the error has the path and byte position. All
            methods that read entries raise it.
        """
        return self._entries

    def entry_bytes(self) -> bytes:
        """Return the whole entries as the file has them, for the functions of `formats`."""
        return self._data[: self.entry_count * transaction_index.ENTRY_SIZE]

    def collect_aborted_txns(
        self, fetch_offset: int, upper_bound_offset: int
    ) -> TxnIndexSearchResult:
        """Find the transactions aborted in this segment that overlap a range of offsets.

        Parameters
        ----------
        fetch_offset, upper_bound_offset : int
            The range, inclusive and exclusive.

        Returns
        -------
        TxnIndexSearchResult
            The transactions, and whether the result is complete without the next segment.
        """
        return transaction_index.collect_aborted_txns(
            self._entries,
            whole_number("fetch_offset", fetch_offset),
            whole_number("upper_bound_offset", upper_bound_offset),
        )

    def truncate_to(self, offset: int) -> int:
        """Count the entries that remain when the log is truncated at an offset.

        Parameters
        ----------
        offset : int
            First offset to drop.

        Returns
        -------
        int
            The number of entries to keep; the file is not changed.
        """
        return transaction_index.truncate_to(self._entries, whole_number("offset", offset))

    def first_disorder(self) -> int:
        """Find the first entry that is impossible or out of order.

        Returns
        -------
        int
            Its slot, or -1 if there is none.
        """
        return transaction_index.first_disorder(self._entries)

    def check(self) -> None:
        """Run a broker's sanity check, and check the size.

        Raises
        ------
        CorruptIndexError
            If the check fails; the error has the path and byte position.
        """
        try:
            transaction_index.check(self._data, self.base_offset)
        except CorruptIndexError as error:
            raise error.located(self.path) from error
