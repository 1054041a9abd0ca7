"""Which offset is at time T?  The right answer, and what brokers and KIP-33's text answer.

``correct``
    The first record in offset order, at or after the log start offset, with timestamp >= T; never a
    marker.  Indexes are used where they fit the log.
``"2.4"``, and any version from 0.10.1 on
    The broker's log layer, its flaws included: the first segment whose largest timestamp is >= T
    (its modification time where the time index is empty), and in it the first record, markers too,
    found from the indexes' floor entries; no other segment is tried.
``kip-33``
    The proposal's text: the first segment whose last entry is > T, where a missing time index of an
    inactive segment counts as (modification time -> base offset of the next).

Which state of a broker is meant: beside a clean-shutdown marker, the one that loads these bytes
(zero padding counts as entries, a missing time index as empty); without it, the one that was
running or has recovered.

Source: Kafka 2.4.0 ``Log.fetchOffsetByTimestamp``, ``LogSegment.findOffsetByTimestamp``; KIP-33,
"Search message by timestamp".
"""
from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from kafkastore.errors import KafkaStoreError
from kafkastore.formats import offset_index, time_index
from kafkastore.formats.broker_rules import KafkaVersion, UnknownVersionError, parse_version
from kafkastore.formats.entries import TimestampAndOffset, TimestampOffset
from kafkastore.segment.index_file import OffsetIndex, TimeIndex
from kafkastore.segment.log_segment import LogSegment

if TYPE_CHECKING:
    from kafkastore.log.partition_log import PartitionLog

CORRECT = "correct"
KIP_33 = "kip-33"
FIRST_VERSION_WITH_TIME_INDEX = (0, 10, 1)
FIRST_VERSION_WITH_WARM_SECTION = (2, 1)


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
    try:
        version = parse_version(rules)
    except UnknownVersionError:
        raise UnknownRulesError(
            f"rules {rules!r} are not known: use correct, kip-33, or a Kafka version such as 2.4"
        ) from None
    if version < FIRST_VERSION_WITH_TIME_INDEX:
        raise UnknownRulesError(
            f"Kafka {rules} has no time indexes; its answer is that of kafkastore.legacy"
        )
    return partial(_broker, version)


def _correct(log: PartitionLog, target_timestamp: int) -> TimestampAndOffset | None:
    target = max(target_timestamp, 0)  # a record without timestamp has -1 and never matches
    start = log.log_start_offset
    for segment in log.segments:
        if segment.next_base_offset is not None and segment.next_base_offset <= start:
            continue
        if not segment.may_reach(target):
            continue
        found = segment.find_offset_by_timestamp(target, start)
        if found is not None:
            return found
    return None


class _BrokerSegment:
    """A segment with the indexes that the broker in question has in memory."""

    def __init__(self, log: PartitionLog, segment: LogSegment, version: KafkaVersion) -> None:
        self.segment = segment
        self.is_running_active = segment.is_active and not log.is_clean
        self.warm_section = version >= FIRST_VERSION_WITH_WARM_SECTION
        rebuilt = None
        if segment.offset_index is None or (
            segment.time_index is None and _recovers(log, segment)
        ):
            rebuilt = segment.rebuilt_indexes()
        self.offset_entries = _entries(
            segment.offset_index if rebuilt is None else rebuilt.offset_index, log.is_clean
        )
        self.time_entries = _entries(
            segment.time_index if rebuilt is None else rebuilt.time_index, log.is_clean
        )

    def largest_timestamp(self) -> int:
        """Return what ``LogSegment.largestTimestamp`` says, ms."""
        last = time_index.last_entry(self.time_entries, self.segment.base_offset)
        largest = last.timestamp
        if self.is_running_active:
            # A running broker knows more than its index: what was appended since the last entry.
            with self.segment.open_log() as file:
                for run in file.runs(self._position(last.offset)):
                    largest = max(largest, int(run.headers["max_timestamp"].max()))
        return largest if largest >= 0 else self.segment.last_modified_ms

    def _position(self, target_offset: int) -> int:
        """Return the floor entry's byte position, right or wrong."""
        return offset_index.lookup(
            self.offset_entries,
            self.segment.base_offset,
            target_offset,
            warm_section=self.warm_section,
        ).position

    def find(self, target_timestamp: int, log_start_offset: int) -> TimestampAndOffset | None:
        """Search as ``LogSegment.findOffsetByTimestamp`` does."""
        floor = time_index.lookup(
            self.time_entries,
            self.segment.base_offset,
            target_timestamp,
            warm_section=self.warm_section,
        )
        position = self._position(max(floor.offset, log_start_offset))
        with self.segment.open_log() as file:
            return _answer(file.search_for_timestamp(target_timestamp, position, log_start_offset))


def _entries(index: OffsetIndex | TimeIndex | bytes | None, with_padding: bool) -> bytes:
    """Return the bytes that a broker counts as entries: those of a clean file with the padding."""
    if index is None:
        return b""
    return index if isinstance(index, bytes) else index.entry_bytes(with_padding=with_padding)


def _broker(
    version: KafkaVersion, log: PartitionLog, target_timestamp: int
) -> TimestampAndOffset | None:
    for segment in log.segments:
        seen = _BrokerSegment(log, segment, version)
        if seen.largest_timestamp() >= target_timestamp:
            return seen.find(target_timestamp, log.log_start_offset)
    return None


def _recovers(log: PartitionLog, segment: LogSegment) -> bool:
    """Whether a starting broker rebuilds the segment: no marker, and not below the recovery point.

    The segment that holds the recovery point is the first it rebuilds. A directory by itself tells
    neither; there the broker that was running is meant, which had no entries either.
    """
    if log.log_dir is None or log.is_clean:
        return False
    ends = segment.next_base_offset
    return ends is None or ends > (log.recovery_point or 0)


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
            position = segment.position_before(starting_offset, file)
            found = file.search_for_timestamp(target_timestamp, position, start)
        if found is not None:
            return _answer(found)
    return None


def kip_33_entries(segment: LogSegment) -> list[TimestampOffset]:
    """Return the time index that KIP-33's text gives a segment.

    Its own, or for an inactive segment without one an entry by modification time.

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

