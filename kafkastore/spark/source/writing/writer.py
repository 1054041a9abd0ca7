"""Frames written as Kafka logs: what `frame.write.format("kafkastore")` makes.

Columns are those of Spark's Kafka sink (`topic`, `partition`, `key`, `value`, `headers`), and
`timestamp` and `offset`.  Each task writes logs of its own beside the log directory; the driver
puts them together and moves them to their place (`staged_logs`).

Source: Spark 4.2 ``KafkaWriteTask``; Kafka 2.4.0 ``DefaultPartitioner``.
"""
from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from kafkastore.errors import (
    ChangeRefusedError,
    InvalidRecordError,
    InvalidTimestampError,
    OutOfOrderAppendError,
)
from kafkastore.formats.file_names import TopicPartition
from kafkastore.formats.java_text import INT32_MAX
from kafkastore.log.log_dir_writer import LogDirWriter
from kafkastore.log.log_writer import LogWriter
from kafkastore.spark.source.writing.key_partitions import partitions_of_keys
from kafkastore.spark.source.writing.merged_logs import StagedLog, open_logs_limit
from kafkastore.spark.source.writing.staged_logs import StagedJob, begin_job, check_partition
from kafkastore.spark.source.writing.write_options import (
    WriteOptions,
    check_columns,
    parse_write_options,
)

#: Rows of a partition wait until they are so many batches, or all that wait are so many bytes.
BATCHES_AT_ONCE = 16
LARGEST_WAIT_BYTES = 64 << 20
NO_TIMESTAMP_MICROSECONDS = -1000


