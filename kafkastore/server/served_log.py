"""One partition as it is served, which follows its directory."""

from __future__ import annotations

import logging
import os
import threading
import time
from contextlib import suppress
from typing import NamedTuple

from kafkastore.arguments import check_choice
from kafkastore.errors import CorruptionError, KafkaStoreError
from kafkastore.formats.state.file_names import LOG_START_OFFSET_CHECKPOINT
from kafkastore.formats.state.leader_epochs import LeaderEpochs
from kafkastore.log.damage import CorruptionHandler, OnCorrupt, SkippedBytes
from kafkastore.server.fetch.batches import FoundBatches, ResponseRoom, find_batches
from kafkastore.server.fetch.transactions import Decided, KnownTransactions, Stable
from kafkastore.server.served_epochs import (
    checkpointed_epochs,
    end_of_epoch,
    last_batch_epoch,
)
from kafkastore.store.partition_log import PartitionLog

FIRST_EPOCH = 0
#: A line for what can't be read, and for corrupt bytes that are skipped.
READING_LOG = logging.getLogger(__name__)
_CHECKPOINT_SEEN = "log start offset checkpoint"
_TAIL_BYTES = 128
_SECONDS_BETWEEN_REPORTS = 60


class State(NamedTuple):
    """What changes when a log grows, rolls, loses segments or is replaced.

    Times are in ns; the inode and the size are those of the active segment.
    """

    directory_time: int
    checkpoint_time: int
    inode: int
    size: int
    time: int


class ServedBounds(NamedTuple):
    """The offsets of a log; `error` is why what follows its end can't be read."""

    start: int
    end: int
    error: CorruptionError | None


class SkippedPlaces(list[SkippedBytes]):
    """The corrupt bytes that were skipped, each added and reported once."""

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()
        self._known: set[tuple[object, ...]] = set()

    def append(self, skipped: SkippedBytes) -> None:
        """Add and report bytes; another thread may have met them too."""
        place = skipped.path, skipped.position, skipped.end_position
        with self._lock:
            if place in self._known:
                return
            self._known.add(place)
            super().append(skipped)
        READING_LOG.warning("%s", skipped)


class Reading(NamedTuple):
    """How the logs of a server are read.

    `on_corrupt` is "raise" or "skip"; with `as_v2`, old messages become record batches.
    """

    on_corrupt: OnCorrupt = "raise"
    as_v2: bool = False


AS_STORED = Reading()
_ON_CORRUPT: tuple[OnCorrupt, ...] = ("raise", "skip")


def check_served(on_corrupt: str) -> OnCorrupt:
    """Return a choice that servers have, or raise `ArgumentValueError`."""
    return check_choice("on_corrupt", on_corrupt, _ON_CORRUPT)


