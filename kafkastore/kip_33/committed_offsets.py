"""What consumer groups have committed, by the ``__consumer_offsets`` partitions of a store.

The topic is compacted but never wholly: the last record of a key counts, and a null value takes the
key away.  Offsets that were sent within a transaction count from its COMMIT marker on, which may
stand behind later records of the same key; a later record is not undone by it.

Only groups whose partition lies in the store are found: a broker has those it leads or follows.
Nothing expires here: a broker writes a null value for what has.

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
from kafkastore.formats.control_records import ControlRecordType
from kafkastore.formats.file_names import TopicPartition
from kafkastore.formats.group_metadata import (
    OffsetAndMetadata,
    OffsetCommitKey,
    parse_key,
    parse_offset_commit_value,
)
from kafkastore.log.damage import OnCorrupt, SkippedBytes
from kafkastore.log.log_store import LogStore
from kafkastore.log.partition_log import PartitionLog

CONSUMER_OFFSETS = "__consumer_offsets"

_COLUMNS = ("key", "value", "offset", "producer_id", "is_transactional", "is_control")


class NoCommittedOffsetsError(KafkaStoreError, LookupError):
    """A store in which no group's committed offsets are, or not those of a group asked for."""


class _Written(NamedTuple):
    """The last record of a key; value None: the key was taken away."""

    offset: int
    value: bytes | None


Latest = dict[bytes, _Written]


def committed_offsets(
    store: LogStore,
    groups: Sequence[str] = (),
    *,
    unreadable: dict[TopicPartition, CorruptionError] | None = None,
) -> dict[OffsetCommitKey, OffsetAndMetadata]:
    """Find the offsets that groups have committed.

    Parameters
    ----------
    store : LogStore
        With partitions of ``__consumer_offsets``; each is read whole.
    groups : sequence of str
        Only these; none: all.
    unreadable : dict, optional
        Gets the errors of partitions that are corrupt, which are left out. Default: raise them.

    Returns
    -------
    dict
        By group, topic and partition, in that order.

    Raises
    ------
    NoCommittedOffsetsError
        If the store has no such partition, or nothing of a group that is asked for.
    CorruptionError
        If a batch, a key or a value is broken: later commits are then not known.
    """
    check_collection("groups", groups)
    logs = [store.partitions[each] for each in store.partitions if each.topic == CONSUMER_OFFSETS]
    if not logs:
        raise NoCommittedOffsetsError(f"there is no partition of {CONSUMER_OFFSETS} here")
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
            hint = f"there are offsets of {shown}" if there else "there are none of any group"
            raise NoCommittedOffsetsError(
                f"no offset of group {group} is in {CONSUMER_OFFSETS} here "
                f"({', '.join(str(log.partition) for log in logs)}); {hint}"
            )
    return {key: found[key] for key in sorted(found) if not groups or key.group in groups}


def committed_in(
    log: PartitionLog,
    on_corrupt: OnCorrupt = "raise",
    skipped: list[SkippedBytes] | None = None,
) -> dict[OffsetCommitKey, OffsetAndMetadata]:
    """Find the offsets that one partition of ``__consumer_offsets`` says are committed.

    Parameters
    ----------
    log : PartitionLog
        Read whole.
    on_corrupt, skipped
        As for `PartitionLog.records`. Unless "raise", keys and values that can't be read are left
        out; what was committed in bytes that were skipped is not known.

    Returns
    -------
    dict
        In the order in which the keys were first written.

    Raises
    ------
    CorruptionError
        If a batch, a key or a value is broken.
    """
    latest = log.beside_changes(partial(_latest, log, on_corrupt, skipped))
    return dict(_parsed(log, latest, on_corrupt))


def _parsed(
    log: PartitionLog, latest: Latest, on_corrupt: OnCorrupt
) -> Iterator[tuple[OffsetCommitKey, Any]]:
    """Parse what counts at the end of a partition."""
    for key_bytes, written in latest.items():
        if written.value is None:
            continue
        try:
            key = parse_key(key_bytes)
            if isinstance(key, OffsetCommitKey):
                yield key, parse_offset_commit_value(written.value)
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
    """Find the last record of each key, transactions applied, one batch after the other."""
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
    last[encoded.indices.to_numpy()] = rows  # of equal indices the last one stays
    return {
        key: _Written(int(offsets[row]), columns["value"][row].as_py())
        for key, row in zip(encoded.dictionary.to_pylist(), last.tolist(), strict=True)
        if key is not None
    }


def _is_commit(
    key: bytes | None, log: PartitionLog, offset: int, on_corrupt: OnCorrupt
) -> bool:
    """Tell whether a marker commits; its key is version int16 and type int16."""
    if key is None or len(key) < 4:
        if on_corrupt != "raise":
            return False
        raise CorruptBatchError(
            f"the control record at offset {offset} of {log.topic_partition} has no type",
            path=log.path,
        )
    return int.from_bytes(key[2:4], "big", signed=True) == ControlRecordType.COMMIT


def _commit(latest: Latest, ended: Latest) -> None:
    """Let the offsets of a transaction count, where no later record stands."""
    for key, written in ended.items():
        if written.value is None:
            continue
        before = latest.get(key)
        # A null value leaves nothing in a broker's memory that could be later.
        if before is None or before.value is None or before.offset < written.offset:
            latest[key] = written
