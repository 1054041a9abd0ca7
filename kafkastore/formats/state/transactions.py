"""Transactions of a log: which batches are aborted, and which are still open.

A producer has one transaction at a time in a partition. It begins with the producer's first
transactional batch and ends with the marker, a control batch with the same producer id that the
broker appends. `AbortedBatches` takes the outcome from the transaction index.
`producer_state.ProducerState` takes it from the batches themselves, without an index or after its
end.

Source: Kafka 2.4.0 ``Fetcher.PartitionRecords``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from kafkastore.formats.records.batch_header import CONTROL_BIT, TRANSACTIONAL_BIT

if TYPE_CHECKING:
    from numpy.typing import NDArray


def is_control(headers: NDArray[np.void]) -> NDArray[np.bool_]:
    """Return which batches (BATCH_HEADER) are control batches, such as markers."""
    found: NDArray[np.bool_] = (headers["magic"] == 2) & (headers["attributes"] & CONTROL_BIT != 0)
    return found


class AbortedBatches:
    """Find the batches that a read_committed reader skips.

    `aborted_txns` (ABORTED_TXN, in any order) must include all that overlap the requested offsets,
    see `transaction_index.collect_aborted_txns`.

    Source: Kafka 2.4.0 ``Fetcher.PartitionRecords.nextFetchedRecord``.
    """

    # Kafka's consumer treats a producer's transactional batches as aborted up to its next ABORT
    # marker. The last offset in the index is that of this marker, so no marker has to be decoded.

    def __init__(self, aborted_txns: NDArray[np.void]) -> None:
        self._producer_ids = np.unique(aborted_txns["producer_id"])
        self._markers = np.unique(aborted_txns["last_offset"])
        keys = self._keys(aborted_txns["producer_id"], aborted_txns["last_offset"])
        order = np.argsort(keys, kind="stable")
        self._sorted_keys = keys[order]
        self._sorted_txns = aborted_txns[order]

    def _keys(self, producer_ids: NDArray[Any], offsets: NDArray[Any]) -> NDArray[np.int64]:
        """Return keys that sort pairs of producer and offset like the markers."""
        producers = np.searchsorted(self._producer_ids, producer_ids)
        return producers * (len(self._markers) + 1) + np.searchsorted(self._markers, offsets)

    def of(self, headers: NDArray[np.void]) -> NDArray[np.bool_]:
        """Return which batches (BATCH_HEADER) belong to an aborted transaction.

        The result is False for markers, which readers never get.
        """
        if not len(self._sorted_txns):
            return np.zeros(len(headers), bool)
        is_aborted = _is_of_transaction(headers) & ~is_control(headers)
        is_aborted &= np.isin(headers["producer_id"], self._producer_ids)
        asked = headers[is_aborted]
        # The producer's first transaction whose marker is not before the batch.
        slots = np.searchsorted(
            self._sorted_keys, self._keys(asked["producer_id"], asked["base_offset"])
        )
        txns = self._sorted_txns[np.minimum(slots, len(self._sorted_txns) - 1)]
        is_aborted[is_aborted] = (
            (slots < len(self._sorted_txns))
            & (txns["producer_id"] == asked["producer_id"])
            & (txns["first_offset"] <= asked["last_offset"])
        )
        return is_aborted


def _is_of_transaction(headers: NDArray[np.void]) -> NDArray[np.bool_]:
    """Return which batches have a producer and the transactional bit."""
    found: NDArray[np.bool_] = (
        (headers["magic"] == 2)
        & (headers["attributes"] & TRANSACTIONAL_BIT != 0)
        & (headers["producer_id"] >= 0)
    )
    return found
