"""What writes the records of ``kafkastore cat``, in any format."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from pyarrow import RecordBatch

    from kafkastore.formats.primitives.record_buffers import RecordBuffers
    from kafkastore.store.partition_log import PartitionLog


class RecordWriter(Protocol):
    """Writes rows with some columns.

    They are Arrow record batches if `in_arrow`, else `RecordBuffers`. `reading` are other options
    by which to read them: `record_reading.RecordOptions`.
    """

    columns: tuple[str, ...]
    reading: dict[str, Any]
    in_arrow: bool

    def write_batch(self, log: PartitionLog, batch: RecordBatch | RecordBuffers) -> None:
        """Write the rows of a batch, which is not empty."""

    def flush(self) -> None:
        """Hand over what was written to the system."""

    def settle(self) -> None:
        """Free memory: the next rows are for other writers."""

    def close(self) -> None:
        """Complete the output."""
