"""Find the segments that a broker deletes, by rule, and where each rule stops.

No files are read.  Each rule starts at the oldest segment and stops at the first one that it keeps:
a segment that is kept protects all later ones, however old.  The rules run one after the other,
each on the segments that the previous rule has kept.

========  ===================================================================================
``time``  now - largest timestamp > ``retention.ms``; equality keeps the segment
``size``  the log without the segment still has at least ``retention.bytes``
``start`` the next segment begins at or below the log start offset
========  ===================================================================================

A negative limit disables its rule.  The last segment is deleted too, unless it is empty: the broker
first rolls a new one.

Source: Kafka 2.4.0 ``Log.deleteOldSegments``, ``deletableSegments``; 3.9 ``UnifiedLog``;
`BrokerRules` lists the differences between versions.
"""
from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from typing import NamedTuple

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
    the high watermark. `EMPTY`: it is the last segment, and empty.
    """

    NOT_REACHED = "not reached"
    HIGH_WATERMARK = "high watermark"
    EMPTY = "empty"


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
    """

    deletions: tuple[Deletion, ...]
    stops: tuple[RetentionStop, ...]
    rolls: bool
    log_start_offset: int


def find_deletable(
    segments: Sequence[SegmentFacts],
    *,
    high_watermark: int,
    log_start_offset: int,
    config: LogConfig,
    now: int,
    rules: BrokerRules,
) -> Retention:
    """Find the segments that a broker deletes at `now`, ms since 1970.

    `segments` are all segments of the log, by base offset.
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
    for rule in map(RetentionRule, rules.retention_order):
        takes = _condition(rule, remaining, log_start_offset, config, now, rules)
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
            log_start_offset = max(log_start_offset, remaining[0].base_offset)
    return Retention(tuple(deletions), tuple(stops), rolls, log_start_offset)


def _condition(
    rule: RetentionRule,
    segments: Sequence[SegmentFacts],
    log_start_offset: int,
    config: LogConfig,
    now: int,
    rules: BrokerRules,
) -> Callable[[SegmentFacts, bool], bool] | None:
    """Return a test of (segment, is it the last?); None if the rule is disabled."""
    deletes = DELETE in config.cleanup_policy
    if rule is RetentionRule.TIME and deletes and config.retention_ms >= 0:
        return lambda segment, _: now - segment.largest_timestamp > config.retention_ms
    if rule is RetentionRule.SIZE and deletes and config.retention_bytes >= 0:
        surplus = sum(segment.size for segment in segments) - config.retention_bytes

        def is_surplus(segment: SegmentFacts, _: bool) -> bool:
            nonlocal surplus
            surplus -= segment.size
            return surplus >= 0

        return is_surplus
    if rule is RetentionRule.START and (deletes or rules.retention_by_start_of_every_policy):
        return lambda segment, is_last: not is_last and segment.end_offset <= log_start_offset
    return None
