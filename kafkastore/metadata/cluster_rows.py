"""A cluster as rows, for JSON and for comparisons of moments."""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from typing import Any

from kafkastore.formats.topics.cluster_metadata import (
    MASKED,
    METADATA_VERSION,
    SCRAM_SECRETS,
    is_secret_config,
)
from kafkastore.formats.unknown_numbers import none_if_negative
from kafkastore.metadata.cluster import Cluster
from kafkastore.metadata.registrations import (
    ACL_NAMES,
    BrokerRegistration,
    ControllerRegistration,
    Endpoint,
    ResourceType,
    ScramMechanism,
    SecurityProtocol,
)
from kafkastore.metadata.state import Fields
from kafkastore.metadata.topics import PartitionRegistration, Topic

Row = dict[str, Any]

#: The release that brought each level of ``metadata.version``, from the first of each.
_RELEASES = (
    (1, "3.0"), (2, "3.1"), (3, "3.2"), (4, "3.3"), (8, "3.4"), (9, "3.5"), (12, "3.6"),
    (15, "3.7"), (20, "3.8"), (21, "3.9"), (22, "4.0"), (26, "4.1"), (28, "4.2"), (30, "4.3"),
    (31, "4.4"),
)


def release_of(metadata_version: int) -> str | None:
    """Return the release that brought a ``metadata.version``, if it is known.

    Source: Kafka 4.3.1 ``MetadataVersion``.
    """
    found = None
    for first, release in _RELEASES:
        if first <= metadata_version:
            found = release
    return found


def cluster_row(cluster: Cluster) -> Row:
    """Return what is known of the cluster as a whole, and where from."""
    quorum, snapshot = cluster.quorum, cluster.snapshot
    return {
        "kind": "cluster",
        "source": cluster.source.value,
        "path": None if cluster.path is None else str(cluster.path),
        "cluster_id": cluster.cluster_id,
        "end_offset": cluster.end_offset,
        "epoch": none_if_negative(cluster.epoch),
        "timestamp": none_if_negative(cluster.timestamp),
        "snapshot": None if snapshot is None else str(snapshot.path),
        "open_transaction": cluster.open_transaction,
        "kraft_version": quorum.version,
        "leader_id": quorum.leader_id,
        "leader_epoch": none_if_negative(quorum.leader_epoch),
        "voters": sorted(quorum.voters),
        "next_producer_id": cluster.next_producer_id,
        "unknown_records": [
            {"number": number, "version": version, "count": count}
            for (number, version), count in sorted(cluster.unknown_records.items())
        ],
    }


def rows_of(cluster: Cluster, *, show_secrets: bool = False) -> Iterator[Row]:
    """Yield a row for everything in a cluster, by kind."""
    yield cluster_row(cluster)
    for name, level in sorted(cluster.features.items()):
        yield feature_row(name, level)
    for _, controller in sorted(cluster.controllers.items()):
        yield controller_row(controller)
    for _, broker in sorted(cluster.brokers.items()):
        yield broker_row(broker)
    for _, topic in sorted(cluster.topics.items()):
        yield topic_row(topic)
        for number, partition in sorted(topic.partitions.items()):
            yield partition_row(topic, number, partition)
    for (kind, name), values in sorted(cluster.configs.items()):
        for key, value in sorted(values.items()):
            yield config_row(kind, name, key, value, show_secrets=show_secrets)
    for entity, quotas in sorted_quotas(cluster):
        for key, quota in sorted(quotas.items()):
            yield quota_row(entity, key, quota)
    for _, acl in sorted(cluster.acls.items()):
        yield acl_row(acl)
    for _, credential in sorted(cluster.scram_credentials.items()):
        yield scram_row(credential, show_secrets=show_secrets)
    for _, token in sorted(cluster.delegation_tokens.items()):
        yield {"kind": "delegation_token", **token}


def feature_row(name: str, level: int) -> Row:
    """Return a finalized feature; `release` is that of a metadata version."""
    release = release_of(level) if name == METADATA_VERSION else None
    return {"kind": "feature", "name": name, "level": level, "release": release}


def controller_row(controller: ControllerRegistration) -> Row:
    """Return a registered controller."""
    return {
        "kind": "controller",
        "controller_id": controller.controller_id,
        "incarnation_id": controller.incarnation_id,
        "endpoints": list(map(_endpoint, controller.endpoints)),
        "features": _features(controller),
    }


