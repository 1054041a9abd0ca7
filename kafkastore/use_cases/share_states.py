"""What share groups have read, from ``__share_group_state`` (KIP-932).

A record is a snapshot of one group's state in one partition, or an update of it. State batches say
what became of ranges of offsets at or after the start offset; of those that overlap the one with
the most deliveries counts, then the one with the larger state.

Source: Kafka 4.3.1 ``ShareCoordinatorShard.replay``, ``PersisterStateBatchCombiner``.
"""
from __future__ import annotations

import enum
import heapq
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import NamedTuple

from kafkastore.errors import CorruptionError
from kafkastore.formats.messages.message_table import Values
from kafkastore.formats.topics.share_group_state import RECORDS
from kafkastore.formats.unknown_numbers import none_if_negative
from kafkastore.log.damage import OnCorrupt, SkippedBytes
from kafkastore.store.partition_log import PartitionLog
from kafkastore.use_cases.last_records import about_record

SHARE_GROUP_STATE = "__share_group_state"
_NONE = -1  # no start offset, no epoch, no count


class DeliveryState(enum.IntEnum):
    """What became of records that a share group was given."""

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVING = 3
    ARCHIVED = 4


#: Records in these states are never delivered again.
COMPLETE = (DeliveryState.ACKNOWLEDGED, DeliveryState.ARCHIVED)


class SharePartition(NamedTuple):
    """A share group, and a partition by its topic's id."""

    group: str
    topic_id: str
    partition: int


class StateBatch(NamedTuple):
    """A range of offsets in one state.

    Parameters
    ----------
    first_offset, last_offset : int
        Both inclusive.
    state : int
        A `DeliveryState`, or a number that is not known yet.
    delivery_count : int
        How often the records were delivered.
    """

    first_offset: int
    last_offset: int
    state: int
    delivery_count: int


class SharePartitionState(NamedTuple):
    """How far a share group has read a partition.

    Parameters
    ----------
    start_offset : int or None
        All records before it are complete; None if the group has not read the partition yet.
    state_epoch, leader_epoch : int
        The epoch of the group's state, and of the partition's leader.
    complete_count : int or None
        How many offsets at or after the start are complete, as the leader wrote it; None before
        4.2.
    batches : tuple of StateBatch
        Offsets at or after the start that were delivered and released, or that are complete. All
        others are available, or acquired by a member, of which no record is written.
    """

    start_offset: int | None
    state_epoch: int
    leader_epoch: int
    complete_count: int | None
    batches: tuple[StateBatch, ...]

    def count(self, *states: int) -> int:
        """Return the number of offsets in some states."""
        return sum(
            each.last_offset - each.first_offset + 1
            for each in self.batches
            if each.state in states
        )

    @property
    def complete(self) -> int:
        """How many offsets at or after the start are complete."""
        return self.count(*COMPLETE) if self.complete_count is None else self.complete_count


class _Replayed:
    """A snapshot with the updates after it, combined when all are read."""

    def __init__(self, snapshot: Values) -> None:
        self.start_offset: int = snapshot["start_offset"]
        self.state_epoch: int = snapshot.get("state_epoch", 0)
        self.leader_epoch: int = snapshot["leader_epoch"]
        self.complete_count: int = snapshot["delivery_complete_count"]
        self._read = [(self.start_offset, _batches(snapshot))]

    def update(self, update: Values) -> None:
        if update["start_offset"] != _NONE:
            self.start_offset = update["start_offset"]
        if update["leader_epoch"] != _NONE:
            self.leader_epoch = update["leader_epoch"]
        self.complete_count = update["delivery_complete_count"]
        self._read.append((self.start_offset, _batches(update)))

    def state(self) -> SharePartitionState:
        """Return the state; each batch is cut at the start offsets from its record on."""
        start, kept = _NONE, []
        for start_offset, batches in reversed(self._read):
            start = max(start, start_offset)
            kept += [
                each._replace(first_offset=max(each.first_offset, start))
                for each in batches
                if each.last_offset >= start
            ]
        return SharePartitionState(
            none_if_negative(self.start_offset),
            self.state_epoch,
            self.leader_epoch,
            none_if_negative(self.complete_count),
            tuple(combine(kept)),
        )


def share_states_in(
    log: PartitionLog,
    on_corrupt: OnCorrupt = "raise",
    skipped: list[SkippedBytes] | None = None,
) -> dict[SharePartition, SharePartitionState]:
    """Return the states in one ``__share_group_state`` partition, sorted.

    `on_corrupt` and `skipped` are as for `PartitionLog.records`; unless "raise", unreadable records
    are left out.
    """
    found = log.retry_if_changed(lambda: _replay(log, on_corrupt, skipped))
    return {key: found[key].state() for key in sorted(found)}


def _replay(
    log: PartitionLog, on_corrupt: OnCorrupt, skipped: list[SkippedBytes] | None
) -> dict[SharePartition, _Replayed]:
    found: dict[SharePartition, _Replayed] = {}
    for each in log.records(on_corrupt=on_corrupt, skipped=skipped):
        if each.key is None:
            continue
        try:
            with about_record(log, each.offset):
                record = RECORDS.parse_keyed(each.key, each.value)
        except CorruptionError:
            if on_corrupt == "raise":
                raise
            continue
        if record.key is None:
            continue  # of a newer broker
        key = SharePartition(
            record.key["group_id"], record.key["topic_id"] or "", record.key["partition"]
        )
        if each.value is None:
            found.pop(key, None)
        elif record.value is None:
            continue
        elif record.name == "ShareUpdate" and key in found:
            found[key].update(record.value)
        else:
            found[key] = _Replayed(record.value)
    return found


def _batches(record: Values) -> list[StateBatch]:
    return [
        StateBatch(
            each["first_offset"], each["last_offset"], each["delivery_state"],
            each["delivery_count"],
        )
        for each in record["state_batches"]
    ]


def combine(batches: Iterable[StateBatch]) -> Iterator[StateBatch]:
    """Yield batches that do not overlap, in order; neighbours that agree are one."""
    latest: StateBatch | None = None
    for each in _without_overlaps(sorted(batches)):
        if latest is not None and latest.last_offset + 1 == each.first_offset and (
            latest[2:] == each[2:]
        ):
            latest = latest._replace(last_offset=each.last_offset)
            continue
        if latest is not None:
            yield latest
        latest = each
    if latest is not None:
        yield latest


def _without_overlaps(batches: list[StateBatch]) -> Iterator[StateBatch]:
    """Yield what applies at each offset, in pieces; `batches` are sorted."""
    starts = [each.first_offset for each in batches]
    edges = sorted({*starts, *(each.last_offset + 1 for each in batches)})
    begun: list[tuple[int, int, int]] = []  # a heap, what counts most first
    number = 0
    for first, end in pairwise(edges):
        while number < len(batches) and starts[number] <= first:
            each = batches[number]
            heapq.heappush(begun, (-each.delivery_count, -each.state, each.last_offset))
            number += 1
        while begun and begun[0][2] < first:
            heapq.heappop(begun)
        if begun:
            yield StateBatch(first, end - 1, -begun[0][1], -begun[0][0])
