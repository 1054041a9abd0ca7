"""The lag of share groups in offsets, in records, and in time.

Source: Kafka 4.3.1 ``GroupCoordinatorService.computeShareGroupLagAndBuildResponse`` (KIP-1226).
"""
from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kafkastore.formats.records.batch_header import is_control
from kafkastore.formats.state.aborted_batches import AbortedBatches
from kafkastore.formats.state.file_names import TopicPartition
from kafkastore.log.damage import CorruptionHandler, OnCorrupt, SkippedBytes
from kafkastore.log.isolation import Isolation
from kafkastore.store.partition_log import PartitionLog
from kafkastore.use_cases.lag import Unread, find_unread, find_unread_from
from kafkastore.use_cases.record_times import new_columns, runs_between, times_of
from kafkastore.use_cases.share_states import (
    COMPLETE,
    DeliveryState,
    SharePartition,
    SharePartitionState,
)


class SharePartitionLag(NamedTuple):
    """The lag of a share group in a partition.

    Parameters
    ----------
    group : str
        The group.
    topic_id : str
        The id of the partition's topic.
    partition : int
        The partition's number.
    topic_partition : TopicPartition or None
        The partition; None if the store has no topic with the id.
    state : SharePartitionState
        How far the group has read, as the partition's leader wrote it.
    log_start_offset, log_end_offset : int or None
        Inclusive and exclusive; for readers of committed records, the end is the last stable
        offset. None if the partition is not in the store.
    unread : Unread or None
        The records at or after the start offset that are not complete; None if the group has not
        read the partition yet, if the partition is not in the store, if some are in remote storage,
        or if reading stopped at corrupt bytes before the end.
    now : int or None
        End of the lag in time, ms since 1970; None: the newest unread record.
    skipped : tuple of SkippedBytes
        The corrupt bytes among the unread records.
    """

    group: str
    topic_id: str
    partition: int
    topic_partition: TopicPartition | None
    state: SharePartitionState
    log_start_offset: int | None
    log_end_offset: int | None
    unread: Unread | None
    now: int | None
    skipped: tuple[SkippedBytes, ...] = ()

    @property
    def offsets(self) -> int | None:
        """The lag as in ``kafka-share-groups`` of 4.3: offsets that are not complete.

        The log end offset minus the start offset, minus the complete offsets after it. Includes
        markers, gaps, and offsets deleted before they were read; None if the group has not read
        the partition yet.
        """
        if self.log_end_offset is None or self.state.start_offset is None:
            return None
        return self.log_end_offset - self.state.start_offset - self.state.complete

    @property
    def records(self) -> int | None:
        """The number of records that the group has not completed."""
        return None if self.unread is None else self.unread.records

    @property
    def lost_offsets(self) -> int:
        """The number of offsets that were deleted before the group completed them."""
        start, log_start = self.state.start_offset, self.log_start_offset
        if start is None or log_start is None or start >= log_start:
            return 0
        complete = sum(
            min(each.last_offset + 1, log_start) - each.first_offset
            for each in self.state.batches
            if each.state in COMPLETE and each.first_offset < log_start
        )
        return log_start - start - complete

    @property
    def acknowledged(self) -> int:
        """The number of offsets at or after the start offset that were acknowledged."""
        return self.state.count(DeliveryState.ACKNOWLEDGED)

    @property
    def archived(self) -> int:
        """The number of offsets at or after the start offset that were archived."""
        return self.state.count(DeliveryState.ARCHIVED)

    @property
    def released(self) -> int:
        """The number of offsets that were delivered, and are available again."""
        return self.state.count(DeliveryState.AVAILABLE)

    @property
    def lag_ms(self) -> int | None:
        """The time from the first unread record to `now`, or to the newest unread record.

        As `PartitionLag.lag_ms`.
        """
        return None if self.unread is None else self.unread.lag_ms(self.now)


def share_lag_of(
    log: PartitionLog | None,
    key: SharePartition,
    state: SharePartitionState,
    *,
    topic: str | None = None,
    now: int | None = None,
    isolation: Isolation = "read_uncommitted",
    on_corrupt: OnCorrupt = "raise",
) -> SharePartitionLag:
    """Compute the lag of a share group in one partition; see `kafkastore.share_lag`.

    `topic` is the partition's, if that is known without the log.
    """
    if log is None:
        missing = None if topic is None else TopicPartition(topic, key.partition)
        return SharePartitionLag(
            key.group, key.topic_id, key.partition, missing, state, None, None, None, now
        )
    return log.retry_if_changed(lambda: _lag_of(log, key, state, now, isolation, on_corrupt))


def _lag_of(
    log: PartitionLog,
    key: SharePartition,
    state: SharePartitionState,
    now: int | None,
    isolation: Isolation,
    on_corrupt: OnCorrupt,
) -> SharePartitionLag:
    found = find_unread_from(
        log, state.start_offset, isolation, on_corrupt, partial(_unread, state)
    )
    return SharePartitionLag(
        key.group,
        key.topic_id,
        key.partition,
        log.topic_partition,
        state,
        log.log_start_offset,
        found.end_offset,
        found.unread,
        now,
        found.skipped,
    )


def _unread(
    state: SharePartitionState,
    log: PartitionLog,
    start: int,
    end: int,
    aborted: AbortedBatches | None,
    damage: CorruptionHandler,
) -> Unread:
    """Find the records that are not complete.

    Only those before the last complete one are decoded.
    """
    complete = [
        (each.first_offset, each.last_offset + 1)
        for each in state.batches
        if each.state in COMPLETE and each.last_offset >= start
    ]
    if not complete:
        return find_unread(log, start, end, aborted, damage)
    last = min(complete[-1][1], end)
    among = _unread_among(log, start, last, complete, aborted, damage)
    return among.followed_by(find_unread(log, last, end, aborted, damage))


def _unread_among(
    log: PartitionLog,
    start: int,
    end: int,
    complete: Sequence[tuple[int, int]],
    aborted: AbortedBatches | None,
    damage: CorruptionHandler,
) -> Unread:
    firsts, ends = (np.array(each, np.int64) for each in zip(*complete, strict=True))
    columns = new_columns(start, end)
    offsets: list[NDArray[np.int64]] = []
    timestamps: list[NDArray[np.int64]] = []
    for located in runs_between(log, start, end, damage=damage):
        headers = located.headers
        kept = ~is_control(headers) & (headers["count"] != 0)
        if aborted is not None:
            kept &= ~aborted.of(headers)
        for found, times in times_of(columns, located.of(headers[kept])):
            number = np.searchsorted(firsts, found, "right") - 1
            is_complete = (number >= 0) & (found < ends[number])
            offsets.append(found[~is_complete].copy())
            timestamps.append(times[~is_complete].copy())
    return _of_records(_joined(offsets), _joined(timestamps))


def _joined(arrays: Iterable[NDArray[np.int64]]) -> NDArray[np.int64]:
    return np.concatenate([np.empty(0, np.int64), *arrays])


def _of_records(offsets: NDArray[np.int64], timestamps: NDArray[np.int64]) -> Unread:
    if not len(offsets):
        return Unread(0, 0, None, None, None)
    first, newest = int(timestamps[0]), int(timestamps.max())
    return Unread(
        len(offsets),
        int((timestamps < 0).sum()),
        int(offsets[0]),
        first if first >= 0 else None,
        newest if newest >= 0 else None,
    )
