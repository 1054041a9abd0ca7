"""The best replica of each partition, of several brokers' disks."""
from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from kafkastore.errors import SeveralClustersError
from kafkastore.jobs.job import JobResults, PartitionJob, Row
from kafkastore.metadata.cluster import Cluster
from kafkastore.metadata.topics import Topic
from kafkastore.store.cluster_metadata import Metadata, find_cluster_or_warn, the_cluster_id
from kafkastore.store.log_store import AnyPartition, LogStore, Paths, open_paths
from kafkastore.store.partition_path import FAILURES, Copies, open_partition
from kafkastore.use_cases.replicas import (
    BestReplica,
    OtherReplica,
    Replica,
    check_topic_ids,
    choose_best,
    read_replica,
    replica_of,
)

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class BestReplicasJob(PartitionJob[BestReplica]):
    """Choose a replica of each partition; `registered` has their topics."""

    registered: Mapping[str, Topic] = field(default_factory=dict)

    @classmethod
    def of(cls, cluster: Cluster | None, store: LogStore) -> BestReplicasJob:
        """Return the job with what a cluster's metadata says of a store's partitions."""
        if cluster is None:
            return cls()
        topics = {each.topic for each in store.partitions} & cluster.topics.keys()
        return cls({topic: cluster.topics[topic] for topic in topics})

    @staticmethod
    def columns() -> list[tuple[str, pa.DataType]]:
        """Return the columns of a partition: its best replica, and the others."""
        import pyarrow as pa

        number, text = pa.int64(), pa.string()
        replica = [
            ("path", text), ("broker_id", pa.int32()), ("role", text),
            ("log_start_offset", number), ("log_end_offset", number),
            ("leader_epoch", pa.int32()), ("readable_offsets", number), ("error", text),
        ]
        lacking = pa.list_(pa.struct([
            ("start_offset", number), ("end_offset", number), ("reason", text),
        ]))
        return [
            ("best", pa.struct(replica)),
            ("others", pa.list_(pa.struct([*replica, ("lacking", lacking)]))),
        ]

    def run(self, item: Copies) -> BestReplica:
        """Read the replicas of one partition."""
        place = item[0]
        topic = self.registered.get(place.topic)
        replicas = [replica_of(open_partition(each), topic, read_replica) for each in item]
        check_topic_ids(None if topic is None else topic.topic_id, replicas)
        found = choose_best(place.topic_partition, replicas)
        if found.best.error is not None:
            raise found.best.error
        return found

    def rows(self, result: BestReplica) -> Iterator[Row]:
        """Yield the row of a partition."""
        yield {"best": _replica_row(result.best), "others": list(map(_other_row, result.others))}


def check_one_cluster(store: LogStore) -> None:
    """Raise `SeveralClustersError` if disks are of several clusters."""
    try:
        the_cluster_id(store)
    except SeveralClustersError:
        raise
    except FAILURES:
        pass  # each replica of that disk has this error


def _replica_row(replica: Replica) -> Row:
    is_read = replica.error is None
    return {
        "path": str(replica.path),
        "broker_id": replica.broker_id,
        "role": replica.role.value,
        "log_start_offset": replica.log_start_offset if is_read else None,
        "log_end_offset": replica.log_end_offset if is_read else None,
        "leader_epoch": replica.leader_epoch,
        "readable_offsets": sum(map(len, replica.readable)) if is_read else None,
        "error": None if is_read else str(replica.error),
    }


def _other_row(other: OtherReplica) -> Row:
    lacking = [{**each._asdict(), "reason": each.reason.value} for each in other.lacking]
    return {**_replica_row(other.replica), "lacking": lacking}


def best_replicas(
    path: Paths,
    *,
    metadata: Metadata = None,
    partitions: Collection[AnyPartition] | None = None,
) -> JobResults[Copies, BestReplica]:
    """Find, of several brokers' disks, the replica to restore each partition from.

    All batches are read, with their checksums. By a cluster's metadata, replicas that were in sync
    come first. Of these, the one with the newest leader epoch and the largest log end decides which
    lineage counts; the best replica is the one of this lineage with the most readable offsets.

    Parameters
    ----------
    path : path-like, LogStore or list of these
        The log directories of the brokers.
    metadata : path-like, Cluster or list of these, optional
        The cluster's metadata; by default that in the directories, if any.
    partitions : collection, optional
        Only these, each as ``("orders", 3)`` or ``"orders-3"``.

    Returns
    -------
    iterator of BestReplica
        One for each partition, with what the other replicas have and the best one lacks.

    Raises
    ------
    KeyError
        If one of `partitions` does not exist.
    NotALogDirectoryError
        If a path is not such a directory.
    SeveralClustersError
        If the directories are not of one cluster.

    Notes
    -----
    Source: KIP-101, KIP-279 (lineage), KIP-966 (eligible leader replicas).

    Examples
    --------
    >>> for each in kafkastore.best_replicas(["disk1", "disk2"]):  # doctest: +SKIP
    ...     print(each.topic_partition, each.best.path)
    """
    store = open_paths(path)
    check_one_cluster(store)
    job = BestReplicasJob.of(find_cluster_or_warn(store, metadata), store)
    return JobResults(job, partial(job.items, store, partitions))