class ServedLog:
    """A partition of the served cluster; threads may share it."""

    def __init__(
        self,
        log: PartitionLog,
        leader_epoch: int | None = None,
        reading: Reading = AS_STORED,
        skipped: list[SkippedBytes] | None = None,
    ) -> None:
        self.log = log
        # Strings: each fetch looks at these files.
        self._path = str(log.path)
        self._checkpoint_path = None if log.log_dir is None else os.path.join(
            log.log_dir.path, LOG_START_OFFSET_CHECKPOINT
        )
        #: The leader epoch in the cluster's metadata, if that is known.
        self.known_epoch = leader_epoch
        self._reading = reading
        self.skipped = SkippedPlaces() if skipped is None else skipped
        self._said, self._said_at = "", 0.0
        self._last_epoch: tuple[State | None, int] | None = None
        self._lock = threading.Lock()
        self._transactions = KnownTransactions(log, self.damage)
        # Listing thousands of partitions at the start would take longer than the rest of it.
        self._followed: State | None = None
        self._tail: tuple[int, bytes] | None = None    # once there are known transactions

    @property
    def on_corrupt(self) -> OnCorrupt:
        """How corrupt bytes are handled."""
        return self._reading.on_corrupt

    def report(self, error: Exception) -> None:
        """Report why something can't be read: clients try again, so once in a while."""
        said, now = str(error), time.monotonic()
        if said != self._said or now - self._said_at > _SECONDS_BETWEEN_REPORTS:
            self._said, self._said_at = said, now
            READING_LOG.warning("%s: %s", self.log.topic_partition, said)

    def damage(self) -> CorruptionHandler:
        """Return how a read handles corrupt bytes."""
        return CorruptionHandler(self._reading.on_corrupt, self.skipped)

    def follow(self) -> State | None:
        """Read the directory again if it has changed; return its state before that."""
        state = self.state
        if state == self._followed:
            return state
        with self._lock:    # a second thread must not read the log as it was
            before = self._followed
            if state == before:
                return state
            if state is None or before is None or not self._has_only_grown(before):
                self._transactions.forget()
            log_dir = self.log.log_dir
            seen = 0 if state is None else state.checkpoint_time
            if log_dir is not None and log_dir.facts.get(_CHECKPOINT_SEEN) != seen:
                log_dir.refresh()
                log_dir.facts[_CHECKPOINT_SEEN] = seen
            self.log.refresh_files()
            self._followed = state
            self._tail = None
        return state

    @property
    def state(self) -> State | None:
        """Return what changes with the log; None if it can't be read."""
        log = self.log
        try:
            directory = os.stat(self._path).st_mtime_ns
            active = os.stat(str(log.segments[-1].log_path)) if log.segments else None
        except (OSError, KafkaStoreError):
            return None
        checkpoint = 0
        if self._checkpoint_path is not None:
            with suppress(OSError):
                checkpoint = os.stat(self._checkpoint_path).st_mtime_ns
        if active is None:
            return State(directory, checkpoint, 0, 0, 0)
        return State(directory, checkpoint, active.st_ino, active.st_size, active.st_mtime_ns)

    def _active_tail(self, state: State | None) -> tuple[int, bytes] | None:
        """Return the active segment's inode and last bytes, by which it is known again."""
        if state is None or not self.log.segments:
            return None
        try:
            with self.log.segments[-1].open_log() as log:
                first = max(state.size - _TAIL_BYTES, 0)
                tail = bytes(log.read(first, state.size - first))
                return os.fstat(log.descriptor).st_ino, tail
        except (KafkaStoreError, OSError):
            return None

    def _has_only_grown(self, before: State) -> bool:
        """Return whether the segment that was active begins as it did then."""
        return self._tail is not None and self._tail == self._active_tail(before)

    @property
    def leader_epoch(self) -> int:
        """The newest leader epoch of the checkpoint, batches and metadata, at least 0.

        A broker always has one, also before 0.11: clients that know none ask with 0.
        """
        state = self._followed
        if self._last_epoch is None or self._last_epoch[0] != state:
            self._last_epoch = state, last_batch_epoch(self.log)
        return self.described_epoch

    @property
    def described_epoch(self) -> int:
        """The newest leader epoch that is known without reading batches.

        If those have a newer one, the error for the client's epoch makes it ask again.
        """
        epochs = checkpointed_epochs(self.log)
        return max(
            FIRST_EPOCH,
            epochs[-1].epoch if epochs else FIRST_EPOCH,
            FIRST_EPOCH if self.known_epoch is None else self.known_epoch,
            FIRST_EPOCH if self._last_epoch is None else self._last_epoch[1],
        )

    @property
    def bounds(self) -> ServedBounds:
        """The log start offset, and where what can be read ends."""
        log = self.log
        start = log.log_start_offset
        if self._reading.on_corrupt == "skip":
            return ServedBounds(start, log.end_before(self.damage()), None)
        end = log.retry_if_changed(lambda: log.end_bound)
        return ServedBounds(start, end.offset, end.error)

    def last_stable_offset(self, log_end: int) -> Stable:
        """Return the first offset of the oldest open transaction, or the log end."""
        if self._tail is None:
            self._tail = self._active_tail(self._followed)
        return self.log.retry_if_changed(
            lambda: self._transactions.last_stable_offset(log_end)
        )

    def epoch_of(self, offset: int) -> int | None:
        """Return the leader epoch that an offset is in, if it is known."""
        return LeaderEpochs(checkpointed_epochs(self.log)).epoch_for_offset(offset)

    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        """Return the largest epoch up to one, and where it ends; or -1, -1."""
        return end_of_epoch(
            self.log, checkpointed_epochs(self.log), self.leader_epoch, epoch, self.bounds.end
        )

    def read(self, offset: int, end_offset: int, room: ResponseRoom) -> FoundBatches | None:
        """Find the batches from the one that has an offset up to `end_offset`, exclusive.

        None: there is none. Raises `CorruptionError` if the first is corrupt, and not skipped.
        """
        return self.log.retry_if_changed(lambda: self._read(offset, end_offset, room))

    def _read(self, offset: int, end_offset: int, room: ResponseRoom) -> FoundBatches | None:
        for segment in self.log.segments_between(offset, end_offset):
            found = find_batches(
                segment, offset, end_offset, room, self.damage(), as_v2=self._reading.as_v2
            )
            if found is not None:
                return found
        return None

    def aborted(self, start_offset: int, end_offset: int, log_end: int) -> Decided:
        """Return the aborted transactions that overlap a range of offsets."""
        return self.log.retry_if_changed(
            lambda: self._transactions.find_aborted(start_offset, end_offset, log_end)
        )
