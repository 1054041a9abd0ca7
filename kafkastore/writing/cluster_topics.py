"""What a cluster's metadata says of the topics that are written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Self

from kafkastore.errors import ArgumentValueError
from kafkastore.formats.state.file_names import TopicPartition
from kafkastore.log.log_dir import LogDir
from kafkastore.metadata.cluster import Cluster
from kafkastore.metadata.strays import broker_of
from kafkastore.metadata.topic_configs import ConfigValue
from kafkastore.store.cluster_metadata import METADATA_PARTITION, Metadata, find_cluster_or_warn
from kafkastore.store.log_store import open_store
from kafkastore.writing.topic_settings import Options, TopicSetting, configs_of_log, setting_of


class WrittenTopic(NamedTuple):
    """A topic of a cluster: its id, its number of partitions, its configurations."""

    topic_id: str | None
    partition_count: int
    configs: Mapping[str, ConfigValue]


@dataclass(frozen=True)
class ClusterTopics:
    """The topics of a cluster, for writers in any process."""

    cluster: str
    cluster_id: str | None
    topics: Mapping[str, WrittenTopic]

    @classmethod
    def of(cls, cluster: Cluster, broker_id: int | None) -> Self:
        """Return the topics of a cluster as a broker has them."""
        return cls(cluster.title, cluster.cluster_id, {
            name: WrittenTopic(
                topic.topic_id, len(topic.partitions), configs_of_log(cluster, name, broker_id)
            )
            for name, topic in cluster.topics.items()
        })

    def setting(self, topic: str, given: Options) -> TopicSetting:
        """Return the configurations of a topic; given ones win."""
        known = self.topics.get(topic)
        return setting_of(given, {} if known is None else known.configs)

    def topic_id_of_new(self, topic_partition: TopicPartition) -> str | None:
        """Return the topic id of a new partition, None if its topic is not known.

        Raises `ArgumentValueError` if the topic does not have the partition.
        """
        topic, partition = topic_partition
        known = self.topics.get(topic)
        if known is None:
            return None
        if partition >= known.partition_count:
            raise ArgumentValueError(
                "partition",
                f"below {known.partition_count}, the number of partitions of topic {topic} in "
                f"{self.cluster}",
                partition,
            )
        return known.topic_id


NO_TOPICS = ClusterTopics("", None, {})


def find_topics(root: Path, metadata: Metadata, node_id: int | None = None) -> ClusterTopics:
    """Return the topics of given metadata, or of that in a log directory, if any.

    `node_id` is the broker's if the directory has no ``meta.properties``.
    """
    store = None
    if metadata is None:
        if not (root / str(METADATA_PARTITION)).is_dir():
            return NO_TOPICS
        store = open_store(root)
    cluster = find_cluster_or_warn(store, metadata)
    if cluster is None:
        return NO_TOPICS
    broker_id = broker_of(LogDir(root))
    return ClusterTopics.of(cluster, node_id if broker_id is None else broker_id)
