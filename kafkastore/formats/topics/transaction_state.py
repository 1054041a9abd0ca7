"""Records of ``__transaction_state``: the state of each transactional id.

They are keyed records (`record_tables`). A tombstone means that the transactional id has expired.
Timestamps are ms since 1970. Version 1 came with KIP-890.

``docs/formats/transaction_state.md`` has the meaning of each field and state, and the odd cases.

Source: Kafka 4.3.1 ``TransactionLogKey.json``, ``TransactionLogValue.json``, ``TransactionState``;
2.4.0 ``TransactionLog``.
"""

from __future__ import annotations

import enum

from kafkastore.formats.messages.record_tables import RecordTable

RECORDS = RecordTable("""
TransactionLog 0, key (transactional_id string), versions 0-1, flexible 1+
    producer_id int64
    previous_producer_id int64 1+ tag 0 = -1
    next_producer_id int64 1+ tag 1 = -1
    producer_epoch int16
    next_producer_epoch int16 1+ tag 3 = -1
    transaction_timeout_ms int32
    transaction_status int8
    transaction_partitions struct[]?
        topic string
        partition_ids int32[]
    transaction_last_update_timestamp_ms int64
    transaction_start_timestamp_ms int64
    client_transaction_version int16 1+ tag 2
""")


#: ``transaction.state.log.num.partitions``.
DEFAULT_PARTITIONS = 50


def coordinator_partition(transactional_id: str, partitions: int) -> int:
    """Return the partition of the topic that has the records of a transactional id.

    `partitions` is the topic's number.

    Source: Kafka 3.8.0 ``TransactionStateManager.partitionFor``.

    >>> coordinator_partition("tx-c", 50)
    20
    """
    value = 0
    units = transactional_id.encode("utf-16-be", "surrogatepass")
    for number in range(0, len(units), 2):  # Java's ``String.hashCode``
        value = (31 * value + int.from_bytes(units[number : number + 2], "big")) & 0xFFFFFFFF
    signed = value - (value >> 31 << 32)
    return 0 if signed == -(1 << 31) else abs(signed) % partitions


class TransactionState(enum.IntEnum):
    """The state of a transactional id."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7
