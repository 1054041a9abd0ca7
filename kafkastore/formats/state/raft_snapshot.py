"""The control records of a KRaft snapshot, ``<end offset>-<epoch>.checkpoint``.

A snapshot is a log: record batches v2 from offset 0 on, without an index. Its first batch holds a
SNAPSHOT_HEADER control record, its last a SNAPSHOT_FOOTER (see `control_records`). Both values are
flexible messages (see `protocol`)::

    header    version int16, 0 | last_contained_log_timestamp int64 | tagged fields
    footer    version int16, 0 | tagged fields

``docs/formats/raft_checkpoint.md`` has the names, the lifecycle of the file, and a worked example.

Source: Kafka 3.9.1 ``SnapshotHeaderRecord.json``, ``SnapshotFooterRecord.json``,
``RecordsSnapshotWriter``, ``RecordsSnapshotReader``; KIP-630.
"""

from __future__ import annotations

from typing import NamedTuple

from kafkastore.formats.primitives.protocol import ProtocolReader


class SnapshotHeader(NamedTuple):
    """The header of a snapshot; Kafka ignores its `version`, 0.

    `last_contained_log_timestamp` is that of the last batch of the log that the snapshot covers, ms
    since 1970; 0 in the snapshot that a cluster starts with.
    """

    version: int
    last_contained_log_timestamp: int


def parse_snapshot_header(value: bytes) -> SnapshotHeader:
    """Parse the value of a SNAPSHOT_HEADER.

    Raises `CorruptionError`, with the position in the value, if a field is incomplete.

    >>> parse_snapshot_header(bytes.fromhex("0000 000001a1f849b0f6 00"))
    SnapshotHeader(version=0, last_contained_log_timestamp=1795166941430)
    """
    reader = ProtocolReader(value, is_flexible=True)
    header = SnapshotHeader(reader.int16("version"), reader.int64("last contained log timestamp"))
    reader.tagged_fields("tagged field")
    return header


def parse_snapshot_footer(value: bytes) -> int:
    """Return the version in the value of a SNAPSHOT_FOOTER, 0, which Kafka ignores.

    Raises `CorruptionError`, with the position in the value, if a field is incomplete.
    """
    reader = ProtocolReader(value, is_flexible=True)
    version = reader.int16("version")
    reader.tagged_fields("tagged field")
    return version
