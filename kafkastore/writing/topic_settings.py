"""The configurations of topics: given ones, then the cluster's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from kafkastore.metadata.cluster import Cluster
from kafkastore.metadata.strays import broker_of
from kafkastore.metadata.topic_configs import ConfigSource, ConfigValue, topic_configs
from kafkastore.store.log_store import LogStore
from kafkastore.writing.log_config import BOTH_TIME_LIMITS, TIME_LIMITS, TOPIC_OPTIONS, LogConfig

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
    if cluster is None:
        return TopicSettings(given)
    broker_id = _only_broker(store)
    topics = {each.topic for logs in (store.partitions, store.future_partitions) for each in logs}
    return TopicSettings(
        given, {topic: configs_of_log(cluster, topic, broker_id) for topic in topics}
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
