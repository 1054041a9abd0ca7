"""What a consumer is told who asks one partition for an offset: ListOffsets for one timestamp.

Times, and the special timestamps; bounded by the high watermark or the last stable offset.

=====  =============================  ===========================================================
asked  broker that knows it           ``correct``
=====  =============================  ===========================================================
T      what its log layer finds       the first record at or after T
-1     the bound itself               the bound itself
-2     the log start offset           the log start offset
-3     by the largest maximum that    the first record with the largest timestamp; none if no record
       the segments are known for     has one
-4     the log start offset           the log start offset: all there is, is local
-5     none: nothing is tiered        none
-6     none                           none
other  refused, or a time              refused
=====  =============================  ===========================================================

``kip-33`` has -1 and -2; other negative timestamps are times.

Source: Kafka 2.4.0 ``Partition.fetchOffsetForTimestamp``, ``Log.fetchOffsetByTimestamp``; 3.0.0 and
3.8.0 for -3; ``ReplicaManager.fetchOffset`` of 4.0 for what is refused.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from kafkastore.errors import (
    CorruptionError,
    UnsupportedForMessageFormatError,
    UnsupportedTimestampError,
)
from kafkastore.formats.entries import NO_TIMESTAMP, TimestampAndOffset
from kafkastore.formats.list_offsets import (
    EARLIEST_LOCAL_TIMESTAMP,
    EARLIEST_TIMESTAMP,
    FIRST_VERSION_WITH,
    FIRST_VERSION_WITH_EPOCHS,
    FIRST_VERSION_WITH_ISOLATION,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
    NEWEST_VERSION,
)
from kafkastore.formats.record_batch import first_record_from
from kafkastore.log.bounds import HighWatermark, find_high_watermark
from kafkastore.log.damage import OnCorrupt, SkippedBytes
from kafkastore.log.isolation import reads_committed
from kafkastore.log.lookup.broker_segments import BrokerSegment, broker_segments
from kafkastore.log.lookup.last_stable_offset import last_stable_offset_of
from kafkastore.log.lookup.prepared import LookupChoice, starting_offset_of
from kafkastore.log.lookup.rules import CORRECT, KIP_33, broker_rules
from kafkastore.versions import BrokerRules, parse_version

if TYPE_CHECKING:
    from kafkastore.log.partition_log import PartitionLog
    from kafkastore.segment.checked_times import Indexes

FIRST_FORMAT_WITH_TIMESTAMPS = (0, 10, 0)


class Question(NamedTuple):
    """What is asked, beside the log and the timestamp.

    Parameters
    ----------
    choice : LookupChoice
        Rules, isolation, and how far time indexes are trusted.
    high_watermark : "log-end", "checkpoint" or int
        See `bounds.find_high_watermark`.
    version : int or None
        Of the ListOffsets request, from 1 on; None: the newest that the broker speaks.
    message_format_version : str or None
        The topic's ``message.format.version``; None: one with timestamps.
    current_leader_epoch : int or None
        The partition's, which the answer to -1 names; None: the newest in the log.
    on_corrupt, skipped
        As for `PartitionLog.offset_for_timestamp`. What -3 asks for in a corrupt segment, and the
        last stable offset behind corrupt bytes, are not known in any case.
    """

    choice: LookupChoice
    high_watermark: HighWatermark = "log-end"
    version: int | None = None
    message_format_version: str | None = None
    current_leader_epoch: int | None = None
    on_corrupt: OnCorrupt = "raise"
    skipped: list[SkippedBytes] | None = None


def list_offset(
    log: PartitionLog, timestamp: int, question: Question
) -> TimestampAndOffset | None:
    """Answer what a consumer is told.

    Parameters
    ----------
    log : PartitionLog
        The partition.
    timestamp : int
        ms since 1970, or special.
    question : Question
        How it is asked.

    Returns
    -------
    TimestampAndOffset or None
        The timestamp is -1 where the answer is no record; None: there is no answer, which a broker
        says with -1 in every field.

    Raises
    ------
    UnsupportedTimestampError
        If the timestamp is refused.
    UnsupportedForMessageFormatError
        If such a topic is not searched.
    UnknownRulesError
        If the rules are not known.
    ValueError
        If the broker does not speak that version of the request, or it has no isolation.
    """
    broker = broker_rules(question.choice.rules)
    version = _checked_version(question, broker)
    _check_timestamp(timestamp, version, question, broker)
    end = None if question.on_corrupt == "raise" else log.end_offset(question.on_corrupt)
    watermark = find_high_watermark(log, question.high_watermark, end).offset
    bound = watermark
    if reads_committed(question.choice.isolation):
        try:
            bound = last_stable_offset_of(log, question.choice.rules, watermark)
        except CorruptionError:
            # What the right answer finds past damage is decided in any case.
            if question.on_corrupt == "raise" or broker is not None or timestamp < 0:
                raise
    if timestamp == LATEST_TIMESTAMP:
        epoch = question.current_leader_epoch
        if epoch is None:
            epoch = log.leader_epochs[-1].epoch if log.leader_epochs else None
        found: TimestampAndOffset | None = TimestampAndOffset(NO_TIMESTAMP, bound, epoch)
    elif broker is None:
        found = _by_text(log, timestamp, question, bound)
    else:
        found = _by_broker(log, timestamp, question, broker)
        if not _is_within(found, timestamp, broker, bound=bound, high_watermark=watermark):
            found = None
    if found is None:
        return None
    tells_epochs = broker is None or broker.lookups_return_leader_epochs
    if version < FIRST_VERSION_WITH_EPOCHS or not tells_epochs:
        return found._replace(leader_epoch=None)
    return found


def _checked_version(question: Question, broker: BrokerRules | None) -> int:
    """Return the version of the request, if that can be asked so."""
    oldest, newest = (1, NEWEST_VERSION) if broker is None else broker.list_offsets_versions
    oldest = max(oldest, 1)
    version = newest if question.version is None else question.version
    if version == 0:
        raise ValueError("ListOffsets version 0 is answered by kafkastore.legacy")
    if not oldest <= version <= newest:
        raise ValueError(
            f"brokers of {question.choice.rules} speak ListOffsets versions {oldest} to {newest}, "
            f"not {version}"
        )
    if reads_committed(question.choice.isolation) and version < FIRST_VERSION_WITH_ISOLATION:
        raise ValueError(f"ListOffsets version {version} has no isolation")
    return version


def _check_timestamp(
    timestamp: int, version: int, question: Question, broker: BrokerRules | None
) -> None:
    """Raise where a timestamp is refused."""
    refuses = question.choice.rules == CORRECT if broker is None else (
        broker.other_negatives_are_refused
    )
    if timestamp < 0 and refuses:
        first = FIRST_VERSION_WITH.get(timestamp)
        known = broker is None or timestamp in broker.special_timestamps
        if first is None or not known:
            raise UnsupportedTimestampError(
                f"timestamp {timestamp} is refused under rules {question.choice.rules}: "
                "it is neither a time nor special there (error 35)"
            )
        if version < first:
            raise UnsupportedTimestampError(
                f"timestamp {timestamp} is refused in ListOffsets version {version}: "
                f"it came with version {first} (error 35)"
            )
    text = question.message_format_version
    if text is None or broker is None or not broker.old_formats_are_refused:
        return
    answered = timestamp in (LATEST_TIMESTAMP, EARLIEST_TIMESTAMP) or (
        timestamp == EARLIEST_LOCAL_TIMESTAMP and broker.earliest_local_in_old_formats
    )
    if parse_version(text) < FIRST_FORMAT_WITH_TIMESTAMPS and not answered:
        raise UnsupportedForMessageFormatError(
            f"a topic with message.format.version {text} is not searched by timestamp (error 43)"
        )


def _is_within(
    found: TimestampAndOffset | None,
    timestamp: int,
    broker: BrokerRules,
    *,
    bound: int,
    high_watermark: int,
) -> bool:
    """Whether a broker tells a consumer what its log layer found."""
    if found is None:
        return False
    if not broker.found_offsets_are_below_the_bound:
        return found.offset <= high_watermark
    is_earliest = timestamp in (EARLIEST_TIMESTAMP, EARLIEST_LOCAL_TIMESTAMP)
    return found.offset < bound or (is_earliest and timestamp in broker.special_timestamps)


def _by_broker(
    log: PartitionLog, timestamp: int, question: Question, broker: BrokerRules
) -> TimestampAndOffset | None:
    """Answer as the broker's log layer, unbounded."""
    if timestamp >= 0 or timestamp not in broker.special_timestamps:
        return log.offset_for_timestamp(
            timestamp,
            question.choice.rules,
            on_corrupt=question.on_corrupt,
            skipped=question.skipped,
        )
    if timestamp in (EARLIEST_TIMESTAMP, EARLIEST_LOCAL_TIMESTAMP):
        return _earliest(log, starting_offset_of(log, broker))
    if timestamp == MAX_TIMESTAMP:
        return _max_by_broker(log, broker)
    return None


