"""Records of ``__remote_log_metadata``: segments in remote storage (KIP-405).

Source: Kafka 4.3.1 ``storage`` ``message/*.json``.
"""

from kafkastore.formats.messages.record_tables import RecordTable

RECORDS = RecordTable("""
RemoteLogSegmentMetadataRecord 0, version 0, flexible 0+
    remote_log_segment_id struct
        topic_id_partition struct
            name string
            id uuid
            partition int32
        id uuid
    start_offset int64
    end_offset int64
    broker_id int32
    max_timestamp_ms int64
    event_timestamp_ms int64
    segment_leader_epochs struct[]
        leader_epoch int32
        offset int64
    segment_size_in_bytes int32
    custom_metadata bytes?
    remote_log_segment_state int8
    txn_index_empty bool tag 0

RemoteLogSegmentMetadataUpdateRecord 1, version 0, flexible 0+
    remote_log_segment_id struct
        topic_id_partition struct
            name string
            id uuid
            partition int32
        id uuid
    broker_id int32
    event_timestamp_ms int64
    custom_metadata bytes?
    remote_log_segment_state int8

RemotePartitionDeleteMetadataRecord 2, version 0, flexible 0+
    topic_id_partition struct
        name string
        id uuid
        partition int32
    broker_id int32
    event_timestamp_ms int64
    remote_partition_delete_state int8

RemoteLogSegmentMetadataSnapshotRecord 3, version 0, flexible 0+
    segment_id uuid
    start_offset int64
    end_offset int64
    broker_id int32
    max_timestamp_ms int64
    event_timestamp_ms int64
    segment_leader_epochs struct[]
        leader_epoch int32
        offset int64
    segment_size_in_bytes int32
    custom_metadata bytes?
    remote_log_segment_state int8
    txn_index_empty bool tag 0
""")
