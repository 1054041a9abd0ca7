"""Records of ``__consumer_offsets``: committed offsets and group metadata.

The first two bytes of a key are its *record type*, which determines the value; the first two bytes
of a value are its version. A null value (a tombstone) deletes the key::

    key of type 0 or 1    type int16 | group string | topic string | partition int32
    key of type 2         type int16 | group string

    offset commit value   version int16, 0 to 4 | offset int64 | leader_epoch int32 (from 3)
                          | metadata string | commit_timestamp int64
                          | expire_timestamp int64 (only 1)
                          | tagged fields (from 4): 0 topic_id

Types from 3 on are the newer coordinator's (KIP-848, KIP-932, KIP-1071); only their number, name
and group are returned. Strings, arrays and tagged fields are those of `protocol`.

``docs/formats/group_metadata.md`` has every field, the group metadata value, and the odd cases.

Source: Kafka 4.1.1 ``OffsetCommitKey.json``, ``OffsetCommitValue.json``, ``GroupMetadataKey.json``,
``GroupMetadataValue.json``, ``GroupCoordinatorRecordSerde``; 2.4.0 ``GroupMetadataManager``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from kafkastore.formats.primitives.protocol import ProtocolReader

LEGACY_OFFSET_COMMIT, OFFSET_COMMIT, GROUP_METADATA = 0, 1, 2
NEWEST_OFFSET_COMMIT_VALUE = 4
NEWEST_GROUP_METADATA_VALUE = 4
FIRST_FLEXIBLE_VALUE = 4
NO_TIMESTAMP = -1
NO_LEADER_EPOCH = -1

_TOPIC_ID_TAG = 0

RECORD_TYPE_NAMES: Mapping[int, str] = {
    0: "LegacyOffsetCommit",
    1: "OffsetCommit",
    2: "GroupMetadata",
    3: "ConsumerGroupMetadata",
    4: "ConsumerGroupPartitionMetadata",
    5: "ConsumerGroupMemberMetadata",
    6: "ConsumerGroupTargetAssignmentMetadata",
    7: "ConsumerGroupTargetAssignmentMember",
    8: "ConsumerGroupCurrentMemberAssignment",
    9: "ShareGroupPartitionMetadata",
    10: "ShareGroupMemberMetadata",
    11: "ShareGroupMetadata",
    12: "ShareGroupTargetAssignmentMetadata",
    13: "ShareGroupTargetAssignmentMember",
    14: "ShareGroupCurrentMemberAssignment",
    15: "ShareGroupStatePartitionMetadata",
    16: "ConsumerGroupRegularExpression",
    17: "StreamsGroupMetadata",
    19: "StreamsGroupMemberMetadata",
    20: "StreamsGroupTargetAssignmentMetadata",
    21: "StreamsGroupTargetAssignmentMember",
    22: "StreamsGroupCurrentMemberAssignment",
    23: "StreamsGroupTopology",
}
"""Kafka's names of the record types, as of 4.1.1; 9 is 3.9's alone."""


class OffsetCommitKey(NamedTuple):
    """The group and the partition of a committed offset."""

    group: str
    topic: str
    partition: int


class GroupMetadataKey(NamedTuple):
    """The group of a group metadata record."""

    group: str


class UnknownKey(NamedTuple):
    """A key of a record type whose value is not decoded.

    `name` is Kafka's name of the type; None if the number is unknown. `group` is the first field of
    every known type.
    """

    record_type: int
    name: str | None
    group: str | None


class OffsetAndMetadata(NamedTuple):
    """A committed offset.

    | field              | value                                                      |
    | ------------------ | ---------------------------------------------------------- |
    | `offset`           | exclusive end of the records that the group has read       |
    | `leader_epoch`     | of the last record read; -1: none, or a version before 3   |
    | `metadata`         | set by the client, mostly empty                            |
    | `commit_timestamp` | ms since 1970, by the broker's clock or from an old client |
    | `expire_timestamp` | ms since 1970; -1: none, or any version but 1              |
    | `topic_id`         | 22 characters of URL-safe base64; None before 4.1          |
    """

    offset: int
    metadata: str
    commit_timestamp: int
    leader_epoch: int = NO_LEADER_EPOCH
    expire_timestamp: int = NO_TIMESTAMP
    topic_id: str | None = None


class MemberMetadata(NamedTuple):
    """A member of a classic group; timeouts are in ms.

    `rebalance_timeout` is -1 in version 0, where brokers use the session timeout. `subscription`
    and `assignment` are the group protocol's. `group_instance_id` is None before version 3.
    """

    member_id: str
    client_id: str
    client_host: str
    session_timeout: int
    subscription: bytes
    assignment: bytes
    rebalance_timeout: int = -1
    group_instance_id: str | None = None


class GroupMetadata(NamedTuple):
    """A classic group after a rebalance.

    | field                     | value                                                        |
    | ------------------------- | ------------------------------------------------------------ |
    | `protocol_type`           | ``consumer``, ``connect``; empty: commits without membership |
    | `generation`              | number of rebalances                                         |
    | `protocol`                | agreed assignor; None for an empty group                     |
    | `leader`                  | member that ran the assignor; None for an empty group        |
    | `current_state_timestamp` | ms since 1970, when the state began; -1 before version 2     |
    """

    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    members: tuple[MemberMetadata, ...]
    current_state_timestamp: int = NO_TIMESTAMP


def parse_key(data: bytes) -> OffsetCommitKey | GroupMetadataKey | UnknownKey:
    """Parse a record's key, by its record type; extra bytes are ignored, as in Kafka.

    Raises `CorruptionError`, with the position in the key, if a field is incomplete.

    Source: Kafka 4.1.1 ``GroupCoordinatorRecordSerde``; before 4.0 the record type was called the
    key's version.

    >>> parse_key(bytes.fromhex("0001 0005 74656c6c79 0006 6f7264657273 00000003"))
    OffsetCommitKey(group='telly', topic='orders', partition=3)
    >>> parse_key(bytes.fromhex("0003 0005 74656c6c79"))
    UnknownKey(record_type=3, name='ConsumerGroupMetadata', group='telly')
    """
    reader = ProtocolReader(data)
    record_type = reader.int16("record type")
    if record_type in (LEGACY_OFFSET_COMMIT, OFFSET_COMMIT):
        return OffsetCommitKey(
            reader.string("group"), reader.string("topic"), reader.int32("partition")
        )
    if record_type == GROUP_METADATA:
        return GroupMetadataKey(reader.string("group"))
    name = RECORD_TYPE_NAMES.get(record_type)
    return UnknownKey(record_type, name, None if name is None else reader.string("group"))



def parse_offset_commit_value(data: bytes | None) -> OffsetAndMetadata | None:
    """Parse the value of an `OffsetCommitKey`; None for a tombstone.

    Extra bytes are ignored, as in Kafka. Raises `CorruptionError` (position in the value) if a
    field is incomplete, and `UnsupportedFormatError` if the version is not 0 to 4.

    Source: Kafka 4.1.1 ``OffsetCommitValue.json``.

    >>> value = bytes.fromhex("0003 0000000000000002 ffffffff 0000 000001a1f833d1b1")
    >>> parse_offset_commit_value(value)[:3]
    (2, '', 1795165508017)
    """
    if data is None:
        return None
    reader = ProtocolReader(data)
    version = reader.version("offset commit value", NEWEST_OFFSET_COMMIT_VALUE)
    reader.is_flexible = version >= FIRST_FLEXIBLE_VALUE
    offset = reader.int64("offset")
    leader_epoch = reader.int32("leader epoch") if version >= 3 else NO_LEADER_EPOCH
    metadata = reader.string("metadata")
    commit_timestamp = reader.int64("commit timestamp")
    expire_timestamp = reader.int64("expire timestamp") if version == 1 else NO_TIMESTAMP
    tagged = reader.tagged_fields("tagged field", {_TOPIC_ID_TAG: reader.uuid})
    return OffsetAndMetadata(
        offset,
        metadata,
        commit_timestamp,
        leader_epoch,
        expire_timestamp,
        tagged.get(_TOPIC_ID_TAG),
    )



def parse_group_metadata_value(data: bytes | None) -> GroupMetadata | None:
    """Parse the value of a `GroupMetadataKey`; None for a tombstone (deleted group).

    Extra bytes are ignored, as in Kafka. Raises `CorruptionError`, with the position in the value,
    if a field is incomplete, and `UnsupportedFormatError` if the version is not 0 to 4.

    Source: Kafka 4.1.1 ``GroupMetadataValue.json``.
    """
    if data is None:
        return None
    reader = ProtocolReader(data)
    version = reader.version("group metadata value", NEWEST_GROUP_METADATA_VALUE)
    reader.is_flexible = version >= FIRST_FLEXIBLE_VALUE
    protocol_type = reader.string("protocol type")
    generation = reader.int32("generation")
    protocol = reader.nullable_string("protocol")
    leader = reader.nullable_string("leader")
    state_timestamp = reader.int64("current state timestamp") if version >= 2 else NO_TIMESTAMP
    members = reader.array("members", lambda: _take_member(reader, version))
    reader.tagged_fields("tagged field")
    return GroupMetadata(protocol_type, generation, protocol, leader, members, state_timestamp)


def _take_member(reader: ProtocolReader, version: int) -> MemberMetadata:
    """Read one member."""
    member_id = reader.string("member id")
    group_instance_id = reader.nullable_string("group instance id") if version >= 3 else None
    client_id = reader.string("client id")
    client_host = reader.string("client host")
    rebalance_timeout = reader.int32("rebalance timeout") if version >= 1 else -1
    session_timeout = reader.int32("session timeout")
    subscription = reader.binary("subscription")
    assignment = reader.binary("assignment")
    reader.tagged_fields("tagged field")
    return MemberMetadata(
        member_id,
        client_id,
        client_host,
        session_timeout,
        subscription,
        assignment,
        rebalance_timeout,
        group_instance_id,
    )
