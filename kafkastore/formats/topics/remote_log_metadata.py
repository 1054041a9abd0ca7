"""Records of ``__remote_log_metadata``: segments in remote storage (KIP-405).

Source: Kafka 4.3.1 ``storage`` ``message/*.json``, ``RemoteLogMetadataTopicPartitioner``.
"""

from __future__ import annotations

import base64

from kafkastore.formats.messages.record_tables import RecordTable
from kafkastore.formats.primitives.murmur2 import murmur2

#: The topic's default number of partitions, ``remote.log.metadata.topic.num.partitions``.
DEFAULT_PARTITIONS = 50

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


def metadata_partition_of(topic_id: str, partition: int, partitions: int) -> int:
    """Return the partition of the topic that has the records of a partition.

    `topic_id` is in base64, as ``partition.metadata`` has it; `partitions` is the topic's number.

    >>> metadata_partition_of("ThO_hRFPRi232-yXFuCDxQ", 0, 3)
    2
    """
    raw = base64.urlsafe_b64decode(topic_id + "==")
    value = 1
    for number in (_hash_of_long(raw[8:]), _hash_of_long(raw[:8]), partition):
        value = (31 * value + number) & 0xFFFFFFFF
    return (murmur2(value.to_bytes(4, "big")) & 0x7FFFFFFF) % partitions


def _hash_of_long(data: bytes) -> int:
    """Return Java's ``Long.hashCode``, as an unsigned number."""
    return int.from_bytes(data[:4], "big") ^ int.from_bytes(data[4:], "big")
