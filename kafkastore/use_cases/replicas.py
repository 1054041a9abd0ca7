"""Several replicas of a partition: what each has, and from which one to restore.

Committed records are in every replica that was in sync. Of those, or of all if none is known, the
replica with the newest leader epoch and the largest log end has the lineage that counts, as in an
election; of the replicas of that lineage, the best is the one with the most readable offsets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from kafkastore.arguments import LARGEST_OFFSET
from kafkastore.errors import KafkaStoreError
from kafkastore.formats.state.checkpoints import EpochStart
from kafkastore.formats.state.file_names import TopicPartition
from kafkastore.formats.state.leader_epochs import LeaderEpochs
from kafkastore.log.damage import CorruptionHandler, SkippedBytes
from kafkastore.log.log_view import LogView
from kafkastore.log.partition_files import read_topic_id
from kafkastore.log.range_scan import RangeScan
from kafkastore.metadata.topics import PartitionRegistration, Topic
from kafkastore.store.partition_log import PartitionLog
from kafkastore.store.partition_path import FAILURES


class ReplicaRole(StrEnum):
    """What a cluster's metadata says of a replica.

    `ELIGIBLE`: not in sync, but it has all committed records (KIP-966). `OTHER_TOPIC`: of a deleted
    topic of the same name. `UNKNOWN`: there is no metadata, or no broker id in the directory.
    """

    LEADER = "leader"
    IN_SYNC = "in-sync"
    ELIGIBLE = "eligible"
    OUT_OF_SYNC = "out-of-sync"
    NOT_ASSIGNED = "not-assigned"
    OTHER_TOPIC = "other-topic"
    UNKNOWN = "unknown"


_HAS_ALL_COMMITTED = (ReplicaRole.LEADER, ReplicaRole.IN_SYNC, ReplicaRole.ELIGIBLE)


class TopicIdError(KafkaStoreError):
    """Replicas of a partition that are of several topics, or all of another one.

    `topic_id` is that of the metadata, if it is known; `paths` has a replica with each topic id.
    """

    def __init__(self, topic_id: str | None, paths: Mapping[str, Path]) -> None:
        super().__init__(topic_id, paths)
        self.topic_id, self.paths = topic_id, paths

    def __str__(self) -> str:
        found = ", ".join(f"{path} has topic id {each}" for each, path in self.paths.items())
        if self.topic_id is None:
            return f"{found}; the cluster's metadata says which topic exists (--metadata)"
        return f"{found}, and the cluster's metadata {self.topic_id}: no replica of it is here"


class Replica(NamedTuple):
    """One directory of a partition.

    Parameters
    ----------
    path : Path
        The directory.
    broker_id : int or None
        The broker that ``meta.properties`` names.
    role : ReplicaRole
        What the cluster's metadata says of it.
    log_start_offset, log_end_offset : int
        The first offset that is here, and the one after the last readable batch.
    leader_epochs : tuple of EpochStart
        Those of the batches: the epoch, and its first offset.
    skipped : tuple of SkippedBytes
        The corrupt bytes, and the offsets that are missing by them.
    error : Exception or None
        Why nothing could be read.
    topic_id : str or None
        That of ``partition.metadata``, if it can be read.
    """

    path: Path
    broker_id: int | None
    role: ReplicaRole
    log_start_offset: int = 0
    log_end_offset: int = 0
    leader_epochs: tuple[EpochStart, ...] = ()
    skipped: tuple[SkippedBytes, ...] = ()
    error: Exception | None = None
    topic_id: str | None = None

    @property
    def leader_epoch(self) -> int | None:
        """The epoch of the last batch; None if no batch has one."""
        return self.leader_epochs[-1].epoch if self.leader_epochs else None

    @property
    def unreadable_offsets(self) -> int:
        """How many offsets are in corrupt bytes before the log end."""
        whole = self.log_end_offset - self.log_start_offset
        return whole - sum(map(len, self.readable))

    @property
    def readable(self) -> list[range]:
        """The offsets from the log start to the log end that are not in corrupt bytes."""
        found = [range(self.log_start_offset, self.log_end_offset)]
        for each in self.skipped:
            end = self.log_end_offset if each.end_offset is None else each.end_offset
            found = list(_without(found, [range(each.start_offset, end)]))
        return found


class LackReason(StrEnum):
    """Why a replica lacks records that another has."""

    BEFORE_START = "before-start"
    UNREADABLE = "unreadable"
    AFTER_END = "after-end"
    OTHER_LINEAGE = "other-lineage"
    """Another leader's: after these offsets the logs differ, and one of them was given up."""


