"""Where a reader of committed records ends: in truth, and by a starting broker's account.

What a broker knows of producers is what its snapshots and its start tell it:

==============================  ===========================================================
the log directory               open transactions are
==============================  ===========================================================
clean, no producer snapshot     none: the broker does not read the log for them
clean, an ``.index`` missing    those that recovering that segment leaves
not clean                       those that its recovery leaves: it may forget some that began
                                before the log start, before 2.8 before each segment
otherwise, and ``correct``      those that the log has
==============================  ===========================================================

Source: Kafka 2.4.0 ``Log.rebuildProducerState``, ``Log.recoverSegment``; 4.1.1
``UnifiedLog.fetchLastStableOffsetMetadata``.
"""
from __future__ import annotations

from typing import TYPE_CHECKING

from kafkastore.log.bounds import find_last_stable
from kafkastore.log.lookup.rules import broker_rules
from kafkastore.versions import BrokerRules

if TYPE_CHECKING:
    from kafkastore.log.partition_log import PartitionLog


def last_stable_offset_of(log: PartitionLog, rules: str, high_watermark: int) -> int:
    """Find where a reader of committed records ends.

    Parameters
    ----------
    log : PartitionLog
        The partition.
    rules : str
        ``"correct"``, ``"kip-33"``, or a Kafka version from 0.10.1 on.
    high_watermark : int
        No transaction that was decided at or above it counts as decided.

    Returns
    -------
    int
        Exclusive.

    Raises
    ------
    KafkaStoreError
        If the broker would not start on the log, or the log is broken where it must be read.
    """
    known, key = log.last_stable_offsets, (rules, high_watermark)
    if key not in known:
        known[key] = _find(log, rules, high_watermark)
    return known[key]


def _find(log: PartitionLog, rules: str, high_watermark: int) -> int:
    broker = broker_rules(rules)
    if broker is None:
        return find_last_stable(log, high_watermark).offset
    if _loses_an_index(log) or _is_recovered(log):
        last_stable = _behind_recovery(log, rules, high_watermark)
    elif log.is_clean and not log.files.producer_snapshots:
        return high_watermark
    else:
        last_stable = find_last_stable(log, high_watermark).offset
    return _as_told(log, broker, last_stable, high_watermark)


def _loses_an_index(log: PartitionLog) -> bool:
    """Whether a broker that starts after a clean shutdown recovers a segment all the same."""
    return log.is_clean and any(
        segment.offset_index_path.name not in log.files for segment in log.segments
    )


def _is_recovered(log: PartitionLog) -> bool:
    """Whether the broker that is meant starts without a marker."""
    return log.log_dir is not None and not log.is_clean


def _behind_recovery(log: PartitionLog, rules: str, high_watermark: int) -> int:
    """Find the first unstable offset by what a recovery leaves of the producers."""
    from kafkastore.log.recovery import recover_log  # it takes a PartitionLog

    producers = recover_log(log, rules).producers
    producers.on_high_watermark(high_watermark)
    unstable = producers.first_unstable_offset
    if unstable is None:
        return high_watermark
    return min(high_watermark, max(unstable, log.log_start_offset))


def _as_told(
    log: PartitionLog, broker: BrokerRules, last_stable: int, high_watermark: int
) -> int:
    """Return what a broker says of an offset: since 4.0, the base offset of the batch with it."""
    if broker.last_stable_offset_is_of_batch and last_stable < high_watermark:
        for batch in log.batches(last_stable):
            return batch.base_offset
    return last_stable
