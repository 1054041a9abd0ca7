"""Which offset is at time T?  The right answer, and what brokers and KIP-33's text answer.

=============  ====================================================================================
rules          answer
=============  ====================================================================================
``correct``    the first record in offset order, at or after the log start offset, with timestamp >= T;
               never a marker; indexes are used where they fit the log
``"2.4"``, any the broker's log layer, its flaws included: the first segment whose largest timestamp is >= T
version from   (its modification time where the time index is empty), and in it the first record,
0.10.1 on      markers too, found from the indexes' floor entries; no other segment is tried
``kip-33``     the proposal's text: the first segment whose last entry is > T, where a missing time index of
               an inactive segment counts as (modification time -> base offset of the next)
=============  ====================================================================================

Which state of a broker is meant: beside a clean-shutdown marker, the one that loads these bytes (zero padding counts as
entries, a missing time index as empty); without it, the one that was running or has recovered.

Source: Kafka 2.4.0 ``Log.fetchOffsetByTimestamp``, ``LogSegment.findOffsetByTimestamp``; KIP-33, "Search message by timestamp".
"""
from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from kafkastore.errors import KafkaStoreError
from kafkastore.formats import offset_index, time_index
from kafkastore.formats.entries import OffsetPosition, TimestampAndOffset, TimestampOffset
from kafkastore.segment.log_segment import LogSegment

if TYPE_CHECKING:
    from kafkastore.log.partition_log import PartitionLog

CORRECT = "correct"
KIP_33 = "kip-33"
FIRST_VERSION_WITH_TIME_INDEX = (0, 10, 1)
_VERSION = re.compile(r"\d+(\.\d+){1,3}")


class UnknownRulesError(KafkaStoreError, ValueError):
    """Rules that are neither ``correct`` nor ``kip-33`` nor a Kafka version with time indexes."""


def offset_for_timestamp(
    log: PartitionLog, target_timestamp: int, rules: str = CORRECT
) -> TimestampAndOffset | None:
    """Find the offset to begin with for a time.

    Parameters
    ----------
    log : PartitionLog
        The partition.
    target_timestamp : int
        ms since 1970, inclusive.
    rules : str
        ``"correct"``, ``"kip-33"``, or a Kafka version from 0.10.1 on.

    Returns
    -------
    TimestampAndOffset or None
        Timestamp, offset and leader epoch of the record found; None where there is none.

    Raises
    ------
    UnknownRulesError
        If the rules are not known.
    CorruptBatchError
        If bytes on the way break the format; under broker rules a broker would fail here too.
    """
    return _rule(rules)(log, target_timestamp)


def _rule(rules: str) -> Callable[[PartitionLog, int], TimestampAndOffset | None]:
    if rules == CORRECT:
        return _correct
    if rules == KIP_33:
        return _kip_33
    if not _VERSION.fullmatch(rules):
        raise UnknownRulesError(
            f"rules {rules!r} are not known: use correct, kip-33, or a Kafka version such as 2.4"
        )
    version = tuple(int(part) for part in rules.split("."))
    if version < FIRST_VERSION_WITH_TIME_INDEX:
        raise UnknownRulesError(
            f"Kafka {rules} has no time indexes; its answer is that of kafkastore.legacy"
        )
    return _broker


def _correct(log: PartitionLog, target_timestamp: int) -> TimestampAndOffset | None:
    target = max(target_timestamp, 0)  # a record without timestamp has -1 and never matches
    start = log.log_start_offset
    for segment in log.segments:
        if segment.next_base_offset is not None and segment.next_base_offset <= start:
            continue
        largest = segment.largest_record_timestamp()
        if largest is None or largest < target:
            continue
        found = segment.find_offset_by_timestamp(target, start)
        if found is not None:
            return found
    return None


class _BrokerIndexes(NamedTuple):
    """A segment's indexes as a broker has them in memory: the bytes it counts as entries."""

    offset_entries: bytes
    time_entries: bytes


def _broker(log: PartitionLog, target_timestamp: int) -> TimestampAndOffset | None:
    for segment in log.segments:
        indexes = _broker_indexes(log, segment)
        if _broker_largest_timestamp(log, segment, indexes) >= target_timestamp:
            return _broker_find(segment, indexes, target_timestamp, log.log_start_offset)
    return None


