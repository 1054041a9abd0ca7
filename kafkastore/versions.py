"""Changes between versions of Kafka: one table, a rule a row.

`rules_of` answers what the brokers of one version do. ``docs/versions.md`` shows the whole table.

Source: Kafka 0.10.1 to 4.3, as the KIP or KAFKA number of each change says.
"""

from __future__ import annotations

import dataclasses
import re
from functools import cache
from typing import Any, NamedTuple

from kafkastore.errors import KafkaStoreError

#: The newest version that this table covers, and the default wherever the newest one is meant.
NEWEST_VERSION = "4.3"

#: The newest version with OffsetRequest v0, and the default for legacy answers.
NEWEST_LEGACY_VERSION = "3.9"

_DAY_MS = 24 * 60 * 60 * 1000
_VERSION = re.compile(r"[0-9]{1,4}(\.[0-9]{1,4}){0,3}")

KafkaVersion = tuple[int, ...]


class UnknownVersionError(KafkaStoreError, ValueError):
    """A text that is not a Kafka version, or a version newer than the table."""


class Change(NamedTuple):
    """The value of a rule from one version on.

    Parameters
    ----------
    since : str
        The first version with this value.
    value : object
        The value.
    reference : str
        The KIP or KAFKA number of the change; empty where only the source code shows it.
    """

    since: str
    value: object
    reference: str = ""


class Rule(NamedTuple):
    """One difference between versions.

    Parameters
    ----------
    meaning : str
        What the value says.
    first_value : object
        The value in the oldest versions.
    changes : tuple of Change
        By version, the oldest first.
    """

    meaning: str
    first_value: object
    changes: tuple[Change, ...]

    def value_in(self, version: KafkaVersion) -> object:
        """Return the value of the last change that is not above a version."""
        value = self.first_value
        for change in self.changes:
            if _numbers(change.since) > version:
                break
            value = change.value
        return value


def _rule(meaning: str, first_value: object, *changes: tuple[str, object, str]) -> Any:
    """Return a field of `BrokerRules`."""
    rows = tuple(Change(*change) for change in changes)
    return dataclasses.field(metadata={"rule": Rule(meaning, first_value, rows)})