class LackingOffsets(NamedTuple):
    """Offsets, to `end_offset` exclusive, that the best replica lacks."""

    start_offset: int
    end_offset: int
    reason: LackReason


class OtherReplica(NamedTuple):
    """Another replica, and what it has that the best one lacks."""

    replica: Replica
    lacking: tuple[LackingOffsets, ...]


class BestReplica(NamedTuple):
    """The replica of a partition to restore from.

    Parameters
    ----------
    topic_partition : TopicPartition
        The partition.
    best : Replica
        The replica.
    others : tuple of OtherReplica
        The other ones, and the records that each of them has and the best one lacks.
    """

    topic_partition: TopicPartition
    best: Replica
    others: tuple[OtherReplica, ...]


#: How a replica is read.
ReadReplica = Callable[[PartitionLog, int | None, ReplicaRole], Replica]


def role_of(broker_id: int | None, partition: PartitionRegistration | None) -> ReplicaRole:
    """Return what the metadata says of a broker's replica."""
    if broker_id is None or partition is None:
        return ReplicaRole.UNKNOWN
    if broker_id == partition.leader:
        return ReplicaRole.LEADER
    for role, ids in (
        (ReplicaRole.IN_SYNC, partition.isr),
        (ReplicaRole.ELIGIBLE, partition.elr),
        (ReplicaRole.OUT_OF_SYNC, partition.replicas),
    ):
        if broker_id in ids:
            return role
    return ReplicaRole.NOT_ASSIGNED


def read_replica(log: LogView, broker_id: int | None, role: ReplicaRole) -> Replica:
    """Read all batches of a replica, with their checksums, past corrupt bytes."""
    start, skipped = log.local_log_start_offset, list[SkippedBytes]()
    epochs, end = LeaderEpochs(), max(start, log.segments[-1].base_offset if log.segments else 0)
    scan = RangeScan(log, start, LARGEST_OFFSET, CorruptionHandler("skip", skipped))
    for run in scan.runs(verify_crc=True):
        epochs.assign_many(run.headers)
        if len(run.headers):
            end = max(end, int(run.headers["last_offset"][-1]) + 1)
    return Replica(log.path, broker_id, role, start, end, epochs.entries, tuple(skipped))


def inspect_replica(log: PartitionLog, broker_id: int | None, role: ReplicaRole) -> Replica:
    """Find a replica's bounds and leader epochs without reading all of its batches.

    Corrupt bytes before the last batches are not found. All batches are read only if the last one
    has an epoch that the checkpoint lacks.
    """
    start, end = log.local_log_start_offset, log.log_end_offset
    epochs = LeaderEpochs()
    with suppress(*FAILURES):
        epochs = LeaderEpochs(each for each in log.leader_epochs if each.start_offset < end)
    last = next(log.batches(end - 1), None) if end > start else None
    latest = -1 if epochs.latest_epoch is None else epochs.latest_epoch
    if last is not None and last.leader_epoch is not None and last.leader_epoch > latest:
        return read_replica(log, broker_id, role)
    return Replica(log.path, broker_id, role, start, end, epochs.entries)


def replica_of(log: PartitionLog, topic: Topic | None, read: ReadReplica) -> Replica:
    """Read one of a partition's directories; its failure is its `error`."""
    known = None if topic is None else topic.partitions.get(log.partition)
    topic_id = broker_id = None
    with suppress(*FAILURES):  # a corrupt file says nothing of the records
        topic_id = read_topic_id(log.path)
    role = role_of(None, known)
    try:
        broker_id = None if log.log_dir is None else log.log_dir.node_id
        role = role_of(broker_id, known)
        if topic is not None and topic_id not in (None, topic.topic_id):
            role = ReplicaRole.OTHER_TOPIC
        return read(log, broker_id, role)._replace(topic_id=topic_id)
    except FAILURES as error:
        return Replica(log.path, broker_id, role, error=error, topic_id=topic_id)


