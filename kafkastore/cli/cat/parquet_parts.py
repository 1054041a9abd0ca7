"""Join Parquet files that threads wrote, each with one row group, into one file.

The bytes of the row groups are copied as they are, the footers become one.
"""
from __future__ import annotations

from typing import BinaryIO

from kafkastore.cli.cat.parquet_footer import JoinedFooter

MAGIC = b"PAR1"


class PartsWriter:
    """Joins Parquet files with the same columns; the first may be without rows."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._position = file.write(MAGIC)
        self._footer = JoinedFooter()

    @property
    def is_empty(self) -> bool:
        """Whether nothing was written yet."""
        return self._footer.is_empty

    def write(self, part: memoryview) -> None:
        """Append the row groups of a Parquet file with the same schema."""
        size = int.from_bytes(part[-8:-4], "little")
        content = part[len(MAGIC) : len(part) - 8 - size]
        self._footer.add(part[len(part) - 8 - size : -8], self._position - len(MAGIC))
        self._file.write(content)
        self._position += len(content)

    def close(self) -> None:
        """Complete the file."""
        footer = self._footer.finish()
        self._file.write(footer + len(footer).to_bytes(4, "little") + MAGIC)