def _earliest(log: PartitionLog, start: int) -> TimestampAndOffset:
    """Answer the log start, with the epoch it lies in, if one begins at or before it."""
    epochs = [each.epoch for each in log.leader_epochs if each.start_offset <= start]
    return TimestampAndOffset(NO_TIMESTAMP, start, epochs[-1] if epochs else None)


def _max_by_broker(log: PartitionLog, broker: BrokerRules) -> TimestampAndOffset | None:
    """Answer by the segment with the largest maximum: the first of equal ones, undated ones too."""
    segments = broker_segments(log, broker)
    if not segments:
        return None
    segment = max(segments, key=lambda each: each.largest.timestamp)
    if not broker.max_timestamp_is_of_record:
        epoch = log.leader_epochs[-1].epoch if log.leader_epochs else None
        return TimestampAndOffset(*segment.largest, epoch)
    return _record_of_max(segment)


def _record_of_max(segment: BrokerSegment) -> TimestampAndOffset | None:
    """Find the first batch that says it has the maximum, from the index's position on."""
    largest = segment.largest
    with segment.segment.open_log() as file:
        for run in file.runs(segment.position_of(largest.offset)):
            holders = (run.headers["max_timestamp"] == largest.timestamp).nonzero()[0]
            if not len(holders):
                continue
            header = run.headers[holders[0]]
            if header["magic"] == 0:
                return None
            try:
                found = first_record_from(
                    run.batch(int(holders[0])), int(header["position"]), largest.timestamp, 0
                )
            except CorruptionError as error:
                raise error.located(file.path) from error
            if found is None or found[0] != largest.timestamp:
                return None
            epoch = int(header["leader_epoch"])
            return TimestampAndOffset(*found, epoch if epoch >= 0 else None)
    return None


