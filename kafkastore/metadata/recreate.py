"""The commands of Kafka's tools that make topics and configurations again."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping

from kafkastore.formats.topics.cluster_metadata import is_secret_config
from kafkastore.log.time_text import format_time
from kafkastore.metadata.cluster import Cluster, MetadataSource
from kafkastore.metadata.cluster_rows import Row
from kafkastore.metadata.registrations import ResourceType
from kafkastore.metadata.topics import Topic

_HEAD = """#!/bin/sh
# Makes the topics and configurations of {what} in another cluster.
#
#     BOOTSTRAP=host:9092 BROKERS=3 sh {name}
#
# BROKERS, the number of brokers there, limits the replication factors; default: {brokers}.
# KAFKA_BIN is the directory of Kafka's tools, if it is not in PATH; COMMAND_CONFIG a file of client
# properties.
set -eu
: "${{BOOTSTRAP:?set it to host:port of a broker}}" "${{BROKERS:={brokers}}}"
PATH="${{KAFKA_BIN:+$KAFKA_BIN:}}$PATH"
tool() {{
    tool_name=$1
    shift
    "$tool_name" --bootstrap-server "$BOOTSTRAP" \
        ${{COMMAND_CONFIG:+--command-config "$COMMAND_CONFIG"}} "$@"
}}
replicas() {{ if [ "$1" -gt "$BROKERS" ]; then echo "$BROKERS"; else echo "$1"; fi; }}
"""

_ENTITY_TYPES = {
    ResourceType.BROKER: "brokers",
    ResourceType.CLIENT_METRICS: "client-metrics",
    ResourceType.GROUP: "groups",
}
_QUOTA_TYPES = {"user": "users", "client-id": "clients", "ip": "ips"}
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\\\udc80-\udcff]")
_NEEDS_BRACKETS = re.compile(r"[,\[\]]")


def recreate_script(cluster: Cluster, *, name: str = "recreate.sh") -> Iterator[str]:
    """Yield the lines of a shell script; it names secrets, and does not have them."""
    most = max((_replication_factor(each) for each in cluster.topics.values()), default=1)
    what = f"cluster {cluster.cluster_id!a}"
    if cluster.source is MetadataSource.METADATA_LOG:
        what += f", as of offset {cluster.end_offset} of its metadata"
        what += f" ({format_time(cluster.timestamp)})" if cluster.timestamp >= 0 else ""
    yield from _HEAD.format(what=what, name=name, brokers=most).splitlines()
    yield ""
    for _, topic in sorted(cluster.topics.items()):
        yield from _topic_lines(topic, _configs_of(cluster, topic))
    for (kind, resource), values in sorted(cluster.configs.items()):
        if kind in _ENTITY_TYPES:
            yield from _config_lines(_ENTITY_TYPES[ResourceType(kind)], resource, values)
    yield from _quota_lines(cluster)
    yield from _left_out(cluster)


def recreate_document(cluster: Cluster) -> Row:
    """Return the same as an object for JSON, with topic ids and replicas."""
    return {
        "kind": "recreate",
        "cluster_id": cluster.cluster_id,
        "end_offset": cluster.end_offset,
        "topics": [
            {
                "topic": topic.name,
                "topic_id": topic.topic_id,
                "partitions": _partition_count(topic),
                "replication_factor": _replication_factor(topic),
                "replicas": {
                    str(number): list(partition.replicas)
                    for number, partition in sorted(topic.partitions.items())
                },
                "configs": _configs_of(cluster, topic),
            }
            for _, topic in sorted(cluster.topics.items())
        ],
        "configs": [
            {
                "entity_type": _ENTITY_TYPES[ResourceType(kind)],
                "entity_name": resource or None,
                "configs": {
                    key: value for key, value in sorted(values.items()) if not is_secret_config(key)
                },
            }
            for (kind, resource), values in sorted(cluster.configs.items())
            if kind in _ENTITY_TYPES
        ],
    }


def _quoted(text: str) -> str:
    """Return a word for the shell that prints no control characters on a terminal."""
    if text.isprintable():
        return shlex.quote(text)
    escaped = _CONTROL.sub(lambda found: _octal(found[0]), text)
    return f'"$(printf %b {shlex.quote(escaped)})"'


def _octal(character: str) -> str:
    return "".join(f"\\0{byte:03o}" for byte in character.encode("utf-8", "surrogateescape"))


def _configs_of(cluster: Cluster, topic: Topic) -> dict[str, str]:
    return dict(sorted(cluster.configs.get((ResourceType.TOPIC, topic.name), {}).items()))


def _partition_count(topic: Topic) -> int:
    """Return how many partitions a topic has; a directory may lack the last ones."""
    return max(topic.partitions, default=0) + 1


def _replication_factor(topic: Topic) -> int:
    """Return the factor of most partitions, without what a reassignment adds."""
    counts = Counter(
        len(set(partition.replicas) - set(partition.adding_replicas)) or 1
        for partition in topic.partitions.values()
    )
    return counts.most_common(1)[0][0] if counts else 1


def _topic_lines(topic: Topic, configs: Mapping[str, str]) -> Iterator[str]:
    words = ["tool kafka-topics.sh --create --topic", _quoted(topic.name)]
    words += ["--partitions", str(_partition_count(topic))]
    words += ["--replication-factor", f'"$(replicas {_replication_factor(topic)})"']
    words += [f"--config {_quoted(f'{key}={value}')}" for key, value in configs.items()]
    yield " ".join(words)


def _config_lines(entity_type: str, name: str, values: Mapping[str, str]) -> Iterator[str]:
    who = f"--entity-name {_quoted(name)}" if name else "--entity-default"
    for key, value in sorted(values.items()):
        if is_secret_config(key):
            yield f"# Set this secret yourself: {key!a} of {name!a}"
        else:
            text = f"[{value}]" if _NEEDS_BRACKETS.search(value) else value
            setting = _quoted(f"{key}={text}")
            yield (
                f"tool kafka-configs.sh --alter --entity-type {entity_type} {who} "
                f"--add-config {setting}"
            )


def _quota_lines(cluster: Cluster) -> Iterator[str]:
    for entity, quotas in sorted(cluster.client_quotas.items(), key=lambda each: str(each[0])):
        words = []
        for kind, name in sorted(entity, key=str):
            words += ["--entity-type", _quoted(_QUOTA_TYPES.get(kind, kind))]
            words += ["--entity-default"] if name is None else ["--entity-name", _quoted(name)]
        settings = ",".join(f"{key}={value:.17g}" for key, value in sorted(quotas.items()))
        words += ["--add-config", _quoted(settings)]
        yield f"tool kafka-configs.sh --alter {' '.join(words)}"


def _left_out(cluster: Cluster) -> Iterator[str]:
    """Name what no command here makes again."""
    left_out = {
        "SCRAM credentials": len(cluster.scram_credentials),
        "ACLs": len(cluster.acls),
        "delegation tokens": len(cluster.delegation_tokens),
    }
    for what, count in left_out.items():
        if count:
            yield f"# Not made by this script: {count} {what}"
