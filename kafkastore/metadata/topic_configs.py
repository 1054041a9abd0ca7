"""The configurations that apply to a topic, and where each comes from.

A broker takes, in this order, the topic's own value, its own dynamic one, the dynamic default of
all brokers, its ``server.properties``, which is not in the metadata, and Kafka's default.

Source: Kafka 4.3.1 ``ServerTopicConfigSynonyms``, ``DynamicBrokerConfig``.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from kafkastore.metadata.registrations import ResourceType
from kafkastore.metadata.state import ClusterState


class ConfigSource(StrEnum):
    """Where the value of a configuration comes from.

    `DEFAULT` is Kafka's default, unless a broker's ``server.properties`` has another.
    """

    OPTION = "option"
    TOPIC = "topic"
    BROKER = "broker"
    DEFAULT_BROKER = "default-broker"
    DEFAULT = "default"


class ConfigValue(NamedTuple):
    """A value, and where it comes from."""

    value: str
    source: ConfigSource


#: The configurations of a topic whose dynamic default is a broker's, by the broker's name.
_BROKER_NAMES = {
    "compression.type": "compression.type",
    "log.cleaner.delete.retention.ms": "delete.retention.ms",
    "log.cleanup.policy": "cleanup.policy",
    "log.index.interval.bytes": "index.interval.bytes",
    "log.index.size.max.bytes": "segment.index.bytes",
    "log.local.retention.bytes": "local.retention.bytes",
    "log.local.retention.ms": "local.retention.ms",
    "log.message.timestamp.after.max.ms": "message.timestamp.after.max.ms",
    "log.message.timestamp.before.max.ms": "message.timestamp.before.max.ms",
    "log.message.timestamp.type": "message.timestamp.type",
    "log.preallocate": "preallocate",
    "log.retention.bytes": "retention.bytes",
    "log.retention.ms": "retention.ms",
    "log.roll.jitter.ms": "segment.jitter.ms",
    "log.roll.ms": "segment.ms",
    "log.segment.bytes": "segment.bytes",
    "log.segment.delete.delay.ms": "file.delete.delay.ms",
    "message.max.bytes": "max.message.bytes",
}


def topic_configs(
    cluster: ClusterState, topic: str, broker_id: int | None = None
) -> dict[str, ConfigValue]:
    """Return the dynamic configurations that apply to a topic on a broker, by name."""
    found = {}
    levels = [("", ConfigSource.DEFAULT_BROKER)]
    if broker_id is not None:
        levels.append((str(broker_id), ConfigSource.BROKER))
    for name, source in levels:
        for key, value in cluster.configs.get((ResourceType.BROKER, name), {}).items():
            if key in _BROKER_NAMES:
                found[_BROKER_NAMES[key]] = ConfigValue(value, source)
    for key, value in cluster.configs.get((ResourceType.TOPIC, topic), {}).items():
        found[key] = ConfigValue(value, ConfigSource.TOPIC)
    return found

