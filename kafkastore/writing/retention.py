"""Find the segments that a broker deletes, by rule, and where each rule stops.

No files are read.  Each rule starts at the oldest segment and stops at the first one that it keeps:
a segment that is kept protects all later ones, however old.  The rules run one after the other,
each on the segments that the previous rule has kept.

========  ===================================================================================
``time``  now - largest timestamp > ``retention.ms``; equality keeps the segment
``size``  the log without the segment still has at least ``retention.bytes``
``start`` the next segment begins at or below the log start offset
========  ===================================================================================

If segments are copied to remote storage, the limits are ``local.retention.ms`` and
``local.retention.bytes``, a segment is kept until all of it was copied, and the log start offset
stays. The last segment is then rolled instead of deleted, to be copied.

A negative limit disables its rule.  The last segment is deleted too, unless it is empty: the broker
first rolls a new one.

Source: Kafka 2.4.0 ``Log.deleteOldSegments``, ``deletableSegments``; 3.9, 4.3 ``UnifiedLog``;
`BrokerRules` lists the differences between versions.
"""
from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from typing import NamedTuple

from kafkastore.log.remote_log import RemoteStorage
from kafkastore.versions import BrokerRules
from kafkastore.writing.log_config import LogConfig

DELETE = "delete"


class RetentionRule(enum.StrEnum):
    """The rules of retention."""

    TIME = "time"
    SIZE = "size"
    START = "start"


class StopReason(enum.StrEnum):
    """Why a rule stops at a segment.

    `NOT_REACHED`: the limit is not reached. `HIGH_WATERMARK`: the segment has records at or above
    the high watermark. `EMPTY`: it is the last segment, and empty. `NOT_COPIED`: some of it is not
    in remote storage yet.
    """

    NOT_REACHED = "not reached"
    HIGH_WATERMARK = "high watermark"
    EMPTY = "empty"
    NOT_COPIED = "not copied"


class RemoteCopies(NamedTuple):
    """What of a log is in remote storage, as far as retention depends on it.

    `highest_offset` returns the last offset that was copied, or None; it may raise.
    """

    storage: RemoteStorage
    highest_offset: Callable[[], int | None]


class SegmentFacts(NamedTuple):
    """The properties of a segment that retention depends on.

    `end_offset` is exclusive: the next base offset, or the log end offset. `largest_timestamp` is
    what the broker knows, in ms since 1970: that of the records, or else the modification time.
    """

    base_offset: int
    end_offset: int
    size: int
    largest_timestamp: int


class Deletion(NamedTuple):
    """A segment to delete, and the rule that deletes it."""

    segment: SegmentFacts
    rule: RetentionRule


class RetentionStop(NamedTuple):
    """The first segment that a rule keeps, and why."""

    rule: RetentionRule
    segment: SegmentFacts
    reason: StopReason


class Retention(NamedTuple):
    """The result of retention: deletions by offset, and where each rule stopped.

    `stops` has one entry for each enabled rule that keeps a segment. `rolls`: an empty segment is
    created at the log end because no other remains. `log_start_offset` is the one afterwards.
    `local_log_start_offset` differs from it if records before it are in remote storage.
    """

    deletions: tuple[Deletion, ...]
    stops: tuple[RetentionStop, ...]
    rolls: bool
    log_start_offset: int
    local_log_start_offset: int


#: A topic without remote storage.
NO_COPIES = RemoteCopies(RemoteStorage.OFF, lambda: None)