def broker_row(broker: BrokerRegistration) -> Row:
    """Return a registered broker."""
    return {
        "kind": "broker",
        "broker_id": broker.broker_id,
        "epoch": none_if_negative(broker.epoch),
        "incarnation_id": broker.incarnation_id,
        "endpoints": list(map(_endpoint, broker.endpoints)),
        "rack": broker.rack,
        "is_fenced": broker.is_fenced,
        "is_in_controlled_shutdown": broker.is_in_controlled_shutdown,
        "log_dirs": list(broker.log_dirs),
        "cordoned_log_dirs": list(broker.cordoned_log_dirs),
        "features": _features(broker),
    }


def topic_row(topic: Topic) -> Row:
    """Return a topic; its replication factor is that of its first partition."""
    first = topic.partitions.get(min(topic.partitions, default=0))
    return {
        "kind": "topic",
        "topic": topic.name,
        "topic_id": topic.topic_id,
        "partitions": len(topic.partitions),
        "replication_factor": None if first is None else len(first.replicas),
    }


def partition_row(topic: Topic, number: int, partition: PartitionRegistration) -> Row:
    """Return a partition; lists have broker ids, or directories of `replicas`."""
    return {
        "kind": "partition",
        "topic": topic.name,
        "partition": number,
        "leader": none_if_negative(partition.leader),
        "leader_epoch": none_if_negative(partition.leader_epoch),
        "partition_epoch": none_if_negative(partition.partition_epoch),
        "replicas": list(partition.replicas),
        "isr": list(partition.isr),
        "elr": list(partition.elr),
        "last_known_elr": list(partition.last_known_elr),
        "adding_replicas": list(partition.adding_replicas),
        "removing_replicas": list(partition.removing_replicas),
        "directories": list(partition.directories),
        "is_recovering": bool(partition.leader_recovery_state),
    }


def config_row(kind: int, name: str, key: str, value: str, *, show_secrets: bool = False) -> Row:
    """Return a dynamic configuration; one of no name is the default of its kind."""
    return {
        "kind": "config",
        "resource_type": resource_type_text(kind),
        "resource_name": name or None,
        "is_default": not name,
        "name": key,
        "value": MASKED if is_secret_config(key) and not show_secrets else value,
    }


def resource_type_text(kind: int) -> str:
    """Return the name of a kind of resources, or its number as a text."""
    return _name(ResourceType, kind).lower()


def sorted_quotas(
    cluster: Cluster,
) -> list[tuple[frozenset[tuple[str, str | None]], dict[str, float]]]:
    """Return the client quotas of each entity, in an order that does not change."""
    return sorted(cluster.client_quotas.items(), key=lambda each: sorted(map(str, each[0])))


def quota_row(entity: frozenset[tuple[str, str | None]], key: str, value: float) -> Row:
    """Return a client quota; a name of None is the default of its type."""
    return {
        "kind": "client_quota",
        "entity": entity_names(entity),
        "name": key,
        "value": value,
    }


def entity_names(entity: frozenset[tuple[str, str | None]]) -> dict[str, str | None]:
    """Return the names of an entity by their types."""
    return dict(sorted(entity, key=str))


def acl_row(acl: Fields) -> Row:
    """Return an ACL, with Kafka's names."""
    names = {field: names.get(acl[field], str(acl[field])) for field, names in ACL_NAMES.items()}
    return {"kind": "acl", **acl, **names}


def scram_row(credential: Fields, *, show_secrets: bool = False) -> Row:
    """Return the credential of a SCRAM user."""
    row: Row = {
        "kind": "scram_credential",
        "user": credential["name"],
        "mechanism": mechanism_text(credential["mechanism"]),
        "iterations": credential["iterations"],
    }
    for name in SCRAM_SECRETS:
        row[name] = credential[name].hex() if show_secrets else MASKED
    return row


def mechanism_text(number: int) -> str:
    """Return the name of a SCRAM mechanism, or its number as a text."""
    return _name(ScramMechanism, number).replace("_", "-")


def _endpoint(endpoint: Endpoint) -> Row:
    return endpoint._asdict() | {
        "security_protocol": _name(SecurityProtocol, endpoint.security_protocol)
    }


def _name(kind: type[IntEnum], number: int) -> str:
    """Return the name of a member, or the number of an unknown one as a text."""
    try:
        return kind(number).name
    except ValueError:
        return str(number)


def _features(node: BrokerRegistration | ControllerRegistration) -> Row:
    return {
        name: {"min_level": low, "max_level": high}
        for name, (low, high) in sorted(node.features.items())
    }
