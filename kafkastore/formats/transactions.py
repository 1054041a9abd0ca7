"""Transactions of a log: which batches belong to aborted ones, which ones are still open.

A producer has one transaction at a time in a partition: it begins with its first transactional
batch and ends with the marker, a control batch of the same producer id, that the broker appends.
`AbortedBatches` takes the outcome from the transaction index; `producer_state.ProducerState` finds
it in the batches themselves, where there is no index, or beyond its end.

Source: Kafka 2.4.0 ``Fetcher.PartitionRecords``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_TRANSACTIONAL, _CONTROL = 0x10, 0x20


def is_control(headers: NDArray[np.void]) -> NDArray[np.bool_]:
    """Tell which batches are control batches, as transaction markers are.

    Parameters
    ----------
    headers : numpy.ndarray
        Of dtype `batch_header.BATCH_HEADER`.
    """
    found: NDArray[np.bool_] = (headers["magic"] == 2) & (headers["attributes"] & _CONTROL != 0)
    return found


class AbortedBatches:
    """Tells which batches a reader of committed records passes over.

    Parameters
    ----------
    aborted_txns : numpy.ndarray
        Of dtype `transaction_index.ABORTED_TXN`, in any order: all that overlap the offsets that
        will be asked about, see `transaction_index.collect_aborted_txns`; more do no harm.

    Notes
    -----
    Kafka's consumer is told no last offsets. It takes a producer's transactional batches for
    aborted from the first offset of an aborted transaction up to the producer's next ABORT marker.
    The last offset in the index is that of this marker, so that the answers are the same, and no
    marker has to be decoded, nor anything be kept from one call to the next.

    Source: Kafka 2.4.0 ``Fetcher.PartitionRecords.nextFetchedRecord``.
    """

    def __init__(self, aborted_txns: NDArray[np.void]) -> None:
        self._producer_ids = np.unique(aborted_txns["producer_id"])
        self._markers = np.unique(aborted_txns["last_offset"])
        keys = self._keys(aborted_txns["producer_id"], aborted_txns["last_offset"])
        order = np.argsort(keys, kind="stable")
        self._sorted_keys = keys[order]
        self._sorted_txns = aborted_txns[order]

    def _keys(self, producer_ids: NDArray[Any], offsets: NDArray[Any]) -> NDArray[np.int64]:
        """Return keys that sort pairs of known producer and offset as the markers stand."""
        producers = np.searchsorted(self._producer_ids, producer_ids)
        return producers * (len(self._markers) + 1) + np.searchsorted(self._markers, offsets)

    def of(self, headers: NDArray[np.void]) -> NDArray[np.bool_]:
        """Tell which batches belong to an aborted transaction.

        Parameters
        ----------
        headers : numpy.ndarray, shape (n,)
            Of dtype `batch_header.BATCH_HEADER`, of any batches.

        Returns
        -------
        numpy.ndarray of bool, shape (n,)
            False for markers, which no reader gets to see anyway.
        """
        if not len(self._sorted_txns):
            return np.zeros(len(headers), bool)
        is_aborted = _is_of_transaction(headers) & ~is_control(headers)
        is_aborted &= np.isin(headers["producer_id"], self._producer_ids)
        asked = headers[is_aborted]
        # The first transaction of the producer whose marker does not lie before the batch.
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
    """Tell which batches have a producer and the transactional bit."""
    found: NDArray[np.bool_] = (
        (headers["magic"] == 2)
        & (headers["attributes"] & _TRANSACTIONAL != 0)
        & (headers["producer_id"] >= 0)
    )
    return found
