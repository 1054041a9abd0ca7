"""Writing, and altering topics.

Source: Kafka 4.4.0 ``*Request.json``, ``*Response.json``.
"""

from __future__ import annotations

REQUESTS = """
Produce 0, versions 3-13, flexible 9+
    transactional_id string? = null
    acks int16
    timeout_ms int32
    topic_data struct[]
        name string 0-12 ignorable
        topic_id uuid 13+ ignorable
        partition_data struct[]
            index int32
            records bytes?

CreateTopics 19, versions 2-7, flexible 5+
    topics struct[]
        name string
        num_partitions int32
        replication_factor int16
        assignments struct[]
            partition_index int32
            broker_ids int32[]
        configs struct[]
            name string
            value string?
    timeout_ms int32 = 60000
    validate_only bool

DeleteTopics 20, versions 1-6, flexible 4+
    topics struct[] 6+
        name string? 6+ = null
        topic_id uuid 6+
    topic_names string[] 1-5 ignorable
    timeout_ms int32

InitProducerId 22, versions 0-6, flexible 2+
    transactional_id string?
    transaction_timeout_ms int32
    producer_id int64 3+ = -1
    producer_epoch int16 3+ = -1
    enable2_pc bool 6+
    keep_prepared_txn bool 6+

AlterConfigs 33, versions 0-2, flexible 2+
    resources struct[]
        resource_type int8
        resource_name string
        configs struct[]
            name string
            value string?
    validate_only bool

CreatePartitions 37, versions 0-3, flexible 2+
    topics struct[]
        name string
        count int32
        assignments struct[]?
            broker_ids int32[]
    timeout_ms int32
    validate_only bool

IncrementalAlterConfigs 44, versions 0-1, flexible 1+
    resources struct[]
        resource_type int8
        resource_name string
        configs struct[]
            name string
            config_operation int8
            value string?
    validate_only bool
"""

RESPONSES = """
Produce 0, versions 3-13, flexible 9+
    responses struct[]
        name string 0-12 ignorable
        topic_id uuid 13+ ignorable
        partition_responses struct[]
            index int32
            error_code int16
            base_offset int64
            log_append_time_ms int64 = -1
            log_start_offset int64 5+ ignorable = -1
            record_errors struct[] 8+ ignorable
                batch_index int32 8+
                batch_index_error_message string? 8+ = null
            error_message string? 8+ ignorable = null
            current_leader struct 10+ tag 0
                leader_id int32 10+ = -1
                leader_epoch int32 10+ = -1
    throttle_time_ms int32
    node_endpoints struct[] 10+ tag 0
        node_id int32 10+
        host string 10+
        port int32 10+
        rack string? 10+ = null

CreateTopics 19, versions 2-7, flexible 5+
    throttle_time_ms int32 ignorable
    topics struct[]
        name string
        topic_id uuid 7+ ignorable
        error_code int16
        error_message string? ignorable
        topic_config_error_code int16 5+ tag 0 ignorable
        num_partitions int32 5+ ignorable = -1
        replication_factor int16 5+ ignorable = -1
        configs struct[]? 5+ ignorable
            name string 5+
            value string? 5+
            read_only bool 5+
            config_source int8 5+ ignorable = -1
            is_sensitive bool 5+

DeleteTopics 20, versions 1-6, flexible 4+
    throttle_time_ms int32 ignorable
    responses struct[]
        name string?6+
        topic_id uuid 6+ ignorable
        error_code int16
        error_message string? 5+ ignorable = null

InitProducerId 22, versions 0-6, flexible 2+
    throttle_time_ms int32 ignorable
    error_code int16
    producer_id int64 = -1
    producer_epoch int16
    ongoing_txn_producer_id int64 6+ = -1
    ongoing_txn_producer_epoch int16 6+ = -1

AlterConfigs 33, versions 0-2, flexible 2+
    throttle_time_ms int32
    responses struct[]
        error_code int16
        error_message string?
        resource_type int8
        resource_name string

CreatePartitions 37, versions 0-3, flexible 2+
    throttle_time_ms int32
    results struct[]
        name string
        error_code int16
        error_message string? = null

IncrementalAlterConfigs 44, versions 0-1, flexible 1+
    throttle_time_ms int32
    responses struct[]
        error_code int16
        error_message string?
        resource_type int8
        resource_name string
"""
