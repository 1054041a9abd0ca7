"""The small text files: checkpoints, properties, partition metadata, the marker.

Offset checkpoint (recovery points, log start offsets, high watermarks, the cleaner's) and leader
epoch checkpoint::

    0                     version                 0
    2                     number of lines         1
    orders 0 4711         topic partition offset  5 4711      epoch start-offset
    orders 1 0

A broker writes a temporary file, syncs it and renames it, so that a truncated checkpoint is rare.
It creates an empty file before the first write: an empty file has no entries.

``docs/formats/checkpoints.md`` has each grammar and what a broker does with a damaged file.

Source: Kafka 2.4.0 ``CheckpointFile``, ``OffsetCheckpointFile``, ``LeaderEpochCheckpointFile``,
``BrokerMetadataCheckpoint``; 3.9.0 ``PartitionMetadataFile``, ``CleanShutdownFileHandler``.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from kafkastore.arguments import INT64_MAX
from kafkastore.errors import ArgumentValueError, CorruptCheckpointError
from kafkastore.formats.primitives.java_text import (
    lines_with_positions,
    parse_int32,
    parse_int64,
    parse_properties,
    split_at_blanks,
)
from kafkastore.formats.state.file_names import TopicPartition

CHECKPOINT_VERSION = 0
TOPIC_ID_BYTES = 16
_ZERO_TOPIC_ID = bytes(TOPIC_ID_BYTES)
_COLON_AND_BLANKS = re.compile(r":[ \t\n\x0b\f\r]+")


class EpochStart(NamedTuple):
    """A leader epoch and the first offset written in it."""

    epoch: int
    start_offset: int


def parse_offset_checkpoint(data: bytes) -> dict[TopicPartition, int]:
    """Parse an offset checkpoint, in file order; an empty file has no entries.

    The last offset of a duplicate partition counts. Raises `CorruptCheckpointError` for a file that
    a broker ignores; it then takes the log directory offline once it is up.

    Source: Kafka 2.4.0 ``OffsetCheckpointFile``.

    >>> parse_offset_checkpoint(b"0\\n1\\norders 3 4711\\n")
    {TopicPartition(topic='orders', partition=3): 4711}
    """
    offsets = {}
    for position, line in _checkpoint_lines(data):
        parts = split_at_blanks(line)
        try:
            topic, partition, offset = parts
            offsets[TopicPartition(topic, parse_int32(partition))] = parse_int64(offset)
        except ValueError:
            raise _malformed("topic partition offset", line, position) from None
    return offsets


def pack_offset_checkpoint(offsets: Mapping[TopicPartition, int]) -> bytes:
    """Return an offset checkpoint with these lines, in this order.

    Raises `ArgumentValueError` if it could not be read back: a topic with a blank, a number out of
    range.
    """
    data = _pack_checkpoint(
        f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items()
    )
    return _read_back(data, parse_offset_checkpoint, dict(offsets))


def parse_leader_epoch_checkpoint(data: bytes) -> tuple[EpochStart, ...]:
    """Parse a leader epoch checkpoint in the file's order, which is not checked.

    An empty file, or one with only a version, has no entries. Raises `CorruptCheckpointError` for a
    file that a broker refuses.

    Source: Kafka 2.4.0 ``LeaderEpochCheckpointFile``.

    >>> parse_leader_epoch_checkpoint(b"0\\n1\\n5 4711\\n")
    (EpochStart(epoch=5, start_offset=4711),)
    """
    epochs = []
    for position, line in _checkpoint_lines(data):
        parts = split_at_blanks(line)
        try:
            epoch, start_offset = parts
            epochs.append(EpochStart(parse_int32(epoch), parse_int64(start_offset)))
        except ValueError:
            raise _malformed("epoch start-offset", line, position) from None
    return tuple(epochs)


def pack_leader_epoch_checkpoint(epochs: Iterable[tuple[int, int]]) -> bytes:
    """Return a leader epoch checkpoint of (epoch, start offset) pairs, in this order.

    Raises `ArgumentValueError` if it could not be read back: a number out of range.
    """
    wanted = tuple(epochs)
    data = _pack_checkpoint(f"{epoch} {start_offset}" for epoch, start_offset in wanted)
    return _read_back(data, parse_leader_epoch_checkpoint, wanted)


def parse_meta_properties(data: bytes) -> dict[str, str]:
    """Parse ``meta.properties``.

    Its keys are ``version``, ``broker.id`` or ``node.id``, ``cluster.id``, ``directory.id`` and
    others. Raises `CorruptCheckpointError` if Java's ``Properties`` refuses the file.
    """
    try:
        return parse_properties(data)
    except ValueError as error:
        reason, position = error.args
        raise CorruptCheckpointError(f"meta.properties: {reason}", position=position) from None


def parse_partition_metadata(data: bytes) -> str:
    """Return the topic id in ``partition.metadata``, 22 URL-safe base64 characters.

    Versions above 0 are read like 0, names before the colons are ignored. Raises
    `CorruptCheckpointError` for a file for which a broker takes the log directory offline.

    Source: Kafka 3.9.0 ``PartitionMetadataReadBuffer``.

    >>> parse_partition_metadata(b"version: 0\\ntopic_id: 2P-XnPKnTZG5NwujU8kn6Q")
    '2P-XnPKnTZG5NwujU8kn6Q'
    """
    lines = lines_with_positions(data)
    version, position = _field_after_colon(lines, "version: number", len(data))
    try:
        is_known = parse_int32(version) >= 0
    except ValueError:
        raise _malformed("version: number", version, position) from None
    if not is_known:
        raise CorruptCheckpointError(
            f"version of partition.metadata must be at least 0, got {version}", position=position
        )
    text, position = _field_after_colon(lines, "topic_id: id", len(data))
    try:
        topic_id = _decode_topic_id(text)
    except ValueError:
        raise CorruptCheckpointError(
            f"topic id must be {TOPIC_ID_BYTES} bytes in URL-safe base64, got {text[:40]!r}",
            position=position,
        ) from None
    if topic_id == _ZERO_TOPIC_ID:
        raise CorruptCheckpointError("topic id must not be zero", position=position)
    return encode_id(topic_id)


def pack_partition_metadata(topic_id: str) -> bytes:
    """Return ``partition.metadata`` without a final newline; raise for a bad id."""
    data = f"version: 0\ntopic_id: {topic_id}".encode()
    return _read_back(data, parse_partition_metadata, topic_id)


def parse_clean_shutdown_marker(data: bytes) -> int | None:
    """Return the broker epoch in ``.kafka_cleanshutdown``, None if it has none.

    Brokers up to 3.6 write an empty file. Raises `CorruptCheckpointError` for any other content; a
    broker takes that as no epoch.

    Source: Kafka 3.9.0 ``CleanShutdownFileHandler``; KIP-966.

    >>> parse_clean_shutdown_marker(b'{"version":0,"brokerEpoch":11}')
    11
    """
    if not data:
        return None
    try:
        content = json.loads(data.decode())
    except (ValueError, RecursionError):
        raise CorruptCheckpointError(
            "clean shutdown marker must be empty or JSON", position=0
        ) from None
    epoch = content.get("brokerEpoch") if isinstance(content, dict) else None
    if epoch is None and isinstance(content, dict):
        return None
    if not isinstance(epoch, int) or isinstance(epoch, bool) or abs(epoch) > INT64_MAX:
        raise CorruptCheckpointError("clean shutdown marker has no broker epoch", position=0)
    return epoch


def _checkpoint_lines(data: bytes) -> Iterator[tuple[int, str]]:
    """Yield position and text of a checkpoint's lines; check version and count."""
    lines = lines_with_positions(data)
    version = _number_line(lines, "version")
    if version is None:
        return
    if version != CHECKPOINT_VERSION:
        raise CorruptCheckpointError(
            f"version of the checkpoint must be {CHECKPOINT_VERSION}, got {version}", position=0
        )
    expected_count = _number_line(lines, "number of entries")
    if expected_count is None:
        return
    count = 0
    for position, line in lines:
        count += 1
        yield position, _decode(line, position)
    if count != expected_count:
        raise CorruptCheckpointError(
            f"checkpoint must have {expected_count} entries, got {count}", position=len(data)
        )


