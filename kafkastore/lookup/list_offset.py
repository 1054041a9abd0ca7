"""Answer ListOffsets for one partition and one timestamp, as a consumer gets it.

Answers to times and to special timestamps are limited by the high watermark or the last stable
offset.

=====  =============================  ===========================================================
asked  broker that knows it           ``correct``
=====  =============================  ===========================================================
T      the log layer's answer         the first record at or after T
-1     the bound itself               the bound itself
-2     the log start offset           the log start offset
-3     by the largest maximum known   the first record with the largest timestamp; none if no record
       of a segment                   has a timestamp
-4     the local log start offset     the local log start offset: that of the log, unless it starts
                                      in remote storage
-5     the last offset in remote      the same
       storage; none without
-6     the first offset that is not   the same
       copied there; none without
other  refused, or a time             refused
=====  =============================  ===========================================================

``kip-33`` supports -1 and -2; other negative timestamps are times. ``legacy`` answers OffsetRequest
v0 with one offset: it supports -1 and -2, and refuses other negative timestamps.

Source: Kafka 2.4.0 ``Partition.fetchOffsetForTimestamp``, ``Log.fetchOffsetByTimestamp``; 3.0.0 and
3.8.0 for -3; ``ReplicaManager.fetchOffset`` of 4.0 for refused timestamps.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from kafkastore.arguments import whole_number
from kafkastore.clock import clock
from kafkastore.errors import (
    ArgumentValueError,
    CorruptionError,
    UnsupportedForMessageFormatError,
    UnsupportedTimestampError,
)
from kafkastore.formats.indexes.entries import NO_TIMESTAMP, TimestampAndOffset
from kafkastore.formats.records.record_batch import first_record_from
from kafkastore.formats.requests.list_offsets import (
    EARLIEST_LOCAL_TIMESTAMP,
    EARLIEST_PENDING_UPLOAD_TIMESTAMP,
    EARLIEST_TIMESTAMP,
    FIRST_VERSION_WITH,
    FIRST_VERSION_WITH_EPOCHS,
    FIRST_VERSION_WITH_ISOLATION,
    LATEST_TIERED_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
    NEWEST_VERSION,
)
from kafkastore.log.bounds import HighWatermark, find_high_watermark
from kafkastore.log.damage import CorruptionHandler, OnCorrupt, SkippedBytes
from kafkastore.log.isolation import reads_committed
from kafkastore.log.log_view import LogView
from kafkastore.lookup.broker import BrokerSegment, broker_segments, starting_offset_of
from kafkastore.lookup.last_stable_offset import last_stable_offset_of
from kafkastore.lookup.legacy import offset_times
from kafkastore.lookup.offsets_before import offsets_before
from kafkastore.lookup.prepared import find_offset
from kafkastore.lookup.remote import (
    check_start,
    earliest_pending_upload,
    largest_remote_timestamp,
    latest_tiered,
    starts_in_remote_storage,
)
from kafkastore.lookup.rules import (
    CORRECT,
    KIP_33,
    LEGACY,
    LookupChoice,
    broker_rules,
    check_isolation_is_known,
)
from kafkastore.segment.index_trust import Indexes
from kafkastore.versions import BrokerRules, parse_version

FIRST_FORMAT_WITH_TIMESTAMPS = (0, 10, 0)


class ListOffsetQuery(NamedTuple):
    """The parameters of a ListOffsets request; see `PartitionLog.list_offset`."""

    choice: LookupChoice
    high_watermark: HighWatermark = "log-end"
    request_version: int | None = None
    message_format_version: str | None = None
    current_leader_epoch: int | None = None
    on_corrupt: OnCorrupt = "raise"
    skipped: list[SkippedBytes] | None = None


def list_offset(
    view: LogView, timestamp: int, query: ListOffsetQuery
) -> TimestampAndOffset | None:
    """Return the answer that a consumer gets; see `PartitionLog.list_offset`."""
    if query.choice.rules == LEGACY:
        return _by_modification_times(view, timestamp, query)
    broker = broker_rules(query.choice.rules)
    version = _checked_version(query, broker)
    _check_timestamp(timestamp, version, query, broker)
    end = _end_by_headers(view, query) if broker is not None else (
        view.end_offset(query.on_corrupt, query.skipped)
    )
    watermark = find_high_watermark(view, query.high_watermark, end).offset
    bound = watermark
    if reads_committed(query.choice.isolation):
        try:
            bound = last_stable_offset_of(view, query.choice.rules, watermark)
        except CorruptionError:
            # Answers of `correct` that are found past corrupt bytes are below the last stable
            # offset anyway.
            if query.on_corrupt == "raise" or broker is not None or timestamp < 0:
                raise
    if timestamp == LATEST_TIMESTAMP:
        epoch = query.current_leader_epoch
        if epoch is None:
            epoch = view.leader_epochs[-1].epoch if view.leader_epochs else None
        found: TimestampAndOffset | None = TimestampAndOffset(NO_TIMESTAMP, bound, epoch)
    elif broker is None:
        found = _by_text(view, timestamp, query, bound)
    else:
        found = _by_broker(view, timestamp, query, broker)
        if not _is_within(found, timestamp, broker, bound=bound, high_watermark=watermark):
            found = None
    if found is None:
        return None
    tells_epochs = broker is None or broker.lookups_return_leader_epochs
    if version < FIRST_VERSION_WITH_EPOCHS or not tells_epochs:
        return found._replace(leader_epoch=None)
    return found


def _by_modification_times(
    view: LogView, timestamp: int, query: ListOffsetQuery
) -> TimestampAndOffset | None:
    """Return the first offset of the answer to OffsetRequest v0."""
    if query.request_version not in (None, 0):
        raise ArgumentValueError("request_version", "0 for rules legacy", query.request_version)
    check_isolation_is_known(query.choice, None)
    end = _end_by_headers(view, query)
    watermark = find_high_watermark(view, query.high_watermark, end).offset
    past_damage = query.on_corrupt != "raise"
    now = clock()
    times = offset_times(view, now, high_watermark=watermark, past_damage=past_damage)
    offsets = offsets_before(times, timestamp, 1, now)
    return TimestampAndOffset(NO_TIMESTAMP, offsets[0]) if offsets else None


def _end_by_headers(view: LogView, query: ListOffsetQuery) -> int:
    """Return the log end of a broker, which verifies no checksum when it answers."""
    if query.on_corrupt == "raise":
        return view.log_end_offset
    bound = view.retry_if_changed(lambda: view.end_bound)
    if bound.error is not None:
        CorruptionHandler("stop", query.skipped).end_segment(bound.error, view.segments)
    return bound.offset


def _checked_version(query: ListOffsetQuery, broker: BrokerRules | None) -> int:
    """Return the request's version, if the broker supports it and the isolation."""
    oldest, newest = (1, NEWEST_VERSION) if broker is None else broker.list_offsets_versions
    oldest = max(oldest, 1)
    asked = query.request_version
    version = newest if asked is None else whole_number("request_version", asked)
    if version == 0:
        raise ArgumentValueError("request_version", "at least 1 (0: rules legacy)", version)
    if not oldest <= version <= newest:
        rules = query.choice.rules
        raise ArgumentValueError(
            "request_version", f"from {oldest} to {newest} for {rules}", version
        )
    if reads_committed(query.choice.isolation) and version < FIRST_VERSION_WITH_ISOLATION:
        raise ArgumentValueError(
            "isolation", f"read_uncommitted for request_version {version}", query.choice.isolation
        )
    return version


