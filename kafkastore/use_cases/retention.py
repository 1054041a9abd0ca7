"""Predict which segments a broker's retention deletes or keeps, and why.

Since KIP-33, retention uses the timestamps of records, so it depends on what producers write. One
timestamp in the future or in the wrong unit keeps a segment and all later ones, or deletes a
segment immediately.
"""
from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from kafkastore.arguments import whole_number
from kafkastore.clock import clock
from kafkastore.formats.state.file_names import TopicPartition
from kafkastore.log.remote_log import RemoteStorage
from kafkastore.log.timestamp_warnings import (
    TimestampWarning,
    find_timestamp_warning,
    meant_timestamp,
)
from kafkastore.lookup.remote import check_start, highest_remote_offset
from kafkastore.metadata.topic_configs import ConfigSource
from kafkastore.segment.index_file import TimeIndex
from kafkastore.segment.log_segment import LogSegment
from kafkastore.store.partition_log import PartitionLog
from kafkastore.versions import NEWEST_VERSION, BrokerRules, rules_of
from kafkastore.writing.log_config import LogConfig
from kafkastore.writing.retention import (
    DELETE,
    RemoteCopies,
    Retention,
    RetentionRule,
    SegmentFacts,
    find_deletable,
)

#: Topics whose policy is never `delete`: Kafka's own, and KRaft's log, cleaned by snapshots.
_COMPACTED_TOPICS = ("__consumer_offsets", "__transaction_state", "__cluster_metadata")
_POLICY = "cleanup.policy"
_ENABLE = "remote.storage.enable"


class DatedBy(enum.StrEnum):
    """The origin of the time by which a broker decides about a segment.

    `ZEROS`: the time index ends in zeros; a broker that loads it uses the timestamp 0.
    """

    RECORDS = "records"
    MODIFICATION_TIME = "modification-time"
    ZEROS = "zeros"


class SegmentRetention(NamedTuple):
    """The result of retention for one segment.

    Parameters
    ----------
    path : Path
        The ``.log``.
    base_offset, end_offset : int
        Inclusive and exclusive.
    size : int
        Bytes of the ``.log``.
    largest_timestamp : int
        The time by which a broker decides about it, ms since 1970.
    dated_by : DatedBy
        Origin of that time.
    record_timestamp : int or None
        Largest timestamp of its records in ms, if the log was read for it: only with
        `DatedBy.ZEROS`.
    deleted_by : RetentionRule or None
        The rule that deletes it; None: it is kept.
    expires_at : int or None
        First ms at which it is expired; None if ``retention.ms`` does not apply. That of the
        segment here, by ``local.retention.ms``, if the topic has remote storage.
    blocked_by : int or None
        If it is expired but kept: base offset of the earlier segment that blocks it, or its own if
        the high watermark does, or if it is not in remote storage yet.
    doubt : TimestampWarning or None
        What may be wrong with its time.
    """

    path: Path
    base_offset: int
    end_offset: int
    size: int
    largest_timestamp: int
    dated_by: DatedBy
    record_timestamp: int | None
    deleted_by: RetentionRule | None
    expires_at: int | None
    blocked_by: int | None
    doubt: TimestampWarning | None

    @property
    def meant_timestamp(self) -> int | None:
        """The time in ms if its unit is wrong as `doubt` says; None without such a doubt."""
        return meant_timestamp(self.largest_timestamp, self.doubt)


