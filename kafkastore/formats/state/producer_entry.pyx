"""The state of one producer, how batches change it, and which batches fit.

`replay` applies batches of the log, and `prepare` checks batches before they are appended. Both
return which transactions begin and end; `producer_state.ProducerState` keeps track of these.

After sequence 2^31 - 1 follows 0. Numbers that no valid batch has wrap as in Java.

Source: Kafka 2.4.0, 3.9.0 and 4.3.1 ``ProducerStateEntry``, ``ProducerAppendInfo``,
``BatchMetadata``; ``DefaultRecordBatch.incrementSequence``, ``decrementSequence``.
"""
from libc.stdint cimport INT32_MAX, int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memmove

from kafkastore.arguments import check_choice
from kafkastore.formats.records.batch_header cimport CONTROL_FLAG, TRANSACTIONAL_FLAG, BatchHeader

from typing import NamedTuple

import numpy as np

from kafkastore.errors import (
    ArgumentValueError,
    InvalidProducerEpochError,
    InvalidTxnStateError,
    OutOfOrderSequenceError,
    TransactionCoordinatorFencedError,
    UnknownProducerIdError,
)
from kafkastore.formats.records.batch_header import bytes_of
from kafkastore.formats.records.control_records import ControlRecordType

cdef enum:
    BATCHES_REMEMBERED = 5
    NO_SEQUENCE = -1
    NO_EPOCH = -1
    LAST_EPOCH = 32767
    MARKERS_RAISE_EPOCHS_FROM = 2

cdef enum Origin:
    CLIENT
    COORDINATOR
    REPLICATION

cdef dict ORIGINS = {"client": CLIENT, "coordinator": COORDINATOR, "replication": REPLICATION}
cdef int ABORT = ControlRecordType.ABORT
cdef int COMMIT = ControlRecordType.COMMIT

cdef packed struct LastBatch:
    int64_t last_offset
    int64_t timestamp
    int32_t last_sequence
    int32_t offset_delta

cdef struct Rules:
    bint markers_are_batches
    bint replicas_check_markers
    bint unknown_producers_begin_at_0
    bint empty_transactions_complete
    bint markers_raise_epochs
    bint markers_may_repeat_last_epoch


class BatchMetadata(NamedTuple):
    """One of the last batches of a producer.

    Sequences are -1 for none; offsets are inclusive; `timestamp` is the largest of the batch, ms.
    """

    first_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int
    timestamp: int


class TransactionStep(NamedTuple):
    """The begin or the end of a transaction.

    `last_offset` is that of the marker that ends it; None at its begin.
    """

    producer_id: int
    first_offset: int
    last_offset: int | None
    is_aborted: bool


cdef inline int32_t offset_delta_of(const BatchHeader* header) noexcept nogil:
    return <int32_t> (<uint64_t> header.last_offset - <uint64_t> header.base_offset)


cdef inline int32_t last_sequence_of(const BatchHeader* header) noexcept nogil:
    """Return the sequence of a batch's last record."""
    cdef uint32_t sequence = header.base_sequence, delta = offset_delta_of(header)
    if header.base_sequence == NO_SEQUENCE:
        return NO_SEQUENCE
    if header.base_sequence > <int32_t> (<uint32_t> INT32_MAX - delta):
        return <int32_t> (delta - (<uint32_t> INT32_MAX - sequence) - 1)
    return <int32_t> (sequence + delta)


cdef inline int32_t first_sequence_of(const LastBatch* batch) noexcept nogil:
    """Return the sequence of a batch's first record."""
    cdef uint32_t last = batch.last_sequence, delta = batch.offset_delta
    if batch.last_sequence < batch.offset_delta:
        return <int32_t> (<uint32_t> INT32_MAX - (delta - last) + 1)
    return <int32_t> (last - delta)