class LogsWriter(DataSourceArrowWriter):
    """Writes a frame as a log directory.

    Parameters
    ----------
    options : WriteOptions
        What is asked for.
    job : StagedJob
        Where it is put together.
    """

    def __init__(self, options: WriteOptions, job: StagedJob) -> None:
        self.options, self.job = options, job

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of a task; see `write_task`."""
        context = TaskContext.get()
        assert context is not None  # Spark calls this in tasks alone
        return self.write_task(iterator, context.partitionId(), context.taskAttemptId())

    def write_task(
        self, batches: Iterable[pa.RecordBatch], task: int, attempt: int
    ) -> TaskMessage:
        """Write the rows of one attempt of a task to logs of its own.

        Parameters
        ----------
        batches : iterable of pyarrow.RecordBatch
            With the columns of the frame.
        task : int
            The task's number.
        attempt : int
            A number that no other attempt of any task has.

        Returns
        -------
        TaskMessage

        Raises
        ------
        InvalidRecordError, OutOfOrderAppendError, ChangeRefusedError
            As of `WaitingRows.add` and `TaskLogs.append`.
        """
        logs = TaskLogs(f"task-{task}-{attempt}", self.options, self.job)
        rows = WaitingRows(logs, self.options, task)
        try:
            for batch in batches:
                rows.add(batch)
            rows.write_all()
            return TaskMessage(logs.close())
        except BaseException:
            logs.abandon()  # the process goes on to other tasks
            raise

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Put the logs of all tasks together, in the order of the tasks."""
        done = (each for each in messages if isinstance(each, TaskMessage))
        self.job.commit([log for each in done for log in each.logs])

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Remove what the tasks have written, those too of which there is no message."""
        self.job.abort()


@dataclass
class TaskMessage(WriterCommitMessage):
    """What a task wrote.

    Parameters
    ----------
    logs : list of StagedLog
        In the order of their records.
    """

    logs: list[StagedLog]


def writer_of(given: Mapping[str, str], schema: StructType, *, overwrite: bool) -> LogsWriter:
    """Return what writes a frame, once nothing speaks against it.

    Parameters
    ----------
    given : mapping of str to str
        The options, as Spark hands them over.
    schema : StructType
        The frame's.
    overwrite : bool
        Whether the mode is overwrite, which is refused.

    Returns
    -------
    LogsWriter

    Raises
    ------
    OptionError
        If an option or a column is not as it must be.
    ChangeRefusedError
        If nothing can be written there.
    """
    options = parse_write_options(given)
    check_columns(schema, options)
    if overwrite:
        raise ChangeRefusedError(
            f"no log is overwritten: write to a new directory with mode append, or move "
            f"{options.path} away first"
        )
    keeps_offsets = "offset" in schema.fieldNames()
    return LogsWriter(options, begin_job(options.path, options.config, keeps_offsets=keeps_offsets))


class WaitingRows:
    """The rows of a task by partition, until they are enough for some batches.

    Parameters
    ----------
    logs : TaskLogs
        Where they go.
    options : WriteOptions
        What is asked for.
    task : int
        The task's number, from which rows without keys are spread over the partitions.
    """

    def __init__(self, logs: TaskLogs, options: WriteOptions, task: int) -> None:
        self._logs, self._options = logs, options
        self._waiting: dict[TopicPartition, list[pa.RecordBatch]] = {}
        self._bytes: dict[TopicPartition, int] = {}
        self._next_in_turn = task

    def add(self, batch: pa.RecordBatch) -> None:
        """Take rows.

        Parameters
        ----------
        batch : pyarrow.RecordBatch
            With the columns of the frame.

        Raises
        ------
        InvalidRecordError
            If a row has no topic, or no partition can be found for it.
        """
        names = batch.schema.names
        keys = batch["key"].cast(pa.binary()) if "key" in names else pa.nulls(len(batch))
        topics, topic_of = self._topics(batch)
        partition_of = self._partitions(batch, keys)
        columns = {name: batch[name] for name in ("key", "value", "headers") if name in names}
        columns["timestamp"] = _timestamps(batch)
        if "offset" in names:
            columns["offset"] = _offsets(batch)
        rows = pa.RecordBatch.from_pydict(columns)
        # Both are at most 31 bits.
        places, place_of, counts = np.unique(
            topic_of << 32 | partition_of, return_inverse=True, return_counts=True
        )
        order, start = None, 0
        if len(places) > 1:
            order = np.argsort(place_of, kind="stable")
        for place, count in zip(places.tolist(), counts.tolist(), strict=True):
            topic_partition = TopicPartition(topics[place >> 32], place & 0xFFFFFFFF)
            part = rows if order is None else rows.take(pa.array(order[start : start + count]))
            start += count
            self._add(topic_partition, part)
        if sum(self._bytes.values()) > LARGEST_WAIT_BYTES:
            self.write_all()

    def write_all(self) -> None:
        """Write all rows that wait, partition by partition."""
        for topic_partition in sorted(self._waiting):
            self._write(topic_partition)

    def _add(self, topic_partition: TopicPartition, rows: pa.RecordBatch) -> None:
        self._waiting.setdefault(topic_partition, []).append(rows)
        size = self._bytes.get(topic_partition, 0) + rows.nbytes
        self._bytes[topic_partition] = size
        if size >= BATCHES_AT_ONCE * self._options.batch_bytes:
            self._write(topic_partition)

    def _write(self, topic_partition: TopicPartition) -> None:
        rows = pa.Table.from_batches(self._waiting.pop(topic_partition))
        del self._bytes[topic_partition]
        self._logs.append(topic_partition, rows.combine_chunks())

    def _topics(self, batch: pa.RecordBatch) -> tuple[list[str], NDArray[np.int64]]:
        """Return the topics, and which of them each row has."""
        if self._options.topic is not None:
            return [self._options.topic], np.zeros(len(batch), np.int64)
        if batch["topic"].null_count:
            raise InvalidRecordError(
                "column 'topic' is null in a row: filter such rows, or give the option topic"
            )
        encoded = batch["topic"].dictionary_encode()
        return encoded.dictionary.to_pylist(), encoded.indices.to_numpy().astype(np.int64)

    def _partitions(self, batch: pa.RecordBatch, keys: pa.Array) -> NDArray[np.int64]:
        """Return each row's partition: the one it says, its key's, or the next in turn."""
        count = self._options.partitions
        if "partition" in batch.schema.names:
            partitions = _partitions(batch, count)
        else:
            partitions = np.full(len(batch), -1)
        missing = partitions < 0
        if not missing.any():
            return partitions
        if count is None:
            raise InvalidRecordError(
                "column 'partition' is null in a row, and no option partitions says among how many "
                "partitions keys are divided"
            )
        has_key = missing & keys.is_valid().to_numpy(zero_copy_only=False)
        rows = np.flatnonzero(has_key)
        if len(rows):
            chosen = keys if len(rows) == len(keys) else keys.take(pa.array(rows))
            partitions[rows] = partitions_of_keys(chosen, count)
        rows = np.flatnonzero(missing & ~has_key)
        partitions[rows] = (np.arange(len(rows)) + self._next_in_turn) % count
        self._next_in_turn += len(rows)
        return partitions


class TaskLogs:
    """The logs that one attempt of a task writes.

    Parameters
    ----------
    name : str
        What no other attempt has.
    options : WriteOptions
        What is asked for.
    job : StagedJob
        Where they are staged.
    """

    def __init__(self, name: str, options: WriteOptions, job: StagedJob) -> None:
        self._name, self._options, self._job = name, options, job
        self._log_dir: LogDirWriter | None = None
        self._starts: dict[TopicPartition, int] = {}
        self._done: list[StagedLog] = []
        self._roots = 0
        self._limit = open_logs_limit()

    def append(self, topic_partition: TopicPartition, rows: pa.Table) -> None:
        """Append rows to a partition's log.

        Parameters
        ----------
        topic_partition : TopicPartition
            The partition.
        rows : pyarrow.Table
            At least one row of `key`, `value`, `headers`, `timestamp`; with `offset` these are
            kept.

        Raises
        ------
        InvalidRecordError
            If a leader does not take them.
        OutOfOrderAppendError
            If offsets do not rise.
        ChangeRefusedError
            If the log directory has the partition already.
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
        except InvalidRecordError as error:
            raise type(error)(f"{topic_partition}: {error}") from error
        except OutOfOrderAppendError as error:
            raise OutOfOrderAppendError(
                f"{topic_partition}: {error}; sortWithinPartitions('offset') first, or drop the "
                f"column offset to have records numbered in their order"
            ) from error

    def close(self) -> list[StagedLog]:
        """Make all logs whole and durable.

        Returns
        -------
        list of StagedLog
            In the order of their records.
        """
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
        """Give files and locks back after an error; what was written goes with the job."""
        if self._log_dir is not None:
            with suppress(OSError):
                self._log_dir.close()

    def _writer(self, topic_partition: TopicPartition, start_offset: int) -> LogWriter:
        """Return the writer of a partition; with too many open, all go on in other files."""
        if self._log_dir is not None:
            writer = self._log_dir.writers.get(topic_partition)
            if writer is not None:
                return writer
            if len(self._log_dir.writers) >= self._limit:
                self.close()
        check_partition(self._job.target, topic_partition)
        if self._log_dir is None:
            self._log_dir = self._new_log_dir()
        self._starts[topic_partition] = start_offset
        return self._log_dir.writer(
            *topic_partition, self._options.config, start_offset=start_offset
        )

    def _new_log_dir(self) -> LogDirWriter:
        self._roots += 1
        if not self._job.path.is_dir():
            raise ChangeRefusedError(
                f"{self._job.path} is not there, though the driver made it: the log directory must "
                f"be on a file system that driver and executors share"
            )
        return LogDirWriter(self._job.path / f"{self._name}-{self._roots}")


