"""The configurations of topics for jobs: given ones, then the cluster's."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from kafkastore.errors import KafkaStoreError
from kafkastore.formats.state.file_names import REMOTE_LOG_METADATA_TOPIC
from kafkastore.jobs.cluster import METADATA_PARTITION, cluster_as_of
from kafkastore.log.log_dir import LogDir
from kafkastore.log.log_view import LogView
from kafkastore.log.partition_files import PartitionFiles
from kafkastore.log.remote_log import RemoteStorage, has_remote_log_metadata
from kafkastore.metadata.cluster import END, Cluster, MetadataSource
from kafkastore.metadata.topic_configs import ConfigSource, ConfigValue, topic_configs
from kafkastore.store.log_store import LogStore, Paths
from kafkastore.writing.log_config import TOPIC_OPTIONS, LogConfig

_ENABLE = "remote.storage.enable"
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
    #: The number of partitions of ``__remote_log_metadata``, if the cluster is known.
    remote_metadata_partitions: int | None = None

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


    def remote_storage_of(self, topic: str) -> RemoteStorage | None:
        """Return whether a topic has remote storage; None if no configuration says so."""
        known = isinstance(self.given, LogConfig) or _ENABLE in (self.given or {})
        if not known and topic not in self.by_topic:
            return None
        return LogConfig.of(self.of(topic).options).remote_storage

    def apply_to(self, log: LogView) -> None:
        """Let a log know whether its topic has remote storage, if that is known."""
        if (storage := self.remote_storage_of(log.topic)) is not None:
            log.set_remote_storage(storage, self.remote_metadata_partitions)


def remote_settings_of(store: LogStore, metadata: Metadata = None) -> TopicSettings:
    """Return the configurations of a store's topics if they may say what is tiered."""
    if metadata is None and not may_say_what_is_tiered(store):
        return TopicSettings()
    return settings_of(find_cluster_or_warn(store, metadata), store, None)


def may_say_what_is_tiered(store: LogStore) -> bool:
    """Return whether a store has a metadata log, and a sign of remote storage."""
    return METADATA_PARTITION in store.partitions and any(map(_may_be_tiered, store.log_dirs))


def _may_be_tiered(log_dir: LogDir) -> bool:
    """Return whether there is a sign that partitions of a directory are tiered."""
    return has_remote_log_metadata(log_dir) or any(
        offset < min(PartitionFiles(path).base_offsets, default=0)
        for topic_partition, offset in log_dir.log_start_offsets.items()
        if (path := log_dir.partition_paths.get(topic_partition)) is not None
    )


def settings_of(cluster: Cluster | None, store: LogStore, given: Options) -> TopicSettings:
    """Return the configurations of a store's topics.

    Raises `InvalidConfigError` for a given one that Kafka refuses.
    """
    LogConfig.of(given)  # checked once, not for each partition
    if cluster is None or cluster.source is MetadataSource.LOG_DIRECTORIES:
        return TopicSettings(given)
    broker_id = _only_broker(store)
    topics = {each.topic for each in store.partitions}
    remote = cluster.topics.get(REMOTE_LOG_METADATA_TOPIC)
    return TopicSettings(
        given,
        {topic: dict(_of_files(topic_configs(cluster, topic, broker_id))) for topic in topics},
        None if remote is None else len(remote.partitions),
    )


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
