"""What searches and salvage need of a `LogFile`, which uses both."""
from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol


class ReadableLog(Protocol):
    """An open ``.log`` file."""

    @property
    def descriptor(self) -> int:
        """Its file descriptor."""

    @property
    def size(self) -> int:
        """Bytes when it was opened."""

    def header_at(self, position: int, /) -> Any | None:
        """Return the header of the batch at a byte position; None where none is whole."""

    def first_offset_at(self, position: int, /) -> int | None:
        """Return the first offset of the batch at a byte position."""

    def runs(self, starting_position: int, /, *, verify_crc: bool = False) -> Iterator[Any]:
        """Scan batch headers forward, a `BatchRun` at a time."""
