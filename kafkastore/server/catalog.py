"""What is served: topics with their ids and partitions, led by one node."""

from __future__ import annotations

import os
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

from kafkastore.errors import KafkaStoreError, SeveralClustersError
from kafkastore.formats.state.checkpoints import encode_id
from kafkastore.formats.state.file_names import (
    CLUSTER_METADATA_TOPIC,
    INTERNAL_TOPICS,
    META_PROPERTIES,
    TopicPartition,
)
from kafkastore.log.partition_files import read_topic_id
from kafkastore.metadata.cluster import Cluster
from kafkastore.server.served_log import AS_STORED, Reading, ServedLog, SkippedPlaces
from kafkastore.store.cluster_metadata import Metadata, find_cluster_or_warn, the_cluster_id
from kafkastore.store.log_store import LogStore
from kafkastore.store.partition_log import PartitionLog
from kafkastore.store.partition_path import FAILURES
from kafkastore.use_cases.replicas import (
    check_topic_ids,
    choose_best,
    inspect_replica,
    replica_of,
)

DEFAULT_NODE_ID = 1
#: Ids that no topic may have: none, and the metadata's. Source: Kafka 4.3.1 ``Uuid.RESERVED``.
_RESERVED_IDS = (encode_id(bytes(16)), encode_id(bytes(15) + b"\1"))
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
        self._entries: frozenset[tuple[str, int]] = frozenset()
        self._lock = threading.Lock()
        self.topics: Mapping[str, ServedTopic] = {}
        self.topics_by_id: Mapping[str, ServedTopic] = {}
        self._list()

    def follow(self) -> None:
        """List the directories again if a partition came or went.

        What was known stays if that fails: a directory is gone, or does not have what was chosen.
        """
        with suppress(KafkaStoreError, OSError, KeyError):
            seen = self._look()    # before listing, so that no later change is missed
            if seen != self._seen:
                with self._lock:    # not all who ask for metadata list thousands of partitions
                    if seen != self._seen:
                        entries = self._entries_now()
                        if entries != self._entries:
                            self._list()
                        self._seen, self._entries = seen, entries

    def list_again(self) -> None:
        """List the directories, whether or not a partition came or went.

        Raises what listing raises; what was known stays then.
        """
        seen, entries = self._look(), self._entries_now()
        with self._lock:
            self._list()
            self._seen, self._entries = seen, entries

    def _look(self) -> tuple[int, ...]:
        return tuple(os.stat(path).st_mtime_ns for path in self.store.paths)

    def _entries_now(self) -> frozenset[tuple[str, int]]:
        """Return what was listed; brokers replace the other files all the time."""
        return frozenset(
            (entry.name, entry.inode())
            for path in self.store.paths for entry in os.scandir(path)
            if entry.is_dir() or entry.name == META_PROPERTIES
        )

    def _list(self) -> None:
        self.store, chosen = self._list_partitions()
        known_id = _cluster_id(self.store)
        self.cluster = cluster = find_cluster_or_warn(self.store, self._metadata)
        self.cluster_id = (cluster and cluster.cluster_id) or known_id or _derived_id("cluster")
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
                log = copies[0] if len(copies) == 1 else _best(place, copies, cluster)
                epoch = _epoch_in(cluster, place)
                served = known.get(log.path)
                if served is None:
                    served = ServedLog(log, epoch, self._reading, self.skipped)
                served.known_epoch = epoch
                found.setdefault(place.topic, {})[place.partition] = served
        by_id: dict[str, ServedTopic] = {}
        for name, partitions in sorted(found.items()):
            topic_id = _topic_id(name, partitions, cluster)
            if topic_id is None or topic_id in _RESERVED_IDS or topic_id in by_id:
                topic_id = _derived_id(name)
            by_id[topic_id] = ServedTopic(name, topic_id, partitions)
        self._hidden = {each.topic for each in self.store.partitions} - found.keys()
        # Other threads read them meanwhile, so they change at once.
        self.topics, self.topics_by_id = {each.name: each for each in by_id.values()}, by_id

    def is_hidden(self, topic: str) -> bool:
        """Whether a topic is in the directories, but was not chosen."""
        return topic in self._hidden

    def log(self, topic: str, partition: int) -> ServedLog | None:
        """Return a partition; None if it is not served."""
        found = self.topics.get(topic)
        return None if found is None else found.partitions.get(partition)


def _best(
    place: TopicPartition, copies: Sequence[PartitionLog], cluster: Cluster | None
) -> PartitionLog:
    """Choose of several replicas by the lineage of their leader epochs."""
    topic = None if cluster is None else cluster.topics.get(place.topic)
    replicas = [replica_of(each, topic, inspect_replica) for each in copies]
    check_topic_ids(None if topic is None else topic.topic_id, replicas)
    best = choose_best(place, replicas).best
    return next(each for each in copies if each.path == best.path)


def _cluster_id(store: LogStore) -> str | None:
    """Return the id in ``meta.properties``; there must be one only."""
    try:
        return the_cluster_id(store)
    except SeveralClustersError:
        raise
    except FAILURES:
        return None    # a corrupt file says nothing


def _epoch_in(cluster: Cluster | None, place: TopicPartition) -> int | None:
    """Return the leader epoch in the cluster's metadata, if it is there."""
    topic = None if cluster is None else cluster.topics.get(place.topic)
    partition = None if topic is None else topic.partitions.get(place.partition)
    return None if partition is None else partition.leader_epoch


def _topic_id(
    name: str, partitions: Mapping[int, ServedLog], cluster: Cluster | None
) -> str | None:
    """Return the id of a topic in the metadata or in its directories, if any."""
    topic = None if cluster is None else cluster.topics.get(name)
    if topic is not None and topic.topic_id is not None:
        return topic.topic_id
    for number in sorted(partitions):
        with suppress(*FAILURES):    # a corrupt file says nothing of the records
            if (known := read_topic_id(partitions[number].log.path)) is not None:
                return known
    return None


def _derived_id(name: str) -> str:
    """Return an id that is the same at each start."""
    return encode_id(uuid.uuid5(uuid.NAMESPACE_URL, f"kafkastore:{name}").bytes)
