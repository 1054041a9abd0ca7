"""Records of ``__transaction_state``: the state of each transactional id.

A null value (a tombstone) means that the transactional id has expired::

    key      version int16, 0 | transactional_id string

    value    version int16, 0 or 1 | producer_id int64 | producer_epoch int16
             | transaction_timeout_ms int32 | transaction_status int8
             | transaction_partitions array or null: topic string, partition_ids array of int32
             | transaction_last_update_timestamp_ms int64 | transaction_start_timestamp_ms int64
             | tagged fields (from 1): 0 previous_producer_id int64, 1 next_producer_id int64,
               2 client_transaction_version int16, 3 next_producer_epoch int16

Strings, arrays and tagged fields are those of `protocol`; version 1 is flexible (KIP-890).

``docs/formats/transaction_state.md`` has the meaning of each field and state, and the odd cases.

Source: Kafka 4.1.1 ``TransactionLogKey.json``, ``TransactionLogValue.json``, ``TransactionState``;
2.4.0 ``TransactionLog``.
"""

from __future__ import annotations

import enum
from typing import NamedTuple

from kafkastore.formats.primitives.protocol import ProtocolReader

NEWEST_KEY = 0
NEWEST_VALUE = 1
FIRST_FLEXIBLE_VALUE = 1
NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1

# Tag, field, bytes.
_TAGGED_FIELDS = (
    (0, "previous_producer_id", 8),
    (1, "next_producer_id", 8),
    (2, "client_transaction_version", 2),
    (3, "next_producer_epoch", 2),
)


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


_KNOWN_STATES = {int(state): state for state in TransactionState}


class TransactionPartitions(NamedTuple):
    """The partitions of one topic that take part in a transaction."""

    topic: str
    partition_ids: tuple[int, ...]


class TransactionLogValue(NamedTuple):
    """The state of a transactional id; timestamps are ms since 1970.

    | field                            | value                                                    |
    | -------------------------------- | -------------------------------------------------------- |
    | `transaction_timeout_ms`         | after it, by its own clock, the coordinator aborts       |
    | `transaction_status`             | a plain int if unknown; brokers refuse it                |
    | `transaction_partitions`         | None for null, which brokers write in the state EMPTY    |
    | `transaction_start_timestamp_ms` | -1 before the first transaction                          |
    | `previous_producer_id`           | of the last committed transaction if it differs, else -1 |
    | `next_producer_id`, `_epoch`     | sent to the producer, not in use yet; -1 for none        |
    | `client_transaction_version`     | the client's ``transaction.version``; 0 before version 1 |
    """

    producer_id: int
    producer_epoch: int
    transaction_timeout_ms: int
    transaction_status: TransactionState | int
    transaction_partitions: tuple[TransactionPartitions, ...] | None
    transaction_last_update_timestamp_ms: int
    transaction_start_timestamp_ms: int
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    client_transaction_version: int = 0
    next_producer_epoch: int = NO_PRODUCER_EPOCH


def parse_key(data: bytes) -> str:
    """Return the transactional id in a key; ignore extra bytes, as Kafka does.

    Raises `CorruptionError`, with the position in the key, if a field is incomplete, and
    `UnsupportedFormatError` if the version is not 0; brokers skip such a record.

    >>> parse_key(bytes.fromhex("0000 0004 74782d61"))
    'tx-a'
    """
    reader = ProtocolReader(data)
    reader.version("transaction log key", NEWEST_KEY)
    return reader.string("transactional id")



def parse_value(data: bytes | None) -> TransactionLogValue | None:
    """Parse a record's value; None for a tombstone.

    Extra bytes are ignored, as in Kafka. Raises `CorruptionError`, with the position in the value,
    if a field is incomplete, and `UnsupportedFormatError` if the version is not 0 or 1.

    Source: Kafka 4.1.1 ``TransactionLogValue.json``.
    """
    if data is None:
        return None
    reader = ProtocolReader(data)
    version = reader.version("transaction log value", NEWEST_VALUE)
    reader.is_flexible = version >= FIRST_FLEXIBLE_VALUE
    producer_id = reader.int64("producer id")
    producer_epoch = reader.int16("producer epoch")
    timeout_ms = reader.int32("transaction timeout")
    status = reader.int8("transaction status")
    partitions = reader.nullable_array("partitions", lambda: _take_partitions(reader))
    last_update_ms = reader.int64("last update timestamp")
    start_ms = reader.int64("start timestamp")
    take = {tag: reader.int64 if size == 8 else reader.int16 for tag, _, size in _TAGGED_FIELDS}
    tagged = reader.tagged_fields("tagged field", take)
    return TransactionLogValue(
        producer_id,
        producer_epoch,
        timeout_ms,
        _KNOWN_STATES.get(status, status),
        partitions,
        last_update_ms,
        start_ms,
        **{name: tagged[tag] for tag, name, _ in _TAGGED_FIELDS if tag in tagged},
    )



def _take_partitions(reader: ProtocolReader) -> TransactionPartitions:
    """Read the partitions of one topic."""
    topic = reader.string("topic")
    partition_ids = reader.array("partition ids", lambda: reader.int32("partition id"))
    reader.tagged_fields("tagged field")
    return TransactionPartitions(topic, partition_ids)
