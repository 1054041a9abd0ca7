"""Write the metadata with which several brokers' disks are a cluster again.

It is a snapshot of the metadata log in a directory of its own: a new ``__cluster_metadata-0`` for
all nodes, led by the best replicas.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from kafkastore.errors import ChangeRefusedError, RefusalReason
from kafkastore.formats.state.file_names import TopicPartition
from kafkastore.fs import FileSystem
from kafkastore.metadata.cluster import Cluster, NoMetadataError
from kafkastore.metadata.new_snapshot import is_registered, new_snapshot
from kafkastore.metadata.snapshots import snapshot_name
from kafkastore.store.log_store import LogStore
from kafkastore.use_cases.replicas import BestReplica

#: A snapshot has secrets.
_MODE = 0o600


class WrittenSnapshot(NamedTuple):
    """A snapshot, and the partitions that begin empty because no replica is known."""

    path: Path
    empty: tuple[TopicPartition, ...]


def check_snapshot_place(cluster: Cluster | None, store: LogStore, directory: Path) -> None:
    """Refuse what can't be written, before the replicas are read."""
    if cluster is None:
        raise NoMetadataError("a snapshot needs the cluster's metadata: give --metadata PATH")
    if os.path.lexists(directory):
        raise ChangeRefusedError(
            f"{directory} exists; name a new directory", RefusalReason.NOT_EMPTY, directory
        )
    target = Path(os.path.realpath(directory))
    for root in store.paths:
        if Path(os.path.realpath(root)) in target.parents:
            raise ChangeRefusedError(
                f"{directory} is in {root}, which is only read; name a directory outside of it",
                RefusalReason.UNSUITABLE_PLACE,
                directory,
            )
    if not target.parent.is_dir():
        raise ChangeRefusedError(
            f"{target.parent} is not a directory", RefusalReason.NOT_A_DIRECTORY, target.parent
        )


def write_snapshot(
    cluster: Cluster,
    found: Iterable[BestReplica],
    directory: Path,
    fs: FileSystem = FileSystem(),
) -> WrittenSnapshot:
    """Write the snapshot into a new directory, completely or not at all."""
    leaders = {
        each.topic_partition: (each.best.broker_id, each.best.leader_epoch)
        for each in found
        if each.best.broker_id is not None and is_registered(cluster, each.topic_partition)
    }
    data = new_snapshot(cluster, leaders)
    path = directory / snapshot_name(cluster.end_offset, cluster.epoch)
    fs.mkdir(directory)
    try:
        fs.replace_content(path, data, _MODE)
    except BaseException:
        with suppress(OSError):
            fs.unlink(path.with_name(f"{path.name}.tmp"))
        with suppress(OSError):
            fs.rmdir(directory)
        raise
    fs.fsync_directory(directory.absolute().parent)
    partitions = (
        TopicPartition(topic.name, number)
        for topic in cluster.topics.values()
        for number in topic.partitions
    )
    return WrittenSnapshot(path, tuple(each for each in partitions if each not in leaders))
