"""What administrators and user interfaces ask.

Source: Kafka 4.4.0 ``*Request.json``, ``*Response.json``.
"""

from __future__ import annotations

REQUESTS = """
DescribeAcls 29, versions 1-3, flexible 2+
    resource_type_filter int8
    resource_name_filter string?
    pattern_type_filter int8 = 3
    principal_filter string?
    host_filter string?
    operation int8
    permission_type int8

DescribeConfigs 32, versions 1-4, flexible 4+
    resources struct[]
        resource_type int8
        resource_name string
        configuration_keys string[]?
    include_synonyms bool
    include_documentation bool 3+

DescribeLogDirs 35, versions 1-5, flexible 2+
    topics struct[]?
        topic string
        partitions int32[]

DescribeCluster 60, versions 0-2, flexible 0+
    include_cluster_authorized_operations bool
    endpoint_type int8 1+ = 1
    include_fenced_brokers bool 2+

DescribeProducers 61, version 0, flexible 0+
    topics struct[]
        name string
        partition_indexes int32[]

DescribeTransactions 65, version 0, flexible 0+
    transactional_ids string[]

ListTransactions 66, versions 0-2, flexible 0+
    state_filters string[]
    producer_id_filters int64[]
    duration_filter int64 1+ = -1
    transactional_id_pattern string? 2+ = null

DescribeTopicPartitions 75, version 0, flexible 0+
    topics struct[]
        name string
    response_partition_limit int32 = 2000
    cursor struct? = null
        topic_name string
        partition_index int32
"""

RESPONSES = """
DescribeAcls 29, versions 1-3, flexible 2+
    throttle_time_ms int32
    error_code int16
    error_message string?
    resources struct[]
        resource_type int8
        resource_name string
        pattern_type int8 = 3
        acls struct[]
            principal string
            host string
            operation int8
            permission_type int8

DescribeConfigs 32, versions 1-4, flexible 4+
    throttle_time_ms int32
    results struct[]
        error_code int16
        error_message string?
        resource_type int8
        resource_name string
        configs struct[]
            name string
            value string?
            read_only bool
            config_source int8 = -1
            is_sensitive bool
            synonyms struct[]
                name string
                value string?
                source int8
            config_type int8 3+ ignorable
            documentation string? 3+ ignorable

DescribeLogDirs 35, versions 1-5, flexible 2+
    throttle_time_ms int32
    error_code int16 3+ ignorable
    results struct[]
        error_code int16
        log_dir string
        topics struct[]
            name string
            partitions struct[]
                partition_index int32
                partition_size int64
                offset_lag int64
                is_future_key bool
        total_bytes int64 4+ ignorable = -1
        usable_bytes int64 4+ ignorable = -1
        is_cordoned bool 5+ ignorable

DescribeCluster 60, versions 0-2, flexible 0+
    throttle_time_ms int32
    error_code int16
    error_message string? = null
    endpoint_type int8 1+ = 1
    cluster_id string
    controller_id int32 = -1
    brokers struct[]
        broker_id int32
        host string
        port int32
        rack string? = null
        is_fenced bool 2+
    cluster_authorized_operations int32 = -2147483648

DescribeProducers 61, version 0, flexible 0+
    throttle_time_ms int32
    topics struct[]
        name string
        partitions struct[]
            partition_index int32
            error_code int16
            error_message string? = null
            active_producers struct[]
                producer_id int64
                producer_epoch int32
                last_sequence int32 = -1
                last_timestamp int64 = -1
                coordinator_epoch int32
                current_txn_start_offset int64 = -1

DescribeTransactions 65, version 0, flexible 0+
    throttle_time_ms int32
    transaction_states struct[]
        error_code int16
        transactional_id string
        transaction_state string
        transaction_timeout_ms int32
        transaction_start_time_ms int64
        producer_id int64
        producer_epoch int16
        topics struct[]
            topic string
            partitions int32[]

ListTransactions 66, versions 0-2, flexible 0+
    throttle_time_ms int32
    error_code int16
    unknown_state_filters string[]
    transaction_states struct[]
        transactional_id string
        producer_id int64
        transaction_state string

DescribeTopicPartitions 75, version 0, flexible 0+
    throttle_time_ms int32
    topics struct[]
        error_code int16
        name string?
        topic_id uuid
        is_internal bool
        partitions struct[]
            error_code int16
            partition_index int32
            leader_id int32
            leader_epoch int32 = -1
            replica_nodes int32[]
            isr_nodes int32[]
            eligible_leader_replicas int32[]? = null
            last_known_elr int32[]? = null
            offline_replicas int32[]
        topic_authorized_operations int32 = -2147483648
    next_cursor struct? = null
        topic_name string
        partition_index int32
"""
