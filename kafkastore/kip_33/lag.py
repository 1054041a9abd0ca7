"""How far consumer groups are behind: in offsets, in records, and in time.

KIP-33 names lag in time as a use of the time index.  It is exact here because the records that
were not read are looked at: markers, gaps that compaction left and aborted transactions are no
records, and the first record that is one says since when a group has something to do.
"""
from __future__ import annotations

import enum
from typing import NamedTuple

import numpy as np

from kafkastore.formats.file_names import TopicPartition
from kafkastore.formats.group_metadata import OffsetAndMetadata, OffsetCommitKey
from kafkastore.formats.transactions import AbortedBatches, is_control
from kafkastore.kip_33.record_times import (
    new_columns,
    runs_between,
    times_of,
)
from kafkastore.log.damage import Damage, OnCorrupt, SkippedBytes
from kafkastore.log.isolation import Isolation, find_committed, reads_committed
from kafkastore.store.log_store import LogStore
from kafkastore.store.partition_log import PartitionLog


class OffsetPlace(enum.StrEnum):
    """Where a committed offset lies."""

    IN_LOG = "in the log"
    BELOW_START = "below the log start"
    BEYOND_END = "beyond the log end"
    NO_PARTITION = "no such partition here"


class Unread(NamedTuple):
    """The records at or after an offset.

    Parameters
    ----------
    records : int
        How many; no markers.
    untimed_records : int
        How many of them are in batches without any timestamp, as of message format v0.
    first_offset : int or None
        Of the first; None where there is none.
    first_timestamp : int or None
        Its time, ms since 1970; None also where it has none.
    newest_timestamp : int or None
        The largest; None where none has a timestamp.
    """

    records: int
    untimed_records: int
    first_offset: int | None
    first_timestamp: int | None
    newest_timestamp: int | None


class PartitionLag(NamedTuple):
    """How far a group is behind in a partition.

    Parameters
    ----------
    group : str
        Which group; empty where an offset was given without one.
    topic_partition : TopicPartition
        Which partition.
    committed : OffsetAndMetadata
        What the group committed: `offset` is the next that it will read.
    place : OffsetPlace
        Where that lies.
    log_start_offset, log_end_offset : int or None
        Inclusive, exclusive; the end is the last stable offset for a reader of committed records.
        None where the partition is not here.
    unread : Unread or None
        What the group has still to read, as far as it is there.
    now : int or None
        Until when lag in time counts, ms since 1970; None: until the newest record not read.
    skipped : tuple of SkippedBytes
        The corrupt bytes among them.
    """

    group: str
    topic_partition: TopicPartition
    committed: OffsetAndMetadata
    place: OffsetPlace
    log_start_offset: int | None
    log_end_offset: int | None
    unread: Unread | None
    now: int | None
    skipped: tuple[SkippedBytes, ...] = ()

    @property
    def offsets(self) -> int | None:
        """The log end minus the committed offset, as ``kafka-consumer-groups`` tells it.

        Counts markers and gaps, and what the log has lost below its start; negative beyond the end.
        """
        return None if self.log_end_offset is None else self.log_end_offset - self.committed.offset

    @property
    def records(self) -> int | None:
        """How many records the group has still to read."""
        return None if self.unread is None else self.unread.records

    @property
    def lost_offsets(self) -> int:
        """How many offsets the group did not read before they were deleted."""
        if self.place is not OffsetPlace.BELOW_START or self.log_start_offset is None:
            return 0
        return self.log_start_offset - self.committed.offset

    @property
    def lag_ms(self) -> int | None:
        """The time from the first record not read to `now`, or to the newest record not read.

        0 where nothing is left to read; None where the first has no timestamp, or nothing is known.
        Negative where the first is dated after `now`.
        """
        if self.unread is None:
            return None
        if not self.unread.records:
            return 0
        until = self.unread.newest_timestamp if self.now is None else self.now
        since = self.unread.first_timestamp
        return None if since is None or until is None else until - since


