"""The lag of share groups in offsets, in records, and in time."""
from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from kafkastore.arguments import check_collection, timestamp_ms
from kafkastore.formats.state.file_names import TopicPartition
from kafkastore.jobs.job import Job, JobResults, Row, columns_of, skipped_column
from kafkastore.jobs.lag import LAG_COLUMNS, UNREAD_COLUMNS, measured_row
from kafkastore.log.damage import OnCorrupt
from kafkastore.log.isolation import Isolation, reads_committed
from kafkastore.log.partition_files import read_topic_id
from kafkastore.store.log_store import AnyPartition, LogStore, Paths, open_paths
from kafkastore.store.partition_path import FAILURES, Copies, find_copies, open_copies, weight
from kafkastore.use_cases.committed_offsets import NoCommittedOffsetsError
from kafkastore.use_cases.share_lag import SharePartitionLag, share_lag_of
from kafkastore.use_cases.share_states import (
    SHARE_GROUP_STATE,
    SharePartition,
    SharePartitionState,
    share_states_in,
)

if TYPE_CHECKING:
    import pyarrow as pa


class SharePosition(NamedTuple):
    """A share group's state in a partition.

    `topic` is the topic's name, None if the store has no topic with the id. `copies` are the places
    of the partition, empty if the store does not have it.
    """

    key: SharePartition
    state: SharePartitionState
    topic: str | None
    copies: Copies

    @property
    def name(self) -> str:
        """The topic's name, or else its id."""
        return self.topic or self.key.topic_id


@dataclass(frozen=True)
class ShareLagJob(Job[SharePosition, SharePartitionLag]):
    """Count records that share groups have not completed; see `share_lag`."""

    now: int | None = None
    isolation: Isolation = "read_uncommitted"
    on_corrupt: OnCorrupt = "raise"

    def __post_init__(self) -> None:
        reads_committed(self.isolation)

    @staticmethod
    def columns() -> list[tuple[str, pa.DataType]]:
        """Return the columns of a share group's lag."""
        import pyarrow as pa

        number, text = pa.int64(), pa.string()
        return [
            ("group", text),
            ("topic_id", text),
            ("start_offset", number),
            ("leader_epoch", pa.int32()),
            *((name, number) for name in LAG_COLUMNS),
            ("acknowledged_offsets", number),
            ("archived_offsets", number),
            ("released_offsets", number),
            *((name, number) for name in UNREAD_COLUMNS),
            skipped_column(),
        ]

    def run(self, item: SharePosition) -> SharePartitionLag:
        """Measure the lag of one group in one partition."""
        log = open_copies(item.copies) if item.copies else None
        return share_lag_of(
            log,
            item.key,
            item.state,
            topic=item.topic,
            now=self.now,
            isolation=self.isolation,
            on_corrupt=self.on_corrupt,
        )

    def rows(self, result: SharePartitionLag) -> Iterator[Row]:
        """Yield the row of a group and partition."""
        state = result.state
        yield {
            "group": result.group,
            "topic_id": result.topic_id,
            "start_offset": state.start_offset,
            "leader_epoch": state.leader_epoch,
            "acknowledged_offsets": result.acknowledged,
            "archived_offsets": result.archived,
            "released_offsets": result.released,
            **measured_row(result),
        }

    def place(self, item: SharePosition) -> Row:
        """Return the partition's place, the group, and the start offset."""
        return {
            **(columns_of(item.copies) if item.copies else {}),
            "topic": item.name,
            "partition": item.key.partition,
            "group": item.key.group,
            "topic_id": item.key.topic_id,
            "start_offset": item.state.start_offset,
        }

    def weigh(self, item: SharePosition) -> int:
        """Return the size of the partition's logs."""
        return weight(item.copies)


