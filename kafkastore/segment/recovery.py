"""A segment's log as a recovering broker sees it: its end and its indexes."""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from kafkastore.errors import (
    CorruptBatchError,
    CorruptionError,
    OffsetOverflowError,
    OutOfOrderAppendError,
    UnsupportedFormatError,
)
from kafkastore.formats.indexes import transaction_index
from kafkastore.formats.indexes.index_builder import IndexBuilder
from kafkastore.formats.records import batch_header
from kafkastore.formats.records.batch_header import BATCH_HEADER, is_control
from kafkastore.formats.records.control_records import ControlRecord, first_control_record
from kafkastore.formats.records.record_batch import RecordBatch
from kafkastore.segment.log_file import LARGEST_READ, SMALLEST_READ, BatchRun, LogFile
from kafkastore.versions import NEWEST, BrokerRules

if TYPE_CHECKING:
    from kafkastore.formats.state.leader_epochs import LeaderEpochs

#: Kafka's default of ``index.interval.bytes``.
INDEX_INTERVAL_BYTES = 4096

_LENGTH_AT = batch_header.RECORD_BATCH_FIELDS["length"]
_MAGIC_AT = batch_header.RECORD_BATCH_FIELDS["magic"]


class Producers(Protocol):
    """The state of the producers along a log: a `ProducerState`, or part of it."""

    def replay(
        self, headers: NDArray[np.void], controls: Sequence[ControlRecord | None] = ()
    ) -> NDArray[np.void]:
        """Apply batches, and return the new entries of the transaction index."""

    def on_high_watermark(self, high_watermark: int) -> None:
        """Note that all offsets before the high watermark (exclusive) are replicated."""


class RebuiltIndexes(NamedTuple):
    """A segment's indexes, from its log, which a broker truncates at `valid_bytes`.

    The rest is incomplete, preallocated or corrupt (`reason`); at a `read_error` the broker goes
    offline. `producers_end_offset` follows the last record batch, or is None. `offsets_rise`: each
    batch begins after the one before ends, and the first at the base offset or later.
    """

    offset_index: bytes
    time_index: bytes
    valid_bytes: int
    next_offset: int
    largest_timestamp: int
    offset_of_max_timestamp: int
    reason: str | None
    transaction_index: bytes = b""
    producers_end_offset: int | None = None
    read_error: CorruptionError | None = None
    offsets_rise: bool = False


def rebuild_indexes(
    log_path: Path,
    base_offset: int,
    *,
    index_interval_bytes: int = INDEX_INTERVAL_BYTES,
    rules: BrokerRules = NEWEST,
    producers: Producers | None = None,
    epochs: LeaderEpochs | None = None,
) -> RebuiltIndexes:
    """Build a segment's indexes from its log, up to the first wrong checksum.

    `producers`, the state at the base offset, is carried on; `epochs` gets the leader epochs.
    Raises `OffsetOverflowError` or `OutOfOrderAppendError` where recovery fails.

    Source: Kafka 2.4.0 ``LogSegment.recover``.
    """
    with LogFile(log_path) as log:
        return rebuild_indexes_of(
            log,
            base_offset,
            index_interval_bytes=index_interval_bytes,
            rules=rules,
            producers=producers,
            epochs=epochs,
        )


def rebuild_indexes_of(
    log: LogFile,
    base_offset: int,
    *,
    index_interval_bytes: int,
    rules: BrokerRules = NEWEST,
    producers: Producers | None = None,
    epochs: LeaderEpochs | None = None,
) -> RebuiltIndexes:
    """Do `rebuild_indexes` for an open log."""
    builder = IndexBuilder(
        base_offset,
        index_interval_bytes,
        has_first_offsets=not rules.offset_index_has_last_offset,
        stops_after_markers=producers is not None,
    )
    aborted: list[NDArray[Any]] = []
    known_epoch = -1
    rises, smallest = True, base_offset
    broken: CorruptionError | None = None
    try:
        for run in batch_runs(log, verify_crc=True):
            headers = run.headers
            rises = rises and batch_header.offsets_rise(headers, smallest)
            smallest = run.next_offset
            if not rules.offset_index_has_last_offset:
                headers = _with_first_offsets(run, log)
            taken, controls, broken = _append(builder, run, headers)
            if epochs is not None and builder.largest_epoch > known_epoch:
                epochs.assign_many(taken, first_epoch=rules.first_epoch_recovered)
                known_epoch = builder.largest_epoch
            if producers is not None and controls is not None:
                with_producer = taken[taken["producer_id"] >= 0]
                aborted.append(producers.replay(with_producer, controls))
                # Frees the state that waits for replication, which is not needed here.
                producers.on_high_watermark(builder.next_offset)
            if broken is not None:
                break
    except CorruptionError as error:
        broken = error
    except (OffsetOverflowError, OutOfOrderAppendError) as error:
        if epochs is not None:  # a broker keeps those of the batches before
            taken = headers[headers["position"] < builder.valid_bytes]
            epochs.assign_many(taken, first_epoch=rules.first_epoch_recovered)
        raise type(error)(f"{log.path}: {error}") from error
    offset_index, time_index = builder.finish()
    end_of_producers = builder.record_batches_end
    return RebuiltIndexes(
        offset_index,
        time_index,
        builder.valid_bytes,
        builder.next_offset,
        builder.largest_timestamp,
        builder.offset_of_max_timestamp,
        None if broken is None else str(broken),
        transaction_index.pack(np.concatenate(aborted)) if aborted else b"",
        end_of_producers if producers is not None and end_of_producers >= 0 else None,
        broken if broken is not None and isinstance(broken.__cause__, OSError) else None,
        rises,
    )