def lag_of(
    store: LogStore,
    key: OffsetCommitKey,
    committed: OffsetAndMetadata,
    *,
    now: int | None = None,
    isolation: Isolation = "read_uncommitted",
    on_corrupt: OnCorrupt = "raise",
) -> PartitionLag:
    """Measure how far one group is behind in one partition; see `kafkastore.lag`."""
    topic_partition = TopicPartition(key.topic, key.partition)
    if topic_partition not in store.partitions:
        return PartitionLag(
            key.group, topic_partition, committed, OffsetPlace.NO_PARTITION, None, None, None, now
        )
    log = store.partitions[topic_partition]
    return log.beside_changes(
        lambda: _lag_of(log, key.group, committed, now, isolation, on_corrupt)
    )


def _lag_of(
    log: PartitionLog,
    group: str,
    committed: OffsetAndMetadata,
    now: int | None,
    isolation: Isolation,
    on_corrupt: OnCorrupt,
) -> PartitionLag:
    log_end_offset = end = log.end_offset(on_corrupt)
    start = max(committed.offset, log.log_start_offset)
    aborted = None
    skipped: list[SkippedBytes] = []
    damage = Damage(on_corrupt, skipped)
    if reads_committed(isolation):
        end, aborted, _ = find_committed(log, start, end, damage=damage)
    return PartitionLag(
        group,
        log.topic_partition,
        committed,
        place_of_offset(log, committed.offset, log_end_offset),
        log.log_start_offset,
        end,
        find_unread(log, start, end, aborted, damage),
        now,
        tuple(skipped),
    )


def place_of_offset(log: PartitionLog, offset: int, log_end_offset: int) -> OffsetPlace:
    """Tell where an offset is, seen from a partition's log."""
    if offset < log.log_start_offset:
        return OffsetPlace.BELOW_START
    return OffsetPlace.BEYOND_END if offset > log_end_offset else OffsetPlace.IN_LOG


def find_unread(
    log: PartitionLog,
    start_offset: int,
    end_offset: int,
    aborted: AbortedBatches | None = None,
    damage: Damage | None = None,
) -> Unread:
    """Count the records between two offsets, and find the first and the newest time.

    Parameters
    ----------
    log : PartitionLog
        The partition.
    start_offset, end_offset : int
        Inclusive, exclusive.
    aborted : AbortedBatches, optional
        Batches that don't count.
    damage : Damage, optional
        What to do at corrupt bytes.

    Returns
    -------
    Unread

    Raises
    ------
    CorruptionError
        If a batch is broken.

    Notes
    -----
    Headers tell it of most batches. Records are decoded of the first, of one that reaches over the
    start, and of compressed message sets (v0, v1), whose headers do not say how many they hold. One
    that can't be decoded although its checksum is right counts by its header where it is not.
    """
    count = untimed = 0
    first: tuple[int, int] | None = None
    newest = -1
    columns = new_columns(start_offset, end_offset)
    for located in runs_between(log, start_offset, end_offset, damage=damage):
        headers = located.headers
        kept = ~is_control(headers) & (headers["count"] != 0)
        if aborted is not None:
            kept &= ~aborted.of(headers)
        headers = headers[kept]
        is_counted = (headers["count"] > 0) & (headers["base_offset"] >= start_offset)
        is_counted &= headers["last_offset"] < end_offset
        decoded = np.flatnonzero(~is_counted).tolist()
        if first is None and len(headers):
            # Some more than needed, lest the first ones hold no record behind the start.
            before = int(np.argmax(is_counted)) + 1 if is_counted.any() else len(headers)
            decoded = sorted({*range(before), *decoded})
            is_counted[:before] = False
        chosen, counted = headers[decoded], headers[is_counted]
        while True:
            for offsets, timestamps in times_of(columns, located.of(chosen)):
                if first is None:
                    first = int(offsets[0]), int(timestamps[0])
                count += len(offsets)
                untimed += int((timestamps < 0).sum())
                newest = max(newest, int(timestamps.max()))
            counted = located.readable(counted)
            if first is not None or not len(counted):
                break
            chosen, counted = counted, counted[:0]  # the first was skipped
        count += int(counted["count"].sum())
        untimed += int(counted["count"][counted["max_timestamp"] < 0].sum())
        newest = max(newest, int(counted["max_timestamp"].max(initial=-1)))
    if first is None:
        return Unread(0, 0, None, None, None)
    offset, timestamp = first
    return Unread(
        count,
        untimed,
        offset,
        timestamp if timestamp >= 0 else None,
        newest if newest >= 0 else None,
    )