def _partitions(batch: pa.RecordBatch, count: int | None) -> NDArray[np.int64]:
    """Return the partitions that rows say, -1 where they say none."""
    column = batch["partition"].cast(pa.int64())
    limits = pc.min_max(column).as_py()
    for number in (limits["min"], limits["max"]):
        if number is not None and not 0 <= number < (count or INT32_MAX + 1):
            of_how_many = f" of {count}" if count else ""
            raise InvalidRecordError(
                f"column 'partition' is {number} in a row, which is no partition{of_how_many}"
            )
    numbers: NDArray[np.int64] = column.fill_null(-1).to_numpy().copy()
    return numbers


def _timestamps(batch: pa.RecordBatch) -> pa.Array:
    """Return the rows' timestamps; those that have none get the time, as a producer gives it."""
    now = time.time_ns() // 1_000_000
    if "timestamp" not in batch.schema.names:
        return pa.repeat(pa.scalar(now, pa.int64()), len(batch))
    column = batch["timestamp"]
    first = pc.min(column.cast(pa.int64())).as_py()
    if first is not None and first < NO_TIMESTAMP_MICROSECONDS:
        raise InvalidTimestampError(
            f"column 'timestamp' is {first} microseconds from 1970 in a row: Kafka has no time "
            f"before it; 1969-12-31 23:59:59.999 UTC, -1 ms, says that there is none"
        )
    return column.fill_null(pa.scalar(now * 1000, pa.int64()).cast(column.type))


def _offsets(batch: pa.RecordBatch) -> pa.Array:
    column = batch["offset"].cast(pa.int64())
    if column.null_count or (pc.min(column).as_py() or 0) < 0:
        raise InvalidRecordError(
            "column 'offset' is null or negative in a row: give every row its offset, or drop the "
            "column to have records numbered in their order"
        )
    return column
