"""Frames written as Kafka logs, by `frame.write.format("kafkastore")`.

The columns are those of Spark's Kafka sink (`topic`, `partition`, `key`, `value`, `headers`), and
`timestamp` and `offset`. Each task writes its own logs next to the log directory; the driver merges
them and moves them to the log directory (`staged_logs`).

Source: Spark 4.2 ``KafkaWriteTask``; Kafka 2.4.0 ``DefaultPartitioner``.
"""
from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from kafkastore.errors import ChangeRefusedError, RefusalReason
from kafkastore.spark.by_value import SentByValue
from kafkastore.spark.source.short_errors import short_errors
from kafkastore.spark.source.writing.buffered_rows import WaitingRows
from kafkastore.spark.source.writing.merged_logs import StagedLog
from kafkastore.spark.source.writing.staged_logs import StagedJob, begin_job
from kafkastore.spark.source.writing.task_logs import TaskLogs
from kafkastore.spark.source.writing.write_options import (
    WriteOptions,
    check_columns,
    parse_write_options,
)
from kafkastore.writing.cluster_topics import find_topics


class LogsWriter(SentByValue, DataSourceArrowWriter):
    """Writes a frame as a log directory."""

    def __init__(self, options: WriteOptions, job: StagedJob) -> None:
        self.options, self.job = options, job

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of a task; see `write_task`."""
        context = TaskContext.get()
        assert context is not None  # Spark only calls this in tasks
        with short_errors():
            return self.write_task(iterator, context.partitionId(), context.taskAttemptId())

    def write_task(
        self, batches: Iterable[pa.RecordBatch], task: int, attempt: int
    ) -> TaskMessage:
        """Write the rows of one attempt of a task to its own logs.

        `attempt` is unique among all attempts of all tasks. Raises the errors of `WaitingRows.add`
        and `TaskLogs.append`.
        """
        logs = TaskLogs(f"task-{task}-{attempt}", self.options, self.job)
        rows = WaitingRows(logs, self.options, task)
        try:
            for batch in batches:
                rows.add(batch)
            rows.write_all()
            return TaskMessage(logs.close())
        except BaseException:
            logs.abandon()  # the process runs other tasks afterwards
            raise

    @short_errors()
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Merge the logs of all tasks, in the order of the tasks."""
        done = (each for each in messages if isinstance(each, TaskMessage))
        self.job.commit([log for each in done for log in each.logs])

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Remove what the tasks wrote, including tasks that sent no message."""
        self.job.abort()


@dataclass
class TaskMessage(WriterCommitMessage):
    """The logs that a task wrote, in the order of their records."""

    logs: list[StagedLog]


def writer_of(given: Mapping[str, str], schema: StructType, *, overwrite: bool) -> LogsWriter:
    """Return the writer of a frame after all checks.

    Raises `OptionError` if an option or a column is invalid, or the mode is overwrite,
    `ChangeRefusedError` if the target cannot be written, and the errors of unreadable metadata.
    """
    options = parse_write_options(given)
    topics = find_topics(Path(options.path), options.metadata)
    options = options._replace(cluster=topics)
    check_columns(schema, options)
    if overwrite:
        raise ChangeRefusedError(
            f"logs are never overwritten: write to a new directory with mode append, or move "
            f"{options.path} away first",
            RefusalReason.NOT_EMPTY, options.path,
        )
    keeps_offsets = "offset" in schema.fieldNames()
    job = begin_job(options.path, options.given, topics, keeps_offsets=keeps_offsets)
    return LogsWriter(options, job)
