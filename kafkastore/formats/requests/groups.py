"""Consumer groups: their coordinator, members and committed offsets.

Source: Kafka 4.4.0 ``*Request.json``, ``*Response.json``.
"""

from __future__ import annotations

REQUESTS = """
OffsetCommit 8, versions 2-10, flexible 8+
    group_id string
    generation_id_or_member_epoch int32 = -1
    member_id string
    group_instance_id string? 7+ = null
    retention_time_ms int64 2-4 ignorable = -1
    topics struct[]
        name string 0-9 ignorable
        topic_id uuid 10+ ignorable
        partitions struct[]
            partition_index int32
            committed_offset int64
            committed_leader_epoch int32 6+ ignorable = -1
            committed_metadata string?

OffsetFetch 9, versions 1-10, flexible 6+
    group_id string 0-7
    topics struct[]?2+ 0-7
        name string 0-7
        partition_indexes int32[] 0-7
    groups struct[] 8+
        group_id string 8+
        member_id string? 9+ ignorable = null
        member_epoch int32 9+ ignorable = -1
        topics struct[]? 8+
            name string 8-9 ignorable
            topic_id uuid 10+ ignorable
            partition_indexes int32[] 8+
    require_stable bool 7+

FindCoordinator 10, versions 0-6, flexible 3+
    key string 0-3
    key_type int8 1+
    coordinator_keys string[] 4+

JoinGroup 11, versions 0-9, flexible 6+
    group_id string
    session_timeout_ms int32
    rebalance_timeout_ms int32 1+ ignorable = -1
    member_id string
    group_instance_id string? 5+ = null
    protocol_type string
    protocols struct[]
        name string
        metadata bytes
    reason string? 8+ ignorable = null

Heartbeat 12, versions 0-4, flexible 4+
    group_id string
    generation_id int32
    member_id string
    group_instance_id string? 3+ = null

LeaveGroup 13, versions 0-5, flexible 4+
    group_id string
    member_id string 0-2
    members struct[] 3+
        member_id string 3+
        group_instance_id string? 3+ = null
        reason string? 5+ ignorable = null

SyncGroup 14, versions 0-5, flexible 4+
    group_id string
    generation_id int32
    member_id string
    group_instance_id string? 3+ = null
    protocol_type string? 5+ ignorable = null
    protocol_name string? 5+ ignorable = null
    assignments struct[]
        member_id string
        assignment bytes

DescribeGroups 15, versions 0-6, flexible 5+
    groups string[]
    include_authorized_operations bool 3+

ListGroups 16, versions 0-5, flexible 3+
    states_filter string[] 4+
    types_filter string[] 5+

DeleteGroups 42, versions 0-2, flexible 2+
    groups_names string[]

OffsetDelete 47, version 0
    group_id string
    topics struct[]
        name string
        partitions struct[]
            partition_index int32

ConsumerGroupHeartbeat 68, versions 0-1, flexible 0+
    group_id string
    member_id string
    member_epoch int32
    instance_id string? = null
    rack_id string? = null
    rebalance_timeout_ms int32 = -1
    subscribed_topic_names string[]? = null
    subscribed_topic_regex string? 1+ = null
    server_assignor string? = null
    topic_partitions struct[]? = null
        topic_id uuid
        partitions int32[]

ConsumerGroupDescribe 69, versions 0-1, flexible 0+
    group_ids string[]
    include_authorized_operations bool
"""