def _append(
    builder: IndexBuilder, run: BatchRun, headers: NDArray[Any]
) -> tuple[NDArray[Any], list[ControlRecord | None] | None, CorruptionError | None]:
    """Index a run up to a corrupt batch, and read its markers.

    A broker stops after a marker that it can't read. The list of markers is None if no batch has a
    producer.
    """
    controls: list[ControlRecord | None] = []
    count, has_producers, broken = 0, False, None
    while True:
        count += builder.append(headers[count:] if count else headers)
        has_producers = has_producers or builder.has_producers
        if not builder.is_after_marker:
            break
        try:
            controls.append(_control_of(run, count - 1))
        except CorruptionError as error:
            controls.append(None)
            broken = error
            break
    if broken is None and count < len(headers):
        broken = CorruptBatchError("checksum is wrong", position=int(headers["position"][count]))
    return headers[:count], controls if has_producers else None, broken


def batch_runs(
    log: LogFile,
    *,
    position: int = 0,
    verify_crc: bool = False,
    frames_negative_magic: bool = False,
) -> Iterator[BatchRun]:
    """Yield batches as a broker frames them: a magic above 2 counts as 2.

    A negative one counts as 0 if a broker only asks for offsets (`frames_negative_magic`),
    otherwise raises `UnsupportedFormatError`. Raises `CorruptBatchError` as `LogFile.runs`.

    Source: Kafka 2.4.0 ``FileLogInputStream.nextBatch``, ``LegacyRecord.headerSize``.
    """
    first_read = LARGEST_READ
    while True:
        try:
            yield from log.runs(position, verify_crc=verify_crc, first_read=first_read)
        except UnsupportedFormatError as error:
            if error.position is None:
                raise
            run = _of_unknown_magic(log, error.position, verify_crc, frames_negative_magic)
            if run is None:
                raise
            yield run
            position, first_read = run.end_position, SMALLEST_READ
        else:
            return


def _of_unknown_magic(
    log: LogFile, position: int, verify_crc: bool, frames_negative_magic: bool
) -> BatchRun | None:
    """Return a batch that was refused for its magic as one of magic 2 or 0.

    None if it can't be one. The scan has already checked that it ends within the file.
    """
    frame = log.read(position, batch_header.SMALLEST_FRAME)
    length = int.from_bytes(frame[_LENGTH_AT : _LENGTH_AT + 4], "big", signed=True)
    data = log.read(position, batch_header.FRAME_OVERHEAD + max(length, 0))
    if len(data) <= _MAGIC_AT:
        return None
    is_negative = data[_MAGIC_AT] > 127
    if is_negative and not frames_negative_magic:
        return None
    data[_MAGIC_AT] = 0 if is_negative else 2
    headers = np.empty(1, BATCH_HEADER)
    count, *_ = batch_header.scan(data, position, headers, verify_crc=verify_crc)
    return BatchRun(data, headers, position, 0) if count else None


def _with_first_offsets(run: BatchRun, log: LogFile) -> NDArray[Any]:
    """Return the headers with first offsets of wrappers, by decompression."""
    wrappers = np.flatnonzero(run.headers["base_offset"] < 0)
    if not len(wrappers):
        return run.headers
    headers = run.headers.copy()
    for index in wrappers.tolist():
        first_offset = log.first_offset_at(int(headers["position"][index]))
        if first_offset is not None:
            headers["base_offset"][index] = first_offset
    return headers


def replay_run(producers: Producers, run: BatchRun, is_asked: NDArray[np.bool_]) -> None:
    """Apply the selected batches of a run to the state of the producers.

    The checksums of these batches were not checked. Raises `CorruptBatchError` if a transaction
    marker can't be read.
    """
    is_asked = is_asked & (run.headers["producer_id"] >= 0)
    markers = np.flatnonzero(is_asked & is_control(run.headers)).tolist()
    producers.replay(run.headers[is_asked], [_control_of(run, index) for index in markers])


def _control_of(run: BatchRun, index: int) -> ControlRecord | None:
    """Read the control record of one batch of a run."""
    position = int(run.headers["position"][index])
    return first_control_record(RecordBatch(bytes(run.batch(index)), position))
