"""What brokers of different versions do differently when they write and load a log: one table.

Each field is one difference; a version's row is what the versions below say, in turn.

Source: Kafka 0.10.1 to 4.1, as each field says.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from kafkastore.errors import KafkaStoreError

_VERSION = re.compile(r"[0-9]+(\.[0-9]+){1,3}")
_DAY_MS = 24 * 60 * 60 * 1000

KafkaVersion = tuple[int, ...]


class UnknownVersionError(KafkaStoreError, ValueError):
    """A text that is no Kafka version."""


class BrokerRules(NamedTuple):
    """What a broker of one version does.

    Parameters
    ----------
    first_epoch_recovered : int
        Smallest leader epoch that a recovery puts into the epoch checkpoint. 1 since 2.2.0
        (KAFKA-7897), 0 again since 2.7.0 (KAFKA-10432).
    offset_index_has_last_offset : bool
        Whether an offset index entry has the last offset of its batch, since 2.0.0 (KAFKA-6264);
        before, the first.
    indexes_checked_on_load : bool
        Whether an offset or time index that can't be right has its segment recovered at every
        start; no longer since 2.3.0 (KAFKA-7283). Before 2.0.0 an offset index was refused, too,
        whose last entry has the base offset.
    cleaned_files_void_swaps : bool
        Whether ``.swap`` files at or above a ``.cleaned`` one's base offset are dropped: of a split
        that was not finished. Since 2.0.0 (KAFKA-6264).
    swaps_are_renamed : bool
        Whether a ``.swap`` segment takes its place with its indexes, and without being recovered,
        as since 3.0.0 (KAFKA-12520).
    log_behind_its_start_is_dropped : bool
        Whether all segments go where the log would end below its start offset. Since 2.3.0
        (KAFKA-8306).
    snapshots_at_last_segments : bool
        Whether a log that is read for its producers gets snapshots at the base offsets of its last
        two segments alone, since 2.0.0; before, at that of every segment read.
    snapshots_follow_segments : bool
        Whether producer snapshots stay and go with the segments at whose base offset they were
        taken. Since 2.8.0 (KAFKA-9393).
    recovery_point_waits_for_flush : bool
        Whether recovering a log leaves its recovery point where it was. Since 2.8.0 (KAFKA-10101).
    every_recovery_finds_epochs : bool
        Whether a segment that is recovered for want of an index gives its leader epochs to the
        checkpoint, as one does that is recovered after an unclean shutdown. Since 3.0.0
        (KAFKA-12553).
    time_index_has_record_offset : bool
        Whether a leader's time index entry for an uncompressed CreateTime batch has the offset of
        the first record with the largest timestamp; since 3.8.0 (KAFKA-16310) always the last of
        its batch.
    retention_order : tuple of str
        In which order segments are judged: by ``time``, by ``size``, and since 0.11.0 by the log
        ``start`` offset (KIP-107); since 3.0.0 just the other way round (KAFKA-12177).
    retention_by_record_time : bool
        Whether the time is a segment's largest timestamp; before 0.10.1.0 (KIP-33) it is the
        modification time of the ``.log``.
    retention_below_high_watermark : bool
        Whether only segments that lie wholly below the high watermark may go. Since 0.11.0.1
        (KAFKA-5634).
    retention_by_start_of_every_policy : bool
        Whether segments below the log start offset go whatever ``cleanup.policy`` is. Since 2.1.0
        (KAFKA-7400); before, only with ``delete`` in it.
    markers_are_batches : bool
        Whether the end of a transaction counts as the last batch of its producer, with the sequence
        of the one before. In 0.11 alone, up to KAFKA-5494.
    markers_have_producer_time : bool
        Whether the end of a transaction counts as a sign of life of its producer. Since 2.4.1
        (KAFKA-9144); before, the time is that of the last batch.
    replicas_check_markers : bool
        Whether followers and recoveries, too, refuse a marker of an older producer epoch or
        coordinator epoch; up to 2.4.0 (KAFKA-9144).
    unknown_producers_begin_at_0 : bool
        Whether the first batch of a producer that the leader knows nothing of must have sequence
        0. Before 2.5.0 (KIP-360).
    empty_transactions_complete : bool
        Whether a marker without a transaction is one of its own, and in the transaction index if
        it aborts. Before 2.8.0 (KAFKA-10702).
    producer_expiration_ms : int
        After how long without a sign of life a producer is forgotten unless the broker's
        configuration has another time: 1 day since 3.4.0 (KAFKA-14097,
        ``producer.id.expiration.ms``), 7 before (``transactional.id.expiration.ms``).
    """

    first_epoch_recovered: int
    offset_index_has_last_offset: bool
    indexes_checked_on_load: bool
    cleaned_files_void_swaps: bool
    swaps_are_renamed: bool
    log_behind_its_start_is_dropped: bool
    snapshots_at_last_segments: bool
    snapshots_follow_segments: bool
    recovery_point_waits_for_flush: bool
    every_recovery_finds_epochs: bool
    time_index_has_record_offset: bool
    retention_order: tuple[str, ...]
    retention_by_record_time: bool
    retention_below_high_watermark: bool
    retention_by_start_of_every_policy: bool
    markers_are_batches: bool
    markers_have_producer_time: bool
    replicas_check_markers: bool
    unknown_producers_begin_at_0: bool
    empty_transactions_complete: bool
    producer_expiration_ms: int


_CHANGES: tuple[tuple[KafkaVersion, str, object], ...] = (
    ((0, 10, 1), "retention_by_record_time", True),
    ((0, 11), "retention_order", ("time", "size", "start")),
    ((0, 11, 0, 1), "retention_below_high_watermark", True),
    ((2, 0), "offset_index_has_last_offset", True),
    ((2, 0), "cleaned_files_void_swaps", True),
    ((2, 0), "snapshots_at_last_segments", True),
    ((1, 0), "markers_are_batches", False),
    ((2, 1), "retention_by_start_of_every_policy", True),
    ((2, 2), "first_epoch_recovered", 1),
    ((2, 3), "indexes_checked_on_load", False),
    ((2, 3), "log_behind_its_start_is_dropped", True),
    ((2, 4, 1), "markers_have_producer_time", True),
    ((2, 4, 1), "replicas_check_markers", False),
    ((2, 5), "unknown_producers_begin_at_0", False),
    ((2, 7), "first_epoch_recovered", 0),
    ((2, 8), "snapshots_follow_segments", True),
    ((2, 8), "recovery_point_waits_for_flush", True),
    ((2, 8), "empty_transactions_complete", False),
    ((3, 0), "swaps_are_renamed", True),
    ((3, 0), "every_recovery_finds_epochs", True),
    ((3, 0), "retention_order", ("start", "size", "time")),
    ((3, 4), "producer_expiration_ms", _DAY_MS),
    ((3, 8), "time_index_has_record_offset", False),
)
_BEFORE = BrokerRules(
    first_epoch_recovered=0,
    offset_index_has_last_offset=False,
    indexes_checked_on_load=True,
    cleaned_files_void_swaps=False,
    swaps_are_renamed=False,
    log_behind_its_start_is_dropped=False,
    snapshots_at_last_segments=False,
    snapshots_follow_segments=False,
    recovery_point_waits_for_flush=False,
    every_recovery_finds_epochs=False,
    time_index_has_record_offset=True,
    retention_order=("time", "size"),
    retention_by_record_time=False,
    retention_below_high_watermark=False,
    retention_by_start_of_every_policy=False,
    markers_are_batches=True,
    markers_have_producer_time=False,
    replicas_check_markers=True,
    unknown_producers_begin_at_0=True,
    empty_transactions_complete=True,
    producer_expiration_ms=7 * _DAY_MS,
)


#: What the newest brokers known here do.
NEWEST = _BEFORE._replace(**{field: value for _, field, value in _CHANGES})  # type: ignore[arg-type]


def parse_version(text: str) -> KafkaVersion:
    """Parse a Kafka version such as ``2.4`` or ``0.10.2.2``.

    Raises
    ------
    UnknownVersionError
        If the text is no version.

    Examples
    --------
    >>> parse_version("2.4") < parse_version("2.4.1") < parse_version("3.0")
    True
    """
    if not isinstance(text, str) or not _VERSION.fullmatch(text):
        raise UnknownVersionError(f"{text!r} is no Kafka version such as 2.4 or 3.9.1")
    return tuple(int(part) for part in text.split("."))


def rules_of(version: str) -> BrokerRules:
    """Return what brokers of a version do.

    Parameters
    ----------
    version : str
        Such as ``2.4``; a version between two that are known here does what the older did.

    Raises
    ------
    UnknownVersionError
        If the text is no version.

    Examples
    --------
    >>> rules_of("2.4").first_epoch_recovered, rules_of("4.1").first_epoch_recovered
    (1, 0)
    """
    parsed = parse_version(version)
    changed = {field: value for since, field, value in _CHANGES if parsed >= since}
    return _BEFORE._replace(**changed)  # type: ignore[arg-type]
