"""What is served: topics with their ids and partitions, led by one node."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

from kafkastore.errors import CorruptionError, KafkaStoreError
from kafkastore.formats.state.checkpoints import encode_id
from kafkastore.formats.state.file_names import (
    CLUSTER_METADATA_TOPIC,
    INTERNAL_TOPICS,
    TopicPartition,
)
from kafkastore.log.partition_files import read_topic_id
from kafkastore.metadata.cluster import Cluster
from kafkastore.server.served_log import AS_STORED, Reading, ServedLog, SkippedPlaces
from kafkastore.store.cluster_metadata import Metadata, find_cluster_or_warn
from kafkastore.store.log_store import LogStore
from kafkastore.store.partition_log import PartitionLog
from kafkastore.writing.topic_settings import settings_of

DEFAULT_NODE_ID = 1
ListPartitions = Callable[[], tuple[LogStore, Sequence[TopicPartition]]]


class Node(NamedTuple):
    """The one broker that clients see, and where they reach it."""

    node_id: int
    host: str
    port: int


@dataclass(frozen=True)
class ServedTopic:
    """A topic; its id is derived from its name where the directories have none."""

    name: str
    topic_id: str
    partitions: Mapping[int, ServedLog]

    @property
    def is_internal(self) -> bool:
        """Whether brokers write it for themselves."""
        return self.name in INTERNAL_TOPICS


class Catalog:
    """The partitions that are served; `follow` finds new ones."""

    def __init__(
        self,
        list_partitions: ListPartitions,
        metadata: Metadata = None,
        reading: Reading = AS_STORED,
    ) -> None:
        self._list_partitions, self._metadata = list_partitions, metadata
        self._reading = reading
        #: The corrupt bytes that were skipped, of all partitions.
        self.skipped = SkippedPlaces()
        self._seen: tuple[int, ...] = ()
        self.topics: Mapping[str, ServedTopic] = {}
        self._list()

    def follow(self) -> None:
        """List the directories again if a partition came or went.

        What was known stays if that fails: a directory is gone, or does not have what was chosen.
        """
        with suppress(KafkaStoreError, OSError):
            seen = self._look()    # before listing, so that no later change is missed
            if seen != self._seen:
                self._list()
                self._seen = seen

    def _look(self) -> tuple[int, ...]:
        return tuple(os.stat(path).st_mtime_ns for path in self.store.paths)

    def _list(self) -> None:
        self.store, chosen = self._list_partitions()
        cluster = find_cluster_or_warn(self.store, self._metadata)
        self.cluster_id = _cluster_id(self.store, cluster)
        self.settings = settings_of(cluster, self.store, None)
        node_ids = [each.node_id for each in self.store.log_dirs if each.node_id is not None]
        self.node_id = node_ids[0] if node_ids else DEFAULT_NODE_ID
        found: dict[str, dict[int, ServedLog]] = {}
        known = {
            each.log.path: each
            for topic in self.topics.values() for each in topic.partitions.values()
        }
        for place in chosen:
            if place.topic != CLUSTER_METADATA_TOPIC:
                copies = self.store.partitions.copies(place)
                log = copies[0] if len(copies) == 1 else max(copies, key=_age)
                epoch = _epoch_in(cluster, place)
                served = known.get(log.path)
                if served is None:
                    served = ServedLog(log, epoch, self._reading, self.skipped)
                served.known_epoch = epoch
                found.setdefault(place.topic, {})[place.partition] = served
        self.topics = {
            name: ServedTopic(name, _topic_id(name, partitions, cluster), partitions)
            for name, partitions in found.items()
        }
        self.topics_by_id = {each.topic_id: each for each in self.topics.values()}

    def log(self, topic: str, partition: int) -> ServedLog | None:
        """Return a partition; None if it is not served."""
        found = self.topics.get(topic)
        return None if found is None else found.partitions.get(partition)


def _age(log: PartitionLog) -> tuple[int, int]:
    """Order copies of a partition: by leader epoch, then by end."""
    epochs = log.leader_epochs
    try:
        end = log.log_end_offset
    except CorruptionError:
        end = 0
    return (epochs[-1].epoch if epochs else -1), end


def _cluster_id(store: LogStore, cluster: Cluster | None) -> str:
    if cluster is not None and cluster.cluster_id is not None:
        return cluster.cluster_id
    for log_dir in store.log_dirs:
        if (known := log_dir.meta_properties.get("cluster.id")) is not None:
            return known
    return _derived_id("cluster")


def _epoch_in(cluster: Cluster | None, place: TopicPartition) -> int | None:
    """Return the leader epoch in the cluster's metadata, if it is there."""
    topic = None if cluster is None else cluster.topics.get(place.topic)
    partition = None if topic is None else topic.partitions.get(place.partition)
    return None if partition is None else partition.leader_epoch


def _topic_id(name: str, partitions: Mapping[int, ServedLog], cluster: Cluster | None) -> str:
    """Return a topic's id: known, or derived from its name."""
    topic = None if cluster is None else cluster.topics.get(name)
    if topic is not None and topic.topic_id is not None:
        return topic.topic_id
    for number in sorted(partitions):
        if (known := read_topic_id(partitions[number].log.path)) is not None:
            return known
    return _derived_id(name)


def _derived_id(name: str) -> str:
    """Return an id that is the same at each start."""
    return encode_id(uuid.uuid5(uuid.NAMESPACE_URL, f"kafkastore:{name}").bytes)