def _number_line(lines: Iterator[tuple[int, bytes]], what: str) -> int | None:
    """Parse the next line as an int32; None at the end of the file."""
    for position, line in lines:
        text = _decode(line, position)
        try:
            return parse_int32(text)
        except ValueError:
            raise _malformed(what, text, position) from None
    return None


def _pack_checkpoint(lines: Iterable[str]) -> bytes:
    """Join version, count and entry lines."""
    entries = list(lines)
    return "\n".join([str(CHECKPOINT_VERSION), str(len(entries)), *entries, ""]).encode()


def _field_after_colon(lines: Iterator[tuple[int, bytes]], form: str, end: int) -> tuple[str, int]:
    """Return the text after the colon of the next line, and the line's position."""
    for position, line in lines:
        text = _decode(line, position)
        parts = _COLON_AND_BLANKS.split(text)
        while parts and not parts[-1]:
            parts.pop()
        if len(parts) != 2:
            raise _malformed(form, text, position)
        return parts[1], position
    raise CorruptCheckpointError(f"file ends before {form!r}", position=end)


def encode_id(data: bytes) -> str:
    """Return the 16 bytes of an id as 22 characters of URL-safe base64."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _decode_topic_id(text: str) -> bytes:
    """Decode base64 as Java's URL decoder: padding may be missing, but not wrong."""
    if re.fullmatch(r"[A-Za-z0-9_-]{22}(==)?", text) is None:
        raise ValueError(text)
    return base64.urlsafe_b64decode(text[:22] + "==")


def _decode(line: bytes, position: int) -> str:
    """Decode a line of UTF-8."""
    try:
        return line.decode()
    except UnicodeDecodeError as error:
        raise CorruptCheckpointError(
            f"not UTF-8: {error.reason}", position=position + error.start
        ) from None


def _malformed(form: str, line: str, position: int) -> CorruptCheckpointError:
    """Return the error for a line that does not have its form."""
    shown = line if len(line) <= 80 else line[:77] + "..."
    return CorruptCheckpointError(f"line must be {form!r}, got {shown!r}", position=position)


def _read_back(data: bytes, parse: Callable[[bytes], object], wanted: object) -> bytes:
    """Return packed data; raise if a broker would not read the same from it."""
    try:
        found = parse(data)
    except CorruptCheckpointError as error:
        raise ArgumentValueError("value", "readable for a broker", wanted) from error
    if found != wanted:
        raise ArgumentValueError("value", f"as a broker would read it, {found!r}", wanted)
    return data
