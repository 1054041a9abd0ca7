"""Producers the slow way: every batch is kept, and each answer reads all of them."""

from typing import NamedTuple

import numpy as np
from hypothesis import strategies as st

from kafkastore.formats.records.batch_header import BATCH_HEADER
from kafkastore.formats.records.control_records import ControlRecord, ControlRecordType

TRANSACTIONAL, CONTROL = 0x10, 0x20
SEQUENCES = 2**31
LAST_EPOCH = 2**15 - 1
MARKERS = (ControlRecordType.ABORT, ControlRecordType.COMMIT)


class Batch(NamedTuple):
    """A batch of `count` records, or a control batch with its record (None where it lost it)."""

    producer_id: int
    offset: int
    count: int = 1
    epoch: int = 0
    sequence: int = 0
    timestamp: int = 0
    is_transactional: bool = False
    is_control: bool = False
    control: ControlRecord | None = None
    magic: int = 2

    @property
    def last_offset(self):
        return self.offset + self.count - 1

    @property
    def last_sequence(self):
        return -1 if self.sequence == -1 else (self.sequence + self.count - 1) % SEQUENCES

    @property
    def is_marker(self):
        return self.is_control and self.control is not None and self.control.type in MARKERS

    @property
    def is_data(self):
        return not self.is_control


def marker(producer_id, offset, *, abort=True, epoch=0, coordinator_epoch=0, timestamp=0):
    """The end of a transaction."""
    kind = ControlRecordType.ABORT if abort else ControlRecordType.COMMIT
    return Batch(
        producer_id, offset, 1, epoch, -1, timestamp, True, True,
        ControlRecord(kind, 0, coordinator_epoch),
    )


def headers(batches):
    """The package's input for batches: their headers, and the control records."""
    rows = np.zeros(len(batches), BATCH_HEADER)
    for row, batch in zip(rows, batches, strict=True):
        row["magic"] = batch.magic
        row["producer_id"], row["producer_epoch"] = batch.producer_id, batch.epoch
        row["base_offset"], row["last_offset"] = batch.offset, batch.last_offset
        row["base_sequence"], row["max_timestamp"] = batch.sequence, batch.timestamp
        row["attributes"] = TRANSACTIONAL * batch.is_transactional | CONTROL * batch.is_control
    return rows, [batch.control for batch in batches if batch.is_control]


class Remembered(NamedTuple):
    """A batch that is reported again when it arrives twice."""

    first_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int
    timestamp: int


