"""One partition as it is served, which follows its directory.

What is sent is always whole batches of one segment, which were read before with their checksums.
So no corrupt byte leaves, and what is sent afterwards lies in the page cache.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np

from kafkastore.errors import CorruptionError, KafkaStoreError, SegmentGoneError
from kafkastore.formats.messages.message_codec import Elsewhere
from kafkastore.formats.state.checkpoints import EpochStart
from kafkastore.formats.state.leader_epochs import LeaderEpochs
from kafkastore.log.isolation import find_aborted_txns
from kafkastore.segment.log_file import LARGEST_READ, SMALLEST_READ, LogFile
from kafkastore.segment.log_segment import LogSegment
from kafkastore.server.verified_ranges import VerifiedRange, VerifiedRanges
from kafkastore.store.partition_log import PartitionLog

FIRST_EPOCH = 0
#: A response with this share of its room filled is not worth another read.
_FULL = 15 / 16
_free_memory: deque[bytearray] = deque(maxlen=8)


class FileRange(Elsewhere):
    """Whole batches of an open `.log`; `close` it when they are sent.

    `end_offset` is exclusive.
    """

    def __init__(self, log: LogFile, position: int, size: int, end_offset: int) -> None:
        self.log, self.position, self.size, self.end_offset = log, position, size, end_offset

    @property
    def descriptor(self) -> int:
        """The descriptor of the open file."""
        return self.log.descriptor

    def close(self) -> None:
        """Close the file."""
        self.log.close()


class AbortedTransaction(NamedTuple):
    """A producer's transaction that was aborted, from its first offset on."""

    producer_id: int
    first_offset: int


class ServedLog:
    """A partition of the served cluster; threads may share it."""

    def __init__(self, log: PartitionLog, leader_epoch: int | None = None) -> None:
        self.log = log
        self._known_epoch = leader_epoch
        self._lock = threading.Lock()
        # Listing thousands of partitions at the start would take longer than the rest of it.
        self._followed: tuple[int, ...] | None = None

    def follow(self) -> None:
        """Read the directory again at the first call, and when it has changed."""
        state = self.state
        if state == self._followed:
            return
        with self._lock:    # a second thread must not read the log as it was
            if state != self._followed:
                self.log.refresh()
                self._followed = state

    @property
    def state(self) -> tuple[int, ...]:
        """What changes when the log grows, rolls or loses segments."""
        try:
            directory = os.stat(self.log.path).st_mtime_ns
            active = os.stat(self.log.segments[-1].log_path) if self.log.segments else None
        except (OSError, KafkaStoreError):
            return ()
        return (directory, *([] if active is None else [active.st_size, active.st_mtime_ns]))

    @property
    def leader_epoch(self) -> int:
        """The newest leader epoch; 0 if the log has none or its file is corrupt.

        A broker always has one, also before 0.11: clients that know none ask with 0.
        """
        epochs = self._epochs
        newest = epochs[-1].epoch if epochs else FIRST_EPOCH
        return newest if self._known_epoch is None else max(newest, self._known_epoch)

    @property
    def _epochs(self) -> tuple[EpochStart, ...]:
        try:
            return self.log.leader_epochs
        except (KafkaStoreError, OSError):
            return ()

    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        """Return the largest epoch up to one, and where it ends; or -1, -1."""
        log = self.log
        if epoch == self.leader_epoch:
            return epoch, log.log_end_offset
        return LeaderEpochs(self._epochs).end_offset_for(
            epoch, log_end_offset=log.log_end_offset
        )

    def read(
        self, offset: int, end_offset: int, max_bytes: int, *, at_least_one: bool
    ) -> FileRange | None:
        """Find the batches from the one that has an offset up to `end_offset`, exclusive.

        None: there is none, or no room. A first one of more than `max_bytes` is returned whole if
        `at_least_one`. Raises `CorruptionError` if the first is corrupt.
        """
        return self.log.retry_if_changed(
            lambda: self._read(offset, end_offset, max_bytes, at_least_one)
        )

    def _read(
        self, offset: int, end_offset: int, max_bytes: int, at_least_one: bool
    ) -> FileRange | None:
        for segment in self.log.segments_between(offset, end_offset):
            found = _batches_of(segment, offset, end_offset, max_bytes, at_least_one)
            if found is not None:
                return found if found.size else None
        return None

    def aborted(self, start_offset: int, end_offset: int) -> list[AbortedTransaction]:
        """Return the aborted transactions with a batch in a range of offsets."""
        found = find_aborted_txns(self.log, start_offset, end_offset)
        found = np.sort(found, order=("first_offset", "producer_id"))
        return [
            AbortedTransaction(*each)
            for each in found[["producer_id", "first_offset"]].tolist()
        ]


@contextmanager
def _reused_memory() -> Iterator[Callable[[int], memoryview]]:
    """Lend memory for a read; each thread's own would stay with it."""
    try:
        memory = _free_memory.pop()
    except IndexError:
        memory = bytearray(LARGEST_READ)

    def room(size: int) -> memoryview:
        return memoryview(memory)[:size] if size <= LARGEST_READ else memoryview(bytearray(size))

    yield room
    _free_memory.append(memory)


def _batches_of(
    segment: LogSegment, offset: int, end_offset: int, max_bytes: int, at_least_one: bool
) -> FileRange | None:
    """Find batches of a segment: None if all end before, size 0 without room."""
    with _reused_memory() as room:
        return _find_batches(segment, offset, end_offset, max_bytes, at_least_one, room)


def _find_batches(
    segment: LogSegment,
    offset: int,
    end_offset: int,
    max_bytes: int,
    at_least_one: bool,
    room: Callable[[int], memoryview],
) -> FileRange | None:
    log = segment.open_log()
    start = end = last = -1
    try:
        verified = VerifiedRanges(log)
        known = verified.find(offset, end_offset, max_bytes)
        if known is not None:
            return FileRange(log, *known)
        position = segment.position_before(offset, log)
        scanned = position
        first_read = min(max(max_bytes, SMALLEST_READ), LARGEST_READ)
        for run in log.runs(position, verify_crc=True, first_read=first_read, room=room):
            headers, scanned = run.headers, run.end_position
            slot = 0
            if start < 0:
                slot = int(np.searchsorted(headers["last_offset"], offset))
                if slot == len(headers):
                    continue
                start = end = int(headers["position"][slot])
            ends = headers["position"][slot:] + headers["size"][slot:]
            firsts = np.where(
                headers["base_offset"] < 0, headers["last_offset"], headers["base_offset"]
            )[slot:]
            fits = (ends - start <= max_bytes) & (firsts < end_offset)
            if end == start and at_least_one:
                fits[0] = firsts[0] < end_offset
            count = len(fits) if fits.all() else int(fits.argmin())
            if count:
                end = int(ends[count - 1])
                last = int(headers["last_offset"][slot + count - 1])
            if count < len(fits) or end - start >= max_bytes * _FULL:
                break
    except CorruptionError as error:
        if end <= start:
            log.close()
            raise error.located(segment.log_path) from error
    except BaseException:
        log.close()
        raise
    if start < 0:
        log.close()
        if scanned < log.size and not segment.is_active:
            # It was truncated while it was read: what follows in the next one is not next.
            raise SegmentGoneError(segment.log_path)
        return None
    found = VerifiedRange(start, end - start, last + 1)
    if found.size:
        verified.add(offset, found)
    return FileRange(log, *found)
