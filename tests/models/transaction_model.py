"""Random logs with transactions, and their slow evaluation."""

import heapq
from typing import NamedTuple

import numpy as np
from hypothesis import strategies as st

from kafkastore.formats.records.batch_header import BATCH_HEADER
from kafkastore.formats.records.control_records import ControlRecordType

TRANSACTIONAL, CONTROL = 0x10, 0x20
ABORT, COMMIT = ControlRecordType.ABORT, ControlRecordType.COMMIT


class Transaction(NamedTuple):
    """The outcome of a transaction; `last_offset` is its marker's, None while it is open."""

    producer_id: int
    first_offset: int
    last_offset: int | None
    is_aborted: bool


class Log(NamedTuple):
    """Batch headers, their control types, and the outcomes of their transactions."""

    headers: np.ndarray
    control_types: list
    transactions: list

    def last_stable_offset(self, end_offset):
        """The first offset of the oldest transaction that is open before an offset, or that."""
        open_before = [
            transaction.first_offset
            for transaction in self.transactions
            if transaction.first_offset < end_offset
            and (transaction.last_offset is None or transaction.last_offset >= end_offset)
        ]
        return min(open_before, default=end_offset)

    def index(self):
        """The entries of the transaction index of the full log."""
        aborted = sorted(
            (transaction for transaction in self.transactions if transaction.is_aborted),
            key=lambda transaction: transaction.last_offset,
        )
        return [
            (pid, first, last, self.last_stable_offset(last + 1)) for pid, first, last, _ in aborted
        ]

    def types_of(self, start, end):
        """The control types of the batches with these numbers."""
        is_control = self.headers["attributes"] & CONTROL != 0
        before = int(is_control[:start].sum())
        return self.control_types[before : before + int(is_control[start:end].sum())]


ACTIONS = ["transactional", "transactional", "plain", "abort", "commit", "emptied", "other"]


@st.composite
def logs(draw, max_batches=40):
    """Logs of a few producers, with gaps between offsets and markers without a transaction."""
    start_offset = draw(st.integers(0, 2**62))
    steps = draw(
        st.lists(
            st.tuples(
                st.sampled_from([0, 1, 2, 2**62, -1]), st.sampled_from(ACTIONS),
                st.integers(1, 4), st.integers(0, 2),
            ),
            max_size=max_batches,
        )
    )
    headers = np.zeros(len(steps), BATCH_HEADER)
    headers["magic"] = 2
    control_types, ended, began, offset = [], [], {}, start_offset
    for header, (producer_id, action, most, gap) in zip(headers, steps, strict=True):
        is_control = action in ("abort", "commit", "emptied", "other")
        count = 1 if is_control else most
        header["producer_id"] = producer_id
        header["base_offset"], header["last_offset"] = offset, offset + count - 1
        header["attributes"] = CONTROL * is_control
        if producer_id >= 0 and action != "plain":
            header["attributes"] |= TRANSACTIONAL
        if action == "transactional" and producer_id >= 0:
            began.setdefault(producer_id, offset)
        if is_control:
            control_types.append({"abort": ABORT, "commit": COMMIT, "emptied": None}.get(action, 9))
        if action in ("abort", "commit") and producer_id in began:
            first_offset = began.pop(producer_id)
            ended.append(Transaction(producer_id, first_offset, offset, action == "abort"))
        offset += count + gap
    still_open = [Transaction(pid, first, None, False) for pid, first in began.items()]
    return Log(headers, control_types, ended + still_open)


def batches_a_consumer_skips(headers, control_types, aborted):
    """Kafka's CompletedFetch.nextFetchedRecord: the batches that it treats as aborted.

    `aborted` are pairs (first offset, producer id), all that a fetch response has of a transaction.
    """
    queue = sorted(aborted)
    heapq.heapify(queue)
    types, aborted_producers, skipped = iter(control_types), set(), []
    for header in headers:
        is_control = bool(header["attributes"] & CONTROL)
        control_type = next(types) if is_control else None
        is_skipped = False
        if header["producer_id"] > -1:
            while queue and queue[0][0] <= header["last_offset"]:
                aborted_producers.add(heapq.heappop(queue)[1])
            if is_control and control_type == ABORT:
                aborted_producers.discard(int(header["producer_id"]))
            elif header["attributes"] & TRANSACTIONAL and not is_control:
                is_skipped = int(header["producer_id"]) in aborted_producers
        skipped.append(is_skipped)
    return skipped


def collect(entries, fetch_offset, upper_bound_offset):
    """Kafka's TransactionIndex.collectAbortedTxns, entry by entry."""
    found = []
    for entry in entries:
        _, first_offset, last_offset, last_stable_offset = entry
        if last_offset >= fetch_offset and first_offset < upper_bound_offset:
            found.append(entry)
        if last_stable_offset >= upper_bound_offset:
            return found, True
    return found, False
