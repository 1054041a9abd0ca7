"""Transactions that are open at the end of logs, and what coordinators know.

An open transaction holds the last stable offset: consumers with ``read_committed`` wait for it. If
the coordinator does not know it, no one will end it: it hangs (KIP-664).

Source: Kafka 4.3.1 ``ProducerStateManager``, ``TransactionMetadata``, ``TransactionsCommand``.
"""
from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from kafkastore.formats.messages.message_table import Values
from kafkastore.formats.state.file_names import TopicPartition
from kafkastore.formats.topics.transaction_state import (
    DEFAULT_PARTITIONS,
    RECORDS,
    TransactionState,
    coordinator_partition,
)
from kafkastore.formats.unknown_numbers import none_if_negative
from kafkastore.log.isolation import producers_at
from kafkastore.store.cluster_metadata import find_cluster
from kafkastore.store.log_store import LogStore
from kafkastore.store.partition_log import PartitionLog
from kafkastore.store.partition_path import FAILURES
from kafkastore.use_cases.last_records import about_record, last_records

TRANSACTION_STATE = "__transaction_state"
#: Of these states, the coordinator will write markers to the partitions of the transaction.
_RUNNING = (
    TransactionState.ONGOING, TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT,
    TransactionState.PREPARE_EPOCH_FENCE,
)


