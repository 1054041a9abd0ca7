"""A log made ready for many questions under one set of rules."""
from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kafkastore.formats.entries import TimestampAndOffset
from kafkastore.formats.list_offsets import FIRST_VERSION_WITH_ISOLATION
from kafkastore.log.isolation import Isolation, find_committed, reads_committed
from kafkastore.log.lookup.broker_segments import broker_segments
from kafkastore.log.lookup.committed_search import CommittedSegment
from kafkastore.log.lookup.correct_segments import correct_segments
from kafkastore.log.lookup.kip_33_segments import kip_33_segments
from kafkastore.log.lookup.last_stable_offset import last_stable_offset_of
from kafkastore.log.lookup.rules import CORRECT, broker_rules
from kafkastore.log.lookup.segments_by_time import (
    LARGEST_OFFSET,
    Lookup,
    SegmentByTime,
    SegmentsByTime,
)
from kafkastore.log.lookup.untimed import WithUntimedSegments
from kafkastore.segment.checked_times import DEFAULT_INDEXES, Indexes, known_indexes
from kafkastore.versions import BrokerRules

if TYPE_CHECKING:
    from kafkastore.log.partition_log import PartitionLog


class LookupChoice(NamedTuple):
    """By which rules a log is searched.

    Parameters
    ----------
    rules : str
        ``"correct"``, ``"kip-33"``, or a Kafka version from 0.10.1 on.
    isolation : str
        ``"read_committed"``: nothing at or behind the last stable offset, and under ``correct`` no
        record of an aborted transaction either.
    untimed : str or None
        ``"segment"``: a segment whose records have no timestamps is found as a whole.
    indexes : str
        How far ``correct`` trusts time indexes, see `LogSegment.search_by_time`; all other rules
        take them as the broker does.
    past_damage : bool
        Whether an answer is asked for where bytes are corrupt, too: by the rules of brokers and of
        KIP-33 the segment ends there.
    """

    rules: str = CORRECT
    isolation: Isolation = "read_uncommitted"
    untimed: Literal["segment"] | None = None
    indexes: Indexes = DEFAULT_INDEXES
    past_damage: bool = False


def prepare(log: PartitionLog, choice: LookupChoice) -> Lookup:
    """Make a log ready for questions.

    Parameters
    ----------
    log : PartitionLog
        The partition.
    choice : LookupChoice
        The rules.

    Returns
    -------
    Lookup
        Good until the log is refreshed; nothing has been read of the segments yet.

    Raises
    ------
    UnknownRulesError
        If the rules are not known.
    ValueError
        If the isolation, `untimed` or `indexes` is none, or those brokers know no isolation.
    """
    broker = broker_rules(choice.rules)
    known_indexes(choice.indexes)
    committed = reads_committed(choice.isolation)
    check_isolation_is_known(choice, broker)
    if choice.untimed not in (None, "segment"):
        raise ValueError(f"untimed is None or 'segment', not {choice.untimed!r}")
    end = LARGEST_OFFSET
    if committed:
        end = last_stable_offset_of(log, choice.rules, log.high_watermark)
    if broker is not None and not broker.found_offsets_are_below_the_bound:
        end = LARGEST_OFFSET
    lookup: Lookup
    if broker is not None:
        lookup = _NoEpochs.unless_told(
            SegmentsByTime(
                broker_segments(log, broker, past_damage=choice.past_damage),
                starting_offset_of(log, broker),
                falls_through=False,
                end_offset=end,
            ),
            broker,
        )
    elif choice.rules == CORRECT:
        lookup = SegmentsByTime(
            _correct_segments(log, choice.indexes, committed=committed),
            log.log_start_offset,
            falls_through=True,
            smallest_target=0,  # a record without timestamp has -1 and is never found
            end_offset=end,
        )
    else:
        lookup = SegmentsByTime(
            kip_33_segments(log, past_damage=choice.past_damage),
            log.log_start_offset,
            falls_through=True,
            end_offset=end,
        )
    if choice.untimed is not None:
        lookup = WithUntimedSegments(
            lookup, log, end, choice.indexes, past_damage=choice.past_damage
        )
    return lookup


def starting_offset_of(log: PartitionLog, broker: BrokerRules) -> int:
    """Return the first offset that a broker finds: the log start, as far as it has one."""
    if broker.has_log_start_offset:
        return log.log_start_offset
    return log.segments[0].base_offset if log.segments else 0


def check_isolation_is_known(choice: LookupChoice, broker: BrokerRules | None) -> None:
    """Raise a ValueError where committed records are asked of brokers that know no isolation."""
    if broker is None or choice.isolation == "read_uncommitted":
        return
    if broker.list_offsets_versions[1] < FIRST_VERSION_WITH_ISOLATION:
        raise ValueError(
            f"brokers of {choice.rules} know no isolation; it came with Kafka 0.11"
        )


def _correct_segments(
    log: PartitionLog, indexes: Indexes, *, committed: bool
) -> list[SegmentByTime]:
    segments = correct_segments(log, indexes)
    if not committed:
        return list(segments)
    aborted = find_committed(log, log.log_start_offset, log.log_end_offset).aborted
    return [CommittedSegment(segment, aborted) for segment in segments]


class _NoEpochs:
    """A lookup of brokers whose answers name no leader epoch."""

    def __init__(self, lookup: SegmentsByTime) -> None:
        self._lookup = lookup

    @staticmethod
    def unless_told(lookup: SegmentsByTime, broker: BrokerRules) -> Lookup:
        """Return the lookup itself if the brokers name epochs."""
        return lookup if broker.lookups_return_leader_epochs else _NoEpochs(lookup)

    def find(self, target_timestamp: int) -> TimestampAndOffset | None:
        """Find the offset for a time."""
        found = self._lookup.find(target_timestamp)
        return None if found is None else TimestampAndOffset(found.timestamp, found.offset)

    def find_many(self, target_timestamps: ArrayLike) -> NDArray[np.void]:
        """Find the offsets for many times."""
        answers = self._lookup.find_many(target_timestamps)
        answers["leader_epoch"] = -1
        return answers
