"""Read the metadata log of a KRaft cluster, and its snapshots.

A snapshot ``<end offset>-<epoch>.checkpoint`` has the records that make the state before its end
offset. The log goes on from there; its segments before a snapshot may be deleted.

Source: Kafka 4.3.1 ``RecordsSnapshotReader``, ``MetadataLoader``, ``MetadataBatchLoader``; KIP-630.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from kafkastore.arguments import INT64_MAX
from kafkastore.errors import CorruptBatchError, CorruptionError
from kafkastore.formats.messages.message_codec import Frames
from kafkastore.formats.messages.message_table import Values
from kafkastore.formats.records.batch_header import is_control
from kafkastore.formats.records.control_records import parse_control_record, parse_kraft_value
from kafkastore.formats.records.record_batch import RecordBatch
from kafkastore.formats.records.record_columns import RecordColumns
from kafkastore.formats.topics.cluster_metadata import RECORDS
from kafkastore.log.log_view import LogView
from kafkastore.log.range_scan import RangeScan
from kafkastore.metadata.replay_error import ReplayError
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


class MetadataRun:
    """Records of the metadata that were decoded together, up to a time.

    `is_cut` tells that a record after that time follows.
    """

    def __init__(
        self, rows: int, taken: dict[str, Any], path: Path, end_timestamp: int = INT64_MAX
    ) -> None:
        _, _, places, content = taken["value"]
        timestamps = np.frombuffer(taken["timestamp"][2], np.int64, rows) // 1000
        is_late = timestamps > end_timestamp
        self.is_cut = bool(is_late.any())
        if self.is_cut:
            rows = int(is_late.argmax())
        self._offsets = np.frombuffer(taken["offset"], np.int64, rows).tolist()
        self._timestamps = timestamps.tolist()
        self._epochs = np.frombuffer(taken["leader_epoch"], np.int32, rows).tolist()
        self._frames = Frames(RECORDS.codec, content, np.frombuffer(places, np.int32, rows + 1))
        self._path = path

    @property
    def place(self) -> tuple[int, int, int]:
        """The offset, the timestamp and the epoch of the record that was read last."""
        index = self._frames.index
        return self._offsets[index], self._timestamps[index], self._epochs[index]

    def read(self) -> MetadataRecord | None:
        """Read the next record; None after the last."""
        try:
            found = next(self._frames, None)
        except CorruptionError as error:
            raise self._located(error) from error
        return None if found is None else MetadataRecord(*self.place, *found)

    def apply(self, number: int, function: Callable[[Values], None]) -> bool:
        """Give the fields of the next records of a number to a function; tell if any is."""
        try:
            return self._frames.apply(number, function) > 0
        except CorruptionError as error:
            raise self._located(error) from error
        except ReplayError as error:
            error.offset, _, _ = self.place
            raise

    def _located(self, error: CorruptionError) -> CorruptBatchError:
        offset, _, _ = self.place
        return CorruptBatchError(
            f"the metadata record at offset {offset}: {error}", path=self._path
        )


def read_snapshot(path: Path) -> Iterator[MetadataRun]:
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
                rows, taken = columns.take()
                if rows:
                    yield MetadataRun(rows, taken, path)


def read_log(
    log: LogView, start_offset: int, end_offset: int, end_timestamp: int
) -> Iterator[MetadataRun]:
    """Read the records of the log between two offsets, up to a time.

    Raises `CorruptBatchError` where offsets are missing: the log is never compacted.
    """
    columns = RecordColumns(_COLUMNS, start_offset=start_offset, end_offset=end_offset)
    next_offset = start_offset
    for scanned in RangeScan(log, start_offset, end_offset).runs(verify_crc=True):
        headers = scanned.headers[scanned.headers["last_offset"] >= next_offset]
        ends = np.concatenate(([next_offset], headers["last_offset"] + 1))
        gaps = np.flatnonzero(headers["base_offset"] > ends[:-1])
        before = headers[: gaps[0]] if len(gaps) else headers
        for rows, taken in scanned.of(before).decoded(columns):
            run = MetadataRun(rows, taken, scanned.segment.log_path, end_timestamp)
            yield run
            if run.is_cut:
                return
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