class TransactionalId(NamedTuple):
    """A transactional id as its coordinator wrote it last.

    Parameters
    ----------
    transactional_id : str
        The producer's name.
    producer_id, producer_epoch : int
        Of its last record.
    state : TransactionState or int
        The state; an int if it is unknown.
    timeout_ms : int
        After so long, the coordinator aborts a transaction.
    updated_timestamp : int or None
        ms since 1970.
    start_timestamp : int or None
        When the transaction began, ms since 1970; None if none is running.
    partitions : frozenset of TopicPartition
        Of the running transaction.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    state: TransactionState | int
    timeout_ms: int
    updated_timestamp: int | None
    start_timestamp: int | None
    partitions: frozenset[TopicPartition]

    def is_running_in(self, topic_partition: TopicPartition) -> bool:
        """Return whether the coordinator will end a transaction in a partition."""
        return self.state in _RUNNING and topic_partition in self.partitions


class Coordinators(NamedTuple):
    """What coordinators know of producers.

    `is_complete`: of all producers, because all partitions of ``__transaction_state`` were read.
    """

    by_producer: Mapping[int, TransactionalId]
    is_complete: bool


class OpenTransaction(NamedTuple):
    """A transaction that is open at the end of a log.

    Parameters
    ----------
    topic_partition : TopicPartition
        The partition.
    path : Path
        Its directory.
    producer_id, producer_epoch : int
        The producer.
    first_offset : int
        Of the transaction in this partition.
    first_timestamp : int or None
        Of its first batch, ms since 1970: the largest timestamp in it.
    last_timestamp : int or None
        Of the producer's last batch.
    holds_last_stable_offset : bool
        Whether it is the oldest open one: the last stable offset is `first_offset`.
    coordinator : TransactionalId or None
        What the coordinator knows of the producer; None if the store has no record of it.
    is_hanging : bool or None
        Whether the coordinator will not end it; None if that is not known, because the partition of
        ``__transaction_state`` with the producer may be missing in the store.
    """

    topic_partition: TopicPartition
    path: Path
    producer_id: int
    producer_epoch: int
    first_offset: int
    first_timestamp: int | None
    last_timestamp: int | None
    holds_last_stable_offset: bool
    coordinator: TransactionalId | None = None
    is_hanging: bool | None = None


def open_transactions_of(log: PartitionLog) -> list[OpenTransaction]:
    """Find the transactions that are open at the end of a log, oldest first.

    Raises `CorruptionError` if a batch after the newest producer snapshot can't be read.
    """
    return log.retry_if_changed(lambda: _open_transactions(log))


def _open_transactions(log: PartitionLog) -> list[OpenTransaction]:
    producers = producers_at(log, log.log_end_offset)
    by_offset = sorted((offset, each) for each, offset in producers.open_transactions.items())
    entries = {int(entry["producer_id"]): entry for entry in producers.entries()}
    found = []
    for first_offset, producer_id in by_offset:
        entry = entries[producer_id]
        first = next(log.batches(first_offset), None)
        found.append(OpenTransaction(
            log.topic_partition,
            log.path,
            producer_id,
            int(entry["producer_epoch"]),
            first_offset,
            None if first is None else none_if_negative(first.max_timestamp),
            none_if_negative(int(entry["timestamp"])),
            first_offset == by_offset[0][0],
        ))
    return found


def read_coordinators(
    store: LogStore, unreadable: dict[TopicPartition, Exception] | None = None
) -> Coordinators | None:
    """Read the states of coordinators; None if no partition of them is here.

    Unreadable partitions raise, or go to `unreadable`.
    """
    places = [each for each in store.partitions if each.topic == TRANSACTION_STATE]
    if not places:
        return None
    found: dict[int, TransactionalId] = {}
    names: dict[int, list[str]] = {}
    for place in places:
        try:
            read = list(_transactional_ids(store.partitions[place]))
        except FAILURES as error:
            if unreadable is None:
                raise
            unreadable[place] = error
            continue
        names[place.partition] = [name for name, _ in read]
        found.update((each.producer_id, each) for _, each in read if each is not None)
    return Coordinators(found, _is_complete(store, names))


def _transactional_ids(log: PartitionLog) -> Iterator[tuple[str, TransactionalId | None]]:
    """Yield the transactional ids in a partition; an expired one has no state."""
    for key, last in last_records(log).items():
        with about_record(log, last.offset):
            record = RECORDS.parse_keyed(key, last.value)
        if record.key is not None:
            name = record.key["transactional_id"]
            yield name, None if record.value is None else _transactional_id(name, record.value)


def _is_complete(store: LogStore, names: Mapping[int, Collection[str]]) -> bool:
    """Return whether these are all partitions; `names` are the ids in each.

    Their number is that of the metadata, or the number here unless the default fits too.
    """
    here = len(names)
    if here == 0 or max(names) != here - 1:
        return False
    if here == DEFAULT_PARTITIONS or not _fits(names, DEFAULT_PARTITIONS):
        return _fits(names, here)
    with suppress(*FAILURES):
        cluster = find_cluster(store)
        if cluster is not None and TRANSACTION_STATE in cluster.topics:
            return len(cluster.topics[TRANSACTION_STATE].partitions) == here
    return False


def _fits(names: Mapping[int, Collection[str]], count: int) -> bool:
    """Return whether ids are where they are in a topic of `count` partitions."""
    return all(
        coordinator_partition(name, count) == number
        for number, of_partition in names.items()
        for name in of_partition
    )


def _transactional_id(name: str, value: Values) -> TransactionalId:
    state = value["transaction_status"]
    partitions = frozenset(
        TopicPartition(each["topic"], number)
        for each in value["transaction_partitions"] or ()
        for number in each["partition_ids"]
    )
    return TransactionalId(
        name,
        value["producer_id"],
        value["producer_epoch"],
        TransactionState(state) if state in _STATES else state,
        value["transaction_timeout_ms"],
        none_if_negative(value["transaction_last_update_timestamp_ms"]),
        none_if_negative(value["transaction_start_timestamp_ms"]),
        partitions,
    )


_STATES = frozenset(TransactionState)


def with_coordinator(
    found: OpenTransaction, known: Coordinators | None
) -> OpenTransaction:
    """Add what the coordinator knows to an open transaction."""
    if known is None:
        return found
    coordinator = known.by_producer.get(found.producer_id)
    if coordinator is None and not known.is_complete:
        return found
    is_running = coordinator is not None and coordinator.is_running_in(found.topic_partition)
    return found._replace(coordinator=coordinator, is_hanging=not is_running)
