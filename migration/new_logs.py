"""The logs of new topics that `plan_restore` fills: empty ones, or new ones.

A broker that was stopped before it knew of a topic, or whose disk was replaced, has no directory
of the topic's partitions. A KRaft broker renames a directory to ``-stray`` if its
``partition.metadata`` is missing, or has another id than the topic.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from kafkastore.caching import cached_property
from kafkastore.changes.file_state import PERMISSIONS, FileState
from kafkastore.changes.plan import FileChange, Inline, NewDirectory
from kafkastore.errors import ChangeRefusedError, RefusalReason
from kafkastore.formats.state.checkpoints import pack_partition_metadata
from kafkastore.formats.state.file_names import (
    CLEAN_SHUTDOWN_FILE,
    CLUSTER_METADATA_TOPIC,
    LOCK_FILE,
    META_PROPERTIES,
    PARTITION_METADATA,
    TopicPartition,
)
from kafkastore.log.log_dir import LogDir, SkippedKind
from kafkastore.log.log_view import LogView
from kafkastore.log.partition_files import read_topic_id
from kafkastore.metadata.cluster import Cluster
from kafkastore.metadata.strays import Assignments, StrayReason, broker_of
from kafkastore.paths import to_path
from kafkastore.store.cluster_metadata import Metadata, find_cluster, find_cluster_or_warn
from kafkastore.store.log_store import LogStore, Partitions, open_store

#: The ``version`` of ``meta.properties`` that brokers with ZooKeeper write.
_WITH_ZOOKEEPER = "0"


class NewLog(NamedTuple):
    """The directory in which a partition is restored, and the access to files in it.

    `created` is set if the directory does not exist yet; `topic_id` if ``partition.metadata`` is
    created, with the reason `why`.
    """

    path: Path
    mode: int
    user: int
    group: int
    created: NewDirectory | None = None
    topic_id: str | None = None
    why: str = ""

    def state_of(self, state: FileState) -> FileState:
        """Return the state of a file in it, with its mode and owners."""
        return replace(state, mode=self.mode, user=self.user, group=self.group)

    def topic_id_change(self) -> Iterator[FileChange]:
        """Yield the change that creates ``partition.metadata``, if it is created."""
        if self.topic_id is not None:
            data = pack_partition_metadata(self.topic_id)
            like = os.stat(self.path if self.created is None else self.path.parent)
            after = self.state_of(FileState.of_bytes(data, like))
            path = f"{self.path.name}/{PARTITION_METADATA}"
            yield FileChange(path, None, after, Inline(data), self.why)


@dataclass
class NewLogs:
    """The log directory of a stopped broker.

    Parameters
    ----------
    store : LogStore
        The log directory.
    metadata : Cluster, path-like, LogStore or list of these, optional
        The cluster's metadata; default: the metadata log in the directory.
    without_topic_ids : bool
        Whether topic ids may be missing if the directory does not show which broker it has.
    """

    store: LogStore
    metadata: Metadata = None
    without_topic_ids: bool = False
    cluster: Cluster | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        if self.metadata is not None:
            self.cluster = find_cluster(self.store, self.metadata)
            self._check_cluster_id(self.cluster)

    @property
    def log_dir(self) -> LogDir:
        """The log directory."""
        return self.store.log_dirs[0]

    def is_elsewhere(self, topic_partition: TopicPartition) -> bool:
        """Return whether the cluster has a partition, but on other brokers only."""
        topic, partition = topic_partition
        if self._assignments is None or topic not in self._assignments.topic_ids:
            return False
        topic_id, broker_id = self._assignments.topic_ids[topic], broker_of(self.log_dir)
        reason = self._assignments.why_stray(topic_id, partition, broker_id)
        return reason is StrayReason.NOT_A_REPLICA

    def find(self, topic_partition: TopicPartition) -> NewLog:
        """Return where a partition is restored; refuse a log that had records."""
        if topic_partition not in self.store.partitions:
            path = self.log_dir.path / str(topic_partition)
            return self._new_log(topic_partition, path, self._directory_access, is_created=True)
        log = self.store[topic_partition]
        with os.scandir(log.path) as entries:
            files = sorted(each.name for each in entries if each.is_file())
        if not files:
            return self._new_log(topic_partition, log.path, os.stat(log.path), is_created=False)
        self._check_served(log)
        start, end = log.log_start_offset, log.log_end_offset
        if (start, end) != (0, 0):
            raise ChangeRefusedError(
                f"{log.path} has, or had, records: it must be the log of a new topic, but begins "
                f"at offset {start} and ends at {end}",
                RefusalReason.NOT_EMPTY,
                log.path,
            )
        like = os.stat(log.path / files[0])
        return NewLog(log.path, like.st_mode & PERMISSIONS, like.st_uid, like.st_gid)

    def _check_served(self, log: LogView) -> None:
        """Refuse the log of a topic that was deleted, or that other brokers have too."""
        if self._assignments is None:
            return
        reason, why = self._assignments.why_not_served(log, read_topic_id(log.path))
        if reason is not None:
            raise ChangeRefusedError(
                f"{log.path} is not served: {why}", RefusalReason.NOT_SERVED, log.path
            )
        self._check_replicas(self._assignments, log.topic_partition, log.path)

    def _check_replicas(
        self, assignments: Assignments, topic_partition: TopicPartition, path: Path
    ) -> None:
        """Refuse a partition whose other replicas may truncate the restored log."""
        topic_id = assignments.topic_ids[topic_partition.topic]
        replicas = assignments.replicas[topic_id, topic_partition.partition]
        if len(replicas) > 1:
            brokers = ", ".join(map(str, replicas))
            raise ChangeRefusedError(
                f"{path} can't be restored: {assignments.cluster} has {topic_partition} on brokers "
                f"{brokers}, and each would truncate its log to that of another one that becomes "
                "leader; let the topic have one replica, and add others later",
                RefusalReason.OTHER_REPLICAS,
                path,
            )

    def _new_log(
        self, topic_partition: TopicPartition, path: Path, like: os.stat_result, *, is_created: bool
    ) -> NewLog:
        """Return a log without files, in a directory that has the access of another one."""
        access = NewDirectory(path.name, like.st_mode & PERMISSIONS, like.st_uid, like.st_gid)
        created = access if is_created else None
        topic_id, why = self._topic_id(topic_partition, path)
        return NewLog(
            path, access.file_mode, access.user, access.group, created, topic_id, why
        )

    @cached_property
    def _directory_access(self) -> os.stat_result:
        """The status of a partition directory, or else of the log directory itself."""
        paths = sorted(self.log_dir.partition_paths.values())
        return os.stat(paths[0] if paths else self.log_dir.path)

    @cached_property
    def _assignments(self) -> Assignments | None:
        """What the metadata assigns; None if there is no metadata."""
        if self.cluster is None:
            self.cluster = find_cluster_or_warn(self.store)
        return Assignments.of(self.cluster)

    def _topic_id(
        self, topic_partition: TopicPartition, path: Path
    ) -> tuple[str | None, str]:
        """Return the id of the topic that the broker serves, and where it is from.

        None if the broker needs none.
        """
        if self._assignments is not None:
            topic_id = self._assigned_id(self._assignments, topic_partition, path)
            return topic_id, f"{self._assignments.cluster} has topic {topic_partition.topic}"
        siblings = dict(self._ids_of_siblings(topic_partition.topic))
        if len(set(siblings.values())) == 1:
            ((neighbour, topic_id), *_) = sorted(siblings.items())
            return topic_id, f"{neighbour} has this topic id"
        if siblings:
            raise ChangeRefusedError(
                f"{path} can't be created: the other partitions of its topic have different topic "
                "ids; name the cluster's metadata (--metadata)",
                RefusalReason.NOT_SERVED,
                path,
            )
        version = self.log_dir.meta_properties.get("version")
        if version == _WITH_ZOOKEEPER or (version is None and self.without_topic_ids):
            return None, ""
        raise ChangeRefusedError(
            f"{path} can't be created without the topic's id, because a broker would rename it to "
            "-stray: name the new cluster's metadata (--metadata), or start the broker, so that "
            "it creates the directory, and stop it",
            RefusalReason.NOT_SERVED,
            path,
        )

    def _ids_of_siblings(self, topic: str) -> Iterator[tuple[str, str]]:
        """Yield the names and topic ids of the topic's other partitions."""
        for topic_partition, path in self.log_dir.partition_paths.items():
            if topic_partition.topic == topic and (topic_id := read_topic_id(path)) is not None:
                yield path.name, topic_id

    def _assigned_id(
        self, assignments: Assignments, topic_partition: TopicPartition, path: Path
    ) -> str:
        """Return the id that the metadata has; refuse what the broker would not serve."""
        topic, partition = topic_partition
        broker_id = broker_of(self.log_dir)
        topic_id = assignments.topic_ids.get(topic)
        reason = assignments.why_stray(topic_id, partition, broker_id)
        if topic_id is None or reason is not None:
            where = "" if reason is not StrayReason.NOT_A_REPLICA else f" on broker {broker_id}"
            raise ChangeRefusedError(
                f"{path} can't be created: {assignments.cluster} has no partition "
                f"{topic_partition}{where}; create the topic with as many partitions as it had, "
                "and with one replica on this broker",
                RefusalReason.NOT_SERVED,
                path,
            )
        if self._is_in_another_directory(topic_partition, broker_id):
            raise ChangeRefusedError(
                f"{path} can't be created: {assignments.cluster} has {topic_partition} in another "
                f"log directory of broker {broker_id}; name that one",
                RefusalReason.NOT_SERVED,
                path,
            )
        self._check_replicas(assignments, topic_partition, path)
        return topic_id

    def _is_in_another_directory(
        self, topic_partition: TopicPartition, broker_id: int | None
    ) -> bool:
        """Return whether the broker had this log directory and another one with the log."""
        own = self.log_dir.meta_properties.get("directory.id")
        if self.cluster is None or broker_id is None or broker_id not in self.cluster.brokers:
            return False
        known = self.cluster.brokers[broker_id].log_dirs
        partition = self.cluster.topics[topic_partition.topic].partitions[topic_partition.partition]
        assigned = dict(zip(partition.replicas, partition.directories, strict=False))
        return own in known and assigned.get(broker_id) in {*known} - {own}

    def _check_cluster_id(self, cluster: Cluster | None) -> None:
        """Refuse the metadata of another cluster."""
        own = self.log_dir.meta_properties.get("cluster.id")
        other = None if cluster is None else cluster.cluster_id
        if None not in (own, other) and own != other:
            raise ChangeRefusedError(
                f"{self.log_dir.path} belongs to cluster {own}, and the metadata to {other}",
                RefusalReason.NOT_SERVED,
                self.log_dir.path,
            )


