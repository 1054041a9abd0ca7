"""Which segments a broker deletes, by which rule, and where it stops: pure rules, no files.

Each rule goes over the segments from the oldest, and stops at the first that it does not take: a
segment that stays holds back everything behind it, however old.  The rules come one after the
other, each over what the one before has left.

========  ===================================================================================
``time``  now - largest timestamp > ``retention.ms``; an exact match stays
``size``  the log without the segment still has at least ``retention.bytes``
``start`` the next segment begins at or below the log start offset
========  ===================================================================================

A negative limit switches its rule off.  The last segment goes too, unless it is empty: the broker
then rolls a new one first.

Source: Kafka 2.4.0 ``Log.deleteOldSegments``, ``deletableSegments``; 3.9 ``UnifiedLog``; what
differs between versions is in `BrokerRules`.
"""
from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from typing import NamedTuple

from kafkastore.log.log_config import LogConfig
from kafkastore.versions import BrokerRules

DELETE = "delete"


class RetentionRule(enum.StrEnum):
    """What a segment is judged by."""

    TIME = "time"
    SIZE = "size"
    START = "start"


class StopReason(enum.StrEnum):
    """Why a rule goes no further.

    `NOT_REACHED`: the rule's limit is not reached. `HIGH_WATERMARK`: the segment has records at or
    above the high watermark. `EMPTY`: it is the last one, and empty.
    """

    NOT_REACHED = "not reached"
    HIGH_WATERMARK = "high watermark"
    EMPTY = "empty"


class SegmentFacts(NamedTuple):
    """What retention asks of a segment.

    Parameters
    ----------
    base_offset : int
        As in its file name.
    end_offset : int
        Exclusive: the next segment's base offset; of the last segment the log end offset.
    size : int
        Bytes of its ``.log``.
    largest_timestamp : int
        ms since 1970, as the broker has it: of its records, or else the modification time.
    """

    base_offset: int
    end_offset: int
    size: int
    largest_timestamp: int


class Deletion(NamedTuple):
    """A segment that goes, and by which rule."""

    segment: SegmentFacts
    rule: RetentionRule


class Stop(NamedTuple):
    """The first segment that a rule does not take, and why."""

    rule: RetentionRule
    segment: SegmentFacts
    reason: StopReason


class Retention(NamedTuple):
    """What one run of retention does to a log.

    Parameters
    ----------
    deletions : tuple of Deletion
        In the order in which they go: by offset.
    stops : tuple of Stop
        One for each rule that is in force and did not take every segment.
    rolls : bool
        Whether a new, empty segment is made at the log end because no other remains.
    log_start_offset : int
        Afterwards.
    """

    deletions: tuple[Deletion, ...]
    stops: tuple[Stop, ...]
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
    """Find what a broker deletes when it looks for old segments.

    Parameters
    ----------
    segments : sequence of SegmentFacts
        All segments of a log, by base offset.
    high_watermark : int
        First offset not replicated.
    log_start_offset : int
        First offset a reader may ask for.
    config : LogConfig
        Of the topic: ``cleanup.policy``, ``retention.ms``, ``retention.bytes``.
    now : int
        ms since 1970.
    rules : BrokerRules
        Of the broker's version.

    Returns
    -------
    Retention

    Notes
    -----
    Source: Kafka 2.4.0 ``Log.deleteOldSegments``.

    Examples
    --------
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
    stops: list[Stop] = []
    rolls = False
    for rule in map(RetentionRule, rules.retention_order):
        takes = _condition(rule, remaining, log_start_offset, config, now, rules)
        if takes is None:
            continue
        taken = 0
        for index, segment in enumerate(remaining):
            is_last = index == len(remaining) - 1
            if rules.retention_below_high_watermark and high_watermark < segment.end_offset:
                stops.append(Stop(rule, segment, StopReason.HIGH_WATERMARK))
            elif not takes(segment, is_last):
                stops.append(Stop(rule, segment, StopReason.NOT_REACHED))
            elif is_last and segment.size == 0:
                stops.append(Stop(rule, segment, StopReason.EMPTY))
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
    """Return whether a rule takes a segment (and is it the last?); None: it is not in force."""
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
