"""Decode the records of brokers' own topics, for ``kafkastore dump``."""
from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from kafkastore.cli.output.bytes_text import json_bytes
from kafkastore.errors import CorruptionError
from kafkastore.formats.messages.message_codec import UNKNOWN_TAGGED_FIELDS
from kafkastore.formats.messages.record_tables import RecordTable, TopicRecord
from kafkastore.formats.records.control_records import parse_control_record, parse_kraft_value
from kafkastore.formats.records.record_batch import Record
from kafkastore.formats.state.file_names import (
    CLUSTER_METADATA_TOPIC,
    KRAFT_SNAPSHOT_SUFFIX,
    InvalidNameError,
    parse_partition_directory,
)
from kafkastore.formats.topics import (
    cluster_metadata,
    consumer_offsets,
    remote_log_metadata,
    share_group_state,
    transaction_state,
)
from kafkastore.formats.topics.cluster_metadata import MASKED
from kafkastore.formats.topics.transaction_state import TransactionState


class Decoded(NamedTuple):
    """The fields of a record for JSON; `is_masked` if its bytes must not be shown."""

    fields: dict[str, Any]
    is_masked: bool = False


Decoder = Callable[[Record], Decoded]

KEYED: Mapping[str, RecordTable] = {
    "__consumer_offsets": consumer_offsets.RECORDS,
    "__share_group_state": share_group_state.RECORDS,
    "__transaction_state": transaction_state.RECORDS,
}
FRAMED: Mapping[str, RecordTable] = {
    CLUSTER_METADATA_TOPIC: cluster_metadata.RECORDS,
    "__remote_log_metadata": remote_log_metadata.RECORDS,
}

#: Fields in which -1 means "none".
_NONE_IF_NEGATIVE = frozenset((
    "leader_epoch", "commit_timestamp", "expire_timestamp", "current_state_timestamp",
    "rebalance_timeout", "rebalance_timeout_ms", "transaction_last_update_timestamp_ms",
    "transaction_start_timestamp_ms", "previous_producer_id", "next_producer_id",
    "next_producer_epoch",
))


def decoder_for(path: Path, *, show_secrets: bool = False) -> Decoder | None:
    """Return the decoder for the records of a file by its path, or None.

    It returns ``type``, ``key`` (if the topic has any) and ``value`` (null for a tombstone), or
    ``error`` if the record cannot be decoded.
    """
    topic = _topic_of(path)
    if topic is None or (topic not in KEYED and topic not in FRAMED):
        return None
    return lambda record: _decoded_or_why_not(topic, record, show_secrets)


def _topic_of(path: Path) -> str | None:
    if path.suffix == KRAFT_SNAPSHOT_SUFFIX:
        return CLUSTER_METADATA_TOPIC
    try:
        return parse_partition_directory(path.absolute().parent.name).topic_partition.topic
    except InvalidNameError:
        return None


def decode_control(record: Record) -> Decoded:
    """Decode a control record."""
    try:
        control = parse_control_record(record)
        value = parse_kraft_value(record)
    except CorruptionError as error:
        return Decoded({"error": str(error)})
    shown: dict[str, Any] = {"type": getattr(control.type, "name", control.type)}
    if control.coordinator_epoch is not None:
        value = {"coordinator_epoch": control.coordinator_epoch}
    return Decoded(shown if value is None else shown | {"value": _plain(value)})


def _decoded_or_why_not(topic: str, record: Record, show_secrets: bool) -> Decoded:
    try:
        if topic in KEYED:
            decoded = KEYED[topic].parse_keyed(record.key or b"", record.value)
        else:
            decoded = FRAMED[topic].parse_framed(record.value or b"")
    except CorruptionError as error:
        is_secret = topic == CLUSTER_METADATA_TOPIC and not show_secrets
        return Decoded({"error": str(error)}, is_secret)
    secrets = () if show_secrets else cluster_metadata.secret_fields(decoded)
    return Decoded(_as_json(decoded, secrets), bool(secrets))


def _as_json(record: TopicRecord, secrets: tuple[str, ...]) -> dict[str, Any]:
    """Convert a record to JSON types; `secrets` are the fields to mask."""
    shown: dict[str, Any] = {"type": record.number if record.name is None else record.name}
    if record.version is not None:
        shown["version"] = record.version
    if record.key is not None:
        shown["key"] = _plain(record.key)
    if record.unparsed is not None:
        unparsed = {"unparsed": MASKED} if secrets else json_bytes("unparsed", record.unparsed)
        return shown | unparsed
    if record.value is None:
        return shown | {"value": None}
    return shown | {"value": _plain(record.value | dict.fromkeys(secrets, MASKED))}


def _plain(fields: dict[str, Any]) -> dict[str, Any]:
    """Convert the fields of a structure to JSON types."""
    plain: dict[str, Any] = {}
    for name, value in fields.items():
        if name == UNKNOWN_TAGGED_FIELDS:
            plain[name] = {str(tag): content.hex() for tag, content in value.items()}
        elif isinstance(value, bytes):
            plain |= json_bytes(name, value)
        elif name in _NONE_IF_NEGATIVE and value < 0:
            plain[name] = None
        elif name == "transaction_status" and value in _STATES:
            plain[name] = TransactionState(value).name
        elif isinstance(value, dict):
            plain[name] = _plain(value)
        elif isinstance(value, tuple):
            plain[name] = [_plain(each) if isinstance(each, dict) else each for each in value]
        else:
            plain[name] = value
    return plain


_STATES = frozenset(TransactionState)