cdef class ProducerEntry:
    """The state of one producer; the remembered batches are all of its last epoch.

    The fields are those of a producer snapshot; default: nothing is known. `always_has_batch`
    counts the entry's batch even if it has no offset, as up to 2.4.0.
    """

    cdef int16_t producer_epoch
    cdef int32_t coordinator_epoch
    cdef int64_t timestamp
    cdef bint has_transaction
    cdef int64_t first_offset
    cdef int count
    cdef LastBatch[BATCHES_REMEMBERED] batches

    def __init__(
        self, int16_t producer_epoch=NO_EPOCH, int32_t last_sequence=NO_SEQUENCE,
        int64_t last_offset=-1, int32_t offset_delta=0, int64_t timestamp=-1,
        int32_t coordinator_epoch=-1, int64_t current_txn_first_offset=-1,
        *, bint always_has_batch=False,
    ):
        self.producer_epoch = producer_epoch
        self.coordinator_epoch = coordinator_epoch
        self.timestamp = timestamp
        self.has_transaction = current_txn_first_offset >= 0
        self.first_offset = current_txn_first_offset
        if last_offset >= 0 or always_has_batch:
            self.batches[0] = LastBatch(last_offset, timestamp, last_sequence, offset_delta)
            self.count = 1

    @property
    def current_txn_first_offset(self):
        """First offset of the open transaction; None if none is open."""
        return self.first_offset if self.has_transaction else None

    def last_batches(self):
        """Return the batches with which duplicates are detected, the newest last."""
        cdef int i
        return tuple([self.metadata_of(i) for i in range(self.count)])

    def last_timestamp(self, *, bint markers_count):
        """Return the time of the producer's last activity, ms; -1 if none is known."""
        if markers_count:
            return self.timestamp
        return self.batches[self.count - 1].timestamp if self.count else -1

    def snapshot_fields(self, *, bint markers_count):
        """Return the fields of a producer snapshot after the producer id."""
        last_batch = (NO_SEQUENCE, -1, 0)
        if self.count:
            batch = self.batches[self.count - 1]
            last_batch = (batch.last_sequence, batch.last_offset, batch.offset_delta)
        return (
            self.producer_epoch, *last_batch, self.last_timestamp(markers_count=markers_count),
            self.coordinator_epoch, self.first_offset if self.has_transaction else -1,
        )

    def apply_append(self, ProducerEntry appended not None):
        """Apply the result of an append that started with `without_batches`."""
        cdef int i
        self.begin_epoch(appended.producer_epoch)
        for i in range(appended.count):
            self.remember(appended.batches[i])
        self.coordinator_epoch = appended.coordinator_epoch
        self.timestamp = appended.timestamp
        self.has_transaction = appended.has_transaction
        self.first_offset = appended.first_offset

    cdef ProducerEntry without_batches(self):
        """Return a copy without batches, with which an append starts."""
        cdef ProducerEntry copy = ProducerEntry.__new__(ProducerEntry)
        copy.producer_epoch = self.producer_epoch
        copy.coordinator_epoch = self.coordinator_epoch
        copy.timestamp = self.timestamp
        copy.has_transaction = self.has_transaction
        copy.first_offset = self.first_offset
        return copy

    cdef object metadata_of(self, int i):
        cdef const LastBatch* batch = &self.batches[i]
        return BatchMetadata(
            first_sequence_of(batch), batch.last_sequence,
            <int64_t> (<uint64_t> batch.last_offset - <uint64_t> <int64_t> batch.offset_delta),
            batch.last_offset, batch.timestamp,
        )

    cdef int slot_of_duplicate(self, const BatchHeader* header) noexcept:
        """Return the slot of the batch with exactly these sequences; -1 if there is none."""
        cdef int i
        cdef int32_t last_sequence = last_sequence_of(header)
        if header.producer_epoch != self.producer_epoch:
            return -1
        for i in range(self.count):
            if (self.batches[i].last_sequence == last_sequence
                    and first_sequence_of(&self.batches[i]) == header.base_sequence):
                return i
        return -1

    cdef inline void begin_epoch(self, int16_t producer_epoch) noexcept:
        if self.producer_epoch != producer_epoch:
            self.producer_epoch = producer_epoch
            self.count = 0

    cdef inline void remember(self, LastBatch batch) noexcept:
        if self.count == BATCHES_REMEMBERED:
            self.count -= 1
            memmove(&self.batches[0], &self.batches[1], self.count * sizeof(LastBatch))
        self.batches[self.count] = batch
        self.count += 1

    cdef inline bint take_data(self, const BatchHeader* header) noexcept:
        """Apply a batch of records; return whether a transaction begins with it."""
        self.begin_epoch(header.producer_epoch)
        self.remember(LastBatch(header.last_offset, header.max_timestamp,
                                last_sequence_of(header), offset_delta_of(header)))
        self.timestamp = header.max_timestamp
        if self.has_transaction or not header.attributes & TRANSACTIONAL_FLAG:
            return False
        self.has_transaction = True
        self.first_offset = header.base_offset
        return True

    cdef void take_marker(self, const BatchHeader* header, int32_t coordinator_epoch) noexcept:
        """Apply the end of a transaction; the marker's time is its batch's."""
        self.begin_epoch(header.producer_epoch)
        self.coordinator_epoch = coordinator_epoch
        self.timestamp = header.max_timestamp
        self.has_transaction = False


