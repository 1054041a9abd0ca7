"""The transactions that are open at the end of logs."""
from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from kafkastore.jobs.job import JobResults, PartitionJob, Row
from kafkastore.store.log_store import AnyPartition, Paths, open_paths
from kafkastore.store.partition_path import Copies, open_copies
from kafkastore.use_cases.open_transactions import (
    Coordinators,
    OpenTransaction,
    open_transactions_of,
    read_coordinators,
    with_coordinator,
)

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class TransactionsJob(PartitionJob[list[OpenTransaction]]):
    """Find the open transactions of each partition.

    `known` is what the coordinators know, None if that is not in the store.
    """

    known: Coordinators | None = None

    @staticmethod
    def columns() -> list[tuple[str, pa.DataType]]:
        """Return the columns of an open transaction."""
        import pyarrow as pa

        number, text = pa.int64(), pa.string()
        return [
            ("producer_id", number),
            ("producer_epoch", pa.int16()),
            ("transactional_id", text),
            ("first_offset", number),
            ("first_timestamp", number),
            ("last_timestamp", number),
            ("holds_last_stable_offset", pa.bool_()),
            ("coordinator_state", text),
            ("coordinator_timeout_ms", number),
            ("coordinator_timestamp", number),
            ("is_hanging", pa.bool_()),
        ]

    def run(self, item: Copies) -> list[OpenTransaction]:
        """Find the open transactions of one partition."""
        found = open_transactions_of(open_copies(item))
        return [with_coordinator(each, self.known) for each in found]

    def rows(self, result: list[OpenTransaction]) -> Iterator[Row]:
        """Yield a row for each open transaction."""
        return map(transaction_row, result)


def transaction_row(found: OpenTransaction) -> Row:
    """Return the columns of an open transaction."""
    known = found.coordinator
    return {
        "producer_id": found.producer_id,
        "producer_epoch": found.producer_epoch,
        "transactional_id": None if known is None else known.transactional_id,
        "first_offset": found.first_offset,
        "first_timestamp": found.first_timestamp,
        "last_timestamp": found.last_timestamp,
        "holds_last_stable_offset": found.holds_last_stable_offset,
        "coordinator_state": None if known is None else getattr(known.state, "name", known.state),
        "coordinator_timeout_ms": None if known is None else known.timeout_ms,
        "coordinator_timestamp": None if known is None else known.updated_timestamp,
        "is_hanging": found.is_hanging,
    }


def transactions(
    path: Paths, *, partitions: Collection[AnyPartition] | None = None
) -> JobResults[Copies, list[OpenTransaction]]:
    """Find the transactions that are open at the end of logs.

    Parameters
    ----------
    path : path-like, LogStore or list of these
        Log directories or partition directories. Those of ``__transaction_state`` say what the
        coordinators know.
    partitions : collection, optional
        Look only into these partitions, each as ``("orders", 3)`` or ``"orders-3"``.

    Returns
    -------
    iterator of list of OpenTransaction
        For each partition, by topic and number: its open transactions, oldest first.

    Raises
    ------
    CorruptionError
        If a log is corrupt after its newest producer snapshot, or a record of
        ``__transaction_state`` can't be read.
    KeyError
        If `path` does not contain a partition.

    Notes
    -----
    Source: KIP-664; Kafka 4.3.1 ``TransactionsCommand``.
    """
    store = open_paths(path)
    job = TransactionsJob(read_coordinators(store))
    return JobResults(job, partial(job.items, store, partitions))
