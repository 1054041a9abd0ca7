"""Read committed offsets from ``__consumer_offsets`` partitions.

The topic is compacted, but never completely: the last record of a key is valid, and a null value
deletes the key. Offsets sent in a transaction take effect at its COMMIT marker, which may follow
later records of the same key; the transaction does not replace a later record.

Only groups whose partition is in the store are found: a broker has the partitions that it leads or
follows. Offsets do not expire here; a broker writes a null value for an expired one.

Source: Kafka 2.4.0 ``GroupMetadataManager.doLoadGroupsAndOffsets``; 4.1.1
``OffsetMetadataManager.replay``, ``replayEndTransactionMarker``.
"""
from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kafkastore.arguments import check_collection
from kafkastore.errors import CorruptBatchError, CorruptionError, KafkaStoreError
from kafkastore.formats.records.control_records import ControlRecordType
from kafkastore.formats.state.file_names import TopicPartition
from kafkastore.formats.topics.consumer_offsets import (
    OffsetAndMetadata,
    OffsetCommitKey,
    parse_offset_commit,
)
from kafkastore.log.damage import OnCorrupt, SkippedBytes
from kafkastore.store.log_store import LogStore
from kafkastore.store.partition_log import PartitionLog

CONSUMER_OFFSETS = "__consumer_offsets"

_COLUMNS = ("key", "value", "offset", "producer_id", "is_transactional", "is_control")


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


class _Written(NamedTuple):
    """The last record of a key; if `value` is None, the key was deleted."""

    offset: int
    value: bytes | None


Latest = dict[bytes, _Written]


def committed_offsets(
    store: LogStore,
    groups: Sequence[str] = (),
    *,
    unreadable: dict[TopicPartition, CorruptionError] | None = None,
) -> dict[OffsetCommitKey, OffsetAndMetadata]:
    """Find committed offsets, sorted by group, topic and partition.

    No `groups` means all. Corrupt partitions raise, or go to `unreadable`. Raises
    NoCommittedOffsetsError without a ``__consumer_offsets`` partition or offsets of a given group.
    """
    check_collection("groups", groups)
    logs = [store.partitions[each] for each in store.partitions if each.topic == CONSUMER_OFFSETS]
    if not logs:
        where = " and ".join(map(str, store.paths))
        raise NoCommittedOffsetsError(f"no partition of {CONSUMER_OFFSETS} in {where}")
    found: dict[OffsetCommitKey, OffsetAndMetadata] = {}
    for log in logs:
        try:
            found.update(committed_in(log))
        except CorruptionError as error:
            if unreadable is None:
                raise
            unreadable[log.topic_partition] = error
    there = sorted({key.group for key in found})
    for group in groups:
        if group not in there:
            shown = ", ".join(there[:5]) + (", ..." if len(there) > 5 else "")
            raise NoCommittedOffsetsError(
                f"group {group} has no offset in the partitions of {CONSUMER_OFFSETS} here "
                f"({', '.join(str(log.partition) for log in logs)}); groups that have: "
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
    latest = log.retry_if_changed(partial(_latest, log, on_corrupt, skipped))
    return dict(_parsed(log, latest, on_corrupt))


def _parsed(
    log: PartitionLog, latest: Latest, on_corrupt: OnCorrupt
) -> Iterator[tuple[OffsetCommitKey, Any]]:
    """Parse the committed offsets in the last records of all keys."""
    for key_bytes, written in latest.items():
        if written.value is None:
            continue
        try:
            commit = parse_offset_commit(key_bytes, written.value)
            if commit is not None:
                yield commit
        except CorruptionError as error:
            if on_corrupt != "raise":
                continue
            raise CorruptionError(
                f"the record at offset {written.offset} of {log.topic_partition} can't be read: "
                f"{error}",
                path=log.path,
            ) from error


def _latest(
    log: PartitionLog, on_corrupt: OnCorrupt, skipped: list[SkippedBytes] | None
) -> Latest:
    """Find the last record of each key, with transactions applied, batch by batch."""
    latest: Latest = {}
    pending: dict[int, Latest] = {}
    for batch in log.to_arrow(
        _COLUMNS, include_control=True, on_corrupt=on_corrupt, skipped=skipped
    ):
        columns: Mapping[str, Any] = {name: batch.column(name) for name in _COLUMNS}
        offsets = columns["offset"].to_numpy()
        producers = columns["producer_id"].to_numpy()
        in_transaction = columns["is_transactional"].to_numpy(zero_copy_only=False)
        markers = np.flatnonzero(columns["is_control"].to_numpy(zero_copy_only=False))
        start = 0
        for end in (*markers.tolist(), len(offsets)):
            plain = np.flatnonzero(~in_transaction[start:end]) + start
            latest.update(_last_of_each_key(columns, offsets, plain))
            for producer in np.unique(producers[start:end][in_transaction[start:end]]).tolist():
                rows = np.flatnonzero(
                    in_transaction[start:end] & (producers[start:end] == producer)
                ) + start
                pending.setdefault(producer, {}).update(_last_of_each_key(columns, offsets, rows))
            if end < len(offsets):
                ended = pending.pop(int(producers[end]), {})
                if _is_commit(columns["key"][end].as_py(), log, int(offsets[end]), on_corrupt):
                    _commit(latest, ended)
            start = end + 1
    return latest


def _last_of_each_key(
    columns: Mapping[str, Any], offsets: NDArray[np.int64], rows: NDArray[np.int64]
) -> Latest:
    """Find the last record of each key among some rows."""
    if not len(rows):
        return {}
    encoded = columns["key"].take(rows).dictionary_encode(null_encoding="encode")
    last = np.empty(len(encoded.dictionary), np.int64)
    last[encoded.indices.to_numpy()] = rows  # the last of equal indices wins
    return {
        key: _Written(int(offsets[row]), columns["value"][row].as_py())
        for key, row in zip(encoded.dictionary.to_pylist(), last.tolist(), strict=True)
        if key is not None
    }


def _is_commit(
    key: bytes | None, log: PartitionLog, offset: int, on_corrupt: OnCorrupt
) -> bool:
    """Return whether a marker commits; its key is version int16 and type int16."""
    if key is None or len(key) < 4:
        if on_corrupt != "raise":
            return False
        raise CorruptBatchError(
            f"the control record at offset {offset} of {log.topic_partition} has no type",
            path=log.path,
        )
    return int.from_bytes(key[2:4], "big", signed=True) == ControlRecordType.COMMIT


def _commit(latest: Latest, ended: Latest) -> None:
    """Apply the offsets of a transaction to keys without a later record."""
    for key, written in ended.items():
        if written.value is None:
            continue
        before = latest.get(key)
        # A null value removes the key from a broker's memory, so it can't count as later.
        if before is None or before.value is None or before.offset < written.offset:
            latest[key] = written
