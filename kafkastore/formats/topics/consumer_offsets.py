"""Records of ``__consumer_offsets``: committed offsets and groups of every kind.

They are keyed records (`record_tables`). Until 3.9 a record's number was called the version of its
key: 0.8.2 wrote 0, which means the same as 1. Only 3.9 and 4.0 wrote 9; 24 is of brokers after 4.3.

``docs/formats/consumer_offsets.md`` has the meaning of the fields, and the odd cases.

Source: Kafka 4.3.1 ``group-coordinator`` ``common/message/*.json``, 3.9.1 for 9; 2.4.0
``GroupMetadataManager``.
"""

from __future__ import annotations

from typing import NamedTuple

from kafkastore.errors import UnsupportedFormatError
from kafkastore.formats.messages.record_tables import RecordTable

NO_TIMESTAMP = -1
NO_LEADER_EPOCH = -1

OFFSET_COMMITS = 0, 1  # with a key of 0.8.2, and of later versions

RECORDS = RecordTable("""
LegacyOffsetCommit 0, key (group string, topic string, partition int32), versions 0-4, flexible 4+
    offset int64
    leader_epoch int32 3+ = -1
    metadata string
    commit_timestamp int64
    expire_timestamp int64 1 = -1
    topic_id uuid 4+ tag 0

OffsetCommit 1, key (group string, topic string, partition int32), versions 0-4, flexible 4+
    offset int64
    leader_epoch int32 3+ = -1
    metadata string
    commit_timestamp int64
    expire_timestamp int64 1 = -1
    topic_id uuid 4+ tag 0

GroupMetadata 2, key (group string), versions 0-4, flexible 4+
    protocol_type string
    generation int32
    protocol string?
    leader string?
    current_state_timestamp int64 2+ = -1
    members struct[]
        member_id string
        group_instance_id string? 3+ = null
        client_id string
        client_host string
        rebalance_timeout int32 1+ = -1
        session_timeout int32
        subscription bytes
        assignment bytes

ConsumerGroupMetadata 3, key (group_id string), version 0, flexible 0+
    epoch int32
    metadata_hash int64 tag 0

ConsumerGroupPartitionMetadata 4, key (group_id string), version 0, flexible 0+
    topics struct[]
        topic_id uuid
        topic_name string
        num_partitions int32
        partition_metadata struct[]
            partition int32
            racks string[]

ConsumerGroupMemberMetadata 5, key (group_id string, member_id string), version 0, flexible 0+
    instance_id string?
    rack_id string?
    client_id string
    client_host string
    subscribed_topic_names string[]
    subscribed_topic_regex string?
    rebalance_timeout_ms int32 = -1
    server_assignor string?
    classic_member_metadata struct? tag 0
        session_timeout_ms int32
        supported_protocols struct[]
            name string
            metadata bytes

ConsumerGroupTargetAssignmentMetadata 6, key (group_id string), version 0, flexible 0+
    assignment_epoch int32
    assignment_timestamp int64 tag 0

ConsumerGroupTargetAssignmentMember 7, key (group_id string, member_id string),
    version 0, flexible 0+
    topic_partitions struct[]
        topic_id uuid
        partitions int32[]

ConsumerGroupCurrentMemberAssignment 8, key (group_id string, member_id string),
    version 0, flexible 0+
    member_epoch int32
    previous_member_epoch int32
    state int8
    assigned_partitions struct[]
        topic_id uuid
        partitions int32[]
        assignment_epochs int32[]? tag 0
    partitions_pending_revocation struct[]
        topic_id uuid
        partitions int32[]
        assignment_epochs int32[]? tag 0

ShareGroupPartitionMetadata 9, key (group_id string), version 0, flexible 0+
    initialized_topics struct[]
        topic_id uuid
        topic_name string
        partitions int32[]
    deleting_topics struct[]
        topic_id uuid
        topic_name string

ShareGroupMemberMetadata 10, key (group_id string, member_id string), version 0, flexible 0+
    rack_id string?
    client_id string
    client_host string
    subscribed_topic_names string[]

ShareGroupMetadata 11, key (group_id string), version 0, flexible 0+
    epoch int32
    metadata_hash int64

ShareGroupTargetAssignmentMetadata 12, key (group_id string), version 0, flexible 0+
    assignment_epoch int32
    assignment_timestamp int64 tag 0

ShareGroupTargetAssignmentMember 13, key (group_id string, member_id string), version 0, flexible 0+
    topic_partitions struct[]
        topic_id uuid
        partitions int32[]

ShareGroupCurrentMemberAssignment 14, key (group_id string, member_id string),
    version 0, flexible 0+
    member_epoch int32
    previous_member_epoch int32
    state int8
    assigned_partitions struct[]
        topic_id uuid
        partitions int32[]

ShareGroupStatePartitionMetadata 15, key (group_id string), version 0, flexible 0+
    initializing_topics struct[]
        topic_id uuid
        topic_name string
        partitions int32[]
    initialized_topics struct[]
        topic_id uuid
        topic_name string
        partitions int32[]
    deleting_topics struct[]
        topic_id uuid
        topic_name string

ConsumerGroupRegularExpression 16, key (group_id string, regular_expression string),
    version 0, flexible 0+
    topics string[]
    version int64
    timestamp int64

StreamsGroupMetadata 17, key (group_id string), version 0, flexible 0+
    epoch int32
    metadata_hash int64
    validated_topology_epoch int32 tag 0 = -1
    last_assignment_configs struct[]? tag 1
        key string
        value string

StreamsGroupMemberMetadata 19, key (group_id string, member_id string), version 0, flexible 0+
    instance_id string?
    rack_id string?
    client_id string
    client_host string
    rebalance_timeout_ms int32 = -1
    topology_epoch int32
    process_id string
    user_endpoint struct?
        host string
        port uint16
    client_tags struct[]
        key string
        value string

StreamsGroupTargetAssignmentMetadata 20, key (group_id string), version 0, flexible 0+
    assignment_epoch int32
    assignment_timestamp int64 tag 0

StreamsGroupTargetAssignmentMember 21, key (group_id string, member_id string),
    version 0, flexible 0+
    active_tasks struct[]
        subtopology_id string
        partitions int32[]
    standby_tasks struct[]
        subtopology_id string
        partitions int32[]
    warmup_tasks struct[]
        subtopology_id string
        partitions int32[]

StreamsGroupCurrentMemberAssignment 22, key (group_id string, member_id string),
    version 0, flexible 0+
    member_epoch int32
    previous_member_epoch int32
    state int8
    active_tasks struct[]
        subtopology_id string
        partitions int32[]
        assignment_epochs int32[]? tag 0
    standby_tasks struct[]
        subtopology_id string
        partitions int32[]
        assignment_epochs int32[]? tag 0
    warmup_tasks struct[]
        subtopology_id string
        partitions int32[]
        assignment_epochs int32[]? tag 0
    active_tasks_pending_revocation struct[]
        subtopology_id string
        partitions int32[]
        assignment_epochs int32[]? tag 0
    standby_tasks_pending_revocation struct[]
        subtopology_id string
        partitions int32[]
        assignment_epochs int32[]? tag 0
    warmup_tasks_pending_revocation struct[]
        subtopology_id string
        partitions int32[]
        assignment_epochs int32[]? tag 0

StreamsGroupTopology 23, key (group_id string), version 0, flexible 0+
    epoch int32
    subtopologies struct[]
        subtopology_id string
        source_topics string[]
        source_topic_regex string[]
        state_changelog_topics struct[]
            name string
            partitions int32
            replication_factor int16
            topic_configs struct[]
                key string
                value string
        repartition_sink_topics string[]
        repartition_source_topics struct[]
            name string
            partitions int32
            replication_factor int16
            topic_configs struct[]
                key string
                value string
        copartition_groups struct[]
            source_topics int16[]
            source_topic_regex int16[]
            repartition_source_topics int16[]

StreamsGroupTargetAssignmentResolvedTopicIds 24, key (group_id string), version 0, flexible 0+
    assignment_epoch int32
    resolved_topic_ids_by_subtopology struct[]
        subtopology_id string
        topic_ids uuid[]
""")


