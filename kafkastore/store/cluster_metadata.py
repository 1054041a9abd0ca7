"""The cluster that the metadata in a store describes.

Without a metadata log, that is what the directories of partitions show.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path

from kafkastore.errors import KafkaStoreError, SeveralClustersError
from kafkastore.formats.state.file_names import (
    CLUSTER_METADATA_TOPIC,
    KRAFT_SNAPSHOT_SUFFIX,
    TopicPartition,
)
from kafkastore.log.log_dir import LogDir
from kafkastore.log.partition_files import read_topic_id
from kafkastore.metadata.cluster import (
    END,
    AsOf,
    Cluster,
    MetadataSource,
    NoMetadataError,
    read_cluster,
    read_snapshot_alone,
)
from kafkastore.metadata.registrations import BrokerRegistration
from kafkastore.metadata.snapshots import list_snapshots
from kafkastore.metadata.topics import PartitionRegistration, Topic
from kafkastore.paths import open_path
from kafkastore.store.log_store import AnyPath, LogStore, Paths, listed, open_paths
from kafkastore.store.partition_log import PartitionLog

METADATA_PARTITION = TopicPartition(CLUSTER_METADATA_TOPIC, 0)
#: Where the cluster's metadata is; None: in the directories themselves, if it is there.
Metadata = Paths | Cluster | None
_UNKNOWN = -1


class UnreadMetadataWarning(UserWarning):
    """The metadata log in a store can't be read: its configurations are not used.

    Parameters
    ----------
    error : KafkaStoreError
        Why.
    """

    def __init__(self, error: KafkaStoreError) -> None:
        super().__init__(f"the cluster's metadata is not used: {error}")
        self.error = error


def find_cluster(store: LogStore | None, metadata: Metadata = None) -> Cluster | None:
    """Return the cluster of `metadata`, or else of the metadata log in a store."""
    if isinstance(metadata, Cluster):
        return metadata
    if metadata is not None:
        found = cluster_as_of(metadata, END)
        if found.source is MetadataSource.LOG_DIRECTORIES:
            raise NoMetadataError(f"{listed(metadata)[0]} has no {METADATA_PARTITION}")
        return found
    if store is None or METADATA_PARTITION not in store.partitions:
        return None
    return cluster_as_of(store, END)


def find_cluster_or_warn(store: LogStore | None, metadata: Metadata = None) -> Cluster | None:
    """Find the cluster; a warning says why the store's own can't be read."""
    try:
        return find_cluster(store, metadata)
    except KafkaStoreError as error:
        if metadata is not None:
            raise
        warnings.warn(UnreadMetadataWarning(error), stacklevel=3)
        return None


def cluster_as_of(path: Paths, moment: AsOf) -> Cluster:
    """Return a cluster at a moment; see `kafkastore.cluster`."""
    paths = listed(path)
    if len(paths) == 1 and str(paths[0]).endswith(KRAFT_SNAPSHOT_SUFFIX):
        _check_end(moment, paths[0])
        return read_snapshot_alone(open_path(paths[0]))
    store = open_paths(path)
    cluster_id = the_cluster_id(store)
    log = newest_metadata_log(store)
    if log is None:
        _check_end(moment, paths[0])
        found = _cluster_of_directories(store)
    else:
        found = read_cluster(log, moment)
    found.cluster_id = cluster_id
    return found


def _check_end(moment: AsOf, path: AnyPath) -> None:
    """Raise `NoMetadataError` for an earlier moment of what has only one."""
    if moment != END:
        raise NoMetadataError(f"{path} has no metadata log, and so no state as of {moment}")


def newest_metadata_log(store: LogStore) -> PartitionLog | None:
    """Return the metadata log of the newest epoch and with the most records, if any."""
    if METADATA_PARTITION not in store.partitions:
        return None
    return max(store.partitions.copies(METADATA_PARTITION), key=_age)


def _age(log: PartitionLog) -> tuple[int, int]:
    """Return the newest epoch and the end offset, of a log or its newest snapshot.

    A node that has fetched a snapshot, and nothing after it, has an empty log.
    """
    epochs = log.leader_epochs
    of_log = (epochs[-1].epoch if epochs else _UNKNOWN), log.log_end_offset
    return max([of_log, *((each.epoch, each.end_offset) for each in list_snapshots(log.path))])


def _log_dirs(store: LogStore) -> Iterator[LogDir]:
    """Yield the log directories, also those around partition directories."""
    yield from store.log_dirs
    for path in store.partitions.paths_alone:
        yield LogDir(open_path(Path(path).parent))


def the_cluster_id(store: LogStore) -> str | None:
    """Return the ``cluster.id`` of a store's directories, which must be the same."""
    paths: dict[str, Path] = {}
    for log_dir in _log_dirs(store):
        if (cluster_id := log_dir.meta_properties.get("cluster.id")) is not None:
            paths.setdefault(cluster_id, log_dir.path)
    if len(paths) > 1:
        raise SeveralClustersError(paths)
    return next(iter(paths), None)


def _cluster_of_directories(store: LogStore) -> Cluster:
    """Return what the directories of partitions show of their cluster."""
    found = Cluster(MetadataSource.LOG_DIRECTORIES)
    for log_dir in _log_dirs(store):
        broker_id, directory_id = _node_of(log_dir)
        if broker_id is not None:
            _add_broker(found, broker_id, directory_id)
    for topic_partition in store.partitions:
        for log in store.partitions.copies(topic_partition):
            _add_replica(found, log, *_node_of(log.log_dir or LogDir(log.path.parent)))
    return found


def _node_of(log_dir: LogDir) -> tuple[int | None, str | None]:
    """Return the broker and the directory id that ``meta.properties`` names."""
    return log_dir.node_id, log_dir.meta_properties.get("directory.id")


def _add_broker(found: Cluster, broker_id: int, directory_id: str | None) -> None:
    before = found.brokers.get(broker_id)
    known = () if before is None else before.log_dirs
    directories = known if directory_id is None else (*known, directory_id)
    found.brokers[broker_id] = BrokerRegistration(
        broker_id, _UNKNOWN, None, (), {}, None, False, False, False, directories, ()
    )


def _add_replica(
    found: Cluster, log: PartitionLog, broker_id: int | None, directory_id: str | None
) -> None:
    """Add a directory of a partition to the replicas of the partition."""
    topic_id = read_topic_id(log.path)
    topic = found.topics.setdefault(log.topic, Topic(log.topic, topic_id))
    topic.topic_id = topic.topic_id or topic_id
    if topic.topic_id is not None:
        found.topics_by_id[topic.topic_id] = topic
    partition = topic.partitions.setdefault(log.partition, PartitionRegistration())
    if broker_id is not None:
        partition.replicas = (*partition.replicas, broker_id)
        partition.directories = (*partition.directories, directory_id)
    epoch = max((each.epoch for each in log.leader_epochs), default=_UNKNOWN)
    partition.leader_epoch = max(partition.leader_epoch, epoch)