@dataclasses.dataclass(frozen=True)
class BrokerRules:
    """The rules of one version's brokers; each field is a row of the table."""

    # Recovery of segments and logs
    first_epoch_recovered: int = _rule(
        "The smallest leader epoch that a recovery writes to the leader epoch checkpoint.",
        0, ("2.2", 1, "KAFKA-7897"), ("2.7", 0, "KAFKA-10432"),
    )
    offset_index_has_last_offset: bool = _rule(
        "An entry of the offset index has the last offset of its batch, not the first.",
        False, ("2.0", True, "KAFKA-6264"),
    )
    indexes_checked_on_load: bool = _rule(
        "A segment whose offset or time index fails its sanity check is recovered at every start. "
        "Before 2.0 an offset index whose last entry has the base offset fails it, too.",
        True, ("2.3", False, "KAFKA-7283"),
    )
    cleaned_files_void_swaps: bool = _rule(
        "`.swap` files at or above the base offset of a `.cleaned` file are deleted: they belong "
        "to a split that was not completed.",
        False, ("2.0", True, "KAFKA-6264"),
    )
    swaps_are_renamed: bool = _rule(
        "A `.swap` segment replaces the old segments together with its indexes, without a "
        "recovery.",
        False, ("3.0", True, "KAFKA-12520"),
    )
    log_below_its_start_is_deleted: bool = _rule(
        "All segments are deleted if the log would end below its log start offset.",
        False, ("2.3", True, "KAFKA-8306"),
    )
    snapshots_at_last_segments: bool = _rule(
        "Rebuilding the producer state writes snapshots at the base offsets of the last two "
        "segments only, not at that of every segment read.",
        False, ("2.0", True, ""),
    )
    snapshots_follow_segments: bool = _rule(
        "A producer snapshot is kept and deleted together with the segment at whose base offset "
        "it was taken.",
        False, ("2.8", True, "KAFKA-9393"),
    )
    recovery_point_waits_for_flush: bool = _rule(
        "Recovering a log leaves its recovery point unchanged.",
        False, ("2.8", True, "KAFKA-10101"),
    )
    every_recovery_finds_epochs: bool = _rule(
        "A segment that is recovered because an index is missing updates the leader epoch "
        "checkpoint, like one that is recovered after an unclean shutdown.",
        False, ("3.0", True, "KAFKA-12553"),
    )
    search_reads_first_offset: bool = _rule(
        "A search for an offset also reads the first offset of the batch that it finds: a broker "
        "decompresses that batch if it has an old format, and does not start if it can't.",
        False, ("4.0", True, "KAFKA-17803"),
    )
    search_reads_all_first_offsets: bool = _rule(
        "It reads those of all batches from the entry of the offset index on.",
        False, ("4.1", True, "KAFKA-18989"),
    )

    # Appends
    time_index_has_record_offset: bool = _rule(
        "A leader's time index entry for an uncompressed CreateTime batch has the offset of the "
        "first record with the largest timestamp, not the last offset of the batch.",
        True, ("3.8", False, "KAFKA-16310"),
    )
    each_batch_is_indexed: bool = _rule(
        "An index entry may be due at each batch of an appended set, and the segment's age counts "
        "from the first batch; otherwise the set counts as a whole.",
        False, ("3.9.1", True, "KAFKA-806"), ("4.0", False, ""), ("4.0.1", True, "KAFKA-806"),
    )

    # Log directories
    partitions_have_topic_ids: bool = _rule(
        "`partition.metadata` has the id of the topic.",
        False, ("2.8", True, "KIP-516"),
    )
    metadata_log_is_recovered: bool = _rule(
        "`__cluster_metadata` is the log of a quorum: it is recovered as a whole at every start, "
        "also after a clean shutdown.",
        False, ("2.8", True, "KIP-500"),
    )
    remote_index_cache_is_skipped: bool = _rule(
        "`remote-log-index-cache` may be among the partition directories.",
        False, ("3.5", True, "KIP-405"),
    )
    stray_directories_are_known: bool = _rule(
        "A `-stray` directory may be among the partition directories.",
        False, ("3.6.1", True, "KAFKA-15605"),
    )
    stray_logs_are_renamed: bool = _rule(
        "A log that KRaft's metadata does not assign to the broker is renamed to `-stray` at a "
        "start; before, it is deleted.",
        False, ("3.7", True, "KAFKA-14616"),
    )
    needs_kraft: bool = _rule(
        "Brokers run with KRaft only: a new `meta.properties` has version 1, with `node.id` and "
        "`directory.id`, not version 0 with `broker.id`.",
        False, ("4.0", True, "KIP-500"),
    )

    # Retention
    retention_order: tuple[str, ...] = _rule(
        "The order in which a segment is checked: by `time`, by `size`, by log `start` offset.",
        ("time", "size"),
        ("0.11", ("time", "size", "start"), "KIP-107"),
        ("3.0", ("start", "size", "time"), "KAFKA-12177"),
    )
    retention_by_record_time: bool = _rule(
        "The time of a segment is its largest timestamp, not the modification time of its `.log`.",
        False, ("0.10.1", True, "KIP-33"),
    )
    retention_below_high_watermark: bool = _rule(
        "Only segments wholly below the high watermark are deleted.",
        False, ("0.11.0.1", True, "KAFKA-5634"),
    )
    retention_by_start_of_every_policy: bool = _rule(
        "Segments below the log start offset are deleted whatever `cleanup.policy` is, not only "
        "if it contains `delete`.",
        False, ("2.1", True, "KAFKA-7400"),
    )

    # Producers and transactions
    markers_are_batches: bool = _rule(
        "A transaction marker counts as the last batch of its producer, with the sequence of the "
        "batch before it.",
        True, ("1.0", False, "KAFKA-5494"),
    )
    markers_have_producer_time: bool = _rule(
        "A transaction marker updates the last timestamp of its producer; otherwise that is the "
        "timestamp of the producer's last batch.",
        False, ("2.4.1", True, "KAFKA-9144"),
    )
    replicas_check_markers: bool = _rule(
        "Followers and recoveries, too, refuse a marker of an older producer epoch or coordinator "
        "epoch.",
        True, ("2.4.1", False, "KAFKA-9144"),
    )
    segments_know_earlier_producers: bool = _rule(
        "A broker that reads the segments before one that it recovers keeps the producer state "
        "from segment to segment. Otherwise an open transaction starts again in each segment that "
        "has records of it, and coordinator epochs are lost.",
        False, ("2.8", True, "KAFKA-10832"),
    )
    markers_raise_epochs: bool = _rule(
        "A leader refuses a marker of transaction version 2 with the producer epoch of the "
        "transaction that it ends: the coordinator raises the epoch with each marker.",
        False, ("4.2", True, "KIP-1228"),
    )
    markers_may_repeat_last_epoch: bool = _rule(
        "Such a marker may have the same epoch if that is the last one, 32767. Otherwise the "
        "transaction stays open.",
        False, ("4.3", True, "KAFKA-20090"),
    )
    unknown_producers_begin_at_0: bool = _rule(
        "The first batch of a producer that the leader does not know must have sequence 0.",
        True, ("2.5", False, "KIP-360"),
    )
    empty_transactions_complete: bool = _rule(
        "A marker without a transaction completes an empty transaction, which is in the "
        "transaction index if it aborts.",
        True, ("2.8", False, "KAFKA-10702"),
    )
    producer_expiration_ms: int = _rule(
        "The default time after which an idle producer is removed: "
        "`transactional.id.expiration.ms`, later `producer.id.expiration.ms`.",
        7 * _DAY_MS, ("3.4", _DAY_MS, "KAFKA-14097"),
    )

    # Lookups by time
    has_time_indexes: bool = _rule(
        "Offsets are found by the timestamps of records.",
        False, ("0.10.1", True, "KIP-33"),
    )
    has_log_start_offset: bool = _rule(
        "A log may start inside a segment, and nothing before the log start offset is found.",
        False, ("0.11", True, "KIP-107"),
    )
    log_may_start_in_remote_storage: bool = _rule(
        "The log of a topic with remote storage may start before its first segment, at its "
        "checkpointed log start offset; times are looked up in remote segments first.",
        False, ("3.6", True, "KIP-405"),
    )
    indexes_have_warm_section: bool = _rule(
        "The last 8 KiB of an index are searched first.",
        False, ("2.1", True, "KAFKA-6432"),
    )
    found_offsets_are_below_the_bound: bool = _rule(
        "An offset found by time must be below the high watermark, or with read_committed below "
        "the last stable offset. Otherwise it may be the high watermark itself at either "
        "isolation level, and the bound applies to the log start offset, too.",
        False, ("0.11.0.1", True, "KAFKA-5522"),
    )
    last_stable_offset_is_of_batch: bool = _rule(
        "The last stable offset is the first offset of its batch if a transaction starts inside a "
        "batch or before the log start offset.",
        False, ("4.0", True, "KAFKA-17803"),
    )
    lookups_return_leader_epochs: bool = _rule(
        "An answer has the leader epoch. In 2.1 the response has the field, and it is empty.",
        False, ("2.2", True, "KIP-320"),
    )
    special_timestamps: tuple[int, ...] = _rule(
        "The special timestamps: latest -1, earliest -2, largest timestamp "
        "-3, earliest local offset -4, latest tiered offset -5, earliest pending upload -6.",
        (-1, -2),
        ("3.0", (-1, -2, -3), "KIP-734"),
        ("3.5", (-1, -2, -3, -4), "KIP-405"),
        ("3.9", (-1, -2, -3, -4, -5), "KIP-1005"),
        ("4.2", (-1, -2, -3, -4, -5, -6), "KIP-1023"),
    )
    max_timestamp_is_of_record: bool = _rule(
        "-3 finds the first record with the largest timestamp, and its leader epoch. Otherwise "
        "the answer is the offset of the time index entry with the latest epoch, and (-1, base "
        "offset) if there is no timestamp.",
        False, ("3.8", True, "KAFKA-16310"),
    )
    other_negatives_are_refused: bool = _rule(
        "A negative timestamp that is not special, or not in this version of the request, is an "
        "error (UNSUPPORTED_VERSION); otherwise it is a time like any other.",
        False, ("3.9", True, "KIP-1005"),
    )
    old_formats_are_refused: bool = _rule(
        "A topic with `message.format.version` before 0.10.0 is not searched by time "
        "(UNSUPPORTED_FOR_MESSAGE_FORMAT).",
        True, ("4.0", False, "KIP-724"),
    )
    earliest_local_in_old_formats: bool = _rule(
        "-4 is answered for such a topic nevertheless.",
        False, ("3.5", True, "KIP-405"), ("3.9", False, ""),
    )

    # Requests
    list_offsets_versions: tuple[int, int] = _rule(
        "The first and last version of the ListOffsets request.",
        (0, 0),
        ("0.10.1", (0, 1), "KIP-79"),
        ("0.11", (0, 2), "KIP-98"),
        ("2.0", (0, 3), "KIP-219"),
        ("2.1", (0, 4), "KIP-320"),
        ("2.2", (0, 5), "KIP-207"),
        ("2.8", (0, 6), "KIP-482"),
        ("3.0", (0, 7), "KIP-734"),
        ("3.5", (0, 8), "KIP-405"),
        ("3.9", (0, 9), "KIP-1005"),
        ("4.0", (1, 10), "KIP-896, KIP-1075"),
        ("4.2", (1, 11), "KIP-1023"),
    )
    missing_logs_begin_at_0: bool = _rule(
        "OffsetRequest v0 answers offset 0 for latest and earliest in a partition without a log, "
        "and nothing for any other time; otherwise an error.",
        True, ("2.1", False, "KAFKA-7395"),
    )
    list_offsets_rows_are_kept: bool = _rule(
        "A ListOffsets response has a row for every row of the request, in its order; otherwise "
        "one for each partition.",
        False, ("2.7", True, "KAFKA-9627"), ("4.0", False, "KAFKA-15859"),
    )
    offsets_wait_for_high_watermark: bool = _rule(
        "A leader whose high watermark is below the start of its epoch answers "
        "OFFSET_NOT_AVAILABLE instead of an end offset that goes back.",
        False, ("2.2", True, "KIP-207"),
    )
    other_brokers_partitions_are_known: bool = _rule(
        "A request to the leader for a partition that only other brokers have gets "
        "NOT_LEADER_OR_FOLLOWER, not UNKNOWN_TOPIC_OR_PARTITION.",
        False, ("2.0", True, "KAFKA-6796"),
    )
    any_replica_is_looked_up: bool = _rule(
        "A request to any replica (the debugging replica id) for a partition that no broker has "
        "gets UNKNOWN_TOPIC_OR_PARTITION, not REPLICA_NOT_AVAILABLE.",
        False, ("2.1", True, "KIP-320"),
    )
    replica_not_available_is_returned: bool = _rule(
        "Such a request for a partition that only other brokers have gets REPLICA_NOT_AVAILABLE, "
        "not NOT_LEADER_OR_FOLLOWER.",
        True, ("2.6", False, "KAFKA-10223"),
    )


