"""What brokers of different versions do differently with a log: one table.

Each field is one difference; a version's row is what the versions below say, in turn.

Source: Kafka 0.10.1 to 4.1, as each field says.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from kafkastore.errors import KafkaStoreError

_VERSION = re.compile(r"[0-9]{1,4}(\.[0-9]{1,4}){0,3}")
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
    metadata_log_is_recovered : bool
        Whether ``__cluster_metadata`` is a quorum's log, which is recovered whole at every start
        whatever the markers say. Since 2.8.0 (KIP-500).
    remote_index_cache_is_passed_over : bool
        Whether ``remote-log-index-cache`` may lie among the partitions. Since 3.5.0 (KIP-405).
    stray_directories_are_known : bool
        Whether a ``-stray`` directory may lie among the partitions; since 3.6.1 (KAFKA-15605).
    each_batch_is_indexed : bool
        Whether an index entry may be due at each batch of a set that is appended, and the segment's
        age counts from the first of them; before 3.9.1 the set counts as a whole, and once more in
        4.0.0 (KAFKA-806).
    partitions_have_topic_ids : bool
        Whether ``partition.metadata`` has the id of the topic. Since 2.8.0 (KIP-516).
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
    segments_know_earlier_producers : bool
        Whether a broker that goes over segments before one that it recovers knows in each what the
        earlier ones told of the producers. Since 2.8.0 (KAFKA-10832); before, an open transaction
        begins anew in each segment that has records of it, and coordinator epochs are forgotten.
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
    has_time_indexes : bool
        Whether offsets are looked up by the records' timestamps. Since 0.10.1 (KIP-33).
    has_log_start_offset : bool
        Whether a log may begin inside a segment, and nothing before is found. Since 0.11 (KIP-107).
    indexes_have_warm_section : bool
        Whether the last 8 KiB of an index are searched first. Since 2.1 (KAFKA-6432).
    found_offsets_are_below_the_bound : bool
        Whether an offset found by its time must lie below the high watermark, or for a reader of
        committed records below the last stable offset. Before 0.11.0.1 it may be the high watermark
        itself, whatever the isolation, and the log start offset is bounded, too (KAFKA-5522).
    last_stable_offset_is_of_batch : bool
        Whether the last stable offset is the first of its batch, where a transaction begins inside
        of one or before the log start offset. Since 4.0 (KAFKA-17803).
    lookups_tell_epochs : bool
        Whether an answer names the leader epoch. Since 2.2 (KIP-320); in 2.1 the response has the
        field, and it is empty.
    special_timestamps : tuple of int
        What else may be asked for than times: latest -1 and earliest -2; the largest timestamp -3
        since 3.0 (KIP-734), the earliest local offset -4 since 3.5 (KIP-405), the latest tiered -5
        since 3.9 (KIP-1005), the earliest that waits for its upload -6 since 4.2 (KIP-1023).
    max_timestamp_is_of_record : bool
        Whether -3 finds the first record that has the largest timestamp, and its leader epoch.
        Since 3.8 (KAFKA-16310); before, the answer is the offset that the time index would have,
        with the latest epoch, and (-1, base offset) without any timestamp.
    other_negatives_are_refused : bool
        Whether a negative timestamp that is not special, or not in this version of the request, is
        an error (UNSUPPORTED_VERSION), as since 3.9 (KIP-1005); before, it is a time like any
        other.
    old_formats_are_refused : bool
        Whether a topic with ``message.format.version`` before 0.10.0 is not searched
        (UNSUPPORTED_FOR_MESSAGE_FORMAT). Up to 3.9; 4.0 has no such option (KIP-724).
    earliest_local_in_old_formats : bool
        Whether -4 is answered nevertheless. From 3.5 to 3.8.
    list_offsets_versions : tuple of (int, int)
        First and last version of the ListOffsets request.
    missing_logs_begin_at_0 : bool
        Whether OffsetRequest v0 finds offset 0, as latest and earliest, and no other time, in a
        partition without a log. Up to 2.0; an error since 2.1 (KAFKA-7395).
    list_offsets_rows_are_kept : bool
        Whether a ListOffsets response has a row for every row of the request, in its order. From
        2.7 (KAFKA-9627) to 3.9 (KAFKA-15859); else there is one for each partition asked about.
    offsets_wait_for_high_watermark : bool
        Whether a leader whose high watermark is below where its epoch began says so
        (OFFSET_NOT_AVAILABLE) rather than tell a consumer an end that goes back. Since 2.2
        (KIP-207).
    other_brokers_partitions_are_known : bool
        Whether of a partition that is only on other brokers NOT_LEADER_OR_FOLLOWER is said, rather
        than UNKNOWN_TOPIC_OR_PARTITION, to who wants the leader. Since 2.0 (KAFKA-6796).
    any_replica_is_looked_up : bool
        Whether who is content with any replica (the debugging replica id) hears
        UNKNOWN_TOPIC_OR_PARTITION of what no broker has, as since 2.1 (KIP-320), rather than
        REPLICA_NOT_AVAILABLE.
    replica_not_available_is_said : bool
        Whether it hears REPLICA_NOT_AVAILABLE of what only other brokers have; since 2.6
        NOT_LEADER_OR_FOLLOWER (KAFKA-10223).
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
    each_batch_is_indexed: bool
    partitions_have_topic_ids: bool
    metadata_log_is_recovered: bool
    remote_index_cache_is_passed_over: bool
    stray_directories_are_known: bool
    retention_order: tuple[str, ...]
    retention_by_record_time: bool
    retention_below_high_watermark: bool
    retention_by_start_of_every_policy: bool
    markers_are_batches: bool
    markers_have_producer_time: bool
    replicas_check_markers: bool
    segments_know_earlier_producers: bool
    unknown_producers_begin_at_0: bool
    empty_transactions_complete: bool
    producer_expiration_ms: int
    has_time_indexes: bool
    has_log_start_offset: bool
    indexes_have_warm_section: bool
    found_offsets_are_below_the_bound: bool
    last_stable_offset_is_of_batch: bool
    lookups_tell_epochs: bool
    special_timestamps: tuple[int, ...]
    max_timestamp_is_of_record: bool
    other_negatives_are_refused: bool
    old_formats_are_refused: bool
    earliest_local_in_old_formats: bool
    list_offsets_versions: tuple[int, int]
    missing_logs_begin_at_0: bool
    list_offsets_rows_are_kept: bool
    offsets_wait_for_high_watermark: bool
    other_brokers_partitions_are_known: bool
    any_replica_is_looked_up: bool
    replica_not_available_is_said: bool


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
    ((2, 8), "segments_know_earlier_producers", True),
    ((2, 8), "recovery_point_waits_for_flush", True),
    ((2, 8), "empty_transactions_complete", False),
    ((2, 8), "partitions_have_topic_ids", True),
    ((2, 8), "metadata_log_is_recovered", True),
    ((3, 0), "swaps_are_renamed", True),
    ((3, 0), "every_recovery_finds_epochs", True),
    ((3, 0), "retention_order", ("start", "size", "time")),
    ((3, 4), "producer_expiration_ms", _DAY_MS),
    ((3, 5), "remote_index_cache_is_passed_over", True),
    ((3, 6, 1), "stray_directories_are_known", True),
    ((3, 8), "time_index_has_record_offset", False),
    ((3, 9, 1), "each_batch_is_indexed", True),
    ((4, 0), "each_batch_is_indexed", False),
    ((4, 0, 1), "each_batch_is_indexed", True),
    ((0, 10, 1), "has_time_indexes", True),
    ((0, 10, 1), "list_offsets_versions", (0, 1)),
    ((0, 11), "has_log_start_offset", True),
    ((0, 11), "list_offsets_versions", (0, 2)),
    ((0, 11, 0, 1), "found_offsets_are_below_the_bound", True),
    ((2, 0), "list_offsets_versions", (0, 3)),
    ((2, 1), "indexes_have_warm_section", True),
    ((2, 1), "list_offsets_versions", (0, 4)),
    ((2, 1), "missing_logs_begin_at_0", False),
    ((2, 2), "lookups_tell_epochs", True),
    ((2, 2), "list_offsets_versions", (0, 5)),
    ((2, 8), "list_offsets_versions", (0, 6)),
    ((3, 0), "special_timestamps", (-1, -2, -3)),
    ((3, 0), "list_offsets_versions", (0, 7)),
    ((3, 5), "special_timestamps", (-1, -2, -3, -4)),
    ((3, 5), "earliest_local_in_old_formats", True),
    ((3, 5), "list_offsets_versions", (0, 8)),
    ((3, 8), "max_timestamp_is_of_record", True),
    ((3, 9), "special_timestamps", (-1, -2, -3, -4, -5)),
    ((3, 9), "other_negatives_are_refused", True),
    ((3, 9), "earliest_local_in_old_formats", False),
    ((3, 9), "list_offsets_versions", (0, 9)),
    ((4, 0), "old_formats_are_refused", False),
    ((4, 0), "last_stable_offset_is_of_batch", True),
    ((4, 0), "list_offsets_versions", (1, 10)),
    ((4, 2), "special_timestamps", (-1, -2, -3, -4, -5, -6)),
    ((4, 2), "list_offsets_versions", (1, 11)),
    ((2, 0), "other_brokers_partitions_are_known", True),
    ((2, 1), "any_replica_is_looked_up", True),
    ((2, 2), "offsets_wait_for_high_watermark", True),
    ((2, 6), "replica_not_available_is_said", False),
    ((2, 7), "list_offsets_rows_are_kept", True),
    ((4, 0), "list_offsets_rows_are_kept", False),
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
    each_batch_is_indexed=False,
    partitions_have_topic_ids=False,
    metadata_log_is_recovered=False,
    remote_index_cache_is_passed_over=False,
    stray_directories_are_known=False,
    retention_order=("time", "size"),
    retention_by_record_time=False,
    retention_below_high_watermark=False,
    retention_by_start_of_every_policy=False,
    markers_are_batches=True,
    markers_have_producer_time=False,
    replicas_check_markers=True,
    segments_know_earlier_producers=False,
    unknown_producers_begin_at_0=True,
    empty_transactions_complete=True,
    producer_expiration_ms=7 * _DAY_MS,
    has_time_indexes=False,
    has_log_start_offset=False,
    indexes_have_warm_section=False,
    found_offsets_are_below_the_bound=False,
    last_stable_offset_is_of_batch=False,
    lookups_tell_epochs=False,
    special_timestamps=(-1, -2),
    max_timestamp_is_of_record=False,
    other_negatives_are_refused=False,
    old_formats_are_refused=True,
    earliest_local_in_old_formats=False,
    list_offsets_versions=(0, 0),
    missing_logs_begin_at_0=True,
    list_offsets_rows_are_kept=False,
    offsets_wait_for_high_watermark=False,
    other_brokers_partitions_are_known=False,
    any_replica_is_looked_up=False,
    replica_not_available_is_said=True,
)


#: The newest version that is known here; what a later one does is not.
NEWEST_KNOWN: KafkaVersion = max(since for since, _, _ in _CHANGES)

#: What the newest brokers known here do.
NEWEST = _BEFORE._replace(**{field: value for _, field, value in _CHANGES})  # type: ignore[arg-type]


def parse_version(text: str) -> KafkaVersion:
    """Parse a Kafka version such as ``2.4`` or ``0.10.2.2``.

    Parameters
    ----------
    text : str
        The version; ``4`` is the newest known one that begins so.

    Raises
    ------
    UnknownVersionError
        If the text is no version, or a later one than is known here: what that does is not known.

    Examples
    --------
    >>> parse_version("2.4") < parse_version("2.4.1") < parse_version("3.0") < parse_version("4")
    True
    """
    newest = ".".join(map(str, NEWEST_KNOWN))
    if not isinstance(text, str) or not _VERSION.fullmatch(text):
        raise UnknownVersionError(
            f"{text!r} is no Kafka version such as 2.4; known are 0.8 to {newest}"
        )
    version = tuple(int(part) for part in text.split("."))
    if version[: len(NEWEST_KNOWN)] > NEWEST_KNOWN:
        raise UnknownVersionError(
            f"Kafka {text} is newer than what is known here; known are 0.8 to {newest}"
        )
    if len(version) == 1:
        return max(since for since, _, _ in _CHANGES if since[0] <= version[0])
    return version


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
