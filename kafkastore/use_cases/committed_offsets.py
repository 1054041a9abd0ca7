"""Read committed offsets from ``__consumer_offsets`` partitions.

The topic is compacted, but never completely: the last record of a key is valid, and a null value
deletes the key.

Only groups whose partition is in the store are found: a broker has the partitions that it leads or
follows. Offsets do not expire here; a broker writes a null value for an expired one.

Source: Kafka 2.4.0 ``GroupMetadataManager.doLoadGroupsAndOffsets``; 4.1.1
``OffsetMetadataManager.replay``.
"""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from kafkastore.arguments import check_collection
from kafkastore.errors import CorruptionError, KafkaStoreError
from kafkastore.formats.state.file_names import TopicPartition
from kafkastore.formats.topics.consumer_offsets import (
    OffsetAndMetadata,
    OffsetCommitKey,
    parse_offset_commit,
)
from kafkastore.log.damage import OnCorrupt, SkippedBytes
from kafkastore.store.log_store import LogStore
from kafkastore.store.partition_log import PartitionLog
from kafkastore.store.partition_path import FAILURES
from kafkastore.use_cases.last_records import Latest, about_record, last_records

CONSUMER_OFFSETS = "__consumer_offsets"


class NoCommittedOffsetsError(KafkaStoreError, LookupError):
    """The store has no committed offsets, or none of a requested group.

    Parameters
    ----------
    problem : str
        What is missing.
    group : str or None
        The group without offsets; None if the store has no ``__consumer_offsets``.
    """

    def __init__(self, problem: str, group: str | None = None) -> None:
        super().__init__(problem, group)
        self.problem, self.group = problem, group

    def __str__(self) -> str:
        return self.problem


def committed_offsets(
    store: LogStore,
    groups: Sequence[str] = (),
    *,
    unreadable: dict[TopicPartition, Exception] | None = None,
) -> dict[OffsetCommitKey, OffsetAndMetadata]:
    """Find committed offsets, sorted by group, topic and partition.

    No `groups` means all. Unreadable partitions raise, or go to `unreadable`. Raises
    NoCommittedOffsetsError without a ``__consumer_offsets`` partition or offsets of a given group.
    """
    check_collection("groups", groups)
    places = [each for each in store.partitions if each.topic == CONSUMER_OFFSETS]
    if not places:
        where = " and ".join(map(str, store.paths))
        raise NoCommittedOffsetsError(f"no partition of {CONSUMER_OFFSETS} in {where}")
    found: dict[OffsetCommitKey, OffsetAndMetadata] = {}
    for place in places:
        try:
            found.update(committed_in(store.partitions[place]))
        except FAILURES as error:
            if unreadable is None:
                raise
            unreadable[place] = error
    there = sorted({key.group for key in found})
    for group in groups:
        if group not in there:
            shown = ", ".join(there[:5]) + (", ..." if len(there) > 5 else "")
            raise NoCommittedOffsetsError(
                f"group {group} has no offset in the partitions of {CONSUMER_OFFSETS} here "
                f"({', '.join(str(place.partition) for place in places)}); groups that have: "
                f"{shown or 'none'}",
                group,
            )
    return {key: found[key] for key in sorted(found) if not groups or key.group in groups}


def committed_in(
    log: PartitionLog,
    on_corrupt: OnCorrupt = "raise",
    skipped: list[SkippedBytes] | None = None,
) -> dict[OffsetCommitKey, OffsetAndMetadata]:
    """Find one ``__consumer_offsets`` partition's committed offsets, by first write.

    `on_corrupt` and `skipped` are as for `PartitionLog.records`; unless "raise", unreadable keys
    and values are left out, and commits in skipped bytes are unknown.
    """
    return dict(_parsed(log, last_records(log, on_corrupt, skipped), on_corrupt))


def _parsed(
    log: PartitionLog, latest: Latest, on_corrupt: OnCorrupt
) -> Iterator[tuple[OffsetCommitKey, Any]]:
    """Parse the committed offsets in the last records of all keys."""
    for key_bytes, written in latest.items():
        if written.value is None:
            continue
        try:
            with about_record(log, written.offset):
                commit = parse_offset_commit(key_bytes, written.value)
        except CorruptionError:
            if on_corrupt == "raise":
                raise
            continue
        if commit is not None:
            yield commit
