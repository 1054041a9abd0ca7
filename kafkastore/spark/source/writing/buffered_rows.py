"""The rows of a task by partition, and when they are written."""
from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from kafkastore.arguments import INT32_MAX
from kafkastore.clock import clock
from kafkastore.errors import InvalidColumnError, InvalidTimestampError
from kafkastore.formats.state.file_names import TopicPartition
from kafkastore.spark.source.writing.key_partitions import partitions_of_keys
from kafkastore.spark.source.writing.task_logs import TaskLogs
from kafkastore.spark.source.writing.write_options import WriteOptions

#: Rows are written when a partition has this many batches, or all waiting rows this many bytes.
BATCHES_AT_ONCE = 16
LARGEST_WAIT_BYTES = 64 << 20
NO_TIMESTAMP_MICROSECONDS = -1000


class WaitingRows:
    """The rows of a task by partition, collected until they fill some batches.

    `task` is the task's number, at which the distribution of rows without keys starts.
    """

    def __init__(self, logs: TaskLogs, options: WriteOptions, task: int) -> None:
        self._logs, self._options = logs, options
        self._waiting: dict[TopicPartition, list[pa.RecordBatch]] = {}
        self._bytes: dict[TopicPartition, int] = {}
        self._next_in_turn = task

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows with the columns of the frame.

        Raises `InvalidColumnError` if a row has no topic, or its partition cannot be determined.
        """
        names = batch.schema.names
        keys = batch["key"].cast(pa.binary()) if "key" in names else pa.nulls(len(batch))
        topics, topic_of = self._topics(batch)
        partition_of = self._partitions(batch, keys, topics, topic_of)
        columns = {name: batch[name] for name in ("key", "value", "headers") if name in names}
        columns["timestamp"] = _timestamps(batch)
        if "offset" in names:
            columns["offset"] = _offsets(batch)
        rows = pa.RecordBatch.from_pydict(columns)
        # Both have at most 31 bits.
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
        """Write all collected rows, partition by partition."""
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
        """Return the topics, and the index of each row's topic."""
        if self._options.topic is not None:
            return [self._options.topic], np.zeros(len(batch), np.int64)
        if batch["topic"].null_count:
            raise InvalidColumnError(
                "topic", "is null in a row: filter such rows, or give the option topic"
            )
        encoded = batch["topic"].dictionary_encode()
        return encoded.dictionary.to_pylist(), encoded.indices.to_numpy().astype(np.int64)

    def _partitions(
        self,
        batch: pa.RecordBatch,
        keys: pa.Array,
        topics: list[str],
        topic_of: NDArray[np.int64],
    ) -> NDArray[np.int64]:
        """Return each row's partition: its own, its key's, or the next in turn."""
        if "partition" in batch.schema.names:
            partitions = _partitions(batch, self._options.partitions)
        else:
            partitions = np.full(len(batch), -1)
        missing = partitions < 0
        if not missing.any():
            return partitions
        counts = np.array([self._options.partition_count(each) or 0 for each in topics])
        count = counts[topic_of]
        without = np.flatnonzero(missing & (count == 0))
        if len(without):
            raise InvalidColumnError(
                "partition",
                f"is null in a row of topic {topics[topic_of[without[0]]]}: give every row its "
                "partition, or set the option partitions to the topic's number of partitions",
            )
        has_key = missing & keys.is_valid().to_numpy(zero_copy_only=False)
        rows = np.flatnonzero(has_key)
        if len(rows):
            chosen = keys if len(rows) == len(keys) else keys.take(pa.array(rows))
            partitions[rows] = partitions_of_keys(chosen, count[rows])
        rows = np.flatnonzero(missing & ~has_key)
        partitions[rows] = (np.arange(len(rows)) + self._next_in_turn) % count[rows]
        self._next_in_turn += len(rows)
        return partitions


def _partitions(batch: pa.RecordBatch, count: int | None) -> NDArray[np.int64]:
    """Return the partitions in the rows' own column, -1 for null."""
    column = batch["partition"].cast(pa.int64())
    limits = pc.min_max(column).as_py()
    for number in (limits["min"], limits["max"]):
        if number is not None and not 0 <= number < (count or INT32_MAX + 1):
            most = (count or INT32_MAX + 1) - 1
            raise InvalidColumnError("partition", f"must be from 0 to {most}, got {number}")
    numbers: NDArray[np.int64] = column.fill_null(-1).to_numpy().copy()
    return numbers


def _timestamps(batch: pa.RecordBatch) -> pa.Array:
    """Return the rows' timestamps; null becomes the current time, as in a producer."""
    now = clock()
    if "timestamp" not in batch.schema.names:
        return pa.repeat(pa.scalar(now, pa.int64()), len(batch))
    column = batch["timestamp"]
    first = pc.min(column.cast(pa.int64())).as_py()
    if first is not None and first < NO_TIMESTAMP_MICROSECONDS:
        raise InvalidTimestampError(
            f"column 'timestamp' must be at least -1 ms (1969-12-31 23:59:59.999 UTC, no "
            f"timestamp), got {first} microseconds since 1970"
        )
    return column.fill_null(pa.scalar(now * 1000, pa.int64()).cast(column.type))


def _offsets(batch: pa.RecordBatch) -> pa.Array:
    column = batch["offset"].cast(pa.int64())
    if column.null_count or (pc.min(column).as_py() or 0) < 0:
        raise InvalidColumnError(
            "offset",
            "is null or negative in a row: give every row its offset, or drop the column to have "
            "records numbered in their order",
        )
    return column