def open_new_log_dir(log_dir: str | os.PathLike[str]) -> LogStore:
    """Open the log directory of a stopped broker, or one that no broker has used yet.

    Refused if the broker was not stopped.
    """
    path = to_path(os.path.abspath(log_dir))
    if _has_nothing(path):
        return LogStore((LogDir(path),), Partitions([]), Partitions([]))
    store = open_store(path)
    if not store.log_dirs:
        raise ChangeRefusedError(
            f"{log_dir} is a partition directory: name the log directory that it is in",
            RefusalReason.UNSUITABLE_PLACE,
            log_dir,
        )
    root = store.log_dirs[0]
    if not root.is_clean and not _has_no_logs(root):
        raise ChangeRefusedError(
            f"{root.path} has no {CLEAN_SHUTDOWN_FILE}: start its broker, and stop it again",
            RefusalReason.IN_USE,
            root.path,
        )
    return store


def _has_nothing(path: Path) -> bool:
    """Return whether a directory is empty but for what mkfs or a lock creates."""
    return path.is_dir() and not {*os.listdir(path)} - {LOCK_FILE, "lost+found"}


def _has_no_logs(log_dir: LogDir) -> bool:
    """Return whether a formatted directory has no logs yet but the metadata log."""
    return (
        (log_dir.path / META_PROPERTIES).exists()
        and all(each.topic == CLUSTER_METADATA_TOPIC for each in log_dir.partition_paths)
        and all(each.kind is SkippedKind.NO_PARTITION for each in log_dir.skipped)
    )
