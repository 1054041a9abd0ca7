"""The Arrow PyCapsule interface: what DuckDB, Polars, pandas and pyarrow read.

Source: Arrow ``docs/source/format/CDataInterface/PyCapsuleInterface.rst``.
"""
from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kafkastore.store.log_table import LogTable


class ArrowExport:
    """An object that is a table of all its records, for other libraries."""

    @abstractmethod
    def to_arrow(self) -> LogTable:
        """Return the records as an Arrow table that is read when it is used."""

    def __arrow_c_schema__(self) -> Any:
        """Return the schema of `to_arrow()` as a PyCapsule; nothing is read."""
        return self.to_arrow().__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """Return the batches of `to_arrow()` as a PyCapsule, read as they are consumed."""
        return self.to_arrow().__arrow_c_stream__(requested_schema)
