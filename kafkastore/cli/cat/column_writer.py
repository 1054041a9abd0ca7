"""Write records in Arrow's formats and Parquet."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any, BinaryIO

from kafkastore.cli.output.output_file import open_columns_writer
from kafkastore.formats.records.record_columns import BATCH_BYTES, BATCH_ROWS

if TYPE_CHECKING:
    from pyarrow import RecordBatch

    from kafkastore.store.partition_log import PartitionLog

COLUMN_FORMS = ("arrow", "arrows", "parquet")
#: Size of a Parquet row group; larger than an Arrow batch, because readers skip by row group.
_ROW_GROUP_ROWS = 100_000
_ROW_GROUP_BYTES = 32 * 1024 * 1024


class ColumnWriter:
    """Writes record batches as an Arrow IPC file or stream, or as Parquet."""

    def __init__(self, file: BinaryIO, form: str, *, headers: bool) -> None:
        from kafkastore.log import records_as_arrow

        columns = records_as_arrow.schema(include_headers=headers)
        # Minimum and maximum of values would be copies of values that no reader uses.
        dated = [name for name in columns.names if name != "value"]
        self._writer = open_columns_writer(file, form, columns, dated=dated)
        is_parquet = form == "parquet"
        self.reading: dict[str, Any] = {
            "include_headers": headers,
            "batch_rows": _ROW_GROUP_ROWS if is_parquet else BATCH_ROWS,
            "batch_bytes": _ROW_GROUP_BYTES if is_parquet else BATCH_BYTES,
        }

    def write_batch(self, _: PartitionLog, batch: RecordBatch) -> None:
        """Write a batch, for Parquet as one row group."""
        self._writer.write_batch(batch)

    def close(self) -> None:
        """Complete the file."""
        self._writer.close()