def check_topic_ids(topic_id: str | None, replicas: Iterable[Replica]) -> None:
    """Raise `TopicIdError` if replicas are not of one topic, or all of another one."""
    paths: dict[str, Path] = {}
    for each in replicas:
        if each.topic_id is None or each.topic_id == topic_id:
            if topic_id is not None:
                return
        else:
            paths.setdefault(each.topic_id, each.path)
    if len(paths) > (topic_id is None):
        raise TopicIdError(topic_id, paths)


def choose_best(topic_partition: TopicPartition, replicas: Iterable[Replica]) -> BestReplica:
    """Choose the replica to restore from; see the module.

    Those of another topic are among the others, without offsets.
    """
    found = list(replicas)
    of_topic = [each for each in found if each.role is not ReplicaRole.OTHER_TOPIC]
    candidates = [each for each in of_topic if each.error is None] or of_topic
    candidates = [each for each in candidates if each.role in _HAS_ALL_COMMITTED] or candidates
    newest = max(candidates, key=_lineage)
    of_lineage = [each for each in candidates if _diverges_at(newest, each) is None]
    best = max(of_lineage, key=_readable_offsets)
    others = (
        OtherReplica(each, tuple(lacking_offsets(best, each))) for each in found if each is not best
    )
    return BestReplica(topic_partition, best, tuple(others))


def _lineage(replica: Replica) -> tuple[int, int]:
    epoch = replica.leader_epoch
    return -1 if epoch is None else epoch, replica.log_end_offset


def _readable_offsets(replica: Replica) -> tuple[int, int, bool]:
    """Return what makes a replica of the right lineage better than another."""
    count = sum(map(len, replica.readable))
    return count, replica.log_end_offset, replica.role is ReplicaRole.LEADER


def _diverges_at(one: Replica, other: Replica) -> int | None:
    """Return the first offset where both have records, but not the same; or None.

    Source: KIP-101, KIP-279: up to the end of the last epoch that both have, their records agree.
    """
    ends = one.log_end_offset, other.log_end_offset
    first, second = dict(one.leader_epochs), dict(other.leader_epochs)
    if first.keys() & second.keys():
        epoch = max(first.keys() & second.keys())
        ends = _end_of(epoch, one), _end_of(epoch, other)
    elif first and second:
        ends = min(*first.values(), *second.values()), ends[1]
    same = min(ends)
    return same if same < min(one.log_end_offset, other.log_end_offset) else None


def _end_of(epoch: int, replica: Replica) -> int:
    """Return the first offset after an epoch."""
    later = (start for each, start in replica.leader_epochs if each > epoch)
    return min(later, default=replica.log_end_offset)


def lacking_offsets(best: Replica, other: Replica) -> Iterator[LackingOffsets]:
    """Yield the offsets that another replica has and the best one lacks, in order."""
    if best.error is not None or other.error is not None:
        return
    if other.role is ReplicaRole.OTHER_TOPIC:
        return
    diverging = _diverges_at(best, other)
    same = other.log_end_offset if diverging is None else diverging
    for missing in _without(_until(other.readable, same), best.readable):
        for start, end, reason in (
            (missing.start, min(missing.stop, best.log_start_offset), LackReason.BEFORE_START),
            (
                max(missing.start, best.log_start_offset),
                min(missing.stop, best.log_end_offset),
                LackReason.UNREADABLE,
            ),
            (max(missing.start, best.log_end_offset), missing.stop, LackReason.AFTER_END),
        ):
            if start < end:
                yield LackingOffsets(start, end, reason)
    for differing in _without(other.readable, [range(same)]):
        yield LackingOffsets(differing.start, differing.stop, LackReason.OTHER_LINEAGE)


def _until(ranges: Sequence[range], end: int) -> Iterator[range]:
    return (range(each.start, min(each.stop, end)) for each in ranges if each.start < end)


def _without(ranges: Iterable[range], removed: Sequence[range]) -> Iterator[range]:
    """Yield what is left of ascending ranges without others."""
    for each in ranges:
        start = each.start
        for hole in removed:
            if hole.start < each.stop and hole.stop > start and hole:
                if hole.start > start:
                    yield range(start, hole.start)
                start = max(start, hole.stop)
        if start < each.stop:
            yield range(start, each.stop)
