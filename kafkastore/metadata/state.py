"""The state of a cluster that the records of its metadata log add up to.

Each record changes the state as it does in a broker that replays it. A record that does not fit the
state, such as a change of a partition that does not exist, is an error: a broker reports a fault.

Source: Kafka 4.3.1 ``MetadataDelta`` and the deltas in it, ``PartitionRegistration.merge``.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from typing import Any

from kafkastore.formats.topics import cluster_metadata
from kafkastore.metadata.registrations import (
    BrokerRegistration,
    ControllerRegistration,
    Endpoint,
    ResourceType,
    SecurityProtocol,
)
from kafkastore.metadata.replay_error import ReplayError
from kafkastore.metadata.topics import Topic, change_partition, create_partition

Fields = dict[str, Any]

PARTITION_CHANGE = 5
_KRAFT_VERSION = "kraft.version"
# The numbers that brokers know; a record with another is a fault to them.
_FENCING, _CONTROLLED_SHUTDOWN, _ZK_MIGRATION = range(-1, 2), range(2), range(5)
_SECURITY_PROTOCOLS = frozenset(SecurityProtocol)


class ClusterState:
    """The cluster after the records that were replayed."""

    def __init__(self) -> None:
        self.brokers: dict[int, BrokerRegistration] = {}
        self.controllers: dict[int, ControllerRegistration] = {}
        self.topics: dict[str, Topic] = {}
        self.topics_by_id: dict[str, Topic] = {}
        self._shared_ids: dict[tuple[object, ...], tuple[object, ...]] = {}
        self.configs: dict[tuple[int, str], dict[str, str]] = {}
        self.features: dict[str, int] = {}
        self.client_quotas: dict[frozenset[tuple[str, str | None]], dict[str, float]] = {}
        self.acls: dict[str, Fields] = {}
        self.scram_credentials: dict[tuple[int, str], Fields] = {}
        self.delegation_tokens: dict[str, Fields] = {}
        self.next_producer_id: int | None = None
        self.zk_migration_state: int | None = None

    def replay(self, number: int, record: Fields) -> None:
        """Change the state by a metadata record; raise `ReplayError` if it does not fit."""
        change = _CHANGES.get(number)
        if change is not None:
            change(self, record)

    def _register_broker(self, record: Fields) -> None:
        self.brokers[record["broker_id"]] = BrokerRegistration(
            record["broker_id"],
            record["broker_epoch"],
            record["incarnation_id"],
            _endpoints(record),
            _supported_features(record),
            record["rack"],
            record["fenced"],
            record["in_controlled_shutdown"],
            record["is_migrating_zk_broker"],
            _sorted_ids(record["log_dirs"]),
            _sorted_ids(record["cordoned_log_dirs"] or ()),
        )

    def _unregister_broker(self, record: Fields) -> None:
        self.brokers.pop(record["broker_id"], None)

    def _fence_broker(self, record: Fields) -> None:
        broker = self._broker("FenceBrokerRecord", record["id"], record["epoch"])
        self.brokers[broker.broker_id] = broker._replace(is_fenced=True)

    def _unfence_broker(self, record: Fields) -> None:
        broker = self._broker("UnfenceBrokerRecord", record["id"], record["epoch"])
        self.brokers[broker.broker_id] = broker._replace(is_fenced=False)

    def _change_broker(self, record: Fields) -> None:
        broker = self._broker(
            "BrokerRegistrationChangeRecord", record["broker_id"], record["broker_epoch"]
        )
        _check("BrokerRegistrationChangeRecord", record, "fenced", _FENCING)
        _check(
            "BrokerRegistrationChangeRecord", record, "in_controlled_shutdown", _CONTROLLED_SHUTDOWN
        )
        changes: Fields = {}
        if record["fenced"]:
            changes["is_fenced"] = record["fenced"] > 0
        if record["in_controlled_shutdown"]:
            changes["is_in_controlled_shutdown"] = True
        if record["log_dirs"]:
            changes["log_dirs"] = _sorted_ids(record["log_dirs"])
        if record["cordoned_log_dirs"] is not None:
            changes["cordoned_log_dirs"] = _sorted_ids(record["cordoned_log_dirs"])
        self.brokers[broker.broker_id] = broker._replace(**changes)

    def _broker(self, record: str, broker_id: int, epoch: int) -> BrokerRegistration:
        """Return the registration that a record changes."""
        broker = self.brokers.get(broker_id)
        if broker is None:
            raise ReplayError(record, f"broker {broker_id} is not registered")
        if broker.epoch != epoch:
            raise ReplayError(
                record, f"the epoch of broker {broker_id} is {broker.epoch}, got {epoch}"
            )
        return broker

    def _register_controller(self, record: Fields) -> None:
        for endpoint in record["end_points"]:
            _check("RegisterControllerRecord", endpoint, "security_protocol", _SECURITY_PROTOCOLS)
        self.controllers[record["controller_id"]] = ControllerRegistration(
            record["controller_id"],
            record["incarnation_id"],
            _endpoints(record),
            _supported_features(record),
            record["zk_migration_ready"],
        )

    def _unregister_controller(self, record: Fields) -> None:
        self.controllers.pop(record["controller_id"], None)

    def _create_topic(self, record: Fields) -> None:
        topic = Topic(record["name"], record["topic_id"])
        self.topics[record["name"]] = self.topics_by_id[record["topic_id"]] = topic

    def _remove_topic(self, record: Fields) -> None:
        topic = self._topic("RemoveTopicRecord", record)
        del self.topics_by_id[record["topic_id"]]
        if self.topics.get(topic.name) is topic:
            del self.topics[topic.name]
        self.configs.pop((ResourceType.TOPIC, topic.name), None)

    def _topic(self, name: str, record: Fields) -> Topic:
        """Return the topic that a record changes."""
        topic = self.topics_by_id.get(record["topic_id"])
        if topic is None:
            raise ReplayError(name, f"no topic has the id {record['topic_id']}")
        return topic

    def _create_partition(self, record: Fields) -> None:
        create_partition(self.topics_by_id, record)

    def change_partition(self, record: Fields) -> None:
        """Change a partition by a PartitionChangeRecord; null fields do not change it."""
        change_partition(self.topics_by_id, self._shared_ids, record)

    def _clear_elr(self, record: Fields) -> None:
        """Forget the eligible leader replicas of a topic, or of all topics."""
        name = record["topic_name"]
        if name and name not in self.topics:
            raise ReplayError("ClearElrRecord", f"there is no topic {name!r}")
        for topic in (self.topics[name],) if name else self.topics.values():
            for partition in topic.partitions.values():
                if partition.elr or partition.last_known_elr:
                    partition.elr = partition.last_known_elr = ()
                    partition.partition_epoch += 1

    def _configure(self, record: Fields) -> None:
        resource = record["resource_type"], record["resource_name"]
        if record["value"] is not None:
            self.configs.setdefault(resource, {})[record["name"]] = record["value"]
        elif resource in self.configs:
            self.configs[resource].pop(record["name"], None)
            if not self.configs[resource]:
                del self.configs[resource]

    def _set_feature(self, record: Fields) -> None:
        if record["name"] == _KRAFT_VERSION:
            return  # 3.9 may have written it; what counts is a control record
        if record["feature_level"] or record["name"] == cluster_metadata.METADATA_VERSION:
            self.features[record["name"]] = record["feature_level"]
        else:
            self.features.pop(record["name"], None)

    def _set_quota(self, record: Fields) -> None:
        entity = quota_entity(record)
        if not record["remove"]:
            self.client_quotas.setdefault(entity, {})[record["key"]] = record["value"]
        elif entity in self.client_quotas:
            self.client_quotas[entity].pop(record["key"], None)
            if not self.client_quotas[entity]:
                del self.client_quotas[entity]

    def _set_acl(self, record: Fields) -> None:
        self.acls[record["id"]] = record

    def _remove_acl(self, record: Fields) -> None:
        if self.acls.pop(record["id"], None) is None:
            raise ReplayError("RemoveAccessControlEntryRecord", f"no ACL has the id {record['id']}")

    def _set_scram(self, record: Fields) -> None:
        self.scram_credentials[record["mechanism"], record["name"]] = record

    def _remove_scram(self, record: Fields) -> None:
        self.scram_credentials.pop((record["mechanism"], record["name"]), None)

    def _set_token(self, record: Fields) -> None:
        for principal in (record["owner"], record["requester"], *record["renewers"]):
            if ":" not in principal:
                raise ReplayError("DelegationTokenRecord", f"{principal!r} is no type:name")
        self.delegation_tokens[record["token_id"]] = record

    def _remove_token(self, record: Fields) -> None:
        self.delegation_tokens.pop(record["token_id"], None)

    def _set_producer_ids(self, record: Fields) -> None:
        self.next_producer_id = record["next_producer_id"]

    def _set_zk_migration_state(self, record: Fields) -> None:
        _check("ZkMigrationStateRecord", record, "zk_migration_state", _ZK_MIGRATION)
        self.zk_migration_state = record["zk_migration_state"]


_CHANGES: Mapping[int, Callable[[ClusterState, Fields], None]] = {
    0: ClusterState._register_broker,
    1: ClusterState._unregister_broker,
    2: ClusterState._create_topic,
    3: ClusterState._create_partition,
    4: ClusterState._configure,
    PARTITION_CHANGE: ClusterState.change_partition,
    7: ClusterState._fence_broker,
    8: ClusterState._unfence_broker,
    9: ClusterState._remove_topic,
    10: ClusterState._set_token,
    11: ClusterState._set_scram,
    12: ClusterState._set_feature,
    14: ClusterState._set_quota,
    15: ClusterState._set_producer_ids,
    17: ClusterState._change_broker,
    18: ClusterState._set_acl,
    19: ClusterState._remove_acl,
    21: ClusterState._set_zk_migration_state,
    22: ClusterState._remove_scram,
    26: ClusterState._remove_token,
    27: ClusterState._register_controller,
    28: ClusterState._clear_elr,
    29: ClusterState._unregister_controller,
}


def quota_entity(record: Fields) -> frozenset[tuple[str, str | None]]:
    """Return whom a client quota is for."""
    return frozenset((each["entity_type"], each["entity_name"]) for each in record["entity"])


def _sorted_ids(ids: Iterable[str]) -> tuple[str, ...]:
    """Return ids in an order; that of all zeros, None, comes first."""
    return tuple(sorted(ids, key=lambda each: each or ""))


def _check(record: str, values: Fields, name: str, known: Container[int]) -> None:
    """Raise `ReplayError` for a number that no broker knows."""
    if values[name] not in known:
        raise ReplayError(record, f"{name} is {values[name]}, which is unknown")


def _endpoints(record: Fields) -> tuple[Endpoint, ...]:
    return tuple(Endpoint(**each) for each in record["end_points"])


def _supported_features(record: Fields) -> dict[str, tuple[int, int]]:
    return {
        each["name"]: (each["min_supported_version"], each["max_supported_version"])
        for each in record["features"]
    }
