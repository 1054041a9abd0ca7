"""Control records, which brokers write between the records of producers.

A control batch (attribute bit 5) has one record, big-endian::

    key    0         2      4              value   0         2                   6
           +---------+------+                      +---------+-------------------+
           | version | type |                      | version | coordinator_epoch |
           +---------+------+                      +---------+-------------------+
             int16     int16                         int16     int32

The value shown is that of ABORT and COMMIT, the markers that end a transaction. The other types are
KRaft's; `KRAFT_VALUES` has their values, which begin with their version too.

``docs/formats/control_records.md`` has the odd cases and a worked example.

Source: Kafka 3.9.0 ``ControlRecordType``, ``EndTransactionMarker``; 4.3.1 ``ControlRecordUtils``,
``LeaderChangeMessage.json``, ``SnapshotHeaderRecord.json`` and the like.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, NamedTuple

from kafkastore.errors import ArgumentValueError, CorruptBatchError
from kafkastore.formats.messages.message_table import MessageTable, Values

if TYPE_CHECKING:
    from kafkastore.formats.records.record_batch import Record, RecordBatch

KEY_VERSION_AT = 0
KEY_TYPE_AT = KEY_VERSION_AT + 2
KEY_SIZE = KEY_TYPE_AT + 2

MARKER_VERSION_AT = 0
MARKER_COORDINATOR_EPOCH_AT = MARKER_VERSION_AT + 2
MARKER_SIZE = MARKER_COORDINATOR_EPOCH_AT + 4


class ControlRecordType(enum.IntEnum):
    """The purpose of a control record."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


_KNOWN_TYPES = {int(kind): kind for kind in ControlRecordType}
_MARKERS = (ControlRecordType.ABORT, ControlRecordType.COMMIT)


KRAFT_VALUES = MessageTable("""
LeaderChange 2, versions 0-1, flexible 0+
    version int16
    leader_id int32
    voters struct[]
        voter_id int32
        voter_directory_id uuid 1+
    granting_voters struct[]
        voter_id int32
        voter_directory_id uuid 1+

SnapshotHeader 3, version 0, flexible 0+
    version int16
    last_contained_log_timestamp int64

SnapshotFooter 4, version 0, flexible 0+
    version int16

KRaftVersion 5, version 0, flexible 0+
    version int16
    k_raft_version int16

KRaftVoters 6, version 0, flexible 0+
    version int16
    voters struct[]
        voter_id int32
        voter_directory_id uuid
        endpoints struct[]
            name string
            host string
            port uint16
        k_raft_version_feature struct
            min_supported_version int16
            max_supported_version int16
""")


class ControlRecord(NamedTuple):
    """A control record; an unknown `type` is an int; `version` is the key's.

    `coordinator_epoch` is the transaction coordinator's epoch in an ABORT or COMMIT marker, else
    None.
    """

    type: ControlRecordType | int
    version: int
    coordinator_epoch: int | None = None


def parse_control_record(record: Record, *, position: int | None = None) -> ControlRecord:
    """Parse the key of a control record, and its value if it ends a transaction.

    `position` is the batch's in the log. Ignores extra bytes and reads versions above 0 like 0, as
    Kafka does. Raises `CorruptBatchError` if a field is too short or its version is negative.

    Source: Kafka 3.9.0 ``ControlRecordType.parseTypeId``, ``EndTransactionMarker``.
    """
    key = _checked(record, "key", record.key, KEY_SIZE, position)
    version = int.from_bytes(key[KEY_VERSION_AT:KEY_TYPE_AT], "big", signed=True)
    number = int.from_bytes(key[KEY_TYPE_AT:KEY_SIZE], "big", signed=True)
    kind = _KNOWN_TYPES.get(number, number)
    if kind not in _MARKERS:
        return ControlRecord(kind, version)
    value = _checked(record, "value", record.value, MARKER_SIZE, position)
    epoch = int.from_bytes(value[MARKER_COORDINATOR_EPOCH_AT:MARKER_SIZE], "big", signed=True)
    return ControlRecord(kind, version, epoch)


def parse_kraft_value(record: Record, *, position: int | None = None) -> Values | None:
    """Parse the value of a KRaft control record; None for another type.

    Reads a version that is not known yet as the newest, as Kafka does. Raises `CorruptionError`,
    with the position in the value, if a field is incomplete.

    Source: Kafka 4.3.1 ``ControlRecordUtils``.
    """
    kind = parse_control_record(record, position=position).type
    if kind not in KRAFT_VALUES.descriptions:
        return None
    value = _checked(record, "value", record.value, 2, position)
    version = int.from_bytes(value[0:2], "big", signed=True)
    newest = KRAFT_VALUES.descriptions[kind].versions.newest
    return KRAFT_VALUES.known_codec(kind, min(version, newest)).parse(value)[0]


def first_control_record(batch: RecordBatch) -> ControlRecord | None:
    """Parse the first record of a control batch, the only one that Kafka reads.

    Returns None if compaction has emptied the batch. Raises `CorruptBatchError` if the batch or the
    record is corrupt, and `ArgumentValueError` if it is not a control batch.
    """
    if not batch.is_control:
        raise ArgumentValueError("batch", "a control batch", batch)
    for record in batch.records():
        return parse_control_record(record, position=batch.position)
    return None


def _checked(
    record: Record, what: str, content: bytes | None, size: int, position: int | None
) -> bytes:
    """Return a key or value after checking its length and version."""
    if content is None or len(content) < size:
        found = "null" if content is None else len(content)
        raise CorruptBatchError(
            f"control record at offset {record.offset}: the {what} must be at least {size} bytes, "
            f"got {found}",
            position=position,
        )
    version = int.from_bytes(content[0:2], "big", signed=True)
    if version < 0:
        raise CorruptBatchError(
            f"control record at offset {record.offset}: impossible version {version} of the {what}",
            position=position,
        )
    return content
