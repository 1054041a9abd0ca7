"""Find the last stable offset, by the log itself or as a starting broker has it.

A broker knows its producers from snapshots and from its recovery:

==============================  ===========================================================
the log directory               open transactions are
==============================  ===========================================================
clean, no producer snapshot     none: the broker does not read the log for them
clean, an ``.index`` missing    those after the recovery of that segment
not clean                       those after the recovery, which may lose some that began
                                before the log start; before 2.8, before each segment
otherwise, and ``correct``      those in the log
==============================  ===========================================================

Source: Kafka 2.4.0 ``Log.rebuildProducerState``, ``Log.recoverSegment``; 4.1.1
``UnifiedLog.fetchLastStableOffsetMetadata``.
"""
from __future__ import annotations

from kafkastore.log.bounds import find_last_stable
from kafkastore.log.log_view import LogView
from kafkastore.lookup.broker import broker_segments
from kafkastore.lookup.rules import broker_rules
from kafkastore.recovery.log_recovery import recover_log
from kafkastore.versions import BrokerRules


def last_stable_offset_of(view: LogView, rules: str, high_watermark: int) -> int:
    """Find the last stable offset by some rules; committed readers stop before it.

    Raise a `KafkaStoreError` if the broker would not start on the log, or if the log is corrupt
    where it must be read.
    """
    key = ("last_stable_offset_of", rules, high_watermark)
    found: int | None = view.facts.get(key)
    if found is None:
        found = view.facts.setdefault(key, _find(view, rules, high_watermark))
    return found


def _find(view: LogView, rules: str, high_watermark: int) -> int:
    broker = broker_rules(rules)
    if broker is None:
        return find_last_stable(view, high_watermark).offset
    if _loses_an_index(view) or _is_recovered(view):
        last_stable = _after_recovery(view, rules, high_watermark)
    elif view.is_clean and not view.files.producer_snapshots:
        return high_watermark
    else:
        last_stable = find_last_stable(view, high_watermark).offset
    return _reported_offset(view, broker, last_stable, high_watermark)


def _loses_an_index(view: LogView) -> bool:
    """Return whether a missing index causes a recovery after a clean shutdown."""
    return view.is_clean and any(
        segment.offset_index_path.name not in view.files for segment in view.segments
    )


def _is_recovered(view: LogView) -> bool:
    """Return whether the broker starts without a clean-shutdown marker."""
    return view.log_dir is not None and not view.is_clean


def _after_recovery(view: LogView, rules: str, high_watermark: int) -> int:
    """Find the last stable offset from the producers' state after a recovery."""
    producers = recover_log(view, rules).producers
    producers.on_high_watermark(high_watermark)
    unstable = producers.first_unstable_offset
    if unstable is None:
        return high_watermark
    return min(high_watermark, max(unstable, view.log_start_offset))


def _reported_offset(
    view: LogView, broker: BrokerRules, last_stable: int, high_watermark: int
) -> int:
    """Return the offset that a broker reports: since 4.0, its batch's base offset.

    The broker finds the batch by its offset index: if that is wrong, a later one.
    """
    if not broker.last_stable_offset_is_of_batch or last_stable >= high_watermark:
        return last_stable
    for seen in broker_segments(view, broker):
        if seen.segment.next_base_offset is None or seen.segment.next_base_offset > last_stable:
            with seen.segment.open_as_broker() as log:
                found = log.search_for_offset(last_stable, seen.position_of(last_stable))
                first = None if found is None else log.first_offset_at(found.position)
            if first is not None:
                return first
    return view.log_end_offset
