"""The public names of `kafkastore` itself."""
from kafkastore.changes.apply import apply
from kafkastore.changes.journal import Journal
from kafkastore.changes.plan import Plan
from kafkastore.changes.resume import resume
from kafkastore.changes.undo import undo
from kafkastore.checks.findings import Finding, FindingKind, Severity
from kafkastore.checks.reindex import plan_reindex
from kafkastore.checks.repair import plan_repair
from kafkastore.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    ChangeRefusedError,
    CorruptBatchError,
    CorruptCheckpointError,
    CorruptIndexError,
    CorruptionError,
    DuplicatePartitionError,
    IndexFullError,
    InRemoteSegmentError,
    InvalidConfigError,
    InvalidRecordError,
    InvalidTimestampError,
    KafkaStoreError,
    LogWouldBeCutError,
    MissingExtraError,
    NotAFileError,
    NotALogDirectoryError,
    OffsetOutOfRangeError,
    OffsetOverflowError,
    OutOfOrderAppendError,
    ProducerStateError,
    RecordTooLargeError,
    RefusalReason,
    RemoteObjectChangedError,
    RemoteStoreError,
    SegmentGoneError,
    SeveralClustersError,
    UnknownRemoteSegmentsError,
    UnknownTopicError,
    UnsupportedFormatError,
    UnsupportedForMessageFormatError,
    UnsupportedTimestampError,
    WriterFailedError,
)
from kafkastore.formats.indexes.entries import (
    IN_REMOTE_STORAGE,
    LogOffsetPosition,
    TimestampAndOffset,
)
from kafkastore.formats.records.record_batch import Record, RecordBatch, TimestampType
from kafkastore.formats.state.file_names import TopicPartition
from kafkastore.jobs.best_replicas import best_replicas
from kafkastore.jobs.cluster import cluster
from kafkastore.jobs.failover import failover
from kafkastore.jobs.groups import groups
from kafkastore.jobs.lag import lag
from kafkastore.jobs.latency import latency
from kafkastore.jobs.listing import list_logs
from kafkastore.jobs.predict import predict_start
from kafkastore.jobs.retention import retention
from kafkastore.jobs.share_lag import share_lag
from kafkastore.jobs.sizing import sizing
from kafkastore.jobs.transactions import transactions
from kafkastore.jobs.verify import verify
from kafkastore.log.damage import SkippedBytes, SkippedBytesWarning
from kafkastore.log.log_dir import UnknownLogStartWarning
from kafkastore.log.remote_log import RemoteLog, RemoteSource, RemoteStorage
from kafkastore.log.remote_metadata import UnknownRemote
from kafkastore.log.remote_segments import RemoteSegment
from kafkastore.lookup.differences import DifferenceKind
from kafkastore.lookup.explanation import Explanation
from kafkastore.metadata.cluster import Cluster, MetadataSource, NoMetadataError
from kafkastore.metadata.new_snapshot import new_snapshot
from kafkastore.metadata.replay_error import ReplayError
from kafkastore.recovery.log_recovery import RecoveredLog, recover_log
from kafkastore.segment.index_file import OffsetIndex, TimeIndex
from kafkastore.segment.log_segment import LogSegment
from kafkastore.segment.transaction_index_file import TransactionIndex
from kafkastore.store.cluster_metadata import UnreadMetadataWarning
from kafkastore.store.log_store import LogStore
from kafkastore.store.log_store import open_store as open
from kafkastore.store.partition_log import PartitionLog
from kafkastore.store.topic_logs import TopicLogs
from kafkastore.writing.log_config import LogConfig
from kafkastore.writing.log_dir_writer import LogDirWriter
from kafkastore.writing.log_writer import AppendInfo, LogWriter

# Last: they use the names above.
from kafkastore import legacy, migration  # isort: skip

__all__ = [
    "IN_REMOTE_STORAGE",
    "AppendInfo",
    "ArgumentTypeError",
    "ArgumentValueError",
    "ChangeRefusedError",
    "Cluster",
    "CorruptBatchError",
    "CorruptCheckpointError",
    "CorruptIndexError",
    "CorruptionError",
    "DifferenceKind",
    "DuplicatePartitionError",
    "Explanation",
    "Finding",
    "FindingKind",
    "InRemoteSegmentError",
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
    "MetadataSource",
    "MissingExtraError",
    "NoMetadataError",
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
    "RefusalReason",
    "RemoteLog",
    "RemoteObjectChangedError",
    "RemoteSegment",
    "RemoteSource",
    "RemoteStorage",
    "RemoteStoreError",
    "ReplayError",
    "SegmentGoneError",
    "SeveralClustersError",
    "Severity",
    "SkippedBytes",
    "SkippedBytesWarning",
    "TimeIndex",
    "TimestampAndOffset",
    "TimestampType",
    "TopicLogs",
    "TopicPartition",
    "TransactionIndex",
    "UnknownLogStartWarning",
    "UnknownRemote",
    "UnknownRemoteSegmentsError",
    "UnknownTopicError",
    "UnreadMetadataWarning",
    "UnsupportedForMessageFormatError",
    "UnsupportedFormatError",
    "UnsupportedTimestampError",
    "WriterFailedError",
    "apply",
    "best_replicas",
    "cluster",
    "failover",
    "groups",
    "lag",
    "latency",
    "legacy",
    "list_logs",
    "migration",
    "new_snapshot",
    "open",
    "plan_reindex",
    "plan_repair",
    "predict_start",
    "recover_log",
    "resume",
    "retention",
    "share_lag",
    "sizing",
    "transactions",
    "undo",
    "verify",
]
