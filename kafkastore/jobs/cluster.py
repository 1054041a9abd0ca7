"""The cluster of log directories, at a moment."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from kafkastore.arguments import whole_number
from kafkastore.errors import ArgumentTypeError, ArgumentValueError
from kafkastore.formats.state.file_names import (
    CLUSTER_METADATA_TOPIC,
    KRAFT_SNAPSHOT_SUFFIX,
    TopicPartition,
)
from kafkastore.log.log_dir import LogDir
from kafkastore.log.partition_files import read_topic_id
from kafkastore.log.time_text import EPOCH, MILLISECOND
from kafkastore.metadata.cluster import (
    END,
    AsOf,
    Cluster,
    MetadataSource,
    NoMetadataError,
    read_cluster,
    read_snapshot_alone,
)
from kafkastore.metadata.metadata_diff import MetadataChange, changes_between
from kafkastore.metadata.registrations import (
    NO_LEADER,
    BrokerRegistration,
    PartitionRegistration,
    Topic,
)
from kafkastore.paths import open_path
from kafkastore.store.log_store import AnyPath, LogStore, Paths, listed, open_paths
from kafkastore.store.partition_log import PartitionLog

METADATA_PARTITION = TopicPartition(CLUSTER_METADATA_TOPIC, 0)
_UNKNOWN = -1


def cluster(path: Paths, *, as_of: int | datetime | None = None) -> Cluster:
    """Return the cluster that the metadata log in a directory describes.

    Parameters
    ----------
    path : path-like, LogStore or list of these
        Log directories, ``__cluster_metadata-0`` itself, or one snapshot of it
        (``<end offset>-<epoch>.checkpoint``). Of several metadata logs, the one with the newest
        epoch and the most records is read.
    as_of : int or datetime, optional
        The state before this offset of the metadata log, or at this time, by the controllers'
        clocks; a datetime has a time zone. None: at the end of the log.

    Returns
    -------
    Cluster
        Without a metadata log (a cluster with ZooKeeper) only what the directories of partitions
        show: `Cluster.source` says which.

    Raises
    ------
    NoMetadataError
        If no snapshot or log reaches that moment.
    CorruptionError
        If the snapshot or the log is corrupt before that moment; an earlier moment can be read.
    ReplayError
        If a record does not fit those before it: a broker reports a fault and stops.
    NotALogDirectoryError
        If a path is not such a directory.
    TypeError, ValueError
        If `as_of` is not an int, at least 0, or a datetime with a time zone.

    Notes
    -----
    The last records of a metadata log may not be committed: the quorum may not have known them
    when the disk was copied, and drops them then.

    Source: Kafka 4.3.1 ``MetadataLoader``, ``MetadataImage``.
    """
    return cluster_as_of(path, _as_moment(as_of))


def cluster_as_of(path: Paths, moment: AsOf) -> Cluster:
    """Return a cluster at a moment; see `cluster`."""
    paths = listed(path)
    if len(paths) == 1 and str(paths[0]).endswith(KRAFT_SNAPSHOT_SUFFIX):
        _check_end(moment, paths[0])
        return read_snapshot_alone(open_path(paths[0]))
    store = open_paths(path)
    log = newest_metadata_log(store)
    if log is None:
        _check_end(moment, paths[0])
        return _cluster_of_directories(store)
    found = read_cluster(log, moment)
    found.cluster_id = next(_cluster_ids(store), None)
    return found


def cluster_changes(path: Paths, start: AsOf, end: AsOf) -> Iterator[MetadataChange]:
    """Yield what changed between two moments; see `changes_between`."""
    store = open_paths(path)
    log = newest_metadata_log(store)
    if log is None:
        raise NoMetadataError(f"{store.paths[0]} has no {METADATA_PARTITION}")
    return changes_between(log, start, end)


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
    epochs = log.leader_epochs
    return (epochs[-1].epoch if epochs else _UNKNOWN), log.log_end_offset


def _as_moment(as_of: int | datetime | None) -> AsOf:
    if as_of is None:
        return END
    if isinstance(as_of, datetime):
        if as_of.tzinfo is None:
            raise ArgumentValueError("as_of", "a datetime with a time zone", as_of)
        return AsOf(timestamp=(as_of - EPOCH) // MILLISECOND)
    if isinstance(as_of, bool) or not isinstance(as_of, int):
        raise ArgumentTypeError("as_of", "an offset or a datetime", as_of)
    return AsOf(offset=whole_number("as_of", as_of, 0))


def _log_dirs(store: LogStore) -> Iterator[LogDir]:
    """Yield the log directories, also those around partition directories."""
    yield from store.log_dirs
    for path in store.partitions.paths_alone:
        yield LogDir(open_path(Path(path).parent))


def _cluster_ids(store: LogStore) -> Iterator[str]:
    for log_dir in _log_dirs(store):
        if (cluster_id := log_dir.meta_properties.get("cluster.id")) is not None:
            yield cluster_id


def _cluster_of_directories(store: LogStore) -> Cluster:
    """Return what the directories of partitions show of their cluster."""
    found = Cluster(MetadataSource.LOG_DIRECTORIES)
    found.cluster_id = next(_cluster_ids(store), None)
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
    before = topic.partitions.get(
        log.partition,
        PartitionRegistration(
            (), (), (), (), (), NO_LEADER, 0, _UNKNOWN, _UNKNOWN, (), ()
        ),
    )
    epoch = max((each.epoch for each in log.leader_epochs), default=_UNKNOWN)
    topic.partitions[log.partition] = replace(
        before,
        replicas=(*before.replicas, *([] if broker_id is None else [broker_id])),
        directories=(*before.directories, *([] if broker_id is None else [directory_id])),
        leader_epoch=max(before.leader_epoch, epoch),
    )