#: Every rule by the name of its field.
RULES: dict[str, Rule] = {
    each.name: each.metadata["rule"] for each in dataclasses.fields(BrokerRules)
}


def parse_version(text: str) -> KafkaVersion:
    """Parse a Kafka version such as ``2.4`` or ``0.10.2.2`` to a comparable tuple.

    ``4`` is the newest 4.x of the table. Raises `UnknownVersionError` if the text is not a version,
    or one newer than `NEWEST_VERSION`.

    >>> parse_version("2.4") < parse_version("2.4.1") < parse_version("3.0") < parse_version("4")
    True
    """
    if not isinstance(text, str) or not _VERSION.fullmatch(text):
        raise UnknownVersionError(
            f"version must be a Kafka version such as 2.4, got {text!r}; known are 0.8 to "
            f"{NEWEST_VERSION}"
        )
    version, newest = _numbers(text), _numbers(NEWEST_VERSION)
    if version[: len(newest)] > newest:
        raise UnknownVersionError(
            f"Kafka {text} is newer than the newest known version, {NEWEST_VERSION}"
        )
    if version == newest[:1]:
        return newest
    if len(version) == 1:
        changes = (change for rule in RULES.values() for change in rule.changes)
        return max(since for each in changes if (since := _numbers(each.since))[0] <= version[0])
    return version


def rules_of(version: str) -> BrokerRules:
    """Return what the brokers of a version, such as ``2.4``, do.

    A version between two changes of a rule has the value of the older one. Raises
    `UnknownVersionError` as `parse_version`.

    >>> rules_of("2.4").first_epoch_recovered, rules_of("4.1").first_epoch_recovered
    (1, 0)
    """
    return _rules_in(parse_version(version))


@cache
def _rules_in(version: KafkaVersion) -> BrokerRules:
    values: dict[str, Any] = {name: rule.value_in(version) for name, rule in RULES.items()}
    return BrokerRules(**values)


def _numbers(version: str) -> KafkaVersion:
    return tuple(map(int, version.split(".")))


#: The rules of the newest brokers.
NEWEST = rules_of(NEWEST_VERSION)
