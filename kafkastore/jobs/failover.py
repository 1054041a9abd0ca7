"""The offsets at which consumer groups of one cluster continue in another."""
from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from kafkastore.formats.topics.consumer_offsets import OffsetCommitKey
from kafkastore.jobs.group_positions import GroupPosition, committed_positions, position_items
from kafkastore.jobs.job import Job, JobResults, Row
from kafkastore.store.log_store import AnyPartition, Paths, open_paths
from kafkastore.store.partition_path import open_as_store
from kafkastore.use_cases.failover import Method, PartitionFailover, check_method, failover_of
from kafkastore.use_cases.fingerprints import Match

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class FailoverJob(Job[GroupPosition, PartitionFailover]):
    """Find where each group continues; options as for `failover`.

    `latency_by_topic` has the largest latency of each topic, or the error of measuring it, and
    replaces `largest_latency_ms`.
    """

    by: Method = "create-time"
    largest_latency_ms: int | None = None
    clock_skew_ms: int = 0
    topic_prefix: str = ""
    check: bool = True
    match: Match = "timestamp"
    latency_by_topic: Mapping[str, int | Exception] | None = None

    def __post_init__(self) -> None:
        check_method(self.by)

    @staticmethod
    def columns() -> list[tuple[str, pa.DataType]]:
        """Return the columns of a group's new offset."""
        import pyarrow as pa

        number, text = pa.int64(), pa.string()
        return [
            ("group", text),
            ("offset", number),
            ("timestamp", number),
            ("source_topic", text),
            ("source_offset", number),
            ("place", text),
            ("bound_timestamp", number),
            ("basis", text),
            ("untimed_records", number),
            ("unread_records", number),
            ("found_records", number),
            ("lost_records", number),
            ("duplicate_records", number),
            ("unmatched_records", number),
        ]

    def run(self, item: GroupPosition) -> PartitionFailover:
        """Find where one group continues in one partition; may raise `FailoverError`."""
        latency_ms = self.largest_latency_ms
        if self.latency_by_topic is not None:
            known = self.latency_by_topic[item.key.topic]
            if isinstance(known, Exception):
                raise known
            latency_ms = known
        return failover_of(
            open_as_store(item.copies),
            open_as_store(item.target),
            item.key,
            item.committed.offset,
            topic_id=item.committed.topic_id,
            by=self.by,
            largest_latency_ms=latency_ms,
            clock_skew_ms=self.clock_skew_ms,
            topic_prefix=self.topic_prefix,
            check=self.check,
            match=self.match,
        )

    def rows(self, result: PartitionFailover) -> Iterator[Row]:
        """Yield the row of a group and partition."""
        check = result.check
        yield {
            "group": result.group,
            **result.target._asdict(),
            "offset": result.offset,
            "timestamp": None if result.record is None else result.record.timestamp,
            "source_topic": result.source.topic,
            "source_offset": result.position,
            "place": result.place.value,
            "bound_timestamp": result.bound.timestamp,
            "basis": result.bound.basis,
            "untimed_records": result.bound.untimed_records,
            "unread_records": None if check is None else check.unread,
            "found_records": None if check is None else check.found,
            "lost_records": None if check is None else check.lost,
            "duplicate_records": None if check is None else check.duplicates,
            "unmatched_records": None if check is None else check.unmatched,
        }

    def place(self, item: GroupPosition) -> Row:
        """Return the partition in cluster 1, the group, and its committed offset."""
        return {
            **item.columns(),
            "source_topic": item.key.topic,
            "source_offset": item.committed.offset,
        }

    def weigh(self, item: GroupPosition) -> int:
        """Return the size of the partition's logs in both clusters."""
        return item.bytes


def failover(
    source: Paths,
    target: Paths,
    groups: Sequence[str] = (),
    *,
    partitions: Collection[AnyPartition] | None = None,
    offsets: Mapping[OffsetCommitKey, int] | None = None,
    by: Method = "create-time",
    largest_latency_ms: int | None = None,
    clock_skew_ms: int = 0,
    topic_prefix: str = "",
    check: bool = True,
    match: Match = "timestamp",
) -> JobResults[GroupPosition, PartitionFailover]:
    """Find the offsets where consumer groups of one cluster continue in another.

    Parameters
    ----------
    source, target : path-like, LogStore or list of these
        Log directories of cluster 1 and of cluster 2.
    groups : sequence of str
        Report only these groups; all if empty.
    partitions : collection, optional
        Only offsets committed for these, each as ``("orders", 3)`` or ``"orders-3"``.
    offsets : mapping, optional
        Committed offsets by group, topic and partition. Default: those committed in the source.
    by : "create-time" or "log-append-time"
        How to find the time bound; see `kafkastore.use_cases.failover`.
    largest_latency_ms : int, optional
        For ``log-append-time``: the maximum time in ms from a record's creation to its append in
        cluster 1. Default: the largest latency in the partition itself.
    clock_skew_ms : int
        How far clocks may differ, in ms; subtracted from the bound. Needed if cluster 2 has
        LogAppendTime.
    topic_prefix : str
        The prefix of topic names in cluster 2, such as MirrorMaker 2's ``source.``.
    check : bool
        Whether to compare the records of both clusters; this reads both partitions completely and
        needs 40 bytes of memory a record.
    match : "timestamp" or "content"
        Two records are the same if time, key and value are equal, or only key and value.

    Returns
    -------
    iterator of PartitionFailover
        In the order of group, topic and partition.

    Raises
    ------
    NoCommittedOffsetsError
        If `offsets` is not given and the source has no committed offsets.
    FailoverError
        If a partition is not in both clusters, or no latency is known, or the offset was committed
        for a deleted topic of the same name.
    KafkaStoreError
        If a partition cannot be read.
    """
    job = FailoverJob(by, largest_latency_ms, clock_skew_ms, topic_prefix, check, match)
    here, there = open_paths(source), open_paths(target)
    committed = committed_positions(here, groups, partitions=partitions, offsets=offsets)
    items = partial(position_items, committed, here, there, topic_prefix=topic_prefix)
    return JobResults(job, items)