def _broker_indexes(log: PartitionLog, segment: LogSegment) -> _BrokerIndexes:
    """Return the entries that the broker in question has for a segment."""
    if segment.offset_index is None or (segment.time_index is None and _recovers(log, segment)):
        rebuilt = segment.rebuilt_indexes()
        return _BrokerIndexes(rebuilt.offset_index, rebuilt.time_index)
    offset_entries, time_entries = segment.offset_index.data, b""
    offset_count, time_count = segment.offset_index.entry_count, 0
    if not log.is_clean:
        offset_count = segment.offset_index.used_entry_count
    if segment.time_index is not None:
        time_entries = segment.time_index.data
        time_count = segment.time_index.entry_count
        if not log.is_clean:
            time_count = segment.time_index.used_entry_count
    return _BrokerIndexes(
        offset_entries[: offset_count * offset_index.ENTRY_SIZE],
        time_entries[: time_count * time_index.ENTRY_SIZE],
    )


def _recovers(log: PartitionLog, segment: LogSegment) -> bool:
    """Whether a starting broker rebuilds the segment: no marker, and at or above the recovery point.

    The segment that holds the recovery point is the first it rebuilds. A directory by itself tells neither; there the
    broker that was running is meant, which had no entries either.
    """
    if log.log_dir is None or log.is_clean:
        return False
    ends = segment.next_base_offset
    return ends is None or ends > (log.recovery_point or 0)


def _broker_largest_timestamp(
    log: PartitionLog, segment: LogSegment, indexes: _BrokerIndexes
) -> int:
    """Return what ``LogSegment.largestTimestamp`` says."""
    last = TimestampOffset(-1, segment.base_offset)
    if indexes.time_entries:
        entries = time_index.parse(
            indexes.time_entries[-time_index.ENTRY_SIZE :], segment.base_offset
        )
        last = TimestampOffset(int(entries["timestamp"][0]), int(entries["offset"][0]))
    largest = last.timestamp
    if segment.is_active and not log.is_clean:
        # A running broker knows more than its index: what was appended since the last entry.
        position = _offset_floor(segment, indexes, last.offset).position
        with segment.open_log() as file:
            for run in file.runs(position):
                largest = max(largest, int(run.headers["max_timestamp"].max()))
    return largest if largest >= 0 else segment.last_modified_ms


def _offset_floor(
    segment: LogSegment, indexes: _BrokerIndexes, target_offset: int
) -> OffsetPosition:
    return OffsetPosition(
        *offset_index.lookup(indexes.offset_entries, segment.base_offset, target_offset)
    )


def _broker_find(
    segment: LogSegment, indexes: _BrokerIndexes, target_timestamp: int, log_start_offset: int
) -> TimestampAndOffset | None:
    """Search one segment as ``LogSegment.findOffsetByTimestamp`` does."""
    floor = TimestampOffset(
        *time_index.lookup(indexes.time_entries, segment.base_offset, target_timestamp)
    )
    position = _offset_floor(segment, indexes, max(floor.offset, log_start_offset)).position
    with segment.open_log() as file:
        return _answer(
            file.search_for_timestamp(target_timestamp, position, log_start_offset)
        )


def _answer(found: tuple[int, int, int] | None) -> TimestampAndOffset | None:
    if found is None:
        return None
    timestamp, offset, epoch = found
    return TimestampAndOffset(timestamp, offset, epoch if epoch >= 0 else None)


def _kip_33(log: PartitionLog, target_timestamp: int) -> TimestampAndOffset | None:
    start = log.log_start_offset
    for segment in log.segments:
        entries = kip_33_entries(segment)
        if not entries or entries[-1].timestamp <= target_timestamp:
            continue
        floor = max((e for e in entries if e.timestamp <= target_timestamp), default=None)
        starting_offset = max(start, segment.base_offset if floor is None else floor.offset)
        with segment.open_log() as file:
            position = segment.position_before(starting_offset)
            found = file.search_for_timestamp(target_timestamp, position, start)
        if found is not None:
            return _answer(found)
    return None


def kip_33_entries(segment: LogSegment) -> list[TimestampOffset]:
    """Return the time index that KIP-33's text gives a segment: its own, or one entry by modification time.

    Parameters
    ----------
    segment : LogSegment

    Returns
    -------
    list of TimestampOffset
        Empty for an active segment without a time index.

    Notes
    -----
    Source: KIP-33, "Broker startup".
    """
    if segment.time_index is not None:
        return [TimestampOffset(*entry) for entry in segment.time_index.entries().tolist()]
    if segment.next_base_offset is None:
        return []
    return [TimestampOffset(segment.last_modified_ms, segment.next_base_offset)]

