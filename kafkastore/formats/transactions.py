"""Transactions of a log: which batches belong to aborted ones, which ones are still open.

A producer has one transaction at a time in a partition: it begins with its first transactional
batch and ends with the marker, a control batch of the same producer id, that the broker appends.
`AbortedBatches` takes the outcome from the transaction index; `TransactionReplay` finds it in the
batches themselves, where there is no index, or beyond its end.

Source: Kafka 2.4.0 ``Fetcher.PartitionRecords``, ``ProducerStateManager``; 2.8.0
``ProducerAppendInfo.appendEndTxnMarker``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from kafkastore.formats.control_records import ControlRecord, ControlRecordType
from kafkastore.formats.producer_state import ProducerState

if TYPE_CHECKING:
    from collections.abc import Sequence

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


class TransactionReplay:
    """Follows the transactions of a log batch by batch: of a `ProducerState` what a reader needs.

    Parameters
    ----------
    producers : numpy.ndarray, optional
        Of dtype `producer_snapshot.PRODUCER_ENTRY`: the state at the offset where the replay
        begins. Default: no transaction is open, as at the start of a log.
    """

    def __init__(self, producers: NDArray[np.void] | None = None) -> None:
        self._state = ProducerState(producers)
        self._state.on_high_watermark(2**63 - 1)

    @property
    def first_undecided_offset(self) -> int | None:
        """Where the oldest open transaction begins; None if none is open.

        The last stable offset is this, or the end of what was gone over where it is None; but never
        above the high watermark.
        """
        return self._state.first_undecided_offset

    @property
    def open_transactions(self) -> dict[int, int]:
        """First offsets of the open transactions by producer id."""
        return self._state.open_transactions

    def append(
        self, headers: NDArray[np.void], control_types: Sequence[ControlRecordType | int | None]
    ) -> NDArray[np.void]:
        """Go over the next batches.

        Parameters
        ----------
        headers : numpy.ndarray
            Of dtype `batch_header.BATCH_HEADER`: the batches that follow those before.
        control_types : sequence
            The type of each control batch among them, in order; None for one without records. See
            `control_records.first_control_record`.

        Returns
        -------
        numpy.ndarray
            Of dtype `transaction_index.ABORTED_TXN`: the transactions that were aborted in these
            batches, by last offset, as a transaction index has them.

        Raises
        ------
        ValueError
            If there are not as many control types as control batches.
        """
        controls = [None if each is None else ControlRecord(each, 0) for each in control_types]
        return self._state.replay(headers, controls)


def _is_of_transaction(headers: NDArray[np.void]) -> NDArray[np.bool_]:
    """Tell which batches have a producer and the transactional bit."""
    found: NDArray[np.bool_] = (
        (headers["magic"] == 2)
        & (headers["attributes"] & _TRANSACTIONAL != 0)
        & (headers["producer_id"] >= 0)
    )
    return found
