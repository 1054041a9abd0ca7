"""The content of a growing log, and checks that read records still exist.

A log is inspected repeatedly. Each time its directory is listed, and of the ``.log`` files only the
header of the last known batch and the bytes after it are read.

An offset within the log does not prove that the records before it are those that were read: the log
may have been truncated and written again up to there. So an offset comes with a `BatchMark` of the
batch before it.
"""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Self

import numpy as np

from kafkastore.arguments import INT64_MAX
from kafkastore.errors import CorruptionError
from kafkastore.formats.state.file_names import CLEANER_CHECKPOINT, TopicPartition
from kafkastore.formats.state.producer_state import ProducerState
from kafkastore.log.isolation import newest_snapshot, replay
from kafkastore.segment.log_file import LARGEST_READ, SMALLEST_READ, BatchRun, LogFile
from kafkastore.segment.log_segment import LogSegment
from kafkastore.segment.salvage import largest_offset, next_batch
from kafkastore.segment.zero_tail import is_zero_from
from kafkastore.store.data_loss import Loss, LossKind
from kafkastore.store.partition_log import PartitionLog


class BatchMark(NamedTuple):
    """The identity of a batch: distinguishes it from any other batch in its place.

    `leader_epoch` is -1 before magic 2; `crc` is that of the header.

    >>> BatchMark(22, 3, 0x9A8B7C)
    BatchMark(last_offset=22, leader_epoch=3, crc=10128252)
    >>> str(_), BatchMark.parse(str(_)) == _
    ('22/3/009a8b7c', True)
    """

    last_offset: int
    leader_epoch: int
    crc: int

    def __str__(self) -> str:
        return f"{self.last_offset}/{self.leader_epoch}/{self.crc:08x}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse the output of `str`; raise `ValueError` for any other text."""
        last_offset, leader_epoch, crc = text.split("/")
        return cls(int(last_offset), int(leader_epoch), int(crc, 16))


class BatchPosition(NamedTuple):
    """A batch and its position."""

    segment: int
    position: int
    size: int
    base_offset: int
    mark: BatchMark


class LogNow(NamedTuple):
    """A log at one moment: start offset, end offset, and last complete batch if any.

    The end offset is the one after that batch.
    """

    start_offset: int
    end_offset: int
    last: BatchPosition | None


def inspect_log(log: PartitionLog, known: Sequence[BatchPosition] = ()) -> LogNow:
    """Return where a log, just opened or refreshed, begins and ends now.

    It ends after the last complete batch with a valid checksum. `known` are earlier batches; only
    the bytes after one that still exists are read.
    """
    return log.retry_if_changed(lambda: _inspect(log, known))


def _inspect(log: PartitionLog, known: Sequence[BatchPosition]) -> LogNow:
    start, segments = log.log_start_offset, log.segments
    for segment in reversed(segments):
        last = _last_batch(segment, [each for each in known if each.segment == segment.base_offset])
        if last is not None:
            end = max(start, last.mark.last_offset + 1, segments[-1].base_offset)
            return LogNow(start, end, last)
    return LogNow(start, max(start, segments[-1].base_offset) if segments else start, None)


def _last_batch(segment: LogSegment, known: Sequence[BatchPosition]) -> BatchPosition | None:
    """Find the last complete batch of a segment."""
    with segment.open_as_broker() as log:
        found = _furthest(log, known)
        first = position = 0 if found is None else found.position + found.size
        if log.size - first > LARGEST_READ:
            position = max(first, segment.position_before(INT64_MAX, log))
        last = _last_whole(segment, log, position)
        if last is None and position > first:  # the index points past the last complete batch
            last = _last_whole(segment, log, first)
    return last or found


def _furthest(log: LogFile, known: Sequence[BatchPosition]) -> BatchPosition | None:
    """Return the last of the places where the known batch still exists."""
    for place in sorted(known, reverse=True):
        header = log.header_at(place.position)
        if header is not None and _mark(header) == place.mark:
            return place
    return None


def _last_whole(segment: LogSegment, log: LogFile, position: int) -> BatchPosition | None:
    """Return the last complete batch from a position on, even after corrupt bytes.

    Readers report the corrupt bytes.
    """
    last = None
    for run in _runs(segment, log, position, verify_crc=True):
        good = np.flatnonzero(run.headers["crc_valid"])
        if len(good):
            last = _place(segment, run.headers[good[-1]])
    return last


def _runs(
    segment: LogSegment, log: LogFile, position: int, *, verify_crc: bool
) -> Iterator[BatchRun]:
    """Yield batches from a position on, including those after corrupt bytes."""
    next_offset = segment.base_offset
    last_offset = largest_offset(segment.base_offset, segment.next_base_offset)
    while position < log.size:
        try:
            for run in log.runs(position, verify_crc=verify_crc, first_read=SMALLEST_READ):
                yield run
                position, next_offset = run.end_position, run.next_offset
                if log.header_at(position) is None:
                    break  # preallocated space
        except CorruptionError:
            pass  # readers report it, if batches follow
        if position >= log.size or is_zero_from(log.descriptor, position):
            return
        position = next_batch(log, position, next_offset, last_offset)


def batch_before(
    log: PartitionLog, offset: int, known: Sequence[BatchPosition] = ()
) -> BatchPosition | None:
    """Find the batch with the record before an offset (at most the log end offset).

    Batches in `known` may shorten the search from the index. Returns None if there is no such
    batch, because of compaction or retention.
    """
    return log.retry_if_changed(lambda: _batch_before(log, offset, known))


