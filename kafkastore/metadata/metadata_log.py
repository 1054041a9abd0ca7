"""Read the metadata log of a KRaft cluster, and its snapshots.

A snapshot ``<end offset>-<epoch>.checkpoint`` has the records that make the state before its end
offset. The log goes on from there; its segments before a snapshot may be deleted.

Source: Kafka 4.3.1 ``RecordsSnapshotReader``, ``MetadataLoader``, ``MetadataBatchLoader``; KIP-630.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from kafkastore.formats.messages.message_codec import parse_frames
from kafkastore.formats.records.record_columns import RecordColumns
from kafkastore.formats.topics.cluster_metadata import RECORDS
from kafkastore.log.log_view import LogView
from kafkastore.log.range_scan import RangeScan
from kafkastore.segment.log_file import LogFile

_COLUMNS = ("value", "offset", "timestamp", "leader_epoch")


class MetadataRecord(NamedTuple):
    """A record of the metadata log.

    `fields` are bytes if the number or version is unknown. `timestamp` is that of its append, ms since 1970; `epoch` is the controller's.
    """

    offset: int
    timestamp: int
    epoch: int
    number: int
    version: int
    fields: dict[str, Any] | bytes


def read_snapshot(path: Path) -> Iterator[MetadataRecord]:
    """Read the records of a snapshot; their offsets count from 0."""
    columns = RecordColumns(_COLUMNS)
    with LogFile(path) as file:
        for run in file.runs(verify_crc=True):
            done = 0
            while done < len(run.headers):
                done = columns.append(
                    run.data, run.headers, done,
                    position=run.position, smallest_offset=run.smallest_offset,
                )
                yield from _parsed(columns, path)


def read_log(log: LogView, start_offset: int, end_offset: int) -> Iterator[MetadataRecord]:
    """Read the records of the log between two offsets."""
    columns = RecordColumns(_COLUMNS, start_offset=start_offset, end_offset=end_offset)
    for scanned in RangeScan(log, start_offset, end_offset).runs(verify_crc=True):
        for _ in scanned.decode(columns):
            yield from _parsed(columns, scanned.segment.log_path)


def _parsed(columns: RecordColumns, path: Path) -> Iterator[MetadataRecord]:
    """Take the decoded rows and parse their values."""
    rows, taken = columns.take()
    if not rows:
        return
    _, _, places, content = taken["value"]
    offsets = np.frombuffer(taken["offset"], np.int64, rows).tolist()
    records = parse_frames(RECORDS.codec, content, np.frombuffer(places, np.int32, rows + 1))
    epochs = np.frombuffer(taken["leader_epoch"], np.int32, rows).tolist()
    timestamps = np.frombuffer(taken["timestamp"][2], np.int64, rows) // 1000
    for fields in zip(offsets, timestamps.tolist(), epochs, records, strict=True):
        yield MetadataRecord(*fields[:3], *fields[3])