class Producers:
    """The batches of a log, and the state of its producers."""

    def __init__(self, rules):
        self.rules = rules
        self.batches = []

    def of(self, producer_id):
        return [
            batch
            for batch in self.batches
            if batch.magic == 2 and batch.producer_id == producer_id >= 0
        ]

    def epoch(self, producer_id):
        seen = [batch.epoch for batch in self.of(producer_id) if batch.is_data or batch.is_marker]
        return seen[-1] if seen else -1

    def remembered(self, producer_id):
        """The last five batches since the producer's epoch changed for the last time."""
        found, epoch = [], -1
        for batch in self.of(producer_id):
            if not batch.is_data and not batch.is_marker:
                continue
            if batch.epoch != epoch:
                found, epoch = [], batch.epoch
            if batch.is_data:
                found.append(Remembered(
                    (batch.last_sequence - batch.count + 1) % SEQUENCES, batch.last_sequence,
                    batch.offset, batch.last_offset, batch.timestamp,
                ))
            elif self.rules.markers_are_batches:
                last = found[-1].last_sequence if found else -1
                found.append(Remembered(
                    last % SEQUENCES, last, batch.offset, batch.offset, batch.timestamp
                ))
        return found[-5:]

    def timestamp(self, producer_id):
        if self.rules.markers_have_producer_time:
            times = [
                batch.timestamp
                for batch in self.of(producer_id)
                if batch.is_data or batch.is_marker
            ]
        else:
            times = [batch.timestamp for batch in self.remembered(producer_id)]
        return times[-1] if times else -1

    def coordinator_epoch(self, producer_id):
        markers = [batch for batch in self.of(producer_id) if batch.is_marker]
        return markers[-1].control.coordinator_epoch if markers else -1

    def open_transaction(self, producer_id):
        """The offset of the first transactional batch after the last marker, or None."""
        first = None
        for batch in self.of(producer_id):
            if batch.is_marker:
                first = None
            elif batch.is_data and batch.is_transactional and first is None:
                first = batch.offset
        return first

    def producer_ids(self):
        return sorted({
            batch.producer_id
            for batch in self.batches
            if batch.magic == 2 and batch.producer_id >= 0
        })

    def entries(self):
        """The entries of a snapshot."""
        found = []
        for producer_id in self.producer_ids():
            remembered = self.remembered(producer_id)
            last_sequence, last_offset, delta = -1, -1, 0
            if remembered:
                _, last_sequence, first_offset, last_offset, _ = remembered[-1]
                delta = last_offset - first_offset
            first = self.open_transaction(producer_id)
            found.append((
                producer_id, self.epoch(producer_id), last_sequence, last_offset, delta,
                self.timestamp(producer_id), self.coordinator_epoch(producer_id),
                -1 if first is None else first,
            ))
        return found

    def open_transactions(self):
        found = {pid: self.open_transaction(pid) for pid in self.producer_ids()}
        return {pid: first for pid, first in found.items() if first is not None}

    def first_undecided_offset(self):
        return min(self.open_transactions().values(), default=None)

    def completed(self):
        """The ended transactions: producer, first, last, last stable offset, is it aborted."""
        found = []
        for number, batch in enumerate(self.batches):
            if not batch.is_marker or batch.producer_id < 0 or batch.magic != 2:
                continue
            before = Producers(self.rules)
            before.batches = self.batches[:number]
            first = before.open_transaction(batch.producer_id)
            if first is None and not self.rules.empty_transactions_complete:
                continue
            before.batches = self.batches[: number + 1]
            undecided = before.first_undecided_offset()
            found.append((
                batch.producer_id, batch.offset if first is None else first, batch.offset,
                batch.offset + 1 if undecided is None else undecided,
                batch.control.type == ControlRecordType.ABORT,
            ))
        return found

    def aborted(self):
        """The entries of the transaction index."""
        return [tuple(entry) for *entry, is_aborted in self.completed() if is_aborted]

    def first_unreplicated_offset(self, high_watermark):
        waiting = [first for _, first, last, *_ in self.completed() if last >= high_watermark]
        return min(waiting, default=None)

    def duplicate_of(self, batch):
        if batch.epoch != self.epoch(batch.producer_id):
            return None
        for known in self.remembered(batch.producer_id):
            if known[:2] == (batch.sequence, batch.last_sequence):
                return known
        return None

    def objection(self, batch, origin, transaction_version=0):
        """The name of the error that a leader, or a replica, answers a batch with; None if none."""
        pid = batch.producer_id
        is_leader = origin != "replication"
        if batch.magic != 2 or pid < 0:
            return None
        if batch.is_control:
            if batch.control is None:
                return None
            if not batch.is_marker:
                return "InvalidTxnStateError"
            if not is_leader and not self.rules.replicas_check_markers:
                return None
            if batch.epoch < self.epoch(pid):
                return "InvalidProducerEpochError"
            if (
                origin == "coordinator" and transaction_version == 2
                and self.rules.markers_raise_epochs
                and batch.epoch == self.epoch(pid)
                and self.open_transaction(pid) is not None
                and not (batch.epoch == LAST_EPOCH and self.rules.markers_may_repeat_last_epoch)
            ):
                return "InvalidProducerEpochError"
            if batch.control.coordinator_epoch < self.coordinator_epoch(pid):
                return "TransactionCoordinatorFencedError"
            return None
        if is_leader and batch.epoch < self.epoch(pid):
            return "InvalidProducerEpochError"
        if origin == "client" and (error := self.wrong_sequence(batch)):
            return error
        if self.open_transaction(pid) is not None and not batch.is_transactional:
            return "InvalidTxnStateError"
        return None

    def wrong_sequence(self, batch):
        pid = batch.producer_id
        before = self.rules.unknown_producers_begin_at_0
        has_epoch = self.epoch(pid) != -1
        if not has_epoch and not before:
            return None
        remembered = self.remembered(pid) if batch.epoch == self.epoch(pid) else []
        last = remembered[-1].last_sequence if remembered else -1
        if not has_epoch and last == -1:
            return None if batch.sequence == 0 else "UnknownProducerIdError"
        if last == -1 and batch.epoch == self.epoch(pid) and batch.sequence != 0:
            return "UnknownProducerIdError" if before else "OutOfOrderSequenceError"
        is_next = batch.sequence == (last + 1) % SEQUENCES
        return None if is_next else "OutOfOrderSequenceError"


STEPS = st.tuples(
    st.sampled_from([0, 1, 1, 7, 2**62, -1]),
    st.sampled_from(["data", "data", "in transaction", "in transaction", "abort", "commit",
                     "emptied", "other", "old format"]),
    st.sampled_from(["next", "next", "next", "again", "zero", "gap", "none"]),
    st.integers(1, 4),  # records
    st.sampled_from([0] * 12 + [1, 1, 1, -1, -1, -1, LAST_EPOCH]),  # onto the epoch
    st.sampled_from([0, 0, 0, 1, -1]),  # onto the coordinator epoch
    st.integers(0, 2),  # offsets left out before
    st.integers(-1, 50),  # timestamp
)


def batch_of(producers, step, offset):
    """The batch that a step makes of what is known so far."""
    pid, action, choice, count, epoch_step, coordinator_step, gap, timestamp = step
    offset += gap
    epoch = min(max(producers.epoch(pid), 0) + epoch_step, LAST_EPOCH)
    if action in ("abort", "commit", "emptied", "other"):
        coordinator_epoch = max(producers.coordinator_epoch(pid), 0) + coordinator_step
        made = marker(pid, offset, abort=action == "abort", epoch=epoch,
                      coordinator_epoch=coordinator_epoch, timestamp=timestamp)
        if action == "emptied":
            return made._replace(control=None)
        return made._replace(control=ControlRecord(9, 0)) if action == "other" else made
    remembered = producers.remembered(pid)
    following = (remembered[-1].last_sequence + 1) % SEQUENCES if remembered else SEQUENCES - 3
    sequence = {"next": following, "zero": 0, "gap": following + 2, "none": -1}.get(choice)
    if sequence is None:
        again = remembered[len(remembered) // 2] if remembered else None
        sequence = again.first_sequence if again else 5
        count = again.last_offset - again.first_offset + 1 if again else count
    return Batch(pid, offset, count, epoch, min(sequence, SEQUENCES - 1), timestamp,
                 action == "in transaction", magic=1 if action == "old format" else 2)
