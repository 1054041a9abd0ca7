"""Partitions with a file that can't be opened, which plans leave out."""
from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, Self

from kafkastore.errors import KafkaStoreError
from kafkastore.formats.state.file_names import TopicPartition
from kafkastore.store.partition_log import PartitionLog


class UnreadPartition(NamedTuple):
    """A partition for which nothing is planned, as one of its files can't be read.

    Parameters
    ----------
    topic_partition : TopicPartition
        The partition.
    path : Path
        Its directory.
    error : Exception
        Why: a `KafkaStoreError` or an `OSError`.
    """

    topic_partition: TopicPartition
    path: Path
    error: Exception

    @classmethod
    def of(cls, log: PartitionLog, error: Exception) -> Self:
        """Return the unread partition of a log, and the error that reading it raised."""
        return cls(log.topic_partition, log.path, error)


def count_segments(logs: Iterable[PartitionLog]) -> int:
    """Count the segments of the partitions that can be listed."""
    count = 0
    for log in logs:
        with suppress(KafkaStoreError, OSError):  # reported when the partition is read
            count += len(log.segments)
    return count
