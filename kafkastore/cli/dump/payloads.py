"""Decode the records of brokers' own topics, for ``kafkastore dump``.

``__consumer_offsets`` has committed offsets and groups, ``__transaction_state`` transactional ids.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import IntEnum
from pathlib import Path
from typing import Any

from kafkastore.cli.output.bytes_text import json_bytes
from kafkastore.errors import CorruptionError
from kafkastore.formats.records.record_batch import Record
from kafkastore.formats.state.file_names import InvalidNameError, parse_partition_directory
from kafkastore.formats.topics import group_metadata, transaction_state

Decoder = Callable[[Record], dict[str, Any]]

#: Fields in which a negative number means "none".
_NONE_IF_NEGATIVE = (
    "leader_epoch", "commit_timestamp", "expire_timestamp", "current_state_timestamp",
    "rebalance_timeout", "transaction_last_update_timestamp_ms", "transaction_start_timestamp_ms",
    "previous_producer_id", "next_producer_id", "next_producer_epoch",
)


def decoder_for(path: Path) -> Decoder | None:
    """Return the decoder for a ``.log`` by its directory's name, or None.

    It returns an object for JSON: ``type``, ``key`` and ``value`` (null for a tombstone, missing
    for an unknown type), or ``error`` if the record cannot be decoded.
    """
    try:
        directory = parse_partition_directory(path.absolute().parent.name)
    except InvalidNameError:
        return None
    decode = _DECODERS.get(directory.topic_partition.topic)
    return None if decode is None else lambda record: _decoded_or_why_not(decode, record)


def _decoded_or_why_not(decode: Decoder, record: Record) -> dict[str, Any]:
    try:
        return decode(record)
    except CorruptionError as error:
        return {"error": str(error)}


def _group_metadata(record: Record) -> dict[str, Any]:
    """Decode a record of ``__consumer_offsets``."""
    key = group_metadata.parse_key(record.key or b"")
    if isinstance(key, group_metadata.OffsetCommitKey):
        commit = group_metadata.parse_offset_commit_value(record.value)
        return {"type": "OffsetCommit", "key": _plain(key), "value": _plain(commit)}
    if isinstance(key, group_metadata.GroupMetadataKey):
        group = group_metadata.parse_group_metadata_value(record.value)
        return {"type": "GroupMetadata", "key": _plain(key), "value": _plain(group)}
    return {"type": key.name or key.record_type, "key": {"group": key.group}}


def _transaction_state(record: Record) -> dict[str, Any]:
    """Decode a record of ``__transaction_state``."""
    transactional_id = transaction_state.parse_key(record.key or b"")
    value = transaction_state.parse_value(record.value)
    return {
        "type": "TransactionLog",
        "key": {"transactional_id": transactional_id},
        "value": _plain(value),
    }


def _plain(value: Any) -> Any:
    """Convert decoded values to JSON types, by field name."""
    if isinstance(value, IntEnum):
        return value.name
    if hasattr(value, "_asdict"):
        fields: dict[str, Any] = {}
        for name, each in value._asdict().items():
            if isinstance(each, bytes):
                fields |= json_bytes(name, each)
            elif name in _NONE_IF_NEGATIVE and each < 0:
                fields[name] = None
            else:
                fields[name] = _plain(each)
        return fields
    return [_plain(each) for each in value] if isinstance(value, tuple) else value


_DECODERS: Mapping[str, Decoder] = {
    "__consumer_offsets": _group_metadata,
    "__transaction_state": _transaction_state,
}
