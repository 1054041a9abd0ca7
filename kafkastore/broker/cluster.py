"""A broker and its cluster, as far as they decide what it answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from kafkastore.arguments import check_kind
from kafkastore.formats.file_names import TopicPartition
from kafkastore.log.bounds import HighWatermark
from kafkastore.log.log_store import LogStore
from kafkastore.log.partition_log import PartitionLog


class PartitionState(NamedTuple):
    """What a broker has been told of a partition, and what it knows as its leader.

    Parameters
    ----------
    leader : int or None
        Broker id of the leader; None while there is none.
    replicas : tuple of int
        Broker ids of all that have a replica, the leader among them.
    leader_epoch : int
        How often the leader was elected, counted from 0.
    leader_epoch_start_offset : int or None
        Log end offset at which the leader began, which its high watermark must reach before it
        tells where the log ends; None for no such wait.
    high_watermark : "log-end", "checkpoint" or int
        What consumers may read up to, exclusive; see `kafkastore.log.bounds.find_high_watermark`.
    message_format_version : str or None
        The topic's ``message.format.version``; None for a new one.
    """

    leader: int | None
    replicas: tuple[int, ...]
    leader_epoch: int = 0
    leader_epoch_start_offset: int | None = None
    high_watermark: HighWatermark = "log-end"
    message_format_version: str | None = None


@dataclass(frozen=True, slots=True)
class Broker:
    """A broker, with its log directories.

    Parameters
    ----------
    broker_id : int
        Its ``broker.id``, at least 0.
    version : str
        Its Kafka version, such as ``2.4.0``.
    store : LogStore
        What its log directories hold.
    metadata : mapping of TopicPartition to PartitionState
        Every partition of the cluster. What is in the store alone is unknown to the cluster.
    offline_log_dirs : frozenset of path
        Those among the store's log directories that have failed. A replica that the broker should
        have and the store has not counts as lying in one.
    """

    broker_id: int
    version: str
    store: LogStore
    metadata: Mapping[TopicPartition, PartitionState]
    offline_log_dirs: frozenset[Path] = frozenset()

    def online_log(self, topic_partition: TopicPartition) -> PartitionLog | None:
        """Return the partition's log, or None if the log directory that it lies in is offline."""
        log = self.store.partitions.get(topic_partition)
        return None if log is None or log.path.parent in self.offline_log_dirs else log


def sole_broker(store: LogStore, version: str, broker_id: int = 0) -> Broker:
    """Describe a cluster of one broker, which leads every partition it has.

    Parameters
    ----------
    store : LogStore
        Its log directories.
    version : str
        Its Kafka version.
    broker_id : int
        Its ``broker.id``.

    Returns
    -------
    Broker
        Each partition in the newest leader epoch that its checkpoint has, or in 0. That may be too
        low: an epoch in which nothing was written leaves no trace in the log directory.

    Raises
    ------
    TypeError
        If `store` is none, such as a path.
    CorruptCheckpointError
        If a ``leader-epoch-checkpoint`` is damaged.
    """
    check_kind("store", store, LogStore)
    metadata = {}
    for topic_partition, log in store.partitions.items():
        epochs = log.leader_epochs
        epoch = epochs[-1].epoch if epochs else 0
        metadata[topic_partition] = PartitionState(broker_id, (broker_id,), epoch)
    return Broker(broker_id, version, store, metadata)
