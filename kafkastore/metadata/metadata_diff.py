"""What changed in a cluster between two moments, record by record."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from kafkastore.formats.topics.cluster_metadata import (
    MASKED,
    RECORDS,
    SCRAM_SECRETS,
    is_secret_config,
)
from kafkastore.log.log_view import LogView
from kafkastore.metadata import cluster_rows
from kafkastore.metadata.cluster import AsOf, Cluster, replay_log, replay_snapshot_before
from kafkastore.metadata.cluster_rows import Row
from kafkastore.metadata.metadata_log import MetadataRecord
from kafkastore.metadata.state import Fields, quota_entity

_NO_OP = 20


class MetadataChange(NamedTuple):
    """A record of the metadata log that changed something.

    | field       | value                                                            |
    | ----------- | ---------------------------------------------------------------- |
    | `offset`    | of the record                                                    |
    | `timestamp` | of its append, ms since 1970                                     |
    | `epoch`     | of the controller                                                |
    | `record`    | Kafka's name of the record                                       |
    | `subject`   | what it is about: ``{"kind": "partition", "topic": "t", ...}``   |
    | `before`    | the fields that changed, or all if nothing is left; None: new    |
    | `after`     | the same fields after it; None if nothing is left                |
    """

    offset: int
    timestamp: int
    epoch: int
    record: str
    subject: Row
    before: Row | None
    after: Row | None


def changes_between(
    log: LogView, start: AsOf, end: AsOf, *, show_secrets: bool = False
) -> Iterator[MetadataChange]:
    """Yield the changes between two moments, in the order in which they count.

    The records of a metadata transaction count at its end.
    """
    for change in _unmasked_changes(log, start, end):
        yield change if show_secrets else change._replace(
            before=_masked(change.subject, change.before),
            after=_masked(change.subject, change.after),
        )


def _unmasked_changes(log: LogView, start: AsOf, end: AsOf) -> Iterator[MetadataChange]:
    cluster = replay_snapshot_before(log, start)
    waiting: tuple[MetadataRecord, Row, Row | None] | None = None
    for record in replay_log(cluster, log, end):
        if waiting is not None:
            yield _change(cluster, *waiting)
            waiting = None
        is_after = cluster.end_offset > start.offset or cluster.timestamp > start.timestamp
        if is_after and record.number != _NO_OP and not isinstance(record.fields, bytes):
            subject = _subject(cluster, record.number, record.fields)
            waiting = record, subject, _row(cluster, subject)
    if waiting is not None:
        yield _change(cluster, *waiting)


def _change(
    cluster: Cluster, record: MetadataRecord, subject: Row, before: Row | None
) -> MetadataChange:
    """Compare what a record is about before and after it."""
    after = _row(cluster, subject)
    if before is not None and after is not None:
        names = [name for name in after if before.get(name) != after[name]]
        before = {name: before.get(name) for name in names}
        after = {name: after[name] for name in names}
    name = RECORDS.name(record.number) or ""
    return MetadataChange(
        record.offset, record.timestamp, record.epoch, name, _shown(subject), before, after
    )


def _row(cluster: Cluster, subject: Row) -> Row | None:
    """Return the fields of what a record is about, without those that name it."""
    row = _ROWS[subject["kind"]](cluster, subject)
    return None if row is None else {
        name: value for name, value in row.items() if name not in (*subject, "is_default")
    }


def _masked(subject: Row, fields: Row | None) -> Row | None:
    """Mask the secrets, after it is known whether they have changed."""
    if fields is None:
        return None
    secrets: Sequence[str] = ()
    if subject["kind"] == "scram_credential":
        secrets = SCRAM_SECRETS
    elif subject["kind"] == "config" and is_secret_config(subject["name"]):
        secrets = ("value",)
    return {name: MASKED if name in secrets else value for name, value in fields.items()}


def _shown(subject: Row) -> Row:
    """Return a subject with names instead of numbers."""
    if subject["kind"] == "client_quota":
        return subject | {"entity": cluster_rows.entity_names(quota_entity(subject))}
    if subject["kind"] == "config":
        kind = cluster_rows.resource_type_text(subject["resource_type"])
        return subject | {"resource_type": kind, "resource_name": subject["resource_name"] or None}
    if subject["kind"] == "scram_credential":
        return subject | {"mechanism": cluster_rows.mechanism_text(subject["mechanism"])}
    return subject


def _subject(cluster: Cluster, number: int, fields: Fields) -> Row:
    """Return what a record is about: a kind, and the names that its row has too."""
    kind, names = _SUBJECTS[number]
    subject: Row = {"kind": kind}
    for name, field in names.items():
        if field == "topic_id":
            topic = cluster.topics_by_id.get(fields[field])
            subject[name] = None if topic is None else topic.name
        else:
            subject[name] = fields[field]
    return subject


_PARTITION = "partition", {"topic": "topic_id", "partition": "partition_id"}
_USER = "scram_credential", {"user": "name", "mechanism": "mechanism"}
_TOKEN = "delegation_token", {"token_id": "token_id"}
_SUBJECTS: Mapping[int, tuple[str, Mapping[str, str]]] = {
    0: ("broker", {"broker_id": "broker_id"}),
    1: ("broker", {"broker_id": "broker_id"}),
    2: ("topic", {"topic": "name"}),
    3: _PARTITION,
    4: ("config", {name: name for name in ("resource_type", "resource_name", "name")}),
    5: _PARTITION,
    7: ("broker", {"broker_id": "id"}),
    8: ("broker", {"broker_id": "id"}),
    9: ("topic", {"topic": "topic_id"}),
    10: _TOKEN,
    11: _USER,
    12: ("feature", {"name": "name"}),
    14: ("client_quota", {"entity": "entity", "name": "key"}),
    15: ("cluster", {}),
    17: ("broker", {"broker_id": "broker_id"}),
    18: ("acl", {"id": "id"}),
    19: ("acl", {"id": "id"}),
    21: ("cluster", {}),
    22: _USER,
    26: _TOKEN,
    27: ("controller", {"controller_id": "controller_id"}),
    28: ("elr", {"topic": "topic_name"}),
    29: ("controller", {"controller_id": "controller_id"}),
}


def _broker(cluster: Cluster, subject: Row) -> Row | None:
    broker = cluster.brokers.get(subject["broker_id"])
    return None if broker is None else cluster_rows.broker_row(broker)


def _controller(cluster: Cluster, subject: Row) -> Row | None:
    controller = cluster.controllers.get(subject["controller_id"])
    return None if controller is None else cluster_rows.controller_row(controller)


def _topic(cluster: Cluster, subject: Row) -> Row | None:
    topic = cluster.topics.get(subject["topic"])
    return None if topic is None else cluster_rows.topic_row(topic)


def _partition(cluster: Cluster, subject: Row) -> Row | None:
    topic = cluster.topics.get(subject["topic"])
    if topic is None or subject["partition"] not in topic.partitions:
        return None
    number = subject["partition"]
    return cluster_rows.partition_row(topic, number, topic.partitions[number])


def _config(cluster: Cluster, subject: Row) -> Row | None:
    resource, name = (subject["resource_type"], subject["resource_name"]), subject["name"]
    value = cluster.configs.get(resource, {}).get(name)
    return None if value is None else cluster_rows.config_row(
        *resource, name, value, show_secrets=True
    )


def _feature(cluster: Cluster, subject: Row) -> Row | None:
    level = cluster.features.get(subject["name"])
    return None if level is None else cluster_rows.feature_row(subject["name"], level)


def _quota(cluster: Cluster, subject: Row) -> Row | None:
    entity = quota_entity(subject)
    value = cluster.client_quotas.get(entity, {}).get(subject["name"])
    return None if value is None else cluster_rows.quota_row(entity, subject["name"], value)


def _user(cluster: Cluster, subject: Row) -> Row | None:
    found = cluster.scram_credentials.get((subject["mechanism"], subject["user"]))
    return None if found is None else cluster_rows.scram_row(found, show_secrets=True)


def _acl(cluster: Cluster, subject: Row) -> Row | None:
    found = cluster.acls.get(subject["id"])
    return None if found is None else cluster_rows.acl_row(found)


def _elr(cluster: Cluster, subject: Row) -> Row:
    """Count the partitions that have eligible leader replicas."""
    name = subject["topic"]
    topics = [cluster.topics[name]] if name in cluster.topics else cluster.topics.values()
    partitions = (each for topic in topics for each in topic.partitions.values())
    return {"partitions": sum(bool(each.elr or each.last_known_elr) for each in partitions)}


def _whole(cluster: Cluster, _: Row) -> Row:
    names = "next_producer_id", "zk_migration_state"
    return {name: getattr(cluster, name) for name in names}


_ROWS: Mapping[str, Callable[[Cluster, Row], Row | None]] = {
    "acl": _acl,
    "broker": _broker,
    "client_quota": _quota,
    "cluster": _whole,
    "config": _config,
    "controller": _controller,
    "delegation_token": lambda cluster, subject: cluster.delegation_tokens.get(
        subject["token_id"]
    ),
    "elr": _elr,
    "feature": _feature,
    "partition": _partition,
    "scram_credential": _user,
    "topic": _topic,
}
