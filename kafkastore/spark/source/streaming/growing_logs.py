"""What a log that grows holds now, and whether what was read of it is still there.

A log is looked at again and again: each time its directory is listed, and of the ``.log`` files
nothing is read but the header of the last batch that is known and what lies behind it.

That an offset is within the log does not show that the records below it are those that were read: a
log may have been cut and written anew up to there. So an offset comes with a `BatchMark` of the
batch before it.
"""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Self

import numpy as np

from kafkastore.arguments import INT32_MAX, INT64_MAX
from kafkastore.errors import CorruptionError
from kafkastore.formats.file_names import CLEANER_CHECKPOINT
from kafkastore.formats.producer_state import ProducerState
from kafkastore.log.isolation import newest_snapshot, replay
from kafkastore.log.partition_log import PartitionLog
from kafkastore.segment.log_file import LARGEST_READ, SMALLEST_READ, BatchRun, LogFile
from kafkastore.segment.log_segment import LogSegment
from kafkastore.segment.salvage import next_batch
from kafkastore.segment.zeros import is_zero_from


class BatchMark(NamedTuple):
    """What tells a batch from any other that might stand in its place.

    Attributes
    ----------
    last_offset : int
        Of its records.
    leader_epoch : int
        Of the leader that wrote it; -1 before magic 2.
    crc : int
        As in its header.

    Examples
    --------
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
        """Read what `str` writes.

        Raises
        ------
        ValueError
            If the text is something else.
        """
        last_offset, leader_epoch, crc = text.split("/")
        return cls(int(last_offset), int(leader_epoch), int(crc, 16))


class Place(NamedTuple):
    """A batch and where it lies."""

    segment: int
    position: int
    size: int
    base_offset: int
    mark: BatchMark


class LogNow(NamedTuple):
    """A log at one moment.

    Attributes
    ----------
    start_offset, end_offset : int
        The log start offset, and what is behind the last whole batch.
    last : Place or None
        That batch; None where there is none.
    """

    start_offset: int
    end_offset: int
    last: Place | None


class Loss(NamedTuple):
    """Records that are gone, or are others.

    Attributes
    ----------
    sentence : str
        What happened.
    resume_offset : int
        Where the records begin that were not read.
    """

    sentence: str
    resume_offset: int


def look(log: PartitionLog, known: Sequence[Place] = ()) -> LogNow:
    """Find where a log begins and ends now.

    Parameters
    ----------
    log : PartitionLog
        Opened or refreshed since it was last looked at.
    known : sequence of Place
        Batches that were there before. Of the segment of one that still is, only what lies behind
        it is read.

    Returns
    -------
    LogNow
        The end is behind the last batch that is whole and has the right checksum: what a writer is
        about to write, or a crash has left, is behind it.
    """
    return log.beside_changes(lambda: _look(log, known))


def _look(log: PartitionLog, known: Sequence[Place]) -> LogNow:
    start, segments = log.log_start_offset, log.segments
    for segment in reversed(segments):
        last = _last_batch(segment, [each for each in known if each.segment == segment.base_offset])
        if last is not None:
            end = max(start, last.mark.last_offset + 1, segments[-1].base_offset)
            return LogNow(start, end, last)
    return LogNow(start, max(start, segments[-1].base_offset) if segments else start, None)


def _last_batch(segment: LogSegment, known: Sequence[Place]) -> Place | None:
    """Find the last whole batch of a segment."""
    with segment.open_as_broker() as log:
        found = _furthest(log, known)
        first = position = 0 if found is None else found.position + found.size
        if log.size - first > LARGEST_READ:
            position = max(first, segment.position_before(INT64_MAX, log))
        last = _last_whole(segment, log, position)
        if last is None and position > first:  # the index leads behind what is whole
            last = _last_whole(segment, log, first)
    return last or found


def _furthest(log: LogFile, known: Sequence[Place]) -> Place | None:
    """Return the last of some places where the batch that is known still lies."""
    for place in sorted(known, reverse=True):
        header = log.header_at(place.position)
        if header is not None and _mark(header) == place.mark:
            return place
    return None


def _last_whole(segment: LogSegment, log: LogFile, position: int) -> Place | None:
    """Return the last whole batch from a position on, past corrupt bytes: readers meet those."""
    last = None
    for run in _runs(segment, log, position, verify_crc=True):
        good = np.flatnonzero(run.headers["crc_valid"])
        if len(good):
            last = _place(segment, run.headers[good[-1]])
    return last


def _runs(
    segment: LogSegment, log: LogFile, position: int, *, verify_crc: bool
) -> Iterator[BatchRun]:
    """Yield batches from a position on, and those after bytes that are none."""
    following, next_offset = segment.next_base_offset, segment.base_offset
    last_offset = segment.base_offset + INT32_MAX if following is None else following - 1
    while position < log.size:
        try:
            for run in log.runs(position, verify_crc=verify_crc, first_read=SMALLEST_READ):
                yield run
                position += len(run.data)
                next_offset = int(run.headers["last_offset"][-1]) + 1
                if log.header_at(position) is None:
                    break  # what is preallocated is not read
        except CorruptionError:
            pass  # readers meet it, if something follows
        if position >= log.size or is_zero_from(log.descriptor, position):
            return
        position = next_batch(log, position, next_offset, last_offset)


def batch_before(log: PartitionLog, offset: int, known: Sequence[Place] = ()) -> Place | None:
    """Find the batch that holds the record before an offset.

    Parameters
    ----------
    log : PartitionLog
        The partition.
    offset : int
        At most the log end offset.
    known : sequence of Place
        Batches from which the way may be shorter than from the index.

    Returns
    -------
    Place or None
        None where there is none: compaction leaves gaps, and retention a beginning.
    """
    return log.beside_changes(lambda: _batch_before(log, offset, known))


def _batch_before(log: PartitionLog, offset: int, known: Sequence[Place]) -> Place | None:
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
    """Finds a log's last stable offset again and again; goes over what is new since."""

    def __init__(self) -> None:
        self._producers: ProducerState | None = None
        self._next_offset = 0
        self._last: Place | None = None

    def find(self, log: PartitionLog, now: LogNow) -> int:
        """Find the first offset of the oldest transaction that is open.

        Parameters
        ----------
        log : PartitionLog
            The partition.
        now : LogNow
            What `look` found.

        Returns
        -------
        int
            The log end offset where no transaction is open.
        """
        return log.beside_changes(lambda: self._find(log, now))

    def _find(self, log: PartitionLog, now: LogNow) -> int:
        producers, start = self._producers, self._next_offset
        self._producers = None  # until what is new went through
        if producers is None or not self._is_there(log):
            start, producers = newest_snapshot(log, now.end_offset)
        # Tasks verify what they read; here only headers and markers count.
        replay(log, producers, start, now.end_offset, verify=False)
        self._producers, self._next_offset, self._last = producers, now.end_offset, now.last
        undecided = producers.first_undecided_offset
        if undecided is None:
            return now.end_offset
        return min(max(undecided, now.start_offset), now.end_offset)

    def _is_there(self, log: PartitionLog) -> bool:
        """Whether the last batch that was gone over still is in the log."""
        if self._last is None:
            return False
        found = _batch_before(log, self._last.mark.last_offset + 1, [self._last])
        return found is not None and found.mark == self._last.mark


