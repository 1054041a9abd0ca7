"""The configurations of topics: given ones, then the cluster's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from kafkastore.formats.state.file_names import REMOTE_LOG_METADATA_TOPIC
from kafkastore.log.log_dir import LogDir
from kafkastore.log.log_view import LogView
from kafkastore.log.partition_files import PartitionFiles
from kafkastore.log.remote_log import RemoteStorage, has_remote_log_metadata
from kafkastore.metadata.cluster import Cluster, MetadataSource
from kafkastore.metadata.strays import broker_of
from kafkastore.metadata.topic_configs import ConfigSource, ConfigValue, topic_configs
from kafkastore.store.cluster_metadata import (
    METADATA_PARTITION,
    Metadata,
    find_cluster_or_warn,
)
from kafkastore.store.log_store import LogStore
from kafkastore.writing.log_config import BOTH_TIME_LIMITS, TIME_LIMITS, TOPIC_OPTIONS, LogConfig

_ENABLE = "remote.storage.enable"
Options = Mapping[str, object] | LogConfig | None


class TopicSetting(NamedTuple):
    """The configurations of one topic, and where each comes from."""

    options: Mapping[str, object] | LogConfig
    sources: Mapping[str, ConfigSource]

    def describe(self, name: str) -> str:
        """Return an option and its source, such as ``retention.ms=-1 [topic]``."""
        value = LogConfig.of(self.options).to_options()[name]
        return f"{name}={value} [{self.sources.get(name, ConfigSource.DEFAULT).value}]"


@dataclass(frozen=True)
class TopicSettings:
    """Configurations by topic; those that were given win."""

    given: Options = None
    by_topic: Mapping[str, Mapping[str, ConfigValue]] = field(default_factory=dict)
    #: The number of partitions of ``__remote_log_metadata``, if the cluster is known.
    remote_metadata_partitions: int | None = None
    _configs: dict[str, LogConfig] = field(default_factory=dict, compare=False, repr=False)

    def of(self, topic: str) -> TopicSetting:
        """Return the configurations of a topic."""
        return setting_of(self.given, self.by_topic.get(topic, {}))

    def config(self, topic: str) -> LogConfig:
        """Return the configuration of a topic, parsed once for all its partitions."""
        found = self._configs.get(topic)
        if found is None:
            found = self._configs[topic] = LogConfig.of(self.of(topic).options)
        return found

    def remote_storage_of(self, topic: str) -> RemoteStorage | None:
        """Return whether a topic has remote storage; None if no configuration says so."""
        known = isinstance(self.given, LogConfig) or _ENABLE in (self.given or {})
        if not known and topic not in self.by_topic:
            return None
        return self.config(topic).remote_storage

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


def setting_of(given: Options, known: Mapping[str, ConfigValue]) -> TopicSetting:
    """Return the given configurations of a topic, then the known ones."""
    if isinstance(given, LogConfig):
        return TopicSetting(given, dict.fromkeys(given.to_options(), ConfigSource.OPTION))
    given = given or {}
    if BOTH_TIME_LIMITS in given:
        known = {name: each for name, each in known.items() if name not in TIME_LIMITS}
    options = {name: each.value for name, each in known.items()} | dict(given)
    sources = {name: each.source for name, each in known.items()}
    return TopicSetting(options, sources | dict.fromkeys(given, ConfigSource.OPTION))


def settings_of(cluster: Cluster | None, store: LogStore, given: Options) -> TopicSettings:
    """Return the configurations of a store's topics.

    Raises `InvalidConfigError` for a given one that Kafka refuses.
    """
    LogConfig.of(given)  # checked once, not for each partition
    if cluster is None or cluster.source is MetadataSource.LOG_DIRECTORIES:
        return TopicSettings(given)
    broker_id = _only_broker(store)
    topics = {each.topic for logs in (store.partitions, store.future_partitions) for each in logs}
    remote = cluster.topics.get(REMOTE_LOG_METADATA_TOPIC)
    return TopicSettings(
        given,
        {topic: configs_of_log(cluster, topic, broker_id) for topic in topics},
        None if remote is None else len(remote.partitions),
    )


def configs_of_log(
    cluster: Cluster, topic: str, broker_id: int | None
) -> dict[str, ConfigValue]:
    """Return the cluster's configurations of a topic that affect its logs."""
    return dict(_of_files(topic_configs(cluster, topic, broker_id)))


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
    found = {broker_of(log_dir) for log_dir in store.log_dirs}
    return found.pop() if len(found) == 1 else None
