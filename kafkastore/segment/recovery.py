"""What a recovering broker makes of a segment's log: where it ends, and its indexes."""
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
from kafkastore.formats import batch_header, transaction_index
from kafkastore.formats.batch_header import BATCH_HEADER
from kafkastore.formats.control_records import ControlRecord, first_control_record
from kafkastore.formats.index_builder import IndexBuilder
from kafkastore.formats.record_batch import RecordBatch
from kafkastore.formats.transactions import is_control
from kafkastore.reads import fetch_bytes
from kafkastore.segment.log_file import LARGEST_READ, SMALLEST_READ, BatchRun, LogFile
from kafkastore.versions import NEWEST, BrokerRules

if TYPE_CHECKING:
    from kafkastore.formats.leader_epochs import LeaderEpochs

#: Kafka's default of ``index.interval.bytes``.
INDEX_INTERVAL_BYTES = 4096

_LENGTH_AT = batch_header.RECORD_BATCH_FIELDS["length"]
_MAGIC_AT = batch_header.RECORD_BATCH_FIELDS["magic"]


class Producers(Protocol):
    """What goes along over a log for its producers: a `ProducerState`, or part of one."""

    def replay(
        self, headers: NDArray[np.void], controls: Sequence[ControlRecord | None] = ()
    ) -> NDArray[np.void]:
        """Take in batches, and return what the transaction index gets."""

    def on_high_watermark(self, high_watermark: int) -> None:
        """Take note that what lies before is replicated."""


