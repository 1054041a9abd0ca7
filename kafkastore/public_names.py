"""The public names of `kafkastore` itself."""
from kafkastore.changes.apply import apply
from kafkastore.changes.journal import Journal
from kafkastore.changes.plan import Plan
from kafkastore.changes.undo import resume, undo
from kafkastore.checks.findings import Finding, Severity
from kafkastore.checks.reindex import plan_reindex
from kafkastore.checks.repair import plan_repair
from kafkastore.errors import (
    ChangeRefusedError,
    CorruptBatchError,
    CorruptCheckpointError,
    CorruptIndexError,
    CorruptionError,
    DuplicatePartitionError,
    IndexFullError,
    InvalidConfigError,
    InvalidRecordError,
    InvalidTimestampError,
    KafkaStoreError,
    LogWouldBeCutError,
    NotAFileError,
    NotALogDirectoryError,
    OffsetOutOfRangeError,
    OffsetOverflowError,
    OutOfOrderAppendError,
    ProducerStateError,
    RecordTooLargeError,
    RemoteObjectChangedError,
    RemoteStoreError,
    SegmentGoneError,
    UnsupportedFormatError,
    UnsupportedForMessageFormatError,
    UnsupportedTimestampError,
    WriterFailedError,
)
from kafkastore.formats.entries import LogOffsetPosition, TimestampAndOffset
from kafkastore.formats.file_names import TopicPartition
from kafkastore.formats.record_batch import Record, RecordBatch, TimestampType
from kafkastore.jobs.failover import failover
from kafkastore.jobs.lag import lag
from kafkastore.jobs.latency import latency
from kafkastore.jobs.predict import predict_start
from kafkastore.jobs.retention import retention
from kafkastore.jobs.sizing import sizing
from kafkastore.jobs.verify import verify
from kafkastore.log.damage import SkippedBytes, SkippedBytesWarning
from kafkastore.log.log_config import LogConfig
from kafkastore.log.log_dir_writer import LogDirWriter
from kafkastore.log.log_writer import AppendInfo, LogWriter
from kafkastore.log.recovery import RecoveredLog, recover_log
from kafkastore.lookup.explanation import Explanation
from kafkastore.segment.index_file import OffsetIndex, TimeIndex
from kafkastore.segment.log_segment import LogSegment
from kafkastore.segment.transaction_index_file import TransactionIndex
from kafkastore.store.log_store import LogStore
from kafkastore.store.log_store import open_store as open
from kafkastore.store.partition_log import PartitionLog

# Last: they use the names above.
from kafkastore import legacy, migration  # isort: skip

__all__ = [
    "AppendInfo",
    "ChangeRefusedError",
    "CorruptBatchError",
    "CorruptCheckpointError",
    "CorruptIndexError",
    "CorruptionError",
    "DuplicatePartitionError",
    "Explanation",
    "Finding",
    "IndexFullError",
    "InvalidConfigError",
    "InvalidRecordError",
    "InvalidTimestampError",
    "Journal",
    "KafkaStoreError",
    "LogConfig",
    "LogDirWriter",
    "LogOffsetPosition",
    "LogSegment",
    "LogStore",
    "LogWouldBeCutError",
    "LogWriter",
    "NotAFileError",
    "NotALogDirectoryError",
    "OffsetIndex",
    "OffsetOutOfRangeError",
    "OffsetOverflowError",
    "OutOfOrderAppendError",
    "PartitionLog",
    "Plan",
    "ProducerStateError",
    "Record",
    "RecordBatch",
    "RecordTooLargeError",
    "RecoveredLog",
    "RemoteObjectChangedError",
    "RemoteStoreError",
    "SegmentGoneError",
    "Severity",
    "SkippedBytes",
    "SkippedBytesWarning",
    "TimeIndex",
    "TimestampAndOffset",
    "TimestampType",
    "TopicPartition",
    "TransactionIndex",
    "UnsupportedForMessageFormatError",
    "UnsupportedFormatError",
    "UnsupportedTimestampError",
    "WriterFailedError",
    "apply",
    "failover",
    "lag",
    "latency",
    "legacy",
    "migration",
    "open",
    "plan_reindex",
    "plan_repair",
    "predict_start",
    "recover_log",
    "resume",
    "retention",
    "sizing",
    "undo",
    "verify",
]
