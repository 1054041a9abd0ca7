"""Read the metadata log of a KRaft cluster, and its snapshots.

A snapshot ``<end offset>-<epoch>.checkpoint`` has the records that make the state before its end
offset. The log goes on from there; its segments before a snapshot may be deleted.

Source: Kafka 4.3.1 ``RecordsSnapshotReader``, ``MetadataLoader``, ``MetadataBatchLoader``; KIP-630.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from kafkastore.arguments import INT64_MAX
from kafkastore.errors import CorruptBatchError, CorruptionError
from kafkastore.formats.messages.message_codec import Frames
from kafkastore.formats.messages.message_table import Values
from kafkastore.formats.records.control_records import parse_control_record, parse_kraft_value
from kafkastore.formats.records.record_batch import RecordBatch
from kafkastore.formats.records.record_columns import RecordColumns
from kafkastore.formats.state.transactions import is_control
from kafkastore.formats.topics.cluster_metadata import RECORDS
from kafkastore.log.log_view import LogView
from kafkastore.log.range_scan import RangeScan
from kafkastore.segment.log_file import LogFile

_COLUMNS = ("value", "offset", "timestamp", "leader_epoch")


class ControlValue(NamedTuple):
    """The value of a KRaft control record; `epoch` is that of its batch."""

    offset: int
    timestamp: int
    epoch: int
    type: int
    value: Values


class MetadataRecord(NamedTuple):
    """A record of the metadata log.

    `fields` are bytes if the number or version is unknown. `timestamp` is that of its append, ms
    since 1970; `epoch` is the controller's.
    """

    offset: int
    timestamp: int
    epoch: int
    number: int
    version: int
    fields: Values | bytes


def read_snapshot(path: Path) -> Iterator[MetadataRecord]:
    """Read the records of a snapshot; their offsets count from 0."""
    columns = RecordColumns(_COLUMNS)
    with LogFile(path) as file:
        for run in file.runs(verify_crc=True):
            done = 0
            while done < len(run.headers):
                try:
                    done = columns.append(
                        run.data, run.headers, done,
                        position=run.position, smallest_offset=run.smallest_offset,
                    )
                except CorruptionError as error:
                    raise error.located(path) from error
                yield from _parsed(columns, path)


def read_log(log: LogView, start_offset: int, end_offset: int) -> Iterator[MetadataRecord]:
    """Read the records of the log between two offsets.

    Raises `CorruptBatchError` where offsets are missing: the log is never compacted.
    """
    columns = RecordColumns(_COLUMNS, start_offset=start_offset, end_offset=end_offset)
    next_offset = start_offset
    for scanned in RangeScan(log, start_offset, end_offset).runs(verify_crc=True):
        headers = scanned.headers[scanned.headers["last_offset"] >= next_offset]
        ends = np.concatenate(([next_offset], headers["last_offset"] + 1))
        gaps = np.flatnonzero(headers["base_offset"] > ends[:-1])
        before = headers[: gaps[0]] if len(gaps) else headers
        for _ in scanned.of(before).decode(columns):
            yield from _parsed(columns, scanned.segment.log_path)
        next_offset = int(ends[len(before)])
        if len(before) < len(headers) and next_offset < end_offset:
            after = headers[len(before)]
            raise _missing(
                next_offset, int(after["base_offset"]), scanned.segment.log_path,
                int(after["position"]),
            )
    for segment in log.segments:
        if next_offset < end_offset <= segment.base_offset:
            raise _missing(next_offset, segment.base_offset, segment.log_path, 0)


def _missing(start: int, end: int, path: Path, position: int) -> CorruptBatchError:
    """Return the error of offsets that are missing before a batch."""
    reason = f"offsets {start} to {end - 1} of the metadata log are missing"
    return CorruptBatchError(reason, path=path, position=position)


def read_controls(file: LogFile, end_offset: int = INT64_MAX) -> Iterator[ControlValue]:
    """Read the control records of a log or a snapshot before an offset."""
    for run in file.runs():
        is_before = run.headers["last_offset"] < end_offset
        for index in np.flatnonzero(is_control(run.headers) & is_before):
            batch = RecordBatch(run.batch(int(index)), int(run.headers["position"][index]))
            try:
                batch.verify()
                for record in batch.records():
                    value = parse_kraft_value(record, position=batch.position)
                    if value is not None:
                        kind, epoch = parse_control_record(record).type, run.headers["leader_epoch"]
                        yield ControlValue(
                            record.offset, record.timestamp, int(epoch[index]), kind, value
                        )
            except CorruptionError as error:
                raise error.located(file.path) from error


def _parsed(columns: RecordColumns, path: Path) -> Iterator[MetadataRecord]:
    """Take the decoded rows and parse their values."""
    rows, taken = columns.take()
    if not rows:
        return
    _, _, places, content = taken["value"]
    frames = Frames(RECORDS.codec, content, np.frombuffer(places, np.int32, rows + 1))
    offsets = np.frombuffer(taken["offset"], np.int64, rows).tolist()
    timestamps = (np.frombuffer(taken["timestamp"][2], np.int64, rows) // 1000).tolist()
    epochs = np.frombuffer(taken["leader_epoch"], np.int32, rows).tolist()
    try:
        for offset, timestamp, epoch, (number, version, fields) in zip(
            offsets, timestamps, epochs, frames, strict=True
        ):
            yield MetadataRecord(offset, timestamp, epoch, number, version, fields)
    except CorruptionError as error:
        reason = f"the metadata record at offset {offsets[frames.index]}: {error}"
        raise CorruptBatchError(reason, path=path) from error
