"""Committed offsets with their partitions: the items of two jobs."""
from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from kafkastore.formats.state.file_names import TopicPartition
from kafkastore.formats.topics.consumer_offsets import OffsetAndMetadata, OffsetCommitKey
from kafkastore.jobs.job import Row, columns_of
from kafkastore.store.log_store import AnyPartition, LogStore
from kafkastore.store.partition_path import Copies, find_copies, weight
from kafkastore.use_cases.committed_offsets import committed_offsets


class GroupPosition(NamedTuple):
    """A group's committed offset in a partition.

    `copies` are the places of the partition, empty if the store does not have it; `target` are
    those in another cluster.
    """

    key: OffsetCommitKey
    committed: OffsetAndMetadata
    copies: Copies
    target: Copies = ()

    @property
    def bytes(self) -> int:
        """Size of the logs in both clusters, in bytes."""
        return weight(self.copies) + weight(self.target)

    def columns(self) -> Row:
        """Return the columns that name group and partition."""
        return {
            **(columns_of(self.copies) if self.copies else {}),
            "topic": self.key.topic,
            "partition": self.key.partition,
            "group": self.key.group,
        }


def committed_positions(
    store: LogStore,
    groups: Sequence[str] = (),
    *,
    partitions: Collection[AnyPartition] | None = None,
    offsets: Mapping[OffsetCommitKey, int] | None = None,
    unreadable: dict[TopicPartition, Exception] | None = None,
) -> dict[OffsetCommitKey, OffsetAndMetadata]:
    """Return committed offsets, or the given `offsets`, of groups and partitions."""
    if offsets is None:
        committed = committed_offsets(store, groups, unreadable=unreadable)
    else:
        committed = {
            key: OffsetAndMetadata(offset, "", -1)
            for key, offset in sorted(offsets.items())
            if not groups or key.group in groups
        }
    if partitions is None:
        return committed
    chosen = set(store.chosen(partitions))
    return {
        key: each
        for key, each in committed.items()
        if TopicPartition(key.topic, key.partition) in chosen
    }


def position_items(
    committed: Mapping[OffsetCommitKey, OffsetAndMetadata],
    store: LogStore,
    target: LogStore | None = None,
    *,
    topic_prefix: str = "",
    is_weighed: bool = True,
) -> list[GroupPosition]:
    """Find the partition of each committed offset, also under a topic prefix."""
    items = []
    for key, each in committed.items():
        here = TopicPartition(key.topic, key.partition)
        there: Copies = ()
        if target is not None:
            other = TopicPartition(topic_prefix + key.topic, key.partition)
            there = find_copies(target, other, is_weighed=is_weighed)
        items.append(
            GroupPosition(key, each, find_copies(store, here, is_weighed=is_weighed), there)
        )
    return items
