"""What writes the records of ``kafkastore cat``, in any format."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from pyarrow import RecordBatch

    from kafkastore.store.partition_log import PartitionLog


class RecordWriter(Protocol):
    """Writes Arrow record batches; `reading` are the options by which to read them."""

    @property
    def reading(self) -> dict[str, Any]:
        """The `ArrowOptions` that the format needs."""

    def write_batch(self, log: PartitionLog, batch: RecordBatch) -> None:
        """Write the rows of a batch, which is not empty."""