def replay(dict entries not None, headers not None, controls not None, rules not None):
    """Apply batches of the log to `entries` (by producer id).

    `headers` are BATCH_HEADER; `controls` has the record of each control batch among them, None for
    one without. Returns the steps in the order of the log, and the error for which a broker would
    not load these batches, or None; all are applied anyway. Raises ValueError if the number of
    control records is wrong.
    """
    cdef const uint8_t[::1] header_bytes = _bytes_of(headers, controls)
    cdef const BatchHeader* header
    cdef const BatchHeader* end
    cdef Py_ssize_t control_count = 0
    cdef Rules known = _rules(rules)
    cdef ProducerEntry entry
    steps, refusal = [], None
    if not header_bytes.shape[0]:
        return steps, refusal
    header = <const BatchHeader*> &header_bytes[0]
    end = header + len(headers)
    while header < end:
        if _has_producer(header):
            entry = entries.get(header.producer_id)
            if entry is None:
                entry = entries[header.producer_id] = _unknown()
            control = controls[control_count] if _is_control(header) else None
            if refusal is None:
                refusal = _objection(entry, entry, header, control, REPLICATION, 0, &known)
            _take(entry, entry, header, control, &known, steps)
        control_count += _is_control(header)
        header += 1
    return steps, refusal


def prepare(
    dict entries not None, headers not None, controls not None, rules not None, str origin not None,
    int transaction_version=0
):
    """Check batches that are about to be appended together; `entries` do not change.

    Arguments are as in `replay`; `origin` is ``client``, ``coordinator`` or ``replication``;
    `transaction_version` is that of a coordinator's markers.
    Returns the changed entries by producer id, the steps in the order of the batches, and the batch
    in the log that a client's batch repeats, or None; batches after a duplicate are not checked.
    Raises `ProducerStateError` if a batch is refused, and ValueError for a wrong number of control
    records or an unknown origin.
    """
    cdef const uint8_t[::1] header_bytes = _bytes_of(headers, controls)
    cdef const BatchHeader* header
    cdef const BatchHeader* end
    cdef Py_ssize_t control_count = 0
    cdef Rules known = _rules(rules)
    cdef ProducerEntry entry, current
    cdef int slot
    cdef Origin source = ORIGINS[check_choice("origin", origin, tuple(ORIGINS))]
    appended, steps = {}, []
    if not header_bytes.shape[0]:
        return appended, steps, None
    header = <const BatchHeader*> &header_bytes[0]
    end = header + len(headers)
    while header < end:
        if _has_producer(header):
            current = entries.get(header.producer_id)
            if current is None:
                current = _unknown()
            if source == CLIENT:
                slot = current.slot_of_duplicate(header)
                if slot >= 0:
                    return appended, steps, current.metadata_of(slot)
            entry = appended.get(header.producer_id)
            if entry is None:
                entry = appended[header.producer_id] = current.without_batches()
            control = controls[control_count] if _is_control(header) else None
            objection = _objection(
                entry, current, header, control, source, transaction_version, &known
            )
            if objection is not None:
                raise objection
            _take(entry, current, header, control, &known, steps)
        control_count += _is_control(header)
        header += 1
    return appended, steps, None


