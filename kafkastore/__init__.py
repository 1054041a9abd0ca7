"""kafkastore: Kafka's log store without the broker."""
from kafkastore.errors import (
    ChangeRefusedError,
    CorruptBatchError,
    CorruptCheckpointError,
    CorruptIndexError,
    CorruptionError,
    IndexFullError,
    KafkaStoreError,
    NotALogDirectoryError,
    OffsetOutOfRangeError,
    OffsetOverflowError,
    OutOfOrderAppendError,
    UnsupportedFormatError,
)
from kafkastore.formats.entries import LogOffsetPosition, TimestampAndOffset
from kafkastore.formats.file_names import TopicPartition
from kafkastore.formats.record_batch import Record, RecordBatch, TimestampType
from kafkastore.log.log_store import LogStore
from kafkastore.log.log_store import open_store as open
from kafkastore.log.partition_log import PartitionLog
from kafkastore.segment.index_file import OffsetIndex, TimeIndex
from kafkastore.segment.log_segment import LogSegment

__version__ = "0.1.0"

__all__ = [
    "ChangeRefusedError",
    "CorruptBatchError",
    "CorruptCheckpointError",
    "CorruptIndexError",
    "CorruptionError",
    "IndexFullError",
    "KafkaStoreError",
    "LogOffsetPosition",
    "LogSegment",
    "LogStore",
    "NotALogDirectoryError",
    "OffsetIndex",
    "OffsetOutOfRangeError",
    "OffsetOverflowError",
    "OutOfOrderAppendError",
    "PartitionLog",
    "Record",
    "RecordBatch",
    "TimeIndex",
    "TimestampAndOffset",
    "TimestampType",
    "TopicPartition",
    "UnsupportedFormatError",
    "open",
]