def _batch_before(
    log: PartitionLog, offset: int, known: Sequence[BatchPosition]
) -> BatchPosition | None:
    for segment in log.segments_between(offset - 1, offset):
        near = [
            each
            for each in known
            if each.segment == segment.base_offset and each.mark.last_offset < offset
        ]
        with segment.open_as_broker() as file:
            found = _furthest(file, near)
            if found is not None and found.mark.last_offset == offset - 1:
                return found
            position = 0 if found is None else found.position + found.size
            if file.size - position > SMALLEST_READ:
                position = max(position, segment.position_before(offset - 1, file))
            for run in _runs(segment, file, position, verify_crc=False):
                (at,) = np.nonzero(run.headers["last_offset"] >= offset - 1)
                if len(at):
                    header = run.headers[at[0]]
                    return _place(segment, header) if header["base_offset"] < offset else None
    return None


class StableEnd:
    """Find a log's last stable offset repeatedly, reading only new batches."""

    def __init__(self) -> None:
        self._producers: ProducerState | None = None
        self._next_offset = 0
        self._last: BatchPosition | None = None

    def find(self, log: PartitionLog, now: LogNow) -> int:
        """Return the first offset of the oldest open transaction.

        Returns the log end offset if no transaction is open.
        """
        return log.retry_if_changed(lambda: self._find(log, now))

    def _find(self, log: PartitionLog, now: LogNow) -> int:
        producers, start = self._producers, self._next_offset
        self._producers = None  # until the new batches are replayed without an error
        if producers is None or not self._is_there(log):
            start, producers = newest_snapshot(log, now.end_offset)
        # Tasks verify checksums; only headers and markers matter here.
        replay(log, producers, start, now.end_offset, verify=False)
        self._producers, self._next_offset, self._last = producers, now.end_offset, now.last
        undecided = producers.first_undecided_offset
        if undecided is None:
            return now.end_offset
        return min(max(undecided, now.start_offset), now.end_offset)

    def _is_there(self, log: PartitionLog) -> bool:
        """Return whether the last batch that was read is still in the log."""
        if self._last is None:
            return False
        found = _batch_before(log, self._last.mark.last_offset + 1, [self._last])
        return found is not None and found.mark == self._last.mark


def find_loss(
    log: PartitionLog,
    now: LogNow,
    offset: int,
    mark: BatchMark | None,
    known: Sequence[BatchPosition] = (),
) -> Loss | None:
    """Return what prevents reading on from an offset; None if nothing is missing.

    `mark` is the last record's batch; where the log has another one, leader epochs show from which
    offset records differ. Compaction keeps epochs, so only these count there.

    Source: Kafka 3.9.0 ``LeaderEpochFileCache.endOffsetFor``, ``OffsetFetcher.validatePositions``.
    """
    which = log.topic_partition
    if now.start_offset > offset:
        return deleted(which, now.start_offset, f"was read up to {offset}")
    if now.end_offset < offset:
        others = _first_offset_after_epoch(log, mark)
        resume = now.end_offset if others is None else min(others, now.end_offset)
        return Loss(
            LossKind.TRUNCATED,
            which,
            max(resume, now.start_offset),
            f"{which} ends at offset {now.end_offset}, and was read up to {offset}: the log was "
            f"truncated",
        )
    if mark is None or not log.segments or log.segments[0].base_offset >= offset:
        return None
    if now.last is not None and now.last.mark == mark:
        return None
    found = batch_before(log, offset, known)
    if found is not None and found.mark == mark:
        return None
    others = _first_offset_after_epoch(log, mark)
    if others is not None and others < offset:
        return Loss(
            LossKind.REWRITTEN,
            which,
            max(others, now.start_offset),
            f"{which} has other records from offset {others} on than those that were read, up to "
            f"{offset}: the log was truncated and written again",
        )
    if _may_be_cleaned(log, offset - 1):
        return None
    return Loss(
        LossKind.REWRITTEN,
        which,
        offset,
        f"{which} has other records before offset {offset} than those that were read: the log was "
        f"truncated and written again",
    )


def deleted(which: TopicPartition, start_offset: int, then: str) -> Loss:
    """Return the loss of the records before a log's start offset.

    `then` says what was read.
    """
    return Loss(
        LossKind.DELETED,
        which,
        start_offset,
        f"{which} begins at offset {start_offset}, and {then}: retention has deleted the "
        f"records between",
    )


def _first_offset_after_epoch(log: PartitionLog, mark: BatchMark | None) -> int | None:
    """Return the start offset of the first leader epoch after a batch's."""
    if mark is None:
        return None
    later = [each.start_offset for each in log.leader_epochs if each.epoch > mark.leader_epoch]
    return min(later, default=None)


def _may_be_cleaned(log: PartitionLog, offset: int) -> bool:
    """Return whether compaction may have rewritten the batch that contains an offset."""
    if not log.segments or offset >= log.segments[-1].base_offset:
        return False  # the active segment is never compacted
    if log.log_dir is None or log.leftovers:
        return True
    cleaned = log.log_dir.checkpoint(CLEANER_CHECKPOINT)
    return cleaned.error is not None or log.topic_partition in cleaned.offsets


def _place(segment: LogSegment, header: Any) -> BatchPosition:
    return BatchPosition(
        segment.base_offset,
        int(header["position"]),
        int(header["size"]),
        int(header["base_offset"]),
        _mark(header),
    )


def _mark(header: Any) -> BatchMark:
    return BatchMark(
        int(header["last_offset"]), int(header["leader_epoch"]), int(header["crc"])
    )