def share_positions(
    store: LogStore,
    groups: Sequence[str] = (),
    *,
    partitions: Collection[AnyPartition] | None = None,
    unreadable: dict[TopicPartition, Exception] | None = None,
    is_weighed: bool = True,
) -> list[SharePosition]:
    """Return what share groups have read, by group, topic and partition.

    Arguments are as for `committed_offsets`; a store without ``__share_group_state`` has nothing.
    """
    states: dict[SharePartition, SharePartitionState] = {}
    for each in store.partitions:
        if each.topic == SHARE_GROUP_STATE:
            try:
                states.update(share_states_in(store.partitions[each]))
            except FAILURES as error:
                if unreadable is None:
                    raise
                unreadable[each] = error
    names = _topics_by_id(store) if states else {}
    chosen = None if partitions is None else set(store.chosen(partitions))
    found = []
    for key, state in states.items():
        if groups and key.group not in groups:
            continue
        copies: Copies = ()
        if (topic := names.get(key.topic_id)) is not None:
            here = TopicPartition(topic, key.partition)
            if chosen is not None and here not in chosen:
                continue
            if all(
                read_topic_id(log.path) in (None, key.topic_id)
                for log in (store.partitions.copies(here) if here in store.partitions else ())
            ):
                copies = find_copies(store, here, is_weighed=is_weighed)
        elif chosen is not None:
            continue
        found.append(SharePosition(key, state, topic, copies))
    return sorted(found, key=lambda each: (each.key.group, each.name, each.key.partition))


def _topics_by_id(store: LogStore) -> dict[str, str]:
    """Return the names of the store's topics by id, from the first partition of each."""
    names: dict[str, str] = {}
    seen = set()
    for each in store.partitions:
        if each.topic not in seen:
            seen.add(each.topic)
            for log in store.partitions.copies(each):
                if (topic_id := read_topic_id(log.path)) is not None:
                    names[topic_id] = each.topic
    return names


def share_lag(
    path: Paths,
    groups: Sequence[str] = (),
    *,
    partitions: Collection[AnyPartition] | None = None,
    now: int | datetime | None = None,
    isolation: Isolation = "read_uncommitted",
    on_corrupt: OnCorrupt = "raise",
) -> JobResults[SharePosition, SharePartitionLag]:
    """Measure the lag of share groups in offsets, in records, and in time.

    Parameters
    ----------
    path : path-like, LogStore or list of these
        Log directories or partition directories of one broker, with partitions of
        ``__share_group_state``; they are not changed. Only groups whose partitions are there are
        found.
    groups : sequence of str
        Report only these groups; all if empty.
    partitions : collection, optional
        Only these partitions, each as ``("orders", 3)`` or ``"orders-3"``.
    now : int or datetime, optional
        ms since 1970, the end of the lag in time. Default: the newest unread record of each
        partition.
    isolation : str
        "read_uncommitted", or "read_committed": without records of aborted transactions, up to the
        last stable offset.
    on_corrupt : "raise", "skip" or "stop"
        As for `PartitionLog.batches`; each `SharePartitionLag` lists what is skipped.

    Returns
    -------
    iterator of SharePartitionLag
        In the order of group, topic and partition.

    Raises
    ------
    NoCommittedOffsetsError
        If the store has no ``__share_group_state``, or nothing of a group in it.
    KafkaStoreError
        If a partition cannot be read.

    Notes
    -----
    Source: Kafka 4.3.1 ``ShareCoordinatorShard``; KIP-932, KIP-1226.

    Examples
    --------
    >>> import kafkastore
    >>> for each in kafkastore.share_lag("kafka-logs"):  # doctest: +SKIP
    ...     print(each.topic_partition, each.offsets, each.records, each.acknowledged)
    """
    check_collection("groups", groups)
    now = None if now is None else timestamp_ms("now", now)
    job, store = ShareLagJob(now, isolation, on_corrupt), open_paths(path)
    if not has_share_state(store):
        where = " and ".join(map(str, store.paths))
        raise NoCommittedOffsetsError(f"no partition of {SHARE_GROUP_STATE} in {where}")
    found = share_positions(store, groups, partitions=partitions, is_weighed=False)
    there = {each.key.group for each in found}
    for group in groups:
        if group not in there and partitions is None:
            raise NoCommittedOffsetsError(
                f"share group {group} has no state in the partitions of {SHARE_GROUP_STATE} here",
                group,
            )
    return JobResults(job, partial(_items, found, store))


def has_share_state(store: LogStore) -> bool:
    """Return whether a store has a partition of ``__share_group_state``."""
    return any(each.topic == SHARE_GROUP_STATE for each in store.partitions)


def _items(
    found: Sequence[SharePosition], store: LogStore, *, is_weighed: bool = True
) -> list[SharePosition]:
    """Return positions with or without the sizes of their logs."""
    if not is_weighed:
        return list(found)
    return [
        each._replace(copies=find_copies(store, each.copies[0].topic_partition))
        if each.copies else each
        for each in found
    ]