def find_deletable(
    segments: Sequence[SegmentFacts],
    *,
    high_watermark: int,
    log_start_offset: int,
    config: LogConfig,
    now: int,
    rules: BrokerRules,
    remote: RemoteCopies = NO_COPIES,
) -> Retention:
    """Find the segments that a broker deletes at `now`, ms since 1970.

    `segments` are all segments of the log here, by base offset.
    Source: Kafka 2.4.0 ``Log.deleteOldSegments``.

    >>> from kafkastore.versions import rules_of
    >>> old, new = SegmentFacts(0, 5, 100, 1_000), SegmentFacts(5, 9, 100, 90_000)
    >>> config = LogConfig.of({"retention.ms": 60_000})
    >>> found = find_deletable([old, new], high_watermark=9, log_start_offset=0, config=config,
    ...                        now=100_000, rules=rules_of("2.4"))
    >>> [(each.segment.base_offset, each.rule.value) for each in found.deletions]
    [(0, 'time')]
    """
    remaining = list(segments)
    deletions: list[Deletion] = []
    stops: list[RetentionStop] = []
    rolls = False
    local_start = log_start_offset
    if segments:
        local_start = max(local_start, segments[0].base_offset)
    is_copied = remote.storage is RemoteStorage.ON
    for rule in map(RetentionRule, rules.retention_order):
        takes = _condition(rule, remaining, local_start, config, now, rules, remote.storage)
        if takes is None:
            continue
        taken = 0
        for index, segment in enumerate(remaining):
            is_last = index == len(remaining) - 1
            if rules.retention_below_high_watermark and high_watermark < segment.end_offset:
                stops.append(RetentionStop(rule, segment, StopReason.HIGH_WATERMARK))
            elif not takes(segment, is_last):
                stops.append(RetentionStop(rule, segment, StopReason.NOT_REACHED))
            elif is_last and segment.size == 0:
                stops.append(RetentionStop(rule, segment, StopReason.EMPTY))
            elif is_copied and not _is_deletable(segment, is_last, log_start_offset, remote):
                stops.append(RetentionStop(rule, segment, StopReason.NOT_COPIED))
                if is_last:
                    end = segment.end_offset
                    remaining.append(SegmentFacts(end, end, 0, now))
                    rolls = True
            else:
                deletions.append(Deletion(segment, rule))
                taken += 1
                continue
            break
        if taken and taken == len(remaining):
            end = remaining[-1].end_offset
            remaining.append(SegmentFacts(end, end, 0, now))
            rolls = True
        del remaining[:taken]
        if taken:
            local_start = max(local_start, remaining[0].base_offset)
        if not is_copied:
            log_start_offset = max(log_start_offset, local_start) if taken else log_start_offset
    return Retention(tuple(deletions), tuple(stops), rolls, log_start_offset, local_start)


def _is_deletable(
    segment: SegmentFacts, is_last: bool, log_start_offset: int, remote: RemoteCopies
) -> bool:
    """Return whether a segment is wholly in remote storage, or before the log start."""
    if not is_last and segment.end_offset <= log_start_offset:
        return True
    highest = remote.highest_offset()
    return highest is not None and segment.end_offset - 1 <= highest


def _condition(
    rule: RetentionRule,
    segments: Sequence[SegmentFacts],
    log_start_offset: int,
    config: LogConfig,
    now: int,
    rules: BrokerRules,
    storage: RemoteStorage,
) -> Callable[[SegmentFacts, bool], bool] | None:
    """Return a test of (segment, is it the last?); None if the rule is disabled."""
    # A tiered topic without a policy is not compacted, and its local segments go.
    deletes = DELETE in config.cleanup_policy or (
        storage is RemoteStorage.ON and not config.cleanup_policy
    )
    largest_age, largest_size = config.retention_limits(storage)
    if rule is RetentionRule.TIME and deletes and largest_age >= 0:
        return lambda segment, _: now - segment.largest_timestamp > largest_age
    if rule is RetentionRule.SIZE and deletes and largest_size >= 0:
        surplus = sum(segment.size for segment in segments) - largest_size

        def is_surplus(segment: SegmentFacts, _: bool) -> bool:
            nonlocal surplus
            surplus -= segment.size
            return surplus >= 0

        return is_surplus
    if rule is RetentionRule.START and (deletes or rules.retention_by_start_of_every_policy):
        return lambda segment, is_last: not is_last and segment.end_offset <= log_start_offset
    return None
