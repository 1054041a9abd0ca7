"""The lag of consumer groups in offsets, in records, and in time."""
from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING

from kafkastore.arguments import timestamp_ms
from kafkastore.formats.topics.consumer_offsets import OffsetCommitKey
from kafkastore.formats.unknown_numbers import none_if_negative
from kafkastore.jobs.group_positions import GroupPosition, committed_positions, position_items
from kafkastore.jobs.job import Job, JobResults, Row, skipped_column, skipped_rows
from kafkastore.log.damage import OnCorrupt
from kafkastore.log.isolation import Isolation, reads_committed
from kafkastore.store.log_store import AnyPartition, Paths, open_paths
from kafkastore.store.partition_path import open_as_store
from kafkastore.use_cases.lag import PartitionLag, lag_of
from kafkastore.use_cases.share_lag import SharePartitionLag

if TYPE_CHECKING:
    import pyarrow as pa

#: The numbers of a lag, in the table of every kind of group.
LAG_COLUMNS = (
    "log_start_offset", "log_end_offset", "lag_offsets", "lag_records", "lag_ms", "lost_offsets"
)
#: Those of its unread records.
UNREAD_COLUMNS = (
    "untimed_records", "first_unread_offset", "first_unread_timestamp", "newest_unread_timestamp",
    "now",
)


def measured_row(found: PartitionLag | SharePartitionLag) -> Row:
    """Return `LAG_COLUMNS`, `UNREAD_COLUMNS` and the skipped bytes of a lag."""
    unread = found.unread
    return {
        "log_start_offset": found.log_start_offset,
        "log_end_offset": found.log_end_offset,
        "lag_offsets": found.offsets,
        "lag_records": found.records,
        "lag_ms": found.lag_ms,
        "lost_offsets": found.lost_offsets,
        "untimed_records": None if unread is None else unread.untimed_records,
        "first_unread_offset": None if unread is None else unread.first_offset,
        "first_unread_timestamp": None if unread is None else unread.first_timestamp,
        "newest_unread_timestamp": None if unread is None else unread.newest_timestamp,
        "now": found.now,
        "skipped": skipped_rows(found.skipped),
    }


@dataclass(frozen=True)
class LagJob(Job[GroupPosition, PartitionLag]):
    """Count the records after each committed offset; options as for `lag`."""

    now: int | None = None
    isolation: Isolation = "read_uncommitted"
    on_corrupt: OnCorrupt = "raise"

    def __post_init__(self) -> None:
        reads_committed(self.isolation)

    @staticmethod
    def columns() -> list[tuple[str, pa.DataType]]:
        """Return the columns of a group's lag."""
        import pyarrow as pa

        number, text = pa.int64(), pa.string()
        return [
            ("group", text),
            ("offset", number),
            ("leader_epoch", pa.int32()),
            ("metadata", text),
            ("commit_timestamp", number),
            ("place", text),
            *((name, number) for name in (*LAG_COLUMNS, *UNREAD_COLUMNS)),
            skipped_column(),
        ]

    def run(self, item: GroupPosition) -> PartitionLag:
        """Measure the lag of one group in one partition."""
        return lag_of(
            open_as_store(item.copies),
            item.key,
            item.committed,
            now=self.now,
            isolation=self.isolation,
            on_corrupt=self.on_corrupt,
        )

    def rows(self, result: PartitionLag) -> Iterator[Row]:
        """Yield the row of a group and partition."""
        yield {
            "group": result.group,
            **result.topic_partition._asdict(),
            "offset": result.committed.offset,
            "leader_epoch": none_if_negative(result.committed.leader_epoch),
            "metadata": result.committed.metadata,
            "commit_timestamp": none_if_negative(result.committed.commit_timestamp),
            "place": result.place.value,
            **measured_row(result),
        }

    def place(self, item: GroupPosition) -> Row:
        """Return the partition's place, the group, and its committed offset."""
        return {**item.columns(), "offset": item.committed.offset}

    def weigh(self, item: GroupPosition) -> int:
        """Return the size of the partition's logs."""
        return item.bytes


def lag(
    path: Paths,
    groups: Sequence[str] = (),
    *,
    partitions: Collection[AnyPartition] | None = None,
    offsets: Mapping[OffsetCommitKey, int] | None = None,
    now: int | datetime | None = None,
    isolation: Isolation = "read_uncommitted",
    on_corrupt: OnCorrupt = "raise",
) -> JobResults[GroupPosition, PartitionLag]:
    """Measure the lag of consumer groups in offsets, in records, and in time.

    Parameters
    ----------
    path : path-like, LogStore or list of these
        Log directories or partition directories of one broker; they are not changed.
    groups : sequence of str
        Report only these groups; all if empty.
    partitions : collection, optional
        Only offsets committed for these, each as ``("orders", 3)`` or ``"orders-3"``.
    offsets : mapping, optional
        Committed offsets by group, topic and partition. Default: those in the store's own
        ``__consumer_offsets``.
    now : int or datetime, optional
        ms since 1970, the end of the lag in time. Default: the newest unread record of each
        partition, which is useful for the disk of a dead broker.
    isolation : str
        "read_uncommitted", or "read_committed": without records of aborted transactions, up to the
        last stable offset.
    on_corrupt : "raise", "skip" or "stop"
        As for `PartitionLog.batches`; each `PartitionLag` lists what is skipped.

    Returns
    -------
    iterator of PartitionLag
        In the order of group, topic and partition.

    Raises
    ------
    NoCommittedOffsetsError
        If `offsets` is not given and the store has no committed offsets.
    KafkaStoreError
        If a partition cannot be read.

    Examples
    --------
    >>> import kafkastore
    >>> for each in kafkastore.lag("kafka-logs", ["billing"]):  # doctest: +SKIP
    ...     print(each.topic_partition, each.records, each.lag_ms)
    """
    now = None if now is None else timestamp_ms("now", now)
    job, store = LagJob(now, isolation, on_corrupt), open_paths(path)
    committed = committed_positions(store, groups, partitions=partitions, offsets=offsets)
    return JobResults(job, partial(position_items, committed, store))
