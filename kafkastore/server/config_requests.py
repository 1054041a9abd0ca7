"""What administrators ask about configurations.

What a broker has in its ``server.properties`` is not in the directories.

Source: Kafka 4.3.1 ``ConfigHelper``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kafkastore.formats.messages.message_table import Values
from kafkastore.formats.primitives.error_codes import ErrorCode
from kafkastore.formats.state.file_names import is_topic_name
from kafkastore.formats.topics.cluster_metadata import is_secret_config
from kafkastore.metadata.registrations import ResourceType
from kafkastore.metadata.topic_configs import (
    ConfigSource,
    known_topic_configs,
    synonyms_of,
    type_of,
)
from kafkastore.server.catalog import Catalog, Node

#: Source: Kafka 4.3.1 ``DescribeConfigsResponse.ConfigSource``.
_SOURCES = {
    ConfigSource.TOPIC: 1,
    ConfigSource.BROKER: 2,
    ConfigSource.DEFAULT_BROKER: 3,
    ConfigSource.DEFAULT: 5,
}
#: The levels of loggers are not in the metadata.
_SOURCES_BY_KIND: Mapping[int, int] = {
    ResourceType.BROKER_LOGGER: 6, ResourceType.CLIENT_METRICS: 7, ResourceType.GROUP: 8,
}


@dataclass(frozen=True)
class ConfigRequests:
    """The answers of one node."""

    catalog: Catalog
    node: Node

    def describe_configs(self, request: Values, _version: int) -> Values:
        """Return what the cluster's metadata has, and the defaults of topics."""
        return {
            "results": [
                {name: each[name] for name in ("resource_type", "resource_name")}
                | self._described(each, with_synonyms=request["include_synonyms"])
                for each in request["resources"]
            ]
        }

    def _described(self, asked: Values, *, with_synonyms: bool) -> Values:
        kind, name = asked["resource_type"], asked["resource_name"]
        if error := self._error(kind, name):
            return {"error_code": error, "error_message": error.name}
        if kind == ResourceType.TOPIC:
            configs = self._of_topic(name, with_synonyms=with_synonyms)
        elif kind == ResourceType.BROKER:
            configs = self._of_broker(name)
        else:
            configs = [
                _config(key, value, _SOURCES_BY_KIND[kind])
                for key, value in self._values(kind, name)
            ]
        wanted = asked["configuration_keys"]
        return {
            "error_code": ErrorCode.NONE,
            "error_message": "",
            "configs": [each for each in configs if not wanted or each["name"] in wanted],
        }

    def _error(self, kind: int, name: str) -> ErrorCode:
        """Return why a resource has no configurations."""
        if kind == ResourceType.TOPIC:
            if not is_topic_name(name):
                return ErrorCode.INVALID_TOPIC_EXCEPTION
            if name not in self.catalog.topics:
                return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            return ErrorCode.NONE
        if kind in (ResourceType.BROKER, ResourceType.BROKER_LOGGER):
            is_default = kind == ResourceType.BROKER and name == ""
            is_valid = is_default or name == str(self.node.node_id)
        else:
            is_valid = kind in _SOURCES_BY_KIND and name != ""
        return ErrorCode.NONE if is_valid else ErrorCode.INVALID_REQUEST

    def _of_topic(self, topic: str, *, with_synonyms: bool) -> list[Values]:
        """Return the configurations of a topic: its own, the brokers' and Kafka's."""
        known = known_topic_configs()
        own = {name for name, _ in self._values(ResourceType.TOPIC, topic)}
        found = []
        for name in sorted({*known, *own}):
            cluster, node_id = self.catalog.cluster, self.node.node_id
            synonyms = synonyms_of(cluster, topic, node_id, name)
            value = synonyms[0].value if synonyms else known[name].default
            source = synonyms[0].source if synonyms else ConfigSource.DEFAULT
            row = _config(name, value, _SOURCES[source])
            row["config_type"] = type_of(name)
            if with_synonyms:
                row["synonyms"] = [
                    {"name": each.name, "value": each.value, "source": _SOURCES[each.source]}
                    for each in synonyms
                ]
            found.append(row)
        return found

    def _of_broker(self, name: str) -> list[Values]:
        """Return the dynamic configurations of the node, or of all without a name."""
        levels = [("", ConfigSource.DEFAULT_BROKER)]
        if name:
            levels.append((name, ConfigSource.BROKER))
        found = {
            key: _config(key, value, _SOURCES[source])
            for level, source in levels
            for key, value in self._values(ResourceType.BROKER, level)
        }
        return list(found.values())

    def _values(self, kind: int, name: str) -> Iterable[tuple[str, str]]:
        """Return what the cluster's metadata has of a resource."""
        cluster = self.catalog.cluster
        none: Mapping[str, str] = {}
        return (none if cluster is None else cluster.configs.get((kind, name), none)).items()


def _config(name: str, value: str, source: int) -> Values:
    """Return a configuration, which can't be altered here."""
    is_secret = is_secret_config(name)
    return {
        "name": name,
        "value": None if is_secret else value,
        "read_only": True,
        "config_source": source,
        "is_sensitive": is_secret,
        "documentation": None,
    }
