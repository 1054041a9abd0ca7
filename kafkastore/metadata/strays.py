"""Logs that a cluster's metadata does not assign to the broker that has them.

Source: Kafka 3.8.0 ``LogManager.isStrayKraftReplica``; 3.5.2 ``BrokerMetadataPublisher``.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple, Self

from kafkastore.metadata.cluster import Cluster, MetadataSource


class StrayReason(StrEnum):
    """Why a log is stray."""

    NO_TOPIC_ID = "no-topic-id"
    UNKNOWN_TOPIC = "unknown-topic"
    NOT_A_REPLICA = "not-a-replica"


class Assignments(NamedTuple):
    """The replicas of each partition in a cluster, by topic id and number."""

    cluster: str
    replicas: Mapping[tuple[str, int], tuple[int, ...]]

    @classmethod
    def of(cls, cluster: Cluster | None) -> Self | None:
        """Return the assignments of a cluster, None without a metadata log."""
        if cluster is None or cluster.source is MetadataSource.LOG_DIRECTORIES:
            return None
        name = f"cluster {cluster.cluster_id or 'of unknown id'} as of offset {cluster.end_offset}"
        return cls(name, {
            (topic_id, number): partition.replicas
            for topic_id, topic in cluster.topics_by_id.items()
            for number, partition in topic.partitions.items()
        })

    def why_stray(
        self, topic_id: str | None, partition: int, broker_id: int | None
    ) -> StrayReason | None:
        """Return why a log is stray, if it is; a broker without an id may have any."""
        if topic_id is None:
            return StrayReason.NO_TOPIC_ID
        replicas = self.replicas.get((topic_id, partition))
        if replicas is None:
            return StrayReason.UNKNOWN_TOPIC
        if broker_id is not None and broker_id not in replicas:
            return StrayReason.NOT_A_REPLICA
        return None
