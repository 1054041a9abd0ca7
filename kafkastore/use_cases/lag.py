"""Consumer lag in offsets, in records, and in time.

KIP-33 names lag in time as a use of the time index. It is exact here because the unread records are
inspected. Markers, gaps left by compaction and aborted transactions are not records; the lag in
time begins at the first actual record.
"""
from __future__ import annotations

import enum
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from kafkastore.formats.records.batch_header import is_control
from kafkastore.formats.state.aborted_batches import AbortedBatches
from kafkastore.formats.state.file_names import TopicPartition
from kafkastore.formats.topics.consumer_offsets import OffsetAndMetadata, OffsetCommitKey
from kafkastore.log.damage import CorruptionHandler, OnCorrupt, SkippedBytes
from kafkastore.log.isolation import Isolation, find_committed, reads_committed
from kafkastore.log.partition_files import read_topic_id
from kafkastore.store.log_store import LogStore
from kafkastore.store.partition_log import PartitionLog
from kafkastore.use_cases.record_times import (
    new_columns,
    runs_between,
    times_of,
)


class OffsetPlace(enum.StrEnum):
    """Where a committed offset is, relative to the log."""

    IN_LOG = "in-log"
    BELOW_START = "below-log-start"
    BEYOND_END = "beyond-log-end"
    NO_PARTITION = "no-partition"
    OTHER_TOPIC = "other-topic"


class Unread(NamedTuple):
    """The records at or after an offset.

    Parameters
    ----------
    records : int
        Number of records, without markers.
    untimed_records : int
        How many of them are in batches without any timestamp, for example of message format v0.
    first_offset : int or None
        Offset of the first record; None if there is none.
    first_timestamp : int or None
        Timestamp of the first record, ms since 1970; None if it has none.
    newest_timestamp : int or None
        The largest timestamp, ms since 1970; None if no record has one.
    """

    records: int
    untimed_records: int
    first_offset: int | None
    first_timestamp: int | None
    newest_timestamp: int | None

    def lag_ms(self, now: int | None) -> int | None:
        """Return the time from the first record to `now`, or to the newest record."""
        if not self.records:
            return 0
        until = self.newest_timestamp if now is None else now
        since = self.first_timestamp
        return None if since is None or until is None else until - since

    def followed_by(self, after: Unread) -> Unread:
        """Return the unread records of this range and of one after it."""
        if not self.records or not after.records:
            return self if self.records else after
        newest = [each.newest_timestamp for each in (self, after)]
        return Unread(
            self.records + after.records,
            self.untimed_records + after.untimed_records,
            self.first_offset,
            self.first_timestamp,
            max((each for each in newest if each is not None), default=None),
        )


class UnreadRange(NamedTuple):
    """What a group has not read of a log, up to its end or the last stable offset.

    `unread` is None if the group has no offset, or if not all of its records can be read here.
    """

    log_end_offset: int
    end_offset: int
    unread: Unread | None
    skipped: tuple[SkippedBytes, ...]


