"""Find where consumers of one cluster continue in another one.

Offsets and the order of records differ between clusters; timestamps are common to both. Every
unread record has a create time of at least some *bound*. The result in cluster 2 is the offset of
the first record at or after the bound. Every record before it is earlier than the bound, so it was
consumed. Two ways to find the bound:

``create-time``
    The smallest timestamp at or after the position in cluster 1, and the smallest create time if
    batches with LogAppendTime have kept create times. Exact for the records in cluster 1; it says
    nothing about records that never arrived there.
``log-append-time``
    The append time at the position minus the largest latency (`latency`). Records that arrived in
    cluster 1 later, or never, were not created before that. If cluster 1 has create times, the
    largest consumed one replaces the append time, because no record is appended before it is
    created.

Both are valid if cluster 2 has, for each record, its create time, its time in cluster 1 (as mirrors
keep it), or a later time: its append time, by a clock at most `clock_skew_ms` slow.

If both clusters are available, the answer is checked against their records: `FailoverCheck`.

Source: KIP-33, use cases, "failover"; `log.offset_for_timestamp`, which is correct for records in
any order.
"""
from __future__ import annotations

from contextlib import suppress
from typing import Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from kafkastore.arguments import check_choice
from kafkastore.errors import CorruptCheckpointError, KafkaStoreError, NotAFileError
from kafkastore.formats.indexes.entries import TimestampAndOffset
from kafkastore.formats.records.batch_header import is_control
from kafkastore.formats.state.file_names import TopicPartition
from kafkastore.formats.topics.consumer_offsets import OffsetCommitKey
from kafkastore.log.partition_files import read_topic_id
from kafkastore.store.log_store import LogStore
from kafkastore.store.partition_log import PartitionLog
from kafkastore.use_cases.failover_check import FailoverCheck, check_failover
from kafkastore.use_cases.fingerprints import Match
from kafkastore.use_cases.kept_create_times import (
    create_times,
    has_append_time,
    keeps_create_times,
)
from kafkastore.use_cases.lag import OffsetPlace, is_of_other_topic, place_of_offset
from kafkastore.use_cases.latency import latency_of
from kafkastore.use_cases.record_times import new_columns, runs_between, times_of

Method = Literal["create-time", "log-append-time"]


class FailoverError(KafkaStoreError, ValueError):
    """A position that has no answer in cluster 2.

    Parameters
    ----------
    problem : str
        The reason.
    topic_partition : TopicPartition or None
        The partition, in cluster 2 if it is missing there; None: a whole topic has no answer.
    """

    def __init__(self, problem: str, topic_partition: TopicPartition | None = None) -> None:
        super().__init__(problem, topic_partition)
        self.problem, self.topic_partition = problem, topic_partition

    def __str__(self) -> str:
        return self.problem


class UnknownLatencyError(FailoverError):
    """A position whose largest latency is needed, and is unknown."""


class OtherTopicError(FailoverError):
    """A position in a deleted topic of the same name."""


class TimestampBound(NamedTuple):
    """A lower bound on the timestamps of the unread records.

    Parameters
    ----------
    timestamp : int or None
        ms since 1970, inclusive; None: unknown, so all of cluster 2 must be read.
    basis : str
        How it was found, as text.
    untimed_records : int
        Unread records without a timestamp: the bound does not cover them.
    """

    timestamp: int | None
    basis: str
    untimed_records: int = 0


class PartitionFailover(NamedTuple):
    """Where a group continues in cluster 2.

    Parameters
    ----------
    group : str
        The group.
    source, target : TopicPartition
        The partition in cluster 1 and in cluster 2.
    position : int
        The next offset that the group would have read in cluster 1.
    bound : TimestampBound
        The lower bound on the timestamps of records that the group did not read.
    offset : int
        Where to continue in cluster 2.
    record : TimestampAndOffset or None
        The record there; None if cluster 2 has no record that late, and `offset` is its log end.
    check : FailoverCheck or None
        The result of comparing the records of both clusters; None if they were not compared.
    place : OffsetPlace
        Where the position is in cluster 1.
    log_end_offset : int
        Of cluster 1, exclusive.
    """

    group: str
    source: TopicPartition
    target: TopicPartition
    position: int
    bound: TimestampBound
    offset: int
    record: TimestampAndOffset | None
    check: FailoverCheck | None
    place: OffsetPlace
    log_end_offset: int


