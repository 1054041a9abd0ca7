"""Logs that a cluster's metadata does not assign to the broker that has them.

A broker looks up a log by its topic id and partition, not by its name. So it does not rename a log
with the id of another of its topics, but cannot serve it. If its name is that of a partition that
it shall serve, applying the metadata fails there, and the partitions after it are not served
either. Observed with 3.9.1, 4.1.1 and 4.3.1.

Source: Kafka 3.8.0 ``LogManager.isStrayKraftReplica``; 3.5.2 ``BrokerMetadataPublisher``.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple, Self

from kafkastore.errors import CorruptCheckpointError, NotAFileError
from kafkastore.log.log_dir import LogDir
from kafkastore.log.log_view import LogView
from kafkastore.metadata.cluster import Cluster, MetadataSource


class StrayReason(StrEnum):
    """Why a broker does not serve a log; one of `OTHER_TOPIC` is not renamed."""

    NO_TOPIC_ID = "no-topic-id"
    UNKNOWN_TOPIC = "unknown-topic"
    NOT_A_REPLICA = "not-a-replica"
    OTHER_TOPIC = "other-topic"


def broker_of(log_dir: LogDir) -> int | None:
    """Return the broker id of a directory; None if ``meta.properties`` can't be read."""
    try:
        return log_dir.node_id
    except (CorruptCheckpointError, NotAFileError, OSError):
        return None


_WHY_STRAY = {
    StrayReason.NO_TOPIC_ID: "partition.metadata is missing, so {cluster} can't assign it",
    StrayReason.UNKNOWN_TOPIC: "{cluster} has no partition {log} with the topic id {topic_id}",
    StrayReason.NOT_A_REPLICA: "{cluster} does not assign it to broker {broker}",
    StrayReason.OTHER_TOPIC: "{cluster} has its topic id {topic_id} for topic {other}",
}
_STOPS_OTHERS = "; the broker fails to apply the metadata, and may not serve others either"


class Assignments(NamedTuple):
    """The replicas of each partition in a cluster, by topic id and number.

    `topic_ids` are those of the topics, by name.
    """

    cluster: str
    replicas: Mapping[tuple[str, int], tuple[int, ...]]
    topic_ids: Mapping[str, str]

    @classmethod
    def of(cls, cluster: Cluster | None) -> Self | None:
        """Return the assignments of a cluster, None without a metadata log."""
        if cluster is None or cluster.source is MetadataSource.LOG_DIRECTORIES:
            return None
        replicas = {
            (topic_id, number): partition.replicas
            for topic_id, topic in cluster.topics_by_id.items()
            for number, partition in topic.partitions.items()
        }
        topics = cluster.topics.items()
        topic_ids = {name: each.topic_id for name, each in topics if each.topic_id is not None}
        return cls(cluster.title, replicas, topic_ids)

    def why_not_served(
        self, log: LogView, topic_id: str | None
    ) -> tuple[StrayReason | None, str]:
        """Return why a log with a topic id is not served, if so; also as a sentence."""
        broker_id = None if log.log_dir is None else broker_of(log.log_dir)
        reason = self.why_stray(topic_id, log.partition, broker_id)
        other, more = None, ""
        known_id = self.topic_ids.get(log.topic)
        if reason is None and known_id != topic_id:
            names = (name for name, each in self.topic_ids.items() if each == topic_id)
            reason, other = StrayReason.OTHER_TOPIC, next(names, None)
            is_there = self.why_stray(known_id, log.partition, broker_id) is None
            more = _STOPS_OTHERS if is_there else ""
        if reason is None:
            return None, ""
        why = _WHY_STRAY[reason].format(
            topic_id=topic_id, log=log.topic_partition, broker=broker_id, cluster=self.cluster,
            other=other,
        )
        return reason, why + more

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