cdef inline bint _is_control(const BatchHeader* header) noexcept nogil:
    return header.magic == 2 and header.attributes & CONTROL_FLAG


cdef inline bint _has_producer(const BatchHeader* header) noexcept nogil:
    return header.magic == 2 and header.producer_id >= 0


cdef const uint8_t[::1] _bytes_of(headers, controls):
    """Return the bytes of headers; check that each control batch has a record."""
    cdef const uint8_t[::1] header_bytes = bytes_of(np.ascontiguousarray(headers))
    cdef const BatchHeader* header
    cdef const BatchHeader* end
    cdef Py_ssize_t count = 0
    if header_bytes.shape[0]:
        header = <const BatchHeader*> &header_bytes[0]
        end = header + len(headers)
        while header < end:
            count += _is_control(header)
            header += 1
    if count != len(controls):
        raise ArgumentValueError(
            "controls", f"{count} control records, one for each control batch", len(controls))
    return header_bytes


cdef Rules _rules(rules):
    return Rules(
        rules.markers_are_batches, rules.replicas_check_markers,
        rules.unknown_producers_begin_at_0, rules.empty_transactions_complete,
        rules.markers_raise_epochs, rules.markers_may_repeat_last_epoch,
    )


cdef ProducerEntry _unknown():
    """Return the entry of an unknown producer."""
    cdef ProducerEntry entry = ProducerEntry.__new__(ProducerEntry)
    entry.producer_epoch = NO_EPOCH
    entry.coordinator_epoch = -1
    entry.timestamp = -1
    return entry


cdef inline bint _ends_transaction(control):
    """Return whether a control record is a transaction marker."""
    if control is None:
        return False
    cdef int control_type = control.type
    return control_type == ABORT or control_type == COMMIT


cdef inline int32_t _coordinator_epoch(control):
    return -1 if control.coordinator_epoch is None else control.coordinator_epoch


cdef inline int32_t _last_sequence(
    ProducerEntry entry, ProducerEntry current, int16_t producer_epoch
) noexcept:
    """Return the last sequence of an epoch, in this append or else before it."""
    if not entry.count and entry.producer_epoch == current.producer_epoch:
        entry = current
    if not entry.count or entry.producer_epoch != producer_epoch:
        return NO_SEQUENCE
    return entry.batches[entry.count - 1].last_sequence


cdef void _take(
    ProducerEntry entry, ProducerEntry current, const BatchHeader* header, control,
    const Rules* rules, list steps
) except *:
    """Apply a batch to an entry, and add the steps that it begins or ends."""
    cdef bint is_begun, is_aborted
    cdef int32_t sequence
    if not header.attributes & CONTROL_FLAG:
        if entry.take_data(header):
            steps.append(
                TransactionStep(header.producer_id, header.base_offset, None, False)
            )
        return
    # A control batch without its record: compaction has removed the whole transaction.
    if not _ends_transaction(control):
        return
    is_aborted = <int> control.type == ABORT
    is_begun = entry.has_transaction
    if not is_begun and rules.empty_transactions_complete:
        entry.first_offset = header.base_offset
        is_begun = True
        steps.append(TransactionStep(header.producer_id, header.base_offset, None, False))
    sequence = _last_sequence(entry, current, header.producer_epoch)
    entry.take_marker(header, _coordinator_epoch(control))
    if rules.markers_are_batches:
        entry.remember(LastBatch(header.base_offset, header.max_timestamp, sequence, 0))
    if is_begun:
        steps.append(TransactionStep(
            header.producer_id, entry.first_offset, header.base_offset, is_aborted
        ))


