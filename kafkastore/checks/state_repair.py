"""Repair leader epochs, producer snapshots and topic ids.

A broker does not start with a corrupt ``leader-epoch-checkpoint``. It drops a corrupt producer
snapshot and loads the previous one. Without a previous one, after a clean shutdown, it starts
without any producer; therefore this module rebuilds the snapshot.

Source: Kafka 2.4.0 ``LeaderEpochFileCache``, ``Log.rebuildProducerState``; 3.9.0
``PartitionMetadataFile``, ``LogManager.isStrayKraftReplica``.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from kafkastore.changes.plan import Inline
from kafkastore.checks.partition_repair import PartitionRepair
from kafkastore.checks.salvage_repair import RepairedSegment
from kafkastore.errors import (
    CorruptCheckpointError,
    InvalidLeaderEpochError,
    KafkaStoreError,
    NotAFileError,
)
from kafkastore.formats.state import producer_snapshot
from kafkastore.formats.state.checkpoints import (
    EpochStart,
    pack_leader_epoch_checkpoint,
    pack_partition_metadata,
)
from kafkastore.formats.state.file_names import (
    CLUSTER_METADATA_TOPIC,
    LEADER_EPOCH_CHECKPOINT,
    PARTITION_METADATA,
    snapshot_name,
)
from kafkastore.formats.state.leader_epochs import LeaderEpochs
from kafkastore.formats.state.producer_state import ProducerState
from kafkastore.log.partition_files import read_topic_id
from kafkastore.metadata.strays import Assignments, StrayReason
from kafkastore.segment.recovery import batch_runs, replay_run
from kafkastore.segment.regular_file import is_regular
from kafkastore.segment.small_file import read_whole
from kafkastore.versions import BrokerRules


class EmptyDirectoryError(KafkaStoreError):
    """A partition directory without files, whose owners a new file needs."""


class NotServedError(KafkaStoreError):
    """A log that the cluster's metadata does not assign to its broker.

    Parameters
    ----------
    reason : StrayReason
        Why not.
    problem : str
        The same as a sentence.
    """

    def __init__(self, reason: StrayReason, problem: str) -> None:
        super().__init__(reason, problem)
        self.reason, self.problem = reason, problem

    def __str__(self) -> str:
        return self.problem


def plan_epochs(repair: PartitionRepair, parts: Sequence[RepairedSegment]) -> None:
    """Plan the leader epoch checkpoint of the repaired log, `parts`."""
    epochs = LeaderEpochs()
    for start in consistent_epochs(_epoch_changes(parts)):
        epochs.assign(*start)
    epochs.truncate_from_start(repair.log.log_start_offset)
    data = pack_leader_epoch_checkpoint(epochs.entries)
    like = parts[0].segment.log_path if parts else repair.log.path / LEADER_EPOCH_CHECKPOINT
    repair.plan_file(LEADER_EPOCH_CHECKPOINT, like, data, Inline(data), "it does not match the log")


def _epoch_changes(parts: Sequence[RepairedSegment]) -> Iterator[tuple[EpochStart, int]]:
    """Yield each change of epoch in the log, with the number of its batches."""
    for part in parts:
        with part.open() as log:
            for run in batch_runs(log):
                has_epoch = (run.headers["magic"] >= 2) & (run.headers["leader_epoch"] >= 0)
                headers = run.headers[has_epoch]
                epochs = headers["leader_epoch"]
                first = np.flatnonzero(np.diff(epochs, prepend=-1))
                counts = np.diff(first, append=len(epochs))
                for header, count in zip(headers[first], counts.tolist(), strict=True):
                    yield EpochStart(int(header["leader_epoch"]), int(header["base_offset"])), count


def consistent_epochs(changes: Iterable[tuple[EpochStart, int]]) -> list[EpochStart]:
    """Return the changes whose epochs never fall, of as many batches as possible.

    No checksum covers an epoch, so one that contradicts more batches than it agrees with is wrong.
    """
    # By rising epoch, each with more batches than the one before: the best that ends there.
    best: list[tuple[int, int, _Chain | None]] = []
    for start, count in changes:
        slot = bisect_right(best, start.epoch, key=lambda each: each[0])
        before = best[slot - 1] if slot else (-1, 0, None)
        batches = before[1] + count
        end = slot
        while end < len(best) and best[end][1] <= batches:
            end += 1
        is_same = before[0] == start.epoch
        chain = before[2] if is_same else _Chain(start, before[2])
        best[slot - is_same : end] = [(start.epoch, batches, chain)]
    found, chain = [], best[-1][2] if best else None
    while chain is not None:
        found.append(chain.start)
        chain = chain.before
    return found[::-1]


class _Chain(NamedTuple):
    """A change of epoch, and those before it."""

    start: EpochStart
    before: _Chain | None


def truncate_state(repair: PartitionRepair, log_end_offset: int) -> None:
    """Plan to remove snapshots and epochs beyond the new log end offset."""
    for offset in repair.log.files.producer_snapshots:
        if offset > log_end_offset:
            why = f"it is beyond the new log end offset {log_end_offset}"
            repair.plan_removal(snapshot_name(offset), why)
    try:
        epochs = LeaderEpochs(repair.log.leader_epochs)
    except (CorruptCheckpointError, InvalidLeaderEpochError):
        return  # rebuilt by `plan_epochs`
    if epochs.truncate_from_end(log_end_offset):
        data = pack_leader_epoch_checkpoint(epochs.entries)
        like = repair.log.path / LEADER_EPOCH_CHECKPOINT
        why = f"the log end offset becomes {log_end_offset}"
        repair.plan_file(LEADER_EPOCH_CHECKPOINT, like, data, Inline(data), why)


def plan_snapshot(
    repair: PartitionRepair,
    parts: Sequence[RepairedSegment],
    offset: int,
    damaged: Collection[int],
    rules: BrokerRules,
) -> None:
    """Plan to rebuild the snapshot at `offset`, or to remove one outside the log.

    `damaged` has the offsets of all invalid snapshots, this one included; `parts` is the log as it
    will be.
    """
    if not repair.log.log_start_offset < offset <= repair.log.log_end_offset:
        repair.plan_removal(snapshot_name(offset), "it is outside the log")
        return
    before = [each for each in repair.log.files.producer_snapshots if each < offset]
    state, first = _load_newest(repair, [each for each in before if each not in damaged], rules)
    for part in _parts_between(parts, first, offset):
        with part.open() as log:
            for run in batch_runs(log):
                last = run.headers["last_offset"]
                replay_run(state, run, (last >= first) & (last < offset))
    data = producer_snapshot.pack(state.entries())
    like = parts[0].segment.log_path
    repair.plan_file(snapshot_name(offset), like, data, Inline(data), "it does not match the log")


def _load_newest(
    repair: PartitionRepair, offsets: Sequence[int], rules: BrokerRules
) -> tuple[ProducerState, int]:
    """Load the newest readable snapshot and its offset, or an empty state and 0."""
    for offset in reversed(offsets):
        try:
            data = read_whole(repair.log.path / snapshot_name(offset), CorruptCheckpointError)
            return ProducerState(producer_snapshot.parse(data), rules=rules), offset
        except (CorruptCheckpointError, NotAFileError, FileNotFoundError):
            continue
    return ProducerState(rules=rules), 0


def _parts_between(
    parts: Sequence[RepairedSegment], first: int, end: int
) -> Iterator[RepairedSegment]:
    """Yield the parts that may contain offsets from `first` to `end`, exclusive."""
    for part, following in zip(parts, [*parts[1:], None], strict=True):
        if part.base_offset < end and (following is None or following.base_offset > first):
            yield part


def plan_topic_id(repair: PartitionRepair, assignments: Assignments) -> None:
    """Plan ``partition.metadata`` if it is missing or can't be read.

    Raises `NotServedError` if it has another id than the cluster, or if no id would help.
    """
    log = repair.log
    if log.topic == CLUSTER_METADATA_TOPIC:
        return
    known_id = assignments.topic_ids.get(log.topic)
    try:
        topic_id = read_topic_id(log.path)
    except CorruptCheckpointError:
        topic_id = None
    if topic_id is not None:
        if known_id is not None and topic_id != known_id:
            raise NotServedError(
                StrayReason.UNKNOWN_TOPIC,
                f"it has topic id {topic_id}, and topic {log.topic} has {known_id} in "
                f"{assignments.cluster}; an existing id is not replaced",
            )
        return
    if known_id is None:
        raise NotServedError(
            StrayReason.UNKNOWN_TOPIC, f"{assignments.cluster} has no topic {log.topic}"
        )
    reason, why = assignments.why_not_served(log, known_id)
    if reason is not None:
        raise NotServedError(reason, why)
    data = pack_partition_metadata(known_id)
    with os.scandir(log.path) as entries:
        like = min((each.name for each in entries if is_regular(each)), default=None)
    if like is None:
        raise EmptyDirectoryError(f"{log.path} is empty: a broker creates the partition again")
    why = f"{assignments.cluster} has topic {log.topic} with id {known_id}"
    repair.plan_file(PARTITION_METADATA, log.path / like, data, Inline(data), why)