def check_method(by: str) -> None:
    """Raise unless `by` is a `Method`."""
    check_choice("by", by, get_args(Method))


def failover_of(
    source: LogStore,
    target: LogStore,
    key: OffsetCommitKey,
    position: int,
    *,
    topic_id: str | None = None,
    by: Method = "create-time",
    largest_latency_ms: int | None = None,
    clock_skew_ms: int = 0,
    topic_prefix: str = "",
    check: bool = True,
    match: Match = "timestamp",
) -> PartitionFailover:
    """Find where one group continues in one partition of another cluster.

    `position` is the next offset that the group would have read in cluster 1, and `topic_id` that
    of the commit, if it has one. See `kafkastore.failover`.
    """
    check_method(by)
    here = TopicPartition(key.topic, key.partition)
    there = TopicPartition(topic_prefix + key.topic, key.partition)
    if here not in source.partitions:
        raise FailoverError(f"cluster 1 has no partition {here}", here)
    if there not in target.partitions:
        raise FailoverError(f"cluster 2 has no partition {there}", there)
    first, second = source.partitions[here], target.partitions[there]
    if is_of_other_topic(first, topic_id):
        raise OtherTopicError(
            f"{here}: offset {position} was committed for an earlier topic of this name, with id "
            f"{topic_id}, so the group has no position in this one",
            here,
        )
    _check_same_topic(first, second)
    if first.log_start_offset <= position < first.local_log_start_offset:
        raise FailoverError(
            f"{here}: the records from offset {position} on are in remote storage of cluster 1, up "
            f"to offset {first.local_log_start_offset}",
            here,
        )
    if by == "create-time":
        bound = first.retry_if_changed(lambda: _bound_by_create_time(first, position))
    else:
        bound = first.retry_if_changed(
            lambda: _bound_by_append_time(first, position, largest_latency_ms)
        )
    if bound.timestamp is None:
        record, offset = None, second.log_start_offset
    else:
        bound = bound._replace(timestamp=max(bound.timestamp - clock_skew_ms, 0))
        record = second.offset_for_timestamp(bound.timestamp or 0)
        offset = second.log_end_offset if record is None else record.offset
    checked = check_failover(first, position, second, offset, match=match) if check else None
    place = place_of_offset(first, position, first.log_end_offset)
    return PartitionFailover(
        key.group, here, there, position, bound, offset, record, checked, place,
        first.log_end_offset,
    )


def _check_same_topic(first: PartitionLog, second: PartitionLog) -> None:
    """Refuse topics of one cluster with different ids: between them, one was deleted.

    Topics of different clusters always have different ids.
    """
    (cluster_id, topic_id), (other_cluster_id, other_id) = _origin(first), _origin(second)
    if first.topic != second.topic or None in (cluster_id, topic_id, other_id):
        return
    if cluster_id == other_cluster_id and topic_id != other_id:
        raise OtherTopicError(
            f"{first.topic_partition}: topic {first.topic} has id {topic_id} in {first.path} and "
            f"{other_id} in {second.path}, both of cluster {cluster_id}: it was deleted and "
            "created again, and these are other records",
            first.topic_partition,
        )


def _origin(log: PartitionLog) -> tuple[str | None, str | None]:
    """Return the ids of a log's cluster and topic, None if they can't be read."""
    with suppress(CorruptCheckpointError, NotAFileError, OSError):
        properties = {} if log.log_dir is None else log.log_dir.meta_properties
        return properties.get("cluster.id"), read_topic_id(log.path)
    return None, None