cdef object _objection(
    ProducerEntry entry, ProducerEntry current, const BatchHeader* header, control, Origin origin,
    int transaction_version, const Rules* rules
):
    """Return why a batch is refused, or None.

    `entry` holds the earlier batches of its append, and `current` those of the log.
    """
    if header.attributes & CONTROL_FLAG:
        if control is None:
            return None
        if not _ends_transaction(control):
            return InvalidTxnStateError(
                f"{_shown(header)} is a control batch of type {int(control.type)}, and no marker"
            )
        if origin == REPLICATION and not rules.replicas_check_markers:
            return None
        if header.producer_epoch < entry.producer_epoch:
            return _outdated_epoch(entry, header)
        if (origin == COORDINATOR and transaction_version >= MARKERS_RAISE_EPOCHS_FROM
                and _repeats_epoch(entry, header, rules)):
            return InvalidProducerEpochError(
                f"{_shown(header)} is a marker of transaction version {transaction_version} with"
                f" producer epoch {header.producer_epoch}, as before it, and a transaction is open"
                f" from offset {entry.first_offset} on"
            )
        if _coordinator_epoch(control) < entry.coordinator_epoch:
            return TransactionCoordinatorFencedError(
                f"{_shown(header)} is a marker of coordinator epoch {_coordinator_epoch(control)},"
                f" less than {entry.coordinator_epoch} before it"
            )
        return None
    if origin != REPLICATION and header.producer_epoch < entry.producer_epoch:
        return _outdated_epoch(entry, header)
    if origin == CLIENT:
        objection = _wrong_sequence(entry, current, header, rules)
        if objection is not None:
            return objection
    if entry.has_transaction and not header.attributes & TRANSACTIONAL_FLAG:
        return InvalidTxnStateError(
            f"{_shown(header)} is not transactional, but a transaction is open from offset"
            f" {entry.first_offset} on"
        )
    return None


cdef inline bint _repeats_epoch(
    ProducerEntry entry, const BatchHeader* header, const Rules* rules
) noexcept:
    """Return whether a marker has the epoch that it would have to raise."""
    if header.producer_epoch != entry.producer_epoch or not rules.markers_raise_epochs:
        return False
    if not entry.has_transaction:  # a marker that was sent twice
        return False
    return not (header.producer_epoch == LAST_EPOCH and rules.markers_may_repeat_last_epoch)


cdef object _wrong_sequence(
    ProducerEntry entry, ProducerEntry current, const BatchHeader* header, const Rules* rules
):
    """Return the error for a sequence that does not follow the last one, or None."""
    cdef int32_t expected, last_sequence = _last_sequence(entry, current, header.producer_epoch)
    if header.producer_epoch != entry.producer_epoch:
        if header.base_sequence == 0:
            return None
        if entry.producer_epoch != NO_EPOCH:
            return OutOfOrderSequenceError(
                f"{_shown(header)} begins a new epoch with sequence {header.base_sequence}, not 0"
            )
        return _unknown_producer(header) if rules.unknown_producers_begin_at_0 else None
    if rules.unknown_producers_begin_at_0:
        if last_sequence == NO_SEQUENCE and header.base_sequence != 0:
            return _unknown_producer(header)
    elif current.producer_epoch == NO_EPOCH:
        return None
    expected = 0 if last_sequence == INT32_MAX else last_sequence + 1
    if header.base_sequence == expected:
        return None
    return OutOfOrderSequenceError(
        f"{_shown(header)} has sequence {header.base_sequence}, wanted is {expected}"
    )


cdef object _outdated_epoch(ProducerEntry entry, const BatchHeader* header):
    return InvalidProducerEpochError(
        f"{_shown(header)} has producer epoch {header.producer_epoch}, less than"
        f" {entry.producer_epoch} before it"
    )


cdef object _unknown_producer(const BatchHeader* header):
    return UnknownProducerIdError(
        f"{_shown(header)} has sequence {header.base_sequence}, and no batch before it is known"
    )


cdef str _shown(const BatchHeader* header):
    return f"batch of producer {header.producer_id} at offset {header.base_offset}"