class PartitionLag(NamedTuple):
    """The lag of a group in a partition.

    Parameters
    ----------
    group : str
        The group; empty if an offset was given without a group.
    topic_partition : TopicPartition
        The partition.
    committed : OffsetAndMetadata
        The group's commit: `offset` is the next offset that it will read.
    place : OffsetPlace
        Where that offset is.
    log_start_offset, log_end_offset : int or None
        Inclusive and exclusive; for readers of committed records, the end is the last stable
        offset. None if the partition, or the topic of the commit, is not in the store.
    unread : Unread or None
        The records that the group has not read yet; None if the partition is not in the store, if
        some of them are in remote storage, or if reading stopped at corrupt bytes before the end.
    now : int or None
        End of the lag in time, ms since 1970; None: the newest unread record.
    skipped : tuple of SkippedBytes
        The corrupt bytes among the unread records.
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
        """The log end offset minus the committed offset, as in ``kafka-consumer-groups``.

        Includes markers, gaps, and offsets deleted before they were read; negative beyond the end.
        """
        return None if self.log_end_offset is None else self.log_end_offset - self.committed.offset

    @property
    def records(self) -> int | None:
        """The number of records that the group has not read yet."""
        return None if self.unread is None else self.unread.records

    @property
    def lost_offsets(self) -> int:
        """The number of offsets that were deleted before the group read them."""
        if self.place is not OffsetPlace.BELOW_START or self.log_start_offset is None:
            return 0
        return self.log_start_offset - self.committed.offset

    @property
    def lag_ms(self) -> int | None:
        """The time from the first unread record to `now`, or to the newest unread record.

        0 if nothing is unread; None if the first unread record has no timestamp, or nothing is
        known. Negative if its timestamp is after `now`.
        """
        return None if self.unread is None else self.unread.lag_ms(self.now)


def lag_of(
    store: LogStore,
    key: OffsetCommitKey,
    committed: OffsetAndMetadata,
    *,
    now: int | None = None,
    isolation: Isolation = "read_uncommitted",
    on_corrupt: OnCorrupt = "raise",
) -> PartitionLag:
    """Compute the lag of one group in one partition; see `kafkastore.lag`."""
    topic_partition = TopicPartition(key.topic, key.partition)
    if topic_partition not in store.partitions:
        return PartitionLag(
            key.group, topic_partition, committed, OffsetPlace.NO_PARTITION, None, None, None, now
        )
    log = store.partitions[topic_partition]
    if is_of_other_topic(log, committed.topic_id):
        return PartitionLag(
            key.group, topic_partition, committed, OffsetPlace.OTHER_TOPIC, None, None, None, now
        )
    return log.retry_if_changed(
        lambda: _lag_of(log, key.group, committed, now, isolation, on_corrupt)
    )


def is_of_other_topic(log: PartitionLog, topic_id: str | None) -> bool:
    """Return whether an offset with a topic id was committed for another topic.

    That topic was deleted, and this one was created with its name, while the group's coordinator
    did not remove the offset.
    """
    return topic_id is not None and (read_topic_id(log.path) or topic_id) != topic_id


def _lag_of(
    log: PartitionLog,
    group: str,
    committed: OffsetAndMetadata,
    now: int | None,
    isolation: Isolation,
    on_corrupt: OnCorrupt,
) -> PartitionLag:
    found = find_unread_from(log, committed.offset, isolation, on_corrupt)
    return PartitionLag(
        group,
        log.topic_partition,
        committed,
        place_of_offset(log, committed.offset, found.log_end_offset),
        log.log_start_offset,
        found.end_offset,
        found.unread,
        now,
        found.skipped,
    )


def place_of_offset(log: PartitionLog, offset: int, log_end_offset: int) -> OffsetPlace:
    """Return where an offset is, relative to the log."""
    if offset < log.log_start_offset:
        return OffsetPlace.BELOW_START
    return OffsetPlace.BEYOND_END if offset > log_end_offset else OffsetPlace.IN_LOG


def find_unread(
    log: PartitionLog,
    start_offset: int,
    end_offset: int,
    aborted: AbortedBatches | None = None,
    damage: CorruptionHandler | None = None,
) -> Unread:
    """Count the records of a range of offsets; find the first and newest.

    Records are decoded only for the first batch, one that spans the start, and compressed message
    sets (v0, v1); others are counted by their headers, also if undecodable with a valid CRC.
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
            # One more batch than needed: the first ones may have no record at or after the start.
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
            chosen, counted = counted, counted[:0]  # the first batch was skipped
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


def find_unread_from(
    log: PartitionLog,
    offset: int | None,
    isolation: Isolation,
    on_corrupt: OnCorrupt,
    find: Callable[..., Unread] = find_unread,
) -> UnreadRange:
    """Find the unread records from an offset on, by `find_unread` or its like."""
    skipped: list[SkippedBytes] = []
    damage = CorruptionHandler(on_corrupt, skipped)
    log_end_offset = end = log.end_before(damage)
    unread = None
    if offset is not None:
        start, aborted = max(offset, log.log_start_offset), None
        if reads_committed(isolation):
            end, aborted, _ = find_committed(log, start, end, damage=damage)
        unread = find(log, start, end, aborted, damage)
        has_stopped = on_corrupt == "stop" and any(
            each.start_offset < log_end_offset for each in skipped
        )
        if has_stopped or start < log.local_log_start_offset:
            unread = None
    return UnreadRange(log_end_offset, end, unread, tuple(skipped))
