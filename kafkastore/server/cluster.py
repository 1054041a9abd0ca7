"""The properties of a broker and its cluster that decide its answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from kafkastore.arguments import check_kind
from kafkastore.formats.state.file_names import TopicPartition
from kafkastore.log.bounds import HighWatermark
from kafkastore.store.log_store import LogStore
from kafkastore.store.partition_log import PartitionLog


class PartitionState(NamedTuple):
    """A broker's metadata of a partition, and its own state if it is the leader.

    Parameters
    ----------
    leader : int or None
        Broker id of the leader; None if there is none.
    replicas : tuple of int
        Broker ids of all replicas, the leader included.
    leader_epoch : int
        Incremented at each election, from 0 on.
    leader_epoch_start_offset : int or None
        Log end offset at the leader's election. The leader reports its log end only after its high
        watermark has reached this offset; None to not wait.
    high_watermark : "log-end", "checkpoint" or int
        End of what consumers may read, exclusive; see `kafkastore.log.bounds.find_high_watermark`.
    message_format_version : str or None
        The topic's ``message.format.version``; None for the newest.
    """

    leader: int | None
    replicas: tuple[int, ...]
    leader_epoch: int = 0
    leader_epoch_start_offset: int | None = None
    high_watermark: HighWatermark = "log-end"
    message_format_version: str | None = None


@dataclass(frozen=True, slots=True)
class Broker:
    """A broker with its log directories.

    Parameters
    ----------
    broker_id : int
        Its ``broker.id``, at least 0.
    version : str
        Its Kafka version, such as ``2.4.0``.
    store : LogStore
        Its log directories.
    metadata : mapping of TopicPartition to PartitionState
        Every partition of the cluster. A partition only in the store is unknown to the cluster.
    offline_log_dirs : frozenset of path
        The log directories of the store that have failed. If the broker should have a replica and
        the store does not have it, it counts as being in one of these.
    """

    broker_id: int
    version: str
    store: LogStore
    metadata: Mapping[TopicPartition, PartitionState]
    offline_log_dirs: frozenset[Path] = frozenset()

    def online_log(self, topic_partition: TopicPartition) -> PartitionLog | None:
        """Return the partition's log, or None if its log directory is offline."""
        log = self.store.partitions.get(topic_partition)
        return None if log is None or log.path.parent in self.offline_log_dirs else log


def sole_broker(store: LogStore, version: str, broker_id: int = 0) -> Broker:
    """Return a broker that is its whole cluster and leads all its partitions.

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
        Each partition has the newest leader epoch of its checkpoint, or 0. That may be too low: an
        epoch without records leaves no trace in the log directory.

    Raises
    ------
    TypeError
        If `store` is not a LogStore, for example a path.
    CorruptCheckpointError
        If a ``leader-epoch-checkpoint`` is corrupt.
    """
    check_kind("store", store, LogStore)
    metadata = {}
    for topic_partition, log in store.partitions.items():
        epochs = log.leader_epochs
        epoch = epochs[-1].epoch if epochs else 0
        metadata[topic_partition] = PartitionState(broker_id, (broker_id,), epoch)
    return Broker(broker_id, version, store, metadata)
