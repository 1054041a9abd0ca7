"""Find the batches of a segment that a response has.

What is sent is always whole batches of one segment, which were read before with their checksums.
So no corrupt byte leaves, and what is sent afterwards from the file lies in the page cache.

Small ranges, converted batches and those of remote stores are copied into memory: for a small one
that is faster, and of a remote store's local file the bytes may be released before they are sent.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kafkastore.errors import CorruptionError, SegmentGoneError
from kafkastore.formats.messages.message_codec import Elsewhere
from kafkastore.formats.records.batch_header import RECORD_BATCH_FIELDS
from kafkastore.log.damage import CorruptionHandler, SkippedBytes
from kafkastore.reads import is_remote
from kafkastore.segment.conversion import Conversion, convert_messages
from kafkastore.segment.log_file import LARGEST_READ, SMALLEST_READ, BatchRun, LogFile
from kafkastore.segment.log_segment import LogSegment
from kafkastore.server.fetch.verified_ranges import VerifiedRange, VerifiedRanges

#: Up to this size, batches are copied.
SMALL_BYTES = 32 * 1024
#: A response with this share of its room filled is not worth another read.
_FULL = 15 / 16
_free_memory: deque[bytearray] = deque(maxlen=8)
#: A message of format 0 or 1 has no leader epoch, and neither has the batch that it becomes.
_CONVERSION = Conversion(leader_epoch=-1)
_LAST_OFFSET_DELTA = RECORD_BATCH_FIELDS["last_offset_delta"]


class FileRange(Elsewhere):
    """Whole batches of an open `.log`; `close` it when they are sent."""

    def __init__(self, log: LogFile, position: int, size: int) -> None:
        self.log, self.position, self.size = log, position, size

    @property
    def descriptor(self) -> int:
        """The descriptor of the open file."""
        return self.log.descriptor

    def close(self) -> None:
        """Close the file."""
        self.log.close()


def size_of(records: bytes | Elsewhere) -> int:
    """Return the size of a part of a response."""
    return len(records) if isinstance(records, bytes) else records.size


def close_files(parts: Iterable[bytes | Elsewhere | None]) -> None:
    """Close the files of parts of a response."""
    for part in parts:
        if isinstance(part, FileRange):
            part.close()


class FoundBatches(NamedTuple):
    """Batches from a file or copied ones, and the offset after the last."""

    records: FileRange | bytes
    end_offset: int

    @property
    def size(self) -> int:
        """The bytes of the batches; 0 if there was no room for the first."""
        return size_of(self.records)

    def close(self) -> None:
        """Close the file of batches that are not sent."""
        close_files([self.records])


class ResponseRoom(NamedTuple):
    """How many bytes a partition may have, of them `copied_bytes` in memory.

    The first batch may be larger if `at_least_one`.
    """

    max_bytes: int
    copied_bytes: int
    at_least_one: bool

    def in_memory(self) -> ResponseRoom:
        """Return the room of batches that are copied."""
        return self._replace(max_bytes=min(self.max_bytes, self.copied_bytes))


@contextmanager
def _reused_memory() -> Iterator[Callable[[int], memoryview]]:
    """Lend memory for one read at a time; a thread's own would stay with it."""
    try:
        memory = _free_memory.pop()
    except IndexError:
        memory = bytearray(LARGEST_READ)

    def room(size: int) -> memoryview:
        return memoryview(memory)[:size] if size <= LARGEST_READ else memoryview(bytearray(size))

    yield room
    _free_memory.append(memory)


def find_batches(
    segment: LogSegment,
    offset: int,
    end_offset: int,
    room: ResponseRoom,
    damage: CorruptionHandler,
    *,
    as_v2: bool,
) -> FoundBatches | None:
    """Find the batches from the one that has an offset up to `end_offset`, exclusive.

    None if all of the segment end before the offset. A corrupt batch ends them; if it is the first,
    `damage` decides. With `as_v2`, old messages become record batches.
    """
    log = segment.kept_log.copy()
    try:
        with _reused_memory() as memory:
            search = _Search(segment, log, offset, end_offset, room, damage, as_v2, memory)
            found = search.find()
        if found is None and os.fstat(log.descriptor).st_size < log.size:
            # It was truncated while it was read: what the next segment has is not next.
            raise SegmentGoneError(segment.log_path)
    except BaseException:
        log.close()
        raise
    if found is None or not isinstance(found.records, FileRange):
        log.close()
    return found