class PartitionRetention(NamedTuple):
    """The result of one run of retention for a partition.

    Parameters
    ----------
    topic_partition : TopicPartition
        The partition.
    path : Path
        Its directory.
    config : LogConfig
        The configuration used.
    now : int
        The clock of the run, ms since 1970.
    segments : tuple of SegmentRetention
        By base offset.
    outcome : Retention
        The result of the rules: deletions, where each rule stopped, the log start offset
        afterwards, and whether a new segment is rolled because none remains.
    log_start_offset, high_watermark : int
        Before the run; inclusive and exclusive.
    rolls_after : int or None
        A record with a later timestamp (ms) makes the broker roll a new segment, without jitter:
        the first batch's timestamp plus ``segment.ms``. None if the active segment has no
        timestamp; then the clock decides.
    config_sources : mapping of str to ConfigSource
        Where the configurations come from, by Kafka's names; the others are Kafka's defaults.
    remote_storage : RemoteStorage
        Whether the topic has remote storage; then the limits are those of the segments here.
    """

    topic_partition: TopicPartition
    path: Path
    config: LogConfig
    now: int
    segments: tuple[SegmentRetention, ...]
    outcome: Retention
    log_start_offset: int
    high_watermark: int
    rolls_after: int | None
    config_sources: Mapping[str, ConfigSource] = MappingProxyType({})
    remote_storage: RemoteStorage = RemoteStorage.OFF

    @property
    def limits(self) -> tuple[int, int]:
        """The largest age in ms and size in bytes of segments here; negative: none."""
        return self.config.retention_limits(self.remote_storage)

    @property
    def going(self) -> tuple[SegmentRetention, ...]:
        """The segments that are deleted."""
        return tuple(each for each in self.segments if each.deleted_by is not None)

    @property
    def blocked(self) -> tuple[SegmentRetention, ...]:
        """The segments that are expired but kept."""
        return tuple(each for each in self.segments if each.blocked_by is not None)

    @property
    def blocker(self) -> SegmentRetention | None:
        """The segment that blocks the `blocked` ones; None if there is none."""
        blocking = {each.blocked_by for each in self.segments}
        return next((each for each in self.segments if each.base_offset in blocking), None)


class _Dated(NamedTuple):
    """A segment's time as the broker has it."""

    timestamp: int
    by: DatedBy
    record_timestamp: int | None = None


def retention_of(
    log: PartitionLog,
    *,
    config: Mapping[str, object] | LogConfig | None = None,
    sources: Mapping[str, ConfigSource] = MappingProxyType({}),
    now: int | None = None,
    version: str = NEWEST_VERSION,
) -> PartitionRetention:
    """Predict the next retention run of a broker that starts with this directory.

    Time indexes are loaded after a clean shutdown, else rebuilt from the recovery point on; a
    partition opened alone has a rebuilt active segment.

    Source: Kafka 2.4.0 ``Log.deleteOldSegments``, ``LogSegment.largestTimestamp``.
    """
    topic_config = _config_of(log.topic, config)
    at = clock() if now is None else whole_number("now", now)
    rules = rules_of(version)
    if isinstance(config, LogConfig) or _ENABLE in (config or {}):
        log.remote_storage = topic_config.remote_storage
    found = log.retry_if_changed(lambda: _judged(log, topic_config, at, rules))
    return found._replace(config_sources=sources)


def _judged(
    log: PartitionLog, config: LogConfig, now: int, rules: BrokerRules
) -> PartitionRetention:
    """Apply the rules of retention to the existing segments."""
    dated = [_dated(log, segment, rules) for segment in log.segments]
    facts = [
        SegmentFacts(
            segment.base_offset,
            log.log_end_offset if segment.next_base_offset is None else segment.next_base_offset,
            segment.size,
            each.timestamp,
        )
        for segment, each in zip(log.segments, dated, strict=True)
    ]
    storage = RemoteStorage.OFF
    if rules.log_may_start_in_remote_storage:
        check_start(log)
        storage = log.remote_log.storage
    outcome = find_deletable(
        facts,
        high_watermark=log.high_watermark,
        log_start_offset=log.log_start_offset,
        config=config,
        now=now,
        rules=rules,
        remote=RemoteCopies(storage, partial(highest_remote_offset, log)),
    )
    return PartitionRetention(
        log.topic_partition,
        log.path,
        config,
        now,
        tuple(_segment_retentions(log, facts, dated, outcome, _largest_age(config, storage), now)),
        outcome,
        log.log_start_offset,
        log.high_watermark,
        _rolls_after(log, config),
        remote_storage=storage,
    )


