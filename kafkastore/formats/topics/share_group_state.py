"""Records of ``__share_group_state``: how far share groups have read (KIP-932).

Source: Kafka 4.3.1 ``share-coordinator`` ``common/message/*.json``.
"""

from kafkastore.formats.messages.record_tables import RecordTable

RECORDS = RecordTable("""
ShareSnapshot 0, key (group_id string, topic_id uuid, partition int32), version 0, flexible 0+
    snapshot_epoch int32
    state_epoch int32
    leader_epoch int32
    start_offset int64
    delivery_complete_count int32 tag 0 = -1
    create_timestamp int64
    write_timestamp int64
    state_batches struct[]
        first_offset int64
        last_offset int64
        delivery_state int8
        delivery_count int16

ShareUpdate 1, key (group_id string, topic_id uuid, partition int32), version 0, flexible 0+
    snapshot_epoch int32
    leader_epoch int32
    start_offset int64
    delivery_complete_count int32 tag 0 = -1
    state_batches struct[]
        first_offset int64
        last_offset int64
        delivery_state int8
        delivery_count int16
""")