_WRITTEN_KEY, _WRITTEN_VALUE = 1, 3


class OffsetCommitKey(NamedTuple):
    """The group and the partition of a committed offset."""

    group: str
    topic: str
    partition: int


class OffsetAndMetadata(NamedTuple):
    """A committed offset.

    | field              | value                                                      |
    | ------------------ | ---------------------------------------------------------- |
    | `offset`           | exclusive end of the records that the group has read       |
    | `leader_epoch`     | of the last record read; -1: none, or a version before 3   |
    | `metadata`         | set by the client, mostly empty                            |
    | `commit_timestamp` | ms since 1970, by the broker's clock or from an old client |
    | `expire_timestamp` | ms since 1970; -1: none, or any version but 1              |
    | `topic_id`         | 22 characters of base64; None up to 4.2, in transactions   |
    """

    offset: int
    metadata: str
    commit_timestamp: int
    leader_epoch: int = NO_LEADER_EPOCH
    expire_timestamp: int = NO_TIMESTAMP
    topic_id: str | None = None


def parse_offset_commit(
    key: bytes, value: bytes | None
) -> tuple[OffsetCommitKey, OffsetAndMetadata | None] | None:
    """Parse a committed offset, None for a tombstone; return None for another record.

    Raises `CorruptionError` (position in the key or value) if a field is incomplete, and
    `UnsupportedFormatError` for an unknown version.

    >>> key = bytes.fromhex("0001 0005 74656c6c79 0006 6f7264657273 00000003")
    >>> value = bytes.fromhex("0003 0000000000000002 ffffffff 0000 000001a1f833d1b1")
    >>> parse_offset_commit(key, value)[1][:3]
    (2, '', 1795165508017)
    """
    if len(key) >= 2 and int.from_bytes(key[:2], "big") not in OFFSET_COMMITS:
        return None
    record = RECORDS.parse_keyed(key, value)
    assert record.key is not None
    committed = OffsetCommitKey(**record.key)
    if value is None:
        return committed, None
    if record.value is None:
        newest = RECORDS.descriptions[record.number].versions.newest
        raise UnsupportedFormatError(
            f"version of the offset commit value must be from 0 to {newest}, got {record.version}",
            position=0,
        )
    fields = record.value
    return committed, OffsetAndMetadata(
        fields["offset"],
        fields["metadata"],
        fields["commit_timestamp"],
        fields["leader_epoch"],
        fields["expire_timestamp"],
        fields["topic_id"],
    )


def pack_offset_commit(
    key: OffsetCommitKey, commit: OffsetAndMetadata | None
) -> tuple[bytes, bytes | None]:
    """Return the key and the value of a committed offset; None is a tombstone.

    Every version of Kafka since 2.1 reads it. The expiry and the topic id are not written.

    >>> key = OffsetCommitKey("telly", "orders", 3)
    >>> parse_offset_commit(*pack_offset_commit(key, OffsetAndMetadata(2, "", 1000)))[1][:3]
    (2, '', 1000)
    """
    codec = RECORDS.codec(_WRITTEN_KEY, None)
    assert codec is not None
    packed_key = _WRITTEN_KEY.to_bytes(2, "big") + codec.pack(key._asdict())
    if commit is None:
        return packed_key, None
    fields = {
        "offset": commit.offset, "leader_epoch": commit.leader_epoch,
        "metadata": commit.metadata, "commit_timestamp": commit.commit_timestamp,
    }
    value = RECORDS.known_codec(_WRITTEN_KEY, _WRITTEN_VALUE).pack(fields)
    return packed_key, _WRITTEN_VALUE.to_bytes(2, "big") + value