def _bound_by_create_time(log: PartitionLog, position: int) -> TimestampBound:
    """Find the smallest timestamp at or after a position."""
    if position < log.log_start_offset:
        return _deleted(log, position)
    smallest, untimed = _smallest_timestamp(log, position, created_too=True)
    if smallest is not None:
        return TimestampBound(smallest, "the earliest unread record", untimed)
    if untimed:
        return TimestampBound(None, "no unread record has a timestamp", untimed)
    newest = _newest_consumed(log, position)
    if newest is None:
        return TimestampBound(None, "cluster 1 has no record with a timestamp")
    return TimestampBound(newest, "the newest record: all records of cluster 1 were consumed")


def _bound_by_append_time(
    log: PartitionLog, position: int, largest_latency_ms: int | None
) -> TimestampBound:
    """Find the earliest possible create time of unread records from append times."""
    if position < log.log_start_offset:
        return _deleted(log, position)
    if largest_latency_ms is None:
        largest_latency_ms = latency_of(log).largest
        if largest_latency_ms is None:
            raise UnknownLatencyError(
                f"the largest latency of {log.topic_partition} is unknown, because cluster 1 does "
                "not have both LogAppendTime and create times there; give largest_latency_ms",
                log.topic_partition,
            )
    appended, untimed = None, 0
    if _have_append_time(log, position):
        appended, untimed = _smallest_timestamp(log, position)
    what = "the append time of the first unread record"
    if appended is None:
        appended = _newest_consumed(log, position)
        what = "the newest time that was consumed"
    if appended is None:
        return TimestampBound(None, "no record that was consumed has a timestamp", untimed)
    latency_ms = max(largest_latency_ms, 0)
    basis = f"{what}, less {latency_ms} ms of latency"
    return TimestampBound(appended - latency_ms, basis, untimed)


def _deleted(log: PartitionLog, position: int) -> TimestampBound:
    return TimestampBound(
        None,
        f"offsets {position} to {log.log_start_offset - 1} were deleted in cluster 1 before they "
        f"were consumed",
    )


def _have_append_time(log: PartitionLog, position: int) -> bool:
    """Return whether all batches from a position on have LogAppendTime."""
    return all(
        bool(has_append_time(each.headers[~is_control(each.headers)]).all())
        for each in runs_between(log, position, log.log_end_offset, verify=False)
    )


def _smallest_timestamp(
    log: PartitionLog, position: int, *, created_too: bool = False
) -> tuple[int | None, int]:
    """Find the smallest timestamp from a position on, and count records without one.

    For batches with both times this is the append time; `created_too` includes the create times.
    """
    end = log.log_end_offset
    columns = new_columns(position, end)
    smallest, untimed = None, 0
    for located in runs_between(log, position, end):
        headers = located.headers[~is_control(located.headers)]
        chosen = located.of(headers)
        for _, timestamps in times_of(columns, chosen):
            untimed += int((timestamps < 0).sum())
            smallest = _smaller(smallest, timestamps)
        if created_too:
            both = headers[keeps_create_times(headers)]
            for _, timestamps in create_times(
                columns, located.of(both)
            ):
                smallest = _smaller(smallest, timestamps)
    return smallest, untimed


def _smaller(smallest: int | None, timestamps: NDArray[np.int64]) -> int | None:
    """Return the smaller of the smallest timestamp so far and the valid `timestamps`."""
    timed = timestamps[timestamps >= 0]
    if not len(timed):
        return smallest
    least = int(timed.min())
    return least if smallest is None else min(smallest, least)


def _newest_consumed(log: PartitionLog, position: int) -> int | None:
    """Find the largest timestamp before a position."""
    end = min(position, log.log_end_offset)
    columns = new_columns(log.log_start_offset, end)
    newest = -1
    for located in runs_between(log, log.log_start_offset, end):
        headers = located.headers[~is_control(located.headers)]
        # For a batch completely before the position, the header is enough.
        whole = (headers["last_offset"] < end) & (headers["count"] != 0)
        whole &= (headers["base_offset"] >= log.log_start_offset) | (headers["base_offset"] < 0)
        newest = max(newest, int(headers["max_timestamp"][whole].max(initial=-1)))
        rest = located.of(headers[~whole])
        for _, timestamps in times_of(columns, rest):
            newest = max(newest, int(timestamps.max()))
    return newest if newest >= 0 else None
