"""Comparisons as Arrow tables, for partitions and stores."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import numpy as np
from kafkastore.legacy.comparison import (
    RemoteOutcomes,
    Timestamps,
    as_timestamps,
    columns_by_name,
    compare_columns,
)

from kafkastore.lookup.remote import remote_segment_row, remote_segment_type
from kafkastore.store.partition_log import PartitionLog
from kafkastore.versions import NEWEST_LEGACY_VERSION, NEWEST_VERSION

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

    from kafkastore.formats.state.file_names import TopicPartition


def schema() -> pa.Schema:
    """Return the schema of comparisons: one row for each partition and time.

    Times are ms since 1970; null means that there is no answer, or that it is in remote storage,
    in `remote_segment`.
    """
    import pyarrow as pa  # imported late because it is slow

    return pa.schema(
        [
            pa.field("topic", pa.string(), nullable=False),
            pa.field("partition", pa.int32(), nullable=False),
            pa.field("target_timestamp", pa.int64(), nullable=False),
            pa.field("legacy", pa.int64()),
            pa.field("broker", pa.int64()),
            pa.field("correct", pa.int64()),
            pa.field("redelivered", pa.int64()),
            pa.field("missed", pa.int64()),
            pa.field("remote_segment", remote_segment_type()),
        ]
    )


def compare_as_arrow(
    logs: PartitionLog | Iterable[PartitionLog],
    timestamps: Timestamps,
    *,
    now: int | None = None,
    mtimes: Mapping[str, int] | None = None,
    rules: str = NEWEST_VERSION,
    legacy_rules: str = NEWEST_LEGACY_VERSION,
    whole_seconds: bool = False,
) -> pa.Table:
    """Compare as `compare` does, and return a table.

    Parameters
    ----------
    logs : PartitionLog or iterable of PartitionLog
        A partition, or several, such as a store.
    timestamps : iterable of int or datetime, or numpy.ndarray of int64, shape (n,)
        ms since 1970, at least 0; looked up in each partition.
    now, mtimes, rules, legacy_rules, whole_seconds
        As for `compare`.

    Returns
    -------
    pyarrow.Table
        One row for each partition and time, with the columns of `schema`; null if there is no
        answer.
    """
    import pyarrow as pa

    targets = as_timestamps(timestamps)
    batches = []
    for log in [logs] if isinstance(logs, PartitionLog) else logs:
        remote = RemoteOutcomes({}, {})
        compared = compare_columns(
            log,
            targets,
            now=now,
            mtimes=mtimes,
            rules=rules,
            legacy_rules=legacy_rules,
            whole_seconds=whole_seconds,
            remote=remote,
        )
        batches.append(as_record_batch(log.topic_partition, compared, remote))
    return pa.Table.from_batches(batches, schema())


def as_record_batch(
    topic_partition: TopicPartition, compared: NDArray[np.void], remote: RemoteOutcomes
) -> pa.RecordBatch:
    """Convert one partition's comparisons to Arrow, with the columns of `schema`."""
    import pyarrow as pa

    count = len(compared)
    columns = [
        pa.array([topic_partition.topic] * count, pa.string()),
        pa.array(np.full(count, topic_partition.partition, np.int32)),
        *(pa.array(each, mask=each < 0) for each in columns_by_name(compared).values()),
        pa.array(
            (
                remote_segment_row(remote.segment_of(target))
                for target in compared["target_timestamp"].tolist()
            ),
            remote_segment_type(),
        ),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema())
