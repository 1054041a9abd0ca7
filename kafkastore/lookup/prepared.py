"""Prepare a lookup by any rules once for a log, and use it for one time or many."""
from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kafkastore.errors import ArgumentValueError, CorruptionError, InRemoteSegmentError
from kafkastore.formats.indexes.entries import (
    IN_REMOTE_STORAGE,
    TIMESTAMP_AND_OFFSET,
    TimestampAndOffset,
    as_targets,
)
from kafkastore.log.damage import CorruptionHandler, OnCorrupt, SkippedBytes
from kafkastore.log.isolation import reads_committed
from kafkastore.log.log_view import LogView
from kafkastore.lookup import broker, correct, kip_33, legacy
from kafkastore.lookup.checking_ahead import check_ahead
from kafkastore.lookup.last_stable_offset import last_stable_offset_of
from kafkastore.lookup.mtime_search import MtimeLookup
from kafkastore.lookup.past_damage import find_past_damage
from kafkastore.lookup.remote import NOT_HERE, RemoteLookup, starts_in_remote_storage
from kafkastore.lookup.rules import (
    CORRECT,
    KIP_33,
    LEGACY,
    LookupChoice,
    broker_rules,
    check_isolation_is_known,
)
from kafkastore.lookup.segments_by_time import NO_END, Lookup, SegmentsByTime, as_entry
from kafkastore.segment.index_trust import check_indexes


def lookup_of(view: LogView, choice: LookupChoice) -> Lookup:
    """Return the lookup by these rules; it is prepared once after each refresh."""
    facts = view.facts
    lookup: Lookup | None = facts.get(choice)
    if lookup is None:
        lookup = facts.setdefault(choice, _prepare(view, choice))
    return lookup


def _prepare(view: LogView, choice: LookupChoice) -> Lookup:
    """Prepare the lookup by these rules; no segment is searched yet.

    ``read_committed`` reads batches for the last stable offset. Raise `UnknownRulesError`, or
    `ValueError` for another unknown option or an isolation that the rules do not support.
    """
    rules = broker_rules(choice.rules)
    check_indexes(choice.indexes)
    committed = reads_committed(choice.isolation)
    check_isolation_is_known(choice, rules)
    if choice.untimed not in (None, "segment"):
        raise ArgumentValueError("untimed", "None or 'segment'", choice.untimed)
    end = NO_END
    if committed:
        end = last_stable_offset_of(view, choice.rules, view.high_watermark)
    # A module for each of the rules, and one for all versions.
    by_name: dict[str, Callable[[LogView, LookupChoice, int], Lookup]] = {
        CORRECT: correct.prepare, KIP_33: kip_33.prepare, LEGACY: legacy.prepare,
    }
    lookup = by_name.get(choice.rules, broker.prepare)(view, choice, end)
    if (
        (choice.rules == CORRECT or (rules and rules.log_may_start_in_remote_storage))
        and starts_in_remote_storage(view)
    ):
        return RemoteLookup(view, lookup, by_broker=choice.rules != CORRECT)
    # `legacy` goes by modification times in any case.
    if choice.untimed is None or not isinstance(lookup, SegmentsByTime):
        return lookup
    return MtimeLookup(
        lookup, view, lookup.end_offset, choice.indexes, past_damage=choice.past_damage
    )


def find_offset(
    view: LogView,
    target_timestamp: int,
    choice: LookupChoice,
    on_corrupt: OnCorrupt = "raise",
    skipped: list[SkippedBytes] | None = None,
) -> TimestampAndOffset | None:
    """Find the offset for a time; see `PartitionLog.offset_for_timestamp`."""
    try:
        return view.retry_if_changed(lambda: lookup_of(view, choice).find(target_timestamp))
    except CorruptionError as error:
        if on_corrupt == "raise":
            raise
        if choice.rules == CORRECT:
            return find_past_damage(view, target_timestamp, choice, on_corrupt, skipped)
        found = lookup_of(view, choice._replace(past_damage=True)).find(target_timestamp)
        CorruptionHandler("stop", skipped).end_segment(error, view.segments)
        return found


def find_offsets(
    view: LogView,
    target_timestamps: ArrayLike,
    choice: LookupChoice,
    on_corrupt: OnCorrupt = "raise",
    skipped: list[SkippedBytes] | None = None,
    remote: dict[int, InRemoteSegmentError] | None = None,
    threads: int = 1,
) -> NDArray[np.void]:
    """Find the offsets for many times; see `PartitionLog.offsets_for_timestamps`."""
    remote = {} if remote is None else remote
    asked = as_targets(target_timestamps)
    if asked.size and choice not in view.facts:
        check_ahead([(view, int(asked.max()))], choice, threads)
    try:
        return view.retry_if_changed(lambda: _find_many(view, target_timestamps, choice, remote))
    except CorruptionError:
        if on_corrupt == "raise":
            raise
        targets = as_targets(target_timestamps).ravel()
        found = np.empty(len(targets), TIMESTAMP_AND_OFFSET)
        for slot, target in enumerate(targets.tolist()):
            try:
                answer = find_offset(view, target, choice, on_corrupt, skipped)
            except InRemoteSegmentError as error:
                remote[target] = error
                found[slot] = NOT_HERE
            else:
                found[slot] = as_entry(answer)
        return found


def _find_many(
    view: LogView,
    target_timestamps: ArrayLike,
    choice: LookupChoice,
    remote: dict[int, InRemoteSegmentError],
) -> NDArray[np.void]:
    """Find the offsets for many times, and add the remote segments of those not here."""
    lookup = lookup_of(view, choice)
    found = lookup.find_many(target_timestamps)
    if isinstance(lookup, RemoteLookup):
        targets = as_targets(target_timestamps).ravel()
        for target in set(targets[found["offset"] == IN_REMOTE_STORAGE].tolist()):
            outcome = lookup.remote_outcome(target)
            assert outcome is not None  # the same files
            remote[target] = outcome
    return found
