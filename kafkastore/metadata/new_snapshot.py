"""A snapshot with which the nodes of a dead cluster begin a new metadata log.

Nodes that find a snapshot after the end of their metadata log begin with it, so that a broker knows
its topics before it loads its logs. Not with ``bootstrap.checkpoint``, whose records are appended
only by the active controller: brokers of 3.9.1 took logs for stray in the meantime.

Source: Kafka 3.9.0 ``KafkaMetadataLog.apply``, 4.1.1 the same.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping

from kafkastore.formats.messages.message_table import Values
from kafkastore.formats.records.control_records import KRAFT_VALUES, ControlRecordType
from kafkastore.formats.records.record_batch import Record, TimestampType
from kafkastore.formats.records.record_builder import build_batch
from kafkastore.formats.state.file_names import TopicPartition
from kafkastore.formats.topics.cluster_metadata import METADATA_VERSION, RECORDS
from kafkastore.metadata.cluster import Cluster, MetadataSource, NoMetadataError

#: How many records are in a batch.
_BATCH_RECORDS = 1000
_ELIGIBLE_LEADER_REPLICAS = "eligible.leader.replicas.version"
_WITH_LAST_KNOWN = 2  # version of PartitionRecord
_NUMBERS = {each.name: number for number, each in RECORDS.descriptions.items()}

#: The broker of a partition that leads it, and the newest leader epoch of its log.
Leaders = Mapping[TopicPartition, tuple[int, int | None]]


def new_snapshot(cluster: Cluster, leaders: Leaders) -> bytes:
    """Return a snapshot of a metadata log with a cluster's topics and settings.

    Features and topic ids are the same, and so are replicas; of these only the best is in sync, or
    the last known leader (with eligible leader replicas), so that it is elected. Also kept are
    configurations, quotas, ACLs, SCRAM credentials, delegation tokens, and the next producer id;
    not brokers and controllers, which register again, and not the voters of a dynamic quorum
    (``kraft.version`` is 0).

    Parameters
    ----------
    cluster : Cluster
        Of a metadata log.
    leaders : mapping of TopicPartition to (int, int or None)
        The broker that has the best replica of a partition, and the largest leader epoch in it. A
        partition that is not in it keeps its in-sync replicas.

    Returns
    -------
    bytes
        The content of ``<end offset>-<epoch>.checkpoint``, of the cluster's; it has secrets.

    Raises
    ------
    NoMetadataError
        If the cluster is not that of a metadata log.
    """
    is_from_log = cluster.source is MetadataSource.METADATA_LOG
    if not is_from_log or METADATA_VERSION not in cluster.features:
        raise NoMetadataError("a snapshot needs the metadata log of a KRaft cluster")
    frames = [_frame(name, fields) for name, fields in _records(cluster, leaders)]
    first = cluster.timestamp
    batches = [_control(0, first, ControlRecordType.SNAPSHOT_HEADER, first)]
    for start in range(0, len(frames), _BATCH_RECORDS):
        batches.append(build_batch(
            _record(1 + start + slot, first, None, frame)
            for slot, frame in enumerate(frames[start : start + _BATCH_RECORDS])
        ))
    batches.append(_control(1 + len(frames), first, ControlRecordType.SNAPSHOT_FOOTER))
    return b"".join(batches)


def is_registered(cluster: Cluster, partition: TopicPartition) -> bool:
    """Return whether a cluster's metadata has a partition."""
    topic = cluster.topics.get(partition.topic)
    return topic is not None and partition.partition in topic.partitions


def _records(cluster: Cluster, leaders: Leaders) -> Iterator[tuple[str, Values]]:
    """Yield the name and fields of each record, the metadata's level first."""
    for feature in sorted(cluster.features, key=lambda each: (each != METADATA_VERSION, each)):
        level = cluster.features[feature]
        yield "FeatureLevelRecord", {"name": feature, "feature_level": level}
    for name, topic in sorted(cluster.topics.items()):
        yield "TopicRecord", {"name": name, "topic_id": topic.topic_id}
        for number in sorted(topic.partitions):
            yield "PartitionRecord", {
                "partition_id": number,
                "topic_id": topic.topic_id,
                **_assignment(cluster, TopicPartition(name, number), leaders),
            }
    for (kind, resource), configs in sorted(cluster.configs.items()):
        for key, value in sorted(configs.items()):
            yield "ConfigRecord", {
                "resource_type": kind, "resource_name": resource, "name": key, "value": value
            }
    for entity, quotas in cluster.client_quotas.items():
        named = [{"entity_type": kind, "entity_name": name} for kind, name in sorted(
            entity, key=lambda each: each[0]
        )]
        for key, limit in sorted(quotas.items()):
            yield "ClientQuotaRecord", {
                "entity": named, "key": key, "value": limit, "remove": False
            }
    for record, kept in (
        ("AccessControlEntryRecord", cluster.acls),
        ("UserScramCredentialRecord", cluster.scram_credentials),
        ("DelegationTokenRecord", cluster.delegation_tokens),
    ):
        for fields in kept.values():
            yield record, fields
    if cluster.next_producer_id is not None:
        yield "ProducerIdsRecord", {"broker_id": -1, "next_producer_id": cluster.next_producer_id}


def _assignment(
    cluster: Cluster, partition: TopicPartition, leaders: Leaders
) -> Values:
    """Return the replicas of a partition, and which of them leads it."""
    # Followers that started before their leader look for it again at a new leader epoch, so there
    # has to be an election: no partition has a leader. With eligible leader replicas, a controller
    # removes a broker that registers after a crash from those in sync, but elects the last known.
    known = cluster.topics[partition.topic].partitions[partition.partition]
    leader, epoch, isr, replicas = known.leader, None, known.isr, known.replicas
    if partition in leaders:
        leader, epoch = leaders[partition]
        isr = (leader,)
        if leader not in replicas:
            replicas = (leader, *replicas[1:])
    last_known: Values = {}
    if cluster.features.get(_ELIGIBLE_LEADER_REPLICAS) and (leader >= 0 or len(isr) == 1):
        last_known = {"last_known_elr": (leader if leader >= 0 else isr[0],)}
        isr = ()
    return {
        "replicas": replicas,
        "isr": isr,
        **last_known,
        "removing_replicas": (),
        "adding_replicas": (),
        "leader": -1,
        "leader_epoch": max(known.leader_epoch, -1 if epoch is None else epoch) + 1,
        "partition_epoch": known.partition_epoch + 1,
    }


def _frame(name: str, fields: Values) -> bytes:
    """Pack a record in the oldest version with its fields: all controllers read it."""
    number = _NUMBERS[name]
    version = RECORDS.descriptions[number].versions.oldest
    if "last_known_elr" in fields:
        version = _WITH_LAST_KNOWN
    return bytes((1, number, version)) + RECORDS.known_codec(number, version).pack(dict(fields))


def _record(offset: int, timestamp: int, key: bytes | None, value: bytes) -> Record:
    return Record(offset, timestamp, TimestampType.CREATE_TIME, key, value, (), None)


def _control(
    offset: int, timestamp: int, kind: ControlRecordType, last_timestamp: int | None = None
) -> bytes:
    """Return the batch of a header or a footer."""
    fields: dict[str, int] = {"version": 0}
    if last_timestamp is not None:
        fields["last_contained_log_timestamp"] = last_timestamp
    value = KRAFT_VALUES.known_codec(kind, 0).pack(fields)
    key = struct.pack(">hh", 0, kind)
    return build_batch([_record(offset, timestamp, key, value)], is_control=True)
