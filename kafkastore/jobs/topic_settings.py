"""The configurations of topics for jobs: given ones, then the cluster's."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from kafkastore.errors import KafkaStoreError
from kafkastore.jobs.cluster import METADATA_PARTITION, cluster_as_of
from kafkastore.metadata.cluster import END, Cluster
from kafkastore.metadata.topic_configs import ConfigSource, ConfigValue, topic_configs
from kafkastore.store.log_store import LogStore, Paths
from kafkastore.writing.log_config import TOPIC_OPTIONS, LogConfig

Options = Mapping[str, object] | LogConfig | None
#: Where a job finds the cluster's metadata; None: in the directories of the job, if it is there.
Metadata = Paths | Cluster | None


class UnreadMetadataWarning(UserWarning):
    """The metadata log in a store can't be read: its configurations are not used.

    Parameters
    ----------
    error : KafkaStoreError
        Why.
    """

    def __init__(self, error: KafkaStoreError) -> None:
        super().__init__(f"the cluster's metadata is not used: {error}")
        self.error = error


class TopicSetting(NamedTuple):
    """The configurations of one topic, and where each comes from."""

    options: Mapping[str, object] | LogConfig
    sources: Mapping[str, ConfigSource]


@dataclass(frozen=True)
class TopicSettings:
    """Configurations by topic; those that were given win."""

    given: Options = None
    by_topic: Mapping[str, Mapping[str, ConfigValue]] = field(default_factory=dict)

    def of(self, topic: str) -> TopicSetting:
        """Return the configurations of a topic."""
        if isinstance(self.given, LogConfig):
            names = self.given.to_options()
            return TopicSetting(self.given, dict.fromkeys(names, ConfigSource.OPTION))
        given = self.given or {}
        known = self.by_topic.get(topic, {})
        options = {key: each.value for key, each in known.items()} | dict(given)
        sources = {key: each.source for key, each in known.items()}
        return TopicSetting(options, sources | dict.fromkeys(given, ConfigSource.OPTION))


def settings_of(cluster: Cluster | None, store: LogStore, given: Options) -> TopicSettings:
    """Return the configurations of a store's topics.

    Raises `InvalidConfigError` for a given one that Kafka refuses.
    """
    LogConfig.of(given)  # checked once, not for each partition
    if cluster is None:
        return TopicSettings(given)
    broker_id = _only_broker(store)
    topics = {each.topic for each in store.partitions}
    return TopicSettings(given, {
        topic: dict(_of_files(topic_configs(cluster, topic, broker_id))) for topic in topics
    })


def find_cluster(store: LogStore, metadata: Metadata = None) -> Cluster | None:
    """Return the cluster of `metadata`, or of the metadata log in a store, if any."""
    if isinstance(metadata, Cluster):
        return metadata
    if metadata is not None:
        return cluster_as_of(metadata, END)
    return cluster_as_of(store, END) if METADATA_PARTITION in store.partitions else None


def find_cluster_or_warn(store: LogStore, metadata: Metadata = None) -> Cluster | None:
    """Find the cluster; a warning says why the store's own can't be read."""
    try:
        return find_cluster(store, metadata)
    except KafkaStoreError as error:
        if metadata is not None:
            raise
        warnings.warn(UnreadMetadataWarning(error), stacklevel=3)
        return None


def _of_files(configs: Mapping[str, ConfigValue]) -> Iterable[tuple[str, ConfigValue]]:
    """Yield the configurations that affect a log, by the names of `LogConfig`."""
    for name, value in configs.items():
        if name == "internal.segment.bytes":  # instead of a segment.bytes below 1 MiB, since 4.1
            yield "segment.bytes", value
        elif name in TOPIC_OPTIONS and (
            name != "segment.bytes" or "internal.segment.bytes" not in configs
        ):
            yield name, value


def _only_broker(store: LogStore) -> int | None:
    """Return the id of the broker that a store's directories name, if it is one."""
    found = {log_dir.node_id for log_dir in store.log_dirs}
    return found.pop() if len(found) == 1 else None
