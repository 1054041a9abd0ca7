"""Check the checkpoints of a log directory against the end of one log.

Source: Kafka 2.4.0 ``Log.recoverLog``, ``Partition.createLog``; 3.9.0 and 4.1 ``LogLoader``.
"""

from __future__ import annotations

from collections.abc import Iterator

from kafkastore.checks.findings import Finding, FindingKind
from kafkastore.formats.state.file_names import (
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    TopicPartition,
)
from kafkastore.log.log_dir import LogDir
from kafkastore.store.partition_log import PartitionLog

_NONE_NEEDED = "none needed; if the last segments are lost, look for them first"


def check_bounds(log: PartitionLog, log_end_offset: int) -> Iterator[Finding]:
    """Compare a partition's offsets in the checkpoints with its log.

    `log_end_offset` is the offset after the last complete batch.
    """
    if log.log_dir is None:
        return
    partition = log.topic_partition
    start = _offset(log.log_dir, LOG_START_OFFSET_CHECKPOINT, partition)
    if start is not None and log_end_offset < start:
        yield Finding(
            FindingKind.LOG_END_BELOW_LOG_START, log.path, None,
            f"the log ends at {log_end_offset}, below its start {start} in "
            f"{LOG_START_OFFSET_CHECKPOINT}",
            f"look for lost segments; if there are none, remove the line of {partition} from "
            f"{LOG_START_OFFSET_CHECKPOINT} before a broker starts",
        )
    recovery_point = _offset(log.log_dir, RECOVERY_POINT_CHECKPOINT, partition)
    if recovery_point is not None and log.is_clean and recovery_point < log_end_offset:
        # Every version flushes a log to its end at a clean shutdown.
        yield Finding(
            FindingKind.LOG_END_AFTER_CLEAN_SHUTDOWN, log.path, None,
            f"the last clean shutdown was at offset {recovery_point} according to "
            f"{RECOVERY_POINT_CHECKPOINT}, and now ends at {log_end_offset}",
            "compare its last batch with that of a replica (kafkastore dump)",
        )
    elif recovery_point is not None and recovery_point > log_end_offset:
        yield Finding(
            FindingKind.RECOVERY_POINT_BEYOND_LOG_END, log.path, None,
            f"the recovery point {recovery_point} is beyond the log end offset {log_end_offset}",
            _NONE_NEEDED,
        )
    high_watermark = _offset(log.log_dir, HIGH_WATERMARK_CHECKPOINT, partition)
    if high_watermark is None:
        return
    if high_watermark > log_end_offset:
        yield Finding(
            FindingKind.HIGH_WATERMARK_BEYOND_LOG_END, log.path, None,
            f"the high watermark {high_watermark} is beyond the log end offset {log_end_offset}",
            _NONE_NEEDED,
        )
    elif high_watermark < log.start_bound.offset:
        yield Finding(
            FindingKind.HIGH_WATERMARK_BELOW_LOG_START, log.path, None,
            f"the high watermark {high_watermark} is below the log start offset "
            f"{log.start_bound.offset}",
        )


def _offset(log_dir: LogDir, name: str, partition: TopicPartition) -> int | None:
    """Return a partition's offset in a checkpoint, if that is not corrupt."""
    return log_dir.checkpoint(name).offsets.get(partition)