def _by_text(
    log: PartitionLog, timestamp: int, question: Question, bound: int
) -> TimestampAndOffset | None:
    """Answer what is right, or by KIP-33's text."""
    choice = question.choice

    def find(target: int) -> TimestampAndOffset | None:
        found = log.offset_for_timestamp(
            target,
            choice.rules,
            isolation=choice.isolation,
            indexes=choice.indexes,
            on_corrupt=question.on_corrupt,
            skipped=question.skipped,
        )
        return found if found is not None and found.offset < bound else None

    if timestamp == EARLIEST_TIMESTAMP:
        return _earliest(log, log.log_start_offset)
    if timestamp >= 0 or choice.rules == KIP_33:
        return find(timestamp)
    if timestamp == EARLIEST_LOCAL_TIMESTAMP:
        return _earliest(log, log.log_start_offset)
    return _record_with_largest(log, find, choice.indexes) if timestamp == MAX_TIMESTAMP else None


def _record_with_largest(
    log: PartitionLog, find: Callable[[int], TimestampAndOffset | None], indexes: Indexes
) -> TimestampAndOffset | None:
    """Find the first record that has the largest timestamp.

    What segments say they have at most, markers and records that are gone may have had; so the
    times between are halved until the last that still finds a record.
    """
    best = find(0)
    if best is None:
        return None
    stated = [segment.largest_record_timestamp(indexes) or 0 for segment in log.segments]
    highest = max(*stated, best.timestamp)
    middle = highest  # mostly there is a record with just that
    while best.timestamp < highest:
        found = find(middle)
        if found is None:
            highest = middle - 1
        else:
            best = found
        middle = (best.timestamp + highest + 1) // 2
    return find(best.timestamp)
