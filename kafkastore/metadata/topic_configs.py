"""The configurations that apply to a topic, and where each comes from.

A broker takes, in this order, the topic's own value, its own dynamic one, the dynamic default of
all brokers, its ``server.properties``, which is not in the metadata, and Kafka's default.

Source: Kafka 4.3.1 ``ServerTopicConfigSynonyms``, ``DynamicBrokerConfig``, ``LogConfig``.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum, StrEnum
from functools import cache
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


class ConfigType(IntEnum):
    """The type of a configuration.

    Source: Kafka 4.3.1 ``DescribeConfigsResponse.ConfigType``.
    """

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    LONG = 5
    DOUBLE = 6
    LIST = 7


class TopicConfig(NamedTuple):
    """A configuration of topics.

    `broker_name` is the broker's that is its default, or None.
    """

    name: str
    type: ConfigType
    default: str
    broker_name: str | None
    #: The broker's default is that of another option, such as ``log.retention.hours``.
    is_of_other_unit: bool


class Synonym(NamedTuple):
    """A value that applies to a configuration if no earlier one does."""

    name: str
    value: str
    source: ConfigSource


#: Name, type, default and the broker's name; ``-`` stands for none. ``*`` marks a
#: default that a broker has by another option, of another unit.
_TOPIC_CONFIGS = """
cleanup.policy LIST delete log.cleanup.policy
compression.gzip.level INT -1 compression.gzip.level
compression.lz4.level INT 9 compression.lz4.level
compression.type STRING producer compression.type
compression.zstd.level INT 3 compression.zstd.level
delete.retention.ms LONG 86400000 log.cleaner.delete.retention.ms
file.delete.delay.ms LONG 60000 log.segment.delete.delay.ms
flush.messages LONG 9223372036854775807 log.flush.interval.messages
flush.ms LONG 9223372036854775807* log.flush.interval.ms
follower.replication.throttled.replicas LIST - -
index.interval.bytes INT 4096 log.index.interval.bytes
leader.replication.throttled.replicas LIST - -
local.retention.bytes LONG -2 log.local.retention.bytes
local.retention.ms LONG -2 log.local.retention.ms
max.compaction.lag.ms LONG 9223372036854775807 log.cleaner.max.compaction.lag.ms
max.message.bytes INT 1048588 message.max.bytes
message.timestamp.after.max.ms LONG 3600000 log.message.timestamp.after.max.ms
message.timestamp.before.max.ms LONG 9223372036854775807 log.message.timestamp.before.max.ms
message.timestamp.type STRING CreateTime log.message.timestamp.type
min.cleanable.dirty.ratio DOUBLE 0.5 log.cleaner.min.cleanable.ratio
min.compaction.lag.ms LONG 0 log.cleaner.min.compaction.lag.ms
min.insync.replicas INT 1 min.insync.replicas
preallocate BOOLEAN false log.preallocate
remote.log.copy.disable BOOLEAN false -
remote.log.delete.on.disable BOOLEAN false -
remote.storage.enable BOOLEAN false -
retention.bytes LONG -1 log.retention.bytes
retention.ms LONG 604800000* log.retention.ms
segment.bytes INT 1073741824 log.segment.bytes
segment.index.bytes INT 10485760 log.index.size.max.bytes
segment.jitter.ms LONG 0* log.roll.jitter.ms
segment.ms LONG 604800000* log.roll.ms
unclean.leader.election.enable BOOLEAN false unclean.leader.election.enable
"""
_NONE, _OTHER_UNIT = "-", "*"
#: Configurations that brokers list only for topics that have them.
_INTERNAL = {"internal.segment.bytes": ConfigType.INT}


@cache
def known_topic_configs() -> dict[str, TopicConfig]:
    """Return Kafka's configurations of topics by name."""
    found = {}
    for line in _TOPIC_CONFIGS.split("\n")[1:-1]:
        name, kind, default, broker_name = line.split()
        found[name] = TopicConfig(
            name,
            ConfigType[kind],
            "" if default == _NONE else default.removesuffix(_OTHER_UNIT),
            None if broker_name == _NONE else broker_name,
            default.endswith(_OTHER_UNIT),
        )
    return found


def type_of(name: str) -> ConfigType:
    """Return the type of a topic's configuration."""
    known = known_topic_configs().get(name)
    return _INTERNAL.get(name, ConfigType.UNKNOWN) if known is None else known.type


def topic_configs(
    cluster: ClusterState, topic: str, broker_id: int | None = None
) -> dict[str, ConfigValue]:
    """Return the dynamic configurations that apply to a topic on a broker, by name."""
    own = cluster.configs.get((ResourceType.TOPIC, topic), {})
    return {
        name: ConfigValue(first.value, first.source)
        for name in (*known_topic_configs(), *own)
        for first in [next(_dynamic(cluster, topic, broker_id, name), None)]
        if first is not None
    }


def _dynamic(
    cluster: ClusterState | None, topic: str, broker_id: int | None, name: str
) -> Iterator[Synonym]:
    """Yield the dynamic values of a configuration, the one that counts first."""
    if cluster is None:
        return
    known = known_topic_configs().get(name)
    broker_name = None if known is None else known.broker_name
    for kind, resource, source, key in (
        (ResourceType.TOPIC, topic, ConfigSource.TOPIC, name),
        (ResourceType.BROKER, str(broker_id), ConfigSource.BROKER, broker_name),
        (ResourceType.BROKER, "", ConfigSource.DEFAULT_BROKER, broker_name),
    ):
        value = cluster.configs.get((kind, resource), {}).get(key or "")
        if key is not None and value is not None:
            yield Synonym(key, value, source)


def synonyms_of(
    cluster: ClusterState | None, topic: str, broker_id: int | None, name: str
) -> list[Synonym]:
    """Return the values of a configuration, the one that counts first.

    The last is Kafka's default.
    """
    found = list(_dynamic(cluster, topic, broker_id, name))
    known = known_topic_configs().get(name)
    if known is not None and known.broker_name is not None and not known.is_of_other_unit:
        found.append(Synonym(known.broker_name, known.default, ConfigSource.DEFAULT))
    return found
