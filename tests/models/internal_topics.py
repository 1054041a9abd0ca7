"""Keys and values of __consumer_offsets and __transaction_state, packed as coordinators do.

Fields that a version does not have are left out; a field that cannot hold its value is a
FieldValueError, an unknown version an UnsupportedFormatError.
"""

import base64
import re

from kafkastore.formats.primitives.protocol import (
    UUID_BYTES,
    FieldValueError,
    ProtocolWriter,
    check_version,
    pack_int,
)
from kafkastore.formats.topics.group_metadata import (
    GROUP_METADATA,
    NEWEST_GROUP_METADATA_VALUE,
    NEWEST_OFFSET_COMMIT_VALUE,
    OFFSET_COMMIT,
    GroupMetadata,
    GroupMetadataKey,
    MemberMetadata,
    OffsetAndMetadata,
    OffsetCommitKey,
)
from kafkastore.formats.topics.transaction_state import (
    NEWEST_KEY,
    NEWEST_VALUE,
    TransactionLogValue,
    TransactionPartitions,
)

#: The tagged fields of a transaction's value: tag, name, bytes.
TAGGED_FIELDS = (
    (0, "previous_producer_id", 8),
    (1, "next_producer_id", 8),
    (2, "client_transaction_version", 2),
    (3, "next_producer_epoch", 2),
)


def pack_group_key(key: OffsetCommitKey | GroupMetadataKey) -> bytes:
    """Pack a key of __consumer_offsets, that of an offset commit as type 1."""
    writer = ProtocolWriter()
    if isinstance(key, GroupMetadataKey):
        writer.int16("record type", GROUP_METADATA)
        writer.string("group", key.group)
    else:
        writer.int16("record type", OFFSET_COMMIT)
        writer.string("group", key.group)
        writer.string("topic", key.topic)
        writer.int32("partition", key.partition)
    return writer.packed()


def pack_offset_commit_value(value: OffsetAndMetadata, version: int) -> bytes:
    """Pack the value of an `OffsetCommitKey`."""
    check_version("offset commit value", version, NEWEST_OFFSET_COMMIT_VALUE)
    writer = ProtocolWriter(is_flexible=version >= 4)
    writer.int16("version", version)
    writer.int64("offset", value.offset)
    if version >= 3:
        writer.int32("leader epoch", value.leader_epoch)
    writer.string("metadata", value.metadata)
    writer.int64("commit timestamp", value.commit_timestamp)
    if version == 1:
        writer.int64("expire timestamp", value.expire_timestamp)
    if version >= 4:
        has_id = value.topic_id is not None
        topic_id = {0: pack_uuid("topic id", value.topic_id)} if has_id else None
        writer.tagged_fields("tagged field", topic_id)
    return writer.packed()


def pack_group_metadata_value(value: GroupMetadata, version: int) -> bytes:
    """Pack the value of a `GroupMetadataKey`."""
    check_version("group metadata value", version, NEWEST_GROUP_METADATA_VALUE)
    writer = ProtocolWriter(is_flexible=version >= 4)
    writer.int16("version", version)
    writer.string("protocol type", value.protocol_type)
    writer.int32("generation", value.generation)
    writer.nullable_string("protocol", value.protocol)
    writer.nullable_string("leader", value.leader)
    if version >= 2:
        writer.int64("current state timestamp", value.current_state_timestamp)
    writer.array("members", value.members, lambda member: _put_member(writer, member, version))
    writer.tagged_fields("tagged field")
    return writer.packed()


def _put_member(writer: ProtocolWriter, member: MemberMetadata, version: int) -> None:
    """Write one member."""
    writer.string("member id", member.member_id)
    if version >= 3:
        writer.nullable_string("group instance id", member.group_instance_id)
    writer.string("client id", member.client_id)
    writer.string("client host", member.client_host)
    if version >= 1:
        writer.int32("rebalance timeout", member.rebalance_timeout)
    writer.int32("session timeout", member.session_timeout)
    writer.binary("subscription", member.subscription)
    writer.binary("assignment", member.assignment)
    writer.tagged_fields("tagged field")


def pack_transaction_key(transactional_id: str) -> bytes:
    """Pack a key of __transaction_state."""
    writer = ProtocolWriter()
    writer.int16("version", NEWEST_KEY)
    writer.string("transactional id", transactional_id)
    return writer.packed()


def pack_transaction_value(value: TransactionLogValue, version: int) -> bytes:
    """Pack a value of __transaction_state."""
    check_version("transaction log value", version, NEWEST_VALUE)
    writer = ProtocolWriter(is_flexible=version >= 1)
    writer.int16("version", version)
    writer.int64("producer id", value.producer_id)
    writer.int16("producer epoch", value.producer_epoch)
    writer.int32("transaction timeout", value.transaction_timeout_ms)
    writer.int8("transaction status", value.transaction_status)
    writer.nullable_array(
        "partitions", value.transaction_partitions, lambda topic: _put_partitions(writer, topic)
    )
    writer.int64("last update timestamp", value.transaction_last_update_timestamp_ms)
    writer.int64("start timestamp", value.transaction_start_timestamp_ms)
    writer.tagged_fields("tagged field", _tagged_fields(value))
    return writer.packed()


def _put_partitions(writer: ProtocolWriter, partitions: TransactionPartitions) -> None:
    """Write the partitions of one topic."""
    writer.string("topic", partitions.topic)
    writer.array(
        "partition ids",
        partitions.partition_ids,
        lambda partition: writer.int32("partition id", partition),
    )
    writer.tagged_fields("tagged field")


def _tagged_fields(value: TransactionLogValue) -> dict[int, bytes]:
    """Pack the tagged fields that do not have their default."""
    return {
        tag: pack_int(name, getattr(value, name), size)
        for tag, name, size in TAGGED_FIELDS
        if getattr(value, name) != value._field_defaults[name]
    }


def pack_uuid(name: str, value: str | None) -> bytes:
    """Pack an id that Kafka shows in URL-safe base64; zeros for None."""
    if value is None:
        return bytes(UUID_BYTES)
    if re.fullmatch("[A-Za-z0-9_-]{22}", value) is None:
        raise FieldValueError(
            name, f"must be {UUID_BYTES} bytes in URL-safe base64, got {value!r}"
        )
    return base64.urlsafe_b64decode(value + "==")