def _check_timestamp(
    timestamp: int, version: int, query: ListOffsetQuery, broker: BrokerRules | None
) -> None:
    """Raise if a timestamp is refused."""
    refuses = query.choice.rules == CORRECT if broker is None else (
        broker.other_negatives_are_refused
    )
    if timestamp < 0 and refuses:
        first = FIRST_VERSION_WITH.get(timestamp)
        known = broker is None or timestamp in broker.special_timestamps
        if first is None or not known:
            raise UnsupportedTimestampError(
                f"timestamp {timestamp} is not supported by rules {query.choice.rules} "
                "(error 35)"
            )
        if version < first:
            raise UnsupportedTimestampError(
                f"timestamp {timestamp} needs ListOffsets version {first} or newer, got {version} "
                "(error 35)"
            )
    text = query.message_format_version
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
    """Return whether a broker returns what its log layer found to a consumer."""
    if found is None:
        return False
    if not broker.found_offsets_are_below_the_bound:
        return found.offset <= high_watermark
    is_earliest = timestamp in (EARLIEST_TIMESTAMP, EARLIEST_LOCAL_TIMESTAMP)
    return found.offset < bound or (is_earliest and timestamp in broker.special_timestamps)


def _by_broker(
    view: LogView, timestamp: int, query: ListOffsetQuery, broker: BrokerRules
) -> TimestampAndOffset | None:
    """Return the answer of the broker's log layer, without bounds."""
    if timestamp >= 0 or timestamp not in broker.special_timestamps:
        choice = LookupChoice(query.choice.rules)
        return find_offset(view, timestamp, choice, query.on_corrupt, query.skipped)
    if timestamp == EARLIEST_TIMESTAMP:
        if broker.log_may_start_in_remote_storage:
            check_start(view)
        return _earliest(view, starting_offset_of(view, broker))
    if timestamp == MAX_TIMESTAMP:
        return _max_by_broker(view, broker)
    return _by_tiers(view, timestamp)


