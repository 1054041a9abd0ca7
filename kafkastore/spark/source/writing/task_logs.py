"""The staged logs that one attempt of a task writes."""
from __future__ import annotations

from contextlib import suppress

import pyarrow as pa

from kafkastore.errors import (
    ArgumentValueError,
    ChangeRefusedError,
    InvalidColumnError,
    InvalidRecordError,
    InvalidTimestampError,
    KafkaStoreError,
    OutOfOrderAppendError,
    RefusalReason,
)
from kafkastore.formats.state.file_names import TopicPartition
from kafkastore.spark.source.writing.committed_logs import check_partition
from kafkastore.spark.source.writing.merged_logs import StagedLog, open_logs_limit
from kafkastore.spark.source.writing.staged_logs import StagedJob
from kafkastore.spark.source.writing.write_options import WriteOptions
from kafkastore.writing.log_dir_writer import LogDirWriter
from kafkastore.writing.log_writer import LogWriter


class TaskLogs:
    """The logs that one attempt of a task writes; `name` is unique to the attempt."""

    def __init__(self, name: str, options: WriteOptions, job: StagedJob) -> None:
        self._name, self._options, self._job = name, options, job
        self._log_dir: LogDirWriter | None = None
        self._starts: dict[TopicPartition, int] = {}
        self._done: list[StagedLog] = []
        self._roots = 0
        self._limit = open_logs_limit()

    def append(self, topic_partition: TopicPartition, rows: pa.Table) -> None:
        """Append one row or more: `key`, `value`, `headers`, `timestamp`, kept `offset`.

        Raises `InvalidRecordError` if a leader would reject a record, `ChangeRefusedError` for an
        existing partition, `OutOfOrderAppendError` if offsets do not increase.
        """
        try:
            keeps = self._job.keeps_offsets
            writer = self._writer(topic_partition, rows["offset"][0].as_py() if keeps else 0)
            writer.append_columns(
                rows, batch_bytes=self._options.batch_bytes, keep_offsets=keeps
            )
        except InvalidTimestampError as error:
            raise InvalidTimestampError(
                f"{topic_partition}: {error}; see the options message.timestamp.before.max.ms and "
                f"message.timestamp.after.max.ms"
            ) from error
        except InvalidColumnError as error:
            problem = f"{error.problem}, in rows of {topic_partition}"
            raise InvalidColumnError(error.column, problem) from error
        except InvalidRecordError as error:
            raise type(error)(f"{topic_partition}: {error}") from error
        except OutOfOrderAppendError as error:
            raise OutOfOrderAppendError(
                f"{topic_partition}: {error}; sortWithinPartitions('offset') first, or drop the "
                f"column offset to have records numbered in their order"
            ) from error

    def close(self) -> list[StagedLog]:
        """Complete all logs and flush them to disk; return them in record order."""
        if self._log_dir is not None:
            self._log_dir.close()
            root = str(self._log_dir.path)
            for topic_partition, writer in self._log_dir.writers.items():
                self._done.append(
                    StagedLog(
                        topic_partition, root, self._starts[topic_partition], writer.log_end_offset
                    )
                )
            self._log_dir = None
        return self._done

    def abandon(self) -> None:
        """Release files and locks after an error; the job removes the written files."""
        if self._log_dir is not None:
            with suppress(OSError, KafkaStoreError):
                self._log_dir.close()

    def _writer(self, topic_partition: TopicPartition, start_offset: int) -> LogWriter:
        """Return the writer of a partition; close all if too many are open."""
        if self._log_dir is not None:
            writer = self._log_dir.writers.get(topic_partition)
            if writer is not None:
                return writer
            if len(self._log_dir.writers) >= self._limit:
                self.close()
        check_partition(self._job.target, topic_partition)
        try:
            self._options.cluster.topic_id_of_new(topic_partition)
        except ArgumentValueError as error:
            raise InvalidColumnError(
                "partition", f"must be {error.requirement}, got {error.value}"
            ) from error
        if self._log_dir is None:
            self._log_dir = self._new_log_dir()
        self._starts[topic_partition] = start_offset
        return self._log_dir.writer(
            *topic_partition, self._options.given, start_offset=start_offset
        )

    def _new_log_dir(self) -> LogDirWriter:
        self._roots += 1
        if not self._job.path.is_dir():
            raise ChangeRefusedError(
                f"{self._job.path} is missing, although the driver created it: the log directory "
                f"must be on a file system that driver and executors share",
                RefusalReason.UNSUITABLE_PLACE, self._job.path,
            )
        root = self._job.path / f"{self._name}-{self._roots}"
        return LogDirWriter(root, metadata=self._options.cluster)
