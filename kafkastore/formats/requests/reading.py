"""Finding and reading records.

Source: Kafka 4.4.0 ``*Request.json``, ``*Response.json``.
"""

from __future__ import annotations

REQUESTS = """
Fetch 1, versions 4-18, flexible 12+
    cluster_id string? 12+ tag 0 ignorable = null
    replica_id int32 0-14 = -1
    replica_state struct 15+ tag 1
        replica_id int32 15+ = -1
        replica_epoch int64 15+ = -1
    max_wait_ms int32
    min_bytes int32
    max_bytes int32 = 2147483647
    isolation_level int8
    session_id int32 7+ ignorable
    session_epoch int32 7+ ignorable = -1
    topics struct[]
        topic string 0-12 ignorable
        topic_id uuid 13+ ignorable
        partitions struct[]
            partition int32
            current_leader_epoch int32 9+ ignorable = -1
            fetch_offset int64
            last_fetched_epoch int32 12+ = -1
            log_start_offset int64 5+ ignorable = -1
            partition_max_bytes int32
            replica_directory_id uuid 17+ tag 0 ignorable
            high_watermark int64 18+ tag 1 ignorable = 9223372036854775807
    forgotten_topics_data struct[] 7+
        topic string 7-12 ignorable
        topic_id uuid 13+ ignorable
        partitions int32[] 7+
    rack_id string 11+ ignorable

Metadata 3, versions 0-13, flexible 9+
    topics struct[]?1+
        topic_id uuid 10+ ignorable
        name string?10+
    allow_auto_topic_creation bool 4+ = true
    include_cluster_authorized_operations bool 8-10
    include_topic_authorized_operations bool 8+

ApiVersions 18, versions 0-5, flexible 3+
    client_software_name string 3+ ignorable
    client_software_version string 3+ ignorable
    cluster_id string? 5+ ignorable = null
    node_id int32 5+ ignorable = -1

OffsetForLeaderEpoch 23, versions 2-4, flexible 4+
    replica_id int32 3+ ignorable = -2
    topics struct[]
        topic string
        partitions struct[]
            partition int32
            current_leader_epoch int32 = -1
            leader_epoch int32

SaslHandshake 17, versions 0-1
    mechanism string

SaslAuthenticate 36, versions 0-2, flexible 2+
    auth_bytes bytes
"""

RESPONSES = """
Fetch 1, versions 4-18, flexible 12+
    throttle_time_ms int32
    error_code int16 7+ ignorable
    session_id int32 7+
    responses struct[]
        topic string 0-12 ignorable
        topic_id uuid 13+ ignorable
        partitions struct[]
            partition_index int32
            error_code int16
            high_watermark int64
            last_stable_offset int64 = -1
            log_start_offset int64 5+ ignorable = -1
            diverging_epoch struct 12+ tag 0
                epoch int32 12+ = -1
                end_offset int64 12+ = -1
            current_leader struct 12+ tag 1
                leader_id int32 12+ = -1
                leader_epoch int32 12+ = -1
            snapshot_id struct 12+ tag 2
                end_offset int64 = -1
                epoch int32 = -1
            aborted_transactions struct[]?
                producer_id int64
                first_offset int64
            preferred_read_replica int32 11+ = -1
            records bytes?
    node_endpoints struct[] 16+ tag 0
        node_id int32 16+
        host string 16+
        port int32 16+
        rack string? 16+ = null

Metadata 3, versions 0-13, flexible 9+
    throttle_time_ms int32 3+ ignorable
    brokers struct[]
        node_id int32
        host string
        port int32
        rack string? 1+ ignorable = null
    cluster_id string? 2+ ignorable = null
    controller_id int32 1+ ignorable = -1
    topics struct[]
        error_code int16
        name string?12+
        topic_id uuid 10+ ignorable
        is_internal bool 1+ ignorable
        partitions struct[]
            error_code int16
            partition_index int32
            leader_id int32
            leader_epoch int32 7+ ignorable = -1
            replica_nodes int32[]
            isr_nodes int32[]
            offline_replicas int32[] 5+ ignorable
        topic_authorized_operations int32 8+ = -2147483648
    cluster_authorized_operations int32 8-10 = -2147483648
    error_code int16 13+ ignorable

ApiVersions 18, versions 0-5, flexible 3+
    error_code int16
    api_keys struct[]
        api_key int16
        min_version int16
        max_version int16
    throttle_time_ms int32 1+ ignorable
    supported_features struct[] 3+ tag 0 ignorable
        name string 3+
        min_version int16 3+
        max_version int16 3+
    finalized_features_epoch int64 3+ tag 1 ignorable = -1
    finalized_features struct[] 3+ tag 2 ignorable
        name string 3+
        max_version_level int16 3+
        min_version_level int16 3+
    zk_migration_ready bool 3+ tag 3 ignorable

OffsetForLeaderEpoch 23, versions 2-4, flexible 4+
    throttle_time_ms int32
    topics struct[]
        topic string
        partitions struct[]
            error_code int16
            partition int32
            leader_epoch int32 = -1
            end_offset int64 = -1

SaslHandshake 17, versions 0-1
    error_code int16
    mechanisms string[]

SaslAuthenticate 36, versions 0-2, flexible 2+
    error_code int16
    error_message string?
    auth_bytes bytes
    session_lifetime_ms int64 1+ ignorable
"""