class _Search:
    """A search for batches in one segment."""

    def __init__(
        self,
        segment: LogSegment,
        log: LogFile,
        offset: int,
        end_offset: int,
        room: ResponseRoom,
        damage: CorruptionHandler,
        as_v2: bool,
        memory: Callable[[int], memoryview],
    ) -> None:
        self._segment, self._log, self._memory = segment, log, memory
        self._offset, self._end_offset = offset, end_offset
        self._is_remote = is_remote(log.descriptor)
        self._room = room.in_memory() if self._is_remote else room
        self._damage, self._as_v2 = damage, as_v2
        self._start = self._end = self._next_offset = -1
        self._has_skipped = False

    def find(self) -> FoundBatches | None:
        """Return what `find_batches` does."""
        verified = None if self._is_remote or self._as_v2 else VerifiedRanges(self._log)
        if verified is not None:
            known = verified.find(self._offset, self._end_offset, self._room.max_bytes)
            if known is not None:
                self._start, size, self._next_offset = known
                self._end = self._start + size
                return self._taken()
        converted = self._scan()
        if converted is not None or self._start < 0:
            return converted
        size = self._end - self._start
        # What follows skipped bytes is not what another server sends, which does not skip.
        if verified is not None and size and not self._has_skipped:
            verified.add(self._offset, VerifiedRange(self._start, size, self._next_offset))
        return self._taken()

    def _scan(self) -> FoundBatches | None:
        """Find the place of the batches, or convert them."""
        for run in self._runs():
            headers = run.headers
            slot = 0
            if self._start < 0:
                slot = int(np.searchsorted(headers["last_offset"], self._offset))
                if slot == len(headers):
                    continue
                if self._as_v2 and headers["magic"][slot] < 2:
                    converted, count = self._converted(run, headers[slot:])
                    if converted is not None:
                        return converted
                    slot += count    # all of these were corrupt, and are skipped
                    if slot == len(headers):
                        continue
                self._start = self._end = int(headers["position"][slot])
            count = self._fitting(headers[slot:])
            if count:
                last = headers[slot + count - 1]
                self._end = int(last["position"] + last["size"])
                self._next_offset = int(last["last_offset"]) + 1
            is_full = self._end - self._start >= self._room.max_bytes * _FULL
            if is_full or slot + count < len(headers):
                break
        return None

    def _runs(self) -> Iterator[BatchRun]:
        """Scan batches; after corrupt ones that are skipped, the following ones."""
        position = self._segment.position_before(self._offset, self._log)
        first_read = min(max(self._room.max_bytes, SMALLEST_READ), LARGEST_READ)
        next_offset = self._segment.base_offset
        while position < self._log.size:
            try:
                for run in self._log.runs(
                    position, verify_crc=True, first_read=first_read, room=self._memory
                ):
                    yield run
                    position, next_offset = run.end_position, run.next_offset
                return
            except CorruptionError as error:
                if self._end > self._start:
                    return    # what was found is sent, and the next request gets here again
                position = self._after(error, next_offset)

    def _after(self, error: CorruptionError, next_offset: int) -> int:
        """Return where batches continue after corrupt bytes; or raise."""
        skipped: list[SkippedBytes] = []
        quiet = CorruptionHandler("skip", skipped)
        position = quiet.skip_bytes(error, self._segment, self._log, next_offset)
        after = skipped[-1].end_offset
        if position < self._log.size and after is not None and after <= self._offset:
            return position    # they are before what is asked for
        self._damage.skip_bytes(error, self._segment, self._log, next_offset)
        self._has_skipped = True
        return position

    def _fitting(self, headers: NDArray[Any]) -> int:
        """Return how many of the next batches are sent from the file."""
        ends = headers["position"] + headers["size"]
        starts_before = _first_offsets(headers) < self._end_offset
        fits = (ends - self._start <= self._room.max_bytes) & starts_before
        if self._end == self._start and self._room.at_least_one:
            fits[0] = starts_before[0]
        if self._as_v2:
            fits &= headers["magic"] == 2
        return len(fits) if fits.all() else int(fits.argmin())

    def _taken(self) -> FoundBatches:
        size = self._end - self._start
        is_copied = size <= min(SMALL_BYTES, self._room.copied_bytes) or self._is_remote
        if not is_copied:
            return FoundBatches(FileRange(self._log, self._start, size), self._next_offset)
        return FoundBatches(bytes(self._log.read(self._start, size)), self._next_offset)

    def _converted(self, run: BatchRun, headers: NDArray[Any]) -> tuple[FoundBatches | None, int]:
        """Convert old messages, up to the first record batch; None if all are corrupt.

        Returns also how many there are.
        """
        is_old = headers["magic"] < 2
        count = len(headers) if is_old.all() else int(is_old.argmin())
        is_wanted = _first_offsets(headers[:count]) < self._end_offset
        wanted = headers[: count if is_wanted.all() else int(is_wanted.argmin())]
        if not len(wanted):
            return FoundBatches(b"", self._offset), count
        room = self._room.in_memory()
        converted, next_offset = bytearray(), self._offset
        while len(wanted):
            try:
                for batch in convert_messages(run, wanted, _CONVERSION):
                    is_first = not converted and room.at_least_one
                    if len(converted) + len(batch) > room.max_bytes and not is_first:
                        return FoundBatches(bytes(converted), next_offset), count
                    converted += batch
                    next_offset = _end_offset_of(batch)
                break
            except CorruptionError as error:
                if converted:
                    break
                bad = int(np.searchsorted(wanted["position"], error.position or 0, "right"))
                self._damage.skip_batch(error, self._segment, wanted[max(bad - 1, 0)])
                wanted = wanted[max(bad, 1) :]
        return (FoundBatches(bytes(converted), next_offset) if converted else None), count


def _first_offsets(headers: NDArray[Any]) -> NDArray[Any]:
    """Return the first offsets of batches; of a wrapper message, the last."""
    found: NDArray[Any] = np.where(
        headers["base_offset"] < 0, headers["last_offset"], headers["base_offset"]
    )
    return found


def _end_offset_of(batch: bytes) -> int:
    """Return the offset after a record batch."""
    delta = batch[_LAST_OFFSET_DELTA : _LAST_OFFSET_DELTA + 4]
    return int.from_bytes(batch[:8], "big") + int.from_bytes(delta, "big") + 1
