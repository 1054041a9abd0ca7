"""Find the batches of aborted transactions, which a read_committed reader skips.

Kafka's consumer treats a producer's transactional batches as aborted up to its next ABORT marker.
The last offset of a transaction index's entry is that of this marker, so no marker is decoded.

Source: Kafka 2.4.0 ``Fetcher.PartitionRecords.nextFetchedRecord``.
"""
from libc.stdint cimport uint8_t

import numpy as np

from kafkastore.formats.records.batch_header cimport (
    CONTROL_FLAG,
    TRANSACTIONAL_FLAG,
    BatchHeader,
)

from kafkastore.formats.indexes.transaction_index import ABORTED_TXN
from kafkastore.formats.records.batch_header import bytes_of


cdef bint is_aborted(const AbortedTxns* txns, const BatchHeader* header) noexcept nogil:
    """Return whether a batch belongs to an aborted transaction; False for a marker."""
    cdef Py_ssize_t low = 0, high = txns.count, middle
    cdef const AbortedTxn* txn
    if (header.magic != 2 or header.producer_id < 0
            or header.attributes & (TRANSACTIONAL_FLAG | CONTROL_FLAG) != TRANSACTIONAL_FLAG):
        return False
    # The producer's first transaction whose marker is not before the batch.
    while low < high:
        middle = (low + high) // 2
        txn = txns.first + middle
        if (txn.producer_id < header.producer_id
                or (txn.producer_id == header.producer_id
                    and txn.last_offset < header.base_offset)):
            low = middle + 1
        else:
            high = middle
    if low == txns.count:
        return False
    txn = txns.first + low
    return txn.producer_id == header.producer_id and txn.first_offset <= header.last_offset


cdef class AbortedBatches:
    """The batches of some aborted transactions.

    `aborted_txns` (ABORTED_TXN, in any order) must include all that overlap the requested offsets,
    see `transaction_index.collect_aborted_txns`.
    """

    def __cinit__(self, aborted_txns):
        cdef const uint8_t[::1] txn_bytes
        order = np.lexsort((aborted_txns["last_offset"], aborted_txns["producer_id"]))
        self.kept = np.ascontiguousarray(aborted_txns[order], ABORTED_TXN)
        self.txns.count = len(self.kept)
        self.txns.first = NULL
        if self.txns.count:
            txn_bytes = self.kept.view(np.uint8)
            self.txns.first = <const AbortedTxn*> &txn_bytes[0]

    def of(self, headers):
        """Return which batches (BATCH_HEADER) belong to an aborted transaction.

        The result is False for markers, which readers never get.
        """
        cdef const uint8_t[::1] header_bytes
        cdef uint8_t[::1] found
        cdef Py_ssize_t i, count = len(headers)
        result = np.zeros(count, bool)
        if count and self.txns.count:
            header_bytes = bytes_of(np.ascontiguousarray(headers))
            found = result.view(np.uint8)
            for i in range(count):
                found[i] = is_aborted(&self.txns, <const BatchHeader*> &header_bytes[0] + i)
        return result