def find_loss(
    log: PartitionLog,
    now: LogNow,
    offset: int,
    mark: BatchMark | None,
    known: Sequence[Place] = (),
) -> Loss | None:
    """Tell whether a log, read up to an offset, can be read on from there.

    Parameters
    ----------
    log : PartitionLog
        The partition.
    now : LogNow
        What `look` found.
    offset : int
        Behind the last record that was read.
    mark : BatchMark or None
        Of the batch with that record; None where it is not known.
    known : sequence of Place
        As for `batch_before`.

    Returns
    -------
    Loss or None
        None if nothing is missing.

    Notes
    -----
    Where the batch is another one, the leader epochs say from which offset on the records are
    others: the first one of a later leader than the batch's. Without such a leader that place is
    not known. Compaction rewrites batches, but keeps their epochs; so where it may have been at
    work only the epochs count.

    Source: Kafka 3.9.0 ``LeaderEpochFileCache.endOffsetFor``, ``OffsetFetcher.validatePositions``.
    """
    which = log.topic_partition
    if now.start_offset > offset:
        return Loss(
            f"{which} begins at offset {now.start_offset}, and was read up to {offset}: retention "
            f"has deleted what is between",
            now.start_offset,
        )
    if now.end_offset < offset:
        others = _first_offset_behind_epoch(log, mark)
        resume = now.end_offset if others is None else min(others, now.end_offset)
        return Loss(
            f"{which} ends at offset {now.end_offset}, and was read up to {offset}: the log was "
            f"truncated",
            max(resume, now.start_offset),
        )
    if mark is None or not log.segments or log.segments[0].base_offset >= offset:
        return None
    if now.last is not None and now.last.mark == mark:
        return None
    found = batch_before(log, offset, known)
    if found is not None and found.mark == mark:
        return None
    others = _first_offset_behind_epoch(log, mark)
    if others is not None and others < offset:
        return Loss(
            f"{which} has other records from offset {others} on than those that were read, up to "
            f"{offset}: the log was truncated and written anew",
            max(others, now.start_offset),
        )
    if _may_be_cleaned(log, offset - 1):
        return None
    return Loss(
        f"{which} has other records before offset {offset} than those that were read: the log was "
        f"truncated and written anew",
        offset,
    )


def _first_offset_behind_epoch(log: PartitionLog, mark: BatchMark | None) -> int | None:
    """Return where the first leader began that came after a batch's."""
    if mark is None:
        return None
    later = [each.start_offset for each in log.leader_epochs if each.epoch > mark.leader_epoch]
    return min(later, default=None)


def _may_be_cleaned(log: PartitionLog, offset: int) -> bool:
    """Whether compaction may have rewritten the batch that holds an offset."""
    if not log.segments or offset >= log.segments[-1].base_offset:
        return False  # the active segment is never compacted
    if log.log_dir is None or log.leftovers:
        return True
    cleaned = log.log_dir.checkpoint(CLEANER_CHECKPOINT)
    return cleaned.error is not None or log.topic_partition in cleaned.offsets


def _place(segment: LogSegment, header: Any) -> Place:
    return Place(
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
