"""The part of `LogFile` that searches and salvage use; `LogFile` imports both."""
from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol


class ReadableLog(Protocol):
    """An open ``.log`` file."""

    @property
    def descriptor(self) -> int:
        """The file descriptor."""

    @property
    def size(self) -> int:
        """Size in bytes when the file was opened."""

    def header_at(self, position: int, /) -> Any | None:
        """Return the header of the complete batch at a byte position, or None."""

    def first_offset_at(self, position: int, /) -> int | None:
        """Return the first offset of the batch at a byte position."""

    def runs(self, starting_position: int, /, *, verify_crc: bool = False) -> Iterator[Any]:
        """Scan batch headers forward, one `BatchRun` at a time."""