RESPONSES = """
OffsetCommit 8, versions 2-10, flexible 8+
    throttle_time_ms int32 3+ ignorable
    topics struct[]
        name string 0-9 ignorable
        topic_id uuid 10+ ignorable
        partitions struct[]
            partition_index int32
            error_code int16

OffsetFetch 9, versions 1-10, flexible 6+
    throttle_time_ms int32 3+ ignorable
    topics struct[] 0-7
        name string 0-7
        partitions struct[] 0-7
            partition_index int32 0-7
            committed_offset int64 0-7
            committed_leader_epoch int32 5-7 ignorable = -1
            metadata string? 0-7
            error_code int16 0-7
    error_code int16 2-7 ignorable
    groups struct[] 8+
        group_id string 8+
        topics struct[] 8+
            name string 8-9 ignorable
            topic_id uuid 10+ ignorable
            partitions struct[] 8+
                partition_index int32 8+
                committed_offset int64 8+
                committed_leader_epoch int32 8+ ignorable = -1
                metadata string? 8+
                error_code int16 8+
        error_code int16 8+

FindCoordinator 10, versions 0-6, flexible 3+
    throttle_time_ms int32 1+ ignorable
    error_code int16 0-3
    error_message string? 1-3 ignorable
    node_id int32 0-3
    host string 0-3
    port int32 0-3
    coordinators struct[] 4+
        key string 4+
        node_id int32 4+
        host string 4+
        port int32 4+
        error_code int16 4+
        error_message string? 4+ ignorable

JoinGroup 11, versions 0-9, flexible 6+
    throttle_time_ms int32 2+ ignorable
    error_code int16
    generation_id int32 = -1
    protocol_type string? 7+ ignorable = null
    protocol_name string?7+
    leader string
    skip_assignment bool 9+
    member_id string
    members struct[]
        member_id string
        group_instance_id string? 5+ ignorable = null
        metadata bytes

Heartbeat 12, versions 0-4, flexible 4+
    throttle_time_ms int32 1+ ignorable
    error_code int16

LeaveGroup 13, versions 0-5, flexible 4+
    throttle_time_ms int32 1+ ignorable
    error_code int16
    members struct[] 3+
        member_id string 3+
        group_instance_id string? 3+
        error_code int16 3+

SyncGroup 14, versions 0-5, flexible 4+
    throttle_time_ms int32 1+ ignorable
    error_code int16
    protocol_type string? 5+ ignorable = null
    protocol_name string? 5+ ignorable = null
    assignment bytes

DescribeGroups 15, versions 0-6, flexible 5+
    throttle_time_ms int32 1+ ignorable
    groups struct[]
        error_code int16
        error_message string? 6+ = null
        group_id string
        group_state string
        protocol_type string
        protocol_data string
        members struct[]
            member_id string
            group_instance_id string? 4+ ignorable = null
            client_id string
            client_host string
            member_metadata bytes
            member_assignment bytes
        authorized_operations int32 3+ = -2147483648

ListGroups 16, versions 0-5, flexible 3+
    throttle_time_ms int32 1+ ignorable
    error_code int16
    groups struct[]
        group_id string
        protocol_type string
        group_state string 4+ ignorable
        group_type string 5+ ignorable

DeleteGroups 42, versions 0-2, flexible 2+
    throttle_time_ms int32
    results struct[]
        group_id string
        error_code int16

OffsetDelete 47, version 0
    error_code int16
    throttle_time_ms int32 ignorable
    topics struct[]
        name string
        partitions struct[]
            partition_index int32
            error_code int16

ConsumerGroupHeartbeat 68, versions 0-1, flexible 0+
    throttle_time_ms int32
    error_code int16
    error_message string? = null
    member_id string? = null
    member_epoch int32
    heartbeat_interval_ms int32
    assignment struct? = null
        topic_partitions struct[]
            topic_id uuid
            partitions int32[]

ConsumerGroupDescribe 69, versions 0-1, flexible 0+
    throttle_time_ms int32
    groups struct[]
        error_code int16
        error_message string? = null
        group_id string
        group_state string
        group_epoch int32
        assignment_epoch int32
        assignor_name string
        members struct[]
            member_id string
            instance_id string? = null
            rack_id string? = null
            member_epoch int32
            client_id string
            client_host string
            subscribed_topic_names string[]
            subscribed_topic_regex string? = null
            assignment struct
                topic_partitions struct[]
                    topic_id uuid
                    topic_name string
                    partitions int32[]
            target_assignment struct
                topic_partitions struct[]
                    topic_id uuid
                    topic_name string
                    partitions int32[]
            member_type int8 1+ ignorable = -1
        authorized_operations int32 = -2147483648
"""