class RebuiltIndexes(NamedTuple):
    """A segment's indexes as its log alone gives them.

    Bytes from `valid_bytes` on are torn, preallocated or, with a `reason`, broken: a broker would
    cut them; but with a `read_error` it gives the log directory up. The transaction index is empty
    unless the state of the producers was given; `producers_end_offset` is where that state ends:
    behind the last record batch, None where there are only messages of older formats, or none.
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


def rebuild_indexes(
    log_path: Path,
    base_offset: int,
    *,
    index_interval_bytes: int = INDEX_INTERVAL_BYTES,
    verify_crc: bool = True,
    rules: BrokerRules = NEWEST,
    producers: Producers | None = None,
    epochs: LeaderEpochs | None = None,
) -> RebuiltIndexes:
    """Build the indexes of a segment from its log in one pass, without writing anything.

    Parameters
    ----------
    log_path : path-like
        The ``.log`` file.
    base_offset : int
        Of the segment.
    index_interval_bytes : int
        The topic's ``index.interval.bytes``.
    verify_crc : bool
        Stop at the first batch with a wrong checksum, as a broker does.
    rules : BrokerRules
        Of the broker's version, see `versions.rules_of`.
    producers : Producers, optional
        As it is at the base offset: carried on to the segment's end, and asked for the transaction
        index.
    epochs : LeaderEpochs, optional
        Is given the leader epochs of the batches.

    Returns
    -------
    RebuiltIndexes

    Raises
    ------
    OffsetOverflowError
        If an offset does not fit the 31 bits above the base offset.
    OutOfOrderAppendError
        If offsets go back from one index entry to the next: a recovering broker gives up there.

    Notes
    -----
    As in a broker a batch is only framed and its checksum computed; a magic above 2, which the
    checksum does not cover, counts as 2.

    Source: Kafka 2.4.0 ``LogSegment.recover``.
    """
    with LogFile(log_path) as log:
        return rebuild_indexes_of(
            log,
            base_offset,
            index_interval_bytes=index_interval_bytes,
            verify_crc=verify_crc,
            rules=rules,
            producers=producers,
            epochs=epochs,
        )


def rebuild_indexes_of(
    log: LogFile,
    base_offset: int,
    *,
    index_interval_bytes: int,
    verify_crc: bool = True,
    rules: BrokerRules = NEWEST,
    producers: Producers | None = None,
    epochs: LeaderEpochs | None = None,
) -> RebuiltIndexes:
    """Do `rebuild_indexes` for a log that is open; positions are those in it."""
    builder = IndexBuilder(
        base_offset,
        index_interval_bytes,
        has_first_offsets=not rules.offset_index_has_last_offset,
        stops_behind_markers=producers is not None,
    )
    aborted: list[NDArray[Any]] = []
    known_epoch = -1
    broken: CorruptionError | None = None
    try:
        for run in batch_runs(log, verify_crc=verify_crc):
            headers = run.headers
            if not rules.offset_index_has_last_offset:
                headers = _with_first_offsets(run, log)
            taken, controls, broken = _append(builder, run, headers)
            if epochs is not None and builder.largest_epoch > known_epoch:
                epochs.assign_many(taken, first_epoch=rules.first_epoch_recovered)
                known_epoch = builder.largest_epoch
            if producers is not None and controls is not None:
                with_producer = taken[taken["producer_id"] >= 0]
                aborted.append(producers.replay(with_producer, controls))
                # What waits for replication is of no use here, and would be kept.
                producers.on_high_watermark(builder.next_offset)
            if broken is not None:
                break
    except CorruptionError as error:
        broken = error
    except (OffsetOverflowError, OutOfOrderAppendError) as error:
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
    )


def _append(
    builder: IndexBuilder, run: BatchRun, headers: NDArray[Any]
) -> tuple[NDArray[Any], list[ControlRecord | None] | None, CorruptionError | None]:
    """Index a run up to a batch that is broken, and read its markers on the way.

    A broker stops behind a marker that it can't read. The markers are None where no batch has a
    producer.
    """
    controls: list[ControlRecord | None] = []
    count, has_producers, broken = 0, False, None
    while True:
        count += builder.append(headers[count:] if count else headers)
        has_producers = has_producers or builder.has_producers
        if not builder.is_behind_marker:
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
    log: LogFile, starting_position: int = 0, *, verify_crc: bool = False
) -> Iterator[BatchRun]:
    """Scan batches as a broker frames them: one of a magic above 2 counts as a record batch.

    Parameters
    ----------
    log : LogFile
        The file.
    starting_position : int
        Byte position at which a batch begins.
    verify_crc : bool
        Compute checksums.

    Yields
    ------
    BatchRun
        As `LogFile.runs`, with magic 2 for those above.

    Raises
    ------
    CorruptBatchError
        As `LogFile.runs`.
    UnsupportedFormatError
        At a negative magic, whose checksum is not known.

    Notes
    -----
    Source: Kafka 2.4.0 ``FileLogInputStream.nextBatch``.
    """
    position, first_read = starting_position, LARGEST_READ
    while True:
        try:
            yield from log.runs(position, verify_crc=verify_crc, first_read=first_read)
        except UnsupportedFormatError as error:
            if error.position is None or (run := _of_higher_magic(log, error, verify_crc)) is None:
                raise
            yield run
            position, first_read = error.position + len(run.data), SMALLEST_READ
        else:
            return


def _of_higher_magic(
    log: LogFile, error: UnsupportedFormatError, verify_crc: bool
) -> BatchRun | None:
    """Return the batch that is refused for its magic as one of magic 2; None if that is negative.

    The scan has found that it ends within the file.
    """
    position = error.position or 0
    with open(log.path, "rb", buffering=0) as file:
        file.seek(position)
        fetch_bytes(file.fileno(), position, position + batch_header.SMALLEST_FRAME)
        frame = file.read(batch_header.SMALLEST_FRAME)
        length = int.from_bytes(frame[_LENGTH_AT : _LENGTH_AT + 4], "big", signed=True)
        file.seek(position)
        end = position + batch_header.FRAME_OVERHEAD + max(length, 0)
        fetch_bytes(file.fileno(), position, end)
        data = bytearray(file.read(batch_header.FRAME_OVERHEAD + max(length, 0)))
    if len(data) <= _MAGIC_AT or data[_MAGIC_AT] > 127:
        return None
    data[_MAGIC_AT] = 2
    headers = np.empty(1, BATCH_HEADER)
    count, *_ = batch_header.scan(data, position, headers, verify_crc=verify_crc)
    return BatchRun(memoryview(data), headers) if count else None


def _with_first_offsets(run: BatchRun, log: LogFile) -> NDArray[Any]:
    """Return the headers with the first offsets of wrappers, which have to be decompressed."""
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
    """Carry producers on over batches whose checksums were not looked at.

    Parameters
    ----------
    producers : Producers
        As it is before them.
    run : BatchRun
        The batches.
    is_asked : numpy.ndarray of bool
        Which of them.

    Raises
    ------
    CorruptBatchError
        If a transaction marker can't be read.
    """
    is_asked = is_asked & (run.headers["producer_id"] >= 0)
    markers = np.flatnonzero(is_asked & is_control(run.headers)).tolist()
    producers.replay(run.headers[is_asked], [_control_of(run, index) for index in markers])


def _control_of(run: BatchRun, index: int) -> ControlRecord | None:
    """Read the control record of one batch of a run."""
    position = int(run.headers["position"][index])
    return first_control_record(RecordBatch(bytes(run.batch(index)), position))
