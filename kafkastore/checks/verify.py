"""Choose the partitions to check; compare them with each other and the cluster.

`store_check` checks the files outside partitions; `partition_check` and `segment_check` check
partitions and segments.

Source: Kafka 3.8.0 ``LogManager.isStrayKraftReplica``, ``ReplicaManager.applyDelta``;
3.9.0 ``UnifiedLog.deleteRetentionMsBreachedSegments``.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from kafkastore.checks.findings import Finding, FindingKind, command
from kafkastore.checks.partition_check import CheckedPartition, check_partition
from kafkastore.errors import ArgumentValueError
from kafkastore.formats.state.file_names import (
    CLUSTER_METADATA_TOPIC,
    PARTITION_METADATA,
    TopicPartition,
)
from kafkastore.log.log_dir import LogDir
from kafkastore.metadata.cluster import Cluster
from kafkastore.metadata.strays import Assignments, StrayReason, broker_of
from kafkastore.metadata.topics import PartitionRegistration
from kafkastore.store.log_store import LogStore
from kafkastore.store.partition_log import PartitionLog
from kafkastore.writing.topic_settings import TopicSetting, TopicSettings, settings_of

_POLICY, _RETENTION_MS = "cleanup.policy", "retention.ms"
_KINDS = {
    StrayReason.UNKNOWN_TOPIC: FindingKind.NOT_IN_CLUSTER,
    StrayReason.NOT_A_REPLICA: FindingKind.NOT_A_REPLICA,
    StrayReason.OTHER_TOPIC: FindingKind.TOPIC_ID_MISMATCH,
}
_MOVE_AWAY = "move it out of the log directory, unless --metadata is of another cluster or older"
#: Kinds whose consequence is that retention deletes segments, and those without it.
_WITHOUT_RETENTION = {
    FindingKind.TIMESTAMP_IN_SECONDS: FindingKind.KEPT_TIMESTAMP_IN_SECONDS,
    FindingKind.ZERO_TIME_INDEX_ENTRIES: FindingKind.KEPT_ZERO_TIME_INDEX_ENTRIES,
}
_KEEP_CONFIGURATION = (
    "keep the topic's retention.ms and cleanup.policy; produce the records again with timestamps "
    "in milliseconds"
)


def check_sample(sample: float) -> None:
    """Raise ArgumentValueError unless `sample` is above 0 and at most 1."""
    if not 0 < sample <= 1:
        raise ArgumentValueError("sample", "above 0 and at most 1", sample)


def verify_log(log: PartitionLog) -> Iterator[Finding]:
    """Yield the findings in one partition, then raise the first error that occurred.

    The error is the one that kept a file from being opened.
    """
    checked = check_partition(log)
    yield from checked.findings
    if checked.failures:
        raise checked.failures[0]


def logs_to_check(
    store: LogStore, chosen: Collection[TopicPartition] | None
) -> Iterator[tuple[PartitionLog, Finding | None]]:
    """Yield each directory of each partition, with a finding if there are several.

    Future partitions, which a broker is moving, come last.
    """
    for logs in (store.partitions, store.future_partitions):
        for topic_partition in logs:
            if chosen is not None and topic_partition not in chosen:
                continue
            copies = logs.copies(topic_partition)
            for log in copies:
                others = ", ".join(str(other.path) for other in copies if other is not log)
                yield log, _duplicate(log, others) if others else None


def _duplicate(log: PartitionLog, others: str) -> Finding:
    return Finding(
        FindingKind.DUPLICATE_PARTITION, log.path, None,
        f"partition {log.topic_partition} is also in {others}",
        "keep the one with the larger log end offset (kafkastore ls), and move the other away",
    )


def differing_topic_id(
    topic: str, path: Path, topic_id: str | None, known: dict[str, tuple[str, Path]]
) -> Iterator[Finding]:
    """Yield a finding if an earlier partition of the topic has another topic id.

    `known` maps each topic to its first id and the path it was read from; a new topic is added.
    """
    if topic_id is None:
        return
    first_id, first = known.setdefault(topic, (topic_id, path))
    if topic_id != first_id:
        yield Finding(
            FindingKind.TOPIC_ID_MISMATCH, path / PARTITION_METADATA, None,
            f"topic {topic} has id {topic_id} here, and {first_id} in {first}",
            "move the partition of the old topic away (kafka-topics.sh --describe shows the id)",
        )


@dataclass(frozen=True)
class ClusterCheck:
    """What a cluster's metadata says of a store's logs, for tasks in any process.

    `missing` has the partitions that it assigns to the directories, and that they do not have.
    """

    assignments: Assignments
    settings: TopicSettings
    metadata_path: Path | None
    missing: tuple[Finding, ...]

    @classmethod
    def of(cls, cluster: Cluster | None, store: LogStore) -> Self | None:
        """Return the check of a store, None without a metadata log."""
        assignments = Assignments.of(cluster)
        if assignments is None or cluster is None:
            return None
        missing = tuple(_missing_partitions(cluster, store))
        return cls(assignments, settings_of(cluster, store, None), cluster.path, missing)

    def compare(self, log: PartitionLog, checked: CheckedPartition) -> None:
        """Add what differs from the metadata to the findings of a partition.

        Findings that the topic's configurations explain are removed, or become less severe.
        """
        if log.topic == CLUSTER_METADATA_TOPIC:
            return
        setting = self.settings.of(log.topic)
        checked.findings[:] = [
            configured
            for each in checked.findings
            if (configured := self._configured(each, log, setting)) is not None
        ]
        if checked.topic_id is not None or not os.path.lexists(log.path / PARTITION_METADATA):
            checked.findings.extend(self._stray(log, checked.topic_id))

    def _stray(self, log: PartitionLog, topic_id: str | None) -> Iterator[Finding]:
        """Report a log that the broker does not serve."""
        path, known_id = log.path / PARTITION_METADATA, self.assignments.topic_ids.get(log.topic)
        if topic_id is not None and known_id is not None and topic_id != known_id:
            yield Finding(
                FindingKind.TOPIC_ID_MISMATCH, path, None,
                f"topic {log.topic} has id {topic_id} here, and {known_id} in "
                f"{self.assignments.cluster}",
                _MOVE_AWAY,
            )
            return
        reason, why = self.assignments.why_not_served(log, topic_id)
        if reason is StrayReason.NO_TOPIC_ID:
            yield Finding(
                FindingKind.MISSING_TOPIC_ID, path, None, why, self._remedy(log, known_id)
            )
        elif reason is not None:
            yield Finding(_KINDS[reason], log.path, None, why, _MOVE_AWAY)

    def _remedy(self, log: PartitionLog, known_id: str | None) -> str:
        """Return how a log gets its topic id, if the broker should have it."""
        if known_id is None or self.assignments.why_not_served(log, known_id)[0] is not None:
            return _MOVE_AWAY
        where = "" if self.metadata_path is None else (
            f" --metadata {shlex.quote(str(self.metadata_path))}"
        )
        return command(f"repair{where}", log.path)

    def _configured(
        self, finding: Finding, log: PartitionLog, setting: TopicSetting
    ) -> Finding | None:
        """Return a finding as the topic's configurations have it, None if normal."""
        config = self.settings.config(log.topic)
        if finding.kind is FindingKind.MISSING_OFFSETS and _POLICY in setting.sources:
            if "compact" in config.cleanup_policy:
                return None
            return finding._replace(what=f"{finding.what}; {setting.describe(_POLICY)}")
        if finding.kind is FindingKind.EMPTY_OFFSET_INDEX and any(
            each.size <= config.index_interval_bytes
            for each in log.segments
            if each.offset_index_path == finding.path
        ):
            return None
        if finding.kind in _WITHOUT_RETENTION:
            name = _POLICY if "delete" not in config.cleanup_policy else _RETENTION_MS
            if name in setting.sources and (name == _POLICY or config.retention_ms < 0):
                kind = _WITHOUT_RETENTION[finding.kind]
                what = f"{finding.what}; {setting.describe(name)}"
                is_time = kind is FindingKind.KEPT_TIMESTAMP_IN_SECONDS
                remedy = _KEEP_CONFIGURATION if is_time else finding.remedy
                return finding._replace(kind=kind, what=what, remedy=remedy)
        return finding


