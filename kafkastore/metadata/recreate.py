"""The commands of Kafka's tools that make topics and configurations again."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping

from kafkastore.formats.topics.cluster_metadata import is_secret_config
from kafkastore.log.time_text import format_time
from kafkastore.metadata.cluster import Cluster, MetadataSource
from kafkastore.metadata.cluster_rows import Row, sorted_quotas
from kafkastore.metadata.registrations import ResourceType
from kafkastore.metadata.topics import Topic

_HEAD = r"""#!/bin/sh
# Makes the topics and configurations of {what} in another cluster.
#
#     BOOTSTRAP=host:9092 BROKERS=3 sh {name}
#
# BROKERS, the number of brokers there, limits the replication factors; default: {brokers}.
# KAFKA_BIN is the directory of Kafka's tools, if it is not in PATH; COMMAND_CONFIG a file of client
# properties. Topics that exist there are not changed. If a command fails, the others are run, and
# the exit code is 1.
set -u
: "${{BOOTSTRAP:?set it to host:port of a broker}}" "${{BROKERS:={brokers}}}"
PATH="${{KAFKA_BIN:+$KAFKA_BIN:}}$PATH"
# Java decodes arguments by the locale.
case $(locale charmap 2>&1) in UTF-8) ;; *) export LC_ALL=C.UTF-8 ;; esac
failures=0
tool() {{
    tool_name=$1
    shift
    "$tool_name" --bootstrap-server "$BOOTSTRAP" \
        ${{COMMAND_CONFIG:+--command-config "$COMMAND_CONFIG"}} "$@"
}}
failed() {{
    failures=$((failures + 1))
    printf '%s\n' "failed: $*" | LC_ALL=C tr -cd '\n -~' >&2
}}
replicas() {{ if [ "$1" -gt "$BROKERS" ]; then echo "$BROKERS"; else echo "$1"; fi; }}
create() {{
    tool kafka-topics.sh --create --topic "$topic" --partitions "$partitions" \
        --replication-factor "$factor" "$@"
}}
# topic NAME PARTITIONS REPLICAS [KEY=VALUE ...]
topic() {{
    topic=$1 partitions=$2 factor=$(replicas "$3")
    shift 3
    if printf '%s\n' "$topics" | grep -Fqx -e "$topic"; then
        failed "topic $topic exists"
        return 1
    fi
    for each; do
        set -- "$@" --config "$each"
        shift
    done
    create "$@" && return
    # Newer brokers refuse some configurations of older ones: set them one by one.
    if [ $# -eq 0 ] || ! create; then
        failed "topic $topic"
        return 1
    fi
    while [ $# -gt 0 ]; do
        tool kafka-configs.sh --alter --entity-type topics --entity-name "$topic" \
            --add-config "${{2%%=*}}=[${{2#*=}}]" || failed "topic $topic: $2"
        shift 2
    done
}}
# configs OPTION ..., with the lines of a properties file as input
configs() {{
    lines=$(cat)
    set -- kafka-configs.sh --alter "$@" --add-config-file /dev/stdin
    if [ "$(printf '%s\n' "$lines" | wc -l)" -gt 1 ]; then
        printf '%s\n' "$lines" | tool "$@" && return
    fi
    while IFS= read -r line; do
        printf '%s\n' "$line" | tool "$@" || failed "$*: $line"
    done <<LINES
$lines
LINES
}}
# broker ID, likewise; the tool waits a minute for a broker that is not there
broker() {{
    case "$brokers " in
        *"broker $1 "*) configs --entity-type brokers --entity-name "$1" ;;
        *) failed "broker $1 is not in the cluster" ;;
    esac
}}
topics=$(tool kafka-topics.sh --list) || exit
"""
_BROKERS = "brokers=$(tool kafka-configs.sh --describe --entity-type brokers) || exit"
_END = '[ "$failures" -eq 0 ] || exit 1'

_ENTITY_TYPES = {
    ResourceType.BROKER: "brokers",
    ResourceType.CLIENT_METRICS: "client-metrics",
    ResourceType.GROUP: "groups",
}
_QUOTA_TYPES = {"user": "users", "client-id": "clients", "ip": "ips"}
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\\\udc80-\udcff]")
# kafka-topics.sh drops or refuses these values; kafka-configs.sh drops brackets.
_ONLY_FROM_FILE = re.compile(r"^$|^\s|\s$|[=\[\]]|[^\x20-\x7e]")
_ESCAPED_IN_FILE = re.compile(r"^ |\\|[^\x20-\x7e]")


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
    if any(kind == ResourceType.BROKER and name for kind, name in cluster.configs):
        yield _BROKERS
    for (kind, resource), values in sorted(cluster.configs.items()):
        if kind in _ENTITY_TYPES:
            yield from _config_lines(ResourceType(kind), resource, values)
    yield from _quota_lines(cluster)
    yield from _left_out(cluster)
    yield _END


def recreate_document(cluster: Cluster) -> Row:
    """Return the same as an object for JSON, with topic ids, replicas and features."""
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
        "client_quotas": [
            {"entity": dict(sorted(entity, key=str)), "values": dict(sorted(quotas.items()))}
            for entity, quotas in sorted_quotas(cluster)
        ],
        "features": dict(sorted(cluster.features.items())),
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
    name = _quoted(topic.name)
    words = ["topic", name, str(_partition_count(topic)), str(_replication_factor(topic))]
    from_file = {
        key: value for key, value in configs.items()
        if _ONLY_FROM_FILE.search(value) or _ONLY_FROM_FILE.search(key)
    }
    words += [
        _quoted(f"{key}={value}") for key, value in configs.items() if key not in from_file
    ]
    command = " ".join(words)
    if not from_file:
        yield command
    else:
        yield f"{command} &&"
        yield from _with_lines(f"configs --entity-type topics --entity-name {name}", from_file)


def _config_lines(kind: ResourceType, name: str, values: Mapping[str, str]) -> Iterator[str]:
    if kind is ResourceType.BROKER and name:
        command = f"broker {_quoted(name)}"
    else:
        who = f"--entity-name {_quoted(name)}" if name else "--entity-default"
        command = f"configs --entity-type {_ENTITY_TYPES[kind]} {who}"
    secrets = {key for key in values if is_secret_config(key)}
    for key in sorted(secrets):
        yield f"# Set this secret yourself: {key!a} of {name!a}"
    if others := {key: value for key, value in values.items() if key not in secrets}:
        yield from _with_lines(command, others)


def _with_lines(command: str, configs: Mapping[str, str]) -> Iterator[str]:
    """Yield a command with a properties file as input; its lines have a ``=``."""
    yield f"{command} <<'END'"
    for key, value in sorted(configs.items()):
        yield f"{re.sub('[ :=#!]', _escaped, _in_file(key))}={_in_file(value)}"
    yield "END"


def _in_file(text: str) -> str:
    """Return a text as a properties file has it, which Java reads as ISO-8859-1."""
    return _ESCAPED_IN_FILE.sub(_escaped, text)


def _escaped(found: re.Match[str]) -> str:
    character = found[0]
    if character.isprintable() and character.isascii():
        return f"\\{character}"
    data = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{data[at : at + 2].hex()}" for at in range(0, len(data), 2))


def _quota_lines(cluster: Cluster) -> Iterator[str]:
    for entity, quotas in sorted_quotas(cluster):
        words = []
        for kind, name in sorted(entity, key=str):
            words += ["--entity-type", _quoted(_QUOTA_TYPES.get(kind, kind))]
            words += ["--entity-default"] if name is None else ["--entity-name", _quoted(name)]
        settings = {key: f"{value:.17g}" for key, value in quotas.items()}
        yield from _with_lines(f"configs {' '.join(words)}", settings)


def _left_out(cluster: Cluster) -> Iterator[str]:
    """Name what no command here makes again."""
    for name, level in sorted(cluster.features.items()):
        yield f"# Not set by this script: feature {name!a}, level {level} there"
    left_out = {
        "SCRAM credentials": len(cluster.scram_credentials),
        "ACLs": len(cluster.acls),
        "delegation tokens": len(cluster.delegation_tokens),
    }
    for what, count in left_out.items():
        if count:
            yield f"# Not made by this script: {count} {what}"