def _largest_age(config: LogConfig, storage: RemoteStorage) -> int | None:
    """Return the limit of a segment's age, if there is one."""
    policy, (limit, _) = config.cleanup_policy, config.retention_limits(storage)
    deletes = DELETE in policy or (storage is RemoteStorage.ON and not policy)
    return limit if deletes and limit >= 0 else None


def _config_of(topic: str, config: Mapping[str, object] | LogConfig | None) -> LogConfig:
    """Return a topic's configuration; Kafka's own topics are compacted by default."""
    if topic in _COMPACTED_TOPICS and not isinstance(config, LogConfig):
        config = {_POLICY: "compact", **(config or {})}
    return LogConfig.of(config)


def _dated(log: PartitionLog, segment: LogSegment, rules: BrokerRules) -> _Dated:
    """Find the time by which a broker decides about a segment (``largestTimestamp``)."""
    by_file = _Dated(segment.last_modified_ms, DatedBy.MODIFICATION_TIME)
    if not rules.retention_by_record_time:
        return by_file
    if _is_rebuilt(log, segment):
        largest = segment.largest_record_timestamp()  # as the broker does: of all batches
        return by_file if largest is None else _Dated(largest, DatedBy.RECORDS)
    try:
        with TimeIndex.open(segment.time_index_path, segment.base_offset) as index:
            last = index.last_entry_with_padding.timestamp
    except FileNotFoundError:
        return by_file
    if last == 0:  # a valid entry, padding, or lost bytes: the log decides
        in_log = segment.largest_record_timestamp()
        return _Dated(last, DatedBy.RECORDS if in_log == 0 else DatedBy.ZEROS, in_log)
    return _Dated(last, DatedBy.RECORDS) if last >= 0 else by_file


def _is_rebuilt(log: PartitionLog, segment: LogSegment) -> bool:
    """Return whether a broker that starts here rebuilds the segment's time index."""
    if not segment.offset_index_path.exists():
        return True
    if log.log_dir is None:
        return segment.is_active
    return log.is_recovered_at_start(segment)


def _segment_retentions(
    log: PartitionLog,
    facts: list[SegmentFacts],
    dated: list[_Dated],
    outcome: Retention,
    largest_age: int | None,
    now: int,
) -> Iterator[SegmentRetention]:
    """Combine the facts, times and results of each segment."""
    deleted_by = {each.segment.base_offset: each.rule for each in outcome.deletions}
    stop = next((each for each in outcome.stops if each.rule is RetentionRule.TIME), None)
    for segment, fact, date in zip(log.segments, facts, dated, strict=True):
        rule = deleted_by.get(fact.base_offset)
        expires_at = None
        if largest_age is not None:
            expires_at = fact.largest_timestamp + largest_age + 1
        is_over = stop is not None and expires_at is not None and now >= expires_at
        is_empty_end = fact.size == 0 and segment.next_base_offset is None
        yield SegmentRetention(
            segment.log_path,
            fact.base_offset,
            fact.end_offset,
            fact.size,
            fact.largest_timestamp,
            date.by,
            date.record_timestamp,
            rule,
            expires_at,
            stop.segment.base_offset
            if stop is not None and rule is None and is_over and not is_empty_end
            else None,
            None if is_empty_end else _doubt(date, now),
        )


def _doubt(date: _Dated, now: int) -> TimestampWarning | None:
    """Check the time of a segment; only record timestamps can have the wrong unit."""
    if date.by is DatedBy.RECORDS:
        return find_timestamp_warning(date.timestamp, now)
    return TimestampWarning.FUTURE if date.timestamp > now else None


def _rolls_after(log: PartitionLog, config: LogConfig) -> int | None:
    """Return the time that ``LogSegment.shouldRoll`` waits for."""
    if not log.segments:
        return None
    with log.segments[-1].open_log() as file:
        first = file.header_at(0)
    # A broker that can't read the first batch also rolls by its clock.
    if first is None or first["max_timestamp"] < 0:
        return None
    return int(first["max_timestamp"]) + config.segment_ms