def _missing_partitions(cluster: Cluster, store: LogStore) -> Iterator[Finding]:
    """Report the missing partitions of a cluster in the given directories."""
    brokers: dict[int, dict[str | None, LogDir]] = {}
    there: dict[int, set[TopicPartition]] = {}
    for log_dir in store.log_dirs:
        if (broker_id := broker_of(log_dir)) is not None:
            directory_id = log_dir.meta_properties.get("directory.id")
            brokers.setdefault(broker_id, {})[directory_id] = log_dir
            there.setdefault(broker_id, set()).update(log_dir.partition_paths)
    for topic in cluster.topics.values():
        for number, partition in topic.partitions.items():
            topic_partition = TopicPartition(topic.name, number)
            for broker_id in partition.replicas:
                log_dirs = brokers.get(broker_id)
                if log_dirs is None or topic_partition in there[broker_id]:
                    continue
                assigned = _assigned_log_dir(cluster, partition, broker_id, log_dirs)
                if assigned is not None:
                    yield Finding(
                        FindingKind.MISSING_PARTITION, assigned.path / str(topic_partition), None,
                        f"{cluster.title} assigns partition {topic_partition} to broker "
                        f"{broker_id}, and its directory is missing",
                        "look for the directory, or for another replica, before a broker starts",
                    )


def _assigned_log_dir(
    cluster: Cluster,
    partition: PartitionRegistration,
    broker_id: int,
    log_dirs: dict[str | None, LogDir],
) -> LogDir | None:
    """Return the log directory that should have a replica, None if another may.

    Clusters before 3.7 do not know the directories of replicas.
    """
    broker = cluster.brokers.get(broker_id)
    registered = () if broker is None else broker.log_dirs
    assigned = partition.directories[partition.replicas.index(broker_id)]
    if assigned in registered:
        return log_dirs.get(assigned)
    return next(iter(log_dirs.values())) if set(registered) <= log_dirs.keys() else None