def _by_tiers(view: LogView, timestamp: int) -> TimestampAndOffset | None:
    """Answer what depends on which segments are here and which in remote storage."""
    if timestamp == EARLIEST_LOCAL_TIMESTAMP:
        return _earliest(view, view.local_log_start_offset)
    if timestamp == LATEST_TIERED_TIMESTAMP:
        return latest_tiered(view)
    if timestamp == EARLIEST_PENDING_UPLOAD_TIMESTAMP:
        return earliest_pending_upload(view)
    return None


def _earliest(view: LogView, start: int) -> TimestampAndOffset:
    """Return the log start offset, with the leader epoch that contains it if any."""
    epochs = [each.epoch for each in view.leader_epochs if each.start_offset <= start]
    return TimestampAndOffset(NO_TIMESTAMP, start, epochs[-1] if epochs else None)


def _max_by_broker(view: LogView, broker: BrokerRules) -> TimestampAndOffset | None:
    """Answer -3 by the first segment with the largest maximum, even if that is -1."""
    segments = broker_segments(view, broker)
    if not segments:
        return None
    segment = max(segments, key=lambda each: each.largest.timestamp)
    if not broker.max_timestamp_is_of_record:
        epoch = view.leader_epochs[-1].epoch if view.leader_epochs else None
        return TimestampAndOffset(*segment.largest, epoch)
    return _record_of_max(segment)


def _record_of_max(segment: BrokerSegment) -> TimestampAndOffset | None:
    """Return the record of the first batch whose header has the maximum.

    The search starts at the indexed position.
    """
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
    view: LogView, timestamp: int, query: ListOffsetQuery, bound: int
) -> TimestampAndOffset | None:
    """Return the correct answer, or the answer by the text of KIP-33."""
    choice = query.choice

    def find(target: int) -> TimestampAndOffset | None:
        found = find_offset(view, target, choice, query.on_corrupt, query.skipped)
        return found if found is not None and found.offset < bound else None

    if timestamp == EARLIEST_TIMESTAMP:
        check_start(view)
        return _earliest(view, view.log_start_offset)
    if timestamp >= 0 or choice.rules == KIP_33:
        return find(timestamp)
    if timestamp == MAX_TIMESTAMP:
        return _record_with_largest(view, find, choice.indexes)
    found = _by_tiers(view, timestamp)
    if timestamp == EARLIEST_PENDING_UPLOAD_TIMESTAMP and found is not None:
        return found if found.offset < bound else None
    return found


def _record_with_largest(
    view: LogView, find: Callable[[int], TimestampAndOffset | None], indexes: Indexes
) -> TimestampAndOffset | None:
    """Find the first record that has the largest timestamp.

    The maximum of a segment may belong to a marker or to a record that is gone, so this bisects for
    the last time that still finds a record.
    """
    lowest = 0
    if starts_in_remote_storage(view):
        lowest = (largest_remote_timestamp(view) or -1) + 1
    best = find(lowest)
    if best is None:
        # The lookup of the largest timestamp in remote storage says that it is there.
        return find(lowest - 1) if lowest else None
    stated = [segment.largest_record_timestamp(indexes) or 0 for segment in view.segments]
    highest = max(*stated, best.timestamp)
    middle = highest  # most logs have a record with this timestamp
    while best.timestamp < highest:
        found = find(middle)
        if found is None:
            highest = middle - 1
        else:
            best = found
        middle = (best.timestamp + highest + 1) // 2
    return find(best.timestamp)
